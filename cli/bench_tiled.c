/* SPDX-License-Identifier: Apache-2.0 */
/* bench_tiled.c - prefill of a chunk by way of tiles dequantised to fp16: query_tokens rows of one sequence. */
#include "bench.h"

#include <stdio.h>
#include <string.h>

enum { TILE_PAGE = 4096 };

static kvk_status refuse(kvk_error *err, const char *what)
{
    memset(err, 0, sizeof *err);
    err->status = KVK_E_ARG;
    snprintf(err->text, sizeof err->text, "%s", what);
    return err->status;
}

/* The kernels that attend to a tile. */
static kvk_status prepare_dense(struct bench *b, kvk_error *err)
{
    const struct bench_shape *shape = &b->shape;
    struct kvk_model model = KVK_INIT(struct kvk_model);
    model.spec = "fp16";
    model.kv_heads = (int)shape->kv_heads;
    model.query_heads = (int)(shape->kv_heads * shape->gqa);
    model.head_size = (int)shape->head_size;
    model.value_head_size = (int)shape->value_head_size;
    model.page_tokens = TILE_PAGE;
    model.dtype = shape->dtype;
    model.kinds = KVK_UNIFIED;
    return kvk_prepare(b->ctx, &model, &b->dense, err);
}

static kvk_status make(struct bench *b, kvk_error *err)
{
    struct kvk_limits limits = KVK_INIT(struct kvk_limits);
    if (b->batch != 1)
        return refuse(err, "batch: accepted 1: a call is for one sequence");
    if (b->shape.full)
        return refuse(err, "full: tiled prefill is causal");
    b->rows = b->shape.query_tokens;
    kvk_status status = prepare_dense(b, err);
    if (!status)
        status = bench_attend_make(b, err);
    limits.tokens = b->rows;
    b->workspace_bytes = status ? 0 : kvk_tiled_workspace_bytes(b->kernels, b->dense, &limits, 0);
    return status ? status : bench_put(b, NULL, b->workspace_bytes, &b->workspace, err);
}

static kvk_status launch(const struct bench *b, long set, kvk_stream stream, kvk_error *err)
{
    struct kvk_tiled_args args = KVK_INIT(struct kvk_tiled_args);
    args.dense = b->dense;
    args.pool = b->pool;
    args.query.data = b->query.device;
    args.out.data = b->out[0];
    args.block_table = (const int32_t *)b->tables + set * b->stride;
    args.cached = b->tokens - b->rows;
    args.tokens = b->rows;
    args.workspace = b->workspace;
    args.workspace_bytes = b->workspace_bytes;
    return kvk_tiled(b->kernels, &args, stream, err);
}

/* First, middle and last row. */
static kvk_status verify(const struct bench *b, struct bench_verdict *v, kvk_error *err)
{
    long t = b->shape.query_tokens, rows[3] = {0, t / 2, t - 1};
    return bench_attend_verify(b, rows, 3, v, err);
}

static void work(const struct bench *b, struct bench_work *out) { bench_attend_work(b, 0, out); }

const struct bench_kind bench_tiled = {"tiled", KVK_DEQUANT | KVK_MERGE, make, launch, verify, work,
                                       NULL};
