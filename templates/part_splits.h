/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_splits.h - partial results of a row over disjoint keys, joined by their log-sum-exps (log2 units). A split that saw no
** key has -inf and weighs nothing; so a sum's bits do not change with splits that are added behind and are empty.
*/
#ifndef KVKILN_PART_SPLITS_H
#define KVKILN_PART_SPLITS_H

#include "../gen/kb.h"

enum { SPLITS_WIDE = 4 }; /* dims a thread takes at once, at most */

struct splits_sum {
    val m, l, x[SPLITS_WIDE]; /* reference, weights, weighted values: all f32, under 2^m */
};

/* Some dims of a row in all its splits. */
struct splits_row {
    val out, lse;       /* of split 0: its first of these dims, its log-sum-exp */
    val count;          /* i32, > 0 */
    int row_bytes;      /* from one split's values to the next */
    int wide;           /* 1, 2 or 4 dims */
};

/* Splits first, first + step, ... in this order. */
struct splits_sum splits_chain(struct kb *k, const struct splits_row *r, val first, val step);
/* Both: a's, then b's. */
struct splits_sum splits_both(struct kb *k, const struct splits_sum *a, const struct splits_sum *b, int wide);
/* Dims that a thread takes of rows of so many. */
int splits_wide(int dims);
/* The finished row. */
struct splits_target {
    val out, lse;       /* the first of these dims; the row's log-sum-exp, written where the call wants them */
    val head, first;    /* i32 query head; i1: these are its first dims */
};
void splits_write(struct kb *k, const struct splits_sum *s, const struct splits_target *to, int wide);

#endif
