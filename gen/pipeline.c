/* SPDX-License-Identifier: Apache-2.0 */
/*
** pipeline.c - read this first: the stages of a compile, one call a line, in pipeline_compile.
*/
#include "kb_internal.h"

#include "pipeline.h"

#include "../runtime/error.h"
#include "../runtime/object.h"
#include "../templates/templates.h"
#include "lower.h"
#include "manifest.h"
#include "name.h"
#include "output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What one compile carries from stage to stage. */
struct job {
    const struct gen_request *request;
    struct plan plan;
    char name[NAME_MAX_BYTES];
    struct lower *lower;
    struct manifest manifest;
    struct gen_artifacts *out;
    unsigned emit;
    kvk_error *err;
};

static const struct {
    enum kind kind;
    const char *abi;
    void (*build)(struct kb *k);
    int threads, waits;
} entries[] = {
#define ENTRY(kind, abi, template, threads, waits) {kind, #abi, template, threads, waits},
#include "../templates/kinds.def"
#undef ENTRY
};

kvk_status pipeline_plan(const struct gen_request *r, struct plan *plan, kvk_error *err)
{
    struct spec spec;
    kvk_status status = spec_from_text(r->spec_text, &spec, err);
    if (status)
        return status;
    int layout = layout_from_name(r->layout), kind = kind_from_name(r->kind);
    const struct target *target = target_find(r->target);
    if (layout < 0)
        return ERR(err, KVK_E_ARG, "layout: %s: accepted aos, soa, native", r->layout);
    if (kind < 0)
        return ERR(err, KVK_E_ARG,
                   "kind: %s: accepted store, decode, unified, dequant, merge, copy, convert", r->kind);
    if (!target)
        return ERR(err, KVK_E_UNSUPPORTED,
                   "target: %s: unknown; see kvkiln build --help for the list", r->target);
    struct geometry geo = {.layout = (enum layout)layout,
                           .head_size = r->head_size,
                           .value_head_size =
                               r->value_head_size ? r->value_head_size : r->head_size,
                           .gqa = r->gqa,
                           .page_tokens = r->page_tokens,
                           .dtype = r->dtype ? r->dtype : KVK_BFLOAT16,
                           .options = r->options};
    return plan_make_set(&spec, &geo, target, (enum kind)kind, r->plan, r->plan_source, plan, err);
}

/* Symbols are the name's, with what PTX does not allow in one replaced. */
static void symbol_of(const struct job *j, const char *abi, char *symbol, size_t cap)
{
    const char *rest = strchr(j->name, '.');
    snprintf(symbol, cap, "kvk_%s%s", abi, rest ? rest : "");
    for (char *p = symbol; *p; p++)
        if (*p == '.')
            *p = '_';
}

static kvk_status build(struct job *j)
{
    struct kb k;
    kb_open(&k, lower_context(j->lower), lower_module(j->lower), j->plan.target, &j->plan, j->err);
    for (size_t i = 0; i < sizeof entries / sizeof *entries && !k.status; i++) {
        if (entries[i].kind != j->plan.kind)
            continue;
        char symbol[NAME_MAX_BYTES + 16];
        symbol_of(j, entries[i].abi, symbol, sizeof symbol);
        int threads = entries[i].threads ? entries[i].threads : j->plan.threads;
        kb_entry_begin(&k, symbol, entries[i].abi, threads);
        if (entries[i].waits)
            kb_grid_wait(&k);
        entries[i].build(&k);
        if (!k.waited && j->plan.target->flags & TF_GRID_WAIT)
            kb_fail(&k, "%s does not wait for the kernels before it", entries[i].abi);
        j->manifest.grid_wait = k.waited;
        kb_entry_end(&k);
        manifest_entry(&j->manifest, entries[i].abi, symbol, threads, kb_shared_used(&k));
    }
    kvk_status status = k.status;
    kb_close(&k);
    return status;
}

static kvk_status keep_text(struct job *j, int which)
{
    if (!(j->emit & 1u << which))
        return KVK_OK;
    return lower_print(j->lower, &j->out->data[which], &j->out->bytes[which], j->err);
}

static kvk_status seal(struct job *j, const struct output_code *code)
{
    if (!(j->emit & 1u << GEN_EMIT_OBJECT))
        return KVK_OK;
    char text[8192];
    manifest_finish(&j->manifest, &j->plan, j->name, code->format, code->report, text, sizeof text);
    struct object parts = {.key = "", .manifest = text, .code = code->bytes};
    parts.manifest_bytes = strlen(text);
    parts.code_bytes = code->size;
    return object_seal(&parts, &j->out->data[GEN_EMIT_OBJECT], &j->out->bytes[GEN_EMIT_OBJECT],
                       j->err);
}

static kvk_status emit(struct job *j)
{
    struct output_code code = {.quick = j->plan.quick};
    kvk_status status = output_code(j->plan.target, j->request->assemble, j->lower, &j->manifest,
                                    j->emit, j->out, &code, j->err);
    if (!status)
        status = seal(j, &code);
    output_free(&code);
    return status;
}

kvk_status pipeline_compile(const struct gen_request *request, unsigned mask,
                            struct gen_artifacts *out, kvk_error *err)
{
    struct job j = {.request = request, .out = out, .emit = mask, .err = err};
    memset(out, 0, sizeof *out);
    kvk_status status = pipeline_plan(request, &j.plan, err);
    if (!status &&
        !name_format(request->kind, j.plan.spec.name, &j.plan.geo, j.name, sizeof j.name))
        status = ERR(err, KVK_E_SPEC, "%s: not a name for a kernel", j.plan.spec.name);
    if (!status)
        status = lower_open(j.plan.target, j.name, j.plan.quick, &j.lower, err);
    if (!status)
        status = build(&j);
    if (!status)
        status = lower_verify(j.lower, err);
    if (!status)
        status = keep_text(&j, GEN_EMIT_LL);
    if (!status)
        status = lower_optimise(j.lower, err);
    if (!status)
        status = keep_text(&j, GEN_EMIT_OPT_LL);
    if (!status && mask & ~(1u << GEN_EMIT_LL | 1u << GEN_EMIT_OPT_LL))
        status = emit(&j);
    lower_close(j.lower);
    if (status)
        for (int i = 0; i < GEN_EMIT_COUNT; i++) {
            free(out->data[i]);
            out->data[i] = NULL;
        }
    return status;
}
