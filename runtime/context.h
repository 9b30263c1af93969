/* SPDX-License-Identifier: Apache-2.0 */
/*
** context.h - what a context, a kernel and a set of kernels are inside the runtime.
*/
#ifndef KVKILN_CONTEXT_H
#define KVKILN_CONTEXT_H

#include "assembler.h"
#include "cache.h"
#include "driver.h"
#include "gen_api.h"
#include "object.h"
#include "packs.h"
#include "tuned.h"

enum { KIND_STORE, KIND_DECODE, KIND_UNIFIED, KIND_DEQUANT, KIND_MERGE, KIND_COPY, KIND_CONVERT, KIND_COUNT };
enum { KIND_SERVING = KIND_CONVERT }; /* as many as KVK_ALL_KINDS has: they come first */

/* The largest number of splits that is chosen or accepted. A batch-invariant decode has as many as its context has spans
** of INVARIANT_TOKENS. */
enum { MAX_SPLITS = 256, INVARIANT_TOKENS = 2048 };

enum { PREPARE_THREADS_MOST = 64 };

enum kernel_state { KERNEL_BUILDING, KERNEL_READY, KERNEL_FAILED };

/* One compiled kernel, shared by every set that needs it. Immutable once READY. */
struct kernel {
    struct kernel *next;
    enum kernel_state state; /* under the context's mutex */
    int waiters;             /* prepares that wait for it, under the mutex */
    kvk_error error;         /* KERNEL_FAILED */
    char *key;
    void *bytes;             /* the sealed object */
    struct object object;
    void *module;
    struct driver_entry main, reduce; /* reduce: of merge only; it joins the splits of decode */
    const char *origin;      /* "pack", "cache", "compiled" */
    double build_ms;
    char name[256];
    long long rows, vectors, tile_tokens, image_heads, image_padding, image_group, turned, neighbours;
};

/* Geometry of pages, from the manifest (docs: object.h). */
struct page_facts {
    int soa, native; /* neither: aos */
    int64_t slot_bytes, slot_alignment, key_offset, key_bytes, value_offset, value_bytes, record_bytes;
    int64_t field_offset[4];
    int fields;
    char signature[256];
};

/* A model with every default filled in. */
struct shape {
    int kv_heads, query_heads, gqa, head_size, value_head_size, page_tokens;
    kvk_dtype dtype, dequant_dtype;
    unsigned kinds, options;
    char layout[16];
};

struct kvk_kernels {
    struct kvk_kernels *next;
    kvk_context *ctx;
    char *spec_text;         /* with `shape`: which model this is */
    struct shape shape;
    struct tuned tuned[KIND_COUNT]; /* plan values from outside, of the kinds that have some */
    int plan_given;          /* they are the caller's own: those that do not suit are refused */
    struct page_facts pages;
    const struct kernel *kernel[KIND_COUNT]; /* NULL: kind not asked for */
    const char *origin[KIND_COUNT];
    double prepare_ms[KIND_COUNT];
};

struct kvk_context {
    const struct fork_mark *mark; /* fork.c */
    long opener;             /* number of the process that opened it */
    const struct driver *driver;
    void *device;
    struct driver_device_info info;
    char device_name[32];    /* "cuda:0" */
    char reason[512];
    struct packs packs;
    struct cache cache;
    struct assembler assembler;
    char *spec_dirs, *generator_path;
    kvk_compile compile;
    cache_log *log;
    void *log_data;
    int prepare_threads;     /* 0: chosen */
    int overlap;             /* launches may: kvk_options.overlap_launches */
    int (*progress)(void *data, const struct kvk_progress *progress);
    void *progress_data;

    pthread_mutex_t mutex;   /* over the lists; never held during a compile, a load or file access */
    pthread_cond_t changed;  /* a kernel left KERNEL_BUILDING */
    struct kernel *kernels;
    struct kvk_kernels *sets;
    void **allocations;
    size_t nallocations, allocations_room;

    pthread_mutex_t generator_mutex; /* loading happens once */
    const struct gen_api *generator;
};

/* choose.c: opens what `name` ("auto", "host", "cuda:1") stands for; fills driver, device, info, device_name, reason. */
kvk_status choose_device(kvk_context *ctx, const char *name, kvk_error *err);

/* loader.c: the table of the registered or loaded generator, checked for version and build. */
kvk_status loader_get(kvk_context *ctx, const struct gen_api **out, kvk_error *err);

/* build.c: packs, cache, compile, load of one kernel. `request` and k->key are set. Fills the rest of k; no lock is held.
** build_from_store looks in packs and cache; with KVK_COMPILE_NEVER what is in neither is an error. */
kvk_status build_from_store(kvk_context *ctx, struct kernel *k, const struct gen_request *request, int *found,
                            kvk_error *err);
kvk_status build_by_compiling(kvk_context *ctx, struct kernel *k, const struct gen_request *request, kvk_error *err);
void kernel_free(kvk_context *ctx, struct kernel *k);

/* layout.c: page facts out of a manifest, checked against the shape that was asked for. */
kvk_status page_facts_read(const struct object *object, const struct shape *shape, struct page_facts *out,
                           kvk_error *err);

/*
** fork.c: may this process use the context? KVK_E_ARG for none at all, KVK_E_FORK in a child of the one that opened it.
** A child touches nothing of it, not even to free it.
*/
kvk_status fork_mark_make(kvk_context *ctx, kvk_error *err);
void fork_mark_free(kvk_context *ctx);
int fork_is_child(const kvk_context *ctx);
kvk_status fork_check(const kvk_context *ctx, const char *where, kvk_error *err);

/* prepare.c */
void kernels_free(struct kvk_kernels *set);
double clock_ms(void);

/* Versioned structs: KVK_E_ARG unless `size` was set to `least` or more; fields behind `known` must be zero. */
kvk_status args_check_from(const void *args, size_t least, size_t known, const char *name, kvk_error *err);
kvk_status args_check(const void *args, size_t known, const char *name, kvk_error *err); /* least = known */

#endif
