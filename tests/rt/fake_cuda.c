/* SPDX-License-Identifier: Apache-2.0 */
/*
** fake_cuda.c - a libcuda.so.1 that runs nothing, keeps count, and fails its n-th call.
*/
#include "fake.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static struct fake state;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char primary; /* its address is the primary context */
static _Thread_local int pushed;

EXPORT struct fake *fake_state(void) { return &state; }

/* What was made stays reachable here until it is freed: a driver that could not free is no leak of the program. */
static void *kept[1024];

static void *keep(size_t bytes)
{
    void *memory = malloc(bytes);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        void *empty = NULL;
        if (__atomic_compare_exchange_n(&kept[i], &empty, memory, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST))
            break;
    }
    return memory;
}

static void drop(void *memory)
{
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        void *it = memory;
        if (__atomic_compare_exchange_n(&kept[i], &it, NULL, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            break;
    }
    free(memory);
}

static int step(const char *name, int needs_context)
{
    int code = 0;
    pthread_mutex_lock(&mutex);
    state.calls++;
    if (needs_context && !pushed)
        state.unentered++;
    if (state.fail_at && state.calls == state.fail_at) {
        state.failed = name;
        code = state.fail_code ? state.fail_code : 999;
    }
    pthread_mutex_unlock(&mutex);
    return code;
}

static void live(int by)
{
    pthread_mutex_lock(&mutex);
    state.live += by;
    pthread_mutex_unlock(&mutex);
}

#define STEP(needs)                                                                                \
    do {                                                                                           \
        int code_ = step(__func__, needs);                                                         \
        if (code_)                                                                                 \
            return code_;                                                                          \
    } while (0)

#define CALL(name, ...)                                                                            \
    EXPORT int name(__VA_ARGS__);                                                                  \
    int name(__VA_ARGS__)

CALL(cuInit, unsigned flags)
{
    (void)flags;
    STEP(0);
    return state.devices < 0 ? 100 : 0;
}

CALL(cuDriverGetVersion, int *version)
{
    STEP(0);
    *version = state.version;
    return 0;
}

CALL(cuGetErrorName, int code, const char **text)
{
    *text = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
    return 0;
}

CALL(cuDeviceGetCount, int *count)
{
    STEP(0);
    *count = state.devices;
    return 0;
}

CALL(cuDeviceGet, int *device, int ordinal)
{
    STEP(0);
    *device = ordinal + 70; /* a handle, not an ordinal */
    return ordinal < state.devices ? 0 : 101;
}

CALL(cuDeviceGetName, char *name, int bytes, int device)
{
    STEP(0);
    snprintf(name, (size_t)bytes, "Fake GPU %d", device - 70);
    return 0;
}

CALL(cuDeviceTotalMem_v2, size_t *bytes, int device)
{
    (void)device;
    STEP(0);
    *bytes = (size_t)1 << 33;
    return 0;
}

CALL(cuDeviceGetAttribute, int *value, int attribute, int device)
{
    (void)device;
    STEP(0);
    *value = attribute == 16   ? 132
             : attribute == 75 ? state.major
             : attribute == 76 ? state.minor
                               : -7;
    return 0;
}

CALL(cuDevicePrimaryCtxRetain, void **context, int device)
{
    (void)device;
    STEP(0);
    *context = &primary;
    live(1);
    return 0;
}

CALL(cuDevicePrimaryCtxRelease_v2, int device)
{
    (void)device;
    live(-1);
    STEP(0);
    return 0;
}

CALL(cuCtxGetCurrent, void **context)
{
    STEP(0);
    *context = pushed ? &primary : NULL;
    return 0;
}

CALL(cuCtxPushCurrent_v2, void *context)
{
    STEP(0);
    state.unentered += context != &primary;
    state.depth = ++pushed;
    return 0;
}

CALL(cuCtxPopCurrent_v2, void **context)
{
    *context = &primary;
    state.depth = --pushed;
    STEP(0);
    return 0;
}

CALL(cuCtxSynchronize, void)
{
    STEP(1);
    return 0;
}

CALL(cuModuleLoadDataEx, void **module, const void *image, unsigned n, int *options, void **values)
{
    STEP(1);
    int ptx = memcmp(image, ".version", 8) == 0, code = ptx ? state.refuse_ptx : state.refuse_cubin;
    if (code) {
        for (unsigned i = 0; i < n; i++)
            if (options[i] == 5)
                strcpy(values[i], "line 1: the fake\nrefuses");
        return code;
    }
    *module = keep(1);
    live(1);
    return 0;
}

CALL(cuModuleUnload, void *module)
{
    drop(module);
    live(-1);
    STEP(1);
    return 0;
}

CALL(cuModuleGetFunction, void **function, void *module, const char *name)
{
    static char names[16][64]; /* handles stay valid as long as the library */
    static int n;
    (void)module;
    STEP(1);
    pthread_mutex_lock(&mutex);
    int i;
    for (i = 0; i < n && strcmp(names[i], name) != 0; i++)
        ;
    if (i == n && n < 16)
        snprintf(names[n++], sizeof names[0], "%s", name);
    *function = names[i < 16 ? i : 15];
    pthread_mutex_unlock(&mutex);
    return 0;
}

CALL(cuFuncGetAttribute, int *value, int attribute, void *function)
{
    (void)function;
    STEP(1);
    *value = attribute == 4 ? 96 : attribute == 3 ? 8 : attribute == 1 ? 1024 : -7;
    return 0;
}

CALL(cuFuncSetAttribute, void *function, int attribute, int value)
{
    (void)function;
    STEP(1);
    if (attribute == 8)
        state.dynamic_shared = value;
    return 0;
}

CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, int *ctas, void *function, int threads,
     size_t shared)
{
    (void)function, (void)threads, (void)shared;
    STEP(1);
    *ctas = state.resident;
    return 0;
}

CALL(cuLaunchKernel, void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
     unsigned by, unsigned bz, unsigned shared, void *stream, void **params, void **extra)
{
    STEP(1);
    if (gy != 1 || gz != 1 || by != 1 || bz != 1 || params || extra[0] != (void *)1 ||
        extra[2] != (void *)2 || extra[4])
        return 1;
    pthread_mutex_lock(&mutex);
    struct fake_launch *l = &state.launch[state.launches++ % FAKE_LAUNCHES];
    snprintf(l->function, sizeof l->function, "%s", (const char *)function);
    l->grid = gx;
    l->threads = bx;
    l->shared = shared;
    l->stream = stream;
    l->bytes = *(size_t *)extra[3];
    memcpy(l->params, extra[1], l->bytes < FAKE_PARAMS ? l->bytes : FAKE_PARAMS);
    pthread_mutex_unlock(&mutex);
    return 0;
}

CALL(cuMemAlloc_v2, uint64_t *memory, size_t bytes)
{
    STEP(1);
    *memory = (uintptr_t)keep(bytes);
    live(1);
    return 0;
}

CALL(cuMemFree_v2, uint64_t memory)
{
    drop((void *)(uintptr_t)memory);
    live(-1);
    STEP(1);
    return 0;
}

CALL(cuMemcpyHtoD_v2, uint64_t to, const void *from, size_t bytes)
{
    STEP(1);
    memcpy((void *)(uintptr_t)to, from, bytes);
    return 0;
}

CALL(cuMemcpyDtoH_v2, void *to, uint64_t from, size_t bytes)
{
    STEP(1);
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return 0;
}

CALL(cuMemcpyDtoDAsync_v2, uint64_t to, uint64_t from, size_t bytes, void *stream)
{
    (void)stream;
    STEP(1);
    memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
    return 0;
}

CALL(cuMemsetD32Async, uint64_t to, unsigned value, size_t words, void *stream)
{
    (void)stream;
    STEP(1);
    for (size_t i = 0; i < words; i++)
        ((unsigned *)(uintptr_t)to)[i] = value;
    return 0;
}

CALL(cuMemsetD8_v2, uint64_t to, unsigned char byte, size_t bytes)
{
    STEP(1);
    memset((void *)(uintptr_t)to, byte, bytes);
    return 0;
}

static int make(void **out)
{
    *out = keep(1);
    live(1);
    return 0;
}

static int destroy(void *thing)
{
    drop(thing);
    live(-1);
    return 0;
}

CALL(cuStreamCreate, void **stream, unsigned flags)
{
    (void)flags;
    STEP(1);
    return make(stream);
}

CALL(cuStreamDestroy_v2, void *stream)
{
    destroy(stream);
    STEP(1);
    return 0;
}

CALL(cuEventCreate, void **event, unsigned flags)
{
    (void)flags;
    STEP(1);
    return make(event);
}

CALL(cuEventDestroy_v2, void *event)
{
    destroy(event);
    STEP(1);
    return 0;
}

CALL(cuEventRecord, void *event, void *stream)
{
    (void)event, (void)stream;
    STEP(1);
    return 0;
}

CALL(cuEventSynchronize, void *event)
{
    (void)event;
    STEP(1);
    return 0;
}

CALL(cuEventElapsedTime, float *ms, void *from, void *to)
{
    (void)from, (void)to;
    STEP(1);
    *ms = 2.5f;
    return 0;
}
