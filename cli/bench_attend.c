/* SPDX-License-Identifier: Apache-2.0 */
/* bench_attend.c - what the benches of decode and unified have in common. */
#include "bench.h"

#include "check_read.h"

#include <stdlib.h>

size_t bench_query_elements(const struct bench *b, long size)
{
    return (size_t)(b->rows * b->shape.kv_heads * b->shape.gqa * size);
}

kvk_status bench_attend_make(struct bench *b, kvk_error *err)
{
    kvk_status status =
        bench_random(b, bench_query_elements(b, b->shape.head_size), 3, &b->query, err);
    if (!status)
        status = bench_output(b, 0, 2 * bench_query_elements(b, b->shape.value_head_size), err);
    return status;
}

kvk_status bench_attend_verify(const struct bench *b, const long *query_rows, int count,
                               struct bench_verdict *v, kvk_error *err)
{
    unsigned char *out[2];
    struct bench_sum sum = {0};
    kvk_status status = bench_run_once(b, out, err);
    if (!status)
        status = bench_attention(b, 0, 0, query_rows, count, out[0], &sum, err);
    if (!status && (b->batch > 1 || b->shape.kv_heads > 1))
        status = bench_attention(b, b->batch - 1, (int)b->shape.kv_heads - 1, query_rows, count,
                                 out[0], &sum, err);
    free(out[0]);
    *v = (struct bench_verdict){bench_relative(&sum), check_output_limit(b->shape.dtype), sum.count,
                                bench_rows_source(b)};
    return status;
}

/* Two products of the visible (query, key) pairs, two operations a multiplication. */
static double flops(const struct bench *b)
{
    double t = (double)b->shape.query_tokens, unseen = b->shape.full ? 0 : t * (t - 1) / 2;
    double pairs = t * (double)b->tokens - unseen * (double)b->batch;
    return 2 * pairs * (double)(b->shape.kv_heads * b->shape.gqa) *
           (double)(b->shape.head_size + b->shape.value_head_size);
}

void bench_attend_work(const struct bench *b, long numbers, struct bench_work *out)
{
    out->cache = (double)b->tokens * (double)b->shape.kv_heads * (double)b->layout.slot_bytes;
    out->read = out->cache + 4.0 * (double)(b->set_pages + numbers) +
                2.0 * (double)bench_query_elements(b, b->shape.head_size);
    out->written = 2.0 * (double)bench_query_elements(b, b->shape.value_head_size);
    out->flops = flops(b);
}
