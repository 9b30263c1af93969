/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_output.c - a lane's rows to memory. A lane holds, of each row, the dims y * dims + d for its
** result columns y and all d: runs of `dims` neighbours.
*/
#include "part_output.h"

#include "part_finite.h"

static int row_sum(const struct attend *a, int d, int row, int e)
{
    return (d * a->shape.lane_rows + row) * a->shape.ye + e;
}

/* Lanes at the end of a row whose dims the tile does not divide take the last ones, which others hold as
** well: they compute and write the same bits. */
val attend_first_dim(struct kb *k, const struct attend *a, val y)
{
    val first = kb_muli(K, y, a->dims);
    if (a->plan->dims_overlap)
        first = kb_smin(K, first, kb_i32(K, a->plan->dims_overlap));
    return kb_add(K, a->dim_base, first);
}

/* First of the `dims` neighbouring dims that result column e stands for. */
static val first_dim(struct kb *k, const struct attend *a, int e)
{
    return attend_first_dim(K, a, kb_matrix(K)->result_y(K, e));
}

/* 1 / x, and 0 where nothing was summed: rows without keys are zeros. */
static val reciprocal_or_zero(struct kb *k, val x)
{
    val some = kb_fcmp(K, KB_OGT, x, kb_f32(K, 0));
    return kb_select(K, some, kb_rcp(K, x), kb_f32(K, 0));
}

/* log2 of the sum of 2^score, -inf for no key. */
static val log_sum(struct kb *k, val m, val l)
{
    val none = kb_fcmp(K, KB_OEQ, m, kb_f32_bits(K, 0xff800000));
    val sum = kb_fadd(K, m, kb_log2(K, l));
    return kb_select(K, none, kb_f32_bits(K, 0xff800000), sum);
}

val attend_sink(struct kb *k, val head)
{
    val sinks = kb_param(K, "sinks");
    val none = kb_f32_bits(K, 0xff800000);
    struct kb_if given = kb_if(K, kb_not(K, kb_is_null(K, sinks)));
    val logit = kb_load(K, KB_F32, kb_offset(K, sinks, kb_shli(K, head, 2)), 4);
    val sink = kb_fmul(K, logit, kb_f32(K, 1.4426950408889634));
    kb_endif(K, &given);
    return kb_merge(K, &given, sink, none);
}

static void write_row(struct kb *k, const struct attend *a, const struct attend_sums *s, int row,
                      val factor, val out)
{
    int type = a->plan->geo.dtype == KVK_FLOAT16 ? KB_F16 : KB_BF16;
    for (int e = 0; e < a->shape.ye; e++) {
        val at = kb_offset(K, out, kb_shli(K, first_dim(K, a, e), 1));
        for (int d = 0; d < a->dims; d++) {
            val x = kb_fmul(K, s->o[row_sum(a, d, row, e)], factor);
            x = to_row(K, x, type);
            kb_store(K, x, kb_offseti(K, at, 2 * d), 2);
        }
    }
}

/* The lane that writes a row's LSE: the first of those that hold the row, in the first dim warp. */
static val writes_lse(struct kb *k, const struct attend *a)
{
    val first = kb_icmpi(K, KB_EQ, kb_matrix(K)->result_y(K, 0), 0);
    val slice = kb_icmpi(K, KB_EQ, a->dim_base, 0);
    return kb_and(K, first, slice);
}

void attend_write(struct kb *k, const struct attend *a, const struct attend_sums *s,
                  const struct attend_output *out)
{
    val lse_base = kb_param(K, "lse");
    val given = kb_not(K, kb_is_null(K, lse_base));
    val lse_wanted = kb_and(K, given, writes_lse(K, a));
    for (int row = 0; row < a->shape.lane_rows; row++) {
        val head = kb_select(K, out->valid[row], out->head[row], kb_i32(K, 0));
        val sink = attend_sink(K, head);
        val none = kb_fcmp(K, KB_OEQ, s->m[row], kb_f32_bits(K, 0xff800000));
        val weight = kb_exp2(K, kb_fsub(K, sink, kb_select(K, none, sink, s->m[row])));
        val sum = kb_fadd(K, s->l[row], kb_select(K, none, kb_f32(K, 0), weight));
        val factor = reciprocal_or_zero(K, sum);
        struct kb_if exists = kb_if(K, out->valid[row]);
        write_row(K, a, s, row, factor, out->out[row]);
        struct kb_if wanted = kb_if(K, lse_wanted);
        val lse = kb_fmul(K, log_sum(K, s->m[row], s->l[row]), kb_f32(K, 0.6931471805599453));
        kb_store(K, lse, out->lse[row], 4);
        kb_endif(K, &wanted);
        kb_endif(K, &exists);
    }
}
