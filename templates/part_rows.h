/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_rows.h - the query rows of one sequence and one KV head: row r is query token r / gqa, query head r % gqa of the group.
** What decode and unified share of it.
*/
#ifndef KVKILN_PART_ROWS_H
#define KVKILN_PART_ROWS_H

#include "../gen/plan.h"

struct rows {
    val head;        /* i32 KV head */
    val first_token; /* i32 of the sequence in the call's query rows */
    val tokens;      /* i32 query tokens of the sequence */
    val count;       /* i32 rows of the sequence: tokens * gqa */
    val first;       /* i32 row that the tile of 16 begins with */
};

/* Row of the tile -> its query token in the sequence; its query head, and whether it exists. */
val rows_token(struct kb *k, const struct rows *r, val row, val *head, val *valid);

/* Address of element 0 of (token of the call, head) in a 16-bit tensor whose strides are these parameters. */
val rows_pointer(struct kb *k, const char *base, const char *row_stride, const char *head_stride, val token, val head);

/* Row of the tile -> its query; a row that does not exist gives the first one. `data`: struct rows. For attend_load_query. */
val rows_query(struct kb *k, void *data, val row);

/* Entry `index` (i32) of an array of int32. */
val rows_number(struct kb *k, const char *array, val index);
/* Tiles of plan->rows rows of all sequences are numbered: the first of a sequence's, and the last sequence whose first tile is at
** or before `tile`. */
val rows_first_tile(struct kb *k, val sequence);
val rows_sequence(struct kb *k, val tile);

#endif
