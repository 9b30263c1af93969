/* SPDX-License-Identifier: Apache-2.0 */
/*
** launch_attend.c - decode and unified, and the workspace formula.
**
** Splits: a decode has base = S * G * row_tiles CTAs. It is split over the cache until the device
** has about WAVES times as many CTAs as it holds at once, as long as each split still has
** SPLIT_TILES steps of work. All of it is host-known, so that a captured call and its replays use
** the same number.
**
** Workspace: a split CTA writes at most `rows` query rows, and base * splits <= target whenever
** splits > 1, so the rows times splits never exceed target * rows: the bound does not grow with the
** context or with the batch.
*/
#include "launch.h"

#include "abi.h"
#include "error.h"

enum { WAVES = 3, SPLIT_TILES = 4, RESIDENT_GUESS = 2, WORKSPACE_ALIGNMENT = 16 };

/* Callers that choose `splits` themselves get at least this much for it, as far as MAX_SPLITS can
** use it. */
#define WORKSPACE_FLOOR_BYTES (INT64_C(32) << 20)

static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* CTAs that a split decode aims at. */
static int64_t target_ctas(const kvk_kernels *k)
{
    int resident = k->kernel[KIND_DECODE]->main.resident_ctas;
    int units = k->ctx->info.multiprocessors;
    return (int64_t)WAVES * (resident > 0 ? resident : RESIDENT_GUESS) * (units > 0 ? units : 1);
}

static int32_t choose_splits(const kvk_kernels *k, int64_t base, int64_t context)
{
    int64_t splits = target_ctas(k) / base,
            by_context = context / (SPLIT_TILES * k->kernel[KIND_DECODE]->tile_tokens);
    splits = splits < by_context ? splits : by_context;
    splits = splits < MAX_SPLITS ? splits : MAX_SPLITS;
    return splits > 1 ? (int32_t)splits : 1;
}

/* Bytes of one row of one split: the normalised row and its LSE. */
static int64_t partial_bytes(const kvk_kernels *k)
{
    return (int64_t)sizeof(float) * (k->shape.value_head_size + 1);
}

size_t kvk_workspace_bytes(const kvk_kernels *k, const struct kvk_limits *limits)
{
    int64_t rows, most, bytes;
    if (!k || !k->kernel[KIND_DECODE] ||
        args_check(limits, sizeof *limits, "kvk_limits", NULL) != KVK_OK)
        return 0;
    int64_t tokens = limits->query_tokens > 0 ? limits->query_tokens : 1;
    if (limits->sequences <= 0)
        return 0;
    if (__builtin_mul_overflow(limits->sequences, tokens, &rows) ||
        __builtin_mul_overflow(rows, (int64_t)k->shape.query_heads * MAX_SPLITS, &rows))
        rows = INT64_MAX;
    int64_t floor_rows = WORKSPACE_FLOOR_BYTES / partial_bytes(k);
    if (__builtin_mul_overflow(target_ctas(k), (int64_t)k->kernel[KIND_DECODE]->rows, &most) ||
        most < floor_rows)
        most = floor_rows;
    rows = rows < most ? rows : most;
    if (__builtin_mul_overflow(rows, partial_bytes(k), &bytes))
        return SIZE_MAX;
    return (size_t)ceil_div(bytes, WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT;
}

static kvk_status workspace_check(const kvk_kernels *k, const struct kvk_decode_args *a,
                                  int64_t rows, int32_t splits, const char *where, kvk_error *err)
{
    int64_t need;
    if (__builtin_mul_overflow(rows * splits, partial_bytes(k), &need))
        need = INT64_MAX;
    if ((uint64_t)need > a->workspace_bytes)
        return error_set(err, KVK_E_WORKSPACE, where, "workspace of %zu bytes, %d splits need %lld",
                         a->workspace_bytes, (int)splits, (long long)need);
    return launch_pointer(a->workspace, "workspace", WORKSPACE_ALIGNMENT, where, err);
}

/* The numbers that decide a decode's grid. */
struct decode_shape {
    int64_t tokens, base, rows;
    int32_t splits;
};

static kvk_status decode_measure(const kvk_kernels *k, const struct kvk_decode_args *a,
                                 struct decode_shape *d, const char *where, kvk_error *err)
{
    d->tokens = a->query_tokens ? a->query_tokens : 1;
    kvk_status status = launch_range(d->tokens, "query_tokens", 1, 1 << 20, where, err);
    if (!status)
        status = launch_range(a->splits, "splits", 0, MAX_SPLITS, where, err);
    if (!status)
        status = launch_range(a->max_context, "max_context", 0, INT32_MAX, where, err);
    if (status)
        return status;
    int64_t tiles = ceil_div(d->tokens * k->shape.gqa, k->kernel[KIND_DECODE]->rows);
    if (__builtin_mul_overflow(a->sequences * k->shape.kv_heads, tiles, &d->base) ||
        __builtin_mul_overflow(a->sequences * d->tokens, (int64_t)k->shape.query_heads, &d->rows) ||
        d->base > LAUNCH_GRID_MOST || d->rows > LAUNCH_GRID_MOST)
        return error_set(err, KVK_E_SHAPE, where,
                         "sequences %lld, query_tokens %lld: more rows than a launch takes",
                         (long long)a->sequences, (long long)d->tokens);
    int64_t context = a->max_context;
    if (!context) /* what the table can hold */
        context = a->table_stride < INT32_MAX / k->shape.page_tokens
                      ? a->table_stride * k->shape.page_tokens
                      : INT32_MAX;
    d->splits = a->splits ? a->splits : choose_splits(k, d->base, context);
    return d->splits > 1 ? workspace_check(k, a, d->rows, d->splits, where, err) : KVK_OK;
}

static kvk_status launch_reduce(const kvk_kernels *k, const struct kvk_decode_args *a,
                                const struct decode_shape *d, const struct launch_rows *out,
                                kvk_stream stream, const char *where, kvk_error *err)
{
    const struct abi_reduce p = {
        .partial = (uintptr_t)a->workspace,
        .out = (uintptr_t)a->out.data,
        .lse = (uintptr_t)a->lse,
        .sinks = (uintptr_t)a->sinks,
        .out_row = out->row,
        .out_head = out->head,
        .rows = d->rows,
        .query_heads = k->shape.query_heads,
        .splits = d->splits,
    };
    return launch_entry(k, &k->kernel[KIND_DECODE]->reduce, d->rows, &p, sizeof p, stream, where,
                        err);
}

kvk_status kvk_decode(const kvk_kernels *k, const struct kvk_decode_args *a, kvk_stream stream,
                      kvk_error *err)
{
    struct launch_pool pool;
    struct launch_rows rows[2]; /* query, out */
    struct decode_shape d = {0};
    kvk_status status =
        launch_begin(k, KIND_DECODE, a, sizeof *a, "kvk_decode_args", __func__, err);
    if (!status)
        status = launch_range(a->sequences, "sequences", 0, INT32_MAX, __func__, err);
    if (status || !a->sequences)
        return status;
    status = launch_pool_check(k, &a->pool, &pool, __func__, err);
    if (!status)
        status = launch_attention_check(k, &a->query, &a->out, a->block_table, a->table_stride,
                                        a->lengths, a->sinks, a->lse, a->window, a->scale, rows,
                                        __func__, err);
    if (!status)
        status = decode_measure(k, a, &d, __func__, err);
    if (status)
        return status;
    int direct = d.splits == 1; /* else reduce applies the sinks and writes out and lse */
    const struct abi_decode p = {
        .cache = (uintptr_t)a->pool.data,
        .query = (uintptr_t)a->query.data,
        .out = (uintptr_t)a->out.data,
        .lse = direct ? (uintptr_t)a->lse : 0,
        .sinks = direct ? (uintptr_t)a->sinks : 0,
        .table = (uintptr_t)a->block_table,
        .lengths = (uintptr_t)a->lengths,
        .partial = direct ? 0 : (uintptr_t)a->workspace,
        .page_stride = pool.page,
        .position_stride = pool.position,
        .head_stride = pool.head,
        .query_row = rows[0].row,
        .query_head = rows[0].head,
        .out_row = rows[1].row,
        .out_head = rows[1].head,
        .table_stride = a->table_stride,
        .sequences = (int32_t)a->sequences,
        .kv_heads = k->shape.kv_heads,
        .query_tokens = (int32_t)d.tokens,
        .splits = d.splits,
        .window = a->window,
        .scale = launch_scale(k, a->scale),
    };
    status = d.base * d.splits > LAUNCH_GRID_MOST
                 ? launch_range(d.base * d.splits, "the grid", 1, LAUNCH_GRID_MOST, __func__, err)
                 : KVK_OK;
    if (!status)
        status = launch_entry(k, &k->kernel[KIND_DECODE]->main, d.base * d.splits, &p, sizeof p,
                              stream, __func__, err);
    return status || direct ? status : launch_reduce(k, a, &d, &rows[1], stream, __func__, err);
}

kvk_status kvk_unified(const kvk_kernels *k, const struct kvk_unified_args *a, kvk_stream stream,
                       kvk_error *err)
{
    struct launch_pool pool;
    struct launch_rows rows[2];
    kvk_status status =
        launch_begin(k, KIND_UNIFIED, a, sizeof *a, "kvk_unified_args", __func__, err);
    if (!status)
        status = launch_range(a->sequences, "sequences", 0, INT32_MAX - 1, __func__, err);
    if (!status)
        status = launch_range(a->tokens, "tokens", 0, INT32_MAX, __func__, err);
    if (status || !a->sequences || !a->tokens)
        return status;
    status = launch_pool_check(k, &a->pool, &pool, __func__, err);
    if (!status)
        status = launch_attention_check(k, &a->query, &a->out, a->block_table, a->table_stride,
                                        a->lengths, a->sinks, a->lse, a->window, a->scale, rows,
                                        __func__, err);
    if (!status)
        status = launch_pointer(a->query_start, "query_start", 4, __func__, err);
    if (status)
        return status;
    const struct abi_unified p = {
        .cache = (uintptr_t)a->pool.data,
        .query = (uintptr_t)a->query.data,
        .out = (uintptr_t)a->out.data,
        .lse = (uintptr_t)a->lse,
        .sinks = (uintptr_t)a->sinks,
        .table = (uintptr_t)a->block_table,
        .lengths = (uintptr_t)a->lengths,
        .query_start = (uintptr_t)a->query_start,
        .page_stride = pool.page,
        .position_stride = pool.position,
        .head_stride = pool.head,
        .query_row = rows[0].row,
        .query_head = rows[0].head,
        .out_row = rows[1].row,
        .out_head = rows[1].head,
        .table_stride = a->table_stride,
        .sequences = (int32_t)a->sequences,
        .kv_heads = k->shape.kv_heads,
        .window = a->window,
        .scale = launch_scale(k, a->scale),
    };
    const struct kernel *kernel = k->kernel[KIND_UNIFIED];
    int64_t tiles =
        a->tokens * k->shape.gqa / kernel->rows + a->sequences; /* < 2^48: no overflow below */
    return launch_entry(k, &kernel->main, tiles * k->shape.kv_heads, &p, sizeof p, stream, __func__,
                        err);
}
