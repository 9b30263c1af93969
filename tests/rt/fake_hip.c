/* SPDX-License-Identifier: Apache-2.0 */
/*
** fake_hip.c - a libamdhip64 that runs nothing, keeps count, and fails its n-th call.
*/
static int entered(void);

#include "fake_state.h"

static _Thread_local int current;

static int entered(void) { return current == state.expect; }

/* Of the thread that asks: the suites start each case anew. */
EXPORT struct fake *fake_state(void)
{
    current = 0;
    return &state;
}

EXPORT const char *hipGetErrorName(int code);
const char *hipGetErrorName(int code) { return code == 2 ? "hipErrorOutOfMemory" : "hipErrorFake"; }

CALL(hipInit, unsigned flags)
{
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
    *device = current;
    return 0;
}

CALL(hipSetDevice, int device)
{
    STEP(0);
    __atomic_store_n(&state.current, current = device, __ATOMIC_SEQ_CST);
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
    settle(0);
    return 0;
}

CALL(hipModuleLoadData, void **module, const void *image)
{
    STEP(1);
    return state.refuse_cubin ? state.refuse_cubin : make(module);
}

CALL(hipModuleUnload, void *module)
{
    settle(1);
    destroy(module);
    STEP(1);
    return 0;
}

CALL(hipModuleGetFunction, void **function, void *module, const char *name)
{
    STEP(1);
    *function = module;
    return 0;
}

CALL(hipFuncGetAttribute, int *value, int attribute, void *function)
{
    STEP(1);
    *value = attribute == 4 ? 64 : 0;
    return 0;
}

CALL(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor, int *ctas, void *function, int threads,
     size_t shared)
{
    STEP(1);
    *ctas = 3;
    return 0;
}

CALL(hipModuleLaunchKernel, void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
     unsigned by, unsigned bz, unsigned shared, void *stream, void **params, void **extra)
{
    STEP(1);
    if (gy != 1 || gz != 1 || by != 1 || bz != 1 || params || extra[0] != (void *)1 ||
        extra[2] != (void *)2 || extra[4] != (void *)3)
        return 1;
    remember_launch("", (const unsigned[]){gx, bx, shared}, stream, extra[1], *(size_t *)extra[3],
                    NULL);
    return 0;
}

CALL(hipMalloc, void **memory, size_t bytes)
{
    STEP(1);
    *memory = keep(bytes);
    live(1);
    return 0;
}

FREES(hipFree)

CALL(hipMemcpy, void *to, const void *from, size_t bytes, int kind)
{
    STEP(1);
    memmove(to, from, bytes);
    return kind == 1 || kind == 2 ? 0 : 1;
}

CALL(hipMemcpyAsync, void *to, const void *from, size_t bytes, int kind, void *stream)
{
    STEP(1);
    memmove(to, from, bytes);
    return kind == 3 ? 0 : 1;
}

CALL(hipMemsetD32Async, void *to, int value, size_t words, void *stream)
{
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

MAKES(hipStreamCreateWithFlags, void **thing, unsigned flags)
FREES(hipStreamDestroy)
MAKES(hipEventCreate, void **thing)
FREES(hipEventDestroy)
PASSES(hipEventRecord, void *event, void *stream)
PASSES(hipEventSynchronize, void *event)

CALL(hipEventElapsedTime, float *ms, void *from, void *to)
{
    STEP(1);
    *ms = 1.5f;
    return 0;
}
