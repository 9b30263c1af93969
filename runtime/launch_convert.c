/* SPDX-License-Identifier: Apache-2.0 */
/*
** launch_convert.c - slots of one layout to slots of another.
*/
#include "launch.h"

#include "abi.h"
#include "error.h"

#include <string.h>

/* As the kernel counts them; -1: a layout that it does not know. */
static int layout_number(const char *name)
{
    static const char *const names[] = {"aos", "soa", "native"};
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (!strcmp(name, names[i]))
            return i;
    return -1;
}

/* Takes the first `part` out of a text. */
static void take_out(char *text, const char *part)
{
    char *at = strstr(text, part);
    if (at)
        memmove(at, at + strlen(part), strlen(at + strlen(part)) + 1);
}

/* A signature without what a conversion changes: the layout, and where norms are corrected. */
static void meaning_of(const kvk_kernels *k, char text[sizeof k->pages.signature])
{
    static const char *const where[] = {"-read", "-store", "-read", "-store"};
    char layout[sizeof k->shape.layout + 2] = ":";
    strcat(strcat(layout, k->shape.layout), ":");
    memcpy(text, k->pages.signature, sizeof k->pages.signature);
    take_out(text, layout);
    for (size_t i = 0; i < sizeof where / sizeof *where; i++)
        take_out(text, where[i]);
}

static kvk_status same_slots(const kvk_kernels *k, const kvk_kernels *from, const char *where,
                             kvk_error *err)
{
    char ours[sizeof k->pages.signature], theirs[sizeof k->pages.signature];
    if (!from)
        return error_set(err, KVK_E_ARG, where, "from_kernels is NULL");
    meaning_of(k, ours);
    meaning_of(from, theirs);
    if (strcmp(ours, theirs) != 0)
        return error_set(err, KVK_E_ARG, where,
                         "the pools differ in more than layout: from has signature %s, to has %s",
                         from->pages.signature, k->pages.signature);
    if (k->shape.kv_heads != from->shape.kv_heads)
        return error_set(err, KVK_E_ARG, where, "the pools differ: from has %d KV heads, to has %d",
                         from->shape.kv_heads, k->shape.kv_heads);
    if (!strcmp(k->shape.layout, from->shape.layout))
        return error_set(err, KVK_E_ARG, where,
                         "both pools have layout %s: kvk_copy moves slots as they are",
                         from->shape.layout);
    if (layout_number(from->shape.layout) < 0)
        return error_set(err, KVK_E_ARG, where, "from has layout %s, accepted aos, soa, native",
                         from->shape.layout);
    return KVK_OK;
}

static kvk_status convert_check(const kvk_kernels *k, const kvk_kernels *from,
                                const struct kvk_convert_args *a, struct launch_pool pools[2],
                                const char *where, kvk_error *err)
{
    kvk_status status = same_slots(k, from, where, err);
    if (!status)
        status = launch_pool_check(from, &a->from, &pools[0], where, err);
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

kvk_status kvk_convert(const kvk_kernels *k, const kvk_kernels *from_kernels,
                       const struct kvk_convert_args *a, kvk_stream stream, kvk_error *err)
{
    struct launch_pool pools[2] = {{0}}; /* from, to */
    int64_t grid = 0;
    kvk_status status =
        launch_begin(k, KIND_CONVERT, a, sizeof *a, "kvk_convert_args", __func__, err);
    if (!status)
        status = launch_range(a->items, "items", 0, UINT32_MAX, __func__, err);
    if (status || !a->items)
        return status;
    const struct kernel *kernel = k->kernel[KIND_CONVERT];
    const int64_t tokens = k->shape.page_tokens, slots = a->pages ? a->items * tokens : a->items;
    status = convert_check(k, from_kernels, a, pools, __func__, err);
    if (!status)
        status = launch_vector_grid(kernel, slots, k->shape.kv_heads, &grid, __func__, err);
    if (status)
        return status;
    const struct abi_convert p = {
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
        .from_layout = layout_number(from_kernels->shape.layout),
    };
    return launch_entry(k, &kernel->main, grid, &p, sizeof p, stream, __func__, err);
}
