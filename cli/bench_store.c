/* SPDX-License-Identifier: Apache-2.0 */
/*
** bench_store.c - storing the newest tokens of each sequence.
**
** Verified are codes: each must be the nearest one of the value just before rounding, in double
** precision, or a neighbour of it next to the boundary; and that rows decode to about what was
** stored.
*/
#include "bench.h"

#include "encode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHECKED_ROWS = 48 };

/* Loose: what a 2-bit format loses. Codes are held to their boundary. */
static const double decoded_limit = 0.4;

static size_t elements(const struct bench *b, long size)
{
    return (size_t)(b->rows * b->shape.kv_heads * size);
}

/* The slot of row `row` of a set: the newest query_tokens of each sequence. */
static int64_t slot_of(const struct bench *b, long set, long row)
{
    long sequence = row / b->shape.query_tokens, i = row % b->shape.query_tokens;
    long token = b->context[sequence] - b->shape.query_tokens + i;
    int64_t page = bench_table(b, set, sequence)[token / b->shape.page];
    return page * b->shape.page + token % b->shape.page;
}

static kvk_status make(struct bench *b, kvk_error *err)
{
    b->rows = b->batch * b->shape.query_tokens;
    b->host_slots = cli_alloc((size_t)(b->sets * b->rows), sizeof *b->host_slots);
    for (long i = 0; i < b->sets * b->rows; i++)
        b->host_slots[i] = slot_of(b, i / b->rows, i % b->rows);
    /* input of its own for every set, as far as 1 GiB goes */
    size_t each = 2 * (elements(b, b->shape.head_size) + elements(b, b->shape.value_head_size));
    size_t copies = ((size_t)1 << 30) / each;
    copies = copies < 1 ? 1 : copies > (size_t)b->sets ? (size_t)b->sets : copies;
    kvk_status status = bench_random(b, copies * elements(b, b->shape.head_size), 4, &b->key, err);
    if (!status)
        status = bench_random(b, copies * elements(b, b->shape.value_head_size), 5, &b->value, err);
    if (!status)
        status = bench_put(b, b->host_slots, (size_t)(b->sets * b->rows) * sizeof(int64_t),
                           &b->slots, err);
    return status;
}

/* Element of the input where set `set` begins. */
static size_t input_of(const struct bench *b, const struct bench_random *rows, long set, long size)
{
    size_t each = elements(b, size);
    return (size_t)set % (rows->elements / each) * each;
}

static kvk_status launch(const struct bench *b, long set, kvk_stream stream, kvk_error *err)
{
    const struct bench_shape *s = &b->shape;
    struct kvk_store_args args = KVK_INIT(struct kvk_store_args);
    args.pool = b->pool;
    args.key.data = (char *)b->key.device + 2 * input_of(b, &b->key, set, s->head_size);
    args.value.data = (char *)b->value.device + 2 * input_of(b, &b->value, set, s->value_head_size);
    args.slots = (const int64_t *)b->slots + set * b->rows;
    args.slot_type = KVK_INT64;
    args.rows = b->rows;
    return kvk_store(b->store, &args, stream, err);
}

/* Code of the centroid nearest to x. */
static unsigned nearest(const struct slots *s, double x)
{
    unsigned code = 0, count = 1u << s->format->key_bits;
    while (code + 1 < count && x > s->midpoints[code])
        code++;
    return code;
}

/* Codes of one slot that are not what the row asks for. */
static long wrong_codes(const struct slots *s, const unsigned char *page, long at, int head,
                        const double *key, const double *value)
{
    double truth[1024];
    long wrong = 0;
    struct place place = slots_at(s, at, head);
    if (s->format->key == KEY_CODEBOOK) {
        encode_key(s, key, truth);
        for (int i = 0; i < s->head_size; i++) {
            unsigned got = slots_code(page + place.key, s->format->key_bits, i);
            unsigned want = nearest(s, truth[i]);
            int near = abs((int)got - (int)want) == 1 &&
                       (fabs(truth[i] - s->midpoints[got < want ? got : want]) <= 1e-5);
            wrong += got != want && !near;
        }
    }
    if (s->format->value == VALUE_AFFINE) {
        double top = (1 << s->format->value_bits) - 1;
        encode_value(s, value, truth);
        for (int i = 0; i < s->head_size; i++) {
            double got = slots_code(page + place.value, s->format->value_bits, i);
            wrong += fabs(got - fmin(fmax(truth[i], 0), top)) > 0.5 + 1e-4 * top;
        }
    }
    return wrong;
}

static void input_row(const struct bench *b, const struct bench_random *rows, long row, int head,
                      long size, double *out)
{
    size_t at = input_of(b, rows, 0, size) + (size_t)((row * b->shape.kv_heads + head) * size);
    for (long i = 0; i < size; i++)
        out[i] = bench_random_at(b, rows, at + (size_t)i);
}

static void add(struct bench_sum *sum, const double *got, const double *want, int n)
{
    for (int i = 0; i < n; i++) {
        sum->square += (got[i] - want[i]) * (got[i] - want[i]);
        sum->reference += want[i] * want[i];
    }
    sum->count += n;
}

/* One (row, head): decoded against what was stored; the number of wrong codes. */
static long check_slot(const struct bench *b, const struct slots *s, const unsigned char *page,
                       long row, int head, struct bench_sum *sum)
{
    double key[1024], value[1024], got[1024];
    int d = s->head_size;
    long at = b->host_slots[row] % b->shape.page;
    input_row(b, &b->key, row, head, d, key);
    input_row(b, &b->value, row, head, d, value);
    slots_key(s, page, at, head, got);
    if (slots_rotated(s->format))
        slots_rotate(got, d);
    add(sum, got, key, d);
    slots_value(s, page, at, head, got);
    add(sum, got, value, d);
    return wrong_codes(s, page, at, head, key, value);
}

static kvk_status verify_codes(const struct bench *b, struct bench_sum *sum, long *wrong,
                               kvk_error *err)
{
    struct slots slots;
    size_t bytes = b->layout.page_bytes;
    unsigned char *page = cli_alloc(bytes, 1), *plain = cli_alloc(bytes, 1);
    long step = b->rows > CHECKED_ROWS ? b->rows / CHECKED_ROWS : 1;
    kvk_status status = KVK_OK;
    slots_make(slots_format(b->shape.preset), b->shape.layout, (int)b->shape.kv_heads,
               (int)b->shape.head_size, (int)b->shape.page, &slots);
    for (long row = 0; row < b->rows && !status; row += step) {
        const char *from =
            (const char *)b->pool.data + (size_t)(b->host_slots[row] / b->shape.page) * bytes;
        status = kvk_download(b->ctx, page, from, bytes, err);
        if (!status && slots.native)
            slots_from_native(&slots, page, 1, plain);
        for (int head = 0; head < b->shape.kv_heads && !status; head++)
            *wrong += check_slot(b, &slots, slots.native ? plain : page, row, head, sum);
    }
    free(page);
    free(plain);
    return status;
}

/* A format that the oracle does not know: what dequant makes of the first sequence's new rows. */
static kvk_status verify_decoded(const struct bench *b, struct bench_sum *sum, kvk_error *err)
{
    struct oracle_rows rows;
    double row[1024];
    long t = b->shape.query_tokens, first = b->context[0] - t;
    kvk_status status = bench_rows(b, 0, 0, &rows, err);
    for (long i = 0; i < t && i < CHECKED_ROWS && !status; i++) {
        long d = b->shape.head_size, dv = b->shape.value_head_size;
        input_row(b, &b->key, i, 0, d, row);
        add(sum, rows.key + (first + i) * d, row, (int)d);
        input_row(b, &b->value, i, 0, dv, row);
        add(sum, rows.value + (first + i) * dv, row, (int)dv);
    }
    if (!status)
        oracle_free(&rows);
    return status;
}

static kvk_status verify(const struct bench *b, struct bench_verdict *v, kvk_error *err)
{
    struct bench_sum sum = {0};
    long wrong = 0;
    unsigned char *out[2];
    kvk_status status =
        kvk_fill(b->ctx, b->pool.data, 0, (size_t)b->pool.pages * b->layout.page_bytes, err);
    if (!status)
        status = bench_run_once(b, out, err);
    if (!status)
        status = b->reader ? verify_decoded(b, &sum, err) : verify_codes(b, &sum, &wrong, err);
    v->rel_l2 = wrong ? INFINITY : bench_relative(&sum);
    v->limit = decoded_limit;
    v->compared = sum.count;
    v->against = b->reader ? "the rows that were stored, decoded by kvk_dequant"
                           : "codes and rows in double precision";
    return status;
}

/* Rows and slot numbers are read once, slots written once. */
static void work(const struct bench *b, struct bench_work *out)
{
    out->cache = (double)b->rows * (double)b->shape.kv_heads * (double)b->layout.slot_bytes;
    out->read = 8.0 * (double)b->rows + 2.0 * (double)elements(b, b->shape.head_size) +
                2.0 * (double)elements(b, b->shape.value_head_size);
    out->written = out->cache;
}

const struct bench_kind bench_store = {"store", KVK_STORE, make, launch, verify, work, NULL};
