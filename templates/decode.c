/* SPDX-License-Identifier: Apache-2.0 */
/*
** decode.c - few query tokens a sequence. A CTA takes one KV head, one split of one sequence and up
** to 16 (token, head) rows: the cache is decoded once for all of them. Its warps take steps in turn
** and are joined at the end; splits are joined by template_reduce.
*/
#include "part_arrive.h"
#include "part_output.h"
#include "part_place.h"
#include "part_splits.h"
#include "part_unrotate.h"
#include "part_words.h"
#include "templates.h"

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

/* Where a row of the CTA goes. Partial results: of each sequence with several splits, from its place on,
** [rows of a sequence][splits][value head size]; behind all places their log-sum-exps. */
static void find_row(struct kb *k, const void *data, val row, struct attend_row *r)
{
    const struct place *w = data;
    int row_bytes = kb_plan(k)->geo.value_head_size * 4;
    val heads = kb_zext(K, kb_muli(K, kb_param(K, "kv_heads"), kb_plan(k)->geo.gqa), KB_I64);
    struct rows rows = rows_of(K, w, &row);
    val token = rows_token(K, &rows, row, &r->head, &r->valid);
    val own = kb_mul(K, kb_zext(K, token, KB_I64), heads); /* among this sequence's rows */
    own = kb_add(K, own, kb_zext(K, r->head, KB_I64));
    token = kb_add(K, w->rows.first_token, token);
    r->out = rows_pointer(K, "out", "out_row", "out_head", token, r->head);
    val before = kb_mul(K, kb_zext(K, token, KB_I64), heads);
    val index = kb_add(K, before, kb_zext(K, r->head, KB_I64));
    r->lse = kb_offset(K, kb_param(K, "lse"), kb_shli(K, index, 2));
    val all_rows = kb_mul(K, kb_zext(K, w->rows.tokens, KB_I64), heads);
    val place = kb_mul(K, kb_zext(K, w->share.place, KB_I64), all_rows);
    val splits = kb_zext(K, w->share.count, KB_I64);
    place = kb_add(K, place, kb_mul(K, own, splits));
    place = kb_add(K, place, kb_zext(K, w->share.split, KB_I64));
    val base = kb_param(K, "partial");
    r->partial = kb_offset(K, base, kb_muli(K, place, row_bytes));
    val lse = kb_offset(K, base, kb_muli(K, kb_param(K, "places"), row_bytes));
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

/* Rows of the CTA, some of which may not exist. */
static val row_count(struct kb *k, const struct plan *p, const struct place *w)
{
    if (p->images)
        return kb_muli(K, w->image.heads, p->rows);
    return kb_smin(K, kb_sub(K, w->rows.count, w->rows.first), kb_i32(K, p->rows));
}

static void join_warps(struct kb *k, const struct attend *a, const struct place *w,
                       struct attend_sums *s, val index, val buffers)
{
    struct attend_join to = {.index = index, .find_row = find_row, .data = w};
    to.rows = row_count(K, a->plan, w);
    if (a->plan->images)
        to.groups = w->image.groups;
    to.single = kb_icmpi(K, KB_EQ, w->share.count, 1);
    if (a->plan->turn_rows)
        unrotate(K, a, s, to.rows, index, buffers);
    attend_join(K, a, s, &to, buffers);
}

/* Some dims of a row, of all splits. */
static void join_row(struct kb *k, const struct place *w, val row, val unit)
{
    int dims = kb_plan(k)->geo.value_head_size, wide = splits_wide(dims);
    struct splits_row all = {.count = w->share.count, .row_bytes = dims * 4, .wide = wide};
    struct place first = *w;
    struct attend_row r;
    first.share.split = kb_i32(K, 0);
    find_row(K, &first, row, &r);
    struct kb_if exists = kb_if(K, r.valid);
    all.lse = r.partial_lse;
    all.out = kb_offset(K, r.partial, kb_muli(K, unit, wide * 4));
    struct splits_sum s = splits_chain(K, &all, kb_i32(K, 0), kb_i32(K, 1));
    struct splits_target to = {.lse = r.lse, .head = r.head};
    to.out = kb_offset(K, r.out, kb_muli(K, unit, wide * 2));
    to.first = kb_icmpi(K, KB_EQ, unit, 0);
    splits_write(K, &s, &to, wide);
    kb_endif(K, &exists);
}

/* The last of the CTAs that share these rows does the reduction's work for them. */
static void join_splits(struct kb *k, const struct plan *p, const struct place *w)
{
    int dims = p->geo.value_head_size, units = dims / splits_wide(dims);
    struct kb_if several = kb_if(K, w->arrives);
    struct kb_if last = kb_if(K, arrive_last(K, place_word(K, w), w->share.count));
    val i = kb_tid(K), count = kb_muli(K, row_count(K, p, w), units);
    struct kb_loop loop;
    kb_loop_begin(K, &loop, &i, 1);
    kb_loop_while(K, &loop, kb_icmp(K, KB_SLT, i, count));
    loop.rolled = true;
    val row = kb_divi(K, i, units), unit = kb_sub(K, i, kb_muli(K, row, units));
    join_row(K, w, row, unit);
    i = kb_addi(K, i, p->warps * kb_warp_size(K));
    kb_loop_end(K, &loop);
    kb_endif(K, &last);
    kb_endif(K, &several);
}

/* The CTA's query rows into `tile`. */
static void load_query(struct kb *k, struct attend *a, struct place *w, val tile)
{
    const struct plan *p = a->plan;
    val member = kb_warp(K), members = kb_i32(K, p->warps);
    if (p->images) { /* a tile a head, its rows loaded by its warps */
        tile = kb_offset(K, tile, kb_muli(K, w->image.member, plan_query_bytes(p)));
        member = w->image.group;
        members = w->image.groups;
        if (p->key_words)
            a->words.key_turn = words_turn(K, &p->slot.key, w->image.member);
    }
    struct query_rows query = {.pointer = rows_query, .data = &w->rows};
    query.exist = kb_sub(K, w->rows.count, w->rows.first);
    attend_load_query(K, a, tile, member, members, kb_param(K, "scale"), &query);
    kb_barrier(K);
    attend_row_scales(K, a);
}

/* Until kb_grid_wait nothing of global memory is touched; pages begin to come before the query is read. */
void template_decode(struct kb *k)
{
    const struct plan *p = kb_plan(k);
    struct place w = place_find(K);
    struct attend a;
    struct attend_sums s = {0};
    val start, end;
    attend_begin(K, &a, w.rows.head);
    kb_grid_wait(K);
    val tile = kb_shared(K, (size_t)plan_tile_bytes(p), 16);
    if (p->images) {
        a.stride = kb_muli(K, w.image.groups, 16 * p->subtiles);
        a.stride_log = kb_sub(K, a.stride_log, w.image.shift); /* of all warps' tokens, before */
    }
    const struct spread steps = {w.rows.tokens, a.stride, a.stride_log};
    place_look_up(K, &w, &steps);
    a.length = w.share.length;
    attend_table(K, &a, w.share.sequence);
    place_tell(K, &w);
    if (p->last_joins)
        place_arrive(K, &w);
    place_range(K, &a, &w, &steps, &start, &end);
    if (p->images && p->bulk)
        kb_barrier(K); /* mbarriers are ready */
    struct kb_if producer;
    if (p->producer) {
        producer = kb_if(K, kb_icmpi(K, KB_SGE, kb_uniform(K, kb_warp(K)), p->warps));
        attend_image_produce(K, &a, &w.image, start, end);
        kb_else(K, &producer);
        kb_team(K, p->warps * kb_warp_size(K));
    } else if (p->images && p->bulk) {
        attend_image_begin_range(K, &a, &w.image, start, end);
    }
    load_query(K, &a, &w, tile);
    /* squares: always so of 8 rows, but asked, or 8 bytes of 16 warps spill */
    bool half = p->geo.gqa * 2 <= p->rows || p->squares;
    if (p->lazy_reference && p->narrow && half)
        a.second = kb_icmpi(K, KB_SGT, kb_sub(K, w.rows.count, w.rows.first), p->rows / 2);
    val index = kb_divi(K, kb_warp(K), p->dim_warps);
    if (p->images) {
        attend_image_range(K, &a, &w.image, start, end, &s);
    } else {
        start = kb_add(K, start, kb_muli(K, index, 16 * p->subtiles));
        attend_range(K, &a, start, end, &s);
    }
    attend_finish(K, &a, &s);
    join_warps(K, &a, &w, &s, index, p->images ? w.image.all : tile);
    if (p->last_joins)
        join_splits(K, p, &w);
    if (!p->producer)
        return;
    kb_team(K, 0);
    kb_endif(K, &producer);
}
