/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_output.h - from a warp's output sums to the rows in memory.
*/
#ifndef KVKILN_PART_OUTPUT_H
#define KVKILN_PART_OUTPUT_H

#include "part_arrive.h"
#include "part_attend.h"

/* part_join.c, decode: joins the token warps' sums and writes the CTA's rows, finished (`single`) or as partial results
** (part_splits.h) for template_reduce or for the last cluster of those that share the rows. */
struct attend_row {
    val valid;                /* i1: the row exists */
    val head;                 /* i32 query head, for the sink */
    val out, lse;             /* the row's first element, dtype of the plan; its f32 */
    val partial, facts;       /* f32 values and {m, l} of its first split, where the row is not finished */
};
struct attend_join {
    val index;                /* i32: this warp's place among the token warps */
    val exist, rows;          /* i32: rows of the plan's that exist; of all warps' KV heads */
    val groups_log, set;      /* i32: 2^groups_log sets of rows are joined; rows of a set */
    val split, count, rank;   /* i32: of a row; the CTA's in its cluster */
    struct mates *mates;      /* NULL: all splits are for template_reduce */
    val arrives;              /* (i1): these count themselves, and the last join the rest */
    void (*find_row)(struct kb *k, const void *data, val row, struct attend_row *out);
    const void *data;
};
/* `buffers`: plan_join_bytes of shared memory; it may be the query tile. */
void attend_join(struct kb *k, const struct attend *a, const struct attend_sums *s, const struct attend_join *to, val buffers);

/* part_output.c: normalises and writes a lane's rows. */
struct attend_output {
    val valid[ATTEND_ROWS];   /* i1: the row exists */
    val out[ATTEND_ROWS];     /* pointers to the row's first element, dtype of the plan */
    val head[ATTEND_ROWS];    /* i32 query head, for the sink */
    val lse[ATTEND_ROWS];     /* pointers to the row's f32, or NULL when `write_lse` is false there */
};
void attend_write(struct kb *k, const struct attend *a, const struct attend_sums *s, const struct attend_output *out);
/* sink logit of a head in log2 units, -inf without sinks */
val attend_sink(struct kb *k, val head);

#endif
