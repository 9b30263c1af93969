/* SPDX-License-Identifier: Apache-2.0 */
/*
** slots_native.c - pages of the native layout into pages whose slots have contiguous parts.
**
** docs/layouts.md, bit by bit: where a code's bits lie among 16 tokens of a head is computed once and
** followed for every block.
*/
#include "slots.h"

#include "cli.h"

#include <stdlib.h>
#include <string.h>

enum { TOKENS = 16 };

/* One side of a block; places of bits are counted from the side's first. */
struct plane_side {
    size_t d, bits, rows;
    int value;
};

static size_t unit_of(size_t bytes, size_t most)
{
    while (bytes % most)
        most /= 2;
    return most;
}

/* Bit `bit` of the `bytes` bytes of a lane: in units that go round all lanes. */
static size_t in_plane(const struct plane_side *s, size_t row, size_t lane, size_t bytes,
                       size_t bit)
{
    size_t unit = unit_of(bytes, s->value && s->d % 128 ? 8 : 16), byte = bit / 8;
    size_t at = byte / unit * s->rows * 4 * unit + (row * 4 + lane) * unit + byte % unit;
    return 8 * at + bit % 8;
}

static const size_t high_place[4] = {2, 3, 0, 1};

static size_t key_bit(const struct plane_side *s, size_t token, size_t e, size_t bit)
{
    size_t each = s->d / 4, lane = e / each, at = e % each, word = at / 8, nibble = at % 8;
    size_t low = 2 * TOKENS * s->d,
           full = s->d / 128; /* bits of the low plane; high words of a lane */
    if (s->bits != 3)
        return in_plane(s, token, lane, each * s->bits / 8, at * s->bits + bit);
    if (bit < 2)
        return in_plane(s, token, lane, each / 4, word / 2 * 32 + 4 * nibble + word % 2 * 2 + bit);
    if (word / 4 < full)
        return low + in_plane(s, token, lane, 4 * full,
                              word / 4 * 32 + 4 * nibble + high_place[word % 4]);
    at = nibble < 4 ? 4 * nibble + 2 : 4 * (nibble - 4);
    return low + 8 * 64 * 4 * full + in_plane(s, token, lane, 2, at + word % 2);
}

static size_t value_bit(const struct plane_side *s, size_t token, size_t e, size_t bit)
{
    size_t each = s->d / 8, row = e / each, four = e % each / 4, k = e % 4;
    size_t lane = token % 8 / 2, pair = token / 8, half = 16 * (token % 2);
    size_t low = 2 * TOKENS * s->d, full = s->d / 128;
    if (s->bits == 4)
        return in_plane(s, row, lane, s->d / 4,
                        32 * (pair * (s->d / 32) + four) + half + 4 * k + bit);
    if (bit < 2)
        return in_plane(s, row, lane, s->d / 8,
                        32 * (pair * (s->d / 64) + four / 2) + half + 4 * k + four % 2 * 2 + bit);
    if (four / 4 < full)
        return low + in_plane(s, row, lane, 8 * full,
                              32 * (pair * full + four / 4) + half + 4 * k + high_place[four % 4]);
    size_t at = k < 2 ? 4 * k + 2 : 4 * (k - 2);
    return low + 8 * 32 * 8 * full + in_plane(s, row, lane, 4, half + 8 * pair + at + four % 2);
}

/* Places of the bits of 16 tokens' codes: [token][element][bit]. */
static uint32_t *map_side(const struct slots *s, int value)
{
    struct plane_side side = {(size_t)s->head_size, 0, value ? 8 : TOKENS, value};
    side.bits = (size_t)(value ? s->format->value_bits : s->format->key_bits);
    size_t n = TOKENS * side.d * side.bits;
    uint32_t *map = cli_alloc(n, sizeof *map);
    for (size_t i = 0; i < n; i++) {
        size_t bit = i % side.bits, e = i / side.bits % side.d, token = i / side.bits / side.d;
        map[i] = (uint32_t)(value ? value_bit : key_bit)(&side, token, e, bit);
    }
    return map;
}

static void gather(unsigned char *to, size_t bytes, const unsigned char *from, const uint32_t *map)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned byte = 0;
        for (size_t bit = 0; bit < 8; bit++) {
            uint32_t at = map[8 * i + bit];
            byte |= (from[at / 8] >> at % 8 & 1u) << bit;
        }
        to[i] = (unsigned char)byte;
    }
}

/* What behind the codes of a block belongs to one token. */
static void gather_rest(const struct slots *s, const unsigned char *rest, size_t token,
                        const struct place *at, unsigned char *to)
{
    size_t order = token % 8 * 2 + token / 8, n = s->scale_bytes;
    size_t fields[3], count = 0;
    if (s->format->key == KEY_CODEBOOK)
        fields[count++] = at->scalar;
    if (s->format->value == VALUE_AFFINE) {
        fields[count++] = at->scale;
        fields[count++] = at->zero;
    }
    for (size_t i = 0; i < count; i++)
        memcpy(to + fields[i], rest + 2 * (TOKENS * i + order), 2);
    rest += 2 * TOKENS * count;
    memcpy(to + at->key_scales, rest + order * n, n);
    memcpy(to + at->value_scales, rest + TOKENS * n + order * n, n);
}

void slots_from_native(const struct slots *s, const unsigned char *from, size_t pages,
                       unsigned char *to)
{
    uint32_t *key = map_side(s, 0), *value = map_side(s, 1);
    size_t blocks = (size_t)s->page_tokens / TOKENS, heads = (size_t)s->heads;
    size_t key_codes = TOKENS * s->key_bytes, value_codes = TOKENS * s->value_bytes;
    for (size_t b = 0; b < pages * blocks * heads; b++) {
        const unsigned char *block = from + b * TOKENS * s->slot_bytes;
        long first = (long)(b / heads * TOKENS);
        for (size_t t = 0; t < TOKENS; t++) {
            struct place at = slots_at(s, first + (long)t, (int)(b % heads));
            gather(to + at.key, s->key_bytes, block, key + 8 * s->key_bytes * t);
            gather(to + at.value, s->value_bytes, block + key_codes,
                   value + 8 * s->value_bytes * t);
            gather_rest(s, block + key_codes + value_codes, t, &at, to);
        }
    }
    free(key);
    free(value);
}
