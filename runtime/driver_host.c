/* SPDX-License-Identifier: Apache-2.0 */
/*
** driver_host.c - the processor as a device.
**
** Devices: 0 is the host. 1 and 2 are the same for tests: every allocation and the shared memory of
** a CTA lie between inaccessible pages, flush with the one at the end (1; starts are 16-byte
** aligned) or at the beginning (2), so that a kernel that leaves its buffers faults at once; what a
** kernel must not read before writing it is 0xFF there.
**
** Code is the flat image that gen/host_link.c makes: position independent, no relocations, no
** writable data. It is mapped writable, filled, then made executable. A fault in a kernel is a
** fault of the process: no handler is installed.
**
** Launches run to their end before they return; streams are ignored.
*/
#include "driver.h"

#include "error.h"
#include "host_abi.h"
#include "host_cpu.h"
#include "host_pool.h"
#include "host_sched.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MODE_PLAIN, MODE_GUARD_END, MODE_GUARD_START, MODE_COUNT };
enum { ALLOC_ALIGN = 256, MAX_POOL = 256 };

struct device {
    int mode;
    struct host_pool *pool;
};

struct module {
    unsigned char *code;
    size_t bytes, mapped;
};

/* One: the modes with guard pages are taken by name only, never because the plain one failed. */
static kvk_status count(int *devices, kvk_error *err)
{
    (void)err;
    *devices = 1;
    return KVK_OK;
}

static void describe(int mode, struct driver_device_info *info)
{
    static const char *const suffix[] = {"", " (buffers end at a guard page)",
                                         " (buffers begin at a guard page)"};
    char name[64];
    memset(info, 0, sizeof *info);
    host_cpu_name(name, sizeof name);
    snprintf(info->name, sizeof info->name, "%s%s", name, suffix[mode]);
    snprintf(info->target, sizeof info->target, "%s", host_cpu_target());
    info->memory_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    info->multiprocessors = (int)host_cpu_count();
}

static kvk_status open_device(int index, void **device, struct driver_device_info *info,
                              kvk_error *err)
{
    if (index < 0 || index >= MODE_COUNT)
        return ERR(err, KVK_E_DEVICE, "host:%d: 0, or 1 and 2 with guard pages, accepted", index);
    struct device *d = calloc(1, sizeof *d);
    if (!d)
        return ERR(err, KVK_E_MEMORY, "%zu bytes for a device", sizeof *d);
    unsigned threads = host_cpu_count();
    kvk_status status = host_pool_open(&d->pool, threads < MAX_POOL ? threads : MAX_POOL, err);
    if (status) {
        free(d);
        return status;
    }
    d->mode = index;
    if (info)
        describe(index, info);
    *device = d;
    return KVK_OK;
}

static void close_device(void *device)
{
    struct device *d = device;
    if (!d)
        return;
    host_pool_close(d->pool);
    free(d);
}

/* ---- code ---- */

static kvk_status check_object(const struct object *object, kvk_error *err)
{
    char format[16] = "", target[32] = "";
    object_get(object, "format", format, sizeof format);
    object_get(object, "target", target, sizeof target);
    if (strcmp(format, "host"))
        return ERR(err, KVK_E_OBJECT, "format %s: host accepted", *format ? format : "missing");
    kvk_status status = host_cpu_check(target, host_cpu_level(), host_cpu_target(), err);
    if (!status && !object->code_bytes)
        status = ERR(err, KVK_E_OBJECT, "the object holds no code");
    return status;
}

static kvk_status load(void *device, const struct object *object, void **out, kvk_error *err)
{
    (void)device;
    kvk_status status = check_object(object, err);
    if (status)
        return status;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct module *m = calloc(1, sizeof *m);
    if (!m)
        return ERR(err, KVK_E_MEMORY, "%zu bytes for a module", sizeof *m);
    m->bytes = object->code_bytes;
    m->mapped = (m->bytes + page - 1) / page * page;
    m->code = mmap(NULL, m->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m->code == MAP_FAILED) {
        free(m);
        return ERR(err, KVK_E_MEMORY, "%zu bytes for code", object->code_bytes);
    }
    memcpy(m->code, object->code, m->bytes);
    if (mprotect(m->code, m->mapped, PROT_READ | PROT_EXEC)) {
        int full = errno == ENOMEM; /* too many mappings */
        munmap(m->code, m->mapped);
        free(m);
        if (full)
            return ERR(err, KVK_E_MEMORY, "no memory to make code executable");
        return ERR(err, KVK_E_DEVICE, "the system does not allow memory to become executable");
    }
    __builtin___clear_cache((char *)m->code, (char *)m->code + m->bytes);
    *out = m;
    return KVK_OK;
}

static void unload(void *device, void *module)
{
    (void)device;
    struct module *m = module;
    if (!m)
        return;
    munmap(m->code, m->mapped);
    free(m);
}

static kvk_status entry(void *device, void *module, const char *entry_line,
                        struct driver_entry *out, kvk_error *err)
{
    (void)device;
    const struct module *m = module;
    char kind[32], symbol[256];
    unsigned long long offset;
    unsigned threads, shared;
    if (sscanf(entry_line, "%31s %255s %u %u %llu", kind, symbol, &threads, &shared, &offset) != 5)
        return ERR(err, KVK_E_OBJECT, "entry line without five fields: %s", entry_line);
    if (offset >= m->bytes)
        return ERR(err, KVK_E_OBJECT, "entry %s: offset %llu is past the code's %zu bytes", symbol,
                   offset, m->bytes);
    if (threads < 1 || threads > HOST_MAX_THREADS)
        return ERR(err, KVK_E_OBJECT, "entry %s: %u threads, 1 to %d accepted", symbol, threads,
                   HOST_MAX_THREADS);
    *out = (struct driver_entry){.function = m->code + offset,
                                 .threads = threads,
                                 .shared_bytes = shared,
                                 .registers = -1,
                                 .local_bytes = -1,
                                 .static_shared_bytes = 0,
                                 .resident_ctas = 1};
    return KVK_OK;
}

static kvk_status launch(void *device, const struct driver_entry *entry, struct driver_grid grid,
                         const void *params, size_t bytes, kvk_stream stream, kvk_error *err)
{
    (void)stream, (void)bytes;
    const struct device *d = device;
    if (!grid.ctas || grid.ctas > INT32_MAX)
        return ERR(err, KVK_E_SHAPE, "grid: %u CTAs, 1 to 2147483647 accepted", grid.ctas);
    struct host_grid g = {.params = params,
                          .ctas = grid.ctas,
                          .threads = entry->threads,
                          .shared_bytes = entry->shared_bytes,
                          .shared_at_end = d->mode == MODE_GUARD_END,
                          .poison = d->mode != MODE_PLAIN};
    memcpy(&g.entry, &entry->function,
           sizeof g.entry); /* ISO C has no cast from object to function pointer */
    return host_pool_run(d->pool, &g, err);
}

/* ---- memory ---- */

/* What is larger stays as the system gives it: filling would make all of its pages resident. */
enum { FILL_MOST = 1 << 30 };

static kvk_status allocate(void *device, size_t bytes, void **out, kvk_error *err)
{
    const struct device *d = device;
    size_t rounded = (bytes + ALLOC_ALIGN - 1) / ALLOC_ALIGN * ALLOC_ALIGN;
    void *memory = NULL;
    if (rounded >= bytes && rounded < SIZE_MAX / 2)
        memory = d->mode == MODE_PLAIN ? aligned_alloc(ALLOC_ALIGN, rounded ? rounded : ALLOC_ALIGN)
                                       : host_guarded_map(bytes, d->mode == MODE_GUARD_END);
    if (!memory)
        return ERR(err, KVK_E_MEMORY, "%zu bytes", bytes);
    if (d->mode != MODE_PLAIN && bytes <= FILL_MOST)
        memset(memory, 0xFF, bytes);
    *out = memory;
    return KVK_OK;
}

static void release(void *device, void *memory)
{
    const struct device *d = device;
    if (d->mode == MODE_PLAIN)
        free(memory);
    else
        host_guarded_unmap(memory);
}

static kvk_status upload(void *device, void *to, const void *from, size_t bytes, kvk_error *err)
{
    (void)device, (void)err;
    if (bytes)
        memmove(to, from, bytes);
    return KVK_OK;
}

static kvk_status copy(void *device, void *to, const void *from, size_t bytes, kvk_stream stream,
                       kvk_error *err)
{
    (void)stream;
    return upload(device, to, from, bytes, err);
}

static kvk_status fill(void *device, void *to, int byte, size_t bytes, kvk_error *err)
{
    (void)device, (void)err;
    if (bytes)
        memset(to, byte, bytes);
    return KVK_OK;
}

static kvk_status fill32(void *device, void *to, uint32_t value, size_t count, kvk_stream stream,
                         kvk_error *err)
{
    (void)device, (void)stream, (void)err;
    for (size_t i = 0; i < count; i++)
        ((uint32_t *)to)[i] = value;
    return KVK_OK;
}

static kvk_status synchronize(void *device, kvk_error *err)
{
    (void)device, (void)err;
    return KVK_OK;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static kvk_status time_body(void *device, kvk_status (*body)(void *, kvk_stream, kvk_error *),
                            void *data, double *ms, kvk_error *err)
{
    (void)device;
    double start = now_ms();
    kvk_status status = body(data, NULL, err);
    *ms = now_ms() - start;
    return status;
}

const struct driver driver_host = {
    .name = "host",
    .count = count,
    .open = open_device,
    .close = close_device,
    .load = load,
    .unload = unload,
    .entry = entry,
    .launch = launch,
    .alloc = allocate,
    .free = release,
    .upload = upload,
    .download = upload,
    .copy = copy,
    .fill = fill,
    .fill32 = fill32,
    .synchronize = synchronize,
    .time = time_body,
};
