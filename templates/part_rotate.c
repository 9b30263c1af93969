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

/* The upper lane of a pair needs other - own: own with its sign turned, added to the other. */
static void butterfly_across(struct kb *k, struct rowvec *v, int lane_mask)
{
    val bit = kb_andi(K, v->lane, lane_mask);
    val upper = kb_icmpi(K, KB_NE, bit, 0);
    if (kb_plan(k)->shuffled) {
        fused_across(k, v, lane_mask, upper);
        return;
    }
    val turn = kb_i32(K, -0x80000000LL), keep = kb_i32(K, 0);
    val sign = kb_select(K, upper, turn, keep);
    for (int i = 0; i < v->e; i++) {
        val other = kb_shuffle_xor(K, v->x[i], lane_mask);
        val word = kb_bitcast(K, v->x[i], KB_I32);
        val turned = kb_xor(K, word, sign);
        val own = kb_bitcast(K, turned, KB_F32);
        v->x[i] = kb_fadd(K, other, own);
    }
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
