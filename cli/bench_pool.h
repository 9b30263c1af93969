/* SPDX-License-Identifier: Apache-2.0 */
/*
** bench_pool.h - a large cache of random rows for a benchmark: several sets of sequences, each with
** pages of its own, so that repetitions that take turns on the sets find nothing of theirs left in
** a GPU's L2.
*/
#ifndef KVKILN_CLI_BENCH_POOL_H
#define KVKILN_CLI_BENCH_POOL_H

#include "device.h"
#include "number.h"

struct bench_shape {
    const char *preset, *layout;
    kvk_dtype dtype;
    long head_size, gqa, kv_heads, batch, context, page;
    unsigned seed;
};

struct bench_pool {
    kvk_context *ctx;
    struct bench_shape shape;
    const kvk_kernels *kernels;
    struct kvk_layout layout;
    struct kvk_pool pool;
    long sets, pages_per_sequence;
    int32_t *host_tables; /* [sets][batch][pages_per_sequence] */
    int32_t *tables;      /* the same on the device */
    int32_t *lengths;     /* device, [batch], all = context */
    void *query, *out;    /* device, [batch][H][D] */
    unsigned char *host_query;
    void *workspace;
    size_t workspace_bytes;
    size_t query_bytes, set_bytes; /* set_bytes: compressed bytes that one launch reads */
};

/* Prepares store and decode, allocates `total_bytes` of pool or
 * more (a whole number of sets) and stores random rows. */
kvk_status bench_pool_open(struct bench_pool *pool, kvk_context *ctx,
                           const struct bench_shape *shape, size_t total_bytes, kvk_error *err);
void bench_pool_close(struct bench_pool *pool);

/* Arguments of a decode of set `set`. */
void bench_pool_decode_args(const struct bench_pool *pool, long set, struct kvk_decode_args *args);

/* Runs set 0 and compares a sample of its output (first and last KV head of sequence 0, every query
 * head of them) with attention in double precision over its pages. *rel_l2 < 0: this format has no
 * oracle. */
kvk_status bench_pool_verify(const struct bench_pool *pool, int splits, double *rel_l2,
                             kvk_error *err);

#endif
