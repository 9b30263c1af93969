/* SPDX-License-Identifier: Apache-2.0 */
/*
** decode.c - few query tokens a sequence. A CTA takes one KV head, one split of one sequence and up
** to 16 (token, head) rows: the cache is decoded once for all of them. Its warps take steps in turn
** and are joined at the end; splits are joined by template_reduce.
*/
#include "part_attend.h"
#include "part_rows.h"
#include "templates.h"

/* What this CTA works on, all i32 and CTA-uniform. */
struct place {
    struct rows rows;
    val split, sequence, length;
};

static struct place find_place(struct kb *k, const struct plan *p)
{
    struct place w;
    val heads = kb_param(K, "kv_heads");
    w.rows.tokens = kb_param(K, "query_tokens");
    w.rows.count = kb_muli(K, w.rows.tokens, p->geo.gqa);
    val tiles = kb_divi(K, kb_addi(K, w.rows.count, p->rows - 1), p->rows);
    val rest = kb_udiv(K, kb_cta(K), heads);
    w.rows.head = kb_sub(K, kb_cta(K), kb_mul(K, rest, heads));
    val above = kb_udiv(K, rest, tiles);
    val row_tile = kb_sub(K, rest, kb_mul(K, above, tiles));
    w.sequence = kb_udiv(K, above, kb_param(K, "splits"));
    w.split = kb_sub(K, above, kb_mul(K, w.sequence, kb_param(K, "splits")));
    w.rows.first = kb_muli(K, row_tile, p->rows);
    w.rows.first_token = kb_mul(K, w.sequence, w.rows.tokens);
    val at = kb_shli(K, kb_zext(K, w.sequence, KB_I64), 2);
    w.length = kb_load(K, KB_I32, kb_offset(K, kb_param(K, "lengths"), at), 4);
    return w;
}

/* Visible keys of the lane's rows; [start, end) of this split, no further than any row sees. */
static void visible_range(struct kb *k, struct attend *a, const struct place *w, val *start,
                          val *end)
{
    const struct plan *p = a->plan;
    val splits = kb_param(K, "splits"), window = kb_param(K, "window");
    val chunk = kb_udiv(K, kb_addi(K, kb_add(K, w->length, splits), -1), splits);
    val steps = kb_divi(K, kb_addi(K, chunk, p->tile_tokens - 1), p->tile_tokens);
    val fixed = kb_param(K, "split_tokens"); /* splits that end at fixed positions */
    val even = kb_muli(K, steps, p->tile_tokens);
    chunk = kb_select(K, kb_icmpi(K, KB_SGT, fixed, 0), fixed, even);
    val begin = kb_mul(K, w->split, chunk);
    *end = kb_smin(K, kb_add(K, begin, chunk), w->length);
    val oldest = kb_sub(K, w->length, w->rows.tokens); /* position of query token 0 */
    val windowed = kb_icmpi(K, KB_SGT, window, 0);
    val full = kb_icmpi(K, KB_NE, kb_param(K, "full"), 0);
    for (int i = 0; i < a->shape.lane_rows; i++) {
        val head, valid;
        val token = rows_token(K, &w->rows, kb_target(K)->ops->x_row(K, i), &head, &valid);
        val position = kb_add(K, oldest, token);
        val reach = kb_addi(K, kb_sub(K, position, window), 1);
        val first = kb_select(K, windowed, kb_smax(K, reach, begin), begin);
        a->first[i] = first;
        val limit = kb_addi(K, *end, -1);
        val last = kb_select(K, full, limit, kb_smin(K, position, limit));
        attend_row_options(K, a, i, position, head, valid);
        a->last[i] = kb_select(K, valid, last, kb_i32(K, -1));
    }
    /* whole steps before the oldest row's window are skipped */
    val unseen = kb_sub(K, kb_addi(K, kb_sub(K, oldest, window), 1), begin);
    unseen = kb_select(K, windowed, kb_smax(K, unseen, kb_i32(K, 0)), kb_i32(K, 0));
    val skipped = kb_muli(K, kb_divi(K, unseen, p->tile_tokens), p->tile_tokens);
    *start = kb_add(K, begin, skipped);
}

static void write_rows(struct kb *k, const struct attend *a, const struct place *w,
                       const struct attend_sums *s)
{
    struct attend_output o;
    val partial[ATTEND_ROWS], partial_lse[ATTEND_ROWS];
    val splits = kb_param(K, "splits"), kv_heads = kb_param(K, "kv_heads"),
        base = kb_param(K, "partial");
    val heads = kb_muli(K, kv_heads, a->plan->geo.gqa);
    val tokens = kb_mul(K, kb_param(K, "sequences"), w->rows.tokens);
    val heads64 = kb_zext(K, heads, KB_I64), splits64 = kb_zext(K, splits, KB_I64);
    val places = kb_mul(K, heads64, splits64);
    val all = kb_mul(K, kb_zext(K, tokens, KB_I64), places);
    val lse_base = kb_offset(K, base, kb_muli(K, all, a->plan->geo.value_head_size * 4));
    for (int i = 0; i < a->shape.lane_rows; i++) {
        val t = rows_token(K, &w->rows, kb_target(K)->ops->x_row(K, i), &o.head[i], &o.valid[i]);
        val token = kb_add(K, w->rows.first_token, t);
        o.out[i] = rows_pointer(K, "out", "out_row", "out_head", token, o.head[i]);
        val first_row = kb_mul(K, kb_zext(K, token, KB_I64), heads64);
        val row = kb_add(K, first_row, kb_zext(K, o.head[i], KB_I64));
        o.lse[i] = kb_offset(K, kb_param(K, "lse"), kb_shli(K, row, 2));
        val before = kb_mul(K, row, splits64);
        val place = kb_add(K, before, kb_zext(K, w->split, KB_I64));
        partial[i] = kb_offset(K, base, kb_muli(K, place, a->plan->geo.value_head_size * 4));
        partial_lse[i] = kb_offset(K, lse_base, kb_shli(K, place, 2));
    }
    struct kb_if single = kb_if(K, kb_icmpi(K, KB_EQ, splits, 1));
    attend_write(K, a, s, &o);
    kb_else(K, &single);
    attend_write_partial(K, a, s, o.valid, partial, partial_lse);
    kb_endif(K, &single);
}

void template_decode(struct kb *k)
{
    const struct plan *p = kb_plan(k);
    struct place w = find_place(K, p);
    struct attend a;
    struct attend_sums s = {0};
    val start, end;
    attend_begin(K, &a, w.rows.head);
    a.length = w.length;
    attend_table(K, &a, w.sequence);
    val tile = kb_shared(K, (size_t)plan_tile_bytes(p), 16);
    attend_load_query(K, &a, tile, kb_warp(K), p->warps, kb_param(K, "scale"), rows_query, &w.rows);
    kb_barrier(K);
    attend_row_scales(K, &a);
    visible_range(K, &a, &w, &start, &end);
    val index = kb_divi(K, kb_warp(K), p->dim_warps);
    start = kb_add(K, start, kb_muli(K, index, 16 * p->subtiles));
    attend_range(K, &a, start, end, p->tile_tokens, &s);
    attend_finish(K, &a, &s);
    attend_merge_warps(K, &a, index, tile, &s);
    struct kb_if first = kb_if(K, kb_icmpi(K, KB_EQ, index, 0));
    write_rows(K, &a, &w, &s);
    kb_endif(K, &first);
}
