/* SPDX-License-Identifier: Apache-2.0 */
/*
** kb_internal.h - the builder's own state, for kb*.c, lower.c and pipeline.c only.
*/
#ifndef KVKILN_GEN_KB_INTERNAL_H
#define KVKILN_GEN_KB_INTERNAL_H

#include <llvm-c/Core.h> /* first: its parameters are named like the builder's macro */

#include "kb.h"
#include "plan.h"
#include "target.h"

enum { KB_MAX_PARAMS = 40 }; /* ABI_MOST_PARAMS, and function parameters of the host */

struct kb {
    LLVMContextRef ctx;
    LLVMModuleRef module;
    LLVMBuilderRef builder;
    const struct target *target;
    const struct plan *plan;
    const char *file; /* of the call being made */
    int line;
    kvk_status status; /* first failure */
    kvk_error *err;
    /* the entry being built */
    LLVMValueRef function;
    struct { const char *name; val value; } params[KB_MAX_PARAMS];
    int nparams;
    size_t shared_used;
    val shared_base, tid, cta, lane, warp; /* made once, in the entry block */
    int tables;
    bool waited; /* kb_grid_wait */
    int team;    /* kb_team */
};

/* Builder state for one module. The context is owned by the caller. */
void kb_open(struct kb *k, LLVMContextRef ctx, LLVMModuleRef module, const struct target *target, const struct plan *plan,
             kvk_error *err);
void kb_close(struct kb *k);

/* Starts and ends one entry point. */
void kb_entry_begin(struct kb *k, const char *symbol, const char *abi, int threads);
void kb_entry_end(struct kb *k);

#endif
