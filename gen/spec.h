/* SPDX-License-Identifier: Apache-2.0 */
/*
** spec.h - a cache format as data: two codecs, the layouts it may take, and how queries are read.
**
** A spec comes from a Lua file (spec_load) or from its own canonical text (spec_from_text), and is
** a plain value afterwards: no pointers, nothing to free. It says nothing about geometry (head
** size, GQA ratio, page, dtype): that is `struct geometry`, so that one preset serves every model.
*/
#ifndef KVKILN_GEN_SPEC_H
#define KVKILN_GEN_SPEC_H

#include "../runtime/kvkiln.h"

#include <stddef.h>

enum codec_kind { CODEC_CODEBOOK, CODEC_AFFINE, CODEC_FLOAT, CODEC_BLOCK_FLOAT };
enum float_format { FLOAT_E4M3, FLOAT_E4B15, FLOAT_E5M2, FLOAT_FP16, FLOAT_BF16 };
enum rotation { ROTATION_NONE, ROTATION_HADAMARD };
enum block_rule { BLOCK_ULTRAQUANT, BLOCK_MXFP4, BLOCK_NVFP4 };
enum query_format { QUERY_NATIVE, QUERY_E4M3 };
enum layout { LAYOUT_AOS, LAYOUT_SOA, LAYOUT_NATIVE, LAYOUT_COUNT };

enum { SPEC_MAX_CENTROIDS = 16, SPEC_NAME_MAX = 64 };

/* One side of a slot. Fields that a kind does not use are zero, so that two codecs compare field by field. */
struct codec {
    enum codec_kind kind;
    int bits;                /* code width: codebook 2..4, affine 2..8, float 8 or 16, block_float 4 */
    enum rotation rotation;  /* codebook, block_float */
    int norm_correction;     /* codebook: decoded direction is rescaled to length one (aos: at read, soa and native: at store) */
    int ncentroids;          /* codebook: 0 = Lloyd-Max for N(0, 1/D), else 2^bits ascending entries below */
    float centroids[SPEC_MAX_CENTROIDS];
    enum float_format format; /* float */
    enum block_rule rule;     /* block_float */
    int group;                /* block_float: elements that share a scale, 32 or 16 */
    /* Options of the encoder: they change which bytes are written, never how bytes are read. */
    int unbiased_norm;        /* codebook: the stored length makes <k, decoded k> = <k, k> */
    int stored_params;        /* affine: codes are made for the scale and minimum as stored */
    float scale_constant;     /* ultraquant: scale = 2^round(log2(constant * largest)); 0 = 0.156 */
    int scale_search;         /* ultraquant: that scale or its double, whichever errs less */
};

struct spec {
    char name[SPEC_NAME_MAX]; /* [a-z0-9_]+, the file's stem */
    struct codec key, value;
    int nlayouts;
    enum layout layouts[LAYOUT_COUNT]; /* first is the default */
    enum query_format query;           /* how attention reads its (rotated) query */
};

/* Everything a kernel is specialised on besides the spec. kv_heads, strides and lengths are run-time arguments. */
struct geometry {
    enum layout layout;
    int head_size, value_head_size; /* elements */
    int gqa;                        /* query heads a KV head */
    int page_tokens;
    kvk_dtype dtype;                /* rows of K, V, query and output; of dequant's output */
    unsigned options;               /* kvk_option_bits of decode and unified */
};

/*
** spec_load - evaluate a Lua spec in a sandbox.
**
** `name` is a preset name, looked up in `dirs` (colon-separated, may be NULL or empty), then among the
** embedded presets; or a path (it contains '/' or ends in ".lua"). Unknown keys, wrong types and values out of
** range give KVK_E_SPEC and one line "FILE:LINE: FIELD: VALUE: accepted ...". Endless or huge specs end at
** limits on instructions, memory and time. Needs no GPU and no LLVM. Thread safe: nothing is shared.
*/
kvk_status spec_load(const char *name, const char *dirs, struct spec *out, kvk_error *err);

/* Canonical text: one "field value" line per meaningful field in the order of spec.def, floats as hex bits.
** Equal specs give equal text; it is the spec's part of a cache key. Returns the length that was needed (like
** snprintf); writes at most `cap` bytes, NUL included. */
size_t spec_to_text(const struct spec *spec, char *text, size_t cap);

/* The inverse; KVK_E_SPEC with the line at fault. */
kvk_status spec_from_text(const char *text, struct spec *out, kvk_error *err);

/* Does this geometry make sense for this spec at all (ranges, groups, layouts)? Names the first field that does
** not, its value and what is accepted. What a *kernel* cannot do yet is refused by plan_make instead. */
kvk_status spec_check_geometry(const struct spec *spec, const struct geometry *geo, kvk_error *err);

/* Embedded preset by index (0, 1, ...): its name and Lua source, or 0 past the last. */
int spec_embedded(int index, const char **name, const char **source);

const char *layout_name(enum layout layout);         /* "aos", "soa", "native" */
int layout_from_name(const char *name);              /* enum layout or -1 */

#endif
