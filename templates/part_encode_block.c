/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_encode_block.c - FP4 E2M1 elements with one scale a group (formats.md sections 10.3, 12.3
** and 15).
*/
#include "part_encode.h"

/* 2^(byte - 127) for a byte of 1..254. */
static val power_of_two(struct kb *k, val biased)
{
    val bits = kb_shli(K, biased, 23);
    return kb_bitcast(K, bits, KB_F32);
}

static val sign_of(struct kb *k, val x)
{
    val bits = kb_bitcast(K, x, KB_I32);
    val high = kb_lshri(K, bits, 28);
    return kb_andi(K, high, 8);
}

/* How many of the bounds between E2M1's levels w passes; pass[i] says whether a tie does. */
static val count(struct kb *k, val w, const enum kb_fpred *pass)
{
    static const float bounds[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5};
    val n = kb_i32(K, 0);
    for (int i = 0; i < 7; i++) {
        val bound = kb_f32(K, bounds[i]);
        val passed = kb_fcmp(K, pass[i], w, bound);
        val one = kb_zext(K, passed, KB_I32);
        n = kb_add(K, n, one);
    }
    return n;
}

/* UltraQuant: a tie goes to the lower level, so that of a negative number to the larger magnitude.
** Code 8 is never written. */
static val code_ultraquant(struct kb *k, val w)
{
    static const enum kb_fpred above[7] = {KB_OGT, KB_OGT, KB_OGT, KB_OGT, KB_OGT, KB_OGT, KB_OGT};
    static const enum kb_fpred from[7] = {KB_OGE, KB_OGE, KB_OGE, KB_OGE, KB_OGE, KB_OGE, KB_OGE};
    val positive = count(k, w, above);
    val turned = kb_fneg(K, w);
    val negative = count(k, turned, from);
    val coded = kb_addi(K, negative, 8);
    val below = kb_icmpi(K, KB_NE, negative, 0);
    return kb_select(K, below, coded, positive);
}

/* E2M1 with ties to even: a tie passes the bound if the level above it has an even code. */
static val code_nearest(struct kb *k, val w)
{
    static const enum kb_fpred pass[7] = {KB_OGT, KB_OGE, KB_OGT, KB_OGE, KB_OGT, KB_OGE, KB_OGT};
    val magnitude = kb_fabs(K, w);
    val level = count(k, magnitude, pass);
    val sign = sign_of(k, w);
    val some = kb_icmpi(K, KB_NE, level, 0);
    val zero = kb_i32(K, 0);
    val kept = kb_select(K, some, sign, zero);
    return kb_or(K, level, kept);
}

/* Biased exponent of the group scale; 0 for a group that becomes zero. */
static val scale_ultraquant(struct kb *k, const struct codec *codec, val amax)
{
    float chosen = codec->scale_constant > 0 ? codec->scale_constant : 0.156f;
    val constant = kb_f32(K, (double)chosen);
    val r = kb_fmul(K, amax, constant);
    val bits = kb_bitcast(K, r, KB_I32);
    val exponent = kb_lshri(K, bits, 23);
    val mantissa = kb_andi(K, bits, 0x7FFFFF);
    val up = kb_icmpi(K, KB_UGE, mantissa, 0x3504F3);
    val one = kb_zext(K, up, KB_I32);
    val biased = kb_add(K, exponent, one);
    val tiny = kb_icmpi(K, KB_EQ, exponent,
                        0); /* subnormal r: below 2^-126 the exponent field says nothing */
    val edge =
        kb_icmpi(K, KB_UGE, bits, 0x5A827A); /* sqrt(2) / 2 of 2^-126 still rounds up to it */
    val least = kb_zext(K, edge, KB_I32);
    return kb_select(K, tiny, least, biased);
}

/* floor(log2 amax) - 2, at least the smallest scale. */
static val scale_mxfp4(struct kb *k, val amax)
{
    val bits = kb_bitcast(K, amax, KB_I32);
    val exponent = kb_lshri(K, bits, 23);
    val lowered = kb_addi(K, exponent, -2);
    val least = kb_i32(K, 0), some = kb_i32(K, 1);
    val biased = kb_smax(K, lowered, some);
    val zero = kb_icmpi(K, KB_EQ, bits, 0);
    return kb_select(K, zero, least, biased);
}

/* x / 2^(biased - 127), exact where a code depends on it; 0 for biased 0. */
static val unscale(struct kb *k, val x, val biased)
{
    val negated = kb_muli(K, biased, -1);
    val inverse =
        kb_addi(K, negated, 254); /* positive: the bound on elements keeps biased below 253 */
    val factor = power_of_two(k, inverse);
    val scaled = kb_fmul(K, x, factor);
    val some = kb_icmpi(K, KB_NE, biased, 0);
    val zero = kb_f32(K, 0);
    return kb_select(K, some, scaled, zero);
}

/* Value of a code. */
static val e2m1_value(struct kb *k, val code)
{
    static const float level[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    val index = kb_andi(K, code, 7), x = kb_f32(K, level[0]);
    for (int i = 1; i < 8; i++) {
        val here = kb_icmpi(K, KB_EQ, index, i);
        val value = kb_f32(K, level[i]);
        x = kb_select(K, here, value, x);
    }
    val negated = kb_fneg(K, x);
    val sign = kb_andi(K, code, 8);
    val negative = kb_icmpi(K, KB_NE, sign, 0);
    return kb_select(K, negative, negated, x);
}

/* Codes of the lane's n elements of a group; error[i]: their squared errors in units of `unit`
** scales. */
static void try_scale(struct kb *k, val scale, const val *x, int n, double unit, val *code,
                      val *error)
{
    val units = kb_f32(K, unit);
    for (int i = 0; i < n; i++) {
        val w = unscale(k, x[i], scale);
        code[i] = code_ultraquant(k, w);
        val level = e2m1_value(k, code[i]);
        val off = kb_fsub(K, w, level);
        val scaled = kb_fmul(K, off, units);
        error[i] = kb_fmul(K, scaled, scaled);
    }
}

/* The scale or its double, whichever leaves the smaller squared error; a tie leaves the scale. */
static void search_scale(struct kb *k, const struct side *side, const struct rowvec *v, int j,
                         int n, struct encoded *out)
{
    int group = side->codec.group;
    val code[ROWVEC_MAX], error[ROWVEC_MAX];
    const val *x = v->x + j * n;
    val *scale = &out->scale[j];
    try_scale(k, *scale, x, n, 1, out->code + j * n, error);
    val narrow = rowvec_group_sum(k, v, error, group, n);
    val next = kb_addi(K, *scale, 1);
    try_scale(k, next, x, n, 2, code, error);
    val wide = rowvec_group_sum(k, v, error, group, n);
    val some = kb_icmpi(K, KB_NE, *scale, 0); /* a group that becomes zero stays one */
    val less = kb_fcmp(K, KB_OLT, wide, narrow);
    val better = kb_and(K, some, less);
    *scale = kb_select(K, better, next, *scale);
    for (int i = 0; i < n; i++)
        out->code[j * n + i] = kb_select(K, better, code[i], out->code[j * n + i]);
}

static void encode_exponent_group(struct kb *k, const struct codec *codec, val amax, const val *x,
                                  int n, val *scale, val *code)
{
    int ultra = codec->rule == BLOCK_ULTRAQUANT;
    *scale = ultra ? scale_ultraquant(k, codec, amax) : scale_mxfp4(k, amax);
    for (int i = 0; i < n; i++) {
        val w = unscale(k, x[i], *scale);
        code[i] = ultra ? code_ultraquant(k, w) : code_nearest(k, w);
    }
}

/* Magnitude of an e4m3 byte below 0x7F. */
static val e4m3_value(struct kb *k, val byte)
{
    val placed = kb_shli(K, byte, 20);
    val small = kb_bitcast(K, placed, KB_F32);
    val power = kb_f32_bits(K, 0x7B800000); /* 2^120 */
    return kb_fmul(K, small, power);
}

static void encode_nvfp4_group(struct kb *k, val amax, const val *x, int n, val *scale, val *code)
{
    val six = kb_f32(K, 6), zero = kb_f32(K, 0), one = kb_f32(K, 1);
    val wanted = kb_fdiv(K, amax, six);
    *scale = encode_e4m3(k, wanted);
    val stored = e4m3_value(k, *scale);
    val some = kb_icmpi(K, KB_NE, *scale, 0);
    val divisor = kb_select(K, some, stored, one);
    for (int i = 0; i < n; i++) {
        val quotient = kb_fdiv(K, x[i], divisor);
        val w = kb_select(K, some, quotient, zero);
        code[i] = code_nearest(k, w);
    }
}

void encode_block(struct kb *k, const struct side *side, struct rowvec *v, struct encoded *out)
{
    val magnitude[ROWVEC_MAX], amax[2];
    val most = kb_f32_bits(K, 0x7B800000); /* 2^120 */
    enum block_rule rule = side->codec.rule;
    for (int i = 0; i < v->e; i++)
        v->x[i] = encode_sanitise(K, v->x[i], most);
    if (side->codec.rotation == ROTATION_HADAMARD) {
        if (rule == BLOCK_ULTRAQUANT)
            rotate_staged(k, v);
        else
            rotate(k, v);
    }
    for (int i = 0; i < v->e; i++)
        magnitude[i] = kb_fabs(K, v->x[i]);
    int groups = rowvec_group_max(k, v, magnitude, side->codec.group, amax), n = v->e / groups;
    for (int j = 0; j < groups; j++) {
        if (rule == BLOCK_NVFP4)
            encode_nvfp4_group(k, amax[j], v->x + j * n, n, &out->scale[j], out->code + j * n);
        else
            encode_exponent_group(k, &side->codec, amax[j], v->x + j * n, n, &out->scale[j],
                                  out->code + j * n);
        if (side->codec.scale_search)
            search_scale(k, side, v, j, n, out);
    }
}
