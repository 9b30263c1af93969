/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_rotate.c - Walsh-Hadamard rotation of a vector that a warp holds.
**
** Butterfly with mask m: element i without bit m becomes x[i] + x[i + m], element i + m becomes
** x[i] - x[i + m]. Masks below a run pair elements of it, the next ones lanes, the last ones runs.
*/
#include "part_rowvec.h"

static void butterfly_in_lane(struct kb *k, struct rowvec *v, int mask)
{
    for (int i = 0; i < v->e; i++) {
        if (i & mask)
            continue;
        val a = v->x[i], b = v->x[i + mask];
        v->x[i] = kb_fadd(K, a, b);
        v->x[i + mask] = kb_fsub(K, a, b);
    }
}

/* The same by one instruction, where products cost no more than sums: own times +-1. */
static void fused_across(struct kb *k, struct rowvec *v, int lane_mask, val upper)
{
    val minus = kb_f32(K, -1), plus = kb_f32(K, 1), sign = kb_select(K, upper, minus, plus);
    for (int i = 0; i < v->e; i++) {
        val other = kb_shuffle_xor(K, v->x[i], lane_mask);
        v->x[i] = kb_fma(K, v->x[i], sign, other);
    }
}

static val sign_where(struct kb *k, val upper)
{
    val turn = kb_i32(K, -0x80000000LL), keep = kb_i32(K, 0);
    return kb_select(K, upper, turn, keep);
}

/* The upper lane of a pair needs other - own: own with its sign turned, added to the other. */
static val meet(struct kb *k, val x, val other, val sign)
{
    val turned = kb_xor(K, kb_bitcast(K, x, KB_I32), sign);
    return kb_fadd(K, other, kb_bitcast(K, turned, KB_F32));
}

static void butterfly_across(struct kb *k, struct rowvec *v, int lane_mask)
{
    val bit = kb_andi(K, v->lane, lane_mask), upper = kb_icmpi(K, KB_NE, bit, 0);
    if (kb_plan(k)->shuffled) {
        fused_across(k, v, lane_mask, upper);
        return;
    }
    val sign = sign_where(k, upper);
    for (int i = 0; i < v->e; i++) {
        val other = kb_shuffle_xor(K, v->x[i], lane_mask);
        v->x[i] = meet(k, v->x[i], other, sign);
    }
}

/* All of these, in a loop: a fifth of the code. */
static void butterflies_across(struct kb *k, struct rowvec *v, int lanes)
{
    val c[ROWVEC_MAX + 1] = {kb_i32(K, 1)};
    for (int i = 0; i < v->e; i++)
        c[i + 1] = v->x[i];
    struct kb_loop loop;
    kb_loop_begin(K, &loop, c, v->e + 1);
    kb_loop_while(K, &loop, kb_icmpi(K, KB_SLT, c[0], lanes));
    loop.rolled = true;
    val upper = kb_icmpi(K, KB_NE, kb_and(K, v->lane, c[0]), 0);
    val sign = sign_where(k, upper), from = kb_xor(K, v->lane, c[0]);
    for (int i = 0; i < v->e; i++) {
        val other = kb_shuffle(K, c[i + 1], from);
        c[i + 1] = meet(k, c[i + 1], other, sign);
    }
    c[0] = kb_shli(K, c[0], 1);
    kb_loop_end(K, &loop);
    for (int i = 0; i < v->e; i++)
        v->x[i] = c[i + 1];
}

static void butterfly(struct kb *k, struct rowvec *v, int mask)
{
    if (mask < v->run)
        butterfly_in_lane(k, v, mask);
    else if (mask < v->run * v->lanes)
        butterfly_across(k, v, mask / v->run);
    else
        butterfly_in_lane(k, v, mask / v->lanes);
}

static void scale_by(struct kb *k, struct rowvec *v, val factor)
{
    for (int i = 0; i < v->e; i++)
        v->x[i] = kb_fmul(K, v->x[i], factor);
}

/* A power of two, times fp32(sqrt(1/2)) if the exponent is odd. */
float rotate_factor_of(int d)
{
    int order = rowvec_order(d);
    double f = 1;
    for (; order >= 4; order /= 4)
        f /= 2;
    if (order == 2)
        f *= 0.70710678118654752440;
    return (float)f;
}

val rotate_factor(struct kb *k, int d) { return kb_f32(K, (double)rotate_factor_of(d)); }

void rotate_sums(struct kb *k, struct rowvec *v)
{
    int order = rowvec_order(v->d);
    for (int mask = 1; mask < order; mask *= 2)
        butterfly(k, v, mask);
}

void rotate(struct kb *k, struct rowvec *v)
{
    rotate_sums(k, v);
    val factor = rotate_factor(k, v->d);
    scale_by(k, v, factor);
}

void rotate_once(struct kb *k, struct rowvec *v)
{
    int order = rowvec_order(v->d);
    for (int mask = 1; mask < order && mask < v->e; mask *= 2)
        butterfly_in_lane(k, v, mask);
    if (order > v->e)
        butterflies_across(k, v, order / v->e);
    val factor = rotate_factor(k, v->d);
    scale_by(k, v, factor);
}

void rotate_scaled(struct kb *k, struct rowvec *v)
{
    val factor = rotate_factor(k, v->d);
    scale_by(k, v, factor);
    rotate_sums(k, v);
}

void rotate_staged(struct kb *k, struct rowvec *v)
{
    int order = rowvec_order(v->d);
    val factor = kb_f32_bits(K, 0x3F3504F3);
    for (int mask = 1; mask < order; mask *= 2) {
        butterfly(k, v, mask);
        scale_by(k, v, factor);
    }
}
