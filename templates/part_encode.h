/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_encode.h - one vector of a warp -> codes, fields and scales of one side, in the arithmetic of formats.md 8.5.
*/
#ifndef KVKILN_PART_ENCODE_H
#define KVKILN_PART_ENCODE_H

#include "part_rowvec.h"
#include "part_slot.h"

struct encoded {
    val code[ROWVEC_MAX]; /* i32 */
    val field[2];         /* f32, finite in fp16, equal in all lanes */
    val scale[2];         /* block_float: i32, a byte per group that begins or lies in the lane */
};

/* Encoders may change v->x. */
void encode_codebook(struct kb *k, const struct side *side, struct rowvec *v, struct encoded *out);
void encode_affine(struct kb *k, const struct side *side, struct rowvec *v, struct encoded *out);
void encode_float(struct kb *k, const struct side *side, struct rowvec *v, struct encoded *out);
void encode_block(struct kb *k, const struct side *side, struct rowvec *v, struct encoded *out);

/* The side's encoder, then its bytes into the slot. */
void encode_side(struct kb *k, const struct side *side, struct rowvec *v, const struct slot_token *token);

/* Length of the vector of chosen centroids. */
val encode_chosen_length(struct kb *k, const struct rowvec *v, const float *centroids, int bits, const val *code);

/* Infinities become +-65504. Scale and zero of codes 0..top between such numbers; an infinite least: there is none. */
val encode_bounded(struct kb *k, val x);
void encode_range(struct kb *k, val least, val most, int top, val *scale, val *zero);

/* Bit patterns: NaN -> 0, other magnitudes at most `most`. */
val encode_sanitise(struct kb *k, val x, val most);

/* part_encode_float.c: f32 -> the byte of e4m3fn in an i32 (formats.md section 5.1; NaN is the caller's). */
val encode_e4m3(struct kb *k, val x);

#endif
