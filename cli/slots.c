/* SPDX-License-Identifier: Apache-2.0 */
/*
** slots.c - byte formats of the presets in double precision.
**
** aos: a slot is key codes, key field, value codes, value fields. soa: a page begins with the data
** records (key codes, value codes; token-major), then one array of page_tokens fields for each
** (head, field). E2M1: codes and group scales a side.
*/
#include "slots.h"

#include "number.h"

#include <math.h>
#include <string.h>

static const struct format formats[] = {
    {"turboquant_k8v4", KEY_FP8, 8, VALUE_AFFINE, 4},
    {"turboquant_4bit_nc", KEY_CODEBOOK, 4, VALUE_AFFINE, 4},
    {"turboquant_k3v4_nc", KEY_CODEBOOK, 3, VALUE_AFFINE, 4},
    {"turboquant_3bit_nc", KEY_CODEBOOK, 3, VALUE_AFFINE, 3},
    {"ultraquant_4bit", KEY_E2M1, 4, VALUE_E2M1, 4},
    {"ultraquant_4bit_e4m3q", KEY_E2M1, 4, VALUE_E2M1, 4},
};

const struct format *slots_format_at(int index)
{
    return index >= 0 && index < (int)(sizeof formats / sizeof *formats) ? &formats[index] : NULL;
}

const struct format *slots_format(const char *preset)
{
    const struct format *format;
    for (int i = 0; (format = slots_format_at(i)); i++)
        if (!strcmp(format->preset, preset))
            return format;
    return NULL;
}

int slots_rotated(const struct format *format)
{
    return format->key != KEY_FP8;
}

int slots_make(const struct format *format, const char *layout, int heads, int head_size,
               int page_tokens, struct slots *out)
{
    size_t d = (size_t)head_size;
    int e2m1 = format->key == KEY_E2M1, native = !strcmp(layout, "native");
    int soa = native ? !e2m1 : !strcmp(layout, "soa");
    if (head_size < 8 || head_size > 4096 || head_size % (e2m1 ? SLOTS_GROUP : 8) || heads < 1
        || page_tokens < 1 || (e2m1 && soa) || (native && (head_size % 64 || page_tokens % 16)))
        return 0;
    memset(out, 0, sizeof *out);
    out->format = format;
    out->soa = soa;
    out->native = native;
    out->heads = heads;
    out->head_size = head_size;
    out->page_tokens = page_tokens;
    out->key_bytes = d * (size_t)format->key_bits / 8;
    out->value_bytes = d * (size_t)format->value_bits / 8;
    out->scale_bytes = e2m1 ? d / SLOTS_GROUP : 0;
    out->fields = e2m1 ? 0 : format->key == KEY_CODEBOOK ? 3 : 2;
    size_t slot =
        out->key_bytes + out->value_bytes + 2 * out->scale_bytes + 2 * (size_t)out->fields;
    out->slot_bytes = slot + slot % 2;
    out->page_bytes = out->slot_bytes * (size_t)heads * (size_t)page_tokens;
    if (format->key == KEY_CODEBOOK) {
        int count = 1 << format->key_bits;
        slots_centroids(head_size, format->key_bits, out->centroids);
        for (int i = 0; i + 1 < count; i++)
            out->midpoints[i] = (float)(out->centroids[i] + out->centroids[i + 1]) / 2;
    }
    return 1;
}

static struct place soa_at(const struct slots *s, size_t page, size_t position, size_t head)
{
    size_t record = s->key_bytes + s->value_bytes, heads = (size_t)s->heads,
           tokens = (size_t)s->page_tokens;
    size_t fields = (size_t)s->fields, array = 2 * tokens;
    struct place at = {0};
    at.key = page + (position * heads + head) * record;
    at.value = at.key + s->key_bytes;
    size_t field = page + tokens * heads * record + head * fields * array + 2 * position;
    if (s->format->key == KEY_CODEBOOK) {
        at.scalar = field;
        field += array;
    }
    at.scale = field;
    at.zero = field + array;
    return at;
}

struct place slots_at(const struct slots *s, long slot, int head)
{
    size_t page = (size_t)(slot / s->page_tokens) * s->page_bytes,
           position = (size_t)(slot % s->page_tokens);
    if (s->soa)
        return soa_at(s, page, position, (size_t)head);
    struct place at = {0};
    size_t offset = page + (position * (size_t)s->heads + (size_t)head) * s->slot_bytes;
    at.key = offset;
    offset += s->key_bytes;
    at.key_scales = at.scalar = offset;
    offset += s->scale_bytes + (s->format->key == KEY_CODEBOOK ? 2 : 0);
    at.value = offset;
    offset += s->value_bytes;
    at.value_scales = at.scale = offset;
    at.zero = offset + 2;
    return at;
}

unsigned slots_code(const unsigned char *codes, int bits, int d)
{
    unsigned first = (unsigned)d * (unsigned)bits, shift = first % 8,
             code = codes[first / 8] >> shift;
    if (shift + (unsigned)bits > 8)
        code |= (unsigned)codes[first / 8 + 1] << (8 - shift);
    return code & ((1u << bits) - 1);
}

static double field(const unsigned char *bytes)
{
    double value = number_from_half(number_u16(bytes));
    return isnan(value) ? 0 : fmin(fmax(value, -65504), 65504);
}

static void decode_e2m1(const struct slots *s, const unsigned char *codes,
                        const unsigned char *scales, double *out)
{
    for (int d = 0; d < s->head_size; d++) {
        int exponent = scales[d / SLOTS_GROUP];
        out[d] = exponent ? ldexp(number_from_e2m1(slots_code(codes, 4, d)), exponent - 127) : 0;
    }
}

void slots_key(const struct slots *s, const unsigned char *pool, long slot, int head, double *out)
{
    struct place at = slots_at(s, slot, head);
    double norm = 0;
    if (s->format->key == KEY_E2M1) {
        decode_e2m1(s, pool + at.key, pool + at.key_scales, out);
        return;
    }
    for (int d = 0; d < s->head_size; d++) {
        unsigned code = slots_code(pool + at.key, s->format->key_bits, d);
        out[d] = s->format->key == KEY_FP8 ? number_from_e4m3((uint8_t)code) : s->centroids[code];
        norm += out[d] * out[d];
    }
    if (s->format->key != KEY_CODEBOOK)
        return;
    /* soa folds the norm correction into the stored scalar; aos corrects at every read */
    double factor = field(pool + at.scalar) / (s->soa ? 1 : sqrt(norm + 1e-16));
    for (int d = 0; d < s->head_size; d++)
        out[d] *= factor;
}

void slots_value(const struct slots *s, const unsigned char *pool, long slot, int head, double *out)
{
    struct place at = slots_at(s, slot, head);
    if (s->format->value == VALUE_E2M1) {
        decode_e2m1(s, pool + at.value, pool + at.value_scales, out);
        return;
    }
    double scale = field(pool + at.scale), zero = field(pool + at.zero);
    for (int d = 0; d < s->head_size; d++)
        out[d] = slots_code(pool + at.value, s->format->value_bits, d) * scale + zero;
}

/* Mean of the density over [a, b] by 200 trapezoids; `keep` when the cell holds no mass. The
 * unnormalised density serves the ratio, but the test on the mass needs the true one. */
static double cell_mean(double a, double b, double variance, double keep)
{
    double step = (b - a) / 200, mass = 0, moment = 0, height = 1 / sqrt(2 * M_PI * variance);
    for (int i = 0; i <= 200; i++) {
        double x = i == 200 ? b : a + i * step;
        double density = height * exp(-x * x / (2 * variance)) * (i == 0 || i == 200 ? 0.5 : 1);
        mass += density;
        moment += x * density;
    }
    return mass * step > 1e-15 ? moment / mass : keep;
}

void slots_centroids(int head_size, int bits, double *out)
{
    int count = 1 << bits;
    double variance = 1.0 / head_size, sigma = sqrt(variance), next[16];
    for (int i = 0; i < count; i++)
        out[i] = -3.5 * sigma + 7 * sigma * (i + 0.5) / count;
    for (int pass = 0; pass < 200; pass++) {
        double change = 0;
        for (int i = 0; i < count; i++) {
            double a = i ? (out[i - 1] + out[i]) / 2 : -10.5 * sigma;
            double b = i + 1 < count ? (out[i] + out[i + 1]) / 2 : 10.5 * sigma;
            next[i] = cell_mean(a, b, variance, out[i]);
            change = fmax(change, fabs(next[i] - out[i]));
        }
        if (change < 1e-10)
            break;
        memcpy(out, next, (size_t)count * sizeof *out);
    }
    for (int i = 0; i < count; i++)
        out[i] = (float)out[i];
}

void slots_rotate(double *row, int head_size)
{
    int order = head_size & -head_size; /* the largest power of two that divides it */
    for (int mask = 1; mask < order; mask *= 2)
        for (int d = 0; d < head_size; d++)
            if (!(d & mask)) {
                double low = row[d], high = row[d + mask];
                row[d] = low + high;
                row[d + mask] = low - high;
            }
    for (int d = 0; d < head_size; d++)
        row[d] /= sqrt(order);
}
