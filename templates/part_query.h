/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_query.h - query rows into shared memory, as operands of the matrix unit.
*/
#ifndef KVKILN_PART_QUERY_H
#define KVKILN_PART_QUERY_H

#include "part_attend.h"

/* Rows `member`, `member + members`, ... of this warp's tile into shared memory; a CTA barrier must follow. */
struct query_rows {
    val (*pointer)(struct kb *k, void *data, val row); /* of a row's query; past the last some valid row's */
    void *data;
    val exist; /* i32, or NULL: all do */
};
/* Its first rows, asked for early: they come while other things are done. */
enum { QUERY_AHEAD = 2 };
struct query_ahead { val row[QUERY_AHEAD][32]; }; /* elements as they are; NULL past the lane's */
void attend_fetch_query(struct kb *k, val member, val members, const struct query_rows *q, struct query_ahead *ahead);
void attend_load_query(struct kb *k, struct attend *a, val tile, val member, val members, val scale, const struct query_rows *q,
                       const struct query_ahead *ahead);
void attend_row_scales(struct kb *k, struct attend *a);
/* What a kernel's options need of a row: its position, its head's slope. Fills row `i`. */
void attend_row_options(struct kb *k, struct attend *a, int i, val position, val head, val valid);
/* Where the lane's run of operand row i begins in the tile: i32 bytes. */
val attend_query_place(struct kb *k, const struct attend *a, int i);
/* X operand of k step s; plane 0 = the value or its upper term, 1 = its lower term. pairs[lane_rows * ke / 2]. */
void attend_query_operand(struct kb *k, const struct attend *a, val tile, int s, int plane, val *pairs);
/* Those of steps s, which is even, and s + 1, of a swizzled tile: one load each row. pairs[2]: of either. */
void attend_query_operands(struct kb *k, const struct attend *a, val tile, int s, val *const pairs[2]);

#endif
