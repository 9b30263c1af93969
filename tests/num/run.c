/* SPDX-License-Identifier: Apache-2.0 */
/*
** run.c - one case: its memory, its failures, its kernels.
*/
#include "num.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct num_memory {
    struct num_memory *next;
    void *host, *device;
};

static void release(struct num_run *run)
{
    while (run->memory) {
        struct num_memory *m = run->memory;
        run->memory = m->next;
        free(m->host);
        kvk_free(run->ctx, m->device);
        free(m);
    }
}

enum num_result num_try(struct num_run *run, const struct num_case *c)
{
    jmp_buf here;
    volatile int passed = 0;

    run->leave = &here;
    run->fault = c->fault == FAULT_NONE ? run->broken : c->fault;
    run->compared = run->skipped = 0;
    run->may_refuse = c->may_refuse;
    run->error = run->lse_error = 0;
    run->text[0] = 0;
    if (!setjmp(here)) {
        c->body(run, c);
        passed = 1;
    }
    release(run);
    if (run->skipped)
        return CASE_SKIPPED;
    if (c->fault == FAULT_NONE)
        return passed ? CASE_PASSED : CASE_FAILED;
    if (passed)
        snprintf(run->text, sizeof run->text, "the comparison did not notice the fault");
    return !passed && run->compared ? CASE_PASSED : CASE_FAILED;
}

static _Noreturn void leave(struct num_run *run, const char *format, va_list args)
{
    vsnprintf(run->text, sizeof run->text, format, args);
    longjmp(*run->leave, 1);
}

void num_fail(struct num_run *run, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    leave(run, format, args);
}

void num_differ(struct num_run *run, const char *format, ...)
{
    va_list args;

    run->compared = 1;
    va_start(args, format);
    leave(run, format, args);
}

static struct num_memory *remember(struct num_run *run)
{
    struct num_memory *m = calloc(1, sizeof *m);

    if (!m)
        abort();
    m->next = run->memory;
    run->memory = m;
    return m;
}

void *num_host(struct num_run *run, size_t bytes)
{
    struct num_memory *m = remember(run);

    m->host = calloc(1, bytes + 1);
    if (!m->host)
        abort();
    return m->host;
}

void num_ok(struct num_run *run, kvk_status status, const kvk_error *err, const char *call)
{
    if (status != KVK_OK)
        num_fail(run, "%s: %s: %s (%s)", call, kvk_status_name(status), err->text, err->where);
}

void num_gpus_only(struct num_run *run, const char *why)
{
    struct kvk_device_info info = KVK_INIT(struct kvk_device_info);
    kvk_error err = {0};

    num_ok(run, kvk_device(run->ctx, &info, &err), &err, "kvk_device");
    run->skipped = !strncmp(info.device, "host", 4) || !strncmp(info.name, "simulated", 9);
    if (run->skipped)
        num_fail(run, "%s", why);
}

void *num_device_untouched(struct num_run *run, size_t bytes)
{
    struct num_memory *m = remember(run);
    kvk_error err = {0};

    num_ok(run, kvk_alloc(run->ctx, bytes ? bytes : 1, &m->device, &err), &err, "kvk_alloc");
    return m->device;
}

void num_place_page(struct num_run *run, uint8_t *memory, size_t bytes, const struct page_at *at)
{
    const size_t end = at->offset + at->bytes;
    const size_t before = at->offset < PAGE_EDGE ? at->offset : PAGE_EDGE;
    const size_t after = bytes - end < PAGE_EDGE ? bytes - end : PAGE_EDGE;
    kvk_error err = {0};

    num_ok(run,
           kvk_fill(run->ctx, memory + at->offset - before, 0xFF, before + at->bytes + after, &err),
           &err, "kvk_fill");
    num_ok(run, kvk_upload(run->ctx, memory + at->offset, at->page, at->bytes, &err), &err,
           "kvk_upload");
}

void *num_device(struct num_run *run, size_t bytes)
{
    void *device = num_device_untouched(run, bytes);
    kvk_error err = {0};

    num_ok(run, kvk_fill(run->ctx, device, 0xFF, bytes ? bytes : 1, &err), &err, "kvk_fill");
    return device;
}

void *num_upload(struct num_run *run, const void *from, size_t bytes)
{
    void *device = num_device(run, bytes);
    kvk_error err = {0};

    if (bytes)
        num_ok(run, kvk_upload(run->ctx, device, from, bytes, &err), &err, "kvk_upload");
    return device;
}

void num_download(struct num_run *run, void *to, const void *from, size_t bytes)
{
    kvk_error err = {0};

    num_ok(run, kvk_synchronize(run->ctx, &err), &err, "kvk_synchronize");
    if (bytes)
        num_ok(run, kvk_download(run->ctx, to, from, bytes, &err), &err, "kvk_download");
}

const kvk_kernels *num_prepare(struct num_run *run, const struct num_model *model, unsigned kinds)
{
    struct kvk_model m = KVK_INIT(struct kvk_model);
    const kvk_kernels *kernels = NULL;
    kvk_error err = {0};
    kvk_status status;
    char path[512];

    m.spec = model->spec->name;
    if (!ref_spec_find(m.spec)) {
        snprintf(path, sizeof path, "%s/%s.lua", run->spec_folder, m.spec);
        m.spec = path;
    }
    m.layout = ref_layout_name(model->layout);
    m.kv_heads = model->kv_heads;
    m.query_heads = model->kv_heads * model->gqa;
    m.head_size = model->d;
    m.value_head_size = model->dv == model->d ? 0 : model->dv;
    m.page_tokens = model->page;
    m.dtype = model->dtype;
    m.dequant_dtype = model->dequant_dtype;
    m.kinds = kinds;
    m.options = model->options;
    status = kvk_prepare(run->ctx, &m, &kernels, &err);
    run->skipped = run->may_refuse && (status == KVK_E_UNSUPPORTED || status == KVK_E_SHAPE);
    num_ok(run, status, &err, "kvk_prepare");
    return kernels;
}
