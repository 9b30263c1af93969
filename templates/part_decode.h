/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_decode.h - one vector of one side of a slot, decoded to f32 by a warp (formats.md sections 9.1 and 10.4).
*/
#ifndef KVKILN_PART_DECODE_H
#define KVKILN_PART_DECODE_H

#include "part_rowvec.h"
#include "part_slot.h"

/* Fills v->x; a rotated side comes out in the rotated basis. Fields are made finite first. */
void decode_side(struct kb *k, const struct side *side, const struct slot_token *token, struct rowvec *v);

/* Unit vectors of centroids times the norm; sums of squares first, where the format has them when it is read. */
void decode_norm(struct kb *k, const struct side *side, val norm, struct rowvec *v);

/* One code of up to 16 bits as f32, exact, without fields or scales: a float, or E2M1. */
val decode_float(struct kb *k, enum float_format format, val code);
val decode_e2m1(struct kb *k, val code);
/* Factor of a block_float scale byte (i32). */
val decode_scale(struct kb *k, enum block_rule rule, val byte);

#endif
