/* SPDX-License-Identifier: Apache-2.0 */
/*
** launch.c - what the launches check on the host, and store and dequant themselves. Nothing here
** allocates, locks, hashes or reads device memory: every call can be captured into a graph.
*/
#include "launch.h"

#include "abi.h"
#include "error.h"

kvk_status launch_pointer(const void *p, const char *name, size_t alignment, const char *where,
                          kvk_error *err)
{
    if (!p)
        return error_set(err, KVK_E_ARG, where, "%s is NULL", name);
    if ((uintptr_t)p % alignment)
        return error_set(err, KVK_E_ALIGN, where, "%s is %p, must be a multiple of %zu bytes", name,
                         (void *)(uintptr_t)p, alignment);
    return KVK_OK;
}

kvk_status launch_range(int64_t value, const char *name, int64_t low, int64_t high,
                        const char *where, kvk_error *err)
{
    if (value >= low && value <= high)
        return KVK_OK;
    return error_set(err, KVK_E_SHAPE, where, "%s is %lld, accepted %lld..%lld", name,
                     (long long)value, (long long)low, (long long)high);
}

kvk_status launch_begin(const kvk_kernels *k, int kind, const void *args, size_t known,
                        const char *name, const char *where, kvk_error *err)
{
    if (!k)
        return error_set(err, KVK_E_ARG, where, "kernels is NULL");
    if (!k->kernel[kind])
        return error_set(err, KVK_E_ARG, where, "the kernels were prepared without this kind");
    kvk_status status = fork_check(k->ctx, where, err);
    return status ? status : args_check(args, known, name, err);
}

kvk_status launch_clusters(const kvk_kernels *k, const struct driver_entry *entry, int64_t grid,
                           struct driver_grid how, const void *params, size_t bytes,
                           kvk_stream stream, const char *where, kvk_error *err)
{
    if (grid > LAUNCH_GRID_MOST)
        return error_set(err, KVK_E_SHAPE, where,
                         "the call needs %lld CTAs, a launch has at most %d", (long long)grid,
                         LAUNCH_GRID_MOST);
    if (grid <= 0)
        return KVK_OK;
    how.ctas = (unsigned)grid;
    return k->ctx->driver->launch(k->ctx->device, entry, how, params, bytes, stream, err);
}

kvk_status launch_entry(const kvk_kernels *k, const struct driver_entry *entry, int64_t grid,
                        const void *params, size_t bytes, kvk_stream stream, const char *where,
                        kvk_error *err)
{
    return launch_clusters(k, entry, grid, (struct driver_grid){0}, params, bytes, stream, where,
                           err);
}

static kvk_status stride_check(int64_t stride, int64_t least, int64_t multiple, const char *name,
                               const char *where, kvk_error *err)
{
    if (stride < least)
        return error_set(err, KVK_E_SHAPE, where, "%s is %lld bytes, the least is %lld", name,
                         (long long)stride, (long long)least);
    if (stride % multiple)
        return error_set(err, KVK_E_ALIGN, where, "%s is %lld bytes, must be a multiple of %lld",
                         name, (long long)stride, (long long)multiple);
    return KVK_OK;
}

/*
** Positions, heads and pages may nest in any order, but no two slots may share bytes: taken from
** the smallest stride up, each must span all that the ones below it reach.
*/
static kvk_status overlap_check(const kvk_kernels *k, const struct kvk_pool *pool,
                                const struct launch_pool *s, const char *where, kvk_error *err)
{
    struct {
        const char *name;
        int64_t stride, count;
    } dims[] = {
        {"position_stride", s->position, k->shape.page_tokens},
        {"head_stride", s->head, k->shape.kv_heads},
        {"page_stride", s->page, pool->pages > 2 ? pool->pages : 2},
    };
    int64_t reach = k->pages.slot_bytes;
    for (int done = 0; done < 3; done++) {
        int next = -1;
        for (int i = 0; i < 3; i++)
            if (dims[i].count > 1 && (next < 0 || dims[i].stride < dims[next].stride))
                next = i;
        if (next < 0)
            return KVK_OK;
        if (dims[next].stride < reach)
            return error_set(err, KVK_E_SHAPE, where,
                             "pool: %s is %lld bytes, the least here is %lld", dims[next].name,
                             (long long)dims[next].stride, (long long)reach);
        if (__builtin_mul_overflow(dims[next].stride, dims[next].count - 1, &dims[next].stride) ||
            __builtin_add_overflow(reach, dims[next].stride, &reach))
            return error_set(err, KVK_E_SHAPE, where, "pool: %s spans more than 2^63 bytes",
                             dims[next].name);
        dims[next].count = 0;
    }
    return KVK_OK;
}

/* Layouts whose strides inside a page follow from the shape. */
static kvk_status fixed_check(const kvk_kernels *k, const struct kvk_pool *pool,
                              const struct launch_pool *s, const char *where, kvk_error *err)
{
    const struct page_facts *p = &k->pages;
    int64_t heads = k->shape.kv_heads, page = heads * k->shape.page_tokens * p->slot_bytes;
    if (s->position != heads * p->record_bytes || s->head != p->record_bytes)
        return error_set(err, KVK_E_SHAPE, where,
                         "pool: layout %s fixes position_stride to %lld and head_stride to %lld, "
                         "they are %lld and %lld",
                         k->shape.layout, (long long)(heads * p->record_bytes),
                         (long long)p->record_bytes, (long long)pool->position_stride,
                         (long long)pool->head_stride);
    return stride_check(s->page, page, p->slot_alignment, "pool: page_stride", where, err);
}

kvk_status launch_pool_check(const kvk_kernels *k, const struct kvk_pool *pool,
                             struct launch_pool *out, const char *where, kvk_error *err)
{
    const struct page_facts *p = &k->pages;
    const int64_t heads = k->shape.kv_heads, tokens = k->shape.page_tokens;
    const int fixed = p->soa || p->native;
    const int64_t record = fixed ? p->record_bytes : p->slot_bytes;
    out->position = pool->position_stride ? pool->position_stride : heads * record;
    out->head = pool->head_stride ? pool->head_stride : record;
    out->page = pool->page_stride ? pool->page_stride : heads * tokens * p->slot_bytes;
    kvk_status status = launch_pointer(pool->data, "pool.data", 16, where, err);
    if (!status)
        status = launch_range(pool->pages, "pool.pages", 0, INT64_MAX / tokens, where, err);
    if (status || fixed)
        return status ? status : fixed_check(k, pool, out, where, err);
    status = stride_check(out->position, p->slot_bytes, p->slot_alignment, "pool: position_stride",
                          where, err);
    if (!status)
        status = stride_check(out->head, p->slot_bytes, p->slot_alignment, "pool: head_stride",
                              where, err);
    if (!status)
        status = stride_check(out->page, p->slot_bytes, p->slot_alignment, "pool: page_stride",
                              where, err);
    return status ? status : overlap_check(k, pool, out, where, err);
}

kvk_status launch_rows_check(const struct kvk_rows *rows, const char *name, int heads, int size,
                             int written, struct launch_rows *out, const char *where,
                             kvk_error *err)
{
    kvk_status status = launch_pointer(rows->data, name, 2, where, err);
    int64_t least = written ? size : 0;
    if (status)
        return status;
    out->head = rows->head_stride ? rows->head_stride : size;
    if (!rows->row_stride && __builtin_mul_overflow(out->head, heads, &out->row))
        return error_set(err, KVK_E_SHAPE, where, "%s: head_stride %lld is too large", name,
                         (long long)out->head);
    if (rows->row_stride)
        out->row = rows->row_stride;
    if (out->row < least || (heads > 1 && out->head < least))
        return error_set(err, KVK_E_SHAPE, where,
                         "%s: row_stride %lld, head_stride %lld: the least is %lld elements", name,
                         (long long)out->row, (long long)out->head, (long long)least);
    return KVK_OK;
}

static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* Kernels number their pairs in 32 bits. */
kvk_status launch_vector_grid(const struct kernel *kernel, int64_t rows, int heads, int64_t *grid,
                              const char *where, kvk_error *err)
{
    int64_t pairs;
    if (__builtin_mul_overflow(rows, (int64_t)heads, &pairs) ||
        pairs > (int64_t)UINT32_MAX - kernel->vectors)
        return error_set(err, KVK_E_SHAPE, where, "%lld rows of %d heads: more than a launch takes",
                         (long long)rows, heads);
    *grid = ceil_div(pairs, kernel->vectors);
    return KVK_OK;
}

kvk_status launch_index_check(const void *p, kvk_index type, const char *name,
                              const char *type_name, const char *where, kvk_error *err)
{
    if (type != KVK_INT32 && type != KVK_INT64)
        return error_set(err, KVK_E_ARG, where, "%s is %d, accepted KVK_INT32, KVK_INT64",
                         type_name, (int)type);
    return launch_pointer(p, name, type == KVK_INT64 ? 8 : 4, where, err);
}

kvk_status launch_table_check(const void *table, kvk_index type, int64_t stride, const char *where,
                              kvk_error *err)
{
    kvk_status status = launch_index_check(table, type, "block_table", "table_type", where, err);
    return status ? status : launch_range(stride, "table_stride", 0, INT64_MAX / 8, where, err);
}

kvk_status kvk_store(const kvk_kernels *k, const struct kvk_store_args *a, kvk_stream stream,
                     kvk_error *err)
{
    struct launch_pool pool;
    struct launch_rows key, value;
    int64_t grid = 0;
    kvk_status status = launch_begin(k, KIND_STORE, a, sizeof *a, "kvk_store_args", __func__, err);
    if (!status)
        status = launch_range(a->rows, "rows", 0, INT64_MAX, __func__, err);
    if (status || !a->rows)
        return status;
    const struct shape *s = &k->shape;
    const struct kernel *kernel = k->kernel[KIND_STORE];
    status = launch_pool_check(k, &a->pool, &pool, __func__, err);
    if (!status)
        status =
            launch_rows_check(&a->key, "key", s->kv_heads, s->head_size, 0, &key, __func__, err);
    if (!status)
        status = launch_rows_check(&a->value, "value", s->kv_heads, s->value_head_size, 0, &value,
                                   __func__, err);
    if (!status)
        status = launch_index_check(a->slots, a->slot_type, "slots", "slot_type", __func__, err);
    if (!status)
        status = launch_vector_grid(kernel, a->rows, s->kv_heads, &grid, __func__, err);
    if (status)
        return status;
    const struct abi_store p = {
        .cache = (uintptr_t)a->pool.data,
        .key = (uintptr_t)a->key.data,
        .value = (uintptr_t)a->value.data,
        .slots = (uintptr_t)a->slots,
        .page_stride = pool.page,
        .position_stride = pool.position,
        .head_stride = pool.head,
        .key_row = key.row,
        .key_head = key.head,
        .value_row = value.row,
        .value_head = value.head,
        .capacity = a->pool.pages * s->page_tokens,
        .rows = a->rows,
        .kv_heads = s->kv_heads,
        .slots_64 = a->slot_type == KVK_INT64,
    };
    return launch_entry(k, &kernel->main, grid, &p, sizeof p, stream, __func__, err);
}

static kvk_status dequant_check(const kvk_kernels *k, const struct kvk_dequant_args *a,
                                struct launch_pool *pool, struct launch_rows *key,
                                struct launch_rows *value, const char *where, kvk_error *err)
{
    const struct shape *s = &k->shape;
    kvk_status status = launch_pool_check(k, &a->pool, pool, where, err);
    if (!status && !a->key.data && !a->value.data)
        return error_set(err, KVK_E_ARG, where, "key and value are both NULL");
    if (!status && a->key.data)
        status = launch_rows_check(&a->key, "key", s->kv_heads, s->head_size, 1, key, where, err);
    if (!status && a->value.data)
        status = launch_rows_check(&a->value, "value", s->kv_heads, s->value_head_size, 1, value,
                                   where, err);
    if (!status)
        status = launch_table_check(a->block_table, a->table_type, a->table_stride, where, err);
    if (!status)
        status = launch_pointer(a->out_start, "out_start", 4, where, err);
    if (!status && a->first_token)
        status = launch_pointer(a->first_token, "first_token", 4, where, err);
    if (!status)
        status = launch_range(a->rotate_back, "rotate_back", 0, 1, where, err);
    return status;
}

kvk_status kvk_dequant(const kvk_kernels *k, const struct kvk_dequant_args *a, kvk_stream stream,
                       kvk_error *err)
{
    struct launch_pool pool = {0};
    struct launch_rows key = {0}, value = {0};
    int64_t grid = 0;
    kvk_status status =
        launch_begin(k, KIND_DEQUANT, a, sizeof *a, "kvk_dequant_args", __func__, err);
    if (!status)
        status =
            launch_range(a->rows, "rows", 0, INT32_MAX, __func__, err); /* out_start is 32-bit */
    if (!status)
        status = launch_range(a->sequences, "sequences", 0, INT32_MAX - 1, __func__, err);
    if (status || !a->rows || !a->sequences)
        return status;
    const struct kernel *kernel = k->kernel[KIND_DEQUANT];
    status = dequant_check(k, a, &pool, &key, &value, __func__, err);
    if (!status)
        status = launch_vector_grid(kernel, a->rows, k->shape.kv_heads, &grid, __func__, err);
    if (status)
        return status;
    const struct abi_dequant p = {
        .cache = (uintptr_t)a->pool.data,
        .key = (uintptr_t)a->key.data,
        .value = (uintptr_t)a->value.data,
        .table = (uintptr_t)a->block_table,
        .out_start = (uintptr_t)a->out_start,
        .first_token = (uintptr_t)a->first_token,
        .page_stride = pool.page,
        .position_stride = pool.position,
        .head_stride = pool.head,
        .key_row = key.row,
        .key_head = key.head,
        .value_row = value.row,
        .value_head = value.head,
        .table_stride = a->table_stride,
        .rows = a->rows,
        .sequences = (int32_t)a->sequences,
        .kv_heads = k->shape.kv_heads,
        .rotate_back = a->rotate_back,
        .table_64 = a->table_type == KVK_INT64,
    };
    return launch_entry(k, &kernel->main, grid, &p, sizeof p, stream, __func__, err);
}
