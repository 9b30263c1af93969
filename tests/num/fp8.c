/* SPDX-License-Identifier: Apache-2.0 */
/* fp8.c - see fp8.h. Nothing is taken from the oracle, whose conversions are tested by this too. */
#include "fp8.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD = 256, ROWS = 256, INPUTS = HEAD * ROWS, CODES = 256, PAGE = 16, SLOT = 2 * HEAD };

/* sign, exponent, mantissa. */
static const struct flavour {
    const char *name;
    int mantissa, bias, largest; /* largest: code of the largest magnitude that is written */
    int nan;                     /* code of a NaN */
    int ties_up;                 /* a tie goes to the larger magnitude, else to the even code */
} flavours[FP8_FLAVOURS] = {
    {"e4m3", 3, 7, 0x7E, 0x00, 0},
    {"e4b15", 3, 15, 0x7E, 0x00, 1},
    {"e5m2", 2, 15, 0x7B, 0x7F, 0},
};

struct check {
    kvk_context *ctx;
    const struct flavour *flavour;
    double value[CODES];
    const kvk_kernels *kernels;
    struct kvk_layout layout;
    void *device[5];
    int ndevice;
    char *text;
    size_t cap;
};

const char *fp8_name(int flavour) { return flavours[flavour].name; }

/* --- the definitions --- */

static double code_value(const struct flavour *f, int code)
{
    int low = code & 0x7F, exponent = low >> f->mantissa, part = low & ((1 << f->mantissa) - 1);
    double sign = code & 0x80 ? -1 : 1, unit = ldexp(1, -f->mantissa);
    if (!strcmp(f->name, "e4m3") && low == 0x7F)
        return NAN;
    if (!strcmp(f->name, "e5m2") && exponent == 31)
        return part ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(part * unit, 1 - f->bias);
    return sign * ldexp(1 + part * unit, exponent - f->bias);
}

/* The code of x: the nearest magnitude, saturating, the sign of x. */
static int code_of(const struct check *c, double x)
{
    const struct flavour *f = c->flavour;
    double a = fmin(fabs(x), c->value[f->largest]), least = INFINITY;
    int best = 0, sign = signbit(x) ? 0x80 : 0;
    if (isnan(x))
        return f->nan;
    if (f->ties_up &&
        a < 0x1p-14) /* cut to a subnormal fp16 first; above, all inputs are fp16 numbers */
        a = floor(a * 0x1p24) * 0x1p-24;
    for (int code = 0; code <= f->largest; code++) {
        double off = fabs(a - c->value[code]);
        if (off < least || (off == least && (f->ties_up || code % 2 == 0))) {
            best = code;
            least = off;
        }
    }
    return sign | best;
}

static double half_value(kvk_dtype dtype, unsigned bits)
{
    int wide = dtype == KVK_FLOAT16, mantissa = wide ? 10 : 7, bias = wide ? 15 : 127;
    int top = wide ? 31 : 255;
    int exponent = (int)(bits >> mantissa) & top, part = (int)(bits & ((1u << mantissa) - 1));
    double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == top)
        return part ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(part, 1 - bias - mantissa);
    return sign * ldexp((1 << mantissa) + part, exponent - bias - mantissa);
}

/* --- calls --- */

static int failed(struct check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int failed(struct check *c, const char *format, ...)
{
    va_list args;
    int n = snprintf(c->text, c->cap, "%s: ", c->flavour->name);
    va_start(args, format);
    vsnprintf(c->text + n, c->cap - (size_t)n, format, args);
    va_end(args);
    return 0;
}

static int good(struct check *c, kvk_status status, const kvk_error *err)
{
    return status == KVK_OK ? 1 : failed(c, "%s: %s", kvk_status_name(status), err->text);
}

/* Device memory: `bytes` of `from`, or 0xFF. */
static void *upload(struct check *c, const void *from, size_t bytes)
{
    void *memory = NULL;
    kvk_error err = {0};
    if (!good(c, kvk_alloc(c->ctx, bytes, &memory, &err), &err))
        return NULL;
    c->device[c->ndevice++] = memory;
    if (!good(c,
              from ? kvk_upload(c->ctx, memory, from, bytes, &err)
                   : kvk_fill(c->ctx, memory, 0xFF, bytes, &err),
              &err))
        return NULL;
    return memory;
}

static void release(struct check *c)
{
    while (c->ndevice)
        kvk_free(c->ctx, c->device[--c->ndevice]);
}

static int prepare(struct check *c, const char *spec, kvk_dtype dtype, kvk_dtype dequant_dtype,
                   unsigned kinds)
{
    struct kvk_model model = KVK_INIT(struct kvk_model);
    char part[32];
    kvk_error err = {0};
    model.spec = spec;
    model.kv_heads = model.query_heads = 1;
    model.head_size = HEAD;
    model.page_tokens = PAGE;
    model.dtype = dtype;
    model.dequant_dtype = dequant_dtype;
    model.kinds = kinds;
    c->layout = KVK_INIT(struct kvk_layout);
    if (!good(c, kvk_prepare(c->ctx, &model, &c->kernels, &err), &err) ||
        !good(c, kvk_layout(c->kernels, &c->layout, &err), &err))
        return 0;
    snprintf(part, sizeof part, ":k=%s:v=%s:", c->flavour->name, c->flavour->name);
    if (!strstr(c->layout.signature, part))
        return failed(c, "the signature %s does not name it", c->layout.signature);
    return c->layout.slot_bytes == SLOT ? 1 : failed(c, "slots of %zu bytes", c->layout.slot_bytes);
}

/* --- all inputs --- */

static int compare_stored(struct check *c, kvk_dtype dtype, const uint16_t *rows,
                          const uint8_t *codes, const char *side)
{
    for (size_t i = 0; i < INPUTS; i++) {
        int want = code_of(c, half_value(dtype, rows[i]));
        int got = codes[i / HEAD * SLOT + i % HEAD];
        if (got != want)
            return failed(c, "%s %s %04x (%.9g) is stored as %02x, expected %02x",
                          dtype == KVK_FLOAT16 ? "fp16" : "bf16", side, rows[i],
                          half_value(dtype, rows[i]), (unsigned)got, (unsigned)want);
    }
    return 1;
}

/* Keys count up, values down, so that each number meets every place. */
static int store_all(struct check *c, kvk_dtype dtype)
{
    struct kvk_store_args args = KVK_INIT(struct kvk_store_args);
    static uint16_t key[INPUTS], value[INPUTS];
    static uint8_t pool[ROWS * SLOT];
    int32_t slots[ROWS];
    kvk_error err = {0};
    for (int i = 0; i < INPUTS; i++) {
        key[i] = (uint16_t)i;
        value[i] = (uint16_t)(INPUTS - 1 - i);
    }
    for (int i = 0; i < ROWS; i++)
        slots[i] = i;
    args.pool.pages = ROWS / PAGE;
    args.pool.data = upload(c, NULL, sizeof pool);
    args.key.data = upload(c, key, sizeof key);
    args.value.data = upload(c, value, sizeof value);
    args.slots = upload(c, slots, sizeof slots);
    args.rows = ROWS;
    if (!args.pool.data || !args.key.data || !args.value.data || !args.slots)
        return 0;
    return good(c, kvk_store(c->kernels, &args, NULL, &err), &err) &&
           good(c, kvk_synchronize(c->ctx, &err), &err) &&
           good(c, kvk_download(c->ctx, pool, args.pool.data, sizeof pool, &err), &err) &&
           compare_stored(c, dtype, key, pool + c->layout.key_offset, "key") &&
           compare_stored(c, dtype, value, pool + c->layout.value_offset, "value");
}

/* --- all codes --- */

static int compare_decoded(struct check *c, kvk_dtype dtype, const uint8_t *codes,
                           const uint16_t *rows, const char *side)
{
    for (int i = 0; i < CODES; i++) {
        double want = c->value[codes[i]], got = half_value(dtype, rows[i]);
        if (dtype == KVK_FLOAT16) /* never an infinity */
            want = isnan(want) ? want : fmin(fmax(want, -65504), 65504);
        if (isnan(want) ? !isnan(got) : got != want || !signbit(got) != !signbit(want))
            return failed(c, "%s code %02x is %.9g (%04x) as %s, expected %.9g", side, codes[i],
                          got, rows[i], dtype == KVK_FLOAT16 ? "fp16" : "bf16", want);
    }
    return 1;
}

static int dequant_all(struct check *c, kvk_dtype dtype)
{
    struct kvk_dequant_args args = KVK_INIT(struct kvk_dequant_args);
    const int32_t table[1] = {0}, starts[2] = {0, 1};
    uint8_t pool[PAGE * SLOT] = {0}, *key = pool + c->layout.key_offset,
                        *value = pool + c->layout.value_offset;
    uint16_t rows[2][CODES];
    kvk_error err = {0};
    for (int i = 0; i < CODES; i++) {
        key[i] = (uint8_t)i;
        value[i] = (uint8_t)(CODES - 1 - i);
    }
    args.pool.pages = 1;
    args.pool.data = upload(c, pool, sizeof pool);
    args.key.data = upload(c, NULL, sizeof rows[0]);
    args.value.data = upload(c, NULL, sizeof rows[1]);
    args.block_table = upload(c, table, sizeof table);
    args.out_start = upload(c, starts, sizeof starts);
    args.table_stride = args.sequences = args.rows = 1;
    if (!args.pool.data || !args.key.data || !args.value.data || !args.block_table ||
        !args.out_start)
        return 0;
    return good(c, kvk_dequant(c->kernels, &args, NULL, &err), &err) &&
           good(c, kvk_synchronize(c->ctx, &err), &err) &&
           good(c, kvk_download(c->ctx, rows[0], args.key.data, sizeof rows[0], &err), &err) &&
           good(c, kvk_download(c->ctx, rows[1], args.value.data, sizeof rows[1], &err), &err) &&
           compare_decoded(c, dtype, key, rows[0], "key") &&
           compare_decoded(c, dtype, value, rows[1], "value");
}

int fp8_check(kvk_context *ctx, const char *spec, int flavour, char *text, size_t cap)
{
    static const kvk_dtype dtypes[2] = {KVK_FLOAT16, KVK_BFLOAT16};
    struct check c = {.ctx = ctx, .flavour = &flavours[flavour], .text = text, .cap = cap};
    int passed = 1;
    for (int code = 0; code < CODES; code++)
        c.value[code] = code_value(c.flavour, code);
    for (int i = 0; i < 2 && passed; i++) {
        passed = prepare(&c, spec, dtypes[i], 0, KVK_STORE) && store_all(&c, dtypes[i]);
        release(&c);
        if (passed)
            passed =
                prepare(&c, spec, dtypes[i], dtypes[i], KVK_DEQUANT) && dequant_all(&c, dtypes[i]);
        release(&c);
    }
    return passed;
}
