/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_place.c - the work of a decode's CTA.
*/
#include "part_place.h"

#include "part_query.h"

#include <string.h>

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
    val log = kb_param(K, "cluster_log"), cluster = kb_lshr(K, cta, log);
    val rest = kb_udiv(K, cluster, w->blocks);
    w->block = kb_sub(K, cluster, kb_mul(K, rest, w->blocks));
    val slots = kb_udiv(K, rest, w->tiles);
    w->tile = kb_sub(K, rest, kb_mul(K, slots, w->tiles));
    w->rank = kb_sub(K, cta, kb_shl(K, cluster, log));
    w->slot = kb_add(K, kb_shl(K, slots, log), w->rank);
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
    val sequences = kb_param(K, "sequences"), last = kb_addi(K, sequences, -1);
    val at = kb_shli(K, kb_zext(K, kb_smin(K, s.sequence, last), KB_I64), 2);
    s.length = kb_load(K, KB_I32, kb_offset(K, kb_param(K, "lengths"), at), 4);
    val exists = kb_icmp(K, KB_SLT, s.sequence, sequences); /* clusters are whole */
    s.sequence = kb_select(K, exists, s.sequence, kb_i32(K, -1));
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

/* From the numbers of a slot and its part of the sequence. */
static struct mates mates(struct kb *k, const struct place *w)
{
    struct mates m;
    val log = kb_param(K, "cluster_log"), none = kb_i32(K, 0);
    val ctas = kb_shl(K, kb_i32(K, 1), log), split = w->share.split, count = w->share.count;
    val before = kb_sub(K, w->rank, split), behind = kb_add(K, before, count);
    m.first = kb_smax(K, before, none);
    m.count = kb_sub(K, kb_smin(K, behind, ctas), m.first);
    m.own = kb_sub(K, w->rank, m.first);
    val begin = kb_sub(K, w->slot, split), end = kb_addi(K, kb_add(K, begin, count), -1);
    val cluster = kb_lshr(K, begin, log);
    m.part = kb_sub(K, kb_lshr(K, w->slot, log), cluster);
    m.parts = kb_addi(K, kb_sub(K, kb_lshr(K, end, log), cluster), 1);
    return m;
}

struct mates place_mates(struct kb *k, const struct place *w)
{
    struct mates m = mates(K, w);
    m.word = word_of(K, w, w->share.sequence);
    return m;
}

enum { KEPT = 9 };

static void kept(struct place *w, val *at[KEPT])
{
    val *all[KEPT] = {&w->share.sequence, &w->share.split, &w->share.count,
                      &w->share.place,    &w->rows.first,  &w->block,
                      &w->slot,           &w->rank,        &w->tile};
    memcpy(at, all, sizeof all);
}

void place_keep(struct kb *k, struct place *w)
{
    val *at[KEPT];
    kept(w, at);
    w->kept = kb_shared(K, 4 * KEPT, 16);
    for (int i = 0; i < KEPT; i++) /* equal in all threads */
        kb_store(K, *at[i], kb_offseti(K, w->kept, 4LL * i), 4);
}

void place_again(struct kb *k, struct place *w)
{
    val *at[KEPT];
    kept(w, at);
    for (int i = 0; i < KEPT; i++)
        *at[i] = kb_load(K, KB_I32, kb_offseti(K, w->kept, 4LL * i), 4);
    w->rows.first_token = kb_mul(K, w->share.sequence, w->rows.tokens);
    w->rows.head = w->block;
    if (kb_plan(k)->images)
        w->image.block = kb_shl(K, w->block, w->image.shift);
}

void place_arrive(struct kb *k, const struct place *w)
{
    const struct plan *p = kb_plan(k);
    struct mates m = mates(K, w);
    val one = kb_icmpi(K, KB_EQ, kb_tid(K), p->threads - 1); /* of the warp with least to do */
    val several = kb_icmpi(K, KB_SGT, m.parts, 1), first = kb_icmpi(K, KB_EQ, m.own, 0);
    val joined = kb_not(K, kb_is_null(K, kb_param(K, "arrivals")));
    several = kb_and(K, several, joined);
    struct kb_if begins = kb_if(K, kb_and(K, kb_and(K, several, first), one));
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
