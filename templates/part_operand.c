/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_operand.c - codes in registers to pairs of 16-bit numbers for the matrix unit.
**
** K pairs are neighbours along D, so one look-up in a table of pairs decodes two codes: f16 pairs
** for codebooks (with the sum of the squares of the two unrounded centroids beside it where norms
** are corrected at read), bf16 pairs of E2M1 values for block codecs. V pairs are the same dim of
** two tokens: masked codes are f16 subnormals, integers times a power of two that the output
** undoes, or (where a matrix unit may flush those) codes under an f16 exponent, 1024 + code, less
** the middle. e4m3 becomes f16 by moving its bits and multiplying by 2^8, which is exact for all
** numbers (0x7f reads as 480).
*/
#include "part_attend.h"

#include "../gen/codebook.h"

#include <string.h>

static int gcd(int a, int b) { return b ? gcd(b, a % b) : a; }

/* ---- tables ---- */

/* f32 -> f16 bits, RNE, for values that are normal or zero in f16: centroids. */
static unsigned half_bits(float x)
{
    unsigned b;
    memcpy(&b, &x, sizeof b);
    unsigned sign = b >> 16 & 0x8000, magnitude = b & 0x7fffffff;
    if (magnitude < 0x38800000) { /* subnormal: multiples of 2^-24 */
        float scaled = (x < 0 ? -x : x) * 16777216.0f + 8388608.0f;
        memcpy(&b, &scaled, sizeof b);
        return sign | (b - 0x4b000000);
    }
    return sign | (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
}

static val copy_table(struct kb *k, const char *name, const unsigned *words, int n)
{
    val source = kb_table(K, name, words, (size_t)n * 4, 16);
    val table = kb_shared(K, (size_t)n * 4, 16);
    int threads = kb_plan(k)->threads;
    for (int i = 0; i < n; i += threads) {
        val at = kb_addi(K, kb_tid(K), i);
        struct kb_if inside = {0};
        if (i + threads > n)
            inside = kb_if(K, kb_icmpi(K, KB_ULT, at, n));
        val offset = kb_shli(K, at, 2);
        val x = kb_load(K, KB_I32, kb_offset(K, source, offset), 4);
        kb_store(K, x, kb_offset(K, table, offset), 4);
        if (i + threads > n)
            kb_endif(K, &inside);
    }
    return table;
}

static val codebook_table(struct kb *k, const struct side *side)
{
    float c[SPEC_MAX_CENTROIDS];
    int bits = side->codec.bits, n = 1 << bits, width = side->norm_at_read ? 2 : 1;
    if (side->codec.ncentroids)
        memcpy(c, side->codec.centroids, (size_t)n * sizeof *c);
    else
        codebook_lloyd_max(side->head_size, bits, c);
    unsigned words[512];
    for (int i = 0; i < n * n; i++) {
        float lo = c[i % n], hi = c[i / n], squares = lo * lo + hi * hi;
        words[i * width] = half_bits(lo) | half_bits(hi) << 16;
        if (width == 2)
            memcpy(&words[i * 2 + 1], &squares, sizeof squares);
    }
    return copy_table(K, "centroids", words, n * n * width);
}

/* bf16 bits of the sixteen E2M1 codes */
static unsigned e2m1_bits(int code)
{
    static const unsigned magnitude[8] = {0,      0x3f00, 0x3f80, 0x3fc0,
                                          0x4000, 0x4040, 0x4080, 0x40c0};
    return magnitude[code & 7] | (unsigned)(code >> 3) << 15;
}

static val e2m1_table(struct kb *k)
{
    unsigned words[256];
    for (int i = 0; i < 256; i++)
        words[i] = e2m1_bits(i & 15) | e2m1_bits(i >> 4) << 16;
    return copy_table(K, "e2m1", words, 256);
}

void attend_tables(struct kb *k, struct attend *a)
{
    const struct slot *slot = &a->plan->slot;
    if (slot->key.codec.kind == CODEC_CODEBOOK)
        a->key_table = codebook_table(K, &slot->key);
    if (slot->key.codec.kind == CODEC_BLOCK_FLOAT)
        a->key_table = e2m1_table(K);
    if (slot->value.codec.kind == CODEC_BLOCK_FLOAT)
        a->value_table = a->key_table && slot->key.codec.kind == CODEC_BLOCK_FLOAT ? a->key_table
                                                                                   : e2m1_table(K);
}

/* ---- pieces ---- */

/* `bits` bits at bit `at` of a word string, multiplied by `scale` (a power of two): a table offset.
** */
static val take_bits(struct kb *k, const val *words, int at, int bits, int scale)
{
    int word = at / 32, shift = at % 32, up = 0;
    while (1 << up < scale)
        up++;
    val x = words[word];
    if (shift + bits > 32) {
        val high = kb_shli(K, words[word + 1], 32 - shift);
        x = kb_or(K, kb_lshri(K, x, shift), high);
        shift = 0;
    }
    x = shift >= up ? kb_lshri(K, x, shift - up) : kb_shli(K, x, up - shift);
    return kb_andi(K, x, ((1ll << bits) - 1) << up);
}

/* Two bytes in bits 0-7 and 16-23 (e4m3) -> f16 pair. */
static val e4m3_pair(struct kb *k, val spread)
{
    val magnitude = kb_andi(K, kb_shli(K, spread, 7), 0x3f803f80);
    val sign = kb_andi(K, kb_shli(K, spread, 8), (int)0x80008000u);
    val bits = kb_bitcast(K, kb_or(K, magnitude, sign), KB_VEC(KB_F16, 2));
    return kb_bitcast(K, kb_fmul(K, bits, kb_f16x2(K, 0x5c005c00)), KB_I32); /* 256 */
}

/* bf16 pair times an f32 power of two: exact, so the upper halves of the products are the result.
** */
static val scale_pair(struct kb *k, val pair, val scale)
{
    val lo = kb_bitcast(K, kb_shli(K, pair, 16), KB_F32);
    val hi = kb_bitcast(K, kb_andi(K, pair, (int)0xffff0000u), KB_F32);
    lo = kb_bitcast(K, kb_fmul(K, lo, scale), KB_I32);
    hi = kb_bitcast(K, kb_fmul(K, hi, scale), KB_I32);
    return kb_byte_perm(K, lo, hi, 0x7632);
}

/* E8M0 byte -> f32: byte 0 means an exact zero, which 0 << 23 is. */
static val block_scale(struct kb *k, val byte)
{
    return kb_bitcast(K, kb_shli(K, byte, 23), KB_F32);
}

/* ---- K ---- */

static val codebook_pair(struct kb *k, const struct attend *a, const val *words, int pair,
                         val *squares)
{
    const struct side *side = &a->plan->slot.key;
    int bits = 2 * side->codec.bits, entry = side->norm_at_read ? 8 : 4;
    val at = kb_offset(K, a->key_table, take_bits(K, words, pair * bits, bits, entry));
    if (!side->norm_at_read)
        return kb_load(K, KB_I32, at, 4);
    val both = kb_load(K, KB_VEC(KB_I32, 2), at, 8);
    val sum = kb_bitcast(K, kb_extract(K, both, 1), KB_F32);
    *squares = *squares ? kb_fadd(K, *squares, sum) : sum;
    return kb_extract(K, both, 0);
}

static val block_pair(struct kb *k, const struct attend *a, const val *words, const val *scales,
                      int pair)
{
    int chunk = gcd(a->key_run, a->plan->slot.key.codec.group);
    val x = kb_load(K, KB_I32, kb_offset(K, a->key_table, take_bits(K, words, 8 * pair, 8, 4)), 4);
    return scale_pair(K, x, block_scale(K, scales[2 * pair / chunk]));
}

static val e4m3_key_pair(struct kb *k, const val *words, int pair)
{
    val zero = kb_i32(K, 0);
    return e4m3_pair(K, kb_byte_perm(K, words[pair / 2], zero, pair % 2 ? 0x4342 : 0x4140));
}

void attend_key_operand(struct kb *k, const struct attend *a, const struct attend_codes *c, int sub,
                        int tile, int s, val *pairs, val *squares)
{
    const struct side *side = &a->plan->slot.key;
    const val *words = c->key[sub][tile];
    for (int i = 0; i < a->shape.ke / 2; i++) {
        int pair = s * a->shape.ke / 2 + i;
        switch (side->codec.kind) {
        case CODEC_CODEBOOK: pairs[i] = codebook_pair(K, a, words, pair, squares); break;
        case CODEC_BLOCK_FLOAT:
            pairs[i] = block_pair(K, a, words, c->key_scale[sub][tile], pair);
            break;
        case CODEC_FLOAT: pairs[i] = e4m3_key_pair(K, words, pair); break;
        default: kb_fail(K, "no attention over this key codec"); return;
        }
    }
}

/* ---- V ---- */

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

/* Where element `dim` of a run is found: its window, and the shift that brings it below bit 10,
** where an f16 is a subnormal number and so a plain integer times 2^-24. One shift serves all
** elements of a window that need any. */
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

double attend_value_factor(const struct attend *a, int dim)
{
    const struct codec *c = &a->plan->slot.value.codec;
    if (c->kind != CODEC_AFFINE || !a->plan->subnormal_codes)
        return 1;
    return (double)(1 << (24 - place_of(dim, c->bits).bit));
}

static val affine_pair(struct kb *k, const struct attend *a, const val *x, const val *y, int dim)
{
    int bits = a->plan->slot.value.codec.bits, last = (a->dims * bits + 31) / 32 - 1;
    struct place at = place_of(dim, bits);
    long long mask = (1 << bits) - 1, both = mask | mask << 16;
    val w = two_windows(K, x, y, at.window, last);
    if (a->plan->subnormal_codes)
        return kb_andi(K, kb_lshri(K, w, at.shift), (int)(both << at.bit));
    val code = kb_andi(K, kb_lshri(K, w, at.shift + at.bit), (int)both);
    val biased =
        kb_bitcast(K, kb_or(K, code, kb_i32(K, 0x64006400)), KB_VEC(KB_F16, 2)); /* 1024 + code */
    unsigned middle = 0x6400u + (1u << (bits - 1));
    return kb_bitcast(K, kb_fsub(K, biased, kb_f16x2(K, middle | middle << 16)), KB_I32);
}

/* One token's E2M1 element times its scale, as f32 bits. */
static val block_element(struct kb *k, const struct attend *a, const val *words, val scale, int dim)
{
    val x =
        kb_load(K, KB_I32, kb_offset(K, a->value_table, take_bits(K, words, dim / 2 * 8, 8, 4)), 4);
    x = dim % 2 ? kb_andi(K, x, (int)0xffff0000u) : kb_shli(K, x, 16);
    return kb_bitcast(K, kb_fmul(K, kb_bitcast(K, x, KB_F32), scale), KB_I32);
}

static val block_value_pair(struct kb *k, const struct attend *a, const struct attend_codes *c,
                            int sub, int e, int dim, const val *valid)
{
    int chunk = gcd(a->dims, a->plan->slot.value.codec.group);
    val x[2];
    for (int i = 0; i < 2; i++) {
        val byte = c->value_scale[sub][e + i][dim / chunk];
        val scale = block_scale(K, kb_select(K, valid[e + i], byte, kb_i32(K, 0)));
        x[i] = block_element(K, a, c->value[sub][e + i], scale, dim);
    }
    return kb_byte_perm(K, x[0], x[1], 0x7632);
}

void attend_value_operand(struct kb *k, const struct attend *a, const struct attend_codes *c,
                          int sub, int dim, val valid[], val *pairs)
{
    const struct codec *codec = &a->plan->slot.value.codec;
    for (int i = 0; i < a->shape.ke / 2; i++) {
        const val *x = c->value[sub][2 * i], *y = c->value[sub][2 * i + 1];
        int word = dim / 4, byte = dim % 4;
        switch (codec->kind) {
        case CODEC_AFFINE: pairs[i] = affine_pair(K, a, x, y, dim); break;
        case CODEC_BLOCK_FLOAT: pairs[i] = block_value_pair(K, a, c, sub, 2 * i, dim, valid); break;
        case CODEC_FLOAT: {
            val spread = kb_byte_perm(K, x[word], y[word], (unsigned)(byte | (byte + 4) << 8));
            pairs[i] = e4m3_pair(K, spread);
            break;
        }
        default: kb_fail(K, "no attention over this value codec"); return;
        }
    }
}
