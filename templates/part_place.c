/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_place.c - the work of a decode's CTA.
*/
#include "part_place.h"

#include "part_arrive.h"
#include "part_query.h"

/* Fills what the CTA's number alone tells; heads: of KV heads a CTA takes, the launch's blocks. */
static void find(struct kb *k, struct place *w, val cta)
{
    const struct plan *p = kb_plan(k);
    w->blocks = kb_param(K, "kv_heads");
    if (p->images)
        w->blocks = kb_lshr(K, w->blocks, w->image.shift);
    w->rows.tokens = kb_param(K, "query_tokens");
    w->rows.count = kb_muli(K, w->rows.tokens, p->geo.gqa);
    w->tiles = kb_divi(K, kb_addi(K, w->rows.count, p->rows - 1), p->rows);
    val rest = kb_udiv(K, cta, w->blocks);
    w->block = kb_sub(K, cta, kb_mul(K, rest, w->blocks));
    w->slot = kb_udiv(K, rest, w->tiles);
    w->tile = kb_sub(K, rest, kb_mul(K, w->slot, w->tiles));
}

struct place place_find(struct kb *k)
{
    const struct plan *p = kb_plan(k);
    struct place w;
    if (p->images)
        attend_image_begin(K, &w.image);
    find(K, &w, kb_cta(K));
    w.rows.head = w.block;
    if (p->images) {
        w.image.block = kb_mul(K, w.block, w.image.heads);
        w.rows.head = kb_add(K, w.image.block, w.image.member);
    }
    w.rows.first = kb_muli(K, w.tile, p->rows);
    return w;
}

static struct share equal_share(struct kb *k, val slot)
{
    val splits = kb_param(K, "splits");
    struct share s = {.sequence = kb_udiv(K, slot, splits), .count = splits};
    s.place = kb_mul(K, s.sequence, splits);
    s.split = kb_sub(K, slot, s.place);
    val at = kb_shli(K, kb_zext(K, s.sequence, KB_I64), 2);
    s.length = kb_load(K, KB_I32, kb_offset(K, kb_param(K, "lengths"), at), 4);
    return s;
}

void place_look_up(struct kb *k, struct place *w, const struct spread *s)
{
    struct kb_if spread = kb_if(K, kb_icmpi(K, KB_NE, kb_param(K, "spread"), 0));
    struct share own = spread_find(K, s, w->slot);
    kb_else(K, &spread);
    struct share equal = equal_share(K, w->slot);
    kb_endif(K, &spread);
    val *to = (val *)&own, *other = (val *)&equal;
    for (size_t i = 0; i < sizeof own / sizeof(val); i++)
        to[i] = kb_merge(K, &spread, to[i], other[i]);
    w->share = own;
    w->share.sequence = kb_uniform(K, own.sequence);
    w->share.split = kb_uniform(K, own.split);
    w->share.count = kb_uniform(K, own.count);
    kb_return_if(K, kb_icmpi(K, KB_SLT, w->share.sequence, 0));
    w->rows.first_token = kb_mul(K, w->share.sequence, w->rows.tokens);
}

static val word_of(struct kb *k, const struct place *w, val sequence)
{
    val group = kb_add(K, kb_mul(K, sequence, w->tiles), w->tile);
    group = kb_add(K, kb_mul(K, group, w->blocks), w->block);
    return kb_offset(K, kb_param(K, "arrivals"), kb_shli(K, kb_zext(K, group, KB_I64), 3));
}

/* Found once more, from a number of which it is not known that it is the CTA's: registers of the steps are not for
** it. */
val place_word(struct kb *k, const struct place *w)
{
    struct place again = *w;
    find(K, &again, kb_opaque(K, kb_cta(K)));
    return word_of(K, &again, w->share.sequence);
}

val place_arrives(struct kb *k, const struct place *w)
{
    val several = kb_icmpi(K, KB_SGT, kb_opaque(K, w->share.count), 1);
    return kb_and(K, several, kb_not(K, kb_is_null(K, kb_param(K, "arrivals"))));
}

void place_arrive(struct kb *k, struct place *w)
{
    const struct plan *p = kb_plan(k);
    val one = kb_icmpi(K, KB_EQ, kb_tid(K), p->threads - 1); /* of the warp with least to do */
    struct kb_if begins = kb_if(K, kb_and(K, place_arrives(K, w), one));
    arrive_begin(K, word_of(K, w, w->share.sequence));
    kb_endif(K, &begins);
}

/* Splits are equal numbers of whole steps of what is seen, or end at fixed positions. */
static val split_begin(struct kb *k, const struct place *w, const struct spread *s, val *chunk)
{
    val count = w->share.count, steps = spread_steps(K, s, w->share.length);
    val each = kb_udiv(K, kb_addi(K, kb_add(K, steps, count), -1), count);
    val even = kb_shl(K, each, s->stride_log), origin = spread_origin(K, s, w->share.length);
    val fixed = kb_param(K, "split_tokens"), is_fixed = kb_icmpi(K, KB_SGT, fixed, 0);
    *chunk = kb_select(K, is_fixed, fixed, even);
    val before = kb_mul(K, w->share.split, *chunk);
    return kb_add(K, before, kb_select(K, is_fixed, kb_i32(K, 0), origin));
}

void place_range(struct kb *k, struct attend *a, const struct place *w, const struct spread *s,
                 val *start, val *end)
{
    val window = kb_param(K, "window"), chunk, begin = split_begin(K, w, s, &chunk);
    *end = kb_smin(K, kb_add(K, begin, chunk), w->share.length);
    val oldest = kb_sub(K, w->share.length, w->rows.tokens); /* position of query token 0 */
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

void place_tell(struct kb *k, const struct place *w)
{
    val map = kb_param(K, "map"), other = kb_or(K, kb_tid(K), w->share.split);
    other = kb_or(K, other, kb_or(K, w->rows.first, w->block));
    val first = kb_icmpi(K, KB_EQ, other, 0);
    struct kb_if tells = kb_if(K, kb_and(K, first, kb_not(K, kb_is_null(K, map))));
    val at = kb_shli(K, kb_zext(K, w->share.sequence, KB_I64), 3);
    kb_store(K, w->share.place, kb_offset(K, map, at), 4);
    kb_store(K, w->share.count, kb_offseti(K, kb_offset(K, map, at), 4), 4);
    kb_endif(K, &tells);
}
