/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_codebook.h - a side's centroids and look-ups in them, for templates that handle single elements.
*/
#ifndef KVKILN_PART_CODEBOOK_H
#define KVKILN_PART_CODEBOOK_H

#include "../gen/plan.h"

/* 2^bits ascending centroids of a codebook side: the spec's, or those of the solver for its head size. */
void codebook_of_side(const struct side *side, float centroids[SPEC_MAX_CENTROIDS]);

/* table[code], by selection over the code's bits. */
/* The same of a table that lanes hold, entry lane % 2^bits each: one shuffle. */
val codebook_lanes(struct kb *k, const float *table, int bits);
val codebook_pick(struct kb *k, const float *table, int bits, val code);

#endif
