/* SPDX-License-Identifier: Apache-2.0 */
/*
** kb_encode.c - roles of encoders, and what stands in for them.
*/
#include "kb_encode.h"

#include "target.h"

static const struct encode_ops none;

static const struct encode_ops *ops(struct kb *k)
{
    const struct encode_ops *own = kb_target(k)->ops->encode;
    return own ? own : &none;
}

/* 1 - 2 / (e^2x + 1) */
val kb_tanh(struct kb *k, val x)
{
    if (ops(k)->tanh)
        return ops(k)->tanh(k, x);
    val power = kb_exp2(K, kb_fmul(K, x, kb_f32(K, 2.8853900817779268)));
    val more = kb_fadd(K, power, kb_f32(K, 1)), two = kb_f32(K, 2);
    val part = kb_fdiv(K, two, more);
    return kb_fsub(K, kb_f32(K, 1), part);
}

val kb_whole(struct kb *k, val x)
{
    if (ops(k)->whole)
        return ops(k)->whole(k, x);
    val whole = kb_fadd(K, kb_trunc_f(K, x), kb_f32(K, 8388608));
    return kb_bitcast(K, whole, KB_I32);
}

val kb_step(struct kb *k, val w, val d)
{
    if (ops(k)->step)
        return ops(k)->step(k, w, d);
    val below = kb_fcmp(K, KB_OLT, d, kb_f32(K, 0));
    val bits = kb_bitcast(K, w, KB_I32), less = kb_addi(K, bits, -1);
    return kb_select(K, below, less, bits);
}

/* One half, as integers in the order of the floats; NaN first. */
static val half_of(struct kb *k, int type, bool most, val a, val b)
{
    val x = kb_to_f32(K, kb_bitcast(K, a, type)), y = kb_to_f32(K, kb_bitcast(K, b, type));
    val p = kb_sext(K, a, KB_I32), q = kb_sext(K, b, KB_I32), places = kb_i32(K, 15);
    val turn_p = kb_andi(K, kb_ashr(K, p, places), 0x7fff);
    val turn_q = kb_andi(K, kb_ashr(K, q, places), 0x7fff);
    val less = kb_xor(K, p, turn_p), other = kb_xor(K, q, turn_q);
    val first = kb_icmp(K, most ? KB_SGE : KB_SLE, less, other);
    val number = kb_fcmp(K, KB_ORD, x, x), other_number = kb_fcmp(K, KB_ORD, y, y);
    val both = kb_and(K, number, other_number);
    val nan = most ? number : kb_not(K, number); /* which one to take where one is none */
    val take = kb_select(K, both, first, kb_not(K, nan));
    return kb_select(K, take, a, b);
}

static val pair(struct kb *k, int type, bool most, val a, val b)
{
    if (ops(k)->pair)
        return ops(k)->pair(k, type, most, a, b);
    val half[2];
    for (int i = 0; i < 2; i++) {
        val x = kb_trunc(K, kb_lshri(K, a, 16 * i), KB_I16);
        val y = kb_trunc(K, kb_lshri(K, b, 16 * i), KB_I16);
        half[i] = kb_zext(K, half_of(k, type, most, x, y), KB_I32);
    }
    return kb_or(K, half[0], kb_shli(K, half[1], 16));
}

val kb_min_pair(struct kb *k, int type, val a, val b) { return pair(k, type, false, a, b); }
val kb_max_pair(struct kb *k, int type, val a, val b) { return pair(k, type, true, a, b); }

val kb_e4m3_pair(struct kb *k, val lo, val hi)
{
    bool has = ops(k)->e4m3_pair && kb_target(k)->flags & TF_FP8_CVT;
    return has ? ops(k)->e4m3_pair(k, lo, hi) : NULL;
}
