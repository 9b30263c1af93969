/* SPDX-License-Identifier: Apache-2.0 */
/*
** check_store.c - see check_store.h.
**
** Counts fields, not bytes. A code may differ only by one level and only where the double-precision value lies next to the
** boundary between the two; a 16-bit field only by one step; each only at a small rate. All else must be equal.
*/
#include "check_store.h"

#include "cli.h"
#include "encode.h"

#include <stdlib.h>
#include <string.h>

static const double key_rate = 1e-5, value_rate = 5e-4, field_rate = 1e-3;

struct pair {
    const struct sample *sample;
    const struct slots *slots;
    const unsigned char *ours, *theirs;
    double *row, *truth; /* [head_size] */
};

/* One side's codes of one slot; `side` 'k' or 'v'. */
static void compare_codes(struct pair *p, struct comparison *c, char side, long row, int head, size_t offset)
{
    const struct slots *s = p->slots;
    int d = s->head_size, bits = side == 'k' ? s->format->key_bits : s->format->value_bits, known = 0;
    int rounded = side == 'k' ? s->format->key == KEY_CODEBOOK : s->format->value == VALUE_AFFINE;
    const struct tensor *input = side == 'k' ? p->sample->key : p->sample->value;
    for (int i = 0; i < d; i++) {
        unsigned ours = slots_code(p->ours + offset, bits, i), theirs = slots_code(p->theirs + offset, bits, i);
        if (!compare_add(c, ours, theirs) || !rounded)
            continue;
        for (int j = 0; j < d && !known; j++)
            p->row[j] = number_at(p->sample->number, input->data, ((size_t)row * (size_t)s->heads + (size_t)head) * (size_t)d + (size_t)j);
        if (!known)
            (side == 'k' ? encode_key : encode_value)(s, p->row, p->truth);
        known = 1;
        int near = side == 'k' ? encode_key_near(s, p->truth[i], ours, theirs) : encode_value_near(p->truth[i], ours, theirs);
        if (!near)
            compare_bad(c, "row %ld head %d element %d: code %u, expected %u, before rounding %.9g", row, head, i, ours, theirs,
                        p->truth[i]);
    }
}

static void compare_field(struct pair *p, struct comparison *c, long row, int head, size_t offset)
{
    uint16_t ours = number_u16(p->ours + offset), theirs = number_u16(p->theirs + offset);
    if (compare_add(c, number_from_half(ours), number_from_half(theirs)) && number_half_steps(ours, theirs) > 1)
        compare_bad(c, "row %ld head %d: %04x, expected %04x", row, head, ours, theirs);
}

static void compare_bytes(struct pair *p, struct comparison *c, size_t offset, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        compare_add(c, p->ours[offset + i], p->theirs[offset + i]);
}

enum part { KEY_CODES, VALUE_CODES, SCALAR, SCALE, ZERO, KEY_SCALES, VALUE_SCALES };

static void compare_part(struct pair *p, struct comparison *c, enum part part)
{
    for (long row = 0; row < p->sample->rows; row++) {
        if (p->sample->slot_mapping[row] < 0)
            continue;
        for (int head = 0; head < p->slots->heads; head++) {
            struct place at = slots_at(p->slots, p->sample->slot_mapping[row], head);
            switch (part) {
            case KEY_CODES: compare_codes(p, c, 'k', row, head, at.key); break;
            case VALUE_CODES: compare_codes(p, c, 'v', row, head, at.value); break;
            case SCALAR: compare_field(p, c, row, head, at.scalar); break;
            case SCALE: compare_field(p, c, row, head, at.scale); break;
            case ZERO: compare_field(p, c, row, head, at.zero); break;
            case KEY_SCALES: compare_bytes(p, c, at.key_scales, p->slots->scale_bytes); break;
            case VALUE_SCALES: compare_bytes(p, c, at.value_scales, p->slots->scale_bytes); break;
            }
        }
    }
}

/* Everything that belongs to no stored slot. */
static void compare_untouched(struct pair *p, struct comparison *c)
{
    const struct slots *s = p->slots;
    size_t bytes = (size_t)p->sample->pages * s->page_bytes;
    unsigned char *touched = cli_alloc(bytes, 1);
    for (long row = 0; row < p->sample->rows; row++)
        for (int head = 0; p->sample->slot_mapping[row] >= 0 && head < s->heads; head++) {
            struct place at = slots_at(s, p->sample->slot_mapping[row], head);
            memset(touched + at.key, 1, s->key_bytes);
            memset(touched + at.value, 1, s->value_bytes);
            memset(touched + at.key_scales, 1, s->scale_bytes);
            memset(touched + at.value_scales, 1, s->scale_bytes);
            if (s->format->key == KEY_CODEBOOK)
                memset(touched + at.scalar, 1, 2);
            if (s->format->value == VALUE_AFFINE) {
                memset(touched + at.scale, 1, 2);
                memset(touched + at.zero, 1, 2);
            }
        }
    for (size_t i = 0; i < bytes; i++)
        if (!touched[i] && compare_add(c, p->ours[i], p->theirs[i]))
            compare_bad(c, "byte %zu of page %zu: %02x, expected %02x", i % s->page_bytes, i / s->page_bytes, p->ours[i],
                        p->theirs[i]);
    free(touched);
}

static struct comparison *part(struct pair *p, struct comparisons *all, const char *name, enum part which)
{
    struct comparison *c = compare_new(all, name);
    compare_part(p, c, which);
    return c;
}

void check_store(const struct sample *sample, const unsigned char *pool, struct comparisons *all)
{
    const struct slots *s = &sample->slots;
    struct pair p = {sample, s, pool, sample->cache->data, cli_alloc((size_t)s->head_size, sizeof(double)),
                     cli_alloc((size_t)s->head_size, sizeof(double))};
    if (s->format->key == KEY_CODEBOOK)
        compare_count(part(&p, all, "cache.key_codes", KEY_CODES), key_rate);
    else
        compare_exact(part(&p, all, s->format->key == KEY_FP8 ? "cache.key_bytes" : "cache.key_codes", KEY_CODES));
    if (s->format->value == VALUE_AFFINE) {
        compare_count(part(&p, all, "cache.value_codes", VALUE_CODES), value_rate);
        if (s->format->key == KEY_CODEBOOK)
            compare_count(part(&p, all, s->soa ? "cache.k_scalar" : "cache.k_norm", SCALAR), field_rate);
        compare_count(part(&p, all, "cache.v_scale", SCALE), field_rate);
        compare_count(part(&p, all, "cache.v_zero", ZERO), field_rate);
    } else {
        compare_exact(part(&p, all, "cache.value_codes", VALUE_CODES));
        compare_exact(part(&p, all, "cache.key_scales", KEY_SCALES));
        compare_exact(part(&p, all, "cache.value_scales", VALUE_SCALES));
    }
    struct comparison *c = compare_new(all, "cache.untouched");
    compare_untouched(&p, c);
    compare_exact(c);
    free(p.row);
    free(p.truth);
}
