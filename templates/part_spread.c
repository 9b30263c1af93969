/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_spread.c - which sequence a slot is for, and which part of it. A warp finds out, a lane a
** sequence (and every 32nd further one).
*/
#include "part_spread.h"

#include "../gen/plan.h"

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

/* Slots of all sequences, if none has more than `most` steps a slot. */
static val total(struct kb *k, const struct spread *s, val most)
{
    struct {
        val sequence, sum;
    } c = {kb_lane(K), kb_i32(K, 0)};
    struct kb_loop loop;
    kb_loop_begin(K, &loop, (val *)&c, 2);
    kb_loop_while(K, &loop, kb_icmp(K, KB_SLT, c.sequence, kb_param(K, "sequences")));
    loop.rolled = true;
    val length, steps = steps_of(K, s, c.sequence, &length);
    c.sum = kb_add(K, c.sum, slots_of(K, c.sequence, steps, most));
    c.sequence = kb_addi(K, c.sequence, kb_warp_size(k));
    kb_loop_end(K, &loop);
    return kb_warp_sum(K, c.sum);
}

struct bisection {
    val low, high, most; /* too few; enough; asked next: steps a slot */
};

/* Where to look, from the number of all steps: not below an equal share; with an equal share for every slot but one a
** sequence, slots always suffice. */
static struct bisection begin_bisection(struct kb *k, val steps)
{
    val slots = kb_param(K, "spread"), spare = kb_param(K, "spare"), least = kb_param(K, "least");
    struct bisection c = {.most = kb_smax(K, share_of(K, steps, slots), least)};
    c.low = kb_addi(K, c.most, -1);
    c.high = kb_smax(K, share_of(K, steps, spare), least);
    return c;
}

/* L of part_spread.h. The first question, for slots of one step, gives the number of steps. */
static val longest_part(struct kb *k, const struct spread *s)
{
    struct bisection c = {kb_i32(K, 0), kb_i32(K, INT32_MAX), kb_i32(K, 1)};
    struct kb_loop loop;
    kb_loop_begin(K, &loop, (val *)&c, 3);
    kb_loop_while(K, &loop, kb_icmp(K, KB_SLT, kb_addi(K, c.low, 1), c.high));
    loop.rolled = true;
    val all = total(K, s, c.most), enough = kb_icmp(K, KB_SLE, all, kb_param(K, "spread"));
    struct bisection next = c;
    next.low = kb_select(K, enough, c.low, c.most);
    next.high = kb_select(K, enough, c.most, c.high);
    next.most = kb_lshri(K, kb_add(K, next.low, next.high), 1);
    struct kb_if begins = kb_if(K, kb_icmpi(K, KB_EQ, c.high, INT32_MAX));
    struct bisection first = begin_bisection(K, all);
    kb_endif(K, &begins);
    c.low = kb_merge(K, &begins, first.low, next.low);
    c.high = kb_merge(K, &begins, first.high, next.high);
    c.most = kb_merge(K, &begins, first.most, next.most);
    kb_loop_end(K, &loop);
    return c.high;
}

/* Sum over the lanes up to and with the own. */
static val running_sum(struct kb *k, val x)
{
    struct {
        val distance, sum;
    } c = {kb_i32(K, 1), x};
    struct kb_loop loop;
    kb_loop_begin(K, &loop, (val *)&c, 2);
    kb_loop_while(K, &loop, kb_icmpi(K, KB_SLT, c.distance, kb_warp_size(k)));
    loop.rolled = true;
    val below = kb_sub(K, kb_lane(K), c.distance);
    val other = kb_shuffle(K, c.sum, kb_smax(K, below, kb_i32(K, 0)));
    val joins = kb_icmpi(K, KB_SGE, below, 0);
    c.sum = kb_add(K, c.sum, kb_select(K, joins, other, kb_i32(K, 0)));
    c.distance = kb_shli(K, c.distance, 1);
    kb_loop_end(K, &loop);
    return c.sum;
}

enum { SHARE = sizeof(struct share) / sizeof(val) };

struct looked {
    val base;   /* sequences already looked at */
    val before; /* their slots in the low half, places in the upper */
    struct share
        mine; /* of the lane whose sequence the slot is for, sequence + 1; zeros elsewhere */
};

/* A block of sequences, one a lane. */
static void look(struct kb *k, const struct spread *s, val most, val slot, struct looked *c)
{
    struct share own = {.sequence = kb_add(K, c->base, kb_lane(K))};
    val steps = steps_of(K, s, own.sequence, &own.length);
    own.count = slots_of(K, own.sequence, steps, most);
    val several = kb_icmpi(K, KB_SGT, own.count, 1);
    val places = kb_select(K, several, kb_shli(K, own.count, 16), kb_i32(K, 0));
    val both = kb_or(K, own.count, places), sum = running_sum(K, both);
    val first = kb_add(K, c->before, kb_sub(K, sum, both));
    own.split = kb_sub(K, slot, kb_andi(K, first, 0xffff));
    own.place = kb_lshri(K, first, 16);
    own.sequence = kb_addi(K, own.sequence, 1);
    val found = kb_icmp(K, KB_ULT, own.split, own.count), *to = (val *)&c->mine,
        *from = (val *)&own;
    for (int i = 0; i < SHARE; i++)
        to[i] = kb_select(K, found, from[i], to[i]);
    val gain = kb_shuffle(K, sum, kb_i32(K, kb_warp_size(k) - 1));
    c->before = kb_add(K, c->before, gain);
    c->base = kb_addi(K, c->base, kb_warp_size(k));
}

static struct share search(struct kb *k, const struct spread *s, val slot)
{
    val most = longest_part(K, s), zero = kb_i32(K, 0);
    struct looked c = {zero, zero, {zero, zero, zero, zero, zero}};
    struct kb_loop loop;
    kb_loop_begin(K, &loop, (val *)&c, sizeof c / sizeof(val));
    kb_loop_while(K, &loop, kb_icmp(K, KB_SLT, c.base, kb_param(K, "sequences")));
    loop.rolled = true;
    look(K, s, most, slot, &c);
    kb_loop_end(K, &loop);
    val *all = (val *)&c.mine;
    for (int i = 0; i < SHARE; i++)
        all[i] = kb_warp_most(K, all[i]);
    c.mine.sequence = kb_addi(K, c.mine.sequence, -1);
    return c.mine;
}

/* i1, equal in the warp: all sequences are as long as the first. */
static val all_equal(struct kb *k, val length)
{
    struct {
        val sequence, other;
    } c = {kb_lane(K), kb_i32(K, 0)};
    struct kb_loop loop;
    kb_loop_begin(K, &loop, (val *)&c, 2);
    kb_loop_while(K, &loop, kb_icmp(K, KB_SLT, c.sequence, kb_param(K, "sequences")));
    loop.rolled = true;
    val at = kb_shli(K, kb_zext(K, c.sequence, KB_I64), 2);
    val own = kb_load(K, KB_I32, kb_offset(K, kb_param(K, "lengths"), at), 4);
    c.other = kb_or(K, c.other, kb_xor(K, own, length));
    c.sequence = kb_addi(K, c.sequence, kb_warp_size(k));
    kb_loop_end(K, &loop);
    return kb_not(K, kb_any(K, kb_icmpi(K, KB_NE, c.other, 0)));
}

/* Sequences of one length: what a search would find. */
static struct share find_equal(struct kb *k, val steps, val slot)
{
    struct share one = {.length = NULL};
    val most = kb_smax(K, share_of(K, steps, kb_param(K, "splits")), kb_param(K, "least"));
    one.count = kb_smax(K, share_of(K, steps, most), kb_i32(K, 1));
    one.sequence = kb_udiv(K, slot, one.count);
    val before = kb_mul(K, one.sequence, one.count);
    one.split = kb_sub(K, slot, before);
    one.place = kb_select(K, kb_icmpi(K, KB_EQ, one.count, 1), kb_i32(K, 0), before);
    val exists = kb_icmp(K, KB_SLT, one.sequence, kb_param(K, "sequences"));
    one.sequence = kb_select(K, exists, one.sequence, kb_i32(K, -1));
    return one;
}

/* By the calling warp. */
static struct share find(struct kb *k, const struct spread *s, val slot)
{
    val length = kb_load(K, KB_I32, kb_param(K, "lengths"), 4), steps = spread_steps(K, s, length);
    struct kb_if equal = kb_if(K, all_equal(K, length));
    struct share own = find_equal(K, steps, slot), other;
    own.length = length;
    kb_else(K, &equal);
    other = search(K, s, slot);
    kb_endif(K, &equal);
    val *to = (val *)&own, *from = (val *)&other;
    for (int i = 0; i < SHARE; i++)
        to[i] = kb_merge(K, &equal, to[i], from[i]);
    return own;
}

/* By the first warp: where a thread holds a step in registers, up to sm_89, shuffles outside a branch cost spills. */
static struct share find_and_tell(struct kb *k, const struct spread *s, val slot)
{
    val facts = kb_shared(K, 4 * SHARE, 16);
    struct kb_if first = kb_if(K, kb_icmpi(K, KB_EQ, kb_warp(K), 0));
    struct share own = find(K, s, slot);
    val *fact = (val *)&own;
    for (int i = 0; i < SHARE; i++)
        kb_store(K, fact[i], kb_offseti(K, facts, 4LL * i), 4); /* equal in all lanes */
    kb_endif(K, &first);
    kb_barrier(K);
    for (int i = 0; i < SHARE; i++)
        fact[i] = kb_load(K, KB_I32, kb_offseti(K, facts, 4LL * i), 4);
    return own;
}

struct share spread_find(struct kb *k, const struct spread *s, val slot)
{
    return kb_plan(k)->images ? find(K, s, slot) : find_and_tell(K, s, slot);
}
