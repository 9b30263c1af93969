/* SPDX-License-Identifier: Apache-2.0 */
/*
** plan_rules.h - what the files of plan_make share.
*/
#ifndef KVKILN_GEN_PLAN_RULES_H
#define KVKILN_GEN_PLAN_RULES_H

#include "plan.h"

/* Keeps why a field has its value. */
void plan_because(struct plan *p, const char *field, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* What was set from outside, else the rule's value. */
int plan_pick(struct plan *p, enum plan_field field, int rule);

/* plan_rows.c: can lengths of keys come from the matrix unit? How rows of images are read. */
bool plan_squares_possible(const struct plan *p);
void plan_rows(struct plan *p);
/* plan_images.c: can decode take pages so, and is it faster? Warps that then keep up with memory; the fields of images. */
bool plan_images_possible(const struct plan *p);
bool plan_images_help(const struct plan *p);
int plan_image_warps(const struct plan *p);
void plan_images(struct plan *p, bool wanted);
/* plan_dense.c: kernels of groups of warps. Can this kernel be one? */
bool plan_dense_possible(const struct plan *p);
/* Decides; true: the plan is complete. */
bool plan_dense(struct plan *p);
/* plan_powers.c: can FP4 codes of images meet f16 operands? */
bool plan_powers_possible(const struct plan *p);
/* plan_join.c, decode. */
void plan_neighbours(struct plan *p);
/* plan_pairs.c, store and dequant: which lanes hold a (row, head). */
void plan_pairs(struct plan *p);

#endif
