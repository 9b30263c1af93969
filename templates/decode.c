/* SPDX-License-Identifier: Apache-2.0 */
/*
** decode.c - few query tokens a sequence. A CTA takes one KV head, one split of one sequence and up
** to 16 (token, head) rows: the cache is decoded once for all of them. Its warps take steps in turn
** and are joined at the end; splits are joined by template_reduce.
*/
#include "part_image.h"
#include "part_output.h"
#include "part_rows.h"
#include "part_unrotate.h"
#include "templates.h"

/* What this CTA works on, all i32 and, but for rows.head, CTA-uniform. */
struct place {
    struct rows rows;
    val split, sequence, length;
    struct image image; /* where the plan has images: a CTA then takes some KV heads at once */
};

static struct place find_place(struct kb *k, const struct plan *p)
{
    struct place w;
    val heads = kb_param(K, "kv_heads");
    if (p->images) {
        attend_image_begin(K, &w.image);
        heads = kb_lshr(K, heads, w.image.shift);
    }
    w.rows.tokens = kb_param(K, "query_tokens");
    w.rows.count = kb_muli(K, w.rows.tokens, p->geo.gqa);
    val tiles = kb_divi(K, kb_addi(K, w.rows.count, p->rows - 1), p->rows);
    val rest = kb_udiv(K, kb_cta(K), heads);
    w.rows.head = kb_sub(K, kb_cta(K), kb_mul(K, rest, heads));
    if (p->images) {
        w.image.block = kb_mul(K, w.rows.head, w.image.heads);
        w.rows.head = kb_add(K, w.image.block, w.image.member);
    }
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
    val splits = kb_param(K, "splits"), window = kb_param(K, "window");
    val chunk = kb_udiv(K, kb_addi(K, kb_add(K, w->length, splits), -1), splits);
    val steps = kb_lshr(K, kb_addi(K, kb_add(K, chunk, a->stride), -1), a->stride_log);
    val fixed = kb_param(K, "split_tokens"); /* splits that end at fixed positions */
    val even = kb_shl(K, steps, a->stride_log);
    chunk = kb_select(K, kb_icmpi(K, KB_SGT, fixed, 0), fixed, even);
    val begin = kb_mul(K, w->split, chunk);
    *end = kb_smin(K, kb_add(K, begin, chunk), w->length);
    val oldest = kb_sub(K, w->length, w->rows.tokens); /* position of query token 0 */
    val windowed = kb_icmpi(K, KB_SGT, window, 0);
    val full = kb_icmpi(K, KB_NE, kb_param(K, "full"), 0);
    for (int i = 0; i < a->shape.lane_rows; i++) {
        val head, valid;
        val token = rows_token(K, &w->rows, kb_matrix(K)->x_row(K, i), &head, &valid);
        val position = kb_add(K, oldest, token);
        val reach = kb_addi(K, kb_sub(K, position, window), 1);
        val first = kb_select(K, windowed, kb_smax(K, reach, begin), begin);
        val limit = kb_addi(K, *end, -1);
        val last = kb_select(K, full, limit, kb_smin(K, position, limit));
        attend_row_options(K, a, i, position, head, valid);
        /* rows that do not exist are not written: where masks are rare, they must not call for them */
        a->first[i] = a->plan->lazy_reference ? kb_select(K, valid, first, begin) : first;
        a->last[i] = kb_select(K, valid, last, a->plan->lazy_reference ? limit : kb_i32(K, -1));
    }
    /* whole steps before the oldest row's window are skipped */
    val unseen = kb_sub(K, kb_addi(K, kb_sub(K, oldest, window), 1), begin);
    unseen = kb_select(K, windowed, kb_smax(K, unseen, kb_i32(K, 0)), kb_i32(K, 0));
    val skipped = kb_shl(K, kb_lshr(K, unseen, a->stride_log), a->stride_log);
    *start = kb_add(K, begin, skipped);
}

/* Rows of a warp's head come in the order of its CTA's heads. */
static struct rows rows_of(struct kb *k, const struct place *w, val *row)
{
    struct rows rows = w->rows;
    if (!kb_plan(k)->images)
        return rows;
    val member = kb_divi(K, *row, kb_plan(k)->rows);
    *row = kb_remi(K, *row, kb_plan(k)->rows);
    rows.head = kb_add(K, w->image.block, member);
    return rows;
}

/* Where a row of the CTA goes. Partial results: [rows][splits][value head size], then [rows][splits]. */
static void find_row(struct kb *k, const void *data, val row, struct attend_row *r)
{
    const struct place *w = data;
    int row_bytes = kb_plan(k)->geo.value_head_size * 4;
    val heads = kb_zext(K, kb_muli(K, kb_param(K, "kv_heads"), kb_plan(k)->geo.gqa), KB_I64);
    val splits = kb_zext(K, kb_param(K, "splits"), KB_I64);
    val tokens = kb_mul(K, kb_param(K, "sequences"), w->rows.tokens);
    struct rows rows = rows_of(K, w, &row);
    val token = rows_token(K, &rows, row, &r->head, &r->valid);
    token = kb_add(K, w->rows.first_token, token);
    r->out = rows_pointer(K, "out", "out_row", "out_head", token, r->head);
    val before = kb_mul(K, kb_zext(K, token, KB_I64), heads);
    val index = kb_add(K, before, kb_zext(K, r->head, KB_I64));
    r->lse = kb_offset(K, kb_param(K, "lse"), kb_shli(K, index, 2));
    val place = kb_mul(K, index, splits);
    place = kb_add(K, place, kb_zext(K, w->split, KB_I64));
    val all = kb_mul(K, heads, splits);
    all = kb_mul(K, all, kb_zext(K, tokens, KB_I64));
    val base = kb_param(K, "partial");
    r->partial = kb_offset(K, base, kb_muli(K, place, row_bytes));
    val lse = kb_offset(K, base, kb_muli(K, all, row_bytes));
    r->partial_lse = kb_offset(K, lse, kb_shli(K, place, 2));
}

/* Each token warp has room for rows of its own in the buffers. */
static void unrotate(struct kb *k, const struct attend *a, struct attend_sums *s, val rows,
                     val index, val buffers)
{
    const struct plan *p = a->plan;
    struct unrotate u = {NULL, NULL, p->dim_warps, rows};
    u.buffer = kb_offset(K, buffers, kb_muli(K, index, plan_turn_bytes(p)));
    u.member = kb_remi(K, kb_warp(K), p->dim_warps);
    kb_barrier(K); /* all warps have read their queries */
    attend_unrotate(K, a, &u, s);
}

static void join_warps(struct kb *k, const struct attend *a, const struct place *w,
                       struct attend_sums *s, val index, val buffers)
{
    struct attend_join to = {.index = index, .find_row = find_row, .data = w};
    val rest = kb_sub(K, w->rows.count, w->rows.first);
    to.rows = kb_smin(K, rest, kb_i32(K, a->plan->rows));
    if (a->plan->images) {
        to.rows = kb_muli(K, w->image.heads, a->plan->rows);
        to.groups = w->image.groups;
    }
    to.single = kb_icmpi(K, KB_EQ, kb_param(K, "splits"), 1);
    if (a->plan->turn_rows)
        unrotate(K, a, s, to.rows, index, buffers);
    attend_join(K, a, s, &to, buffers);
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
    val tile = kb_shared(K, (size_t)plan_tile_bytes(p), 16), member = kb_warp(K),
        members = kb_i32(K, p->warps);
    if (p->images) { /* a tile a head, its rows loaded by its warps */
        a.stride = kb_muli(K, w.image.groups, 16 * p->subtiles);
        a.stride_log = kb_sub(K, a.stride_log, w.image.shift); /* of all warps' tokens, before */
        tile = kb_offset(K, tile, kb_muli(K, w.image.member, plan_query_bytes(p)));
        member = w.image.group;
        members = w.image.groups;
    }
    attend_load_query(K, &a, tile, member, members, kb_param(K, "scale"), rows_query, &w.rows);
    kb_barrier(K);
    attend_row_scales(K, &a);
    visible_range(K, &a, &w, &start, &end);
    val index = kb_divi(K, kb_warp(K), p->dim_warps);
    if (p->images) {
        attend_image_range(K, &a, &w.image, start, end, &s);
    } else {
        start = kb_add(K, start, kb_muli(K, index, 16 * p->subtiles));
        attend_range(K, &a, start, end, &s);
    }
    attend_finish(K, &a, &s);
    join_warps(K, &a, &w, &s, index, p->images ? w.image.all : tile);
}
