/* SPDX-License-Identifier: Apache-2.0 */
/*
** world.h - sequences in a paged pool, as the oracle stores them, and calls of attention over them.
*/
#ifndef KVKILN_TESTS_WORLD_H
#define KVKILN_TESTS_WORLD_H

#include "num.h"

/* --- world.c --- */
enum world_pool { POOL_DENSE, POOL_HEAD_MAJOR, POOL_PADDED };
struct world {
    struct num_model m;
    struct ref_format f;
    int sequences, lengths[NUM_MAX_SEQUENCES], first_row[NUM_MAX_SEQUENCES + 1];
    int32_t *table;   /* [sequences][table_stride]; entries past a length hold -1 */
    int table_stride;
    uint16_t *key, *value; /* [rows][G][d], [rows][G][dv] model dtype, in token order */
    struct ref_pool pool;  /* host memory */
    size_t pool_bytes;
    enum world_pool kind;
};
struct world_options {
    const int *lengths; /* [sequences] */
    int sequences;
    uint64_t data_seed, page_seed;
    enum world_pool pool;
    int special;  /* odd rows among the others */
    int poison;   /* byte of all that is never stored */
};
void world_make(struct num_run *run, struct world *w, const struct num_model *m,
                const struct world_options *o);
int64_t world_slot(const struct world *w, int sequence, int token);
void world_store(struct world *w); /* again, after key and value were changed */
/* Uploads `bytes`, as many as the pool has. */
struct kvk_pool world_pool(struct num_run *run, const struct world *w, const uint8_t *bytes);
void world_read(const struct world *w, int sequence, double *key, double *value);
/* The same with codebook entries as the matrix units take them: rounded to fp16, their lengths not. */
void world_read_operands(const struct world *w, int sequence, double *key, double *value);
/* What fp16 changes of the stored keys' centroids, relative, in the mean; 0 without centroids. */
double world_key_rounding(const struct world *w);
/* What lengths of the stored keys lose whose squares are added by twos in fp16, relative, in the mean: of few centroids
** few sums are rounded, and they do not even out. The larger of what fused and other sums lose. */
double world_squares_rounding(const struct world *w);
/* The block table as the device has it, of int64 if `wide`; the last sequence's unused entries are
** not even there. */
void *world_table(struct num_run *run, const struct world *w, int wide);
float *world_floats(struct num_run *run, kvk_dtype dtype, const uint16_t *bits, size_t n);

/* --- attend.c --- */
struct attention {
    const struct world *w;
    int unified, q_len[NUM_MAX_SEQUENCES], start[NUM_MAX_SEQUENCES + 1];
    int spare_rows;    /* unified: tokens beyond query_start[S], which must stay untouched */
    uint16_t *query;   /* [start[S]][H][D] */
    float scale;       /* 0 = default */
    int window, splits, strided, no_lse;
    int64_t max_context;
    const float *sinks; /* [H] host */
    int full, table_64, batch_invariant;
    float soft_cap;     /* with KVK_SOFT_CAP of the model's options */
    const float *alibi; /* [H] host, with KVK_ALIBI */
    double lse_limit;   /* operands of its own kind: only the exact check counts, with this */
    int extreme;        /* no random data: only the check by operands counts */
    const struct kvk_pool *pool; /* instead of an upload of the world's */
    uint16_t *out;      /* results [start[S]][H][D] */
    float *lse;
};
/* What the device holds of one call. */
struct attention_buffers {
    struct kvk_pool pool;
    struct num_rows query, out;
    void *table;
    int32_t *lengths, *start;
    float *sinks, *alibi, *lse;
    void *workspace;
    size_t workspace_bytes, lse_bytes;
};
void attention_rows(struct attention *a);
void attention_query(struct num_run *run, struct attention *a, uint64_t seed);
void attention_call(struct num_run *run, struct attention *a);  /* fills out and lse */
/* The same in steps; upload fills max_context where it is 0. */
void attention_upload(struct num_run *run, struct attention *a, const kvk_kernels *kernels,
                      struct attention_buffers *b);
struct kvk_decode_args attention_decode_args(const struct num_run *run, const struct attention *a,
                                             const struct attention_buffers *b);
struct kvk_unified_args attention_unified_args(const struct num_run *run, const struct attention *a,
                                               const struct attention_buffers *b);
void attention_queue(struct num_run *run, const struct attention *a, const kvk_kernels *kernels,
                     const struct attention_buffers *b, kvk_stream stream);
void attention_fetch(struct num_run *run, struct attention *a, const struct attention_buffers *b);

/* --- expect.c: against the oracle --- */
void attention_check(struct num_run *run, const struct attention *a);

/* --- check_store.c: the same rows into pages far apart --- */
void store_far(struct num_run *run, const struct world *w, struct kvk_pool pool, uint8_t *memory);

#endif
