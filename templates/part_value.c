/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_value.c - value codes in registers to pairs of 16-bit numbers for the matrix unit. A pair is
** one dim of two tokens.
**
** Affine codes are masked where they stand and come out times a power of two that the output
** undoes, less the middle code. Codecs whose patterns may be no numbers (16-bit floats, block
** scales) are zeroed by selection for tokens that do not exist.
*/
#include "part_attend.h"

#include "part_decode.h"
#include "part_image_native.h"
#include "part_powers.h"

static int gcd(int a, int b) { return b ? gcd(b, a % b) : a; }

/* First byte of the 16-bit window that holds element `dim`: as few windows as possible serve a run.
** */
static int window_of(int dim, int bits)
{
    int window = 0;
    for (int d = 0; d <= dim; d++)
        if (d * bits + bits > 8 * window + 16)
            window = d * bits / 8;
    return window;
}

/* Bytes at, at + 1 of two word strings as the halves of one word: x in the low half. */
static val two_windows(struct kb *k, const val *x, const val *y, int at, int last)
{
    int w = at / 4, b = at % 4;
    val lo = x[w], hi = y[w];
    if (b == 3) { /* the window's second byte is in the next word, if the run has one */
        val next_x = w < last ? x[w + 1] : kb_i32(K, 0),
            next_y = w < last ? y[w + 1] : kb_i32(K, 0);
        lo = kb_byte_perm(K, lo, next_x, 0x0043);
        hi = kb_byte_perm(K, hi, next_y, 0x0043);
        b = 0;
    }
    unsigned s = (unsigned)b;
    return kb_byte_perm(K, lo, hi, s | (s + 1) << 4 | (s + 4) << 8 | (s + 5) << 12);
}

/* Where element `dim` of a run is found: its window, and the shift that brings it below bit 10, the
** mantissa of an f16. One shift serves all elements of a window that need any. */
struct place {
    int window, shift, bit;
};

static struct place place_of(int dim, int bits)
{
    struct place p = {window_of(dim, bits), 0, 0};
    int bit = dim * bits - 8 * p.window;
    if (bit + bits > 10)
        for (int d = 0; d <= dim && !p.shift; d++)
            if (window_of(d, bits) == p.window && d * bits - 8 * p.window + bits > 10)
                p.shift = d * bits - 8 * p.window;
    p.bit = bit - p.shift;
    return p;
}

/* The same of words of pairs (part_image_native.h): four dims of a pair of tokens are nibbles of both halves. */
static struct place place_in(const struct attend *a, int dim)
{
    if (a->plan->value_pairs || (a->plan->images && a->plan->geo.layout == LAYOUT_NATIVE))
        return (struct place){0, 8 * (dim % 4 / 2), 4 * (dim % 2)};
    return place_of(dim, a->plan->slot.value.codec.bits);
}

static long long mask_of(int bits, int bit)
{
    long long mask = (1 << bits) - 1;
    return (mask | mask << 16) << bit;
}

void attend_value_masks(struct kb *k, struct attend *a)
{
    const struct codec *c = &a->plan->slot.value.codec;
    for (int d = 0; c->kind == CODEC_AFFINE && a->plan->held_masks && d < a->dims; d++) {
        int bit = place_in(a, d).bit;
        if (!a->mask[bit])
            a->mask[bit] = kb_opaque(K, kb_i32(K, mask_of(c->bits, bit)));
    }
}

double attend_value_factor(const struct attend *a, int dim)
{
    const struct codec *c = &a->plan->slot.value.codec;
    double subnormal = a->plan->centre_tokens ? 1 << 24 : 1; /* the code is the f16's bits */
    return c->kind == CODEC_AFFINE ? subnormal / (1 << place_in(a, dim).bit) : 1;
}

int attend_value_bit(const struct attend *a, int dim) { return place_in(a, dim).bit; }

int attend_value_middle(const struct attend *a)
{
    int middle = 1 << (a->plan->slot.value.codec.bits - 1);
    return middle | middle << 16;
}

/* The code where it stands is an f16 subnormal, code * 2^(bit - 24), or, under the exponent of 1024 and less as much,
** (code - middle) * 2^bit, exact. Codes must be centred, here or every so many tokens, because sums of 10^6 of them
** lose bits in the matrix unit's f32 accumulation, which truncates: 0.8 relative error at 1,000,000 tokens. */
static val code_pair(struct kb *k, const struct attend *a, val w, int dim)
{
    int bits = a->plan->slot.value.codec.bits;
    struct place at = place_in(a, dim);
    val mask = a->mask[at.bit];
    w = kb_lshri(K, w, at.shift);
    if (a->plan->centre_tokens)
        return kb_andi(K, w, mask_of(bits, at.bit));
    val code = mask ? kb_or(K, kb_and(K, w, mask), kb_i32(K, 0x64006400))
                    : kb_mask_merge(K, w, (unsigned)mask_of(bits, at.bit), 0x64006400);
    val biased = kb_bitcast(K, code, KB_VEC(KB_F16, 2));
    unsigned middle = 0x6400u + (1u << (bits - 1 + at.bit));
    return kb_bitcast(K, kb_fsub(K, biased, kb_f16x2(K, middle | middle << 16)), KB_I32);
}

static val affine_pair(struct kb *k, const struct attend *a, const val *x, const val *y, int dim)
{
    int bits = a->plan->slot.value.codec.bits, last = (a->dims * bits + 31) / 32 - 1;
    val w = two_windows(K, x, y, place_of(dim, bits).window, last);
    return code_pair(K, a, w, dim);
}

/* One token's table element `dim` (a pair's half), as the upper half of f32 bits. */
static val table_half(struct kb *k, const struct attend *a, const val *words, int dim)
{
    int bits = a->plan->slot.value.codec.bits;
    val x = attend_word(K, &a->value_table, words, dim / 2 * 2 * bits, 2 * bits);
    return dim % 2 ? kb_andi(K, x, (int)0xffff0000u) : kb_shli(K, x, 16);
}

static val block_pair(struct kb *k, const struct attend *a, const struct attend_codes *c, int sub,
                      int e, int dim, const val *valid)
{
    const struct codec *codec = &a->plan->slot.value.codec;
    int chunk = gcd(a->dims, codec->group);
    val x[2];
    for (int i = 0; i < 2; i++) {
        val byte = c->value_scale[sub][e + i][dim / chunk];
        byte = kb_select(K, valid[e + i], byte, kb_i32(K, 0));
        val scale = decode_scale(K, codec->rule, byte);
        val element = kb_bitcast(K, table_half(K, a, c->value[sub][e + i], dim), KB_F32);
        x[i] = kb_bitcast(K, kb_fmul(K, element, scale), KB_I32);
    }
    return kb_byte_perm(K, x[0], x[1], 0x7632);
}

/* Odd shares of dims begin inside a pair for some lanes: single codes are looked up as pairs (code,
** code). */
static val codebook_pair(struct kb *k, const struct attend *a, const val *x, const val *y, int dim)
{
    int bits = a->plan->slot.value.codec.bits;
    const val *words[2] = {x, y};
    val half[2];
    for (int i = 0; i < 2; i++)
        half[i] = attend_word(K, &a->value_table, words[i], dim * bits, bits); /* (code, 0) */
    return kb_byte_perm(K, half[0], half[1], 0x5410);
}

static val float_pair(struct kb *k, const struct codec *codec, const val *x, const val *y, int dim,
                      val x_valid, val y_valid)
{
    if (codec->bits == 16) {
        val zero = kb_i32(K, 0);
        val lo = kb_select(K, x_valid, x[dim / 2], zero);
        val hi = kb_select(K, y_valid, y[dim / 2], zero);
        return kb_byte_perm(K, lo, hi, dim % 2 ? 0x7632 : 0x5410);
    }
    unsigned byte = (unsigned)dim % 4;
    val spread = kb_byte_perm(K, x[dim / 4], y[dim / 4], byte | (byte + 4) << 8);
    if (codec->format == FLOAT_E5M2) { /* has infinities and NaN */
        val lo = kb_select(K, x_valid, kb_i32(K, 0x000000ff), kb_i32(K, 0));
        val hi = kb_select(K, y_valid, kb_i32(K, 0x00ff0000), kb_i32(K, 0));
        spread = kb_and(K, spread, kb_or(K, lo, hi));
    }
    return attend_float_pair(K, codec->format, spread);
}

void attend_value_operand(struct kb *k, const struct attend *a, const struct attend_codes *c,
                          int sub, int dim, val valid[], val *pairs)
{
    const struct codec *codec = &a->plan->slot.value.codec;
    for (int i = 0; i < a->shape.ke / 2; i++) {
        if (a->plan->powers) {
            pairs[i] = powers_value_pair(K, a, c, sub, i, dim);
            continue;
        }
        if (image_in_pairs(a)) {
            pairs[i] = code_pair(K, a, image_native_word(a, c->value[sub][0], i, dim), dim);
            continue;
        }
        const val *x = c->value[sub][2 * i], *y = c->value[sub][2 * i + 1];
        switch (codec->kind) {
        case CODEC_AFFINE: pairs[i] = affine_pair(K, a, x, y, dim); break;
        case CODEC_BLOCK_FLOAT: pairs[i] = block_pair(K, a, c, sub, 2 * i, dim, valid); break;
        case CODEC_CODEBOOK: pairs[i] = codebook_pair(K, a, x, y, dim); break;
        case CODEC_FLOAT:
            pairs[i] = float_pair(K, codec, x, y, dim, valid[2 * i], valid[2 * i + 1]);
            break;
        }
    }
}
