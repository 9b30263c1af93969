/* SPDX-License-Identifier: Apache-2.0 */
/* bench_dequant.c - a cache back to 16-bit rows, keys rotated back. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

enum { CHECKED_TOKENS = 4096 };

static size_t elements(const struct bench *b, long size)
{
    return (size_t)(b->rows * b->shape.kv_heads * size);
}

static kvk_status make(struct bench *b, kvk_error *err)
{
    int32_t *starts = cli_alloc((size_t)b->batch + 1, sizeof *starts);
    b->rows = b->tokens;
    for (long i = 0; i < b->batch; i++)
        starts[i + 1] = starts[i] + (int32_t)b->context[i];
    kvk_status status =
        bench_put(b, starts, (size_t)(b->batch + 1) * sizeof *starts, &b->starts, err);
    if (!status)
        status = bench_output(b, 0, 2 * elements(b, b->shape.head_size), err);
    if (!status)
        status = bench_output(b, 1, 2 * elements(b, b->shape.value_head_size), err);
    free(starts);
    return status;
}

static kvk_status launch(const struct bench *b, long set, kvk_stream stream, kvk_error *err)
{
    struct kvk_dequant_args args = KVK_INIT(struct kvk_dequant_args);
    args.pool = b->pool;
    args.key.data = b->out[0];
    args.value.data = b->out[1];
    args.block_table = (const int32_t *)b->tables + set * b->batch * b->stride;
    args.table_stride = b->stride;
    args.out_start = b->starts;
    args.sequences = b->batch;
    args.rows = b->rows;
    args.rotate_back = 1;
    return kvk_dequant(b->kernels, &args, stream, err);
}

/* One head of a sequence whose first row is `first`. */
static kvk_status compare(const struct bench *b, long sequence, long first, int head,
                          unsigned char *out[2], struct bench_sum *sum, kvk_error *err)
{
    const struct bench_shape *s = &b->shape;
    struct oracle_rows rows;
    long d = s->head_size, dv = s->value_head_size;
    kvk_status status = bench_rows(b, sequence, head, &rows, err);
    if (status)
        return status;
    for (long t = 0; t < rows.tokens && t < CHECKED_TOKENS; t++) {
        size_t row = (size_t)((first + t) * s->kv_heads + head);
        if (rows.rotated)
            slots_rotate(rows.key + t * d, (int)d);
        bench_compare(b, out[0], row * (size_t)d, rows.key + t * d, (int)d, sum);
        bench_compare(b, out[1], row * (size_t)dv, rows.value + t * dv, (int)dv, sum);
    }
    oracle_free(&rows);
    return KVK_OK;
}

static kvk_status verify(const struct bench *b, struct bench_verdict *v, kvk_error *err)
{
    unsigned char *out[2];
    struct bench_sum sum = {0};
    long last = b->batch - 1;
    kvk_status status = bench_run_once(b, out, err);
    if (!status)
        status = compare(b, 0, 0, 0, out, &sum, err);
    if (!status)
        status = compare(b, last, b->tokens - b->context[last], (int)b->shape.kv_heads - 1, out,
                         &sum, err);
    free(out[0]);
    free(out[1]);
    v->rel_l2 = bench_relative(&sum);
    v->limit = b->shape.dtype == KVK_FLOAT16 ? 4e-4 : 2.5e-3; /* the rounding of the output */
    v->compared = sum.count;
    v->against = bench_rows_source(b);
    return status;
}

/* The cache and page numbers are read once, rows written once. */
static void work(const struct bench *b, struct bench_work *out)
{
    out->cache = (double)b->rows * (double)b->shape.kv_heads * (double)b->layout.slot_bytes;
    out->read = out->cache + 4.0 * (double)(b->set_pages + b->batch + 1);
    out->written = 2.0 * (double)elements(b, b->shape.head_size) +
                   2.0 * (double)elements(b, b->shape.value_head_size);
}

const struct bench_kind bench_dequant = {"dequant", KVK_DEQUANT, make, launch, verify, work, NULL};
