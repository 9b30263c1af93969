/* SPDX-License-Identifier: Apache-2.0 */
/*
** gpu.h - programs on a device: contexts, threads, streams and captures, through the public interface
** and, on CUDA, the driver beside it. Kernels come from packs: no compiler is there.
*/
#ifndef KVKILN_TESTS_GPU_H
#define KVKILN_TESTS_GPU_H

#include "../../runtime/kvkiln.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* One case. The first failure of any of its threads is kept. */
struct test {
    const char *device;
    int ordinal; /* N of "cuda:N", -1 on any other device */
    int fake;    /* a driver that runs no kernels: only calls count */
    pthread_mutex_t mutex;
    int failed;
    char text[600]; /* why */
};

/* Returns 1. */
int test_fail(struct test *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* 0, or 1 with the error's text. */
int test_ok(struct test *t, kvk_status status, const kvk_error *err, const char *call);

/* --- work.c: a chain of every kind of launch on data that follows from a seed --- */
struct work_layout {
    size_t key, value, query, slots, table, lengths, query_start, out_start, from, to; /* inputs */
    size_t pool, out[3], lse[3], rows[2], workspace;
    size_t pool_bytes, workspace_bytes;
};
struct work {
    kvk_context *ctx;       /* owns the memory */
    char *base, *image;     /* device: what the chain works on, and what that is before */
    size_t bytes, compared; /* the first `compared` bytes are inputs and results, then scratch */
    struct work_layout at;
    struct kvk_store_args store;
    struct kvk_decode_args decode;
    struct kvk_unified_args unified;
    struct kvk_merge_args merge;
    struct kvk_dequant_args dequant;
    struct kvk_copy_args copy;
};
int work_context(struct test *t, kvk_context **ctx);
/* Number of the models of work_kernels; the work is that of model 0. */
enum { WORK_MODELS = 4 };
int work_kernels(struct test *t, kvk_context *ctx, int model, const kvk_kernels **kernels);
int work_make(struct test *t, struct work *w, kvk_context *ctx, const kvk_kernels *kernels,
              uint64_t seed);
int work_seed(struct test *t, const struct work *w, uint64_t seed); /* other data */
void work_free(struct work *w);
/* Launches of any kernels of the model, which may be another context's. Starts from the image. */
int work_queue(struct test *t, const struct work *w, const kvk_kernels *kernels, kvk_stream stream);
/* All compared bytes, malloc'd; NULL on failure. What was queued must be done. */
uint8_t *work_fetch(struct test *t, const struct work *w);
int work_same(struct test *t, const struct work *w, const uint8_t *want, const char *when);
/* Queued on the default stream, waited for, fetched. */
uint8_t *work_expect(struct test *t, const struct work *w, const kvk_kernels *kernels);
/* 1 and a failure if a result is what it was before the chain. */
int work_untouched(struct test *t, const struct work *w);
/* A context with its kernels, a stream, and a work with what it must give. */
struct site {
    kvk_context *ctx;
    const kvk_kernels *kernels;
    kvk_stream stream;
    struct work work;
    uint8_t *want;
};
int site_open(struct test *t, struct site *s, uint64_t seed);
void site_close(const struct test *t, struct site *s);

/* --- cuda.c: the driver beside the library; every call returns CUDA's code --- */
struct cuda {
#define FN(name, symbol, parameters) int(*name) parameters;
#include "cuda_calls.def"
#undef FN
};
enum { CUDA_NOT_READY = 600, CAPTURE_GLOBAL = 0, STREAM_NON_BLOCKING = 1 };
/* The driver, or NULL and a failure. */
const struct cuda *cuda_get(struct test *t);
int cuda_ok(struct test *t, int code, const char *call);
/* The device's primary context becomes the calling thread's. */
int cuda_use_primary(struct test *t);
/* A new thread waits for streams: on CUDA the primary context becomes its own. */
int thread_begin(struct test *t);
/* A stream of the primary context; NULL on devices that are not CUDA. */
int stream_make(struct test *t, kvk_stream *stream);
int stream_wait(struct test *t, kvk_context *ctx, kvk_stream stream);
void stream_free(const struct test *t, kvk_stream stream);

/* --- the cases --- */
typedef void test_body(struct test *t);
/* contexts.c */
test_body every_kind_runs_on_two_contexts, two_contexts_used_alternately,
    two_contexts_from_two_threads, one_context_from_four_threads, a_context_of_the_callers_own;
/* closing.c */
test_body closing_under_load, closing_one_context_leaves_the_other;
/* capture.c */
test_body capture_while_another_thread_prepares, a_graph_of_two_contexts,
    a_graph_outlives_other_contexts;

#endif
