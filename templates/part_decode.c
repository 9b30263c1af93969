/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_decode.c - one vector of one side of a slot, decoded to f32 by a warp.
*/
#include "part_decode.h"

#include "part_codebook.h"
#include "part_native.h"

/* A pattern whose exponent field is still that of a smaller format, times the power of two between
** the biases. A multiplication also makes normal numbers of subnormal ones. */
static val rescale(struct kb *k, val magnitude, val sign, unsigned power_bits)
{
    val small = kb_bitcast(K, magnitude, KB_F32);
    val power = kb_f32_bits(K, power_bits);
    val x = kb_fmul(K, small, power);
    val word = kb_bitcast(K, x, KB_I32);
    val both = kb_or(K, word, sign);
    return kb_bitcast(K, both, KB_F32);
}

static val decode_e4m3(struct kb *k, val code)
{
    val low = kb_andi(K, code, 0x7F);
    val magnitude = kb_shli(K, low, 20);
    val top = kb_andi(K, code, 0x80);
    val sign = kb_shli(K, top, 24);
    val x = rescale(k, magnitude, sign, 0x7B800000); /* 2^120 */
    val special = kb_icmpi(K, KB_EQ, low, 0x7F);
    val nan = kb_f32_bits(K, 0x7FC00000);
    return kb_select(K, special, nan, x);
}

static val from_half(struct kb *k, val bits, int type)
{
    val bits16 = kb_trunc(K, bits, KB_I16);
    val half = kb_bitcast(K, bits16, type);
    return kb_to_f32(K, half);
}

static val decode_e4b15(struct kb *k, val code)
{
    val low = kb_andi(K, code, 0x7F);
    val magnitude = kb_shli(K, low, 7);
    val top = kb_andi(K, code, 0x80);
    val sign = kb_shli(K, top, 8);
    val bits = kb_or(K, magnitude, sign);
    return from_half(k, bits, KB_F16);
}

val decode_float(struct kb *k, enum float_format format, val code)
{
    switch (format) {
    case FLOAT_E4M3: return decode_e4m3(k, code);
    case FLOAT_E4B15: return decode_e4b15(k, code);
    case FLOAT_E5M2: code = kb_shli(K, code, 8); return from_half(k, code, KB_F16);
    case FLOAT_FP16: return from_half(k, code, KB_F16);
    case FLOAT_BF16: return from_half(k, code, KB_BF16);
    }
    kb_fail(K, "float format %d", (int)format);
    return kb_f32(K, 0);
}

val decode_e2m1(struct kb *k, val code)
{
    val low = kb_andi(K, code, 7);
    val magnitude = kb_shli(K, low, 22);
    val top = kb_andi(K, code, 8);
    val sign = kb_shli(K, top, 28);
    return rescale(k, magnitude, sign, 0x7E800000); /* 2^126 */
}

val decode_scale(struct kb *k, enum block_rule rule, val byte)
{
    if (rule == BLOCK_NVFP4)
        return decode_e4m3(k, byte);
    val bits = kb_shli(K, byte, 23); /* 2^(byte - 127); byte 0 is zero */
    return kb_bitcast(K, bits, KB_F32);
}

static void decode_codebook(struct kb *k, const struct side *side, const struct slot_token *token,
                            struct rowvec *v, const val *code)
{
    float centroids[SPEC_MAX_CENTROIDS];
    codebook_of_side(side, centroids);
    for (int i = 0; i < v->e; i++)
        v->x[i] = codebook_pick(k, centroids, side->codec.bits, code[i]);
    val norm = slot_read_field(k, token, side, 0);
    decode_norm(k, side, norm, v);
}

void decode_norm(struct kb *k, const struct side *side, val norm, struct rowvec *v)
{
    if (side->norm_at_read) {
        val sum = rowvec_sum_squares(k, v);
        val little = kb_f32(K, 1e-16), one = kb_f32(K, 1);
        val square = kb_fadd(K, sum, little);
        val length = kb_sqrt(K, square);
        val inverse = kb_fdiv(K, one, length);
        for (int i = 0; i < v->e; i++)
            v->x[i] = kb_fmul(K, v->x[i], inverse);
    }
    for (int i = 0; i < v->e; i++)
        v->x[i] = kb_fmul(K, v->x[i], norm);
}

static void decode_affine(struct kb *k, const struct side *side, const struct slot_token *token,
                          struct rowvec *v, const val *code)
{
    val scale = slot_read_field(k, token, side, 0);
    val zero = slot_read_field(k, token, side, 1);
    for (int i = 0; i < v->e; i++) {
        val x = kb_uitofp(K, code[i]);
        val scaled = kb_fmul(K, x, scale);
        v->x[i] = kb_fadd(K, scaled, zero);
    }
}

/* Groups of a lane begin at its element 0, or the lane lies within one. */
static void decode_block(struct kb *k, const struct side *side, const struct slot_token *token,
                         struct rowvec *v, const val *code)
{
    int group = side->codec.group, n = v->e < group ? v->e : group;
    val base = slot_scales(k, token, side);
    val lane = v->lane;
    if (v->active) {
        val zero = kb_i32(K, 0);
        lane = kb_select(K, v->active, lane, zero);
    }
    val element = kb_muli(K, lane, v->e);
    val index = kb_divi(K, element, group);
    val at = kb_offset(K, base, index);
    for (int j = 0; j < v->e / n; j++) {
        val from = kb_offseti(K, at, j);
        val byte = kb_load(K, KB_I8, from, 1);
        val wide = kb_zext(K, byte, KB_I32);
        val factor = decode_scale(k, side->codec.rule, wide);
        for (int i = j * n; i < (j + 1) * n; i++) {
            val x = decode_e2m1(k, code[i]);
            v->x[i] = kb_fmul(K, x, factor);
        }
    }
}

void decode_side(struct kb *k, const struct side *side, const struct slot_token *token,
                 struct rowvec *v)
{
    val code[ROWVEC_MAX];
    slot_load(k, token, side, v, code);
    switch (side->codec.kind) {
    case CODEC_CODEBOOK: decode_codebook(k, side, token, v, code); break;
    case CODEC_AFFINE: decode_affine(k, side, token, v, code); break;
    case CODEC_BLOCK_FLOAT: decode_block(k, side, token, v, code); break;
    case CODEC_FLOAT:
        for (int i = 0; i < v->e; i++)
            v->x[i] = decode_float(k, side->codec.format, code[i]);
        break;
    }
}
