/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_eights.c - see part_eights.h.
*/
#include "part_eights.h"

#include "part_codebook.h"
#include "part_decode.h"
#include "part_native.h"
#include "part_pack.h"

enum { MANTISSA = 23 };

/* Bits from code to code. */
static int width_of(const struct slot_token *t, const struct side *side)
{
    int bits = side->codec.bits;
    return t->head->layout == LAYOUT_NATIVE && bits < 4 ? 4 : bits;
}

/* Largest power of two that divides both. */
static int common(int a, int b)
{
    int both = a | b;
    return both & -both;
}

static void load_stream(struct kb *k, const struct slot_token *t, const struct side *side, val m,
                        val *word)
{
    int bits = side->codec.bits, part = bits > 8 ? 8 : bits;
    val codes = slot_codes(K, t, side), at = kb_offset(K, codes, kb_muli(K, m, bits));
    for (int i = 0; i < bits / part; i++) {
        val from = kb_offseti(K, at, 8LL * i);
        val s = pack_load_string(K, part, from, common(side->code_align, bits));
        word[2 * i] = part > 4 ? kb_trunc(K, s, KB_I32) : s;
        if (part > 4)
            word[2 * i + 1] = kb_trunc(K, kb_lshri(K, s, 32), KB_I32);
    }
}

static val load_scale(struct kb *k, const struct slot_token *t, const struct side *side, val m)
{
    val index = kb_divi(K, kb_shli(K, m, 3), side->codec.group);
    val byte = kb_load_once(K, KB_I8, kb_offset(K, slot_scales(K, t, side), index), 1);
    return kb_zext(K, byte, KB_I32);
}

void eights_load(struct kb *k, const struct slot_token *t, const struct side *side,
                 const struct rowvec *v, struct eights *c)
{
    for (int j = 0; j < v->e / 8; j++) {
        val m = kb_addi(K, v->lane, (long long)j * v->lanes);
        if (t->head->layout == LAYOUT_NATIVE)
            native_load8(K, t, side, m, c->word[j]);
        else
            load_stream(k, t, side, m, c->word[j]);
        if (side->scale_bytes)
            c->scale[j] = load_scale(k, t, side, m);
    }
    for (int i = 0; i < side->fields; i++)
        c->field[i] = slot_read_field(K, t, side, i);
}

/* The code at `at`; `loose`: other codes' bits above it. */
static val code_at(struct kb *k, const val *word, int at, int bits, bool loose)
{
    int shift = at % 32;
    val x = word[at / 32];
    if (shift + bits > 32)
        x = kb_funnel(K, x, word[at / 32 + 1], kb_i32(K, shift));
    else if (shift)
        x = kb_lshri(K, x, shift);
    return loose || shift + bits == 32 ? x : kb_andi(K, x, (1 << bits) - 1);
}

/* The code, times a power of two that is returned: where it stands, it is the mantissa of a number
** of 2^23 and more. */
static int number_at(struct kb *k, const val *word, int at, int bits, val *x)
{
    int shift = at % 32;
    val all = word[at / 32];
    if (shift + bits > 32) {
        *x = kb_uitofp(K, code_at(k, word, at, bits, false));
        return 0;
    }
    if (shift + bits > MANTISSA) {
        all = kb_lshri(K, all, 16);
        shift -= 16;
    }
    val merged = kb_mask_merge(K, all, ((1u << bits) - 1) << shift, 0x4b000000);
    *x = kb_fsub(K, kb_bitcast(K, merged, KB_F32), kb_f32(K, 8388608));
    return shift;
}

/* Products of codes and scales are exact, so that one rounding is all there is. */
static void decode_affine(struct kb *k, const struct eights *c, int width, int bits, int j, val *x)
{
    for (int i = 0; i < 8; i++) {
        val number;
        int power = number_at(k, c->word[j], i * width, bits, &number);
        val scale = kb_fmul(K, c->field[0], kb_f32(K, 1.0 / (1 << power)));
        x[i] = kb_fma(K, number, scale, c->field[1]);
    }
}

static void decode_codebook(struct kb *k, const struct side *side, const val *word, int width,
                            val table, val *x)
{
    float centroids[SPEC_MAX_CENTROIDS];
    int bits = side->codec.bits;
    codebook_of_side(side, centroids);
    for (int i = 0; i < 8; i++) {
        val code = code_at(k, word, i * width, bits, table != NULL);
        x[i] = table ? kb_shuffle(K, table, code) : codebook_pick(K, centroids, bits, code);
    }
}

static void decode_floats(struct kb *k, enum float_format format, const val *word, int bits, val *x)
{
    for (int i = 0; i < 8; i += 2) {
        val both = NULL, pair = kb_lshri(K, word[i * bits / 32], i * bits % 32);
        if (bits == 8 && format != FLOAT_E4B15)
            both = kb_fp8_pair(K, format == FLOAT_E5M2, kb_trunc(K, pair, KB_I16));
        for (int e = 0; e < 2; e++) {
            val code = code_at(k, word, (i + e) * bits, bits, false);
            x[i + e] = both ? decode_float(K, FLOAT_FP16, kb_lshri(K, both, 16 * e))
                            : decode_float(K, format, code);
        }
    }
}

static void decode_block(struct kb *k, const struct side *side, const struct eights *c, int j,
                         val *x)
{
    val factor = decode_scale(K, side->codec.rule, c->scale[j]);
    for (int i = 0; i < 8; i++) {
        val code = code_at(k, c->word[j], 4 * i, 4, false);
        x[i] = kb_fmul(K, decode_e2m1(K, code), factor);
    }
}

void eights_decode(struct kb *k, const struct slot_token *t, const struct side *side,
                   const struct eights *c, val table, struct rowvec *v)
{
    int width = width_of(t, side), bits = side->codec.bits;
    for (int j = 0; j < v->e / 8; j++) {
        val *x = v->x + 8 * j;
        switch (side->codec.kind) {
        case CODEC_CODEBOOK: decode_codebook(k, side, c->word[j], width, table, x); break;
        case CODEC_AFFINE: decode_affine(k, c, width, bits, j, x); break;
        case CODEC_BLOCK_FLOAT: decode_block(k, side, c, j, x); break;
        case CODEC_FLOAT: decode_floats(k, side->codec.format, c->word[j], bits, x); break;
        }
    }
    if (side->codec.kind == CODEC_CODEBOOK)
        decode_norm(K, side, c->field[0], v);
}
