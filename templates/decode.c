/* SPDX-License-Identifier: Apache-2.0 */
/*
** decode.c - few query tokens a sequence. A CTA takes one KV head, one split of one sequence and up
** to 16 (token, head) rows: the cache is decoded once for all of them. Its warps take steps in turn
** and are joined at the end; splits are joined by template_reduce.
*/
#include "part_output.h"
#include "part_place.h"
#include "part_query.h"
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
** [rows of a sequence][splits][value head size]; behind all places their {m, l}. */
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
    val base = kb_param(K, "partial");
    r->partial = kb_offset(K, base, kb_muli(K, place, row_bytes));
    val facts = kb_offset(K, base, kb_muli(K, kb_param(K, "places"), row_bytes));
    r->facts = kb_offset(K, facts, kb_shli(K, place, 3));
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

static int log2_of(int x) { return x > 1 ? 1 + log2_of(x / 2) : 0; }

static void join_warps(struct kb *k, const struct attend *a, struct place *w, struct attend_sums *s,
                       val index, val buffers)
{
    const struct plan *p = a->plan;
    struct attend_join to = {.index = index, .find_row = find_row, .data = w};
    struct mates mates;
    if (p->neighbours) {
        place_again(K, w);
        mates = place_mates(K, w);
        to.mates = &mates;
        to.arrives = kb_not(K, kb_is_null(K, kb_param(K, "arrivals")));
    }
    to.exist = kb_smin(K, kb_sub(K, w->rows.count, w->rows.first), kb_i32(K, p->rows));
    to.rows = p->images ? kb_mul(K, to.exist, w->image.heads) : to.exist;
    to.set = kb_i32(K, p->rows);
    to.groups_log = kb_i32(K, log2_of(p->token_warps));
    if (p->images) {
        to.set = kb_mul(K, to.set, w->image.heads);
        to.groups_log = kb_sub(K, to.groups_log, w->image.shift);
    }
    to.split = w->share.split;
    to.count = w->share.count;
    to.rank = w->rank;
    if (p->turn_rows)
        unrotate(K, a, s, to.exist, index, buffers);
    attend_join(K, a, s, &to, buffers);
}

static struct query_rows query_of(struct kb *k, struct place *w)
{
    struct query_rows query = {.pointer = rows_query, .data = &w->rows};
    query.exist = kb_sub(K, w->rows.count, w->rows.first);
    return query;
}

/* Who reads which rows of which tile: with images a tile a head, its rows read by its warps. */
struct reader {
    struct query_rows rows;
    val tile, member, members;
    struct query_ahead ahead;
};

static void fetch_query(struct kb *k, struct place *w, val tile, struct reader *r)
{
    const struct plan *p = kb_plan(k);
    *r = (struct reader){query_of(K, w), tile, kb_warp(K), kb_i32(K, p->warps), {{{NULL}}}};
    if (p->images) {
        r->tile = kb_offset(K, tile, kb_muli(K, w->image.member, plan_query_bytes(p)));
        r->member = w->image.group;
        r->members = w->image.groups;
    }
    attend_fetch_query(K, r->member, r->members, &r->rows, &r->ahead);
}

/* The CTA's query rows into its tile. */
static void load_query(struct kb *k, struct attend *a, const struct reader *r)
{
    attend_load_query(K, a, r->tile, r->member, r->members, kb_param(K, "scale"), &r->rows,
                      &r->ahead);
    kb_barrier(K);
    attend_row_scales(K, a);
}

/* Until kb_grid_wait nothing of global memory is touched. Queries are asked for before pages, behind which they would
** wait. */
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
    struct reader reader;
    fetch_query(K, &w, tile, &reader);
    attend_table(K, &a, w.share.sequence);
    place_tell(K, &w);
    if (p->neighbours) {
        place_keep(K, &w);
        place_arrive(K, &w);
    }
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
    if (p->key_words)
        a.words.key_turn = words_turn(K, &p->slot.key, w.image.member);
    load_query(K, &a, &reader);
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
    if (!p->producer)
        return;
    kb_team(K, 0);
    kb_endif(K, &producer);
}
