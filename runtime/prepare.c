/* SPDX-License-Identifier: Apache-2.0 */
/*
** prepare.c - a model to its set of kernels.
*/
#include "prepare.h"

#include "build_id.h"
#include "error.h"
#include "key.h"
#include "model.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

double clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

void kernels_free(struct kvk_kernels *set)
{
    if (set)
        free(set->spec_text);
    free(set);
}

static void fill_request(const kvk_context *ctx, const struct kvk_kernels *set, int kind,
                         struct gen_request *r)
{
    static const char *const names[KIND_COUNT] = {"store", "decode", "unified", "dequant",
                                                  "merge", "copy",   "convert"};
    const struct shape *s = &set->shape;
    *r = (struct gen_request){
        .spec_text = set->spec_text,
        .kind = names[kind],
        .layout = s->layout,
        .target = ctx->info.target,
        .head_size = s->head_size,
        .value_head_size = s->value_head_size,
        .gqa = s->gqa,
        .page_tokens = s->page_tokens,
        .dtype = kind == KIND_DEQUANT ? s->dequant_dtype : s->dtype,
        .options = kind == KIND_DECODE || kind == KIND_UNIFIED ? s->options : 0,
        .plan = set->tuned[kind].plan,
        .plan_source = set->plan_given ? NULL : set->tuned[kind].source,
        .assemble =
            strncmp(ctx->info.target, "sm_", 3) == 0 && ctx->assembler.kind != ASSEMBLER_NONE,
    };
}

/* The plan values that the caller or a tuned table has for each kind. */
static kvk_status find_plans(const kvk_context *ctx, const struct kvk_model *model,
                             struct kvk_kernels *set, kvk_error *err)
{
    struct tuned_plan values;
    unsigned attend = KVK_DECODE | KVK_UNIFIED;
    set->plan_given = model->plan != NULL;
    if (set->plan_given && *model->plan && !(set->shape.kinds & attend))
        return ERR(err, KVK_E_ARG, "plan is given, and neither KVK_DECODE nor KVK_UNIFIED");
    kvk_status status = tuned_plan_parse("plan", model->plan, &values, err);
    for (int i = 0; i < KIND_COUNT && !status; i++) {
        struct gen_request request;
        fill_request(ctx, set, i, &request);
        if (!(set->shape.kinds & attend & 1u << i))
            continue;
        if (set->plan_given)
            tuned_plan_format(&values, set->tuned[i].plan, sizeof set->tuned[i].plan);
        else
            status = tuned_lookup(ctx->spec_dirs, &request, &set->tuned[i], err);
    }
    return status;
}

static kvk_status make_jobs(kvk_context *ctx, const struct kvk_kernels *set,
                            struct prepare *prepare, kvk_error *err)
{
    for (int i = 0; i < KIND_COUNT; i++) {
        struct job *j = &prepare->jobs[i];
        if (!(set->shape.kinds & 1u << i))
            continue;
        j->wanted = 1;
        prepare->total++;
        fill_request(ctx, set, i, &j->request);
        j->key =
            key_make(&j->request, KVK_BUILD_ID, j->request.assemble ? ctx->assembler.name : "none");
        if (!j->key)
            return ERR(err, KVK_E_MEMORY, "no memory for a key");
    }
    return KVK_OK;
}

/* Kernels of the jobs into the set; all must agree on where everything lies. */
static kvk_status fill_set(struct kvk_kernels *set, const struct job jobs[KIND_COUNT],
                           kvk_error *err)
{
    int first = 1;
    for (int i = 0; i < KIND_COUNT; i++) {
        const struct job *j = &jobs[i];
        struct page_facts pages;
        if (!j->wanted)
            continue;
        kvk_status status = page_facts_read(&j->kernel->object, &set->shape, &pages, err);
        if (status)
            return status;
        if (!first && (strcmp(pages.signature, set->pages.signature) != 0 ||
                       pages.slot_bytes != set->pages.slot_bytes))
            return ERR(err, KVK_E_INTERNAL, "kernel %s has signature %s, others have %s",
                       j->kernel->name, pages.signature, set->pages.signature);
        set->pages = pages;
        set->kernel[i] = j->kernel;
        set->origin[i] = j->mine ? j->kernel->origin : "memory";
        set->prepare_ms[i] = j->ms;
        first = 0;
    }
    return KVK_OK;
}

static int same_model(const struct kvk_kernels *a, const struct kvk_kernels *b)
{
    const struct shape *x = &a->shape, *y = &b->shape;
    return x->kv_heads == y->kv_heads && x->query_heads == y->query_heads &&
           x->head_size == y->head_size && x->value_head_size == y->value_head_size &&
           x->page_tokens == y->page_tokens && x->dtype == y->dtype &&
           x->dequant_dtype == y->dequant_dtype && x->kinds == y->kinds &&
           x->options == y->options && strcmp(x->layout, y->layout) == 0 &&
           strcmp(a->spec_text, b->spec_text) == 0 &&
           strcmp(a->tuned[KIND_DECODE].plan, b->tuned[KIND_DECODE].plan) == 0 &&
           strcmp(a->tuned[KIND_UNIFIED].plan, b->tuned[KIND_UNIFIED].plan) == 0;
}

/* The set of this model that is there already, or, with `add`, this one. */
static struct kvk_kernels *find_set(kvk_context *ctx, struct kvk_kernels *set, int add)
{
    struct kvk_kernels *found;
    pthread_mutex_lock(&ctx->mutex);
    for (found = ctx->sets; found && !same_model(found, set); found = found->next)
        ;
    if (!found && add) {
        set->next = ctx->sets;
        ctx->sets = found = set;
    }
    pthread_mutex_unlock(&ctx->mutex);
    return found;
}

static kvk_status prepare_set(kvk_context *ctx, struct kvk_kernels *set, kvk_error *err)
{
    struct prepare prepare = {.ctx = ctx};
    struct job *jobs = prepare.jobs;
    kvk_status status = make_jobs(ctx, set, &prepare, err);
    if (!status)
        prepare_run(&prepare);
    for (int i = 0; i < KIND_COUNT && !status; i++) {
        status = jobs[i].status;
        if (status && err)
            *err = jobs[i].error;
    }
    if (!status)
        status = fill_set(set, jobs, err);
    for (int i = 0; i < KIND_COUNT; i++)
        free(jobs[i].key);
    return status;
}

/* A model of a program built against an older header ends earlier: the rest is the default. */
static kvk_status take_model(const struct kvk_model *given, struct kvk_model *out, kvk_error *err)
{
    const size_t first_release = offsetof(struct kvk_model, plan);
    kvk_status status = args_check_from(given, first_release, sizeof *out, "kvk_model", err);
    *out = KVK_INIT(struct kvk_model);
    if (!status)
        memcpy(out, given, given->size < sizeof *out ? given->size : sizeof *out);
    return status;
}

kvk_status kvk_prepare(kvk_context *ctx, const struct kvk_model *given, const kvk_kernels **out,
                       kvk_error *err)
{
    struct kvk_model whole, *model = &whole;
    kvk_status status = fork_check(ctx, __func__, err);
    if (status)
        return status;
    if (!out)
        return ERR(err, KVK_E_ARG, "out is NULL");
    *out = NULL;
    status = take_model(given, model, err);
    if (status)
        return status;
    struct kvk_kernels *set = calloc(1, sizeof *set), *found;
    if (!set)
        return ERR(err, KVK_E_MEMORY, "no memory for a set of kernels");
    set->ctx = ctx;
    status = model_shape(model, &set->shape, err);
    if (!status)
        status = model_spec_text(ctx, model->spec, &set->spec_text, err);
    if (!status)
        status = model_layout(model, set->spec_text, &set->shape, err);
    if (!status)
        status = find_plans(ctx, model, set, err);
    if (!status && (found = find_set(ctx, set, 0)) == NULL) {
        status = prepare_set(ctx, set, err);
        if (!status)
            found = find_set(ctx, set, 1);
    }
    if (status || found != set)
        kernels_free(set);
    if (!status)
        *out = found;
    return status;
}

kvk_status kvk_kernel(const kvk_kernels *k, kvk_kind_bits kind, struct kvk_kernel_info *info,
                      kvk_error *err)
{
    if (!k)
        return ERR(err, KVK_E_ARG, "kernels is NULL");
    if (!info || info->size < sizeof *info)
        return ERR(err, KVK_E_ARG, "struct kvk_kernel_info: initialise with KVK_INIT");
    for (int i = 0; i < KIND_COUNT; i++) {
        const struct kernel *one = k->kernel[i];
        if ((unsigned)kind != 1u << i)
            continue;
        if (!one)
            return ERR(err, KVK_E_ARG, "the kind was not prepared");
        info->name = one->name;
        info->origin = k->origin[i];
        info->manifest = one->object.manifest;
        info->prepare_ms = k->prepare_ms[i];
        info->registers = one->main.registers;
        info->local_bytes = one->main.local_bytes;
        info->threads = (int)one->main.threads;
        info->resident_ctas = one->main.resident_ctas;
        info->shared_bytes =
            (int)one->main.shared_bytes +
            (one->main.static_shared_bytes > 0 ? one->main.static_shared_bytes : 0);
        return KVK_OK;
    }
    return ERR(err, KVK_E_ARG,
               "kind is %u, accepted one of KVK_STORE, KVK_DECODE, KVK_UNIFIED, KVK_DEQUANT, "
               "KVK_MERGE, KVK_COPY, KVK_CONVERT",
               (unsigned)kind);
}
