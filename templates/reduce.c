/* SPDX-License-Identifier: Apache-2.0 */
/*
** reduce.c - joins the splits of one decode row: one CTA a row, a thread a few dims. Partial
** results over disjoint keys merge by their log-sum-exp (log2 units here); a split that saw no key
** has -inf and weighs nothing.
*/
#include "part_finite.h"
#include "part_output.h"
#include "templates.h"

/* Largest log-sum over the splits, by every thread for itself: the list is short and in cache. */
static val largest(struct kb *k, val lse, val splits)
{
    struct {
        val i, most;
    } state = {kb_i32(K, 0), kb_f32_bits(K, 0xff800000)};
    struct kb_loop loop;
    kb_loop_begin(K, &loop, (val *)&state, 2);
    kb_loop_while(K, &loop, kb_icmp(K, KB_SLT, state.i, splits));
    val x = kb_load(K, KB_F32, kb_offset(K, lse, kb_shli(K, state.i, 2)), 4);
    state.most = kb_fmaxnum(K, state.most, x);
    state.i = kb_addi(K, state.i, 1);
    kb_loop_end(K, &loop);
    return state.most;
}

/* Sum of weights, and of weighted values of dim `dim`. */
static void gather(struct kb *k, val lse, val out, val splits, val safe, int value_head_size,
                   val dim, val *sum, val *value)
{
    struct {
        val i, sum, value;
    } state = {kb_i32(K, 0), kb_f32(K, 0), kb_f32(K, 0)};
    struct kb_loop loop;
    kb_loop_begin(K, &loop, (val *)&state, 3);
    kb_loop_while(K, &loop, kb_icmp(K, KB_SLT, state.i, splits));
    val x = kb_load(K, KB_F32, kb_offset(K, lse, kb_shli(K, state.i, 2)), 4);
    val weight = kb_exp2(K, kb_fsub(K, x, safe));
    val at = kb_add(K, kb_muli(K, state.i, value_head_size), dim);
    val v = kb_load(K, KB_F32, kb_offset(K, out, kb_shli(K, at, 2)), 4);
    state.sum = kb_fadd(K, state.sum, weight);
    state.value = kb_fma(K, weight, v, state.value);
    state.i = kb_addi(K, state.i, 1);
    kb_loop_end(K, &loop);
    *sum = state.sum;
    *value = state.value;
}

struct row {
    val index;       /* i64 over all rows */
    val token, head; /* i64 */
    val lse, out;    /* this row's partials */
};

static struct row find_row(struct kb *k, int value_head_size, val splits)
{
    struct row r;
    val heads = kb_param(K, "query_heads"), cta = kb_cta(K);
    val splits64 = kb_zext(K, splits, KB_I64);
    val token = kb_udiv(K, cta, heads); /* a launch has fewer than 2^31 rows */
    val head = kb_sub(K, cta, kb_mul(K, token, heads));
    r.index = kb_zext(K, cta, KB_I64);
    r.token = kb_zext(K, token, KB_I64);
    r.head = kb_zext(K, head, KB_I64);
    val first = kb_mul(K, r.index, splits64);
    r.out = kb_offset(K, kb_param(K, "partial"), kb_muli(K, first, value_head_size * 4));
    val all = kb_mul(K, kb_param(K, "rows"), splits64);
    val lse = kb_offset(K, kb_param(K, "partial"), kb_muli(K, all, value_head_size * 4));
    r.lse = kb_offset(K, lse, kb_shli(K, first, 2));
    return r;
}

/* 1 / (sum + sink), 0 for a row without keys. */
static val denominator(struct kb *k, val sum, val sink, val most, val none)
{
    val weight = kb_exp2(K, kb_fsub(K, sink, kb_select(K, none, sink, most)));
    val all = kb_fadd(K, sum, weight);
    return kb_select(K, none, kb_f32(K, 0), kb_rcp(K, all));
}

static void write_lse(struct kb *k, const struct row *r, val most, val sum, val none)
{
    val base = kb_param(K, "lse");
    val first = kb_icmpi(K, KB_EQ, kb_tid(K), 0);
    struct kb_if wanted = kb_if(K, kb_and(K, first, kb_not(K, kb_is_null(K, base))));
    val x = kb_fmul(K, kb_fadd(K, most, kb_log2(K, sum)), kb_f32(K, 0.6931471805599453));
    x = kb_select(K, none, kb_f32_bits(K, 0xff800000), x);
    kb_store(K, x, kb_offset(K, base, kb_shli(K, r->index, 2)), 4);
    kb_endif(K, &wanted);
}

void template_reduce(struct kb *k)
{
    const struct plan *p = kb_plan(k);
    int d = p->geo.value_head_size, threads = 128,
        type = p->geo.dtype == KVK_FLOAT16 ? KB_F16 : KB_BF16;
    val splits = kb_param(K, "splits");
    struct row r = find_row(K, d, splits);
    val most = largest(K, r.lse, splits);
    val none = kb_fcmp(K, KB_OEQ, most, kb_f32_bits(K, 0xff800000));
    val safe = kb_select(K, none, kb_f32(K, 0), most);
    val sink = attend_sink(K, kb_trunc(K, r.head, KB_I32));
    val a = kb_mul(K, r.token, kb_param(K, "out_row"));
    val b = kb_mul(K, r.head, kb_param(K, "out_head"));
    val out = kb_offset(K, kb_param(K, "out"), kb_shli(K, kb_add(K, a, b), 1));
    for (int first = 0; first < d; first += threads) {
        val dim = kb_addi(K, kb_tid(K), first), sum, value;
        val inside = kb_smin(K, dim, kb_i32(K, d - 1));
        gather(K, r.lse, r.out, splits, safe, d, inside, &sum, &value);
        val factor = denominator(K, sum, sink, most, none);
        struct kb_if exists = kb_if(K, kb_icmpi(K, KB_SLT, dim, d));
        val x = to_row(K, kb_fmul(K, value, factor), type);
        kb_store(K, x, kb_offset(K, out, kb_shli(K, dim, 1)), 2);
        kb_endif(K, &exists);
        if (!first)
            write_lse(K, &r, most, sum, none);
    }
}
