/* SPDX-License-Identifier: Apache-2.0 */
/* bench_unified.c - prefill of a chunk from the quantised cache: query_tokens rows a sequence. */
#include "bench.h"

#include <stdlib.h>

static kvk_status make(struct bench *b, kvk_error *err)
{
    int32_t *starts = cli_alloc((size_t)b->batch + 1, sizeof *starts);
    b->rows = b->batch * b->shape.query_tokens;
    for (long i = 0; i <= b->batch; i++)
        starts[i] = (int32_t)(i * b->shape.query_tokens);
    kvk_status status =
        bench_put(b, starts, (size_t)(b->batch + 1) * sizeof *starts, &b->starts, err);
    if (!status)
        status = bench_attend_make(b, err);
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

/* First, middle and last row. */
static kvk_status verify(const struct bench *b, struct bench_verdict *v, kvk_error *err)
{
    long t = b->shape.query_tokens, rows[3] = {0, t / 2, t - 1};
    return bench_attend_verify(b, rows, 3, v, err);
}

static void work(const struct bench *b, struct bench_work *out)
{
    bench_attend_work(b, 2 * b->batch + 1, out); /* lengths, and where each chunk begins */
}

const struct bench_kind bench_unified = {"unified", KVK_UNIFIED, make,  launch,
                                         verify,    work,        limits};
