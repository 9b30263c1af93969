/* SPDX-License-Identifier: Apache-2.0 */
/* bench_rows.c - what a bench's cache holds, as doubles, and attention over it to compare with. */
#include "bench.h"

#include "number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Pages of a sequence of set 0, one behind the other; table[i] = i. */
static kvk_status fetch(const struct bench *b, long sequence, unsigned char **out, int32_t **table,
                        kvk_error *err)
{
    long pages = (b->context[sequence] + b->shape.page - 1) / b->shape.page;
    size_t bytes = b->layout.page_bytes;
    const int32_t *from = bench_table(b, 0, sequence);
    *out = cli_alloc((size_t)pages, bytes);
    *table = cli_alloc((size_t)pages, sizeof **table);
    kvk_status status = KVK_OK;
    for (long i = 0; i < pages && !status; i++) {
        const char *page = (const char *)b->pool.data + (size_t)from[i] * bytes;
        status = kvk_download(b->ctx, *out + (size_t)i * bytes, page, bytes, err);
        (*table)[i] = (int32_t)i;
    }
    return status;
}

static kvk_status rows_of_oracle(const struct bench *b, long sequence, int head,
                                 struct oracle_rows *out, kvk_error *err)
{
    struct slots slots;
    unsigned char *pages;
    int32_t *table;
    slots_make(slots_format(b->shape.preset), b->shape.layout, (int)b->shape.kv_heads,
               (int)b->shape.head_size, (int)b->shape.page, &slots);
    kvk_status status = fetch(b, sequence, &pages, &table, err);
    if (!status && slots.native) {
        size_t n = (size_t)((b->context[sequence] + b->shape.page - 1) / b->shape.page);
        unsigned char *plain = cli_alloc(n, slots.page_bytes);
        slots_from_native(&slots, pages, n, plain);
        free(pages);
        pages = plain;
    }
    if (!status)
        oracle_decode(&slots, pages, table, b->context[sequence], head, out);
    free(pages);
    free(table);
    return status;
}

/* One side of one head out of rows [tokens][heads][size] of fp16. */
static double *pick_head(const unsigned char *rows, long tokens, long heads, int head, long size)
{
    double *out = cli_alloc((size_t)(tokens * size), sizeof *out);
    for (long t = 0; t < tokens; t++)
        for (long i = 0; i < size; i++)
            out[t * size + i] =
                number_at(NUMBER_F16, rows, (size_t)((t * heads + head) * size + i));
    return out;
}

static kvk_status rows_of_dequant(const struct bench *b, long sequence, int head,
                                  struct oracle_rows *out, kvk_error *err)
{
    const struct bench_shape *s = &b->shape;
    long tokens = b->context[sequence], sizes[2] = {s->head_size, s->value_head_size};
    int32_t starts[2] = {0, (int32_t)tokens};
    struct kvk_dequant_args args = KVK_INIT(struct kvk_dequant_args);
    void *device[2] = {0}, *device_starts = NULL;
    unsigned char *rows[2] = {0};
    kvk_status status = kvk_alloc(b->ctx, sizeof starts, &device_starts, err);
    if (!status)
        status = kvk_upload(b->ctx, device_starts, starts, sizeof starts, err);
    for (int i = 0; i < 2 && !status; i++)
        status = kvk_alloc(b->ctx, (size_t)(tokens * s->kv_heads * sizes[i]) * 2, &device[i], err);
    args.pool = b->pool;
    args.key.data = device[0];
    args.value.data = device[1];
    args.block_table = (const int32_t *)b->tables + sequence * b->stride;
    args.table_stride = b->stride;
    args.out_start = device_starts;
    args.sequences = 1;
    args.rows = tokens;
    args.rotate_back = 1;
    if (!status)
        status = kvk_dequant(b->reader, &args, NULL, err);
    if (!status)
        status = kvk_synchronize(b->ctx, err);
    for (int i = 0; i < 2 && !status; i++) {
        size_t bytes = (size_t)(tokens * s->kv_heads * sizes[i]) * 2;
        rows[i] = cli_alloc(bytes, 1);
        status = kvk_download(b->ctx, rows[i], device[i], bytes, err);
    }
    if (!status) {
        *out = (struct oracle_rows){.head_size = (int)sizes[0], .value_head_size = (int)sizes[1]};
        out->tokens = tokens;
        out->key = pick_head(rows[0], tokens, s->kv_heads, head, sizes[0]);
        out->value = pick_head(rows[1], tokens, s->kv_heads, head, sizes[1]);
    }
    kvk_free(b->ctx, device_starts);
    for (int i = 0; i < 2; i++) {
        kvk_free(b->ctx, device[i]);
        free(rows[i]);
    }
    return status;
}

kvk_status bench_rows(const struct bench *b, long sequence, int head, struct oracle_rows *out,
                      kvk_error *err)
{
    memset(out, 0, sizeof *out);
    return b->reader ? rows_of_dequant(b, sequence, head, out, err)
                     : rows_of_oracle(b, sequence, head, out, err);
}

const char *bench_rows_source(const struct bench *b)
{
    return b->reader ? "double precision over rows that kvk_dequant decoded" : "double precision";
}

void bench_compare(const struct bench *b, const unsigned char *got, size_t at, const double *want,
                   int n, struct bench_sum *sum)
{
    enum number number = b->shape.dtype == KVK_FLOAT16 ? NUMBER_F16 : NUMBER_BF16;
    for (int i = 0; i < n; i++) {
        double diff = number_at(number, got, at + (size_t)i) - want[i];
        sum->square += diff * diff;
        sum->reference += want[i] * want[i];
    }
    sum->count += n;
}

double bench_relative(const struct bench_sum *sum)
{
    return sum->reference > 0 ? sqrt(sum->square / sum->reference) : INFINITY;
}

static size_t output_row(const struct bench *b, long sequence, long query_row, long query_head)
{
    const struct bench_shape *s = &b->shape;
    return (size_t)((sequence * s->query_tokens + query_row) * s->kv_heads * s->gqa + query_head);
}

/* Decodes the cache and attends over it: by far the most of a verification. */
static kvk_status make_reference(const struct bench *b, const long *query_rows,
                                 struct bench_reference *out, kvk_error *err)
{
    const struct bench_shape *s = &b->shape;
    struct oracle_rows rows;
    struct oracle_mask mask = {.scale = 1 / sqrt((double)s->head_size)};
    kvk_status status = bench_rows(b, out->sequence, out->head, &rows, err);
    if (status)
        return status;
    size_t d = (size_t)s->head_size, dv = (size_t)s->value_head_size;
    double *query = cli_alloc(d, sizeof *query), *want;
    want = out->want = cli_alloc((size_t)(out->count * s->gqa) * dv, sizeof *want);
    for (int r = 0; r < out->count; r++)
        for (long h = out->head * s->gqa; h < (out->head + 1) * s->gqa; h++, want += dv) {
            long position =
                s->full ? rows.tokens - 1 : rows.tokens - s->query_tokens + query_rows[r];
            for (size_t i = 0; i < d; i++)
                query[i] = bench_random_at(b, &b->query,
                                           output_row(b, out->sequence, query_rows[r], h) * d + i);
            oracle_attend(&rows, query, position, &mask, want);
        }
    oracle_free(&rows);
    free(query);
    return KVK_OK;
}

static int is_of(const struct bench_reference *r, long sequence, int head, int count)
{
    return r->sequence == sequence && r->head == head && r->count == count;
}

/* The one of (sequence, head), made if it is not there. */
static kvk_status get_reference(const struct bench *b, long sequence, int head,
                                const long *query_rows, int count,
                                const struct bench_reference **out, kvk_error *err)
{
    struct bench_reference *r = b->references, *last = r + BENCH_REFERENCES - 1;
    while (r < last && r->want && !is_of(r, sequence, head, count))
        r++;
    *out = r;
    if (r->want && is_of(r, sequence, head, count))
        return KVK_OK;
    free(r->want);
    *r = (struct bench_reference){sequence, head, count, NULL};
    return make_reference(b, query_rows, r, err);
}

void bench_references_free(struct bench *b)
{
    for (int i = 0; b->references && i < BENCH_REFERENCES; i++)
        free(b->references[i].want);
    free(b->references);
    b->references = NULL;
}

kvk_status bench_attention(const struct bench *b, long sequence, int head, const long *query_rows,
                           int count, const unsigned char *out, struct bench_sum *sum,
                           kvk_error *err)
{
    const struct bench_reference *reference;
    kvk_status status = get_reference(b, sequence, head, query_rows, count, &reference, err);
    if (status)
        return status;
    size_t dv = (size_t)b->shape.value_head_size;
    const double *want = reference->want;
    for (int r = 0; r < count; r++)
        for (long h = head * b->shape.gqa; h < (head + 1) * b->shape.gqa; h++, want += dv)
            bench_compare(b, out, output_row(b, sequence, query_rows[r], h) * dv, want, (int)dv,
                          sum);
    return KVK_OK;
}

kvk_status bench_run_once(const struct bench *b, unsigned char *out[2], kvk_error *err)
{
    kvk_status status = KVK_OK;
    out[0] = out[1] = NULL;
    for (int i = 0; i < 2 && !status; i++)
        if (b->out[i])
            status = kvk_fill(b->ctx, b->out[i], 0xFF, b->out_bytes[i], err);
    if (!status)
        status = b->kind->launch(b, 0, NULL, err);
    if (!status)
        status = kvk_synchronize(b->ctx, err);
    for (int i = 0; i < 2 && !status; i++)
        if (b->out[i]) {
            out[i] = cli_alloc(b->out_bytes[i], 1);
            status = kvk_download(b->ctx, out[i], b->out[i], b->out_bytes[i], err);
        }
    return status;
}
