/* SPDX-License-Identifier: Apache-2.0 */
/*
** unified.c - any mix of prefill, continuation, verification and decode rows in one launch,
** straight from the quantised cache. Rows of a sequence are its (query token, head of the group)
** pairs; a CTA takes `rows` of them for one KV head, each warp 16 of its own. Tiles of all
** sequences are numbered so that the grid needs only bounds the host knows: sequence s begins at
** tile query_start[s] * gqa / rows + s, and what lies beyond its rows leaves at once.
*/
#include "part_output.h"
#include "part_query.h"
#include "part_rows.h"
#include "part_unrotate.h"
#include "templates.h"

struct place {
    struct rows rows; /* first: of this warp */
    val sequence, length;
};

/* Returns the CTA's own row range's start in w->rows.first; leaves the kernel if the tile has no
** rows. */
static struct place find_place(struct kb *k, const struct plan *p)
{
    struct place w;
    val heads = kb_param(K, "kv_heads");
    val tile = kb_udiv(K, kb_cta(K), heads);
    w.rows.head = kb_sub(K, kb_cta(K), kb_mul(K, tile, heads));
    w.sequence = rows_sequence(K, tile);
    w.rows.first_token = rows_number(K, "query_start", w.sequence);
    val next = rows_number(K, "query_start", kb_addi(K, w.sequence, 1));
    w.rows.tokens = kb_sub(K, next, w.rows.first_token);
    w.rows.count = kb_muli(K, w.rows.tokens, p->geo.gqa);
    val inner = kb_sub(K, tile, rows_first_tile(K, w.sequence));
    val row = kb_muli(K, inner, p->rows);
    kb_return_if(K, kb_icmp(K, KB_SGE, row, w.rows.count));
    w.length = rows_number(K, "lengths", w.sequence);
    val row_warp = kb_divi(K, kb_warp(K), p->dim_warps);
    w.rows.first = kb_add(K, row, kb_shli(K, row_warp, 4));
    return w;
}

/* Visible keys of the lane's rows, and the range that covers them for all rows of the warp. */
static void visible_range(struct kb *k, struct attend *a, const struct place *w, val *start,
                          val *end)
{
    const struct plan *p = a->plan;
    val window = kb_param(K, "window");
    val oldest = kb_add(K, kb_sub(K, w->length, w->rows.tokens), kb_param(K, "ahead"));
    val windowed = kb_icmpi(K, KB_SGT, window, 0);
    val full = kb_icmpi(K, KB_NE, kb_param(K, "full"), 0);
    val newest_key = kb_addi(K, w->length, -1);
    for (int i = 0; i < a->shape.lane_rows; i++) {
        val head, valid;
        val token = rows_token(K, &w->rows, kb_matrix(K)->x_row(K, i), &head, &valid);
        val position = kb_add(K, oldest, token);
        val reach = kb_addi(K, kb_sub(K, position, window), 1);
        a->first[i] = kb_select(K, windowed, kb_smax(K, reach, kb_i32(K, 0)), kb_i32(K, 0));
        val last = kb_select(K, full, newest_key, position);
        a->last[i] = kb_select(K, valid, last, p->lazy_reference ? newest_key : kb_i32(K, -1));
        attend_row_options(K, a, i, position, head, valid);
    }
    val first_token = kb_divi(K, w->rows.first, p->geo.gqa);
    val past = kb_smin(K, kb_addi(K, w->rows.first, 16), w->rows.count);
    val last_row = kb_addi(K, past, -1);
    val newest = kb_add(K, oldest, kb_divi(K, last_row, p->geo.gqa));
    val any = kb_icmp(K, KB_SLT, w->rows.first, w->rows.count);
    val reach = kb_smin(K, kb_addi(K, newest, 1), w->length);
    reach = kb_select(K, full, w->length, reach);
    *end = kb_select(K, any, reach, kb_i32(K, 0));
    val unseen = kb_addi(K, kb_sub(K, kb_add(K, oldest, first_token), window), 1);
    unseen = kb_select(K, windowed, kb_smax(K, unseen, kb_i32(K, 0)), kb_i32(K, 0));
    *start = kb_andi(K, unseen, -(16 * p->subtiles));
}

static void write_rows(struct kb *k, const struct attend *a, const struct place *w,
                       const struct attend_sums *s)
{
    struct attend_output o;
    val heads64 = kb_zext(K, kb_muli(K, kb_param(K, "kv_heads"), a->plan->geo.gqa), KB_I64);
    for (int i = 0; i < a->shape.lane_rows; i++) {
        val t = rows_token(K, &w->rows, kb_matrix(K)->x_row(K, i), &o.head[i], &o.valid[i]);
        val token = kb_add(K, w->rows.first_token, t);
        o.out[i] = rows_pointer(K, "out", "out_row", "out_head", token, o.head[i]);
        val first_row = kb_mul(K, kb_zext(K, token, KB_I64), heads64);
        val row = kb_add(K, first_row, kb_zext(K, o.head[i], KB_I64));
        o.lse[i] = kb_offset(K, kb_param(K, "lse"), kb_shli(K, row, 2));
    }
    attend_write(K, a, s, &o);
}

void template_unified(struct kb *k)
{
    const struct plan *p = kb_plan(k);
    if (p->dense) {
        template_dense(k);
        return;
    }
    struct place w = find_place(K, p);
    struct attend a;
    struct attend_sums s = {0};
    val start, end;
    attend_begin(K, &a, w.rows.head);
    a.length = w.length;
    attend_table(K, &a, w.sequence);
    val tiles = kb_shared(K, (size_t)(plan_query_bytes(p) * p->row_warps), 16);
    val row_warp = kb_divi(K, kb_warp(K), p->dim_warps);
    val tile = kb_offset(K, tiles, kb_muli(K, row_warp, plan_query_bytes(p)));
    val member = kb_remi(K, kb_warp(K), p->dim_warps);
    const struct query_rows query = {.pointer = rows_query, .data = &w.rows};
    val members = kb_i32(K, p->dim_warps);
    struct query_ahead ahead = {{{NULL}}};
    attend_fetch_query(K, member, members, &query, &ahead);
    attend_load_query(K, &a, tile, member, members, kb_param(K, "scale"), &query, &ahead);
    kb_barrier(K);
    attend_row_scales(K, &a);
    visible_range(K, &a, &w, &start, &end);
    val buffer = tile;
    if (p->chunk_tokens) {
        val all = kb_shared(K, (size_t)(plan_sums_bytes(p) * p->warps), 16);
        val sums = kb_offset(K, all, kb_muli(K, kb_warp(K), plan_sums_bytes(p)));
        if (p->turn_rows) {
            int bytes = plan_sums_bytes(p) * p->dim_warps;
            buffer = kb_offset(K, all, kb_muli(K, row_warp, bytes));
        }
        attend_chunks(K, &a, start, end, sums, &s);
    } else {
        attend_range(K, &a, start, end, &s);
        attend_finish(K, &a, &s);
    }
    if (p->turn_rows) {
        struct unrotate u = {buffer, member, p->dim_warps, NULL};
        u.rows = kb_sub(K, w.rows.count, w.rows.first);
        attend_unrotate(K, &a, &u, &s);
    }
    write_rows(K, &a, &w, &s);
}
