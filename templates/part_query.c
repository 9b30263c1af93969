/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_query.c - a warp's query rows: loaded, rotated as the keys are, scaled to at most 2 by a
** power of two, and kept in shared memory as 16-bit operands. The power of two goes into the row's
** score factor, so no query overflows.
*/
#include "part_query.h"

#include "part_rowvec.h"
#include "part_scaled.h"
#include "part_words.h"

#include <string.h>

/* Two terms of bf16 hold 16 bits of a query: enough for the f16 bounds. */
static int planes(const struct plan *p) { return p->key_operand == OPERAND_BF16_SPLIT ? 2 : 1; }
static int operand_type(const struct plan *p)
{
    return p->key_operand == OPERAND_F16 ? KB_F16 : KB_BF16;
}

static int pitch(const struct plan *p) { return plan_query_pitch(p); }
enum { UNIT = 8 /* elements of 16 bytes, which stay together in a swizzled tile */ };
static int plane_bytes(const struct plan *p) { return p->mma.rows * pitch(p) * 2; }

/* Where the tile is swizzled: bits that the place of a 16-byte unit of a lane group's run is
** xored with. Lanes that read at once are the four groups of two neighbouring columns; a run is
** head_size / 32 units. */
static val unit_bits(struct kb *k, const struct plan *p, val row, val group)
{
    val odd = kb_lshri(K, row, 2); /* neighbouring columns of the operand are rows 4 apart */
    if (p->mma.rows > 8)
        odd = kb_andi(K, odd, 1);
    int size = p->geo.head_size;
    if (size == 64)
        return kb_shli(K, odd, 4);
    val high = size == 128 ? kb_lshri(K, group, 1) : group;
    return kb_shli(K, kb_or(K, high, kb_shli(K, odd, size == 128 ? 1 : 2)), 4);
}

/* To the nearest e4m3 number, ties to even, at most 448: adding and subtracting 2^k rounds to
** multiples of its last bit. */
static val round_e4m3(struct kb *k, val x)
{
    val bits = kb_bitcast(K, x, KB_I32);
    val sign = kb_andi(K, bits, (int)0x80000000u);
    val a = kb_bitcast(K, kb_andi(K, bits, 0x7fffffff), KB_F32);
    a = kb_fmin(K, a, kb_f32(K, 448));
    val exponent = kb_andi(K, kb_bitcast(K, a, KB_I32), 0x7f800000);
    exponent = kb_smax(K, exponent, kb_i32(K, 0x3c800000)); /* 2^-6, the smallest normal number */
    val magic = kb_bitcast(K, kb_addi(K, exponent, 20ll << 23), KB_F32); /* last bit 2^(e - 3) */
    val rounded = kb_fsub(K, kb_fadd(K, a, magic), magic);
    val result = kb_or(K, kb_bitcast(K, rounded, KB_I32), sign);
    return kb_bitcast(K, result, KB_F32);
}

static void store_elements(struct kb *k, const val *x, int e, int type, val at)
{
    if (e == 1) {
        kb_store(K, kb_to_half(K, x[0], type), at, 2);
        return;
    }
    for (int i = 0; i < e; i += 2) {
        val pair = kb_pack_half(K, x[i], x[i + 1], type);
        kb_store(K, pair, kb_offseti(K, at, i * 2), 4);
    }
}

static void store_row(struct kb *k, const struct plan *p, const struct rowvec *v, val at)
{
    int type = operand_type(p);
    if (p->key_operand == OPERAND_SCALED) {
        attend_scaled_query(K, v, at);
        return;
    }
    store_elements(K, v->x, v->e, type, at);
    if (planes(p) == 1)
        return;
    val rest[ROWVEC_MAX];
    for (int i = 0; i < v->e; i++) {
        val upper = kb_to_f32(K, kb_to_half(K, v->x[i], type));
        rest[i] = kb_fsub(K, v->x[i], upper);
    }
    store_elements(K, rest, v->e, type, kb_offseti(K, at, plane_bytes(p)));
}

/* The same where lanes read words: elements that stay together, each group to its place. */
static void store_words(struct kb *k, const struct attend *a, const struct rowvec *v, val row,
                        val at)
{
    const struct plan *p = a->plan;
    int n = words_unit(&p->slot.key);
    for (int i = 0; i < v->e; i += n) {
        val element = kb_addi(K, kb_muli(K, kb_lane(K), v->e), i);
        val column = kb_shli(K, words_place(K, p, a->words.key_turn, element), 1);
        if (p->swizzled) {
            val group = kb_divi(K, column, p->geo.head_size / 2);
            column = kb_xor(K, column, unit_bits(K, p, row, group));
        }
        store_elements(K, v->x + i, n < v->e ? n : v->e, operand_type(p), kb_offset(K, at, column));
    }
}

struct row_facts {
    val down, up, sum; /* powers of two; of its elements, affine keys, else NULL */
};

static void prepare_row(struct kb *k, const struct plan *p, struct rowvec *v, val *down, val *up)
{
    if (p->spec.key.rotation == ROTATION_HADAMARD)
        rotate_once(K, v);
    if (p->key_operand == OPERAND_SCALED) { /* e4m3 has a range of its own */
        *down = *up = kb_f32(K, 1);
        return;
    }
    if (p->spec.query == QUERY_E4M3)
        for (int i = 0; i < v->e; i++)
            v->x[i] = round_e4m3(K, v->x[i]);
    rowvec_powers(K, v, down, up);
    for (int i = 0; i < v->e; i++)
        v->x[i] = kb_fmul(K, v->x[i], *down);
}

static int type_of(const struct plan *p) { return p->geo.dtype == KVK_FLOAT16 ? KB_F16 : KB_BF16; }

/* A row's elements; of a row that does not exist, of some other. */
static void fetch_row(struct kb *k, const struct query_rows *q, val row, val *halves)
{
    struct rowvec v;
    rowvec_make(K, &v, kb_plan(k)->geo.head_size);
    rowvec_fetch(K, &v, type_of(kb_plan(k)), q->pointer(K, q->data, row), halves);
}

void attend_fetch_query(struct kb *k, val member, val members, const struct query_rows *q,
                        struct query_ahead *ahead)
{
    val row = member;
    for (int i = 0; i < QUERY_AHEAD; i++) {
        fetch_row(K, q, row, ahead->row[i]);
        row = kb_add(K, row, members);
    }
}

/* One row, ready to be stored; zeros if it is not below `exist` (NULL: all are), without the time that a
** row takes. */
static void take_row(struct kb *k, const struct plan *p, struct rowvec *v, const val *halves,
                     const struct query_rows *q, val row, struct row_facts *f)
{
    struct kb_if exists = {0};
    if (q->exist)
        exists = kb_if(K, kb_icmp(K, KB_SLT, row, q->exist));
    rowvec_take(K, v, type_of(p), halves);
    prepare_row(K, p, v, &f->down, &f->up);
    f->sum = p->spec.key.kind == CODEC_AFFINE ? rowvec_sum(K, v, v->x) : NULL;
    if (!q->exist)
        return;
    kb_endif(K, &exists);
    val zero = kb_f32(K, 0);
    for (int i = 0; i < v->e; i++)
        v->x[i] = kb_merge(K, &exists, v->x[i], zero);
    f->up = kb_merge(K, &exists, f->up, zero);
    if (f->sum)
        f->sum = kb_merge(K, &exists, f->sum, zero);
}

/* The next row to fetch, where the tile has more than were fetched ahead. */
static void fetch_next(struct kb *k, const struct plan *p, const struct query_rows *q, val row,
                       val *halves)
{
    val before[ROWVEC_MAX];
    struct rowvec v;
    rowvec_make(K, &v, p->geo.head_size);
    for (int i = 0; i < v.e; i++)
        before[i] = halves[i];
    val more = kb_icmp(K, KB_SLT, row, q->exist ? q->exist : kb_i32(K, p->mma.rows));
    struct kb_if wanted = kb_if(K, more);
    fetch_row(K, q, row, halves);
    kb_endif(K, &wanted);
    for (int i = 0; i < v.e; i++)
        halves[i] = kb_merge(K, &wanted, halves[i], before[i]);
}

/* at: the row's place in the tile */
static void put_operand(struct kb *k, const struct attend *a, const struct rowvec *v, val row,
                        val at)
{
    const struct plan *p = a->plan;
    if (p->key_words) {
        store_words(K, a, v, row, at);
        return;
    }
    val column = kb_muli(K, kb_lane(K), v->e * (p->key_operand == OPERAND_SCALED ? 1 : 2));
    if (!p->swizzled) {
        store_row(K, p, v, kb_offset(K, at, column));
        return;
    }
    /* a lane's elements lie in one group's run, in one unit or two */
    val bits = unit_bits(K, p, row, kb_divi(K, column, p->geo.head_size / 2));
    for (int i = 0; i < v->e; i += UNIT) {
        val own = kb_xor(K, kb_addi(K, column, 2 * i), bits);
        store_elements(K, v->x + i, v->e < UNIT ? v->e : UNIT, KB_F16, kb_offset(K, at, own));
    }
}

static void put_row(struct kb *k, const struct attend *a, val tile, val row, const struct rowvec *v,
                    const struct row_facts *f, val scale2)
{
    const struct plan *p = a->plan;
    struct rowvec_if active = rowvec_if_active(K, v);
    put_operand(K, a, v, row, kb_offset(K, tile, kb_muli(K, row, pitch(p) * 2)));
    val factor = kb_fmul(K, f->up, scale2); /* the maximum is only known to active lanes */
    val factors = kb_offseti(K, tile, planes(p) * plane_bytes(p));
    factors = kb_offset(K, factors, kb_shli(K, row, 2));
    kb_store(K, factor, factors, 4);
    if (f->sum)
        kb_store(K, f->sum, kb_offseti(K, factors, p->mma.rows * 4), 4);
    rowvec_endif(K, &active);
}

void attend_load_query(struct kb *k, struct attend *a, val tile, val member, val members, val scale,
                       const struct query_rows *q, const struct query_ahead *ahead)
{
    const struct plan *p = a->plan;
    val scale2 =
        kb_fmul(K, scale, kb_f32(K, 1.4426950408889634)); /* log2 e: scores in log2 units */
    struct {
        val row;
        struct query_ahead ahead;
    } c = {.row = member, .ahead = *ahead};
    struct kb_loop rows;
    kb_loop_begin(K, &rows, (val *)&c, sizeof c / sizeof(val));
    kb_loop_while(K, &rows, kb_icmpi(K, KB_SLT, c.row, p->mma.rows));
    struct rowvec v;
    struct row_facts f;
    rowvec_make(K, &v, p->geo.head_size);
    val now[ROWVEC_MAX];
    memcpy(now, c.ahead.row[0], sizeof now);
    memmove(c.ahead.row[0], c.ahead.row[1], (QUERY_AHEAD - 1) * sizeof now);
    val next = kb_add(K, c.row, kb_muli(K, members, QUERY_AHEAD));
    fetch_next(K, p, q, next, c.ahead.row[QUERY_AHEAD - 1]);
    take_row(K, p, &v, now, q, c.row, &f);
    put_row(K, a, tile, c.row, &v, &f, scale2);
    c.row = kb_add(K, c.row, members);
    kb_loop_end(K, &rows);
    a->query = tile;
}

void attend_row_scales(struct kb *k, struct attend *a)
{
    val factors = kb_offseti(K, a->query, planes(a->plan) * plane_bytes(a->plan));
    for (int i = 0; i < a->shape.lane_rows; i++) {
        val row = kb_matrix(K)->x_row(K, i);
        val at = kb_offset(K, factors, kb_shli(K, row, 2));
        val scale =
            kb_load(K, KB_F32, at, 4); /* not 0: times that, a masked score were no number */
        val none = kb_fcmp(K, KB_OEQ, scale, kb_f32(K, 0));
        a->row_scale[i] = kb_select(K, none, kb_f32_bits(K, 0x00800000), scale);
        if (a->plan->spec.key.kind == CODEC_AFFINE)
            a->row_sum[i] = kb_load(K, KB_F32, kb_offseti(K, at, a->plan->mma.rows * 4), 4);
    }
}

void attend_row_options(struct kb *k, struct attend *a, int i, val position, val head, val valid)
{
    val log2e = kb_f32(K, 1.4426950408889634);
    a->position[i] = position;
    if (a->plan->geo.options & KVK_SOFT_CAP)
        a->soft_cap = kb_fmul(K, kb_param(K, "soft_cap"), log2e);
    if (!(a->plan->geo.options & KVK_ALIBI))
        return;
    val own = kb_select(K, valid, head, kb_i32(K, 0));
    val slope = kb_load(K, KB_F32, kb_offset(K, kb_param(K, "alibi"), kb_shli(K, own, 2)), 4);
    a->slope[i] = kb_fmul(K, slope, log2e);
}

/* n pairs, of which `held` are the lane's own; the others, past its share of D, are zeros. */
static void load_pairs(struct kb *k, val at, int n, int held, int align, val *pairs)
{
    for (int w = 0; w < n; w++) {
        if (w >= held) {
            pairs[w] = kb_i32(K, 0);
        } else if (align == 8 && w + 1 < n && w + 1 < held) {
            val two = kb_load(K, KB_VEC(KB_I32, 2), kb_offseti(K, at, w * 4), 8);
            pairs[w] = kb_extract(K, two, 0);
            pairs[++w] = kb_extract(K, two, 1);
        } else {
            pairs[w] = kb_load(K, KB_I32, kb_offseti(K, at, w * 4), 4);
        }
    }
}

val attend_query_place(struct kb *k, const struct attend *a, int i)
{
    const struct plan *p = a->plan;
    val row = kb_matrix(K)->operand_row(K, i);
    val column = kb_muli(K, a->group, a->key_run * 2);
    val at = kb_add(K, kb_muli(K, row, pitch(p) * 2), column);
    return p->swizzled ? kb_add(K, at, unit_bits(K, p, row, a->group)) : at;
}

void attend_query_operand(struct kb *k, const struct attend *a, val tile, int s, int plane,
                          val *pairs)
{
    const struct plan *p = a->plan;
    int ke = a->shape.ke, n = ke / 2;
    for (int i = 0; i < a->shape.operand_rows; i++) {
        val at = i || !a->query_place ? attend_query_place(K, a, i) : a->query_place;
        int bytes = plane * plane_bytes(p) + s * ke * 2;
        if (p->swizzled) { /* a step's 8 bytes are half a unit */
            at = kb_xor(K, at, kb_i32(K, bytes & ~15));
            bytes &= 15;
        }
        val first = kb_offseti(K, kb_offset(K, tile, at), bytes);
        load_pairs(K, first, n, (a->key_run - s * ke) / 2, a->key_run % 4 ? 4 : 8, pairs + i * n);
    }
}

void attend_query_operands(struct kb *k, const struct attend *a, val tile, int s,
                           val *const pairs[2])
{
    int ke = a->shape.ke, n = ke / 2; /* a unit is two steps' 8 bytes */
    for (int i = 0; i < a->shape.operand_rows; i++) {
        val at = i || !a->query_place ? attend_query_place(K, a, i) : a->query_place;
        at = kb_offset(K, tile, kb_xor(K, at, kb_i32(K, (long long)s * ke * 2)));
        val unit = kb_load(K, KB_VEC(KB_I32, 4), at, 16);
        for (int w = 0; w < 2 * n; w++)
            pairs[w / n][i * n + w % n] = kb_extract(K, unit, w);
    }
}
