/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_encode_affine.c - codes between a minimum and a maximum, scale and zero in two fields
** (formats.md sections 8.3 and 12.2).
*/
#include "part_encode.h"

/* Finite values stay, whatever their size. */
val encode_bounded(struct kb *k, val x)
{
    val infinity = kb_f32_bits(K, 0x7F800000), minus_infinity = kb_f32_bits(K, 0xFF800000);
    val most = kb_f32(K, 65504), least = kb_f32(K, -65504);
    val high = kb_fcmp(K, KB_OEQ, x, infinity);
    val low = kb_fcmp(K, KB_OEQ, x, minus_infinity);
    val a = kb_select(K, high, most, x);
    return kb_select(K, low, least, a);
}

/* Extremes over the elements that are numbers; infinite if there are none. */
static void extremes(struct kb *k, const struct rowvec *v, val *least, val *most)
{
    val infinity = kb_f32_bits(K, 0x7F800000), minus_infinity = kb_f32_bits(K, 0xFF800000);
    val low[ROWVEC_MAX], high[ROWVEC_MAX];
    for (int i = 0; i < v->e; i++) {
        val number = kb_fcmp(K, KB_ORD, v->x[i], v->x[i]);
        low[i] = kb_select(K, number, v->x[i], infinity);
        high[i] = kb_select(K, number, v->x[i], minus_infinity);
    }
    *least = rowvec_min(k, v, low);
    *most = rowvec_max(k, v, high);
}

static val scale_of(struct kb *k, val z, val most, int top)
{
    val reciprocal = kb_f32(K, (double)(1.0f / (float)top));
    val small = kb_f32(K, (double)1e-8f), large = kb_f32(K, 65520), largest = kb_f32(K, 65504);
    val width = kb_fsub(K, most, z);
    val s = kb_fmul(K, width, reciprocal);
    s = kb_fmax(K, s, small);
    val over = kb_fcmp(K, KB_OGE, s, large);
    return kb_select(K, over, largest, s);
}

/* trunc((x - z) / s + 0.5) within 0..top; a NaN gives 0. */
static val quantise(struct kb *k, val x, val z, val inverse, int top)
{
    val half = kb_f32(K, 0.5), zero = kb_f32(K, 0), limit = kb_f32(K, top);
    val shifted = kb_fsub(K, x, z);
    val quotient = kb_fmul(K, shifted, inverse);
    val q = kb_fadd(K, quotient, half);
    q = kb_fmax(K, q, zero);
    q = kb_fmin(K, q, limit);
    return kb_fptoui(K, q);
}

/* A number as its fp16 field holds it. */
static val as_stored(struct kb *k, val x)
{
    val half = kb_to_half(K, x, KB_F16);
    return kb_to_f32(K, half);
}

/* 1 / s, or 0 where a scale was stored as 0: all codes are 0 then. */
static val stored_inverse(struct kb *k, val s)
{
    val one = kb_f32(K, 1), zero = kb_f32(K, 0);
    val inverse = kb_fdiv(K, one, s);
    val some = kb_fcmp(K, KB_ONE, s, zero);
    return kb_select(K, some, inverse, zero);
}

void encode_range(struct kb *k, val least, val most, int top, val *scale, val *zero)
{
    val infinity = kb_f32_bits(K, 0x7F800000), nothing = kb_f32(K, 0), bound = kb_f32(K, 65504);
    val none = kb_fcmp(K, KB_OEQ, least, infinity);
    val low = kb_select(K, none, nothing, least), high = kb_select(K, none, nothing, most);
    *zero = encode_sanitise(K, low, bound);
    *scale = scale_of(k, *zero, high, top);
}

void encode_affine(struct kb *k, const struct side *side, struct rowvec *v, struct encoded *out)
{
    int top = (1 << side->codec.bits) - 1;
    val least, most, z, s, one = kb_f32(K, 1);
    for (int i = 0; i < v->e; i++)
        v->x[i] = encode_bounded(K, v->x[i]);
    extremes(k, v, &least, &most);
    encode_range(k, least, most, top, &s, &z);
    out->field[0] = s;
    out->field[1] = z;
    val inverse;
    if (side->codec.stored_params) {
        s = as_stored(k, s);
        z = as_stored(k, z);
        inverse = stored_inverse(k, s);
    } else {
        inverse = kb_fdiv(K, one, s);
    }
    for (int i = 0; i < v->e; i++)
        out->code[i] = quantise(k, v->x[i], z, inverse, top);
}
