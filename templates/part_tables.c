/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_tables.c - tables of pairs: one look-up in shared memory decodes two codes.
**
** Codebooks: f16 pairs, with the sum of their squares beside them where norms are corrected at read and the
** step does not square them itself (plan->squares). Block codecs: bf16 pairs of E2M1 values, or f16 (part_powers.h).
*/
#include "part_attend.h"

#include "part_codebook.h"
#include "part_powers.h"
#include "part_squares.h"

#include <string.h>

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

/* f16 bits as a number */
static float half_value(unsigned h)
{
    unsigned b = (h & 0x7fff) << 13 | (h & 0x8000) << 16;
    float x;
    memcpy(&x, &b, sizeof x);
    return x * 0x1p112f;
}

static val one_copy(struct kb *k, val source, int n)
{
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

val attend_copy_table(struct kb *k, const char *name, const void *words, int n)
{
    return one_copy(K, kb_table(K, name, words, (size_t)n * 4, 16), n);
}

/* A warp writes a row of copies, the warps take rows in turn, some in flight. */
static val many_copies(struct kb *k, val source, int rows, int width, const struct attend_lookup *t)
{
    const struct plan *p = kb_plan(k);
    int flight = rows % (8 * p->warps) ? 1 : 8, bytes = 4 * width;
    int type = width == 2 ? KB_VEC(KB_I32, 2) : KB_I32;
    val table = kb_shared(K, (size_t)rows * (size_t)t->pitch, 16), row = kb_warp(K);
    if (p->producer) /* which takes none */
        row = kb_select(K, kb_icmpi(K, KB_ULT, row, p->warps), row, kb_i32(K, rows));
    val own = kb_offset(K, table, t->lane);
    struct kb_loop loop;
    kb_loop_begin(K, &loop, &row, 1);
    kb_loop_while(K, &loop, kb_icmpi(K, KB_SLT, row, rows));
    for (int i = 0; i < flight; i++) {
        val at = kb_addi(K, row, i * p->warps);
        val x = kb_load(K, type, kb_offset(K, source, kb_muli(K, at, bytes)), bytes);
        kb_store(K, x, kb_offset(K, own, kb_muli(K, at, t->pitch)), bytes);
    }
    row = kb_addi(K, row, flight * p->warps);
    kb_loop_end(K, &loop);
    return table;
}

/* `rows` entries of `width` words. Copies for all lanes of a table of 256 entries lie 256 bytes apart at
** least: a byte permutation then makes an address out of a byte of codes. */
static struct attend_lookup copy_table(struct kb *k, const char *name, const unsigned *words,
                                       int rows, int width)
{
    const struct plan *p = kb_plan(k);
    struct attend_lookup t = {.pitch = 4 * width};
    val source = kb_table(K, name, words, (size_t)(rows * width) * 4, 16);
    if (!p->spread_tables) {
        t.base = one_copy(K, source, rows * width);
        return t;
    }
    t.lane = kb_muli(K, kb_lane(K), t.pitch);
    t.pitch *= p->target->warp;
    if (rows == 256 && t.pitch < 256)
        t.pitch = 256;
    t.base = many_copies(K, source, rows, width, &t);
    return t;
}

/* Directions of keys have no size: squares in f16 want centroids whose largest is 1 to 2. */
static float near_one(const float *c, int n)
{
    float most = 0, scale = 1;
    for (int i = 0; i < n; i++)
        most = c[i] > most ? c[i] : -c[i] > most ? -c[i] : most;
    while (most > 0 && most * scale < 1)
        scale *= 2;
    while (most * scale >= 2)
        scale /= 2;
    return scale;
}

enum { LOW_TABLE, HIGH_TABLE, BYTE_TABLES, THREE_BITS = 7 };

static unsigned pair_bits(const float *c, float scale, int lo, int hi)
{
    return half_bits(scale * c[lo]) | half_bits(scale * c[hi]) << 16;
}

/* Pairs of 3-bit codes by bytes: of each byte the pair in its lower six bits and that in its upper six. */
static struct attend_lookup byte_tables(struct kb *k, const float *c, float scale)
{
    unsigned words[256 * BYTE_TABLES];
    for (int i = 0; i < 256; i++) {
        unsigned *entry = &words[i * BYTE_TABLES];
        entry[LOW_TABLE] = pair_bits(c, scale, i & THREE_BITS, i >> 3 & THREE_BITS);
        entry[HIGH_TABLE] = pair_bits(c, scale, i >> 2 & THREE_BITS, i >> 5);
    }
    return copy_table(K, "centroids", words, 256 * BYTE_TABLES, 1);
}

static struct attend_lookup codebook_table(struct kb *k, const struct side *side, bool squared)
{
    float c[SPEC_MAX_CENTROIDS];
    int n = 1 << plan_index_bits(kb_plan(K), side), width = squared ? 2 : 1;
    int last = (1 << side->codec.bits) - 1; /* bits above a code are another's */
    codebook_of_side(side, c);
    bool key = side == &kb_plan(K)->slot.key;
    float scale = key && kb_plan(K)->squares ? near_one(c, last + 1) : 1;
    if (key && kb_plan(K)->byte_tables)
        return byte_tables(K, c, scale);
    unsigned words[512];
    for (int i = 0; i < n * n; i++) {
        float lo = scale * c[i % n & last], hi = scale * c[i / n & last];
        unsigned low = half_bits(lo), high = half_bits(hi);
        float squares = half_value(low) * half_value(low) + half_value(high) * half_value(high);
        words[i * width] = low | high << 16;
        if (width == 2)
            memcpy(&words[i * 2 + 1], &squares, sizeof squares);
    }
    return copy_table(K, "centroids", words, n * n, width);
}

/* bf16 bits of the sixteen E2M1 codes */
static unsigned e2m1_bits(int code)
{
    static const unsigned magnitude[8] = {0,      0x3f00, 0x3f80, 0x3fc0,
                                          0x4000, 0x4040, 0x4080, 0x40c0};
    return magnitude[code & 7] | (unsigned)(code >> 3) << 15;
}

static struct attend_lookup e2m1_table(struct kb *k)
{
    unsigned words[256], (*bits)(int code) = kb_plan(K)->powers ? powers_bits : e2m1_bits;
    for (int i = 0; i < 256; i++)
        words[i] = bits(i & 15) | bits(i >> 4) << 16;
    return copy_table(K, "e2m1", words, 256, 1);
}

static struct attend_lookup side_table(struct kb *k, const struct side *side, bool squared)
{
    switch (side->codec.kind) {
    case CODEC_CODEBOOK: return codebook_table(K, side, squared);
    case CODEC_BLOCK_FLOAT: return e2m1_table(K);
    default: return (struct attend_lookup){0};
    }
}

void attend_tables(struct kb *k, struct attend *a)
{
    const struct slot *slot = &a->plan->slot;
    enum codec_kind key = slot->key.codec.kind, value = slot->value.codec.kind;
    bool direct = a->plan->key_operand == OPERAND_SCALED; /* no key is looked up */
    if (!direct)
        a->key_table = side_table(K, &slot->key, slot->key.norm_at_read && !a->plan->squares);
    bool shared = !direct && key == CODEC_BLOCK_FLOAT && value == CODEC_BLOCK_FLOAT;
    a->value_table = shared ? a->key_table : side_table(K, &slot->value, false);
    if (!slot->value.norm_at_read)
        return;
    float centroids[SPEC_MAX_CENTROIDS];
    codebook_of_side(&slot->value, centroids);
    attend_squares_table(K, a, centroids);
}

val attend_bits(struct kb *k, const val *words, int at, int bits, int scale)
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

static val entry_offset(struct kb *k, const struct attend_lookup *t, const val *words, int at,
                        int bits)
{
    if (!t->lane)
        return attend_bits(K, words, at, bits, t->pitch);
    if (t->pitch == 256 && bits == 8 && at % 8 == 0) { /* bytes: 0, 0, the code, lane */
        unsigned selector = 0x5504u | (unsigned)(at % 32 / 8) << 4;
        return kb_byte_perm(K, words[at / 32], t->lane, selector);
    }
    val offset = attend_bits(K, words, at, bits, t->pitch);
    return kb_or(K, offset, t->lane);
}

val attend_entry(struct kb *k, const struct attend_lookup *t, const val *words, int at, int bits)
{
    return kb_offset(K, t->base, entry_offset(K, t, words, at, bits));
}

val attend_word(struct kb *k, const struct attend_lookup *t, const val *words, int at, int bits)
{
    return kb_table_word(K, t->base, entry_offset(K, t, words, at, bits));
}

/* Pairs begin at bits 0, 6, 4, 2 of bytes: at the lower or the upper six of one, every other pair of one that is
** shifted by four. */
val attend_pair_of_three(struct kb *k, const struct attend_lookup *t, const val *words, int n,
                         int pair)
{
    enum { PAIR_BITS = 6, HALF = 4 };
    int bit = pair * PAIR_BITS;
    bool high = bit % HALF != 0;
    int begin = high ? bit - 2 : bit, w = begin / 32, at = begin % 32;
    val x = words[w];
    if (begin % 8) {
        x = w + 1 < n ? kb_funnel(K, x, words[w + 1], kb_i32(K, HALF)) : kb_lshri(K, x, HALF);
        at -= HALF;
    }
    unsigned selector = 0x5504u | (unsigned)(at / 8) << 4; /* bytes: 0, 0, the codes, lane */
    val base = high ? kb_offseti(K, t->base, t->pitch) : t->base;
    return kb_table_word(K, base, kb_byte_perm(K, x, t->lane, selector));
}

/* f16 patterns of e4m3 still have its bias: times 2^8 they are exact (0x7f reads as 480). The other
** two formats are f16 with fewer bits. */
val attend_float_pair(struct kb *k, enum float_format format, val spread)
{
    int up = format == FLOAT_E5M2 ? 8 : 7;
    if (up == 8)
        return kb_andi(K, kb_shli(K, spread, 8), (int)0xff00ff00u);
    val magnitude = kb_andi(K, kb_shli(K, spread, 7), 0x3f803f80);
    val sign = kb_andi(K, kb_shli(K, spread, 8), (int)0x80008000u);
    val bits = kb_or(K, magnitude, sign);
    if (format == FLOAT_E4B15)
        return bits;
    val half = kb_bitcast(K, bits, KB_VEC(KB_F16, 2));
    return kb_bitcast(K, kb_fmul(K, half, kb_f16x2(K, 0x5c005c00)), KB_I32); /* 256 */
}
