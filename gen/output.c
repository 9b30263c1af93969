/* SPDX-License-Identifier: Apache-2.0 */
#include "output.h"

#include "../runtime/error.h"
#include "assemble.h"
#include "host_link.h"
#include "hsaco_link.h"
#include "lower.h"
#include "manifest.h"
#include "target.h"

#include <stdlib.h>
#include <string.h>

/* Hands a copy to the caller's artefacts if it asked for this one. */
static kvk_status keep(struct gen_artifacts *out, unsigned emit, int which, const void *bytes,
                       size_t size, kvk_error *err)
{
    if (!(emit & 1u << which))
        return KVK_OK;
    char *p = malloc(size + 1);
    if (!p)
        return ERR(err, KVK_E_MEMORY, "out of memory");
    memcpy(p, bytes, size);
    p[size] = 0;
    out->data[which] = p;
    out->bytes[which] = size;
    return KVK_OK;
}

static kvk_status nvptx_code(const struct target *target, int assemble, struct lower *lower,
                             unsigned emit, struct gen_artifacts *out, struct output_code *code,
                             kvk_error *err)
{
    code->format = "ptx";
    kvk_status status = lower_emit(lower, 0, &code->bytes, &code->size, err);
    if (!status)
        status = keep(out, emit, GEN_EMIT_PTX, code->bytes, code->size, err);
    if (!status)
        status = keep(out, emit, GEN_EMIT_ASM, code->bytes, code->size, err);
    struct assembler assembler;
    int wanted = emit & 1u << GEN_EMIT_CUBIN;
    int found = assembler_find(&assembler);
    if (status || !(wanted || (assemble && found && emit & 1u << GEN_EMIT_OBJECT)))
        return status;
    void *cubin;
    size_t bytes;
    status = assemble_ptx(&assembler, code->bytes, target->name, code->quick, &cubin, &bytes,
                          &code->report, err);
    if (status)
        return status;
    status = keep(out, emit, GEN_EMIT_CUBIN, cubin, bytes, err);
    if (assemble) {
        free(code->bytes);
        code->bytes = cubin;
        code->size = bytes;
        code->format = "cubin";
    } else {
        free(cubin);
    }
    return status;
}

static kvk_status link_object(const struct target *target, const void *elf, size_t size,
                              struct manifest *m, struct output_code *code, kvk_error *err)
{
    if (target->family == FAMILY_AMDGCN) {
        code->format = "hsaco";
        return hsaco_link(elf, size, &code->bytes, &code->size, err);
    }
    const char *symbols[MANIFEST_MAX_ENTRIES];
    size_t offsets[MANIFEST_MAX_ENTRIES];
    for (int i = 0; i < m->n; i++)
        symbols[i] = m->entries[i].symbol;
    code->format = "host";
    kvk_status status =
        host_link(elf, size, symbols, offsets, m->n, &code->bytes, &code->size, err);
    for (int i = 0; !status && i < m->n; i++)
        m->entries[i].offset = offsets[i];
    return status;
}

static kvk_status object_code(const struct target *target, struct lower *lower, struct manifest *m,
                              unsigned emit, struct gen_artifacts *out, struct output_code *code,
                              kvk_error *err)
{
    void *elf = NULL;
    size_t size;
    kvk_status status = KVK_OK;
    if (emit & 1u << GEN_EMIT_ASM)
        status = lower_emit(lower, 0, &out->data[GEN_EMIT_ASM], &out->bytes[GEN_EMIT_ASM], err);
    if (!status)
        status = lower_emit(lower, 1, &elf, &size, err);
    if (!status)
        status = keep(out, emit, GEN_EMIT_RELOC, elf, size, err);
    if (!status)
        status = link_object(target, elf, size, m, code, err);
    if (!status && target->family == FAMILY_AMDGCN)
        status = keep(out, emit, GEN_EMIT_HSACO, code->bytes, code->size, err);
    free(elf);
    return status;
}

/* An artefact that this family does not have is refused by name, not left out. */
static kvk_status check_emit(const struct target *target, unsigned emit, kvk_error *err)
{
    unsigned nv = 1u << GEN_EMIT_PTX | 1u << GEN_EMIT_CUBIN, amd = 1u << GEN_EMIT_HSACO,
             elf = 1u << GEN_EMIT_RELOC;
    if (emit & nv && target->family != FAMILY_NVPTX)
        return ERR(err, KVK_E_UNSUPPORTED, "emit: ptx and cubin are for sm_ targets, not %s",
                   target->name);
    if (emit & amd && target->family != FAMILY_AMDGCN)
        return ERR(err, KVK_E_UNSUPPORTED, "emit: hsaco is for gfx targets, not %s", target->name);
    if (emit & elf && target->family == FAMILY_NVPTX)
        return ERR(err, KVK_E_UNSUPPORTED,
                   "emit: a relocatable is for gfx and host targets, not %s", target->name);
    return KVK_OK;
}

kvk_status output_code(const struct target *target, int assemble, struct lower *lower,
                       struct manifest *manifest, unsigned emit, struct gen_artifacts *out,
                       struct output_code *code, kvk_error *err)
{
    kvk_status status = check_emit(target, emit, err);
    if (status)
        return status;
    if (target->family == FAMILY_NVPTX)
        return nvptx_code(target, assemble, lower, emit, out, code, err);
    return object_code(target, lower, manifest, emit, out, code, err);
}

void output_free(struct output_code *code)
{
    free(code->bytes);
    free(code->report);
}
