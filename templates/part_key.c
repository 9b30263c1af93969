/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_key.c - key codes in registers to pairs of 16-bit numbers for the matrix unit. A pair is two
** neighbours along D. Where a lane's share of D is no whole number of steps, what is missing of the
** last one is zeros.
*/
#include "part_attend.h"

#include "part_decode.h"
#include "part_powers.h"

static int gcd(int a, int b) { return b ? gcd(b, a % b) : a; }

static val codebook_pair(struct kb *k, const struct attend *a, const val *words, int pair,
                         val *squares)
{
    const struct side *side = &a->plan->slot.key;
    int bits = 2 * plan_index_bits(a->plan, side);
    if (a->plan->byte_tables)
        return attend_pair_of_three(K, &a->key_table, words, (a->key_run * bits / 2 + 31) / 32,
                                    pair);
    if (!side->norm_at_read || a->plan->squares)
        return attend_word(K, &a->key_table, words, pair * bits, bits);
    val at = attend_entry(K, &a->key_table, words, pair * bits, bits);
    val both = kb_load(K, KB_VEC(KB_I32, 2), at, 8);
    val sum = kb_bitcast(K, kb_extract(K, both, 1), KB_F32);
    *squares = *squares ? kb_fadd(K, *squares, sum) : sum;
    return kb_extract(K, both, 0);
}

/* bf16 pair times an f32 that leaves at most 8 significant bits: exact, so the upper halves of the
** products are the result. */
static val scale_pair(struct kb *k, val pair, val scale)
{
    val lo = kb_bitcast(K, kb_shli(K, pair, 16), KB_F32);
    val hi = kb_bitcast(K, kb_andi(K, pair, (int)0xffff0000u), KB_F32);
    lo = kb_bitcast(K, kb_fmul(K, lo, scale), KB_I32);
    hi = kb_bitcast(K, kb_fmul(K, hi, scale), KB_I32);
    return kb_byte_perm(K, lo, hi, 0x7632);
}

static val block_pair(struct kb *k, const struct attend *a, const val *words, const val *scales,
                      int pair)
{
    const struct codec *codec = &a->plan->slot.key.codec;
    int chunk = gcd(a->key_run, codec->group);
    val x = attend_word(K, &a->key_table, words, 8 * pair, 8);
    val scale = decode_scale(K, codec->rule, scales[2 * pair / chunk]);
    return scale_pair(K, x, scale);
}

static val float_pair(struct kb *k, const struct codec *codec, const val *words, int pair)
{
    if (codec->bits == 16)
        return words[pair];
    if (codec->format != FLOAT_E4B15) { /* a NaN's score is one too: only its own token's */
        val half = pair % 2 ? kb_lshri(K, words[pair / 2], 16) : words[pair / 2];
        val x = kb_fp8_pair(K, codec->format == FLOAT_E5M2, kb_trunc(K, half, KB_I16));
        if (x)
            return x;
    }
    val zero = kb_i32(K, 0);
    val spread = kb_byte_perm(K, words[pair / 2], zero, pair % 2 ? 0x4342 : 0x4140);
    return attend_float_pair(K, codec->format, spread);
}

/* code - middle, both exact in f16: 1024 + code less 1024 + middle. */
static val affine_pair(struct kb *k, const struct codec *codec, const val *words, int pair)
{
    int bits = codec->bits;
    val lo = attend_bits(K, words, 2 * pair * bits, bits, 1);
    val hi = attend_bits(K, words, (2 * pair + 1) * bits, bits, 1);
    val both = kb_or(K, lo, kb_shli(K, hi, 16));
    val biased = kb_bitcast(K, kb_or(K, both, kb_i32(K, 0x64006400)), KB_VEC(KB_F16, 2));
    unsigned middle = 0x6400u + (1u << (bits - 1));
    return kb_bitcast(K, kb_fsub(K, biased, kb_f16x2(K, middle | middle << 16)), KB_I32);
}

void attend_key_operand(struct kb *k, const struct attend *a, const struct attend_codes *c, int sub,
                        int tile, int s, val *pairs, val *squares)
{
    const struct side *side = &a->plan->slot.key;
    const val *words = c->key[sub][tile];
    for (int i = 0; i < a->shape.ke / 2; i++) {
        int pair = s * a->shape.ke / 2 + i;
        if (2 * pair >= a->key_run) {
            pairs[i] = kb_i32(K, 0);
            continue;
        }
        switch (side->codec.kind) {
        case CODEC_CODEBOOK: pairs[i] = codebook_pair(K, a, words, pair, squares); break;
        case CODEC_BLOCK_FLOAT:
            if (a->plan->powers) {
                pairs[i] = powers_key_pair(K, a, c, sub, tile, pair);
                break;
            }
            pairs[i] = block_pair(K, a, words, c->key_scale[sub][tile], pair);
            break;
        case CODEC_FLOAT: pairs[i] = float_pair(K, &side->codec, words, pair); break;
        case CODEC_AFFINE: pairs[i] = affine_pair(K, &side->codec, words, pair); break;
        }
    }
}
