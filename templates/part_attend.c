/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_attend.c - the loop over a range of tokens, and joining what warps found.
*/
#include "part_reference.h"
#include "part_squares.h"

static int sums_of(const struct attend *a) { return a->dims * a->shape.lane_rows * a->shape.ye; }

void attend_begin(struct kb *k, struct attend *a, val head)
{
    const struct plan *p = kb_plan(K);
    *a = (struct attend){.plan = p, .shape = p->mma};
    a->y_tiles = 16 / a->shape.y_tile;
    a->key_run = p->geo.head_size / a->shape.groups;
    a->dims = p->dims;
    a->stride = kb_i32(K, p->tile_tokens);
    a->stride_log = kb_i32(K, __builtin_ctz((unsigned)p->tile_tokens));
    a->head = slot_head(K, head);
    a->y = kb_matrix(K)->y_index(K);
    a->group = kb_matrix(K)->group(K);
    a->y_steps = slot_steps(K, &a->head, a->y);
    a->k_steps = slot_steps(K, &a->head, kb_matrix(K)->k_index(K, 0));
    val slice = kb_remi(K, kb_warp(K), p->dim_warps);
    a->dim_base = kb_muli(K, slice, p->geo.value_head_size / p->dim_warps);
    attend_tables(K, a);
    attend_value_masks(K, a);
    int bytes = plan_fact_bytes(p);
    if (p->slot.value.norm_at_read)
        bytes += 4;
    bytes *= 16 * p->subtiles;
    val all = kb_shared(K, (size_t)(bytes * p->warps), 16);
    a->scratch = kb_offset(K, all, kb_muli(K, kb_warp(K), bytes));
}

struct carried {
    val start;
    struct attend_sums sums;
    struct attend_codes codes;
};

enum {
    CARRIED = sizeof(struct carried) / sizeof(val),
    CODES = sizeof(struct attend_codes) / sizeof(val)
};

/* Loads the first step's codes if there is one: a range may be empty, a sequence too. */
static void first_codes(struct kb *k, const struct attend *a, val start, val end,
                        struct attend_codes *c)
{
    struct kb_if any = kb_if(K, kb_icmp(K, KB_SLT, start, end));
    attend_load(K, a, start, c);
    kb_endif(K, &any);
    val *v = (val *)c;
    for (int i = 0; i < CODES; i++)
        if (v[i])
            v[i] = kb_merge(K, &any, v[i], kb_const(K, kb_type_of(K, v[i]), 0));
}

static void loop_prefetched(struct kb *k, const struct attend *a, struct carried *c, val end)
{
    struct kb_loop loop;
    first_codes(K, a, c->start, end, &c->codes);
    kb_loop_begin(K, &loop, (val *)c, CARRIED);
    kb_loop_while(K, &loop, kb_icmp(K, KB_SLT, c->start, end));
    struct attend_codes now = c->codes;
    val start = c->start;
    c->start = kb_add(K, start, a->stride);
    attend_load(K, a, c->start, &c->codes); /* past the end it loads the last subtile again */
    attend_step(K, a, start, &now, &c->sums);
    kb_loop_end(K, &loop);
}

static void loop_simple(struct kb *k, const struct attend *a, struct carried *c, val end)
{
    struct kb_loop loop;
    struct attend_codes now = {0};
    kb_loop_begin(K, &loop, (val *)c, CARRIED);
    kb_loop_while(K, &loop, kb_icmp(K, KB_SLT, c->start, end));
    attend_load(K, a, c->start, &now);
    attend_step(K, a, c->start, &now, &c->sums);
    c->start = kb_add(K, c->start, a->stride);
    kb_loop_end(K, &loop);
}

void attend_range(struct kb *k, const struct attend *a, val start, val end, struct attend_sums *s)
{
    struct carried c = {.start = start};
    attend_clear(K, a, &c.sums);
    if (a->plan->prefetch)
        loop_prefetched(K, a, &c, end);
    else
        loop_simple(K, a, &c, end);
    *s = c.sums;
}

void attend_finish(struct kb *k, const struct attend *a, struct attend_sums *s)
{
    int masks[4], n = kb_matrix(K)->reduce_masks(kb_target(K), masks);
    attend_close_reference(K, a, s);
    for (int row = 0; row < a->shape.lane_rows; row++)
        for (int i = 0; i < n; i++) {
            val l = kb_shuffle_xor(K, s->l[row], masks[i]);
            s->l[row] = kb_fadd(K, s->l[row], l);
            val z = kb_shuffle_xor(K, s->z[row], masks[i]);
            s->z[row] = kb_fadd(K, s->z[row], z);
        }
    attend_close_middle(K, a, s);
    for (int i = 0; i < sums_of(a); i++) {
        val factor = kb_f32(K, attend_value_factor(a, i / (a->shape.lane_rows * a->shape.ye)));
        s->o[i] = kb_fma(K, s->o[i], factor, s->z[i / a->shape.ye % a->shape.lane_rows]);
    }
}

/* One warp's sums in shared memory: value i of lane n at (i * warp size + n) * 4, so that lanes
** meet different banks. */
static val sum_at(struct kb *k, val buffer, int i)
{
    val at = kb_offset(K, buffer, kb_shli(K, kb_lane(K), 2));
    return kb_offseti(K, at, (long long)i * kb_warp_size(k) * 4);
}

static void put_sums(struct kb *k, const struct attend *a, val buffer, const struct attend_sums *s)
{
    int n = 0;
    for (int row = 0; row < a->shape.lane_rows; row++) {
        kb_store(K, s->m[row], sum_at(K, buffer, n++), 4);
        kb_store(K, s->l[row], sum_at(K, buffer, n++), 4);
        kb_store(K, s->z[row], sum_at(K, buffer, n++), 4);
    }
    for (int i = 0; i < sums_of(a); i++)
        kb_store(K, s->o[i], sum_at(K, buffer, n++), 4);
}

/* Factors that bring two references to the larger one; 0 for a side that saw nothing. */
static void join_references(struct kb *k, val m, val other, val *joined, val *factor,
                            val *other_factor)
{
    *joined = kb_fmaxnum(K, m, other);
    val none = kb_fcmp(K, KB_OEQ, *joined, kb_f32_bits(K, 0xff800000));
    val safe = kb_select(K, none, kb_f32(K, 0), *joined);
    *factor = kb_exp2(K, kb_fsub(K, m, safe));
    *other_factor = kb_exp2(K, kb_fsub(K, other, safe));
}

static void gain_sums(struct kb *k, const struct attend *a, val buffer, struct attend_sums *s)
{
    val factor[ATTEND_ROWS], other[ATTEND_ROWS];
    int n = 0;
    for (int row = 0; row < a->shape.lane_rows; row++) {
        val m = kb_load(K, KB_F32, sum_at(K, buffer, n++), 4);
        val l = kb_load(K, KB_F32, sum_at(K, buffer, n++), 4);
        val z = kb_load(K, KB_F32, sum_at(K, buffer, n++), 4);
        join_references(K, s->m[row], m, &s->m[row], &factor[row], &other[row]);
        val mine = kb_fmul(K, s->l[row], factor[row]);
        s->l[row] = kb_fma(K, l, other[row], mine);
        val zero = kb_fmul(K, s->z[row], factor[row]);
        s->z[row] = kb_fma(K, z, other[row], zero);
    }
    for (int i = 0; i < sums_of(a); i++) {
        int row = i / a->shape.ye % a->shape.lane_rows;
        val x = kb_load(K, KB_F32, sum_at(K, buffer, n++), 4);
        val mine = kb_fmul(K, s->o[i], factor[row]);
        s->o[i] = kb_fma(K, x, other[row], mine);
    }
}

void attend_chunks(struct kb *k, const struct attend *a, val start, val end, val buffer,
                   struct attend_sums *s)
{
    struct kb_loop chunks;
    attend_clear(K, a, s);
    put_sums(K, a, buffer, s);
    kb_loop_begin(K, &chunks, &start, 1);
    kb_loop_while(K, &chunks, kb_icmp(K, KB_SLT, start, end));
    val next = kb_addi(K, start, a->plan->chunk_tokens);
    attend_range(K, a, start, kb_smin(K, next, end), s);
    attend_centre(K, a, s);
    gain_sums(K, a, buffer, s);
    put_sums(K, a, buffer, s);
    start = next;
    kb_loop_end(K, &chunks);
    attend_clear(K, a, s);
    gain_sums(K, a, buffer, s);
    attend_finish(K, a, s);
}
