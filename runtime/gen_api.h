/* SPDX-License-Identifier: Apache-2.0 */
/*
** gen_api.h - the function table through which the runtime asks the generator, whether libkvkiln-gen.so is loaded on
** a miss (symbol kvk_generator) or linked in (kvk_register_generator).
*/
#ifndef KVKILN_GEN_API_H
#define KVKILN_GEN_API_H

#include "kvkiln.h"

enum { KVK_GEN_API_VERSION = 3 };

/* What a kernel is made from. Texts are borrowed for the call. */
struct gen_request {
    const char *spec_text;   /* canonical text of the spec (spec_text below, or an embedded one) */
    const char *kind;        /* "store", "decode", "unified", "dequant", "merge", "copy", "convert" */
    const char *layout;      /* "aos", "soa", "native" */
    const char *target;      /* "sm_90a", "gfx942", "x86-64-v3" */
    int head_size, value_head_size, gqa, page_tokens;
    kvk_dtype dtype;
    unsigned options;        /* kvk_option_bits: decode and unified only, 0 for the other kinds */
    int assemble;            /* nvptx: 1 = to cubin where an assembler is found, 0 = leave PTX */
    const char *plan;        /* values of plan fields, "warps=8,min_ctas=3" (tuned.h); NULL or "": rules alone */
    const char *plan_source; /* where they are from, "tuned/sm_90a.lua:12": said in the plan, no part of a key. A value that does
                                not suit the kernel is left out if this is set, and refused if it is NULL */
};

/* Texts and bytes for `kvkiln build --emit`; each NULL unless asked for. */
enum { GEN_EMIT_LL, GEN_EMIT_OPT_LL, GEN_EMIT_ASM, GEN_EMIT_PTX, GEN_EMIT_CUBIN, GEN_EMIT_HSACO, GEN_EMIT_RELOC, GEN_EMIT_OBJECT,
       GEN_EMIT_COUNT };
struct gen_artifacts {
    void *data[GEN_EMIT_COUNT];
    size_t bytes[GEN_EMIT_COUNT];
};

struct gen_api {
    uint32_t version;        /* KVK_GEN_API_VERSION */
    const char *build_id;    /* hash of the generator's sources, and LLVM's version: part of every cache key */
    /* Canonical text of a spec given by preset name or path; malloc'd. */
    kvk_status (*spec_text)(const char *name, const char *dirs, char **text, kvk_error *err);
    /* Compiles one kernel. `emit` is a mask of 1 << GEN_EMIT_*; GEN_EMIT_OBJECT is the sealed object. Thread safe. */
    kvk_status (*compile)(const struct gen_request *request, unsigned emit, struct gen_artifacts *out, kvk_error *err);
    /* Canonical kernel name of a request; malloc'd. */
    kvk_status (*name)(const struct gen_request *request, char **name, kvk_error *err);
    /* The plan and why, as text for people; malloc'd. */
    kvk_status (*explain)(const struct gen_request *request, char **text, kvk_error *err);
    /* Target by index (0, 1, ...): name, family ("nvptx", "amdgcn", "host"), or 0 past the last. */
    int (*target)(int index, const char **name, const char **family);
    void (*artifacts_free)(struct gen_artifacts *artifacts);
};

/* Exported by libkvkiln-gen.so under this name. */
KVK_API const struct gen_api *kvk_generator(void);

/* Static builds: tells the runtime to use this table instead of loading a library. */
KVK_API void kvk_register_generator(const struct gen_api *(*get)(void));

/*
** The canonical text of a request: the part of a cache key that says which kernel it is. Same function on both sides.
** Returns the length needed (like snprintf).
*/
size_t gen_request_text(const struct gen_request *request, char *text, size_t cap);

/* The kernel's canonical name (gen/name.c) out of a request, for messages of both sides. Returns the length needed. */
size_t gen_request_name(const struct gen_request *request, char *name, size_t cap);

#endif
