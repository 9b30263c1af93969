/* SPDX-License-Identifier: Apache-2.0 */
/*
** merge.c - two partial results over disjoint keys, joined by their natural log-sum-exps. One warp
** a (row, head); a lane takes every warp-th dim, and reads it before it writes it, so that the
** result may lie where a part does.
*/
#include "templates.h"

#include "part_finite.h"
#include "part_rowpair.h"

enum { DIMS_MAX = 32 }; /* of a lane */

/* One tensor: where the pair's row begins, and what its elements are. */
struct tensor {
    val row, f32, f16; /* f32, f16: i1; neither is bf16 */
};

struct names {
    const char *data, *row, *head, *type;
};

static struct tensor find_row(struct kb *k, const struct names *n, const struct rowpair *pair)
{
    struct tensor t;
    val type = kb_param(K, n->type), per_row = kb_param(K, n->row), per_head = kb_param(K, n->head);
    t.f32 = kb_icmpi(K, KB_EQ, type, 0);
    t.f16 = kb_icmpi(K, KB_EQ, type, 1);
    val rows = kb_mul(K, pair->row, per_row);
    val head = kb_zext(K, pair->head, KB_I64);
    val heads = kb_mul(K, head, per_head);
    val elements = kb_add(K, rows, heads);
    val as_words = kb_shli(K, elements, 2), as_halves = kb_shli(K, elements, 1);
    val bytes = kb_select(K, t.f32, as_words, as_halves);
    val data = kb_param(K, n->data);
    t.row = kb_offset(K, data, bytes);
    return t;
}

static val load_half(struct kb *k, const struct tensor *t, val dim)
{
    val bytes = kb_shli(K, dim, 1);
    val at = kb_offset(K, t->row, bytes);
    val bits = kb_load(K, KB_I16, at, 2);
    val half = kb_bitcast(K, bits, KB_F16), brain = kb_bitcast(K, bits, KB_BF16);
    val a = kb_to_f32(K, half), b = kb_to_f32(K, brain);
    return kb_select(K, t->f16, a, b);
}

static void load_row(struct kb *k, const struct tensor *t, const val *dims, int n, val *x)
{
    val wide[DIMS_MAX], narrow[DIMS_MAX];
    struct kb_if either = kb_if(K, t->f32);
    for (int i = 0; i < n; i++) {
        val bytes = kb_shli(K, dims[i], 2);
        val at = kb_offset(K, t->row, bytes);
        wide[i] = kb_load(K, KB_F32, at, 4);
    }
    kb_else(K, &either);
    for (int i = 0; i < n; i++)
        narrow[i] = load_half(k, t, dims[i]);
    kb_endif(K, &either);
    for (int i = 0; i < n; i++)
        x[i] = kb_merge(K, &either, wide[i], narrow[i]);
}

static void store_one(struct kb *k, const struct tensor *t, val dim, val x)
{
    struct kb_if either = kb_if(K, t->f32);
    val words = kb_shli(K, dim, 2);
    val at32 = kb_offset(K, t->row, words);
    kb_store(K, x, at32, 4);
    kb_else(K, &either);
    val half = to_row(K, x, KB_F16), brain = to_row(K, x, KB_BF16);
    val a = kb_bitcast(K, half, KB_I16), b = kb_bitcast(K, brain, KB_I16);
    val bits = kb_select(K, t->f16, a, b);
    val halves = kb_shli(K, dim, 1);
    val at16 = kb_offset(K, t->row, halves);
    kb_store(K, bits, at16, 2);
    kb_endif(K, &either);
}

/* What each side weighs. A side without keys weighs 0; `none`: neither has any. */
struct weights {
    val a, b, sum, most, none;
};

static val load_lse(struct kb *k, const char *name, val index)
{
    val base = kb_param(K, name);
    val bytes = kb_shli(K, index, 2);
    val at = kb_offset(K, base, bytes);
    return kb_load(K, KB_F32, at, 4);
}

static val weigh(struct kb *k, val lse, val most)
{
    val log2e = kb_f32(K, 1.4426950408889634);
    val below = kb_fsub(K, lse, most);
    val exponent = kb_fmul(K, below, log2e);
    return kb_exp2(K, exponent);
}

static struct weights weigh_both(struct kb *k, val index)
{
    struct weights w;
    val minus_infinity = kb_f32_bits(K, 0xff800000), zero = kb_f32(K, 0);
    val a = load_lse(k, "a_lse", index), b = load_lse(k, "b_lse", index);
    kb_warp_sync(K); /* out_lse may be one of them: every lane reads before the first one writes */
    w.most = kb_fmax(K, a, b);
    w.none = kb_fcmp(K, KB_OEQ, w.most, minus_infinity);
    val safe = kb_select(K, w.none, zero, w.most);
    w.a = weigh(k, a, safe);
    w.b = weigh(k, b, safe);
    w.sum = kb_fadd(K, w.a, w.b);
    return w;
}

static void write_lse(struct kb *k, const struct weights *w, val index)
{
    val base = kb_param(K, "out_lse"), lane = kb_lane(K);
    val null = kb_is_null(K, base);
    val given = kb_not(K, null), first = kb_icmpi(K, KB_EQ, lane, 0);
    val one = kb_and(K, given, first);
    struct kb_if wanted = kb_if(K, one);
    val ln2 = kb_f32(K, 0.6931471805599453), zero = kb_f32(K, 0);
    val log = kb_log2(K, w->sum);
    val natural = kb_fmul(K, log, ln2);
    val joined = kb_fadd(K, w->most, natural);
    val a_zero = kb_fcmp(K, KB_OEQ, w->a, zero), b_zero = kb_fcmp(K, KB_OEQ, w->b, zero);
    val single = kb_or(K, a_zero, b_zero); /* its own LSE, to the bit */
    val x = kb_select(K, single, w->most, joined);
    val bytes = kb_shli(K, index, 2);
    val at = kb_offset(K, base, bytes);
    kb_store(K, x, at, 4);
    kb_endif(K, &wanted);
}

/* weight * x, where nothing of x counts if the weight is 0: it may be a NaN then. */
static val share(struct kb *k, val weight, val x)
{
    val zero = kb_f32(K, 0);
    val nothing = kb_fcmp(K, KB_OEQ, weight, zero);
    val product = kb_fmul(K, weight, x);
    return kb_select(K, nothing, zero, product);
}

void template_merge(struct kb *k)
{
    static const struct names a_names = {"a", "a_row", "a_head", "a_type"},
                              b_names = {"b", "b_row", "b_head", "b_type"},
                              out_names = {"out", "out_row", "out_head", "out_type"};
    int d = kb_plan(k)->geo.value_head_size, warp = kb_warp_size(k), n = (d + warp - 1) / warp;
    val dims[DIMS_MAX] = {0}, a[DIMS_MAX], b[DIMS_MAX];
    struct rowpair pair = rowpair_begin_of(k, "rows", "query_heads");
    val heads32 = kb_param(K, "query_heads");
    val heads = kb_zext(K, heads32, KB_I64), head = kb_zext(K, pair.head, KB_I64);
    val before = kb_mul(K, pair.row, heads);
    val index = kb_add(K, before, head);
    struct tensor from_a = find_row(k, &a_names, &pair), from_b = find_row(k, &b_names, &pair);
    struct tensor to = find_row(k, &out_names, &pair);
    struct weights w = weigh_both(k, index);
    val lane = kb_lane(K), last = kb_i32(K, d - 1), zero = kb_f32(K, 0), one = kb_f32(K, 1);
    for (int i = 0; i < n; i++) {
        val dim = kb_addi(K, lane, i * warp);
        dims[i] = kb_smin(K, dim, last);
    }
    load_row(k, &from_a, dims, n, a);
    load_row(k, &from_b, dims, n, b);
    val divisor = kb_select(K, w.none, one, w.sum);
    for (int i = 0; i < n; i++) {
        val x = share(k, w.a, a[i]), y = share(k, w.b, b[i]);
        val sum = kb_fadd(K, x, y);
        val mean = kb_fdiv(K, sum, divisor);
        val result = kb_select(K, w.none, zero, mean);
        val dim = kb_addi(K, lane, i * warp);
        val inside = kb_icmpi(K, KB_SLT, dim, d);
        struct kb_if exists = kb_if(K, inside);
        store_one(k, &to, dim, result);
        kb_endif(K, &exists);
    }
    write_lse(k, &w, index);
}
