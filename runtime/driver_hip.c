/* SPDX-License-Identifier: Apache-2.0 */
/*
** driver_hip.c - the HIP runtime by dlopen, with prototypes of our own.
**
** HIP has a current device per thread: every call sets ours where another one is current, and puts
** that one back. Not tried on hardware: written after the documented interface and tested against a
** fake library.
*/
#include "driver.h"

#include "error.h"
#include "hip_topology.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef HIP_TOPOLOGY_FOLDER
#define HIP_TOPOLOGY_FOLDER "/sys/class/kfd/kfd/topology/nodes"
#endif

enum {
    HIP_SUCCESS = 0,
    HIP_OUT_OF_MEMORY = 2,
    HIP_NO_DEVICE = 100,
    HIP_INVALID_DEVICE = 101,
    HIP_INVALID_IMAGE = 200,
    HIP_NO_BINARY_FOR_GPU = 209,
    FUNCTION_STATIC_SHARED = 1,
    FUNCTION_LOCAL = 3,
    FUNCTION_REGISTERS = 4,
    HOST_TO_DEVICE = 1,
    DEVICE_TO_HOST = 2,
    DEVICE_TO_DEVICE = 3,
    STREAM_NON_BLOCKING = 1,
    NODES_MOST = 64
};

#define LAUNCH_BUFFER ((void *)1)
#define LAUNCH_BUFFER_BYTES ((void *)2)
#define LAUNCH_END ((void *)3)

struct hip_fn {
#define FN(name, symbol, parameters) int(*name) parameters;
#include "hip_fn.def"
#undef FN
};

struct hip {
    void *library;
    struct hip_fn fn;
    const char *(*error_name)(int code);
    int device;
};

static kvk_status failed(const struct hip *h, int code, const char *call, kvk_error *err)
{
    const char *name = h->error_name ? h->error_name(code) : NULL;
    return error_driver(err, code == HIP_OUT_OF_MEMORY ? KVK_E_MEMORY : KVK_E_DRIVER, code, call,
                        "%s: %s (%d)", call, name ? name : "unknown error", code);
}

static void *open_library(void)
{
    static const char *const names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so",
                                        "libamdhip64.so.5"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return library;
}

static kvk_status hip_load(struct hip *h, kvk_error *err)
{
    static const struct {
        const char *symbol;
        size_t offset;
    } calls[] = {
#define FN(name, symbol, parameters) {symbol, offsetof(struct hip_fn, name)},
#include "hip_fn.def"
#undef FN
    };
    memset(h, 0, sizeof *h);
    h->library = open_library();
    if (!h->library)
        return ERR(err, KVK_E_DEVICE, "no HIP runtime: %s", dlerror());
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *symbol = dlsym(h->library, calls[i].symbol);
        if (!symbol)
            return ERR(err, KVK_E_DEVICE, "the HIP runtime is too old: it has no %s",
                       calls[i].symbol);
        memcpy((char *)&h->fn + calls[i].offset, &symbol, sizeof symbol);
    }
    void *name = dlsym(h->library, "hipGetErrorName");
    memcpy(&h->error_name, &name, sizeof name);
    int code = h->fn.init(0);
    if (code == HIP_NO_DEVICE ||
        code == HIP_INVALID_DEVICE) /* the latter: a runtime on a machine with other GPUs */
        return error_driver(err, KVK_E_DEVICE, code, "hipInit", "no AMD GPU");
    return code ? failed(h, code, "hipInit", err) : KVK_OK;
}

static void hip_unload(struct hip *h)
{
    if (h->library)
        dlclose(h->library);
    h->library = NULL;
}

static kvk_status count(int *devices, kvk_error *err)
{
    struct hip h;
    kvk_status status = hip_load(&h, err);
    *devices = 0;
    if (!status) {
        int code = h.fn.device_count(devices);
        if (code == HIP_NO_DEVICE)
            status = error_driver(err, KVK_E_DEVICE, code, "hipGetDeviceCount", "no AMD GPU");
        else if (code)
            status = failed(&h, code, "hipGetDeviceCount", err);
    }
    hip_unload(&h);
    return status;
}

/* "0000:c1:00.0" as hip_node counts; -1 if it is something else. */
static long long location_of(const char *bus)
{
    unsigned domain, number, device, function;
    if (sscanf(bus, "%x:%x:%x.%x", &domain, &number, &device, &function) != 4)
        return -1;
    return (long long)domain << 16 | number << 8 | device << 3 | function;
}

/* The node of a HIP device: by its place on the bus, since HIP may show fewer devices or others
** first; else by order. */
static const struct hip_node *find_node(const char *bus, int index, const struct hip_node *nodes,
                                        int n)
{
    long long location = location_of(bus);
    for (int i = 0; i < n; i++)
        if (nodes[i].location == location)
            return &nodes[i];
    return index < n ? &nodes[index] : NULL;
}

static kvk_status describe(struct hip *h, int index, struct driver_device_info *info,
                           kvk_error *err)
{
    struct hip_node nodes[NODES_MOST];
    char bus[32] = "";
    size_t memory = 0;
    memset(info, 0, sizeof *info);
    int code = h->fn.device_name(info->name, (int)sizeof info->name - 1, index);
    if (code)
        return failed(h, code, "hipDeviceGetName", err);
    if ((code = h->fn.device_memory(&memory, index)) != 0)
        return failed(h, code, "hipDeviceTotalMem", err);
    if ((code = h->fn.runtime_version(&info->driver_version)) != 0)
        return failed(h, code, "hipRuntimeGetVersion", err);
    int n = hip_topology(HIP_TOPOLOGY_FOLDER, nodes, NODES_MOST);
    code = h->fn.device_bus(bus, sizeof bus, index);
    if (code && n > 1) /* another GPU's target would be a guess */
        return failed(h, code, "hipDeviceGetPCIBusId", err);
    const struct hip_node *node = find_node(bus, index, nodes, n);
    if (!node)
        return ERR(err, KVK_E_DEVICE, "HIP device %d is not among the GPU nodes of %s", index,
                   HIP_TOPOLOGY_FOLDER);
    info->memory_bytes = (int64_t)memory;
    info->multiprocessors = node->compute_units;
    snprintf(info->target, sizeof info->target, "gfx%d%x%x", node->gfx / 10000,
             (unsigned)(node->gfx / 100 % 100), (unsigned)(node->gfx % 100));
    return KVK_OK;
}

static kvk_status check_target(const struct driver_device_info *info, kvk_error *err)
{
    static const char *const targets[] = {"gfx942", "gfx950", "gfx1100", "gfx1200", "gfx1201"};
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (strcmp(info->target, targets[i]) == 0)
            return KVK_OK;
    return ERR(err, KVK_E_DEVICE,
               "%s (%s) is not supported: gfx942, gfx950, gfx1100, gfx1200, gfx1201 are",
               info->target, info->name);
}

static kvk_status hip_open(int index, void **device, struct driver_device_info *info,
                           kvk_error *err)
{
    struct hip *h = malloc(sizeof *h);
    *device = NULL;
    if (!h)
        return ERR(err, KVK_E_MEMORY, "no memory for a device");
    kvk_status status = hip_load(h, err);
    if (!status)
        status = describe(h, index, info, err);
    if (!status)
        status = check_target(info, err);
    if (status) {
        hip_unload(h);
        free(h);
        return status;
    }
    h->device = index;
    *device = h;
    return KVK_OK;
}

static void hip_close(void *device)
{
    hip_unload(device);
    free(device);
}

/* Makes our device current; *before is what leave() puts back, -1 for nothing. */
static kvk_status enter(struct hip *h, int *before, kvk_error *err)
{
    int now = -1;
    *before = -1;
    if (h->fn.device_get(&now) == HIP_SUCCESS && now == h->device)
        return KVK_OK;
    int code = h->fn.device_set(h->device);
    if (code)
        return failed(h, code, "hipSetDevice", err);
    *before = now;
    return KVK_OK;
}

static void leave(struct hip *h, int before)
{
    if (before >= 0)
        h->fn.device_set(before);
}

/* On our device: one call whose failure is reported under its name. */
#define INSIDE(h, call, expression, err)                                                           \
    do {                                                                                           \
        int before_;                                                                               \
        kvk_status status_ = enter(h, &before_, err);                                              \
        if (status_)                                                                               \
            return status_;                                                                        \
        int code_ = (h)->fn.expression;                                                            \
        leave(h, before_);                                                                         \
        return code_ ? failed(h, code_, call, err) : KVK_OK;                                       \
    } while (0)

static kvk_status load(void *device, const struct object *o, void **module, kvk_error *err)
{
    struct hip *h = device;
    char format[16] = "";
    int before;
    object_get(o, "format", format, sizeof format);
    if (strcmp(format, "hsaco") != 0)
        return ERR(err, KVK_E_OBJECT, "an object of format \"%s\" is not for a HIP device", format);
    kvk_status status = enter(h, &before, err);
    if (status)
        return status;
    int code = h->fn.module_load(module, o->code);
    leave(h, before);
    if (code == HIP_NO_BINARY_FOR_GPU || code == HIP_INVALID_IMAGE)
        return error_driver(err, KVK_E_UNSUPPORTED, code, "hipModuleLoadData",
                            "the HIP runtime cannot load this code object: error %d", code);
    return code ? failed(h, code, "hipModuleLoadData", err) : KVK_OK;
}

static void unload(void *device, void *module)
{
    struct hip *h = device;
    int before;
    if (enter(h, &before, NULL) != KVK_OK)
        return;
    h->fn.module_unload(module);
    leave(h, before);
}

static void report(struct hip *h, struct driver_entry *out)
{
    const struct {
        int attribute;
        int *to;
    } facts[] = {
        {FUNCTION_REGISTERS, &out->registers},
        {FUNCTION_LOCAL, &out->local_bytes},
        {FUNCTION_STATIC_SHARED, &out->static_shared_bytes},
    };
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (h->fn.function_get(facts[i].to, facts[i].attribute, out->function) != HIP_SUCCESS)
            *facts[i].to = -1;
    if (h->fn.occupancy(&out->resident_ctas, out->function, (int)out->threads, out->shared_bytes) !=
        HIP_SUCCESS)
        out->resident_ctas = -1;
}

static kvk_status entry(void *device, void *module, const char *line, struct driver_entry *out,
                        kvk_error *err)
{
    struct hip *h = device;
    char kind[16], symbol[256];
    int before;
    memset(out, 0, sizeof *out);
    if (sscanf(line, "%15s %255s %u %u", kind, symbol, &out->threads, &out->shared_bytes) != 4)
        return ERR(err, KVK_E_OBJECT,
                   "entry line \"%s\": expected KIND SYMBOL THREADS SHARED_BYTES", line);
    kvk_status status = enter(h, &before, err);
    if (status)
        return status;
    int code = h->fn.function(&out->function, module, symbol);
    if (code)
        status = failed(h, code, "hipModuleGetFunction", err);
    else
        report(h, out);
    leave(h, before);
    return status;
}

static kvk_status launch(void *device, const struct driver_entry *e, struct driver_grid grid,
                         const void *params, size_t bytes, kvk_stream stream, kvk_error *err)
{
    struct hip *h = device;
    void *extra[] = {LAUNCH_BUFFER, (void *)(uintptr_t)params, LAUNCH_BUFFER_BYTES, &bytes,
                     LAUNCH_END};
    INSIDE(h, "hipModuleLaunchKernel",
           launch(e->function, grid.ctas, 1, 1, e->threads, 1, 1, e->shared_bytes, stream, NULL,
                  extra),
           err);
}

static kvk_status alloc(void *device, size_t bytes, void **out, kvk_error *err)
{
    struct hip *h = device;
    INSIDE(h, "hipMalloc", alloc(out, bytes), err);
}

static void release(void *device, void *memory)
{
    struct hip *h = device;
    int before;
    if (enter(h, &before, NULL) != KVK_OK)
        return;
    h->fn.free(memory);
    leave(h, before);
}

static kvk_status upload(void *device, void *to, const void *from, size_t bytes, kvk_error *err)
{
    struct hip *h = device;
    INSIDE(h, "hipMemcpy", memcpy(to, from, bytes, HOST_TO_DEVICE), err);
}

static kvk_status download(void *device, void *to, const void *from, size_t bytes, kvk_error *err)
{
    struct hip *h = device;
    INSIDE(h, "hipMemcpy", memcpy(to, from, bytes, DEVICE_TO_HOST), err);
}

static kvk_status copy(void *device, void *to, const void *from, size_t bytes, kvk_stream stream,
                       kvk_error *err)
{
    struct hip *h = device;
    INSIDE(h, "hipMemcpyAsync", copy(to, from, bytes, DEVICE_TO_DEVICE, stream), err);
}

static kvk_status fill(void *device, void *to, int byte, size_t bytes, kvk_error *err)
{
    struct hip *h = device;
    INSIDE(h, "hipMemset", fill(to, byte, bytes), err);
}

static kvk_status fill32(void *device, void *to, uint32_t value, size_t words, kvk_stream stream,
                         kvk_error *err)
{
    struct hip *h = device;
    INSIDE(h, "hipMemsetD32Async", fill32(to, (int)value, words, stream), err);
}

static kvk_status synchronize(void *device, kvk_error *err)
{
    struct hip *h = device;
    INSIDE(h, "hipDeviceSynchronize", synchronize(), err);
}

struct timing {
    void *stream, *from, *to;
};

static kvk_status timing_make(struct hip *h, struct timing *t, kvk_error *err)
{
    int code = h->fn.stream_make(&t->stream, STREAM_NON_BLOCKING);
    if (code)
        return failed(h, code, "hipStreamCreateWithFlags", err);
    if ((code = h->fn.event_make(&t->from)) != 0 || (code = h->fn.event_make(&t->to)) != 0)
        return failed(h, code, "hipEventCreate", err);
    return KVK_OK;
}

static void timing_free(struct hip *h, const struct timing *t)
{
    if (t->from)
        h->fn.event_free(t->from);
    if (t->to)
        h->fn.event_free(t->to);
    if (t->stream)
        h->fn.stream_free(t->stream);
}

static kvk_status timing_read(struct hip *h, const struct timing *t, double *ms, kvk_error *err)
{
    float elapsed = 0;
    int code = h->fn.event_record(t->to, t->stream);
    if (code)
        return failed(h, code, "hipEventRecord", err);
    if ((code = h->fn.event_wait(t->to)) != 0)
        return failed(h, code, "hipEventSynchronize", err);
    if ((code = h->fn.event_elapsed(&elapsed, t->from, t->to)) != 0)
        return failed(h, code, "hipEventElapsedTime", err);
    *ms = (double)elapsed;
    return KVK_OK;
}

static kvk_status time_body(void *device, kvk_status (*body)(void *, kvk_stream, kvk_error *),
                            void *data, double *ms, kvk_error *err)
{
    struct hip *h = device;
    struct timing t = {0};
    int before;
    kvk_status status = enter(h, &before, err);
    if (status)
        return status;
    int code = h->fn.synchronize(); /* uploads on the default stream come first */
    status = code ? failed(h, code, "hipDeviceSynchronize", err) : timing_make(h, &t, err);
    if (!status && (code = h->fn.event_record(t.from, t.stream)) != 0)
        status = failed(h, code, "hipEventRecord", err);
    if (!status)
        status = body(data, t.stream, err);
    if (!status)
        status = timing_read(h, &t, ms, err);
    timing_free(h, &t);
    leave(h, before);
    return status;
}

const struct driver driver_hip = {
    .name = "hip",
    .count = count,
    .open = hip_open,
    .close = hip_close,
    .load = load,
    .unload = unload,
    .entry = entry,
    .launch = launch,
    .alloc = alloc,
    .free = release,
    .upload = upload,
    .download = download,
    .copy = copy,
    .fill = fill,
    .fill32 = fill32,
    .synchronize = synchronize,
    .time = time_body,
};
