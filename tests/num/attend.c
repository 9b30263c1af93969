/* SPDX-License-Identifier: Apache-2.0 */
/*
** attend.c - one call of decode or unified. What it must give: expect.c.
*/
#include "world.h"

#include <math.h>
#include <string.h>

static int query_heads(const struct attention *a) { return a->w->m.kv_heads * a->w->m.gqa; }

static int rows_of(const struct attention *a) { return a->start[a->w->sequences]; }

void attention_rows(struct attention *a)
{
    a->start[0] = 0;
    for (int s = 0; s < a->w->sequences; s++)
        a->start[s + 1] = a->start[s] + a->q_len[s];
}

void attention_query(struct num_run *run, struct attention *a, uint64_t seed)
{
    struct num_random r = num_random(seed, 3);
    size_t n = (size_t)rows_of(a) * (size_t)query_heads(a) * (size_t)a->w->m.d;

    a->query = num_host(run, n * 2);
    num_fill_normal(&r, a->w->m.dtype, a->query, n);
}

/* --- the call --- */

static uint16_t *query_for_kernel(struct num_run *run, const struct attention *a, size_t rows)
{
    size_t d = (size_t)a->w->m.d, n = rows * (size_t)query_heads(a) * d;
    size_t used = (size_t)rows_of(a) * (size_t)query_heads(a) * d;
    uint16_t *query = num_host(run, n * 2);
    double x[REF_MAX_D];

    memset(query, 0xFF, n * 2); /* rows that belong to no sequence hold NaN */
    memcpy(query, a->query, used * 2);
    for (size_t v = 0; run->fault == FAULT_UNROTATED && v < used; v += d) {
        for (size_t i = 0; i < d; i++)
            x[i] = num_value(a->w->m.dtype, query[v + i]);
        ref_rotate(x, (int)d);
        for (size_t i = 0; i < d; i++)
            query[v + i] = num_bits(a->w->m.dtype, (float)x[i]);
    }
    return query;
}

void attention_upload(struct num_run *run, struct attention *a, const kvk_kernels *kernels,
                      struct attention_buffers *b)
{
    const struct world *w = a->w;
    struct kvk_limits limits = KVK_INIT(struct kvk_limits);
    size_t rows = (size_t)(rows_of(a) + a->spare_rows), heads = (size_t)query_heads(a);
    int32_t lengths[NUM_MAX_SEQUENCES], start[NUM_MAX_SEQUENCES + 1] = {0}, most = 0;

    for (int s = 0; s < w->sequences; s++) {
        lengths[s] = w->lengths[s] - (run->fault == FAULT_LENGTH && w->lengths[s] > 0);
        start[s + 1] = a->start[s + 1];
    }
    for (int s = 0; s < w->sequences; s++)
        most = w->lengths[s] > most ? w->lengths[s] : most;
    if (a->max_context == 0)
        a->max_context = most;
    b->pool = a->pool ? *a->pool : world_pool(run, w, w->pool.data);
    b->query = num_rows_put(run, w->m.dtype, query_for_kernel(run, a, rows), rows, heads,
                            (size_t)w->m.d, a->strided);
    b->out = num_rows_put(run, w->m.dtype, NULL, rows, heads, (size_t)w->m.dv, a->strided);
    b->table = world_table(run, w, a->table_64);
    b->lengths = num_upload(run, lengths, (size_t)w->sequences * sizeof *lengths);
    b->start = num_upload(run, start, (size_t)(w->sequences + 1) * sizeof *start);
    b->sinks = a->sinks ? num_upload(run, a->sinks, heads * sizeof *a->sinks) : NULL;
    b->alibi = a->alibi ? num_upload(run, a->alibi, heads * sizeof *a->alibi) : NULL;
    b->lse_bytes = a->no_lse ? 0 : rows * heads * sizeof(float);
    b->lse = b->lse_bytes ? num_device(run, b->lse_bytes) : NULL;
    limits.sequences = w->sequences;
    limits.query_tokens = a->unified ? 1 : a->q_len[0];
    limits.tokens = (int64_t)rows;
    limits.context = a->max_context;
    limits.batch_invariant = a->batch_invariant;
    b->workspace_bytes = kvk_workspace_bytes(kernels, &limits);
    b->workspace = num_device(run, b->workspace_bytes);
}

static float scale_of(const struct num_run *run, const struct attention *a)
{
    switch (run->fault) {
    case FAULT_SCALE: return (float)(1.02 / sqrt(a->w->m.d));
    case FAULT_SLIGHT: return (float)(1.0002 / sqrt(a->w->m.d));
    default: return a->scale;
    }
}

struct kvk_decode_args attention_decode_args(const struct num_run *run, const struct attention *a,
                                             const struct attention_buffers *b)
{
    struct kvk_decode_args args = KVK_INIT(struct kvk_decode_args);

    args.pool = b->pool;
    args.query = b->query.device;
    args.out = b->out.device;
    args.block_table = b->table;
    args.table_stride = a->w->table_stride;
    args.lengths = b->lengths;
    args.sequences = a->w->sequences;
    args.query_tokens = a->q_len[0];
    args.max_context = a->max_context;
    args.scale = scale_of(run, a);
    args.window = a->window;
    args.sinks = b->sinks;
    args.full = a->full;
    args.soft_cap = a->soft_cap;
    args.alibi = b->alibi;
    args.table_type = a->table_64 ? KVK_INT64 : KVK_INT32;
    args.lse = b->lse;
    args.workspace = b->workspace;
    args.workspace_bytes = b->workspace_bytes;
    args.splits = a->splits;
    args.batch_invariant = a->batch_invariant;
    return args;
}

struct kvk_unified_args attention_unified_args(const struct num_run *run, const struct attention *a,
                                               const struct attention_buffers *b)
{
    struct kvk_unified_args args = KVK_INIT(struct kvk_unified_args);
    args.pool = b->pool;
    args.query = b->query.device;
    args.out = b->out.device;
    args.block_table = b->table;
    args.table_stride = a->w->table_stride;
    args.lengths = b->lengths;
    args.query_start = b->start;
    args.sequences = a->w->sequences;
    args.tokens = rows_of(a) + a->spare_rows;
    args.scale = scale_of(run, a);
    args.window = a->window;
    args.sinks = b->sinks;
    args.full = a->full;
    args.soft_cap = a->soft_cap;
    args.alibi = b->alibi;
    args.table_type = a->table_64 ? KVK_INT64 : KVK_INT32;
    args.lse = b->lse;
    args.workspace = b->workspace;
    args.workspace_bytes = b->workspace_bytes;
    return args;
}

static void fetch_lse(struct num_run *run, struct attention *a, const struct attention_buffers *b)
{
    size_t used = (size_t)rows_of(a) * (size_t)query_heads(a), n = b->lse_bytes / sizeof(float);
    uint32_t bits;

    a->lse = num_host(run, b->lse_bytes);
    num_download(run, a->lse, b->lse, b->lse_bytes);
    for (size_t i = used; i < n; i++) {
        memcpy(&bits, &a->lse[i], 4);
        if (bits != 0xFFFFFFFF)
            num_differ(run, "lse of row %zu is written, past query_start[S]",
                       i / (size_t)query_heads(a));
    }
}

void attention_queue(struct num_run *run, const struct attention *a, const kvk_kernels *kernels,
                     const struct attention_buffers *b, kvk_stream stream)
{
    kvk_error err = {0};

    if (a->unified) {
        struct kvk_unified_args args = attention_unified_args(run, a, b);
        num_ok(run, kvk_unified(kernels, &args, stream, &err), &err, "kvk_unified");
    } else {
        struct kvk_decode_args args = attention_decode_args(run, a, b);
        num_ok(run, kvk_decode(kernels, &args, stream, &err), &err, "kvk_decode");
    }
}

void attention_fetch(struct num_run *run, struct attention *a, const struct attention_buffers *b)
{
    a->out = num_rows_get(run, &b->out, (size_t)rows_of(a), "out");
    if (!a->no_lse)
        fetch_lse(run, a, b);
}

void attention_call(struct num_run *run, struct attention *a)
{
    const kvk_kernels *kernels = num_prepare(run, &a->w->m, a->unified ? KVK_UNIFIED : KVK_DECODE);
    struct attention_buffers b;

    attention_upload(run, a, kernels, &b);
    attention_queue(run, a, kernels, &b, NULL);
    attention_fetch(run, a, &b);
}
