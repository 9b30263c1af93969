/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_shared.h - vectors that few lanes of a warp share (rowvec_share), encoded with few instructions an element. The bytes are
** those of part_encode.h.
**
** What is rare (a NaN, an infinity, lengths beyond fp16 and near zero) is found once a vector and has a branch of its own, which a
** warp takes for all its vectors if one of them needs it: it gives the others what they would have had.
*/
#ifndef KVKILN_PART_SHARED_H
#define KVKILN_PART_SHARED_H

#include "part_encode.h"

enum { SHARED_EIGHTS = ROWVEC_MAX / 8 };

struct shared {
    const struct side *side;
    int type;                     /* KB_F16 or KB_BF16 */
    struct rowvec v;              /* x is set by the encoder */
    val word[ROWVEC_MAX / 2];     /* the row's, two elements each */
    val code[SHARED_EIGHTS][2];   /* a run's codes as one stream (native, below 4 bits: nibbles) */
    val field[2];
};

/* cond in some lane, as something that the assembler knows to be equal in the warp: shuffles may stand behind a branch by it. */
val shared_any(struct kb *k, val cond);

/* row: pointer to element 0, aligned to one element. */
void shared_load(struct kb *k, struct shared *s, const struct side *side, val row);
void shared_encode(struct kb *k, struct shared *s);
/* Codes and fields into the slot, if `exists`. */
void shared_store(struct kb *k, const struct shared *s, const struct slot_token *token, val exists);

#endif
