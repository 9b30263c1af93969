/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_splits.h - partial results of a row over disjoint keys: a reference m (log2 units), and, under 2^m, the sum l of its
** weights and the weighted values. One that saw no key has m = -inf and weighs nothing; so a sum's bits do not change with
** empty ones that are added behind.
*/
#ifndef KVKILN_PART_SPLITS_H
#define KVKILN_PART_SPLITS_H

#include "../gen/kb.h"

enum { SPLITS_WIDE = 4, SPLITS_AHEAD = 4 }; /* most dims a thread takes at once; most parts whose loads are under way at once */

struct splits_sum {
    val m, l, x[SPLITS_WIDE]; /* reference, weights, weighted values: all f32, under 2^m */
};

/* Some dims of a row in all its parts. */
struct splits_row {
    val values, facts;           /* of part 0: the first of these dims; {m, l}, f32, aligned to 8 bytes */
    val values_bytes, fact_bytes; /* i32: from one part to the next */
    val count;                   /* i32, > 0 */
    int wide, ahead;             /* 1, 2 or 4 dims; parts whose loads are all under way before one is needed */
    /* NULL, or: parts come in two sets of 2^log; those of set `own` (0, 1) lie there, those of the other so many bytes (i64)
    ** further on. One set: log is 31. */
    val log, own, other;
};

/* Parts first, first + step, ... in this order. */
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
