/* SPDX-License-Identifier: Apache-2.0 */
/*
** launch_merge.c - two partial results of the same rows into one.
*/
#include "launch.h"

#include "abi.h"
#include "error.h"

#include <stdio.h>

/* What the kernel calls the element types. */
static kvk_status type_code(const kvk_kernels *k, kvk_dtype dtype, const char *name, int32_t *code,
                            const char *where, kvk_error *err)
{
    switch (dtype ? dtype : k->shape.dtype) {
    case KVK_FLOAT32: *code = 0; return KVK_OK;
    case KVK_FLOAT16: *code = 1; return KVK_OK;
    case KVK_BFLOAT16: *code = 2; return KVK_OK;
    default:
        return error_set(err, KVK_E_ARG, where,
                         "%s: dtype is %d, accepted KVK_FLOAT16, KVK_BFLOAT16, KVK_FLOAT32", name,
                         (int)dtype);
    }
}

struct side {
    struct launch_rows rows;
    int32_t type;
};

static kvk_status side_check(const kvk_kernels *k, const struct kvk_partial *p, const char *name,
                             int written, struct side *out, const char *where, kvk_error *err)
{
    char data[16], lse[16];
    snprintf(data, sizeof data, "%s.out", name);
    snprintf(lse, sizeof lse, "%s.lse", name);
    kvk_status status = type_code(k, p->dtype, name, &out->type, where, err);
    if (!status)
        status = launch_rows_check(&p->out, data, k->shape.query_heads, k->shape.value_head_size,
                                   written, &out->rows, where, err);
    if (!status && out->type == 0)
        status = launch_pointer(p->out.data, data, 4, where, err);
    if (!status && (p->lse || !written))
        status = launch_pointer(p->lse, lse, 4, where, err);
    return status;
}

kvk_status kvk_merge(const kvk_kernels *k, const struct kvk_merge_args *m, kvk_stream stream,
                     kvk_error *err)
{
    struct side a, b, out;
    int64_t grid = 0;
    kvk_status status = launch_begin(k, KIND_MERGE, m, sizeof *m, "kvk_merge_args", __func__, err);
    if (!status)
        status = launch_range(m->rows, "rows", 0, INT64_MAX, __func__, err);
    if (status || !m->rows)
        return status;
    const struct kernel *kernel = k->kernel[KIND_MERGE];
    status = side_check(k, &m->a, "a", 0, &a, __func__, err);
    if (!status)
        status = side_check(k, &m->b, "b", 0, &b, __func__, err);
    if (!status)
        status = side_check(k, &m->out, "out", 1, &out, __func__, err);
    if (!status)
        status = launch_vector_grid(kernel, m->rows, k->shape.query_heads, &grid, __func__, err);
    if (status)
        return status;
    const struct abi_merge p = {
        .a = (uintptr_t)m->a.out.data,
        .a_lse = (uintptr_t)m->a.lse,
        .b = (uintptr_t)m->b.out.data,
        .b_lse = (uintptr_t)m->b.lse,
        .out = (uintptr_t)m->out.out.data,
        .out_lse = (uintptr_t)m->out.lse,
        .a_row = a.rows.row,
        .a_head = a.rows.head,
        .b_row = b.rows.row,
        .b_head = b.rows.head,
        .out_row = out.rows.row,
        .out_head = out.rows.head,
        .rows = m->rows,
        .query_heads = k->shape.query_heads,
        .a_type = a.type,
        .b_type = b.type,
        .out_type = out.type,
    };
    return launch_entry(k, &kernel->main, grid, &p, sizeof p, stream, __func__, err);
}
