/* SPDX-License-Identifier: Apache-2.0 */
/*
** fake_hip.c - a libamdhip64 that runs nothing, keeps count, and fails its n-th call.
*/
#include "fake.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static struct fake state;

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

static int step(const char *name, int needs_device)
{
    state.calls++;
    state.unentered += needs_device && state.current != 1; /* the suite opens device 1 */
    if (!state.fail_at || state.calls != state.fail_at)
        return 0;
    state.failed = name;
    return state.fail_code ? state.fail_code : 999;
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

EXPORT const char *hipGetErrorName(int code);
const char *hipGetErrorName(int code) { return code == 2 ? "hipErrorOutOfMemory" : "hipErrorFake"; }

CALL(hipInit, unsigned flags)
{
    (void)flags;
    STEP(0);
    return 0;
}

CALL(hipRuntimeGetVersion, int *version)
{
    STEP(0);
    *version = state.version;
    return 0;
}

CALL(hipGetDeviceCount, int *count)
{
    STEP(0);
    *count = state.devices;
    return state.devices ? 0 : 100;
}

CALL(hipGetDevice, int *device)
{
    STEP(0);
    *device = state.current;
    return 0;
}

CALL(hipSetDevice, int device)
{
    STEP(0);
    state.current = device;
    return 0;
}

CALL(hipDeviceGetName, char *name, int bytes, int device)
{
    STEP(0);
    snprintf(name, (size_t)bytes, "Fake AMD %d", device);
    return 0;
}

CALL(hipDeviceTotalMem, size_t *bytes, int device)
{
    (void)device;
    STEP(0);
    *bytes = (size_t)1 << 34;
    return 0;
}

/* HIP shows the second node first. */
CALL(hipDeviceGetPCIBusId, char *text, int bytes, int device)
{
    STEP(0);
    snprintf(text, (size_t)bytes, device == 0 ? "0000:c1:00.0" : "0000:03:00.0");
    return 0;
}

CALL(hipDeviceSynchronize, void)
{
    STEP(1);
    return 0;
}

static int make(void **out)
{
    *out = keep(1);
    state.live++;
    return 0;
}

static int destroy(void *thing)
{
    drop(thing);
    state.live--;
    return 0;
}

CALL(hipModuleLoadData, void **module, const void *image)
{
    (void)image;
    STEP(1);
    return state.refuse_cubin ? state.refuse_cubin : make(module);
}

CALL(hipModuleUnload, void *module)
{
    destroy(module);
    STEP(1);
    return 0;
}

CALL(hipModuleGetFunction, void **function, void *module, const char *name)
{
    (void)name;
    STEP(1);
    *function = module;
    return 0;
}

CALL(hipFuncGetAttribute, int *value, int attribute, void *function)
{
    (void)function;
    STEP(1);
    *value = attribute == 4 ? 64 : 0;
    return 0;
}

CALL(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor, int *ctas, void *function, int threads,
     size_t shared)
{
    (void)function, (void)threads, (void)shared;
    STEP(1);
    *ctas = 3;
    return 0;
}

CALL(hipModuleLaunchKernel, void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
     unsigned by, unsigned bz, unsigned shared, void *stream, void **params, void **extra)
{
    (void)function;
    STEP(1);
    if (gy != 1 || gz != 1 || by != 1 || bz != 1 || params || extra[0] != (void *)1 ||
        extra[2] != (void *)2 || extra[4] != (void *)3)
        return 1;
    struct fake_launch *l = &state.launch[state.launches++ % FAKE_LAUNCHES];
    l->grid = gx;
    l->threads = bx;
    l->shared = shared;
    l->stream = stream;
    l->bytes = *(size_t *)extra[3];
    memcpy(l->params, extra[1], l->bytes < FAKE_PARAMS ? l->bytes : FAKE_PARAMS);
    return 0;
}

CALL(hipMalloc, void **memory, size_t bytes)
{
    STEP(1);
    *memory = keep(bytes);
    state.live++;
    return 0;
}

CALL(hipFree, void *memory)
{
    destroy(memory);
    STEP(1);
    return 0;
}

CALL(hipMemcpy, void *to, const void *from, size_t bytes, int kind)
{
    STEP(1);
    memmove(to, from, bytes);
    return kind == 1 || kind == 2 ? 0 : 1;
}

CALL(hipMemcpyAsync, void *to, const void *from, size_t bytes, int kind, void *stream)
{
    (void)stream;
    STEP(1);
    memmove(to, from, bytes);
    return kind == 3 ? 0 : 1;
}

CALL(hipMemsetD32Async, void *to, int value, size_t words, void *stream)
{
    (void)stream;
    STEP(1);
    for (size_t i = 0; i < words; i++)
        ((int *)to)[i] = value;
    return 0;
}

CALL(hipMemset, void *to, int byte, size_t bytes)
{
    STEP(1);
    memset(to, byte, bytes);
    return 0;
}

CALL(hipStreamCreateWithFlags, void **stream, unsigned flags)
{
    (void)flags;
    STEP(1);
    return make(stream);
}

CALL(hipStreamDestroy, void *stream)
{
    destroy(stream);
    STEP(1);
    return 0;
}

CALL(hipEventCreate, void **event)
{
    STEP(1);
    return make(event);
}

CALL(hipEventDestroy, void *event)
{
    destroy(event);
    STEP(1);
    return 0;
}

CALL(hipEventRecord, void *event, void *stream)
{
    (void)event, (void)stream;
    STEP(1);
    return 0;
}

CALL(hipEventSynchronize, void *event)
{
    (void)event;
    STEP(1);
    return 0;
}

CALL(hipEventElapsedTime, float *ms, void *from, void *to)
{
    (void)from, (void)to;
    STEP(1);
    *ms = 1.5f;
    return 0;
}
