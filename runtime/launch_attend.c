/* SPDX-License-Identifier: Apache-2.0 */
/*
** launch_attend.c - decode and unified, and the workspace formula.
**
** Splits: a decode has base = S * G * row_tiles CTAs (fewer by the KV heads a CTA takes). It is
** split over the cache until the device has about WAVES times as many CTAs as it holds at once (as
** many, where CTAs keep rings of pages), as long as each split still has
** SPLIT_TILES steps of work. All of it is host-known, so that a captured call and its replays use
** the same number.
**
** Workspace: a split CTA writes at most `rows` query rows, and base * splits <= target whenever
** splits > 1, so the rows times splits never exceed target * rows: the bound does not grow with the
** context or with the batch.
**
** A batch-invariant decode is cut every INVARIANT_TOKENS tokens of a sequence instead, and always
** merged by reduce, so that no sum of a row has an order that depends on anything but its own
** sequence. Its workspace is rows times spans of the longest context.
*/
#include "launch.h"

#include "abi.h"
#include "error.h"

#include <math.h>

enum { WAVES = 3, SPLIT_TILES = 4, RESIDENT_GUESS = 2, WORKSPACE_ALIGNMENT = 16 };

/* Callers that choose `splits` themselves get at least this much for it, as far as MAX_SPLITS can
** use it. */
#define WORKSPACE_FLOOR_BYTES (INT64_C(32) << 20)

/* An option is a matter of the kernel and of the call: both must know of it. */
static kvk_status options_check(const kvk_kernels *k, const struct launch_attention *a,
                                const char *where, kvk_error *err)
{
    int capped = (k->shape.options & KVK_SOFT_CAP) != 0;
    int sloped = (k->shape.options & KVK_ALIBI) != 0;
    if (!capped && a->soft_cap != 0)
        return error_set(err, KVK_E_UNSUPPORTED, where,
                         "soft_cap is %g, the kernels were prepared without KVK_SOFT_CAP",
                         (double)a->soft_cap);
    if (capped && !(a->soft_cap > 0 && isfinite(a->soft_cap)))
        return error_set(err, KVK_E_ARG, where,
                         "soft_cap is %g, must be finite and above 0: the kernels were prepared "
                         "with KVK_SOFT_CAP",
                         (double)a->soft_cap);
    if (!sloped && a->alibi)
        return error_set(err, KVK_E_UNSUPPORTED, where,
                         "alibi is given, the kernels were prepared without KVK_ALIBI");
    if (sloped && !a->alibi)
        return error_set(err, KVK_E_ARG, where,
                         "alibi is NULL: the kernels were prepared with KVK_ALIBI");
    return sloped ? launch_pointer(a->alibi, "alibi", 4, where, err) : KVK_OK;
}

kvk_status launch_attention_check(const kvk_kernels *k, const struct launch_attention *a,
                                  struct launch_rows strides[2], const char *where, kvk_error *err)
{
    const struct shape *s = &k->shape;
    kvk_status status = launch_rows_check(a->query, "query", s->query_heads, s->head_size, 0,
                                          &strides[0], where, err);
    if (!status)
        status = launch_rows_check(a->out, "out", s->query_heads, s->value_head_size, 1,
                                   &strides[1], where, err);
    if (!status)
        status = launch_table_check(a->table, a->table_type, a->table_stride, where, err);
    if (!status)
        status = launch_pointer(a->lengths, "lengths", 4, where, err);
    if (!status && a->sinks)
        status = launch_pointer(a->sinks, "sinks", 4, where, err);
    if (!status && a->lse)
        status = launch_pointer(a->lse, "lse", 4, where, err);
    if (!status)
        status = launch_range(a->window, "window", 0, INT32_MAX, where, err);
    if (!status)
        status = launch_range(a->full, "full", 0, 1, where, err);
    if (!status && !isfinite(a->scale))
        status = error_set(err, KVK_E_ARG, where, "scale is not finite");
    return status ? status : options_check(k, a, where, err);
}

float launch_scale(const kvk_kernels *k, float scale)
{
    return scale != 0.0f ? scale : (float)(1.0 / sqrt((double)k->shape.head_size));
}

static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* CTAs that a split decode aims at. */
static int64_t target_ctas(const kvk_kernels *k)
{
    int resident = k->kernel[KIND_DECODE]->main.resident_ctas;
    int units = k->ctx->info.multiprocessors;
    int waves = k->kernel[KIND_DECODE]->image_heads
                    ? 1
                    : WAVES; /* a ring is slow to start, and never waits */
    return (int64_t)waves * (resident > 0 ? resident : RESIDENT_GUESS) * (units > 0 ? units : 1);
}

/* Tokens a CTA takes a step: warps that take other KV heads take no other tokens. */
static int64_t decode_tile(const kvk_kernels *k)
{
    return k->kernel[KIND_DECODE]->tile_tokens / launch_image_heads(k);
}

static int32_t choose_splits(const kvk_kernels *k, int64_t base, int64_t context)
{
    int64_t splits = target_ctas(k) / base, by_context = context / (SPLIT_TILES * decode_tile(k));
    splits = splits < by_context ? splits : by_context;
    splits = splits < MAX_SPLITS ? splits : MAX_SPLITS;
    return splits > 1 ? (int32_t)splits : 1;
}

/* Bytes of one row of one split: the normalised row and its LSE. */
static int64_t partial_bytes(const kvk_kernels *k)
{
    return (int64_t)sizeof(float) * (k->shape.value_head_size + 1);
}

/* Where a batch-invariant decode is cut: whole steps of this kernel. */
static int64_t invariant_tokens(const kvk_kernels *k)
{
    int64_t tile = decode_tile(k);
    return ceil_div(INVARIANT_TOKENS, tile) * tile;
}

/* Never 1: a single split would not pass through reduce, which rounds in its own places. */
static int64_t invariant_splits(const kvk_kernels *k, int64_t context)
{
    int64_t splits = ceil_div(context, invariant_tokens(k));
    return splits > 2 ? splits : 2;
}

/* Rows times splits of the largest call whose splits are equal parts. */
static int64_t equal_rows(const kvk_kernels *k, int64_t rows)
{
    int64_t most, floor_rows = WORKSPACE_FLOOR_BYTES / partial_bytes(k);
    if (__builtin_mul_overflow(rows, (int64_t)MAX_SPLITS, &rows))
        rows = INT64_MAX;
    if (__builtin_mul_overflow(target_ctas(k), k->kernel[KIND_DECODE]->rows * launch_image_heads(k),
                               &most) ||
        most < floor_rows)
        most = floor_rows;
    return rows < most ? rows : most;
}

size_t kvk_workspace_bytes(const kvk_kernels *k, const struct kvk_limits *limits)
{
    int64_t rows, need, fixed, bytes;
    if (!k || !k->kernel[KIND_DECODE] ||
        args_check(limits, sizeof *limits, "kvk_limits", NULL) != KVK_OK)
        return 0;
    int64_t tokens = limits->query_tokens > 0 ? limits->query_tokens : 1;
    if (limits->sequences <= 0)
        return 0;
    if (__builtin_mul_overflow(limits->sequences, tokens, &rows) ||
        __builtin_mul_overflow(rows, (int64_t)k->shape.query_heads, &rows))
        rows = INT64_MAX;
    need = equal_rows(k, rows);
    if (limits->batch_invariant) {
        if (__builtin_mul_overflow(rows, invariant_splits(k, limits->context), &fixed))
            fixed = INT64_MAX;
        need = need > fixed ? need : fixed;
    }
    if (__builtin_mul_overflow(need, partial_bytes(k), &bytes))
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
    int32_t splits, split_tokens;
};

/* What the call says of its lengths, else what its table can hold. */
static int64_t longest(const kvk_kernels *k, const struct kvk_decode_args *a)
{
    if (a->max_context)
        return a->max_context;
    return a->table_stride < INT32_MAX / k->shape.page_tokens
               ? a->table_stride * k->shape.page_tokens
               : INT32_MAX;
}

static kvk_status decode_splits(const kvk_kernels *k, const struct kvk_decode_args *a,
                                struct decode_shape *d, const char *where, kvk_error *err)
{
    int64_t context = longest(k, a);
    if (a->batch_invariant && a->splits)
        return error_set(err, KVK_E_ARG, where,
                         "splits is %d: batch_invariant fixes where a sequence is split",
                         (int)a->splits);
    if (a->batch_invariant) {
        d->split_tokens = (int32_t)invariant_tokens(k);
        d->splits = (int32_t)invariant_splits(k, context);
    } else {
        d->splits = a->splits ? a->splits : choose_splits(k, d->base, context);
    }
    return d->splits > 1 ? workspace_check(k, a, d->rows, d->splits, where, err) : KVK_OK;
}

static kvk_status decode_measure(const kvk_kernels *k, const struct kvk_decode_args *a,
                                 struct decode_shape *d, const char *where, kvk_error *err)
{
    d->tokens = a->query_tokens ? a->query_tokens : 1;
    kvk_status status = launch_range(d->tokens, "query_tokens", 1, 1 << 20, where, err);
    if (!status)
        status = launch_range(a->splits, "splits", 0, MAX_SPLITS, where, err);
    if (!status)
        status = launch_range(a->batch_invariant, "batch_invariant", 0, 1, where, err);
    if (!status)
        status = launch_range(a->max_context, "max_context", 0, INT32_MAX, where, err);
    if (status)
        return status;
    int64_t tiles = ceil_div(d->tokens * k->shape.gqa, k->kernel[KIND_DECODE]->rows);
    int64_t heads = k->shape.kv_heads / launch_image_heads(k);
    if (__builtin_mul_overflow(a->sequences * heads, tiles, &d->base) ||
        __builtin_mul_overflow(a->sequences * d->tokens, (int64_t)k->shape.query_heads, &d->rows) ||
        d->base > LAUNCH_GRID_MOST || d->rows > LAUNCH_GRID_MOST)
        return error_set(err, KVK_E_SHAPE, where,
                         "sequences %lld, query_tokens %lld: more rows than a launch takes",
                         (long long)a->sequences, (long long)d->tokens);
    return decode_splits(k, a, d, where, err);
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

/* The members that the two argument structs share. */
#define ATTENTION(a)                                                                               \
    {                                                                                              \
        .query = &(a)->query, .out = &(a)->out, .table = (a)->block_table,                         \
        .lengths = (a)->lengths, .sinks = (a)->sinks, .alibi = (a)->alibi, .lse = (a)->lse,        \
        .table_stride = (a)->table_stride, .table_type = (a)->table_type, .window = (a)->window,   \
        .full = (a)->full, .scale = (a)->scale, .soft_cap = (a)->soft_cap                          \
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
    const struct launch_attention common = ATTENTION(a);
    status = launch_pool_check(k, &a->pool, &pool, __func__, err);
    if (!status)
        status = launch_attention_check(k, &common, rows, __func__, err);
    if (!status)
        status = decode_measure(k, a, &d, __func__, err);
    if (status)
        return status;
    const struct launch_image image = launch_image(k, &a->pool, &pool);
    int direct = d.splits == 1; /* else reduce applies the sinks and writes out and lse */
    const struct abi_decode p = {
        .cache = (uintptr_t)a->pool.data,
        .query = (uintptr_t)a->query.data,
        .out = (uintptr_t)a->out.data,
        .lse = direct ? (uintptr_t)a->lse : 0,
        .sinks = direct ? (uintptr_t)a->sinks : 0,
        .alibi = (uintptr_t)a->alibi,
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
        .full = a->full,
        .table_64 = a->table_type == KVK_INT64,
        .split_tokens = d.split_tokens,
        .scale = launch_scale(k, a->scale),
        .soft_cap = a->soft_cap,
        .image_shift = __builtin_ctz((unsigned)image.heads),
        .image_tokens = image.tokens,
        .image_pitch = image.pitch,
        .image_bytes = image.bytes,
    };
    status = d.base * d.splits > LAUNCH_GRID_MOST
                 ? launch_range(d.base * d.splits, "the grid", 1, LAUNCH_GRID_MOST, __func__, err)
                 : KVK_OK;
    if (!status)
        status = launch_entry(k, &k->kernel[KIND_DECODE]->main, d.base * d.splits, &p, sizeof p,
                              stream, __func__, err);
    return status || direct ? status : launch_reduce(k, a, &d, &rows[1], stream, __func__, err);
}

kvk_status launch_unified(const kvk_kernels *k, const struct kvk_unified_args *a, int32_t ahead,
                          kvk_stream stream, const char *where, kvk_error *err)
{
    struct launch_pool pool;
    struct launch_rows rows[2];
    kvk_status status = launch_begin(k, KIND_UNIFIED, a, sizeof *a, "kvk_unified_args", where, err);
    if (!status)
        status = launch_range(a->sequences, "sequences", 0, INT32_MAX - 1, where, err);
    if (!status)
        status = launch_range(a->tokens, "tokens", 0, INT32_MAX, where, err);
    if (status || !a->sequences || !a->tokens)
        return status;
    const struct launch_attention common = ATTENTION(a);
    status = launch_pool_check(k, &a->pool, &pool, where, err);
    if (!status)
        status = launch_attention_check(k, &common, rows, where, err);
    if (!status)
        status = launch_pointer(a->query_start, "query_start", 4, where, err);
    if (status)
        return status;
    const struct abi_unified p = {
        .cache = (uintptr_t)a->pool.data,
        .query = (uintptr_t)a->query.data,
        .out = (uintptr_t)a->out.data,
        .lse = (uintptr_t)a->lse,
        .sinks = (uintptr_t)a->sinks,
        .alibi = (uintptr_t)a->alibi,
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
        .full = a->full,
        .table_64 = a->table_type == KVK_INT64,
        .ahead = ahead,
        .scale = launch_scale(k, a->scale),
        .soft_cap = a->soft_cap,
    };
    const struct kernel *kernel = k->kernel[KIND_UNIFIED];
    int64_t tiles =
        a->tokens * k->shape.gqa / kernel->rows + a->sequences; /* < 2^48: no overflow below */
    return launch_entry(k, &kernel->main, tiles * k->shape.kv_heads, &p, sizeof p, stream, where,
                        err);
}

kvk_status kvk_unified(const kvk_kernels *k, const struct kvk_unified_args *a, kvk_stream stream,
                       kvk_error *err)
{
    return launch_unified(k, a, 0, stream, __func__, err);
}
