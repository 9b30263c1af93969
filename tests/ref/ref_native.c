/* SPDX-License-Identifier: Apache-2.0 */
/*
** ref_native.c - slots in and out of a pool of any layout, and the native one bit by bit
** (docs/layouts.md), one code at a time.
*/
#include "ref.h"

#include <string.h>

enum { TOKENS = 16 };

/* The largest of 16, 8, 4, 2, up to `most`, that divides. */
static size_t unit_of(size_t bytes, size_t most)
{
    while (bytes % most)
        most /= 2;
    return most;
}

/* Where byte `byte` of the `bytes` of a lane lies in a plane of rows of four lanes. */
static size_t in_plane(size_t rows, size_t row, size_t lane, size_t bytes, size_t most, size_t byte)
{
    size_t unit = unit_of(bytes, most);

    return byte / unit * (rows * 4 * unit) + (row * 4 + lane) * unit + byte % unit;
}

/* Of a key: bit `bit` of element `e`'s code, as a bit of the head block's key part. */
static size_t key_bit(int bits, size_t d, size_t token, size_t e, size_t bit)
{
    size_t codes = d / 4, lane = e / codes, r = e % codes, word = r / 8, nibble = r % 8;
    size_t low = d / 4 * TOKENS, full = d / 128 * 4, at; /* low: bytes of the plane of low pairs */

    if (bits == 8 || bits == 4) {
        at = r * (size_t)bits + bit;
        return 8 * in_plane(16, token, lane, codes * (size_t)bits / 8, 16, at / 8) + at % 8;
    }
    if (bit < 2) {
        at = word / 2 * 32 + 4 * nibble + 2 * (word % 2) + bit;
        return 8 * in_plane(16, token, lane, codes / 4, 16, at / 8) + at % 8;
    }
    if (word / 4 < d / 128) {
        static const size_t place[4] = {2, 3, 0, 1};
        at = word / 4 * 32 + 4 * nibble + place[word % 4];
        return 8 * (low + in_plane(16, token, lane, full, 16, at / 8)) + at % 8;
    }
    at = nibble < 4 ? 4 * nibble + 2 + word % 2 : 4 * (nibble - 4) + word % 2;
    return 8 * (low + 64 * full + in_plane(16, token, lane, 2, 2, at / 8)) + at % 8;
}

/* Of a value, likewise. A word is four dims of an even token, low half, and of the next one. */
static size_t value_bit(int bits, size_t d, size_t token, size_t e, size_t bit)
{
    size_t dims = d / 8, row = e / dims, four = e % dims / 4, k = e % 4;
    size_t lane = token % 8 / 2, half = token % 2, pair = token / 8;
    size_t most = d % 128 ? 8 : 16, low = d / 4 * TOKENS, full = d / 128, at;

    if (bits == 4) {
        at = (pair * (d / 32) + four) * 32 + 16 * half + 4 * k + bit;
        return 8 * in_plane(8, row, lane, d / 4, most, at / 8) + at % 8;
    }
    if (bit < 2) {
        at = (pair * (d / 64) + four / 2) * 32 + 16 * half + 4 * k + 2 * (four % 2) + bit;
        return 8 * in_plane(8, row, lane, d / 8, most, at / 8) + at % 8;
    }
    if (four / 4 < full) {
        static const size_t place[4] = {2, 3, 0, 1};
        at = (pair * full + four / 4) * 32 + 16 * half + 4 * k + place[four % 4];
        return 8 * (low + in_plane(8, row, lane, full * 8, most, at / 8)) + at % 8;
    }
    at = 16 * half + 8 * pair + (k < 2 ? 4 * k + 2 : 4 * (k - 2)) + four % 2;
    return 8 * (low + full * 256 + in_plane(8, row, lane, 4, 4, at / 8)) + at % 8;
}

static size_t bit_of(const struct ref_format *f, int side, size_t token, size_t e, size_t bit)
{
    return side ? value_bit(f->value.bits, (size_t)f->value_size, token, e, bit)
                : key_bit(f->key.bits, (size_t)f->key_size, token, e, bit);
}

static const struct ref_codec *codec_of(const struct ref_format *f, int side, size_t *d)
{
    *d = (size_t)(side ? f->value_size : f->key_size);
    return side ? &f->value : &f->key;
}

static size_t scales_of(const struct ref_codec *codec, size_t d)
{
    return codec->kind == REF_BLOCK ? d / (size_t)codec->group : 0;
}

/* Parts of a head block. */
struct block {
    size_t codes[2], fields, scales[2], bytes;
};

static struct block block_of(const struct ref_format *f)
{
    struct block b = {{0}, 0, {0}, 0};
    size_t at = 0, d;

    for (int side = 0; side < 2; side++) {
        const struct ref_codec *codec = codec_of(f, side, &d);
        b.codes[side] = at;
        at += d * (size_t)codec->bits / 8 * TOKENS;
    }
    b.fields = at;
    at += (size_t)(f->key_fields + f->value_fields) * 2 * TOKENS;
    for (int side = 0; side < 2; side++) {
        const struct ref_codec *codec = codec_of(f, side, &d);
        b.scales[side] = at;
        at += scales_of(codec, d) * TOKENS;
    }
    b.bytes = (at + 15) / 16 * 16;
    return b;
}

/* The head block of a slot, from the pool's beginning, and the slot's token in it. */
static size_t find_block(const struct ref_format *f, const struct ref_pool *pool, int64_t slot,
                         int head, const struct block *b, size_t *token)
{
    int64_t page = slot / f->page_tokens, position = slot % f->page_tokens;

    *token = (size_t)(position % TOKENS);
    return (size_t)(page * pool->page_stride +
                    (position / TOKENS * f->heads + head) * (int64_t)b->bytes);
}

static size_t order(size_t token) { return token % 8 * 2 + token / 8; }

static void native_get(const struct ref_format *f, const uint8_t *block, const struct block *b,
                       size_t token, struct ref_slot *out)
{
    for (int side = 0; side < 2; side++) {
        size_t d, bits;
        const struct ref_codec *codec = codec_of(f, side, &d);
        uint8_t *codes = side ? out->value : out->key;
        bits = (size_t)codec->bits;
        memset(codes, 0, d * bits / 8);
        for (size_t i = 0; i < d * bits; i++) {
            size_t at = 8 * b->codes[side] + bit_of(f, side, token, i / bits, i % bits);
            codes[i / 8] = (uint8_t)(codes[i / 8] | (block[at / 8] >> at % 8 & 1) << i % 8);
        }
        size_t n = scales_of(codec, d);
        memcpy(codes + d * bits / 8, block + b->scales[side] + order(token) * n, n);
    }
    for (int i = 0; i < f->key_fields + f->value_fields; i++)
        out->field[i] = ref_get16(block + b->fields + (size_t)i * 32 + order(token) * 2);
}

static void native_put(const struct ref_format *f, uint8_t *block, const struct block *b,
                       size_t token, const struct ref_slot *in)
{
    for (int side = 0; side < 2; side++) {
        size_t d, bits;
        const struct ref_codec *codec = codec_of(f, side, &d);
        const uint8_t *codes = side ? in->value : in->key;
        bits = (size_t)codec->bits;
        for (size_t i = 0; i < d * bits; i++) {
            size_t at = 8 * b->codes[side] + bit_of(f, side, token, i / bits, i % bits);
            unsigned one = 1u << at % 8, set = codes[i / 8] >> i % 8 & 1;
            block[at / 8] = (uint8_t)(set ? block[at / 8] | one : block[at / 8] & ~one);
        }
        size_t n = scales_of(codec, d);
        memcpy(block + b->scales[side] + order(token) * n, codes + d * bits / 8, n);
    }
    for (int i = 0; i < f->key_fields + f->value_fields; i++)
        ref_put16(block + b->fields + (size_t)i * 32 + order(token) * 2, in->field[i]);
}

size_t ref_native_bit(const struct ref_format *f, int side, int token, int element, int bit)
{
    struct block b = block_of(f);

    return 8 * b.codes[side] + bit_of(f, side, (size_t)token, (size_t)element, (size_t)bit);
}

void ref_slot_get(const struct ref_format *f, const struct ref_pool *pool, int64_t slot, int head,
                  struct ref_slot *out)
{
    if (f->layout == REF_NATIVE) {
        struct block b = block_of(f);
        size_t token, at = find_block(f, pool, slot, head, &b, &token);
        native_get(f, pool->data + at, &b, token, out);
        return;
    }
    struct ref_place at = ref_place(f, pool, slot, head);
    memcpy(out->key, pool->data + at.key, f->key_bytes);
    memcpy(out->value, pool->data + at.value, f->value_bytes);
    for (int i = 0; i < f->key_fields + f->value_fields; i++)
        out->field[i] = ref_get16(pool->data + at.field[i]);
}

void ref_slot_put(const struct ref_format *f, const struct ref_pool *pool, int64_t slot, int head,
                  const struct ref_slot *in)
{
    if (f->layout == REF_NATIVE) {
        struct block b = block_of(f);
        size_t token, at = find_block(f, pool, slot, head, &b, &token);
        native_put(f, pool->data + at, &b, token, in);
        return;
    }
    struct ref_place at = ref_place(f, pool, slot, head);
    memcpy(pool->data + at.key, in->key, f->key_bytes);
    memcpy(pool->data + at.value, in->value, f->value_bytes);
    for (int i = 0; i < f->key_fields + f->value_fields; i++)
        ref_put16(pool->data + at.field[i], in->field[i]);
}
