/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_dense_load.c - queries, and tiles of keys and values, to shared memory.
**
** Each warp of the last group brings 16 tokens of a tile: they lie in one page, so that a lane can look
** up the page of another tile than its neighbour, 32 tiles at once. A batch of copies is one tile; a
** tile is given away when the next one has been asked for.
*/
#include "part_attend.h"
#include "part_dense.h"
#include "part_rowvec.h"

enum { OWN = 16, TILES_AHEAD = 1, TURN = 32, QUERIES = 4 };

/* What the warp copies of every tile. */
struct bring {
    const struct dense *d;
    struct attend table; /* of which only the block table is made */
    struct slot_head head;
    val member, first; /* i32: which of the warps; its first token in the first tile */
    val token, unit;   /* i32: the lane's token in two, its unit of 16 bytes */
};

/* Pages of this warp's tokens in the lane's tile of the 32 from `tile` on, 0 past the last token. */
static val pages_of(struct kb *k, const struct bring *b, val tile)
{
    val own = kb_add(K, tile, kb_lane(K));
    val first = kb_add(K, b->first, kb_shli(K, own, 6));
    struct kb_if exists = kb_if(K, kb_icmp(K, KB_SLT, first, b->d->end));
    val index = kb_divi(K, first, b->d->plan->geo.page_tokens);
    val page = attend_page(K, &b->table, index);
    kb_endif(K, &exists);
    return kb_merge(K, &exists, page, kb_i32(K, 0));
}

/* Rows of `units` units of one side: `token` is the warp's first. */
static void copy_side(struct kb *k, const struct bring *b, const struct side *side, val from,
                      val to, val token)
{
    int units = side->head_size * 2 / KB_UNIT, at_once = kb_warp_size(k) / units;
    val lane = kb_lane(K), unit = kb_andi(K, lane, units - 1);
    val inner = kb_divi(K, lane, units);
    val steps = kb_mul(K, kb_zext(K, inner, KB_I64), b->head.step);
    val bytes = kb_add(K, steps, kb_zext(K, kb_shli(K, unit, 4), KB_I64));
    val codes = kb_offseti(K, kb_offset(K, from, bytes), side->code_offset);
    val block = kb_muli(K, kb_lshri(K, unit, 3), kb_tile_bytes(64));
    val own = kb_add(K, kb_shli(K, b->member, 4), inner);
    for (int i = 0; i < OWN; i += at_once) {
        val row = kb_addi(K, own, i);
        val place = kb_add(K, block, kb_tile_offset(K, row, kb_andi(K, unit, 7)));
        val valid = kb_icmp(K, KB_SLT, kb_add(K, token, kb_addi(K, inner, i)), b->d->end);
        val at = kb_offset(K, codes, kb_muli(K, b->head.step, i));
        kb_copy(K, kb_offset(K, to, place), at, valid);
    }
}

static void copy_tile(struct kb *k, const struct bring *b, val tile, val page)
{
    const struct dense *d = b->d;
    const struct plan *p = d->plan;
    val place = kb_andi(K, tile, p->dense_tiles - 1);
    val token = kb_add(K, b->first, kb_shli(K, tile, 6));
    val position = kb_remi(K, token, p->geo.page_tokens);
    struct slot_token first = slot_token(K, &b->head, page, position);
    val key = kb_offset(K, d->keys, kb_muli(K, place, kb_tile_bytes(p->geo.head_size)));
    copy_side(K, b, &p->slot.key, first.record, key, token);
    val value = kb_offset(K, d->values, kb_muli(K, place, kb_tile_bytes(p->geo.value_head_size)));
    copy_side(K, b, &p->slot.value, first.record, value, token);
}

static val parity(struct kb *k, const struct plan *p, val tile)
{
    return kb_andi(K, kb_divi(K, tile, p->dense_tiles), 1);
}

/* The tile before is there: tells. */
static void give(struct kb *k, const struct bring *b, val tile, int pending)
{
    int mask = b->d->plan->dense_tiles - 1;
    kb_copy_wait(K, pending);
    kb_warp_sync(K);
    struct kb_if one = kb_if(K, kb_elect(K));
    kb_arrive(K, kb_offset(K, b->d->full, kb_shli(K, kb_andi(K, tile, mask), 3)));
    kb_endif(K, &one);
}

static void bring_loop(struct kb *k, const struct bring *b)
{
    const struct dense *d = b->d;
    const struct plan *p = d->plan;
    struct {
        val tile, pages;
    } c = {kb_i32(K, 0), pages_of(K, b, kb_i32(K, 0))};
    struct kb_loop loop;
    kb_loop_begin(K, &loop, (val *)&c, 2);
    loop.rolled = true;
    kb_loop_while(K, &loop, kb_icmp(K, KB_SLT, c.tile, d->tiles));
    val page = kb_shuffle(K, c.pages, kb_andi(K, c.tile, TURN - 1));
    struct kb_if used = kb_if(K, kb_icmpi(K, KB_SGE, c.tile, p->dense_tiles));
    val place = kb_shli(K, kb_andi(K, c.tile, p->dense_tiles - 1), 3);
    val before = kb_addi(K, c.tile, -p->dense_tiles);
    val bar = kb_offset(K, d->empty, place);
    kb_bulk_wait(K, bar, parity(K, p, before));
    kb_endif(K, &used);
    copy_tile(K, b, c.tile, page);
    kb_copy_batch(K);
    struct kb_if later = kb_if(K, kb_icmpi(K, KB_SGT, c.tile, 0));
    give(K, b, kb_addi(K, c.tile, -1), TILES_AHEAD);
    kb_endif(K, &later);
    c.tile = kb_addi(K, c.tile, 1);
    struct kb_if turn = kb_if(K, kb_icmpi(K, KB_EQ, kb_andi(K, c.tile, TURN - 1), 0));
    val next = pages_of(K, b, c.tile);
    kb_endif(K, &turn);
    c.pages = kb_merge(K, &turn, next, c.pages);
    kb_loop_end(K, &loop);
    give(K, b, kb_addi(K, d->tiles, -1), 0);
}

void dense_bring(struct kb *k, const struct dense *d, val member)
{
    struct bring b = {.d = d, .member = member};
    b.head = slot_head(K, d->rows.head);
    b.table.plan = d->plan;
    attend_table(K, &b.table, d->sequence);
    b.first = kb_add(K, d->start, kb_shli(K, member, 4));
    bring_loop(K, &b);
}

/* ---- queries ---- */

/* Into the operands' type: as they are, or, for fp16 from bf16, times a power of two. A negative scale
** turns the queries' signs, so that the largest product is the largest score. */
static void query_row(struct kb *k, const struct dense *d, struct rowvec *v, val tile, val row,
                      val group)
{
    const struct plan *p = d->plan;
    int same = (p->geo.dtype == KVK_FLOAT16) == (d->type == KB_F16);
    val down = kb_f32(K, 1), up = down, scale = kb_param(K, "scale");
    if (!same)
        rowvec_powers(K, v, &down, &up);
    val negative = kb_fcmp(K, KB_OLT, scale, kb_f32(K, 0));
    down = kb_select(K, negative, kb_fneg(K, down), down);
    for (int i = 0; i < v->e; i++)
        v->x[i] = kb_fmul(K, v->x[i], down);
    val element = kb_muli(K, kb_lane(K), v->e);
    val unit = kb_andi(K, kb_lshri(K, element, 3), 7);
    val first = kb_tile_offset(K, row, unit);
    val at = kb_add(K, first, kb_shli(K, kb_andi(K, element, 7), 1));
    at = kb_add(K, at, kb_muli(K, kb_lshri(K, element, 6), kb_tile_bytes(64)));
    for (int i = 0; i < v->e; i += 2) {
        val pair = kb_pack_half(K, v->x[i], v->x[i + 1], d->type);
        kb_store(K, pair, kb_offseti(K, kb_offset(K, tile, at), 2 * i), 4);
    }
    val magnitude = kb_fmul(K, kb_fabs(K, scale), kb_f32(K, 1.4426950408889634));
    val factor = kb_fmul(K, up, magnitude);
    val index = kb_add(K, kb_shli(K, group, 6), row);
    kb_store(K, factor, kb_offset(K, d->factors, kb_shli(K, index, 2)), 4);
}

/* Some rows at once, so that their loads are in flight together. */
void dense_queries(struct kb *k, const struct dense *d, val group)
{
    const struct plan *p = d->plan;
    int type = p->geo.dtype == KVK_FLOAT16 ? KB_F16 : KB_BF16;
    struct rows rows = d->rows;
    rows.first = kb_add(K, d->rows.first, kb_shli(K, group, 6));
    val tile = kb_offset(K, d->queries, kb_muli(K, group, kb_tile_bytes(p->geo.head_size)));
    val row = kb_shli(K, kb_andi(K, kb_warp(K), KB_GROUP_WARPS - 1), 4);
    val past = kb_addi(K, row, OWN);
    struct kb_loop loop;
    kb_loop_begin(K, &loop, &row, 1);
    loop.rolled = true;
    kb_loop_while(K, &loop, kb_icmp(K, KB_SLT, row, past));
    struct rowvec v[QUERIES];
    for (int i = 0; i < QUERIES; i++) {
        rowvec_make(K, &v[i], p->geo.head_size);
        rowvec_load(K, &v[i], type, rows_query(K, &rows, kb_addi(K, row, i)));
    }
    for (int i = 0; i < QUERIES; i++)
        query_row(K, d, &v[i], tile, kb_addi(K, row, i), group);
    row = kb_addi(K, row, QUERIES);
    kb_loop_end(K, &loop);
    kb_group_sync(K, group);
}
