/* SPDX-License-Identifier: Apache-2.0 */
/*
** driver_cuda.c - the CUDA driver by dlopen, with prototypes of our own.
**
** Works in the device's primary context, the one that PyTorch and the CUDA runtime use, so that
** pointers and streams are theirs and ours. Every call enters it (push) and leaves it (pop) unless
** it is current already: the calling thread's context is always as it was.
*/
#include "abi.h"
#include "driver.h"

#include "error.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CUDA_SUCCESS = 0,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NO_DEVICE = 100,
    CUDA_INVALID_IMAGE = 200,
    CUDA_NO_BINARY_FOR_GPU = 209,
    CUDA_INVALID_PTX = 218,
    CUDA_UNSUPPORTED_PTX_VERSION = 222,
    DEVICE_MULTIPROCESSORS = 16,
    DEVICE_MAJOR = 75,
    DEVICE_MINOR = 76,
    FUNCTION_STATIC_SHARED = 1,
    FUNCTION_LOCAL = 3,
    FUNCTION_REGISTERS = 4,
    FUNCTION_MAX_DYNAMIC_SHARED = 8,
    FUNCTION_SHARED_CARVEOUT = 9,
    JIT_ERROR_LOG = 5,
    JIT_ERROR_LOG_BYTES = 6,
    STREAM_NON_BLOCKING = 1,
    CAPTURE_RELAXED = 2,
    ATTRIBUTE_CLUSTER = 4,              /* its dimensions */
    ATTRIBUTE_STREAM_SERIALIZATION = 6, /* programmatic */
    CAPTURES_OVERLAP = 12030, /* driver version from which graphs take launches that overlap */
    TENSOR_U8 = 0,
    SWIZZLE_128 = 3,
    PROMOTE_128 = 2,               /* of cuTensorMapEncodeTiled */
    DECODE_PARAMS = 64,            /* and more than there are */
    STREAM_PER_THREAD = 2,         /* the last of the handles that are no pointers */
    OPT_IN_SHARED_BYTES = 48 << 10 /* more dynamic shared memory must be asked for */
};

#define LAUNCH_END ((void *)0)
#define LAUNCH_BUFFER ((void *)1)
#define LAUNCH_BUFFER_BYTES ((void *)2)

struct cuda_fn {
#define FN(name, symbol, parameters) int(*name) parameters;
#include "cuda_fn.def"
#undef FN
};

/* Of cuLaunchKernelEx: CUlaunchAttribute, CUlaunchConfig. */
struct launch_attribute {
    int id, pad;
    union {
        int allowed;
        unsigned cluster[3];
        char room[64];
    } value;
};
struct launch_config {
    unsigned grid[3], block[3], shared;
    void *stream;
    const struct launch_attribute *attributes;
    unsigned count;
};
typedef int clusters_fn(int *clusters, void *function, const struct launch_config *);
typedef int tensor_map_fn(void *map, int type, unsigned rank, void *data, const uint64_t *size,
                          const uint64_t *stride, const uint32_t *box, const uint32_t *step,
                          int interleave, int swizzle, int promotion, int fill);
typedef int launch_ex_fn(const struct launch_config *, void *function, void **params, void **extra);

struct cuda {
    void *library;
    struct cuda_fn fn;
    launch_ex_fn *launch_ex;   /* NULL: the driver has none, or not with all that is needed */
    clusters_fn *clusters;     /* NULL with it */
    tensor_map_fn *tensor_map; /* NULL before CUDA 12.0 */
    int version;
    int device;
    void *context;
};

static kvk_status failed(const struct cuda *c, int code, const char *call, kvk_error *err)
{
    const char *name = NULL;
    if (!c->fn.error_name || c->fn.error_name(code, &name) != CUDA_SUCCESS || !name)
        name = "unknown error";
    return error_driver(err, code == CUDA_OUT_OF_MEMORY ? KVK_E_MEMORY : KVK_E_DRIVER, code, call,
                        "%s: %s (%d)", call, name, code);
}

/* Loads the library and its calls into *c, and initialises it. */
static kvk_status cuda_load(struct cuda *c, kvk_error *err)
{
    static const struct {
        const char *symbol;
        size_t offset;
    } calls[] = {
#define FN(name, symbol, parameters) {symbol, offsetof(struct cuda_fn, name)},
#include "cuda_fn.def"
#undef FN
    };
    memset(c, 0, sizeof *c);
    /* The driver keeps threads of its own: once loaded it stays. */
    c->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!c->library)
        return ERR(err, KVK_E_DEVICE, "no NVIDIA driver: %s", dlerror());
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *symbol = dlsym(c->library, calls[i].symbol);
        if (!symbol)
            return ERR(err, KVK_E_DEVICE, "the NVIDIA driver is too old: it has no %s",
                       calls[i].symbol);
        memcpy((char *)&c->fn + calls[i].offset, &symbol, sizeof symbol);
    }
    int code = c->fn.init(0);
    if (code == CUDA_NO_DEVICE)
        return error_driver(err, KVK_E_DEVICE, code, "cuInit", "no NVIDIA GPU");
    if (code)
        return failed(c, code, "cuInit", err);
    code = c->fn.driver_version(&c->version);
    if (code)
        return failed(c, code, "cuDriverGetVersion", err);
    void *launch_ex = c->version >= CAPTURES_OVERLAP ? dlsym(c->library, "cuLaunchKernelEx") : NULL;
    void *clusters = launch_ex ? dlsym(c->library, "cuOccupancyMaxActiveClusters") : NULL;
    memcpy(&c->launch_ex, &launch_ex, sizeof launch_ex);
    memcpy(&c->clusters, &clusters, sizeof clusters);
    void *tensor_map = dlsym(c->library, "cuTensorMapEncodeTiled");
    memcpy(&c->tensor_map, &tensor_map, sizeof tensor_map);
    return KVK_OK;
}

static void cuda_unload(struct cuda *c)
{
    if (c->library)
        dlclose(c->library);
    c->library = NULL;
}

static kvk_status count(int *devices, kvk_error *err)
{
    struct cuda c;
    kvk_status status = cuda_load(&c, err);
    *devices = 0;
    if (!status) {
        int code = c.fn.device_count(devices);
        status = code ? failed(&c, code, "cuDeviceGetCount", err) : KVK_OK;
    }
    cuda_unload(&c);
    return status;
}

/*
** The name kernels are made for. Architecture-specific code ("a") runs on exactly its own device;
** the plain ones also on later devices of the same major number.
*/
static kvk_status target_name(int major, int minor, char *out, size_t cap, kvk_error *err)
{
    static const struct {
        int major, minor, exact;
        const char *name;
    } targets[] = {
        {8, 0, 0, "sm_80"},    {8, 6, 0, "sm_86"},    {8, 9, 0, "sm_89"},    {9, 0, 1, "sm_90a"},
        {10, 0, 1, "sm_100a"}, {10, 3, 1, "sm_103a"}, {12, 0, 1, "sm_120a"}, {12, 1, 1, "sm_121a"},
    };
    const char *name = NULL;
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (targets[i].major == major &&
            (targets[i].exact ? targets[i].minor == minor : targets[i].minor <= minor))
            name = targets[i].name;
    if (!name)
        return ERR(err, KVK_E_DEVICE,
                   "compute capability %d.%d is not supported: 8.0 to 8.9, 9.0, 10.0, 10.3, 12.0, "
                   "12.1 are",
                   major, minor);
    snprintf(out, cap, "%s", name);
    return KVK_OK;
}

static kvk_status describe(struct cuda *c, struct driver_device_info *info, kvk_error *err)
{
    int major = 0, minor = 0;
    size_t memory = 0;
    const char *call = "cuDeviceGetName";
    memset(info, 0, sizeof *info);
    int code = c->fn.device_name(info->name, (int)sizeof info->name - 1, c->device);
    if (!code)
        code = c->fn.device_memory(&memory, c->device), call = "cuDeviceTotalMem_v2";
    if (!code)
        code = c->fn.device_attribute(&info->multiprocessors, DEVICE_MULTIPROCESSORS, c->device),
        call = "cuDeviceGetAttribute";
    if (!code)
        code = c->fn.device_attribute(&major, DEVICE_MAJOR, c->device);
    if (!code)
        code = c->fn.device_attribute(&minor, DEVICE_MINOR, c->device);
    if (code)
        return failed(c, code, call, err);
    info->memory_bytes = (int64_t)memory;
    info->driver_version = c->version;
    return target_name(major, minor, info->target, sizeof info->target, err);
}

static kvk_status open_device(struct cuda *c, int index, struct driver_device_info *info,
                              kvk_error *err)
{
    int code = c->fn.device_get(&c->device, index);
    if (code)
        return failed(c, code, "cuDeviceGet", err);
    kvk_status status = describe(c, info, err);
    if (status)
        return status;
    code = c->fn.retain(&c->context, c->device);
    return code ? failed(c, code, "cuDevicePrimaryCtxRetain", err) : KVK_OK;
}

static kvk_status cuda_open(int index, void **device, struct driver_device_info *info,
                            kvk_error *err)
{
    struct cuda *c = malloc(sizeof *c);
    *device = NULL;
    if (!c)
        return ERR(err, KVK_E_MEMORY, "no memory for a device");
    kvk_status status = cuda_load(c, err);
    if (!status)
        status = open_device(c, index, info, err);
    if (status) {
        cuda_unload(c);
        free(c);
        return status;
    }
    *device = c;
    return KVK_OK;
}

static void cuda_close(void *device)
{
    struct cuda *c = device;
    c->fn.release(c->device);
    cuda_unload(c);
    free(c);
}

/* Makes the primary context current; *pushed says what leave() has to undo. */
static kvk_status enter(struct cuda *c, int *pushed, kvk_error *err)
{
    void *now = NULL;
    *pushed = 0;
    if (c->fn.current(&now) == CUDA_SUCCESS && now == c->context)
        return KVK_OK;
    int code = c->fn.push(c->context);
    *pushed = code == CUDA_SUCCESS;
    return code ? failed(c, code, "cuCtxPushCurrent_v2", err) : KVK_OK;
}

static void leave(struct cuda *c, int pushed)
{
    void *ours;
    if (pushed)
        c->fn.pop(&ours);
}

/*
** Loading code is among the calls that a strict capture of any thread forbids, and that spoil it.
** It has nothing to do with what is captured: this thread is exempt for as long. Returns what
** restrict_again() takes.
*/
static int relax(struct cuda *c)
{
    int mode = CAPTURE_RELAXED;
    return c->fn.capture_mode(&mode) == CUDA_SUCCESS ? mode : -1;
}

static void restrict_again(struct cuda *c, int mode)
{
    if (mode >= 0)
        c->fn.capture_mode(&mode);
}

/* Inside the primary context: one call whose failure is reported under its name. */
#define INSIDE(c, call, expression, err)                                                           \
    do {                                                                                           \
        int pushed_;                                                                               \
        kvk_status status_ = enter(c, &pushed_, err);                                              \
        if (status_)                                                                               \
            return status_;                                                                        \
        int code_ = (c)->expression;                                                               \
        leave(c, pushed_);                                                                         \
        return code_ ? failed(c, code_, call, err) : KVK_OK;                                       \
    } while (0)

/* Least driver version (as the driver counts) for a PTX version: 8.0 came with CUDA 12.0, and so
** on. */
static int driver_for_ptx(int major, int minor)
{
    if (major == 7)
        return 11000 + 10 * minor;
    if (major == 8) /* 8.5 came with 12.5 and served 12.6 as well; 8.6 came with 12.7 */
        return 12000 + 10 * (minor + (minor > 5));
    return 13000 + 1000 * (major - 9) + 10 * minor;
}

static kvk_status load_failed(struct cuda *c, const struct object *o, const char *format,
                              const char *text, int code, const char *log, kvk_error *err)
{
    char target[32] = "?";
    int major = 0, minor = 0;
    object_get(o, "target", target, sizeof target);
    if (text && code == CUDA_UNSUPPORTED_PTX_VERSION) {
        const char *line = strstr(text, ".version ");
        if (line && sscanf(line, ".version %d.%d", &major, &minor) == 2) {
            int need = driver_for_ptx(major, minor);
            return error_driver(err, KVK_E_UNSUPPORTED, code, "cuModuleLoadDataEx",
                                "PTX %d.%d needs a driver for CUDA %d.%d or later, the one present "
                                "is for CUDA %d.%d",
                                major, minor, need / 1000, need % 1000 / 10, c->version / 1000,
                                c->version % 1000 / 10);
        }
    }
    if (code == CUDA_NO_BINARY_FOR_GPU || code == CUDA_INVALID_IMAGE ||
        code == CUDA_UNSUPPORTED_PTX_VERSION || code == CUDA_INVALID_PTX)
        return error_driver(err, KVK_E_UNSUPPORTED, code, "cuModuleLoadDataEx",
                            "the driver (CUDA %d.%d) cannot load %s for %s: error %d %s",
                            c->version / 1000, c->version % 1000 / 10, format, target, code, log);
    kvk_status status = failed(c, code, "cuModuleLoadDataEx", err);
    if (err && *log)
        snprintf(err->text + strlen(err->text), sizeof err->text - strlen(err->text), ": %.300s",
                 log);
    return status;
}

static kvk_status load(void *device, const struct object *o, void **module, kvk_error *err)
{
    struct cuda *c = device;
    char format[16] = "", log[1024] = "", *text = NULL;
    int options[] = {JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES}, pushed;
    void *values[] = {log, (void *)(uintptr_t)(sizeof log - 1)};
    object_get(o, "format", format, sizeof format);
    if (strcmp(format, "ptx") != 0 && strcmp(format, "cubin") != 0)
        return ERR(err, KVK_E_OBJECT, "an object of format \"%s\" is not for a CUDA device",
                   format);
    if (strcmp(format, "ptx") == 0) { /* the driver wants a NUL at its end */
        text = malloc(o->code_bytes + 1);
        if (!text)
            return ERR(err, KVK_E_MEMORY, "no memory for PTX");
        memcpy(text, o->code, o->code_bytes);
        text[o->code_bytes] = '\0';
    }
    kvk_status status = enter(c, &pushed, err);
    if (!status) {
        int mode = relax(c);
        int code = c->fn.module_load(module, text ? text : o->code, 2, options, values);
        restrict_again(c, mode);
        if (code)
            status = load_failed(c, o, format, text, code, log, err);
        leave(c, pushed);
    }
    free(text);
    return status;
}

static void unload(void *device, void *module)
{
    struct cuda *c = device;
    int pushed;
    if (enter(c, &pushed, NULL) != KVK_OK)
        return;
    int mode = relax(c);
    c->fn.module_unload(module);
    restrict_again(c, mode);
    leave(c, pushed);
}

static const struct launch_attribute pairs = {ATTRIBUTE_CLUSTER, 0, {.cluster = {2, 1, 1}}};

/* CTAs that the device holds at once in pairs: fewer than by themselves, where a group of
** multiprocessors has an odd number of them. */
static void report_pairs(struct cuda *c, struct driver_entry *out)
{
    int clusters = 0;
    const struct launch_config config = {.grid = {2, 1, 1},
                                         .block = {out->threads, 1, 1},
                                         .shared = out->shared_bytes,
                                         .attributes = &pairs,
                                         .count = 1};
    if (c->clusters && c->clusters(&clusters, out->function, &config) == CUDA_SUCCESS)
        out->pair_ctas = 2 * clusters;
}

/* What the driver reports; a refused question is an unknown, not an error. */
static void report(struct cuda *c, struct driver_entry *out)
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
        if (c->fn.function_get(facts[i].to, facts[i].attribute, out->function) != CUDA_SUCCESS)
            *facts[i].to = -1;
    if (c->fn.occupancy(&out->resident_ctas, out->function, (int)out->threads, out->shared_bytes) !=
        CUDA_SUCCESS)
        out->resident_ctas = -1;
    report_pairs(c, out);
}

/* A CTA may have so much; and the multiprocessor is to be split so that as many CTAs as the plan counts on fit: left
** alone, a driver may keep a part for its first-level cache. */
static int ask_for_shared(struct cuda *c, const struct driver_entry *e)
{
    if (e->shared_bytes <= OPT_IN_SHARED_BYTES)
        return 0;
    int code = c->fn.function_set(e->function, FUNCTION_MAX_DYNAMIC_SHARED, (int)e->shared_bytes);
    return code ? code : c->fn.function_set(e->function, FUNCTION_SHARED_CARVEOUT, 100);
}

static kvk_status entry(void *device, void *module, const char *line, struct driver_entry *out,
                        kvk_error *err)
{
    struct cuda *c = device;
    char kind[16], symbol[256];
    int pushed;
    memset(out, 0, sizeof *out);
    if (sscanf(line, "%15s %255s %u %u", kind, symbol, &out->threads, &out->shared_bytes) != 4)
        return ERR(err, KVK_E_OBJECT,
                   "entry line \"%s\": expected KIND SYMBOL THREADS SHARED_BYTES", line);
    kvk_status status = enter(c, &pushed, err);
    if (status)
        return status;
    int mode = relax(c); /* a driver may load a function as late as here */
    int code = c->fn.function(&out->function, module, symbol);
    if (code)
        status = failed(c, code, "cuModuleGetFunction", err);
    if (!status && (code = ask_for_shared(c, out)))
        status = failed(c, code, "cuFuncSetAttribute", err);
    if (!status)
        report(c, out);
    restrict_again(c, mode);
    leave(c, pushed);
    return status;
}

/* The default streams order themselves with others by rules of their own: there, nothing overlaps. */
static int may_overlap(const struct cuda *c, const struct driver_entry *e, kvk_stream stream)
{
    return e->overlaps && c->launch_ex && (uintptr_t)stream > STREAM_PER_THREAD;
}

/* Decode's parameters one by one, which lets the driver say where its last, the map, lies. */
static void decode_list(const struct abi_decode *p, const void *map, const void **list)
{
    enum { IS_store, IS_decode, IS_reduce = 0, IS_unified = 0, IS_dequant = 0, IS_merge = 0 };
    enum { IS_copy, IS_convert = 0 };
#define ABI(entry, type, name)                                                                     \
    if (IS_##entry)                                                                                \
        *list++ = (const char *)p + offsetof(struct abi_##entry, name);
#include "abi.def"
#undef ABI
    *list = map;
}

struct arguments {
    void **list, **extra; /* one of them */
};

static kvk_status launch_special(struct cuda *c, const struct driver_entry *e,
                                 struct driver_grid grid, const struct arguments *a,
                                 kvk_stream stream, kvk_error *err)
{
    struct launch_attribute attributes[2];
    unsigned count = 0;
    if (grid.pairs)
        attributes[count++] = pairs;
    if (may_overlap(c, e, stream))
        attributes[count++] = (struct launch_attribute){ATTRIBUTE_STREAM_SERIALIZATION, 0, {1}};
    const struct launch_config config = {.grid = {grid.ctas, 1, 1},
                                         .block = {e->threads, 1, 1},
                                         .shared = e->shared_bytes,
                                         .stream = stream,
                                         .attributes = attributes,
                                         .count = count};
    INSIDE(c, "cuLaunchKernelEx", launch_ex(&config, e->function, a->list, a->extra), err);
}

static kvk_status launch(void *device, const struct driver_entry *e, struct driver_grid grid,
                         const void *params, size_t bytes, kvk_stream stream, kvk_error *err)
{
    struct cuda *c = device;
    const void *list[DECODE_PARAMS];
    void *extra[] = {LAUNCH_BUFFER, (void *)(uintptr_t)params, LAUNCH_BUFFER_BYTES, &bytes,
                     LAUNCH_END};
    struct arguments a = {.extra = extra};
    if (grid.map) {
        decode_list(params, grid.map, list);
        a = (struct arguments){.list = (void **)(uintptr_t)list};
    }
    if (grid.pairs || may_overlap(c, e, stream))
        return launch_special(c, e, grid, &a, stream, err);
    INSIDE(c, "cuLaunchKernel",
           fn.launch(e->function, grid.ctas, 1, 1, e->threads, 1, 1, e->shared_bytes, stream,
                     a.list, a.extra),
           err);
}

/* Nothing of a GPU, but the driver refuses it where no context is current. */
static int tensor_map(void *device, const struct driver_tensor *t, void *map)
{
    static const uint32_t each[DRIVER_TENSOR_DIMS] = {1, 1, 1, 1};
    struct cuda *c = device;
    int pushed;
    if (!c->tensor_map || enter(c, &pushed, NULL) != KVK_OK)
        return 0;
    int code = c->tensor_map(map, TENSOR_U8, DRIVER_TENSOR_DIMS, (void *)(uintptr_t)t->data,
                             t->size, t->stride, t->box, each, 0, SWIZZLE_128, PROMOTE_128, 0);
    leave(c, pushed);
    return code == CUDA_SUCCESS;
}

static kvk_status alloc(void *device, size_t bytes, void **out, kvk_error *err)
{
    struct cuda *c = device;
    uint64_t memory = 0;
    int pushed;
    kvk_status status = enter(c, &pushed, err);
    if (status)
        return status;
    int code = c->fn.alloc(&memory, bytes);
    leave(c, pushed);
    *out = (void *)(uintptr_t)memory;
    return code ? failed(c, code, "cuMemAlloc_v2", err) : KVK_OK;
}

static void release(void *device, void *memory)
{
    struct cuda *c = device;
    int pushed;
    if (enter(c, &pushed, NULL) != KVK_OK)
        return;
    c->fn.free((uintptr_t)memory);
    leave(c, pushed);
}

static kvk_status upload(void *device, void *to, const void *from, size_t bytes, kvk_error *err)
{
    struct cuda *c = device;
    INSIDE(c, "cuMemcpyHtoD_v2", fn.upload((uintptr_t)to, from, bytes), err);
}

static kvk_status download(void *device, void *to, const void *from, size_t bytes, kvk_error *err)
{
    struct cuda *c = device;
    INSIDE(c, "cuMemcpyDtoH_v2", fn.download(to, (uintptr_t)from, bytes), err);
}

static kvk_status copy(void *device, void *to, const void *from, size_t bytes, kvk_stream stream,
                       kvk_error *err)
{
    struct cuda *c = device;
    INSIDE(c, "cuMemcpyDtoDAsync_v2", fn.copy((uintptr_t)to, (uintptr_t)from, bytes, stream), err);
}

static kvk_status fill(void *device, void *to, int byte, size_t bytes, kvk_error *err)
{
    struct cuda *c = device;
    INSIDE(c, "cuMemsetD8_v2", fn.fill((uintptr_t)to, (unsigned char)byte, bytes), err);
}

static kvk_status fill32(void *device, void *to, uint32_t value, size_t words, kvk_stream stream,
                         kvk_error *err)
{
    struct cuda *c = device;
    INSIDE(c, "cuMemsetD32Async", fn.fill32((uintptr_t)to, value, words, stream), err);
}

static kvk_status synchronize(void *device, kvk_error *err)
{
    struct cuda *c = device;
    INSIDE(c, "cuCtxSynchronize", fn.synchronize(), err);
}

struct timing {
    void *stream, *from, *to;
};

static kvk_status timing_make(struct cuda *c, struct timing *t, kvk_error *err)
{
    int code = c->fn.stream_make(&t->stream, STREAM_NON_BLOCKING);
    if (code)
        return failed(c, code, "cuStreamCreate", err);
    if ((code = c->fn.event_make(&t->from, 0)) != 0 || (code = c->fn.event_make(&t->to, 0)) != 0)
        return failed(c, code, "cuEventCreate", err);
    return KVK_OK;
}

static void timing_free(struct cuda *c, const struct timing *t)
{
    if (t->from)
        c->fn.event_free(t->from);
    if (t->to)
        c->fn.event_free(t->to);
    if (t->stream)
        c->fn.stream_free(t->stream);
}

static kvk_status timing_read(struct cuda *c, const struct timing *t, double *ms, kvk_error *err)
{
    float elapsed = 0;
    int code = c->fn.event_record(t->to, t->stream);
    if (code)
        return failed(c, code, "cuEventRecord", err);
    if ((code = c->fn.event_wait(t->to)) != 0)
        return failed(c, code, "cuEventSynchronize", err);
    if ((code = c->fn.event_elapsed(&elapsed, t->from, t->to)) != 0)
        return failed(c, code, "cuEventElapsedTime", err);
    *ms = (double)elapsed;
    return KVK_OK;
}

/* The context stays current during the body, whose own launches then need no push. */
static kvk_status time_body(void *device, kvk_status (*body)(void *, kvk_stream, kvk_error *),
                            void *data, double *ms, kvk_error *err)
{
    struct cuda *c = device;
    struct timing t = {0};
    int pushed;
    kvk_status status = enter(c, &pushed, err);
    if (status)
        return status;
    int code = c->fn.synchronize(); /* uploads on the default stream come first */
    status = code ? failed(c, code, "cuCtxSynchronize", err) : timing_make(c, &t, err);
    if (!status && (code = c->fn.event_record(t.from, t.stream)) != 0)
        status = failed(c, code, "cuEventRecord", err);
    if (!status)
        status = body(data, t.stream, err);
    if (!status)
        status = timing_read(c, &t, ms, err);
    timing_free(c, &t);
    leave(c, pushed);
    return status;
}

const struct driver driver_cuda = {
    .name = "cuda",
    .count = count,
    .open = cuda_open,
    .close = cuda_close,
    .load = load,
    .unload = unload,
    .entry = entry,
    .launch = launch,
    .tensor_map = tensor_map,
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
