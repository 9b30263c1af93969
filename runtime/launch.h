/* SPDX-License-Identifier: Apache-2.0 */
/*
** launch.h - checking the arguments of a launch, shared by the calls. `where` is the public call's name.
*/
#ifndef KVKILN_LAUNCH_H
#define KVKILN_LAUNCH_H

#include "context.h"

struct launch_pool { int64_t page, position, head; };  /* byte strides, defaults filled in */
struct launch_rows { int64_t row, head; };             /* element strides, defaults filled in */

kvk_status launch_pool_check(const kvk_kernels *k, const struct kvk_pool *pool, struct launch_pool *out, const char *where,
                             kvk_error *err);

/* `written`: rows that may not overlap. */
kvk_status launch_rows_check(const struct kvk_rows *rows, const char *name, int heads, int size, int written,
                             struct launch_rows *out, const char *where, kvk_error *err);

/* A pointer that must be there and aligned. */
kvk_status launch_pointer(const void *p, const char *name, size_t alignment, const char *where, kvk_error *err);

/* name is in low..high. */
kvk_status launch_range(int64_t value, const char *name, int64_t low, int64_t high, const char *where, kvk_error *err);

/* Was the kind prepared? Do the arguments have a size? */
kvk_status launch_begin(const kvk_kernels *k, int kind, const void *args, size_t known, const char *name, const char *where,
                        kvk_error *err);

/* CTAs to the driver; a grid of 0 is nothing to do, past 2^31-1 is KVK_E_SHAPE. */
kvk_status launch_clusters(const kvk_kernels *k, const struct driver_entry *entry, int64_t grid, struct driver_grid how,
                           const void *params, size_t bytes, kvk_stream stream, const char *where, kvk_error *err);
kvk_status launch_entry(const kvk_kernels *k, const struct driver_entry *entry, int64_t grid, const void *params,
                        size_t bytes, kvk_stream stream, const char *where, kvk_error *err);

#define LAUNCH_GRID_MOST INT32_MAX

/* One warp a (row, head) pair: the grid of every kind that does not attend. */
kvk_status launch_vector_grid(const struct kernel *kernel, int64_t rows, int heads, int64_t *grid, const char *where,
                              kvk_error *err);

/* int32 or int64, and the pointer aligned to it. */
kvk_status launch_index_check(const void *p, kvk_index type, const char *name, const char *type_name, const char *where,
                              kvk_error *err);

/* Block table of any kind; strides and entries in the table's own type. */
kvk_status launch_table_check(const void *table, kvk_index type, int64_t stride, const char *where, kvk_error *err);

/* What decode and unified have in common. */
struct launch_attention {
    const struct kvk_rows *query, *out;
    const void *table, *lengths;
    const float *sinks, *alibi, *lse;
    int64_t table_stride;
    kvk_index table_type;
    int32_t window, full;
    float scale, soft_cap;
};

float launch_scale(const kvk_kernels *k, float scale);
kvk_status launch_attention_check(const kvk_kernels *k, const struct launch_attention *a, struct launch_rows strides[2],
                                  const char *where, kvk_error *err);

/* kvk_unified over a part of the context: `ahead` tokens lie between its end and that of the rows. Not 0: only with a->full. */
kvk_status launch_unified(const kvk_kernels *k, const struct kvk_unified_args *a, int32_t ahead, kvk_stream stream,
                          const char *where, kvk_error *err);

/* launch_image.c: KV heads a CTA of this decode takes at most, 1 if it takes no images; and the image_* parameters. */
struct launch_image { int32_t heads, tokens, pitch, bytes; };
struct launch_map { _Alignas(DRIVER_MAP_ALIGN) unsigned char bytes[DRIVER_MAP_BYTES]; };
int32_t launch_image_heads(const kvk_kernels *k);
struct launch_image launch_image(const kvk_kernels *k, const struct kvk_pool *pool, const struct launch_pool *strides,
                                 int32_t heads);
/* The map that the kernel takes, or NULL if it takes none; where there can be none, image->tokens says that nothing is copied. */
const void *launch_image_map(const kvk_kernels *k, const struct kvk_pool *pool, const struct launch_pool *strides,
                             struct launch_image *image, struct launch_map *map);

#endif
