/* SPDX-License-Identifier: Apache-2.0 */
/*
** launch_attend.c - decode and unified.
*/
#include "launch.h"

#include "abi.h"
#include "error.h"
#include "launch_splits.h"

#include <math.h>

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
        .map = d->behind ? (uintptr_t)a->workspace + (uintptr_t)d->behind : 0,
        .places = d->places,
        .rows = (int32_t)d->rows,
        .query_heads = k->shape.query_heads,
        .splits = d->splits,
        .ways_log = d->ways_log,
        .query_tokens = (int32_t)d->tokens,
    };
    const struct driver_entry *reduce = &k->kernel[KIND_MERGE]->reduce;
    int64_t eights = reduce->threads / 8; /* of threads, a CTA */
    return launch_entry(k, reduce, (d->eights + eights - 1) / eights, &p, sizeof p, stream, where,
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
    struct launch_map map = {{0}};
    struct launch_image image = launch_image(k, &a->pool, &pool, d.heads);
    struct driver_grid how = {.pairs = d.pairs};
    how.map = launch_image_map(k, &a->pool, &pool, &image, &map);
    int direct = d.splits == 1; /* else reduce finishes rows of several splits */
    const struct abi_decode p = {
        .cache = (uintptr_t)a->pool.data,
        .query = (uintptr_t)a->query.data,
        .out = (uintptr_t)a->out.data,
        .lse = (uintptr_t)a->lse,
        .sinks = (uintptr_t)a->sinks,
        .alibi = (uintptr_t)a->alibi,
        .table = (uintptr_t)a->block_table,
        .lengths = (uintptr_t)a->lengths,
        .partial = direct ? 0 : (uintptr_t)a->workspace,
        .map = d.behind && !d.joined ? (uintptr_t)a->workspace + (uintptr_t)d.behind : 0,
        .arrivals = d.joined ? (uintptr_t)a->workspace + (uintptr_t)d.behind : 0,
        .page_stride = pool.page,
        .position_stride = pool.position,
        .head_stride = pool.head,
        .query_row = rows[0].row,
        .query_head = rows[0].head,
        .out_row = rows[1].row,
        .out_head = rows[1].head,
        .table_stride = a->table_stride,
        .places = d.places,
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
        .spread = d.spread,
        .spare = d.spread ? d.spread - (int32_t)a->sequences : 0,
        .least = d.least,
        .cluster_log = d.pairs,
    };
    int64_t grid = d.base / a->sequences * d.grid_slots;
    status = grid > LAUNCH_GRID_MOST
                 ? launch_range(grid, "the grid", 1, LAUNCH_GRID_MOST, __func__, err)
                 : KVK_OK;
    if (!status)
        status = launch_clusters(k, &k->kernel[KIND_DECODE]->main, grid, how, &p, sizeof p, stream,
                                 __func__, err);
    return status || direct || d.joined ? status
                                        : launch_reduce(k, a, &d, &rows[1], stream, __func__, err);
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
