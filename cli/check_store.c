/* SPDX-License-Identifier: Apache-2.0 */
/*
** check_store.c - see check_store.h.
**
** Counts fields, not bytes. A code may differ only by one level and only where the double-precision
** value lies next to the boundary between the two; a 16-bit field only by one step; each only at a
** small rate. All else must be equal.
*/
#include "check_store.h"

#include "cli.h"
#include "encode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double key_rate = 1e-5, value_rate = 5e-4, field_rate = 1e-3;

/* Our pool and the file's, each with its layout. */
struct pair {
    const struct sample *sample;
    const struct slots *slots, *file_slots;
    const unsigned char *ours, *theirs;
    double *row, *truth; /* [head_size] */
};

/* One slot in both. */
struct spot {
    long row;
    int head;
    struct place ours, theirs;
};

/* The double-precision value of each element just before rounding to a code. */
static void find_truth(struct pair *p, char side, const struct spot *at)
{
    const struct slots *s = p->slots;
    const struct tensor *input = side == 'k' ? p->sample->key : p->sample->value;
    size_t first = ((size_t)at->row * (size_t)s->heads + (size_t)at->head) * (size_t)s->head_size;
    for (int i = 0; i < s->head_size; i++)
        p->row[i] = number_at(p->sample->number, input->data, first + (size_t)i);
    (side == 'k' ? encode_key : encode_value)(s, p->row, p->truth);
}

/* One side's codes of one slot; `side` 'k' or 'v'. */
static void compare_codes(struct pair *p, struct comparison *c, char side, const struct spot *at)
{
    const struct slots *s = p->slots;
    int bits = side == 'k' ? s->format->key_bits : s->format->value_bits, known = 0;
    int rounded = side == 'k' ? s->format->key == KEY_CODEBOOK : s->format->value == VALUE_AFFINE;
    const unsigned char *mine = p->ours + (side == 'k' ? at->ours.key : at->ours.value);
    const unsigned char *yours = p->theirs + (side == 'k' ? at->theirs.key : at->theirs.value);
    for (int i = 0; i < s->head_size; i++) {
        unsigned ours = slots_code(mine, bits, i), theirs = slots_code(yours, bits, i);
        if (!compare_add(c, ours, theirs) || !rounded)
            continue;
        if (!known)
            find_truth(p, side, at);
        known = 1;
        int near = side == 'k' ? encode_key_near(s, p->truth[i], ours, theirs)
                               : encode_value_near(p->truth[i], ours, theirs);
        if (!near)
            compare_bad(c, "row %ld head %d element %d: code %u, expected %u, before rounding %.9g",
                        at->row, at->head, i, ours, theirs, p->truth[i]);
    }
}

static void compare_field(struct pair *p, struct comparison *c, const struct spot *at,
                          size_t offset, size_t file_offset)
{
    uint16_t ours = number_u16(p->ours + offset), theirs = number_u16(p->theirs + file_offset);
    if (compare_add(c, number_from_half(ours), number_from_half(theirs))
        && number_half_steps(ours, theirs) > 1)
        compare_bad(c, "row %ld head %d: %04x, expected %04x", at->row, at->head, ours, theirs);
}

/* Key scalars of two layouts: k_norm (aos) is k_scalar (soa) times the length of the chosen
 * centroids. Both were rounded to fp16, half a unit of 2^-10 each. */
static void compare_scalars_across(struct pair *p, struct comparison *c, const struct spot *at)
{
    double norm = 0, got = number_from_half(number_u16(p->ours + at->ours.scalar));
    double want = number_from_half(number_u16(p->theirs + at->theirs.scalar));
    for (int i = 0; i < p->slots->head_size; i++) {
        double x =
            p->slots
                ->centroids[slots_code(p->theirs + at->theirs.key, p->slots->format->key_bits, i)];
        norm += x * x;
    }
    want *= p->slots->soa ? 1 / sqrt(norm) : sqrt(norm);
    int near = fabs(got - want) <= 1.01 * 0x1p-10 * want + 0x1p-23;
    if (compare_add(c, near ? want : got, want))
        compare_bad(c, "row %ld head %d: %.9g, expected %.9g", at->row, at->head, got, want);
}

static void compare_scalars(struct pair *p, struct comparison *c, const struct spot *at)
{
    if (p->slots->soa != p->file_slots->soa)
        compare_scalars_across(p, c, at);
    else
        compare_field(p, c, at, at->ours.scalar, at->theirs.scalar);
}

static void compare_bytes(struct pair *p, struct comparison *c, size_t offset, size_t file_offset)
{
    for (size_t i = 0; i < p->slots->scale_bytes; i++)
        compare_add(c, p->ours[offset + i], p->theirs[file_offset + i]);
}

enum part { KEY_CODES, VALUE_CODES, SCALAR, SCALE, ZERO, KEY_SCALES, VALUE_SCALES };

static void compare_part(struct pair *p, struct comparison *c, enum part part)
{
    for (long row = 0; row < p->sample->rows; row++) {
        long slot = p->sample->slot_mapping[row];
        for (int head = 0; slot >= 0 && head < p->slots->heads; head++) {
            struct spot at = {row, head, slots_at(p->slots, slot, head),
                              slots_at(p->file_slots, slot, head)};
            switch (part) {
            case KEY_CODES: compare_codes(p, c, 'k', &at); break;
            case VALUE_CODES: compare_codes(p, c, 'v', &at); break;
            case SCALAR: compare_scalars(p, c, &at); break;
            case SCALE: compare_field(p, c, &at, at.ours.scale, at.theirs.scale); break;
            case ZERO: compare_field(p, c, &at, at.ours.zero, at.theirs.zero); break;
            case KEY_SCALES: compare_bytes(p, c, at.ours.key_scales, at.theirs.key_scales); break;
            case VALUE_SCALES:
                compare_bytes(p, c, at.ours.value_scales, at.theirs.value_scales);
                break;
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
            compare_bad(c, "byte %zu of page %zu: %02x, expected %02x", i % s->page_bytes,
                        i / s->page_bytes, p->ours[i], p->theirs[i]);
    free(touched);
}

static struct comparison *part(struct pair *p, struct comparisons *all, const char *prefix,
                               const char *field, enum part which)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s", prefix, field);
    struct comparison *c = compare_new(all, name);
    compare_part(p, c, which);
    return c;
}

static void compare_parts(struct pair *p, const char *prefix, struct comparisons *all)
{
    const struct format *format = p->slots->format;
    if (format->key == KEY_CODEBOOK)
        compare_count(part(p, all, prefix, "key_codes", KEY_CODES), key_rate);
    else
        compare_exact(
            part(p, all, prefix, format->key == KEY_FP8 ? "key_bytes" : "key_codes", KEY_CODES));
    if (format->value == VALUE_AFFINE) {
        compare_count(part(p, all, prefix, "value_codes", VALUE_CODES), value_rate);
        if (format->key == KEY_CODEBOOK)
            compare_count(part(p, all, prefix, p->slots->soa ? "k_scalar" : "k_norm", SCALAR),
                          p->sample->converted ? 1 : field_rate);
        compare_count(part(p, all, prefix, "v_scale", SCALE), field_rate);
        compare_count(part(p, all, prefix, "v_zero", ZERO), field_rate);
    } else {
        compare_exact(part(p, all, prefix, "value_codes", VALUE_CODES));
        compare_exact(part(p, all, prefix, "key_scales", KEY_SCALES));
        compare_exact(part(p, all, prefix, "value_scales", VALUE_SCALES));
    }
}

static struct pair pair_make(const struct sample *sample, const struct slots *slots,
                             const unsigned char *pool)
{
    size_t d = (size_t)slots->head_size;
    return (struct pair){sample,
                         slots,
                         &sample->slots,
                         pool,
                         sample->pool,
                         cli_alloc(d, sizeof(double)),
                         cli_alloc(d, sizeof(double))};
}

void check_store(const struct sample *sample, const unsigned char *pool, struct comparisons *all)
{
    struct pair p = pair_make(sample, &sample->slots, pool);
    compare_parts(&p, "cache", all);
    struct comparison *c = compare_new(all, "cache.untouched");
    compare_untouched(&p, c);
    compare_exact(c);
    free(p.row);
    free(p.truth);
}

void check_store_across(const struct sample *sample, const struct slots *slots,
                        const unsigned char *pool, struct comparisons *all)
{
    struct pair p = pair_make(sample, slots, pool);
    compare_parts(&p, "stored", all);
    free(p.row);
    free(p.truth);
}
