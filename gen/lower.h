/* SPDX-License-Identifier: Apache-2.0 */
/*
** lower.h - a built module to text or machine code: verify, optimise, emit.
**
** LLVM's fatal error path is never entered: every intrinsic is gated by the target table, and verification comes first.
** Errors that LLVM only reports through its diagnostic handler become a status here; the process's handlers are untouched.
*/
#ifndef KVKILN_GEN_LOWER_H
#define KVKILN_GEN_LOWER_H

#include "../runtime/kvkiln.h"

#include <stdbool.h>
#include <stddef.h>

struct target;
struct lower; /* an LLVM context, a module and a target machine */

/* quick: less of LLVM, for kernels that the assembler then makes as good. */
kvk_status lower_open(const struct target *target, const char *module_name, bool quick, struct lower **out, kvk_error *err);
void lower_close(struct lower *l);
void *lower_context(struct lower *l); /* LLVMContextRef */
void *lower_module(struct lower *l);  /* LLVMModuleRef */

kvk_status lower_verify(struct lower *l, kvk_error *err);
kvk_status lower_optimise(struct lower *l, kvk_error *err);
/* IR as text; malloc'd, NUL-terminated (not counted). */
kvk_status lower_print(struct lower *l, void **text, size_t *bytes, kvk_error *err);
/* Assembly text or an object file; malloc'd, one NUL appended (not counted). */
kvk_status lower_emit(struct lower *l, int object, void **out, size_t *bytes, kvk_error *err);

#endif
