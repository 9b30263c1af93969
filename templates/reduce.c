/* SPDX-License-Identifier: Apache-2.0 */
/*
** reduce.c - joins the splits of decode's rows. Threads in eights take neighbouring dims of a row:
** 2^ways_log eights share a row's splits and their sums meet by shuffles within 32 threads, then in
** shared memory. All loads of a thread's first splits are under way at once: what is read was just
** written, and each round trip to it costs as much as all the arithmetic.
*/
#include "../gen/plan.h"
#include "part_splits.h"
#include "templates.h"

enum { THREADS = 128, EIGHT = 8, GROUP = 32, GROUPS = THREADS / GROUP };

struct place {
    val slot;        /* i32: which of the splits, modulo the ways */
    val row;         /* i32 over all rows */
    val unit, dim;   /* i32: of `wide` dims; the first */
    val writes;      /* i1: the row and the unit exist, and this is slot 0 */
    val token, head; /* i64 */
};

static struct place find_place(struct kb *k, int units)
{
    struct place w;
    int blocks = (units + EIGHT - 1) / EIGHT;
    val log = kb_param(K, "ways_log"), eight = kb_lshri(K, kb_tid(K), 3);
    val mask = kb_addi(K, kb_shl(K, kb_i32(K, 1), log), -1);
    w.slot = kb_and(K, eight, mask);
    val before = kb_shl(K, kb_cta(K), kb_sub(K, kb_i32(K, 4), log)); /* 2^4 eights a CTA */
    val index = kb_add(K, before, kb_lshr(K, eight, log));
    val row = kb_divi(K, index, blocks);
    val block = kb_sub(K, index, kb_muli(K, row, blocks));
    val rows = kb_param(K, "rows");
    val exists = kb_icmp(K, KB_SLT, row, rows);
    w.row = kb_select(K, exists, row, kb_addi(K, rows, -1));
    val lane = kb_andi(K, kb_tid(K), EIGHT - 1);
    val unit = kb_add(K, kb_shli(K, block, 3), lane);
    exists = kb_and(K, exists, kb_icmpi(K, KB_SLT, unit, units));
    w.writes = kb_and(K, exists, kb_icmpi(K, KB_EQ, w.slot, 0));
    w.unit = kb_smin(K, unit, kb_i32(K, units - 1));
    val heads = kb_param(K, "query_heads"), token = kb_udiv(K, w.row, heads);
    val head = kb_sub(K, w.row, kb_mul(K, token, heads));
    w.token = kb_zext(K, token, KB_I64);
    w.head = kb_zext(K, head, KB_I64);
    return w;
}

/* Where the partial results of a sequence begin, and its splits; 0 of those that decode has finished. */
static val find_sequence(struct kb *k, val sequence, val *splits)
{
    val map = kb_param(K, "map"), even = kb_param(K, "splits");
    val place = kb_mul(K, sequence, even);
    struct kb_if given = kb_if(K, kb_not(K, kb_is_null(K, map)));
    val at = kb_offset(K, map, kb_shli(K, kb_zext(K, sequence, KB_I64), 3));
    val pair = kb_load(K, KB_VEC(KB_I32, 2), at, 8);
    val several = kb_icmpi(K, KB_SGT, kb_extract(K, pair, 1), 1);
    val count = kb_select(K, several, kb_extract(K, pair, 1), kb_i32(K, 0));
    val first = kb_extract(K, pair, 0);
    kb_endif(K, &given);
    *splits = kb_merge(K, &given, count, even);
    return kb_merge(K, &given, first, place);
}

static struct splits_row find_splits(struct kb *k, struct place *w, int dims)
{
    struct splits_row r = {.values_bytes = kb_i32(K, dims * 4), .fact_bytes = kb_i32(K, 8)};
    r.ahead = SPLITS_AHEAD;
    r.wide = splits_wide(dims);
    val rows = kb_mul(K, kb_param(K, "query_tokens"), kb_param(K, "query_heads"));
    val sequence = kb_udiv(K, w->row, rows), row = kb_sub(K, w->row, kb_mul(K, sequence, rows));
    val place = find_sequence(K, sequence, &r.count);
    w->writes = kb_and(K, w->writes, kb_icmpi(K, KB_SGT, r.count, 0));
    val all_rows = kb_zext(K, rows, KB_I64), splits = kb_zext(K, r.count, KB_I64);
    val before = kb_mul(K, kb_zext(K, place, KB_I64), all_rows);
    val own = kb_mul(K, kb_zext(K, row, KB_I64), splits);
    val first = kb_add(K, before, own);
    r.values = kb_offset(K, kb_param(K, "partial"), kb_muli(K, first, dims * 4));
    r.values = kb_offset(K, r.values, kb_muli(K, w->unit, r.wide * 4));
    val all = kb_muli(K, kb_param(K, "places"), dims * 4);
    val facts = kb_offset(K, kb_param(K, "partial"), all);
    r.facts = kb_offset(K, facts, kb_shli(K, first, 3));
    return r;
}

/* Sums of eights 8 and 16 threads on. */
static void by_shuffles(struct kb *k, struct splits_sum *s, int wide)
{
    struct {
        val distance;
        struct splits_sum s;
    } c = {kb_i32(K, EIGHT), *s};
    struct kb_loop loop;
    kb_loop_begin(K, &loop, (val *)&c, 1 + 2 + wide);
    kb_loop_while(K, &loop, kb_icmpi(K, KB_SLT, c.distance, GROUP));
    loop.rolled = true;
    val from = kb_xor(K, kb_lane(K), c.distance), *own = (val *)&c.s;
    struct splits_sum other = {0};
    for (int i = 0; i < 2 + wide; i++)
        ((val *)&other)[i] = kb_shuffle(K, own[i], from);
    c.s = splits_both(K, &c.s, &other, wide);
    c.distance = kb_shli(K, c.distance, 1);
    kb_loop_end(K, &loop);
    *s = c.s;
}

static val group_at(struct kb *k, val buffer, val group, int wide)
{
    val lane = kb_andi(K, kb_tid(K), EIGHT - 1);
    val place = kb_add(K, kb_shli(K, group, 3), lane);
    return kb_offset(K, buffer, kb_muli(K, place, (wide + 2) * 4));
}

static struct splits_sum sum_at(struct kb *k, val at, int wide)
{
    struct splits_sum s = {.m = kb_load(K, KB_F32, at, 4)};
    s.l = kb_load(K, KB_F32, kb_offseti(K, at, 4), 4);
    for (int i = 0; i < wide; i++)
        s.x[i] = kb_load(K, KB_F32, kb_offseti(K, at, 8 + 4 * i), 4);
    return s;
}

/* Sums of all groups of 32 threads, in the order of the groups: of use to slot 0. */
static void by_memory(struct kb *k, struct splits_sum *s, int wide)
{
    val buffer = kb_shared(K, (size_t)GROUPS * EIGHT * (SPLITS_WIDE + 2) * 4, 8);
    val group = kb_lshri(K, kb_tid(K), 5), in_group = kb_andi(K, kb_tid(K), GROUP - 1);
    struct kb_if first = kb_if(K, kb_icmpi(K, KB_SLT, in_group, EIGHT));
    val at = group_at(K, buffer, group, wide);
    kb_store(K, s->m, at, 4);
    kb_store(K, s->l, kb_offseti(K, at, 4), 4);
    for (int i = 0; i < wide; i++)
        kb_store(K, s->x[i], kb_offseti(K, at, 8 + 4 * i), 4);
    kb_endif(K, &first);
    kb_barrier(K);
    struct {
        val group;
        struct splits_sum s;
    } c = {kb_i32(K, 1), sum_at(K, group_at(K, buffer, kb_i32(K, 0), wide), wide)};
    struct kb_loop loop;
    kb_loop_begin(K, &loop, (val *)&c, 1 + 2 + wide);
    kb_loop_while(K, &loop, kb_icmpi(K, KB_SLT, c.group, GROUPS));
    loop.rolled = true;
    struct splits_sum other = sum_at(K, group_at(K, buffer, c.group, wide), wide);
    c.s = splits_both(K, &c.s, &other, wide);
    c.group = kb_addi(K, c.group, 1);
    kb_loop_end(K, &loop);
    *s = c.s;
}

static void merge_sums(struct kb *k, const struct kb_if *i, struct splits_sum *now,
                       const struct splits_sum *before, int wide)
{
    now->m = kb_merge(K, i, now->m, before->m);
    now->l = kb_merge(K, i, now->l, before->l);
    for (int x = 0; x < wide; x++)
        now->x[x] = kb_merge(K, i, now->x[x], before->x[x]);
}

static void join(struct kb *k, struct splits_sum *s, int wide)
{
    struct splits_sum before = *s;
    struct kb_if shared = kb_if(K, kb_icmpi(K, KB_NE, kb_param(K, "ways_log"), 0));
    by_shuffles(K, s, wide);
    struct splits_sum some = *s;
    struct kb_if all = kb_if(K, kb_icmpi(K, KB_EQ, kb_param(K, "ways_log"), 4));
    by_memory(K, s, wide);
    kb_endif(K, &all);
    merge_sums(K, &all, s, &some, wide);
    kb_endif(K, &shared);
    merge_sums(K, &shared, s, &before, wide);
}

static void write(struct kb *k, const struct place *w, const struct splits_sum *s, int wide)
{
    struct splits_target to = {.head = kb_trunc(K, w->head, KB_I32)};
    val a = kb_mul(K, w->token, kb_param(K, "out_row"));
    val b = kb_mul(K, w->head, kb_param(K, "out_head"));
    val out = kb_offset(K, kb_param(K, "out"), kb_shli(K, kb_add(K, a, b), 1));
    to.out = kb_offset(K, out, kb_muli(K, w->unit, wide * 2));
    to.lse = kb_offset(K, kb_param(K, "lse"), kb_shli(K, kb_zext(K, w->row, KB_I64), 2));
    to.first = kb_icmpi(K, KB_EQ, w->unit, 0);
    splits_write(K, s, &to, wide);
}

void template_reduce(struct kb *k)
{
    int dims = kb_plan(k)->geo.value_head_size, wide = splits_wide(dims);
    struct place w = find_place(K, dims / wide);
    struct splits_row r = find_splits(K, &w, dims);
    val step = kb_shl(K, kb_i32(K, 1), kb_param(K, "ways_log"));
    struct splits_sum s = splits_chain(K, &r, w.slot, step);
    join(K, &s, wide);
    struct kb_if writes = kb_if(K, w.writes);
    write(K, &w, &s, wide);
    kb_endif(K, &writes);
}
