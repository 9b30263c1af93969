/* SPDX-License-Identifier: Apache-2.0 */
/*
** launch_copy.c - whole slots to other slots.
*/
#include "launch.h"

#include "abi.h"
#include "error.h"

#include <string.h>

/* Bytes mean the same in both pools, and a page holds the same heads. */
static kvk_status same_pages(const kvk_kernels *k, const kvk_kernels *from, const char *where,
                             kvk_error *err)
{
    if (strcmp(k->pages.signature, from->pages.signature) != 0)
        return error_set(err, KVK_E_ARG, where,
                         "the pools differ: from has signature %s, to has %s",
                         from->pages.signature, k->pages.signature);
    if (k->shape.kv_heads != from->shape.kv_heads)
        return error_set(err, KVK_E_ARG, where, "the pools differ: from has %d KV heads, to has %d",
                         from->shape.kv_heads, k->shape.kv_heads);
    return KVK_OK;
}

static kvk_status copy_check(const kvk_kernels *k, const kvk_kernels *from_kernels,
                             const struct kvk_copy_args *a, struct launch_pool pools[2],
                             const char *where, kvk_error *err)
{
    kvk_status status = from_kernels ? same_pages(k, from_kernels, where, err) : KVK_OK;
    if (!status)
        status = launch_pool_check(k, &a->from, &pools[0], where, err);
    if (!status)
        status = launch_pool_check(k, &a->to, &pools[1], where, err);
    if (!status)
        status = launch_range(a->pages, "pages", 0, 1, where, err);
    if (!status)
        status = launch_index_check(a->from_index, a->index_type, "from_index", "index_type", where,
                                    err);
    if (!status)
        status =
            launch_index_check(a->to_index, a->index_type, "to_index", "index_type", where, err);
    return status;
}

kvk_status kvk_copy(const kvk_kernels *k, const kvk_kernels *from_kernels,
                    const struct kvk_copy_args *a, kvk_stream stream, kvk_error *err)
{
    struct launch_pool pools[2] = {{0}}; /* from, to */
    int64_t grid = 0;
    kvk_status status = launch_begin(k, KIND_COPY, a, sizeof *a, "kvk_copy_args", __func__, err);
    if (!status)
        status = launch_range(a->items, "items", 0, UINT32_MAX, __func__, err);
    if (status || !a->items)
        return status;
    const struct kernel *kernel = k->kernel[KIND_COPY];
    const int64_t tokens = k->shape.page_tokens, slots = a->pages ? a->items * tokens : a->items;
    status = copy_check(k, from_kernels, a, pools, __func__, err);
    if (!status)
        status = launch_vector_grid(kernel, slots, k->shape.kv_heads, &grid, __func__, err);
    if (status)
        return status;
    const struct abi_copy p = {
        .from = (uintptr_t)a->from.data,
        .cache = (uintptr_t)a->to.data,
        .from_index = (uintptr_t)a->from_index,
        .to_index = (uintptr_t)a->to_index,
        .from_page_stride = pools[0].page,
        .from_position_stride = pools[0].position,
        .from_head_stride = pools[0].head,
        .page_stride = pools[1].page,
        .position_stride = pools[1].position,
        .head_stride = pools[1].head,
        .from_capacity = a->from.pages * tokens,
        .capacity = a->to.pages * tokens,
        .items = slots,
        .kv_heads = k->shape.kv_heads,
        .index_64 = a->index_type == KVK_INT64,
        .pages = a->pages,
    };
    return launch_entry(k, &kernel->main, grid, &p, sizeof p, stream, __func__, err);
}
