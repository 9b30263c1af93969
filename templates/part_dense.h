/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_dense.h - attention over rows of 16 bits by groups of four warps (kb_group.h), what its parts share.
**
** The first plan->dense groups multiply, 64 query rows each; the last one brings tiles of 64 tokens of keys and values from the
** pages into a ring in shared memory. A tile is full when all warps of the last group say so, empty when all others do. Group
** and tile meet in the order: scores of tile i and the output of tile i - 1 are started, the weights of tile i are made while
** the latter runs.
**
** Scores are in log2 units. Keys and queries meet as they are (bf16 queries of an fp16 cache: times a power of two); the scale
** comes after. The reference m is moved when a score of the warp passes it by more than 8.
*/
#ifndef KVKILN_PART_DENSE_H
#define KVKILN_PART_DENSE_H

#include "../gen/kb_group.h"
#include "../gen/plan.h"
#include "part_rows.h"

/* Weights are one term of f16 or two of bf16. */
enum { DENSE_TERMS = 2, DENSE_SCORES = KB_TILE_TOKENS / 2, DENSE_PAIRS = KB_TILE_TOKENS / 4, DENSE_OUT = 64 };

struct dense {
    const struct plan *plan;
    int type;                     /* of operands: KB_F16, KB_BF16 */
    struct rows rows;             /* rows.first: of the CTA */
    val sequence, length, oldest; /* i32; oldest: position of the sequence's first query token */
    val start, end, tiles;        /* i32: tokens that some row sees, start a multiple of 16; tiles of 64, at least one */
    val keys, values;             /* shared: first tiles of the ring */
    val queries, factors;         /* shared: tiles of the groups, f32 of the rows */
    val sums;                     /* shared: output sums of earlier chunks */
    val full, empty;              /* shared: mbarriers of the ring's tiles */
};

/* part_dense_load.c. The last group: fills the ring. */
void dense_bring(struct kb *k, const struct dense *d, val member);
/* One of the others: its queries. */
void dense_queries(struct kb *k, const struct dense *d, val group);

/* What a lane has of its two rows. */
struct dense_sums {
    val m[2], l[2];
    val o[DENSE_OUT];
};
/* part_dense_attend.c */
void dense_attend(struct kb *k, const struct dense *d, val group, struct dense_sums *s);
/* part_dense_write.c */
void dense_write(struct kb *k, const struct dense *d, val group, const struct dense_sums *s);

/* Row of the CTA that a lane of this group holds first; the other is 8 later. */
val dense_row(struct kb *k, val group);
/* m of rows that saw no key: a number, so that nothing is infinite less infinite. */
val dense_nothing(struct kb *k);

#endif
