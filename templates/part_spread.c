/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_spread.c - which sequence a slot is for, and which part of it. One warp finds out, a lane a
** sequence (and every 32nd further one), and tells the others through shared memory.
*/
#include "part_spread.h"

val spread_origin(struct kb *k, const struct spread *s, val length)
{
    val window = kb_param(K, "window");
    val oldest = kb_sub(K, length, s->tokens); /* position of query token 0 */
    val first = kb_smax(K, kb_addi(K, kb_sub(K, oldest, window), 1), kb_i32(K, 0));
    first = kb_select(K, kb_icmpi(K, KB_SGT, window, 0), first, kb_i32(K, 0));
    return kb_shl(K, kb_lshr(K, first, s->stride_log), s->stride_log);
}

val spread_steps(struct kb *k, const struct spread *s, val length)
{
    val seen = kb_sub(K, length, spread_origin(K, s, length));
    return kb_lshr(K, kb_addi(K, kb_add(K, seen, s->stride), -1), s->stride_log);
}

/* a / b rounded up, a and b > 0 below 2^31. */
static val share_of(struct kb *k, val a, val b)
{
    return kb_udiv(K, kb_addi(K, kb_add(K, a, b), -1), b);
}

/* Steps of a sequence, 0 past the last; its length. */
static val steps_of(struct kb *k, const struct spread *s, val sequence, val *length)
{
    val exists = kb_icmp(K, KB_SLT, sequence, kb_param(K, "sequences"));
    val last = kb_addi(K, kb_param(K, "sequences"), -1);
    val at = kb_shli(K, kb_zext(K, kb_smin(K, sequence, last), KB_I64), 2);
    *length = kb_load(K, KB_I32, kb_offset(K, kb_param(K, "lengths"), at), 4);
    return kb_select(K, exists, spread_steps(K, s, *length), kb_i32(K, 0));
}

/* Slots of a sequence of so many steps, `most` of them a slot; of one that does not exist none. */
static val slots_of(struct kb *k, val sequence, val steps, val most)
{
    val exists = kb_icmp(K, KB_SLT, sequence, kb_param(K, "sequences"));
    val n = kb_smax(K, share_of(K, steps, most), kb_i32(K, 1));
    return kb_select(K, exists, n, kb_i32(K, 0));
}

static val warp_sum(struct kb *k, val x)
{
    for (int mask = 1; mask < kb_warp_size(k); mask *= 2) {
        val other = kb_shuffle_xor(K, x, mask);
        x = kb_add(K, x, other);
    }
    return x;
}

/* Over all sequences: steps, or, where `most` is given, slots. */
static val total(struct kb *k, const struct spread *s, val own, val most)
{
    struct {
        val sequence, sum;
    } c = {kb_lane(K), kb_i32(K, 0)};
    c.sum = most ? slots_of(K, c.sequence, own, most) : own;
    c.sequence = kb_addi(K, c.sequence, kb_warp_size(k));
    struct kb_loop loop;
    kb_loop_begin(K, &loop, (val *)&c, 2);
    kb_loop_while(K, &loop, kb_icmp(K, KB_SLT, c.sequence, kb_param(K, "sequences")));
    loop.rolled = true;
    val length, steps = steps_of(K, s, c.sequence, &length);
    val gain = most ? slots_of(K, c.sequence, steps, most) : steps;
    c.sum = kb_add(K, c.sum, gain);
    c.sequence = kb_addi(K, c.sequence, kb_warp_size(k));
    kb_loop_end(K, &loop);
    return warp_sum(K, c.sum);
}

/* i1: the slots suffice for parts of so many steps. */
static val suffices(struct kb *k, const struct spread *s, val own, val most)
{
    val all = total(K, s, own, most);
    return kb_icmp(K, KB_SLE, all, kb_param(K, "spread"));
}

/* L of part_spread.h. With an equal share for every slot but one a sequence, slots always suffice. */
static val longest_part(struct kb *k, const struct spread *s, val own)
{
    val steps = total(K, s, own, NULL), least = kb_param(K, "least");
    val spare = kb_sub(K, kb_param(K, "spread"), kb_param(K, "sequences"));
    val low = kb_smax(K, share_of(K, steps, kb_param(K, "parts")), least);
    val high = kb_smax(K, share_of(K, steps, spare), least);
    struct {
        val low, high; /* too few; enough */
    } c = {low, high};
    c.high = kb_select(K, suffices(K, s, own, low), low, high);
    struct kb_loop loop;
    kb_loop_begin(K, &loop, (val *)&c, 2);
    kb_loop_while(K, &loop, kb_icmp(K, KB_SLT, kb_addi(K, c.low, 1), c.high));
    loop.rolled = true;
    val middle = kb_lshri(K, kb_add(K, c.low, c.high), 1);
    val enough = suffices(K, s, own, middle);
    c.low = kb_select(K, enough, c.low, middle);
    c.high = kb_select(K, enough, middle, c.high);
    kb_loop_end(K, &loop);
    return c.high;
}

/* Sum over the lanes up to and with the own. */
static val running_sum(struct kb *k, val x)
{
    for (int d = 1; d < kb_warp_size(k); d *= 2) {
        val below = kb_smax(K, kb_addi(K, kb_lane(K), -d), kb_i32(K, 0));
        val other = kb_shuffle(K, x, below);
        val joins = kb_icmpi(K, KB_SGE, kb_lane(K), d);
        x = kb_add(K, x, kb_select(K, joins, other, kb_i32(K, 0)));
    }
    return x;
}

enum { SEQUENCE, SPLIT, COUNT, LENGTH, PLACE, FACTS };

/* A block of sequences, one a lane: the lane whose slots hold `slot` writes. `before`: slots of the
** blocks before in the low half, places in the upper; returns those of this one. */
static val look(struct kb *k, struct share own, val slot, val before, val facts)
{
    val n = own.count;
    val several = kb_icmpi(K, KB_SGT, n, 1);
    val places = kb_select(K, several, kb_shli(K, n, 16), kb_i32(K, 0));
    val both = kb_or(K, n, places), sum = running_sum(K, both);
    val first = kb_add(K, before, kb_sub(K, sum, both));
    val split = kb_sub(K, slot, kb_andi(K, first, 0xffff));
    val after = kb_icmpi(K, KB_SGE, split, 0);
    struct kb_if mine = kb_if(K, kb_and(K, after, kb_icmp(K, KB_SLT, split, n)));
    kb_store(K, own.sequence, kb_offseti(K, facts, 4 * SEQUENCE), 4);
    kb_store(K, own.length, kb_offseti(K, facts, 4 * LENGTH), 4);
    kb_store(K, split, kb_offseti(K, facts, 4 * SPLIT), 4);
    kb_store(K, n, kb_offseti(K, facts, 4 * COUNT), 4);
    val place = kb_lshri(K, first, 16);
    kb_store(K, place, kb_offseti(K, facts, 4 * PLACE), 4);
    kb_endif(K, &mine);
    return kb_shuffle(K, sum, kb_i32(K, kb_warp_size(k) - 1));
}

static void search(struct kb *k, const struct spread *s, val slot, val facts)
{
    struct kb_if first = kb_if(K, kb_icmpi(K, KB_EQ, kb_lane(K), 0));
    kb_store(K, kb_i32(K, -1), kb_offseti(K, facts, 4 * SEQUENCE), 4);
    kb_endif(K, &first);
    kb_warp_sync(K);
    val length, own = steps_of(K, s, kb_lane(K), &length), most = longest_part(K, s, own);
    struct {
        val base, before;
    } c = {kb_i32(K, 0), kb_i32(K, 0)};
    struct kb_loop loop;
    kb_loop_begin(K, &loop, (val *)&c, 2);
    kb_loop_while(K, &loop, kb_icmp(K, KB_SLT, c.base, kb_param(K, "sequences")));
    loop.rolled = true;
    struct share lane = {.sequence = kb_add(K, c.base, kb_lane(K))};
    val steps = steps_of(K, s, lane.sequence, &lane.length);
    lane.count = slots_of(K, lane.sequence, steps, most);
    val gain = look(K, lane, slot, c.before, facts);
    c.before = kb_add(K, c.before, gain);
    c.base = kb_addi(K, c.base, kb_warp_size(k));
    kb_loop_end(K, &loop);
}

/* One sequence: all slots are for it, as far as each has something to do. */
static struct share find_single(struct kb *k, const struct spread *s, val slot)
{
    struct share one = {.split = slot, .place = kb_i32(K, 0)};
    val steps = steps_of(K, s, kb_i32(K, 0), &one.length);
    val n = kb_smin(K, share_of(K, steps, kb_param(K, "least")), kb_param(K, "spread"));
    one.count = kb_smax(K, n, kb_i32(K, 1));
    one.sequence = kb_select(K, kb_icmp(K, KB_SLT, slot, one.count), kb_i32(K, 0), kb_i32(K, -1));
    return one;
}

struct share spread_find(struct kb *k, const struct spread *s, val slot)
{
    val facts = kb_shared(K, 4 * FACTS, 16);
    struct kb_if single = kb_if(K, kb_icmpi(K, KB_EQ, kb_param(K, "sequences"), 1));
    struct share one = find_single(K, s, slot), many;
    kb_else(K, &single);
    struct kb_if first = kb_if(K, kb_icmpi(K, KB_EQ, kb_warp(K), 0));
    search(K, s, slot, facts);
    kb_endif(K, &first);
    kb_barrier(K);
    many.sequence = kb_load(K, KB_I32, kb_offseti(K, facts, 4 * SEQUENCE), 4);
    many.split = kb_load(K, KB_I32, kb_offseti(K, facts, 4 * SPLIT), 4);
    many.count = kb_load(K, KB_I32, kb_offseti(K, facts, 4 * COUNT), 4);
    many.length = kb_load(K, KB_I32, kb_offseti(K, facts, 4 * LENGTH), 4);
    many.place = kb_load(K, KB_I32, kb_offseti(K, facts, 4 * PLACE), 4);
    kb_endif(K, &single);
    many.sequence = kb_merge(K, &single, one.sequence, many.sequence);
    many.split = kb_merge(K, &single, one.split, many.split);
    many.count = kb_merge(K, &single, one.count, many.count);
    many.length = kb_merge(K, &single, one.length, many.length);
    many.place = kb_merge(K, &single, one.place, many.place);
    return many;
}
