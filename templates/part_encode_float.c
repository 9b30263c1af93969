/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_encode_float.c - each element by itself as an 8- or 16-bit float (formats.md sections 5, 8.2
** and 15).
*/
#include "part_encode.h"

/* An 8-bit format with its magnitude bits in one integer: exponent over `mantissa` bits. */
struct small_float {
    int mantissa, bias;
    unsigned largest_bits; /* f32 pattern of the largest value ... */
    int largest;           /* ... and its code, which larger magnitudes get too */
};

static const struct small_float e4m3 = {3, 7, 0x43E00000, 0x7E}, e5m2 = {2, 15, 0x47600000, 0x7B};

static val sign_byte(struct kb *k, val bits)
{
    val high = kb_lshri(K, bits, 24);
    return kb_andi(K, high, 0x80);
}

/* Normal numbers: round the f32 pattern at the last mantissa bit, ties to even; a carry runs into
** the exponent. */
static val round_normal(struct kb *k, const struct small_float *f, val magnitude)
{
    int drop = 23 - f->mantissa;
    val shifted = kb_lshri(K, magnitude, drop);
    val odd = kb_andi(K, shifted, 1);
    val biased = kb_addi(K, magnitude, (1 << (drop - 1)) - 1);
    val rounded = kb_add(K, biased, odd);
    val cut = kb_lshri(K, rounded, drop);
    return kb_addi(K, cut, -((127LL - f->bias) << f->mantissa));
}

/* Below the smallest normal: adding a power of two whose ulp is the format's step rounds in
** hardware. */
static val round_subnormal(struct kb *k, const struct small_float *f, val magnitude)
{
    unsigned exponent = (unsigned)(127 + 1 - f->bias - f->mantissa + 23);
    val power = kb_f32_bits(K, exponent << 23);
    val x = kb_bitcast(K, magnitude, KB_F32);
    val sum = kb_fadd(K, x, power);
    val bits = kb_bitcast(K, sum, KB_I32);
    return kb_addi(K, bits, -((long long)exponent << 23));
}

/* Round to nearest even, saturating; a NaN comes out as the largest value. */
static val encode_small(struct kb *k, const struct small_float *f, val x)
{
    val bits = kb_bitcast(K, x, KB_I32);
    val magnitude = kb_andi(K, bits, 0x7FFFFFFF);
    val normal = round_normal(k, f, magnitude);
    val subnormal = round_subnormal(k, f, magnitude);
    val small = kb_icmpi(K, KB_ULT, magnitude, (128LL - f->bias) << 23);
    val rounded = kb_select(K, small, subnormal, normal);
    val over = kb_icmpi(K, KB_UGE, magnitude, f->largest_bits);
    val largest = kb_i32(K, f->largest);
    val code = kb_select(K, over, largest, rounded);
    val sign = sign_byte(k, bits);
    return kb_or(K, code, sign);
}

val encode_e4m3(struct kb *k, val x) { return encode_small(k, &e4m3, x); }

/* Toward zero to fp16, at most 1.75, then the upper seven magnitude bits with ties away from zero.
** */
static val encode_e4b15(struct kb *k, val x)
{
    val bits = kb_bitcast(K, x, KB_I32);
    val magnitude = kb_andi(K, bits, 0x7FFFFFFF);
    val cut = kb_lshri(K, magnitude, 13);
    val normal = kb_addi(K, cut, -((127LL - 15) << 10));
    val at_most = kb_i32(K, 0x3F00);
    val over = kb_icmpi(K, KB_UGE, magnitude, 0x3FE00000); /* 1.75 */
    val tiny = kb_icmpi(K, KB_ULT, magnitude, 0x38800000); /* 2^-14 */
    val zero = kb_i32(K, 0);
    val safe = kb_select(K, tiny, magnitude, zero);
    val absolute = kb_bitcast(K, safe, KB_F32);
    val power = kb_f32_bits(K, 0x4B800000); /* 2^24 */
    val scaled = kb_fmul(K, absolute, power);
    val subnormal = kb_fptoui(K, scaled);
    val some = kb_select(K, tiny, subnormal, normal);
    val half = kb_select(K, over, at_most, some);
    val biased = kb_addi(K, half, 64);
    val code = kb_lshri(K, biased, 7);
    val sign = sign_byte(k, bits);
    return kb_or(K, code, sign);
}

/* 16-bit formats: a NaN keeps its sign and becomes the quiet one, equal on all targets. */
static val encode_half(struct kb *k, val x, int type, int nan)
{
    val half = kb_to_half(K, x, type);
    val bits16 = kb_bitcast(K, half, KB_I16);
    val rounded = kb_zext(K, bits16, KB_I32);
    val bits = kb_bitcast(K, x, KB_I32);
    val high = kb_lshri(K, bits, 16);
    val sign = kb_andi(K, high, 0x8000);
    val quiet = kb_i32(K, nan);
    val signed_nan = kb_or(K, sign, quiet);
    val number = kb_fcmp(K, KB_ORD, x, x);
    return kb_select(K, number, rounded, signed_nan);
}

/* `nan`: the byte that a NaN becomes. */
static val nan_to(struct kb *k, val x, val code, int nan)
{
    val number = kb_fcmp(K, KB_ORD, x, x);
    val other = kb_i32(K, nan);
    return kb_select(K, number, code, other);
}

static val encode_element(struct kb *k, enum float_format format, val x)
{
    val code;
    switch (format) {
    case FLOAT_E4M3: code = encode_small(k, &e4m3, x); return nan_to(k, x, code, 0);
    case FLOAT_E4B15: code = encode_e4b15(k, x); return nan_to(k, x, code, 0);
    case FLOAT_E5M2: code = encode_small(k, &e5m2, x); return nan_to(k, x, code, 0x7F);
    case FLOAT_FP16: return encode_half(k, x, KB_F16, 0x7E00);
    case FLOAT_BF16: return encode_half(k, x, KB_BF16, 0x7FC0);
    }
    kb_fail(K, "float format %d", (int)format);
    return kb_i32(K, 0);
}

void encode_float(struct kb *k, const struct side *side, struct rowvec *v, struct encoded *out)
{
    for (int i = 0; i < v->e; i++)
        out->code[i] = encode_element(k, side->codec.format, v->x[i]);
}
