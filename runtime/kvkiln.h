/* SPDX-License-Identifier: Apache-2.0 */
/*
** kvkiln.h - quantised KV caches: store, decode, unified attention and dequantisation by generated kernels.
**
**     kvk_open       one device ("auto", "host", "cuda:0", "hip:0")
**     kvk_prepare    a model's spec and geometry -> its kernels: in memory, from a pack or the cache, or compiled now
**     kvk_layout     slot, page and pool sizes, field offsets, a signature: engines size pools from here only
**     kvk_store      quantise new K and V rows and scatter them to their slots
**     kvk_decode     few query tokens a sequence against its cache, split over the cache
**     kvk_unified    any mix of prefill, continuation and decode rows in one launch
**     kvk_dequant    pages back to fp16/bf16 rows
**     kvk_tiled      one continuation prefill by way of dequantised tiles, merged
**     kvk_close
**
** Conventions
**   Shapes    S sequences, T query tokens, H query heads, G cache heads (H = G * gqa), D head size, P tokens a page.
**             Row-major, last index fastest. Device memory unless an argument says otherwise.
**   Units     lengths in tokens, strides of rows in elements, strides of pools in bytes, sizes in bytes.
**   Structs   begin with `size`; initialise with KVK_INIT(struct kvk_...), which sets it and zeroes the rest. Zero means
**             "the default" in every field, and 0 strides mean "densely packed".
**   Errors    every fallible call returns a status and takes a nullable, caller-owned `kvk_error`; on an error nothing was
**             queued. Nothing prints: messages go to the log callback.
**   Launches  return at once, queued on the caller's stream. They allocate, lock, hash and read back nothing, so all of
**             them can be captured into a graph and replayed; lengths and tables are read by the kernel.
**   Threads   calls on one context may come from several threads; launches on different streams run independently.
**   Processes a context belongs to the process that opened it: in a child made by fork every call on it fails with
**             KVK_E_FORK, and kvk_close does nothing. The child may open its own. Do not fork while a prepare runs.
*/
#ifndef KVKILN_H
#define KVKILN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVK_VERSION_MAJOR 0
#define KVK_VERSION_MINOR 1
#define KVK_VERSION_PATCH 0

/* One number to compare with: 0.1.0 is 100. kvk_version() tells which library the program runs with. */
#define KVK_VERSION (KVK_VERSION_MAJOR * 10000 + KVK_VERSION_MINOR * 100 + KVK_VERSION_PATCH)

#if defined(__GNUC__)
#define KVK_API __attribute__((visibility("default")))
#else
#define KVK_API
#endif

/*
** ---- Part 1: what engines build on. Within a major version nothing here changes its meaning, number or place: structs
** grow at their end, enumerations get new values, and a program compiled against an older header runs with a newer library.
** Before 1.0 a minor version may break this, and says so in CHANGELOG.md. KVK_VERSION_MAJOR is the library's SOVERSION. ----
*/

typedef enum kvk_status {
#define STATUS(name, value, meaning) KVK_##name = value,
#include "status.def"
#undef STATUS
} kvk_status;

/* KVK_FLOAT32 is for kvk_merge's partial results only. */
typedef enum kvk_dtype { KVK_DTYPE_DEFAULT = 0, KVK_FLOAT16 = 1, KVK_BFLOAT16 = 2, KVK_FLOAT32 = 3 } kvk_dtype;
typedef enum kvk_index { KVK_INT32 = 0, KVK_INT64 = 1 } kvk_index;
typedef enum kvk_log_level { KVK_LOG_INFO, KVK_LOG_WARNING } kvk_log_level;

/* What a miss in packs and cache does: compile (loading the generator), or fail naming the kernel and where it was sought. */
typedef enum kvk_compile { KVK_COMPILE_ON_MISS = 0, KVK_COMPILE_NEVER = 1 } kvk_compile;

typedef enum kvk_kind_bits {
    KVK_STORE = 1, KVK_DECODE = 2, KVK_UNIFIED = 4, KVK_DEQUANT = 8, KVK_MERGE = 16, KVK_COPY = 32,
    KVK_ALL_KINDS = 63, /* what serving takes */
    KVK_CONVERT = 64    /* asked for by name only */
} kvk_kind_bits;

/* What decode and unified are specialised on. A call that asks for one that its kernel lacks fails naming it. */
typedef enum kvk_option_bits {
    KVK_SOFT_CAP = 1, /* s = soft_cap * tanh(s / soft_cap) */
    KVK_ALIBI = 2,    /* s += slope[h] * (key - position) */
    KVK_ALL_OPTIONS = 3
} kvk_option_bits;

/* One failed call. `text` is one line that names the value at fault; `where` the function; `driver` the driver's own code. */
typedef struct kvk_error {
    kvk_status status;
    long driver;
    char where[48];
    char text[464];
} kvk_error;

typedef struct kvk_context kvk_context; /* a device, its caches and loaded modules */
typedef struct kvk_kernels kvk_kernels; /* borrowed from the context: valid until kvk_close */
typedef void *kvk_stream;               /* CUstream, hipStream_t; NULL is the default stream; ignored by the host device */

#ifdef __cplusplus
extern "C++" template <class type> inline type kvk_init()
{
    type made = type();
    made.size = sizeof made;
    return made;
}
#define KVK_INIT(type) (kvk_init<type>())
#else
#define KVK_INIT(type) ((type){.size = sizeof(type)})
#endif

/* A pack that is in memory already: linked in, or mapped by the program. Must stay as it is until kvk_close. */
struct kvk_pack_memory {
    const char *name;        /* for messages */
    const void *data;
    size_t bytes;
};
/* What `kvkiln pack object` makes: bytes and their number. */
#define KVK_PACK_DECLARE(pack) extern const unsigned char kvk_pack_##pack[]; extern const uint64_t kvk_pack_##pack##_size
#define KVK_PACK_MEMORY(pack) {#pack, kvk_pack_##pack, (size_t)kvk_pack_##pack##_size}

/* How far a kvk_prepare is. */
struct kvk_progress {
    size_t size;
    int done, total;         /* kernels of this call */
    const char *kind;        /* "decode" ...: the kernel that was finished last; NULL: none since the last report */
    const char *origin;      /* its "memory", "pack", "cache", "compiled"; NULL if it failed */
    double ms;               /* what it took */
};

struct kvk_options {
    size_t size;
    const char *device;      /* NULL = "auto": first usable CUDA device, then HIP, then host */
    const char *cache_dir;   /* NULL = $KVKILN_CACHE_DIR, $XDG_CACHE_HOME/kvkiln, ~/.cache/kvkiln; "" = memory only */
    uint64_t cache_bytes;    /* bound on the directory; 0 = 1 GiB */
    const char *spec_dirs;   /* colon-separated, searched before the embedded presets; NULL = $KVKILN_SPECS */
    const char *generator;   /* path of libkvkiln-gen.so; NULL = beside the runtime library, then the loader's path */
    kvk_compile compile;
    void (*log)(void *log_data, kvk_log_level level, const char *line);
    void *log_data;
    const char *packs;       /* colon-separated .kvkpack files, looked in before the cache; NULL = $KVKILN_PACKS; "" = none */
    const struct kvk_pack_memory *memory_packs; /* looked in before those */
    size_t memory_pack_count;
    int prepare_threads;     /* compiles at a time in one kvk_prepare, 1..64; 0 = one a core, at most 4 */
    /* Called by kvk_prepare on its caller's thread, after each kernel and at least ten times a second while it waits.
    ** Not 0: cancel. It must not call kvk_prepare or kvk_close on this context. */
    int (*progress)(void *progress_data, const struct kvk_progress *progress);
    void *progress_data;
    /* CUDA, sm_90 and later: a kernel may be brought in while the one before it on its stream ends (programmatic dependent
    ** launch); it waits for that one by itself. 1 yes, 2 no; 0 = $KVKILN_OVERLAP (1 or 2), else no. */
    int overlap_launches;
};

struct kvk_model {
    size_t size;
    const char *spec;        /* preset name, or path of a .lua file */
    const char *layout;      /* "aos", "soa", "native"; NULL = the spec's first */
    int kv_heads;            /* G */
    int query_heads;         /* H, a multiple of G */
    int head_size;           /* D of keys and queries */
    int value_head_size;     /* D of values and outputs; 0 = head_size */
    int page_tokens;         /* P; 0 = 16 */
    kvk_dtype dtype;         /* rows of K, V, query, output; default bf16. What is written in fp16 ends at +-65504; NaN stays */
    kvk_dtype dequant_dtype; /* output of kvk_dequant; default dtype */
    unsigned kinds;          /* kvk_kind_bits; 0 = KVK_ALL_KINDS */
    unsigned options;        /* kvk_option_bits of decode and unified */
    const char *plan;        /* of decode and unified, for experiments: "warps=8,min_ctas=3" instead of what the tuned tables say,
                                "" for rules alone (docs/tuning.md); NULL: the tables */
};

/* Where everything lies (docs/layouts.md). Offsets are inside a slot (aos), a page (soa) or a block of 16 tokens of a head
** (native). */
struct kvk_layout {
    size_t size;
    size_t slot_bytes;       /* one token of one KV head, padded to even */
    size_t page_bytes;       /* P tokens of G heads */
    size_t slot_alignment;   /* every stride and the pool must be multiples of it; the pool itself of 16 */
    size_t position_stride;  /* aos: bytes from a token to the next (token-major); soa: of its data record; native: of its block */
    size_t head_stride;      /* aos: bytes from a head to the next; soa: of its data record; native: of its block */
    size_t key_offset, key_bytes;     /* key codes */
    size_t value_offset, value_bytes; /* value codes */
    size_t meta_offset;      /* soa: start of the field region in a page; native: in a block; aos: 0 */
    int fields;              /* 16-bit fields a slot; order: key fields, value fields */
    size_t field_offset[4];  /* aos: of each field in a slot; soa: of field f of head 0, token 0 in a page;
                                native: of token 0 in a block */
    double ratio;            /* 16-bit K and V bytes over slot bytes */
    const char *signature;   /* "kvk1:..." borrowed: format, layout, head sizes, page, flavour; equal = interchangeable pages */
};

struct kvk_limits {
    size_t size;
    int64_t sequences;       /* most sequences in one call */
    int64_t query_tokens;    /* most query tokens a sequence in one decode call; 0 = 1 */
    int64_t tokens;          /* most query tokens in one unified call */
    int64_t context;         /* most cached tokens a sequence */
    int32_t batch_invariant; /* 1: calls may set it, and then need room that grows with context */
};

/* A paged pool. Strides in bytes; 0 = dense, token-major. soa and native take only a page stride. */
struct kvk_pool {
    void *data;
    int64_t pages;           /* pages that may be addressed: slots at or beyond pages * P are never touched */
    int64_t page_stride, position_stride, head_stride;
};

/* A tensor of rows [rows][heads][D] or [tokens][heads][D]; strides in elements, 0 = dense. */
struct kvk_rows {
    void *data;
    int64_t row_stride, head_stride;
};

struct kvk_store_args {
    size_t size;
    struct kvk_pool pool;
    struct kvk_rows key, value; /* [rows][G][D], model dtype */
    const void *slots;          /* [rows] page * P + position; outside 0 .. pages*P-1: the row is skipped */
    kvk_index slot_type;
    int64_t rows;
};

struct kvk_decode_args {
    size_t size;
    struct kvk_pool pool;
    struct kvk_rows query, out;  /* [S*query_tokens][H][D], sequence-major, model dtype */
    const void *block_table;     /* [S][table_stride] int32 page numbers (see table_type); none past a length is read */
    int64_t table_stride;        /* entries */
    const int32_t *lengths;      /* [S] cached tokens, the query tokens included; 0 = no rows: zeros, LSE -inf */
    int64_t sequences;           /* S */
    int64_t query_tokens;        /* per sequence, causal among themselves; 0 = 1 */
    int64_t max_context;         /* host-known bound on lengths: decides the grid; who gets how many splits the lengths decide */
    float scale;                 /* multiplies q.k; 0 = 1/sqrt(D) */
    int32_t window;              /* key visible iff 0 <= pos - key < window; 0 = no window */
    const float *sinks;          /* [H] sink logits or NULL */
    float *lse;                  /* [S*query_tokens][H] natural log-sum-exp of the visible keys, or NULL */
    void *workspace;             /* kvk_workspace_bytes, 16-byte aligned */
    size_t workspace_bytes;
    int32_t splits;              /* 0 = chosen from the bounds, and the workspace covers it; your own may need more */
    int32_t full;                /* 1: not causal, every row sees every cached token (within the window) */
    float soft_cap;              /* kernels with KVK_SOFT_CAP: > 0 */
    const float *alibi;          /* kernels with KVK_ALIBI: [H] slopes */
    kvk_index table_type;        /* of block_table: KVK_INT64 then points to int64 */
    int32_t batch_invariant;     /* 1: splits end at fixed positions: a row's bits do not depend on the rest of the call */
};

struct kvk_unified_args {
    size_t size;
    struct kvk_pool pool;
    struct kvk_rows query, out;  /* [T][H][D] */
    const void *block_table;
    int64_t table_stride;
    const int32_t *lengths;      /* [S] */
    const int32_t *query_start;  /* [S+1] first row of each sequence; rows at or past query_start[S] are not written */
    int64_t sequences;
    int64_t tokens;              /* T, an upper bound on query_start[S] */
    float scale;
    int32_t window;
    const float *sinks;
    float *lse;
    void *workspace;             /* not used yet: unified needs none */
    size_t workspace_bytes;
    int32_t full;                /* these four as in kvk_decode_args */
    float soft_cap;
    const float *alibi;
    kvk_index table_type;
};

struct kvk_dequant_args {
    size_t size;
    struct kvk_pool pool;
    struct kvk_rows key, value;  /* out [rows][G][D] of dequant_dtype; key.data or value.data may be NULL */
    const void *block_table;
    int64_t table_stride;
    const int32_t *out_start;    /* [S+1] first output row of each sequence */
    const int32_t *first_token;  /* [S] token of that row, or NULL = 0 */
    int64_t sequences;
    int64_t rows;                /* upper bound on out_start[S] */
    int rotate_back;             /* rotated codecs (keys, or values of a user's spec): 0 leaves rows rotated, 1 rotates them back */
    kvk_index table_type;        /* of block_table */
};

KVK_API const char *kvk_version(void);
KVK_API const char *kvk_status_name(kvk_status status);

/* Opens one device. The options are copied. On success *out must be closed. */
KVK_API kvk_status kvk_open(const struct kvk_options *options, kvk_context **out, kvk_error *err);

/* Waits for all that is queued on the device, then frees every kernel, module and handle of the context. NULL is allowed. No
** call on it may be running in another thread, no stream of the device may be capturing, and a graph that holds a launch of
** the context must not be launched again. */
KVK_API void kvk_close(kvk_context *ctx);

/* What was opened: "cuda:0", the device's own name, the target kernels are made for ("sm_90a"), and why it was chosen. */
struct kvk_device_info {
    size_t size;
    const char *device, *name, *target, *reason; /* borrowed from the context */
    int64_t memory_bytes;
    int multiprocessors;
};
KVK_API kvk_status kvk_device(const kvk_context *ctx, struct kvk_device_info *info, kvk_error *err);

/*
** Resolves all kernels of a model now: loaded -> packs -> cache -> compile. The same model twice returns the same pointer.
** Threads   any number may prepare on one context: a kernel that two of them need is made once, and the other waits.
**           Compiles run in threads of their own, which block all signals and have ended when this returns.
** Cancel    by options.progress: no further compile begins, those that run are finished and kept, and the call returns
**           KVK_E_CANCELLED once they have ended. Nothing is lost: the next call goes on from there. Another call that waited
**           for a kernel which was not begun makes it itself.
*/
KVK_API kvk_status kvk_prepare(kvk_context *ctx, const struct kvk_model *model, const kvk_kernels **out, kvk_error *err);

KVK_API kvk_status kvk_layout(const kvk_kernels *kernels, struct kvk_layout *out, kvk_error *err);

/* Bytes that decode and unified need for any call within the limits: a closed formula, no device access. */
KVK_API size_t kvk_workspace_bytes(const kvk_kernels *kernels, const struct kvk_limits *limits);

KVK_API kvk_status kvk_store(const kvk_kernels *k, const struct kvk_store_args *args, kvk_stream stream, kvk_error *err);
KVK_API kvk_status kvk_decode(const kvk_kernels *k, const struct kvk_decode_args *args, kvk_stream stream, kvk_error *err);
KVK_API kvk_status kvk_unified(const kvk_kernels *k, const struct kvk_unified_args *args, kvk_stream stream, kvk_error *err);
KVK_API kvk_status kvk_dequant(const kvk_kernels *k, const struct kvk_dequant_args *args, kvk_stream stream, kvk_error *err);

/*
** ---- Part 2: younger calls and services for tools. These may still change from one minor version to the next. ----
*/

/* One side of a merge: a partial result over some keys, and the natural log-sum-exp of its scores (-inf: no key). */
struct kvk_partial {
    struct kvk_rows out;         /* [rows][H][Dv] */
    float *lse;                  /* [rows][H] */
    kvk_dtype dtype;             /* default: the model's */
};

struct kvk_merge_args {
    size_t size;
    struct kvk_partial a, b;     /* over disjoint keys */
    struct kvk_partial out;      /* may be a or b; out.lse may be NULL */
    int64_t rows;
};

/*
** The second way of a continuation prefill, for one sequence: tile by tile of its tokens, back to fp16 or bf16 rows in the
** workspace (kvk_dequant), dense attention over the tile (kvk_unified of `dense`), and a merge with the tiles before. The
** result is kvk_unified's within rounding; the workspace does not grow with the context.
**   kernels   prepared with KVK_DEQUANT and KVK_MERGE
**   dense     of the same context, heads, head sizes and dtype: spec "fp16" or "bf16", the one that is kernels'
**             dequant_dtype; kinds KVK_UNIFIED. Its page_tokens is how finely its own block table is cut: a tile is
**             64 pages at most, so prepare it with 4096. Tiles are in whole sixteens. See docs/prefill.md.
** Windows count over the whole sequence, and tokens before all of them are not even dequantised. Soft cap and ALiBi: if
** `dense` was prepared with them.
*/
struct kvk_tiled_args {
    size_t size;
    const kvk_kernels *dense;
    struct kvk_pool pool;
    struct kvk_rows query, out;  /* [tokens][H][D]: the last tokens of the sequence; out may not overlap query */
    const void *block_table;     /* of the sequence */
    kvk_index table_type;
    int64_t cached;              /* tokens of the sequence before the chunk */
    int64_t tokens;              /* of the chunk, already stored */
    int64_t tile_tokens;         /* 0 = 32768; made smaller if the workspace holds less */
    float scale, soft_cap;       /* these and the next as in kvk_decode_args */
    const float *sinks;
    float *lse;
    void *workspace;             /* kvk_tiled_workspace_bytes, 16-byte aligned */
    size_t workspace_bytes;
    int32_t window;              /* these two as in kvk_decode_args as well */
    const float *alibi;
};

/* Whole slots, every part of them, to other slots: of the same pool or of another one of the same signature. An item whose slot
** or page is outside its pool is skipped. Source and target slots of one call must not overlap. */
struct kvk_copy_args {
    size_t size;
    struct kvk_pool from, to;
    const void *from_index, *to_index; /* [items] slot numbers, or page numbers if `pages` is 1 */
    kvk_index index_type;
    int64_t items;
    int32_t pages;
};

/*
** Slots of a pool of one layout to slots of a pool of another: the same spec, heads, head sizes and page_tokens, prepared twice.
**   kernels       of the target's layout, prepared with KVK_CONVERT
**   from_kernels  of the source's layout, prepared with any kind; KVK_E_ARG unless layout is what the two differ in
** Codes, block scales and 16-bit fields arrive bit by bit (a NaN field as 0, an infinite one as +-65504, as they are read),
** except where a codebook's norm is corrected and one of the two layouts is aos: the scalar is then multiplied with or divided
** by the length of its decoded direction, as store would have, and rounded to fp16 a second time. Items outside their pools
** are skipped, other slots stay as they are, and the two pools must not overlap.
*/
struct kvk_convert_args {
    size_t size;
    struct kvk_pool from, to;
    const void *from_index, *to_index; /* [items] slot numbers, or page numbers if `pages` is 1 */
    kvk_index index_type;
    int64_t items;
    int32_t pages;
};

KVK_API kvk_status kvk_merge(const kvk_kernels *k, const struct kvk_merge_args *args, kvk_stream stream, kvk_error *err);
KVK_API kvk_status kvk_tiled(const kvk_kernels *k, const struct kvk_tiled_args *args, kvk_stream stream, kvk_error *err);
/* Bytes for tiles of tile_tokens (0 = 32768) and chunks of up to limits->tokens: no other limit counts. Less is enough if
** 16 tokens fit. 0 if the two sets do not go together, SIZE_MAX if it is beyond all numbers. */
KVK_API size_t kvk_tiled_workspace_bytes(const kvk_kernels *k, const kvk_kernels *dense, const struct kvk_limits *limits,
                                         int64_t tile_tokens);

/* from_kernels: the set that wrote the source pool; NULL = k. KVK_E_ARG if the two signatures differ. */
KVK_API kvk_status kvk_copy(const kvk_kernels *k, const kvk_kernels *from_kernels, const struct kvk_copy_args *args,
                            kvk_stream stream, kvk_error *err);

KVK_API kvk_status kvk_convert(const kvk_kernels *k, const kvk_kernels *from_kernels, const struct kvk_convert_args *args,
                               kvk_stream stream, kvk_error *err);

/* How each kernel of a set came to be: for tools and logs. kind is one bit. */
struct kvk_kernel_info {
    size_t size;
    const char *name;     /* kernel name, see gen/name.c */
    const char *origin;   /* "memory", "pack", "cache", "compiled" */
    const char *manifest; /* the object's manifest text, borrowed */
    double prepare_ms;    /* time kvk_prepare spent on it */
    int registers, shared_bytes, local_bytes, threads; /* of the main entry, as the driver reports (-1 unknown) */
    int resident_ctas;    /* CTAs that fit a multiprocessor (-1 unknown) */
};
KVK_API kvk_status kvk_kernel(const kvk_kernels *k, kvk_kind_bits kind, struct kvk_kernel_info *info, kvk_error *err);

/*
** Small device services, so that tools need no driver of their own. Not needed by engines, which own their memory.
** Allocations are freed by kvk_free or kvk_close. kvk_copy_* are synchronous with the default stream.
*/
KVK_API kvk_status kvk_alloc(kvk_context *ctx, size_t bytes, void **out, kvk_error *err);
KVK_API void kvk_free(kvk_context *ctx, void *memory);
KVK_API kvk_status kvk_upload(kvk_context *ctx, void *device, const void *host, size_t bytes, kvk_error *err);
KVK_API kvk_status kvk_download(kvk_context *ctx, void *host, const void *device, size_t bytes, kvk_error *err);
KVK_API kvk_status kvk_fill(kvk_context *ctx, void *device, int byte, size_t bytes, kvk_error *err);
KVK_API kvk_status kvk_device_copy(kvk_context *ctx, void *to, const void *from, size_t bytes, kvk_stream stream,
                                   kvk_error *err);
KVK_API kvk_status kvk_synchronize(kvk_context *ctx, kvk_error *err);

/* Times what `body` queues on the stream it is given, with device events where there are any: milliseconds. */
KVK_API kvk_status kvk_time(kvk_context *ctx, kvk_status (*body)(void *data, kvk_stream stream, kvk_error *err), void *data,
                            double *ms, kvk_error *err);

#ifdef __cplusplus
}
#endif
#endif
