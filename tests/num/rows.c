/* SPDX-License-Identifier: Apache-2.0 */
/*
** rows.c - row tensors on the device. The buffer ends with the last element, so that guarded
** allocations notice a read or write behind it; gaps hold a NaN pattern. fp16 tensors with gaps are
** aligned to their elements only, bf16 ones to 16 bytes.
*/
#include "num.h"

#include <string.h>

enum { PATTERN = 0xFFA5 }; /* a NaN in both 16-bit formats */

struct num_rows num_rows_put(struct num_run *run, kvk_dtype dtype, const uint16_t *bits,
                             size_t rows, size_t heads, size_t d, int strided)
{
    struct num_rows t = {.dtype = dtype,
                         .rows = rows,
                         .heads = heads,
                         .d = d,
                         .row_stride = heads * d,
                         .head_stride = d};
    uint16_t *host;

    if (strided) {
        int odd = dtype == KVK_FLOAT16;
        t.first = odd ? 1 : 8;
        t.head_stride = d + (odd ? 3 : 8);
        t.row_stride = heads * t.head_stride + (odd ? 6 : 24);
    }
    t.elements = t.first;
    t.elements += rows ? (rows - 1) * t.row_stride + (heads - 1) * t.head_stride + d : 0;
    host = num_host(run, t.elements * 2);
    for (size_t i = 0; i < t.elements; i++)
        host[i] = PATTERN;
    for (size_t r = 0; bits && r < rows; r++)
        for (size_t h = 0; h < heads; h++)
            memcpy(host + t.first + r * t.row_stride + h * t.head_stride,
                   bits + (r * heads + h) * d, d * 2);
    t.base = num_upload(run, host, t.elements * 2);
    t.device.data = (uint16_t *)t.base + t.first;
    if (strided) {
        t.device.row_stride = (int64_t)t.row_stride;
        t.device.head_stride = (int64_t)t.head_stride;
    }
    return t;
}

uint16_t *num_rows_get(struct num_run *run, const struct num_rows *t, size_t rows, const char *what)
{
    uint16_t *host = num_host(run, t->elements * 2),
             *dense = num_host(run, rows * t->heads * t->d * 2);

    num_download(run, host, t->base, t->elements * 2);
    for (size_t r = 0; r < rows; r++)
        for (size_t h = 0; h < t->heads; h++)
            for (size_t i = 0; i < t->d; i++) {
                uint16_t *at = host + t->first + r * t->row_stride + h * t->head_stride + i;
                dense[(r * t->heads + h) * t->d + i] = *at;
                *at = PATTERN;
            }
    for (size_t i = 0; i < t->elements; i++)
        if (host[i] != PATTERN)
            num_differ(run,
                       "%s: element %zu (rows of %zu from %zu) lies outside the %zu rows to write, "
                       "yet holds %04x",
                       what, i, t->row_stride, t->first, rows, host[i]);
    return dense;
}
