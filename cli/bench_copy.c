/* SPDX-License-Identifier: Apache-2.0 */
/*
** bench_copy.c - the copy bandwidth that shares are of: the driver's device-to-device copy or, on
** CUDA, a kernel that copies 16 bytes a thread, whichever is faster. A kernel that left other bytes
** than it should have is not counted.
*/
#include "bench_time.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { COPIES = 7, LAUNCHES = 4, THREADS = 256, PATTERN = 0x5A };

static const char ptx[] =
    ".version 7.8\n.target sm_80\n.address_size 64\n"
    ".visible .entry copy(.param .u64 from, .param .u64 to, .param .u64 count)\n"
    "{\n"
    "    .reg .pred %p;\n"
    "    .reg .b32 %r<7>;\n"
    "    .reg .b64 %d<5>;\n"
    "    mov.u32 %r0, %ctaid.x;\n"
    "    mov.u32 %r1, %ntid.x;\n"
    "    mov.u32 %r2, %tid.x;\n"
    "    mul.wide.u32 %d0, %r0, %r1;\n"
    "    cvt.u64.u32 %d1, %r2;\n"
    "    add.u64 %d0, %d0, %d1;\n"
    "    ld.param.u64 %d2, [count];\n"
    "    setp.ge.u64 %p, %d0, %d2;\n"
    "    @%p ret;\n"
    "    ld.param.u64 %d3, [from];\n"
    "    ld.param.u64 %d4, [to];\n"
    "    shl.b64 %d0, %d0, 4;\n"
    "    add.u64 %d3, %d3, %d0;\n"
    "    add.u64 %d4, %d4, %d0;\n"
    "    ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%d3];\n"
    "    st.global.v4.u32 [%d4], {%r3, %r4, %r5, %r6};\n"
    "    ret;\n"
    "}\n";

struct copy {
    const struct device *device;
    void *from, *to;
    size_t bytes;
    void *library, *module, *function;
    int (*load)(void **module, const void *image, unsigned n, int *options, void **values);
    int (*find)(void **function, void *module, const char *name);
    int (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                  unsigned bz, unsigned shared, void *stream, void **params, void **extra);
};

static kvk_status by_driver(void *data, long i, kvk_stream stream, kvk_error *err)
{
    struct copy *c = data;
    (void)i;
    return kvk_device_copy(c->device->ctx, c->to, c->from, c->bytes, stream, err);
}

static kvk_status copy_failed(kvk_error *err, const char *call, int code)
{
    memset(err, 0, sizeof *err);
    err->status = KVK_E_DRIVER;
    err->driver = code;
    snprintf(err->where, sizeof err->where, "bench_copy");
    snprintf(err->text, sizeof err->text, "%s failed with CUDA error %d", call, code);
    return err->status;
}

static int get(struct copy *c, const char *name, void *function)
{
    void *found = dlsym(c->library, name);
    if (found)
        memcpy(function, &found, sizeof found);
    return found != NULL;
}

static kvk_status by_kernel(void *data, long i, kvk_stream stream, kvk_error *err)
{
    struct copy *c = data;
    (void)i;
    uint64_t params[3] = {(uintptr_t)c->from, (uintptr_t)c->to, c->bytes / 16};
    size_t size = sizeof params;
    void *extra[] = {(void *)1, params, (void *)2, &size, NULL}; /* buffer, its size, end */
    unsigned grid = (unsigned)((params[2] + THREADS - 1) / THREADS);
    int code = c->launch(c->function, grid, 1, 1, THREADS, 1, 1, 0, stream, NULL, extra);
    return code ? copy_failed(err, "cuLaunchKernel", code) : KVK_OK;
}

/* Inside kvk_time, where the runtime has entered the context; a first launch, outside of a capture,
** is part of loading. */
static kvk_status load_kernel(void *data, kvk_stream stream, kvk_error *err)
{
    struct copy *c = data;
    int code = c->load(&c->module, ptx, 0, NULL, NULL);
    if (code)
        return copy_failed(err, "cuModuleLoadDataEx", code);
    code = c->find(&c->function, c->module, "copy");
    return code ? copy_failed(err, "cuModuleGetFunction", code) : by_kernel(c, 0, stream, err);
}

static kvk_status time_copy(struct copy *c,
                            kvk_status (*body)(void *, long, kvk_stream, kvk_error *), double *gbs,
                            kvk_error *err)
{
    struct bench_times times = {0};
    struct bench_unit unit = {c->device, body, c, device_is_host(c->device) ? 1 : LAUNCHES, NULL};
    kvk_status status = bench_unit_times(&unit, COPIES, &times, err);
    if (!status)
        *gbs = 2 * (double)c->bytes / times.median * 1e-6;
    return status;
}

/* The end of the copy, where a grid that is too small would show. */
static int copied(const struct copy *c, kvk_error *err)
{
    unsigned char last[64];
    const char *from = (const char *)c->to + c->bytes - sizeof last;
    if (kvk_download(c->device->ctx, last, from, sizeof last, err))
        return 0;
    for (size_t i = 0; i < sizeof last; i++)
        if (last[i] != PATTERN)
            return 0;
    return 1;
}

/* A figure that a broken kernel gave is worse than none: then the driver's stands alone. */
static void kernel_copy(struct copy *c, double *gbs)
{
    kvk_error err = {0};
    double own = 0, ms;
    if (strncmp(c->device->info.device, "cuda:", 5) != 0 ||
        !(c->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)))
        return;
    if (get(c, "cuModuleLoadDataEx", &c->load) && get(c, "cuModuleGetFunction", &c->find) &&
        get(c, "cuLaunchKernel", &c->launch) &&
        !kvk_fill(c->device->ctx, c->to, 0, c->bytes, &err) &&
        !kvk_time(c->device->ctx, load_kernel, c, &ms, &err) &&
        !time_copy(c, by_kernel, &own, &err) && copied(c, &err))
        *gbs = own > *gbs ? own : *gbs;
    else
        cli_message("the copy kernel is not counted: %s", *err.text ? err.text : "wrong bytes");
    dlclose(c->library); /* the module stays loaded until the process ends */
}

static kvk_status fastest_copy(const struct device *device, size_t bytes, double *gbs,
                               kvk_error *err)
{
    struct copy c = {.device = device, .bytes = bytes};
    kvk_status status = kvk_alloc(device->ctx, c.bytes, &c.from, err);
    if (!status)
        status = kvk_alloc(device->ctx, c.bytes, &c.to, err);
    if (!status)
        status = kvk_fill(device->ctx, c.from, PATTERN, c.bytes, err);
    if (!status)
        status = kvk_fill(device->ctx, c.to, 0, c.bytes, err);
    if (!status)
        status = time_copy(&c, by_driver, gbs, err);
    if (!status)
        kernel_copy(&c, gbs);
    kvk_free(device->ctx, c.from);
    kvk_free(device->ctx, c.to);
    return status;
}

kvk_status bench_copy(const struct device *device, double *gbs, kvk_error *err)
{
    size_t bytes = device_is_host(device) ? (size_t)128 << 20 : (size_t)2 << 30;
    return fastest_copy(device, bytes, gbs, err);
}
