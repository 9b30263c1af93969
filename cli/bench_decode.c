/* SPDX-License-Identifier: Apache-2.0 */
/* bench_decode.c - one decode step: the newest query tokens of each sequence against its cache. */
#include "bench.h"

static kvk_status make(struct bench *b, kvk_error *err)
{
    b->rows = b->batch * b->shape.query_tokens;
    return bench_attend_make(b, err);
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

/* All query tokens. */
static kvk_status verify(const struct bench *b, struct bench_verdict *v, kvk_error *err)
{
    long tokens[64];
    int count = (int)(b->shape.query_tokens < 64 ? b->shape.query_tokens : 64);
    for (int i = 0; i < count; i++)
        tokens[i] = i;
    return bench_attend_verify(b, tokens, count, v, err);
}

static void work(const struct bench *b, struct bench_work *out)
{
    bench_attend_work(b, b->batch, out);
}

const struct bench_kind bench_decode = {"decode", KVK_DECODE, make, launch, verify, work, limits};
