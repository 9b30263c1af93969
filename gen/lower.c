/* SPDX-License-Identifier: Apache-2.0 */
/*
** lower.c - LLVM's middle and back end. One context a compile, so kernels compile in parallel.
**
** default<O2> (measured equal to O3 on kernels of this kind) unless the target names passes of its
** own. No flag relaxes floating point: a product and a sum are fused only where a template says
** kb_fma, on every target alike.
*/
#include <llvm-c/Analysis.h>
#include <llvm-c/Core.h>
#include <llvm-c/Error.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>

#include "lower.h"

#include "../runtime/error.h"
#include "target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lower {
    const struct target *target;
    LLVMContextRef ctx;
    LLVMModuleRef module;
    LLVMTargetMachineRef machine;
    bool quick;
    int errors;
    char first[256]; /* first error diagnostic */
};

/* Some code generation errors come only this way while the call reports success; remarks come too
** and are dropped. */
static void on_diagnostic(LLVMDiagnosticInfoRef d, void *data)
{
    struct lower *l = data;
    if (LLVMGetDiagInfoSeverity(d) != LLVMDSError)
        return;
    if (!l->errors++) {
        char *s = LLVMGetDiagInfoDescription(d);
        snprintf(l->first, sizeof l->first, "%s", s);
        LLVMDisposeMessage(s);
    }
}

static kvk_status from_message(kvk_error *err, const char *stage, char *message)
{
    kvk_status status =
        ERR(err, KVK_E_COMPILE, "%s: %s", stage, message ? message : "unknown error");
    LLVMDisposeMessage(message);
    return status;
}

kvk_status lower_open(const struct target *target, const char *module_name, bool quick,
                      struct lower **out, kvk_error *err)
{
    struct lower *l = calloc(1, sizeof *l);
    if (!l)
        return ERR(err, KVK_E_MEMORY, "out of memory");
    target->ops->initialise();
    l->target = target;
    l->quick = quick;
    l->ctx = LLVMContextCreate();
    LLVMContextSetDiagnosticHandler(l->ctx, on_diagnostic, l);
    l->module = LLVMModuleCreateWithNameInContext(module_name, l->ctx);
    LLVMSetTarget(l->module, target->ops->triple);
    LLVMTargetRef t;
    char *message = NULL;
    if (LLVMGetTargetFromTriple(target->ops->triple, &t, &message)) {
        lower_close(l);
        return from_message(err, target->name, message);
    }
    /* text is assembled, and scheduled, once more: less work here leaves the same text */
    LLVMCodeGenOptLevel level = target->ops->object ? LLVMCodeGenLevelDefault
                                : quick             ? LLVMCodeGenLevelNone
                                                    : LLVMCodeGenLevelLess;
    LLVMRelocMode reloc = target->ops->reloc_pic ? LLVMRelocPIC : LLVMRelocDefault;
    l->machine = LLVMCreateTargetMachine(t, target->ops->triple, target->cpu, target->features,
                                         level, reloc, LLVMCodeModelDefault);
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(l->machine);
    LLVMSetModuleDataLayout(l->module, layout);
    LLVMDisposeTargetData(layout);
    *out = l;
    return KVK_OK;
}

void lower_close(struct lower *l)
{
    if (!l)
        return;
    if (l->machine)
        LLVMDisposeTargetMachine(l->machine);
    LLVMDisposeModule(l->module);
    LLVMContextDispose(l->ctx);
    free(l);
}

void *lower_context(struct lower *l) { return l->ctx; }
void *lower_module(struct lower *l) { return l->module; }

kvk_status lower_verify(struct lower *l, kvk_error *err)
{
    char *message = NULL;
    if (LLVMVerifyModule(l->module, LLVMReturnStatusAction, &message))
        return from_message(err, "verify", message);
    LLVMDisposeMessage(message);
    return KVK_OK;
}

kvk_status lower_optimise(struct lower *l, kvk_error *err)
{
    const char *passes = l->target->ops->passes ? l->target->ops->passes(l->quick) : "default<O2>";
    LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
    LLVMErrorRef e = LLVMRunPasses(l->module, passes, l->machine, options);
    LLVMDisposePassBuilderOptions(options);
    if (e) {
        char *message = LLVMGetErrorMessage(e);
        kvk_status status = ERR(err, KVK_E_COMPILE, "optimise: %s", message);
        LLVMDisposeErrorMessage(message);
        return status;
    }
    return l->errors ? ERR(err, KVK_E_COMPILE, "optimise: %s", l->first) : KVK_OK;
}

static void *copy_bytes(const void *data, size_t bytes)
{
    char *p = malloc(bytes + 1);
    if (p) {
        memcpy(p, data, bytes);
        p[bytes] = 0;
    }
    return p;
}

kvk_status lower_print(struct lower *l, void **text, size_t *bytes, kvk_error *err)
{
    char *s = LLVMPrintModuleToString(l->module);
    *bytes = strlen(s);
    *text = copy_bytes(s, *bytes);
    LLVMDisposeMessage(s);
    return *text ? KVK_OK : ERR(err, KVK_E_MEMORY, "out of memory");
}

kvk_status lower_emit(struct lower *l, int object, void **out, size_t *bytes, kvk_error *err)
{
    char *message = NULL;
    LLVMMemoryBufferRef buffer;
    /* code generation uses a module up: text beside an object comes from a copy */
    bool twice = !object && l->target->ops->object;
    LLVMModuleRef module = twice ? LLVMCloneModule(l->module) : l->module;
    int failed = LLVMTargetMachineEmitToMemoryBuffer(
        l->machine, module, object ? LLVMObjectFile : LLVMAssemblyFile, &message, &buffer);
    if (twice)
        LLVMDisposeModule(module);
    if (failed)
        return from_message(err, "emit", message);
    *bytes = LLVMGetBufferSize(buffer);
    *out = copy_bytes(LLVMGetBufferStart(buffer), *bytes);
    LLVMDisposeMemoryBuffer(buffer);
    if (l->errors) {
        free(*out);
        *out = NULL;
        return ERR(err, KVK_E_COMPILE, "emit: %s", l->first);
    }
    return *out ? KVK_OK : ERR(err, KVK_E_MEMORY, "out of memory");
}
