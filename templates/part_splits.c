/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_splits.c - joining partial results.
*/
#include "part_splits.h"

#include "part_finite.h"
#include "part_output.h"

static val nothing(struct kb *k) { return kb_f32_bits(K, 0xff800000); }

int splits_wide(int dims) { return dims % 4 == 0 ? 4 : dims % 2 == 0 ? 2 : 1; }

/* A reference to subtract: of sums without keys, 0. */
static val safe(struct kb *k, val m)
{
    val none = kb_fcmp(K, KB_OEQ, m, nothing(k));
    return kb_select(K, none, kb_f32(K, 0), m);
}

struct chain {
    val i;
    struct splits_sum sum;
};

static void gain(struct kb *k, const struct splits_row *r, struct splits_sum *s, const val *m,
                 const val *l, const val *values)
{
    val before = s->m;
    for (int u = 0; u < r->ahead; u++)
        s->m = kb_fmaxnum(K, s->m, m[u]);
    val reference = safe(k, s->m), old = kb_exp2(K, kb_fsub(K, before, reference));
    s->l = kb_fmul(K, s->l, old);
    for (int i = 0; i < r->wide; i++)
        s->x[i] = kb_fmul(K, s->x[i], old);
    for (int u = 0; u < r->ahead; u++) {
        val weight = kb_exp2(K, kb_fsub(K, m[u], reference));
        s->l = kb_fma(K, l[u], weight, s->l);
        for (int i = 0; i < r->wide; i++) {
            val v = r->wide > 1 ? kb_extract(K, values[u], i) : values[u];
            s->x[i] = kb_fma(K, v, weight, s->x[i]);
        }
    }
}

/* Bytes from the own set to that of part *i, which becomes its place there. */
static val distance(struct kb *k, const struct splits_row *r, val *i)
{
    val set = kb_lshr(K, *i, r->log), own = kb_icmp(K, KB_EQ, set, r->own);
    *i = kb_sub(K, *i, kb_shl(K, set, r->log));
    return kb_select(K, own, kb_i64(K, 0), r->other);
}

struct splits_sum splits_chain(struct kb *k, const struct splits_row *r, val first, val step)
{
    int type = r->wide > 1 ? KB_VEC(KB_F32, r->wide) : KB_F32;
    struct chain c = {.i = first, .sum = {.m = nothing(k), .l = kb_f32(K, 0)}};
    for (int i = 0; i < r->wide; i++)
        c.sum.x[i] = c.sum.l;
    val last = kb_addi(K, r->count, -1);
    struct kb_loop loop;
    kb_loop_begin(K, &loop, (val *)&c, sizeof c / sizeof(val));
    kb_loop_while(K, &loop, kb_icmp(K, KB_SLT, c.i, r->count));
    loop.rolled = true;
    val m[SPLITS_AHEAD], l[SPLITS_AHEAD], values[SPLITS_AHEAD], zero = kb_const(K, type, 0);
    for (int u = 0; u < r->ahead; u++) {
        val inside = kb_icmp(K, KB_SLT, c.i, r->count), at = kb_smin(K, c.i, last);
        val facts = r->facts, v = r->values;
        if (r->log) {
            val bytes = distance(K, r, &at);
            facts = kb_offset(K, facts, bytes);
            v = kb_offset(K, v, bytes);
        }
        facts = kb_offset(K, facts, kb_mul(K, at, r->fact_bytes));
        val both = kb_load(K, KB_VEC(KB_F32, 2), facts, 8);
        v = kb_offset(K, v, kb_mul(K, at, r->values_bytes));
        v = kb_load(K, type, v, 4 * r->wide);
        m[u] = kb_select(K, inside, kb_extract(K, both, 0), nothing(k));
        l[u] = kb_select(K, inside, kb_extract(K, both, 1), kb_f32(K, 0));
        values[u] = kb_select(K, inside, v, zero); /* infinity times 0 is no number */
        c.i = kb_add(K, c.i, step);
    }
    gain(K, r, &c.sum, m, l, values);
    kb_loop_end(K, &loop);
    return c.sum;
}

struct splits_sum splits_both(struct kb *k, const struct splits_sum *a, const struct splits_sum *b,
                              int wide)
{
    struct splits_sum s = {.m = kb_fmaxnum(K, a->m, b->m)};
    val reference = safe(k, s.m), own = kb_exp2(K, kb_fsub(K, a->m, reference)),
        other = kb_exp2(K, kb_fsub(K, b->m, reference));
    s.l = kb_fma(K, b->l, other, kb_fmul(K, a->l, own));
    for (int i = 0; i < wide; i++)
        s.x[i] = kb_fma(K, b->x[i], other, kb_fmul(K, a->x[i], own));
    return s;
}

/* The row's LSE, by the thread of its first dims. */
static void write_lse(struct kb *k, const struct splits_sum *s, const struct splits_target *to,
                      val none)
{
    val given = kb_not(K, kb_is_null(K, kb_param(K, "lse")));
    struct kb_if wanted = kb_if(K, kb_and(K, to->first, given));
    val x = kb_fmul(K, kb_fadd(K, s->m, kb_log2(K, s->l)), kb_f32(K, 0.6931471805599453));
    x = kb_select(K, none, nothing(k), x);
    kb_store(K, x, to->lse, 4);
    kb_endif(K, &wanted);
}

void splits_write(struct kb *k, const struct splits_sum *s, const struct splits_target *to,
                  int wide)
{
    int type = kb_plan(k)->geo.dtype == KVK_FLOAT16 ? KB_F16 : KB_BF16;
    val none = kb_fcmp(K, KB_OEQ, s->m, nothing(k)), sink = attend_sink(K, to->head);
    val weight = kb_exp2(K, kb_fsub(K, sink, kb_select(K, none, sink, s->m)));
    val factor = kb_rcp(K, kb_fadd(K, s->l, weight)); /* a row without keys gives 0 */
    factor = kb_select(K, none, kb_f32(K, 0), factor);
    for (int i = 0; i < wide; i++) {
        val x = to_row(K, kb_fmul(K, s->x[i], factor), type);
        kb_store(K, x, kb_offseti(K, to->out, 2 * i), 2);
    }
    write_lse(K, s, to, none);
}
