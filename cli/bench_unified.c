/* SPDX-License-Identifier: Apache-2.0 */
/* bench_unified.c - prefill of a chunk from the quantised cache: query_tokens rows a sequence. */
#include "bench.h"

#include "check_read.h"

#include <stdlib.h>

static size_t query_elements(const struct bench *b, long size)
{
    return (size_t)(b->rows * b->shape.kv_heads * b->shape.gqa * size);
}

static kvk_status make(struct bench *b, kvk_error *err)
{
    int32_t *starts = cli_alloc((size_t)b->batch + 1, sizeof *starts);
    b->rows = b->batch * b->shape.query_tokens;
    for (long i = 0; i <= b->batch; i++)
        starts[i] = (int32_t)(i * b->shape.query_tokens);
    kvk_status status =
        bench_put(b, starts, (size_t)(b->batch + 1) * sizeof *starts, &b->starts, err);
    if (!status)
        status = bench_random(b, query_elements(b, b->shape.head_size), 3, &b->query, err);
    if (!status)
        status = bench_output(b, 0, 2 * query_elements(b, b->shape.value_head_size), err);
    free(starts);
    return status;
}

static void limits(const struct bench *b, struct kvk_limits *out)
{
    out->sequences = b->batch;
    out->context = b->longest;
    out->tokens = b->rows;
}

static kvk_status launch(const struct bench *b, long set, kvk_stream stream, kvk_error *err)
{
    struct kvk_unified_args args = KVK_INIT(struct kvk_unified_args);
    args.pool = b->pool;
    args.query.data = b->query.device;
    args.out.data = b->out[0];
    args.block_table = (const int32_t *)b->tables + set * b->batch * b->stride;
    args.table_stride = b->stride;
    args.lengths = b->lengths;
    args.query_start = b->starts;
    args.sequences = b->batch;
    args.tokens = b->rows;
    args.workspace = b->workspace;
    args.workspace_bytes = b->workspace_bytes;
    args.full = b->shape.full;
    return kvk_unified(b->kernels, &args, stream, err);
}

/* First, middle and last row of the first and the last sequence. */
static kvk_status verify(const struct bench *b, struct bench_verdict *v, kvk_error *err)
{
    unsigned char *out[2];
    long t = b->shape.query_tokens, rows[3] = {0, t / 2, t - 1};
    struct bench_sum sum = {0};
    kvk_status status = bench_run_once(b, out, err);
    if (!status)
        status = bench_attention(b, 0, 0, rows, 3, out[0], &sum, err);
    if (!status && (b->batch > 1 || b->shape.kv_heads > 1))
        status = bench_attention(b, b->batch - 1, (int)b->shape.kv_heads - 1, rows, 3, out[0], &sum,
                                 err);
    free(out[0]);
    *v = (struct bench_verdict){bench_relative(&sum), check_output_limit(b->shape.dtype), sum.count,
                                bench_rows_source(b)};
    return status;
}

/* Two products of the visible (query, key) pairs, two operations a multiplication. */
static double flops(const struct bench *b)
{
    double pairs = 0, t = (double)b->shape.query_tokens;
    for (long i = 0; i < b->batch; i++)
        pairs +=
            b->shape.full ? t * (double)b->context[i] : t * (double)b->context[i] - t * (t - 1) / 2;
    return 2 * pairs * (double)(b->shape.kv_heads * b->shape.gqa) *
           (double)(b->shape.head_size + b->shape.value_head_size);
}

static void work(const struct bench *b, struct bench_work *out)
{
    out->cache = (double)b->tokens * (double)b->shape.kv_heads * (double)b->layout.slot_bytes;
    out->read = out->cache + 4.0 * (double)(b->set_pages + 2 * b->batch + 1) +
                2.0 * (double)query_elements(b, b->shape.head_size);
    out->written = 2.0 * (double)query_elements(b, b->shape.value_head_size);
    out->flops = flops(b);
}

const struct bench_kind bench_unified = {"unified", KVK_UNIFIED, make,  launch,
                                         verify,    work,        limits};
