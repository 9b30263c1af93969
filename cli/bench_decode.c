/* SPDX-License-Identifier: Apache-2.0 */
/* bench_decode.c - one decode step: the newest query tokens of each sequence against its cache. */
#include "bench.h"

#include "check_read.h"

#include <stdlib.h>

static size_t query_elements(const struct bench *b, long size)
{
    return (size_t)(b->rows * b->shape.kv_heads * b->shape.gqa * size);
}

static kvk_status make(struct bench *b, kvk_error *err)
{
    b->rows = b->batch * b->shape.query_tokens;
    kvk_status status = bench_random(b, query_elements(b, b->shape.head_size), 3, &b->query, err);
    if (!status)
        status = bench_output(b, 0, 2 * query_elements(b, b->shape.value_head_size), err);
    return status;
}

static void limits(const struct bench *b, struct kvk_limits *out)
{
    out->sequences = b->batch;
    out->context = b->longest;
    out->query_tokens = b->shape.query_tokens;
}

static kvk_status launch(const struct bench *b, long set, kvk_stream stream, kvk_error *err)
{
    struct kvk_decode_args args = KVK_INIT(struct kvk_decode_args);
    args.pool = b->pool;
    args.query.data = b->query.device;
    args.out.data = b->out[0];
    args.block_table = (const int32_t *)b->tables + set * b->batch * b->stride;
    args.table_stride = b->stride;
    args.lengths = b->lengths;
    args.sequences = b->batch;
    args.query_tokens = b->shape.query_tokens;
    args.max_context = b->longest;
    args.workspace = b->workspace;
    args.workspace_bytes = b->workspace_bytes;
    args.splits = (int32_t)b->shape.splits;
    args.full = b->shape.full;
    return kvk_decode(b->kernels, &args, stream, err);
}

/* The first sequence with the first head, the last with the last; all their query tokens. */
static kvk_status verify(const struct bench *b, struct bench_verdict *v, kvk_error *err)
{
    unsigned char *out[2];
    long tokens[64];
    int count = (int)(b->shape.query_tokens < 64 ? b->shape.query_tokens : 64);
    struct bench_sum sum = {0};
    for (int i = 0; i < count; i++)
        tokens[i] = i;
    kvk_status status = bench_run_once(b, out, err);
    if (!status)
        status = bench_attention(b, 0, 0, tokens, count, out[0], &sum, err);
    if (!status && (b->batch > 1 || b->shape.kv_heads > 1))
        status = bench_attention(b, b->batch - 1, (int)b->shape.kv_heads - 1, tokens, count, out[0],
                                 &sum, err);
    free(out[0]);
    *v = (struct bench_verdict){bench_relative(&sum), check_output_limit(b->shape.dtype), sum.count,
                                bench_rows_source(b)};
    return status;
}

/* Two products of the visible (query, key) pairs, two operations a multiplication. */
static double flops(const struct bench *b)
{
    double t = (double)b->shape.query_tokens, unseen = b->shape.full ? 0 : t * (t - 1) / 2;
    double pairs = t * (double)b->tokens - unseen * (double)b->batch;
    return 2 * pairs * (double)(b->shape.kv_heads * b->shape.gqa) *
           (double)(b->shape.head_size + b->shape.value_head_size);
}

/* The cache, page numbers, lengths and queries are read once, outputs written once. What splits
** hand to the merge is the schedule's own affair and not counted. */
static void work(const struct bench *b, struct bench_work *out)
{
    out->cache = (double)b->tokens * (double)b->shape.kv_heads * (double)b->layout.slot_bytes;
    out->read = out->cache + 4.0 * (double)(b->set_pages + b->batch) +
                2.0 * (double)query_elements(b, b->shape.head_size);
    out->written = 2.0 * (double)query_elements(b, b->shape.value_head_size);
    out->flops = flops(b);
}

const struct bench_kind bench_decode = {"decode", KVK_DECODE, make, launch, verify, work, limits};
