/* SPDX-License-Identifier: Apache-2.0 */
/*
** bench.h - one timed kernel of a shape: what the kinds share.
**
** A cache of random rows lies in shuffled pages. There are several sets of sequences, each with pages of its own; launches take
** turns on the sets, so that a GPU's L2 holds nothing that they read. Every kind verifies its output in double precision before
** it is timed.
*/
#ifndef KVKILN_CLI_BENCH_H
#define KVKILN_CLI_BENCH_H

#include "device.h"
#include "oracle.h"

enum { BENCH_GROUPS = 16, BENCH_REFERENCES = 2 };

/* `count` sequences of `tokens` cached tokens each. */
struct bench_group {
    long count, tokens;
};

/* 0 and NULL: the default of the kind and device (bench_shape_fill). */
struct bench_shape {
    const char *preset, *layout, *plan;
    kvk_dtype dtype;
    long head_size, value_head_size, gqa, kv_heads, page, query_tokens, splits;
    struct bench_group groups[BENCH_GROUPS];
    int ngroups, full; /* full: unified without a causal mask */
    unsigned seed;
};

/* Random N(0, 1) rows on the device; the host keeps one period of them. */
struct bench_random {
    void *device;
    unsigned char *chunk;
    size_t elements, period;
};

/* What attention over one head of one sequence must give: [count][gqa][value_head_size]. NULL: not computed yet. */
struct bench_reference {
    long sequence;
    int head, count;
    double *want;
};

struct bench {
    kvk_context *ctx;
    int host;
    struct bench_shape shape;
    const struct bench_kind *kind;
    const kvk_kernels *store, *kernels, *reader; /* reader: dequant, of formats that the oracle does not know */
    const kvk_kernels *dense; /* tiled: of a tile */
    struct kvk_layout layout;
    struct kvk_pool pool;
    long batch, tokens, longest, rows; /* tokens: cached, of one set; rows: that the kernel is given or makes */
    long sets, stride, set_pages;
    long *context;              /* [batch] */
    int32_t *host_tables;       /* [sets][batch][stride], -1 past a sequence's end */
    void *tables, *lengths, *starts, *slots;
    int64_t *host_slots;        /* store: [sets][rows] */
    struct bench_random query, key, value; /* key, value: store's input */
    void *out[2];               /* output rows; dequant: of keys and values */
    size_t out_bytes[2];
    void *workspace;
    size_t workspace_bytes;
    struct bench_reference *references; /* [BENCH_REFERENCES], kept from the first verification on */
};

/* What one launch moves and computes. */
struct bench_work {
    double cache, read, written; /* bytes: compressed, and all that must be read and written once */
    double flops;                /* of attention's two products; 0: the kind does not attend */
};

struct bench_verdict {
    double rel_l2, limit; /* of the sample that was compared */
    long compared;        /* numbers */
    const char *against;
};

struct bench_kind {
    const char *name;
    unsigned bits; /* kvk_kind_bits of the kernels; the first is the timed one */
    kvk_status (*make)(struct bench *b, kvk_error *err); /* what it needs beside the cache */
    kvk_status (*launch)(const struct bench *b, long set, kvk_stream stream, kvk_error *err);
    kvk_status (*verify)(const struct bench *b, struct bench_verdict *out, kvk_error *err); /* set 0 */
    void (*work)(const struct bench *b, struct bench_work *out);
    void (*limits)(const struct bench *b, struct kvk_limits *out); /* that its workspace follows from; NULL: it needs none */
};

extern const struct bench_kind bench_decode, bench_store, bench_dequant, bench_unified, bench_tiled;
const struct bench_kind *bench_kind_find(const char *name); /* or NULL */

/* ---- bench_shape.c ---- */
/* "32768", or "1x131072+31x4096" after `batch` was left out (0). */
int bench_shape_context(struct bench_shape *shape, const char *text, long batch);
void bench_shape_fill(struct bench_shape *shape, const struct bench_kind *kind, int host);
/* "1x131072+31x4096" or "16x32768". */
void bench_shape_text(const struct bench_shape *shape, char *text, size_t cap);

/* ---- bench_pool.c ---- */
/* Prepares kernels, allocates at least `pool_bytes` of cache (whole sets) and fills it, then kind->make. */
kvk_status bench_open(struct bench *b, const struct device *device, const struct bench_kind *kind,
                      const struct bench_shape *shape, size_t pool_bytes, kvk_error *err);
void bench_close(struct bench *b);
/* The kernels of the timed kind by another plan; several threads may ask at a time. */
kvk_status bench_prepare(const struct bench *b, const char *plan, const kvk_kernels **out, kvk_error *err);
/* The same cache and inputs, another plan of the timed kernel. */
kvk_status bench_replan(struct bench *b, const char *plan, kvk_error *err);
kvk_status bench_random(struct bench *b, size_t elements, unsigned salt, struct bench_random *out, kvk_error *err);
double bench_random_at(const struct bench *b, const struct bench_random *rows, size_t i);
kvk_status bench_put(struct bench *b, const void *host, size_t bytes, void **device, kvk_error *err);
kvk_status bench_output(struct bench *b, int which, size_t bytes, kvk_error *err);
const int32_t *bench_table(const struct bench *b, long set, long sequence);

/* ---- bench_attend.c: decode and unified ---- */
size_t bench_query_elements(const struct bench *b, long size); /* of all query rows, of this size a head */
kvk_status bench_attend_make(struct bench *b, kvk_error *err); /* queries and output, b->rows of them */
/* These rows of the first sequence with the first head, and of the last with the last. */
kvk_status bench_attend_verify(const struct bench *b, const long *query_rows, int count, struct bench_verdict *v,
                               kvk_error *err);
/* The cache, page numbers, `numbers` other indices and queries are read once, outputs written once. What splits hand to the
** merge is the schedule's own affair and not counted. */
void bench_attend_work(const struct bench *b, long numbers, struct bench_work *out);

/* ---- bench_rows.c ---- */
/* Decoded rows of one sequence of set 0 and one KV head: by the oracle, or where it does not know the format by dequant. */
kvk_status bench_rows(const struct bench *b, long sequence, int head, struct oracle_rows *out, kvk_error *err);
const char *bench_rows_source(const struct bench *b);
/* Squares of differences and references of one output row: query head `h` of row `row`, element type the model's. */
struct bench_sum {
    double square, reference;
    long count;
};
void bench_compare(const struct bench *b, const unsigned char *got, size_t at, const double *want, int n,
                   struct bench_sum *sum);
/* Attention output rows of (sequence, head) against double precision; `query_rows`: which of its query tokens, in a bench always
** the same. The cache and the queries stay as they are, so what is compared with is computed once, before any timed launch. */
kvk_status bench_attention(const struct bench *b, long sequence, int head, const long *query_rows, int count,
                           const unsigned char *out, struct bench_sum *sum, kvk_error *err);
void bench_references_free(struct bench *b);
/* Fills the output with NaN, launches set 0, and downloads output `which`; free it. */
kvk_status bench_run_once(const struct bench *b, unsigned char *out[2], kvk_error *err);
double bench_relative(const struct bench_sum *sum);

#endif
