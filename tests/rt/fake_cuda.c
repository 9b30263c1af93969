/* SPDX-License-Identifier: Apache-2.0 */
/*
** fake_cuda.c - a libcuda.so.1 that runs nothing, keeps count, and fails its n-th call.
*/
static char primary; /* its address is the primary context */
static _Thread_local const void *stack[8];
static _Thread_local int pushed;
static int entered(void) { return pushed && stack[pushed - 1] == &primary; }

#include "fake_state.h"

#include "runtime/abi.h"

EXPORT struct fake *fake_state(void) { return &state; }

CALL(cuInit, unsigned flags)
{
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
    STEP(0);
    *bytes = (size_t)1 << 33;
    return 0;
}

CALL(cuDeviceGetAttribute, int *value, int attribute, int device)
{
    STEP(0);
    *value = attribute == 16   ? 132
             : attribute == 75 ? state.major
             : attribute == 76 ? state.minor
                               : -7;
    return 0;
}

CALL(cuDevicePrimaryCtxRetain, void **context, int device)
{
    STEP(0);
    *context = &primary;
    live(1);
    return 0;
}

CALL(cuDevicePrimaryCtxRelease_v2, int device)
{
    live(-1);
    STEP(0);
    return 0;
}

static void push(const void *context)
{
    pthread_mutex_lock(&mutex);
    stack[pushed < 8 ? pushed : 7] = context;
    state.depth = ++pushed;
    pthread_mutex_unlock(&mutex);
}

static void pop(void)
{
    pthread_mutex_lock(&mutex);
    state.depth = --pushed;
    pthread_mutex_unlock(&mutex);
}

CALL(cuCtxGetCurrent, void **context)
{
    const void *now = pushed ? stack[pushed - 1] : NULL;
    STEP(0);
    memcpy(context, &now, sizeof now);
    return 0;
}

CALL(cuCtxPushCurrent_v2, void *context)
{
    STEP(0);
    push(context);
    return 0;
}

CALL(cuCtxPopCurrent_v2, void **context)
{
    *context = &primary;
    pop();
    STEP(0);
    return 0;
}

CALL(cuCtxSetCurrent, void *context)
{
    STEP(0);
    if (pushed)
        pop();
    if (context)
        push(context);
    return 0;
}

CALL(cuCtxCreate_v2, void **context, unsigned flags, int device)
{
    STEP(0);
    make(context);
    push(*context);
    return 0;
}

FREES(cuCtxDestroy_v2)

/*
** While a stream is captured strictly, calls that allocate, wait or load code fail and spoil the
** capture, unless their thread has exempted itself: mode 2. Counts those of code in `strict`.
*/
static _Thread_local int capture_mode;
static int capturing, spoilt;

static int forbidden(int code)
{
    pthread_mutex_lock(&mutex);
    int bad = capturing && capture_mode != 2;
    spoilt |= bad;
    state.strict += code && capture_mode != 2;
    pthread_mutex_unlock(&mutex);
    return bad ? 900 : 0;
}

#define UNSAFE_STEP(code)                                                                          \
    do {                                                                                           \
        STEP(1);                                                                                   \
        if (forbidden(code))                                                                       \
            return 900;                                                                            \
    } while (0)

CALL(cuThreadExchangeStreamCaptureMode, int *mode)
{
    STEP(0);
    pthread_mutex_lock(&mutex);
    int was = capture_mode;
    state.mode = capture_mode = *mode;
    *mode = was;
    pthread_mutex_unlock(&mutex);
    return 0;
}

CALL(cuStreamBeginCapture_v2, void *stream, int mode)
{
    STEP(1);
    pthread_mutex_lock(&mutex);
    capturing++;
    spoilt = 0;
    pthread_mutex_unlock(&mutex);
    return 0;
}

CALL(cuStreamEndCapture, void *stream, void **graph)
{
    pthread_mutex_lock(&mutex);
    int bad = spoilt;
    capturing -= capturing > 0;
    pthread_mutex_unlock(&mutex);
    STEP(1);
    return bad ? 901 : make(graph);
}

CALL(cuCtxSynchronize, void)
{
    UNSAFE_STEP(0);
    settle(0);
    return 0;
}

CALL(cuModuleLoadDataEx, void **module, const void *image, unsigned n, int *options, void **values)
{
    UNSAFE_STEP(1);
    int ptx = memcmp(image, ".version", 8) == 0, code = ptx ? state.refuse_ptx : state.refuse_cubin;
    if (code) {
        for (unsigned i = 0; i < n; i++)
            if (options[i] == 5)
                strcpy(values[i], "line 1: the fake\nrefuses");
        return code;
    }
    return make(module);
}

CALL(cuModuleUnload, void *module)
{
    int code = forbidden(1);
    settle(1);
    destroy(module);
    STEP(1);
    return code;
}

CALL(cuModuleGetFunction, void **function, void *module, const char *name)
{
    static char names[16][64]; /* handles stay valid as long as the library */
    static int n;
    UNSAFE_STEP(1);
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
    STEP(1);
    *value = attribute == 4 ? 96 : attribute == 3 ? 8 : attribute == 1 ? 1024 : -7;
    return 0;
}

CALL(cuFuncSetAttribute, void *function, int attribute, int value)
{
    STEP(1);
    if (attribute == 8)
        __atomic_store_n(&state.dynamic_shared, value, __ATOMIC_SEQ_CST);
    return 0;
}

CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, int *ctas, void *function, int threads,
     size_t shared)
{
    STEP(1);
    *ctas = state.resident;
    return 0;
}

CALL(cuOccupancyMaxActiveClusters, int *clusters, void *function, const void *config)
{
    STEP(1);
    *clusters = state.clusters;
    return 0;
}

/* Streams hold which context they are of; those that a test makes up are of the primary one. */
enum { FOREIGN = 16 };
static const void *foreign[FOREIGN];

static int is_ours(const void *stream)
{
    int found = 0;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < FOREIGN; i++)
        found |= foreign[i] == stream;
    pthread_mutex_unlock(&mutex);
    return !found;
}

CALL(cuStreamCreate, void **thing, unsigned flags)
{
    STEP(0);
    make(thing);
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < FOREIGN && pushed && !entered(); i++)
        if (!foreign[i]) {
            foreign[i] = *thing;
            break;
        }
    pthread_mutex_unlock(&mutex);
    return 0;
}

CALL(cuStreamDestroy_v2, void *stream)
{
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < FOREIGN; i++)
        if (foreign[i] == stream)
            foreign[i] = NULL;
    pthread_mutex_unlock(&mutex);
    destroy(stream);
    STEP(0);
    return 0;
}

CALL(cuStreamSynchronize, void *stream)
{
    STEP(1);
    settle(0);
    return 0;
}

CALL(cuStreamQuery, void *stream)
{
    STEP(1);
    return state.queued ? 600 : 0;
}

/* One by one come only the parameters of decode, and a map behind them: put together they are
** remembered as a buffer is. 1: neither a list nor a buffer. */
static int remember(const char *function, const unsigned shape[3], void *stream, void **params,
                    void **extra)
{
    struct abi_decode p;
    if (!params == !extra ||
        (extra && (extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4])))
        return 1;
    const void *bytes = extra ? extra[1] : &p, *map = NULL;
    if (params) {
#define ABI_store(type, name)
#define ABI_reduce(type, name)
#define ABI_unified(type, name)
#define ABI_dequant(type, name)
#define ABI_merge(type, name)
#define ABI_copy(type, name)
#define ABI_convert(type, name)
#define ABI_decode(type, name) memcpy(&p.name, *params++, sizeof p.name);
#define ABI(entry, type, name) ABI_##entry(type, name)
#include "runtime/abi.def"
        map = *params;
    }
    remember_launch(function, shape, stream, bytes, extra ? *(size_t *)extra[3] : sizeof p, map);
    return 0;
}

CALL(cuLaunchKernel, void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
     unsigned by, unsigned bz, unsigned shared, void *stream, void **params, void **extra)
{
    STEP(1);
    if (stream && !is_ours(stream))
        return 400;
    if (gy != 1 || gz != 1 || by != 1 || bz != 1)
        return 1;
    return remember(function, (const unsigned[]){gx, bx, shared}, stream, params, extra);
}

/* As CUDA lays them out: CUlaunchConfig, CUlaunchAttribute. */
struct launch_attribute {
    int id, pad, value[16];
};
struct launch_config {
    unsigned gx, gy, gz, bx, by, bz, shared;
    void *stream;
    const struct launch_attribute *attributes;
    unsigned count;
};

CALL(cuLaunchKernelEx, const struct launch_config *l, void *function, void **params, void **extra)
{
    STEP(1);
    if (l->stream && !is_ours(l->stream))
        return 400;
    if (l->gy != 1 || l->gz != 1 || l->by != 1 || l->bz != 1 || l->count < 1 || l->count > 2 ||
        remember(function, (const unsigned[]){l->gx, l->bx, l->shared}, l->stream, params, extra))
        return 1;
    pthread_mutex_lock(&mutex);
    struct fake_launch *to = &state.launch[(state.launches - 1) % FAKE_LAUNCHES];
    int unknown = 0;
    for (unsigned i = 0; i < l->count; i++)
        switch (l->attributes[i].id) {
        case 4: to->cluster = l->attributes[i].value[0]; break;
        case 6: to->overlaps = l->attributes[i].value[0]; break;
        default: unknown = 1;
        }
    if (to->cluster && to->grid % (unsigned)to->cluster)
        unknown = 1;
    pthread_mutex_unlock(&mutex);
    return unknown;
}

/* What the driver demands of tensors without interleaving and of rows of 128 bytes that are turned. */
static int map_fits(const struct fake_map *m, const void *map)
{
    int fits = (uintptr_t)map % 64 == 0 && (uintptr_t)m->data % 16 == 0 && m->box[0] <= 128 &&
               m->box[0] % 16 == 0;
    for (unsigned i = 0; i < m->rank; i++)
        fits &= m->size[i] >= 1 && m->size[i] <= (uint64_t)1 << 32 && m->box[i] >= 1 &&
                m->box[i] <= 256 && m->step[i] >= 1 && m->step[i] <= 8;
    for (unsigned i = 0; i + 1 < m->rank; i++)
        fits &= m->stride[i] % 16 == 0 && m->stride[i] < (uint64_t)1 << 40;
    return fits;
}

CALL(cuTensorMapEncodeTiled, void *map, int type, unsigned rank, void *data, const uint64_t *size,
     const uint64_t *stride, const uint32_t *box, const uint32_t *steps, int interleave,
     int swizzle, int promotion, int fill)
{
    STEP(0);
    if (!entered()) /* as the driver: CUDA_ERROR_INVALID_CONTEXT */
        return 201;
    if (rank < 1 || rank > FAKE_DIMS)
        return 1;
    struct fake_map m = {.type = type,
                         .interleave = interleave,
                         .swizzle = swizzle,
                         .promotion = promotion,
                         .fill = fill,
                         .rank = rank,
                         .data = data};
    memcpy(m.size, size, rank * sizeof *size);
    memcpy(m.stride, stride, (rank - 1) * sizeof *stride);
    memcpy(m.box, box, rank * sizeof *box);
    memcpy(m.step, steps, rank * sizeof *steps);
    pthread_mutex_lock(&mutex);
    state.map = m;
    state.maps++;
    int code = state.refuse_map ? state.refuse_map : !map_fits(&m, map);
    if (!code)
        memset(map, state.maps, FAKE_MAP_BYTES);
    pthread_mutex_unlock(&mutex);
    return code;
}

CALL(cuMemAlloc_v2, uint64_t *memory, size_t bytes)
{
    UNSAFE_STEP(0);
    *memory = (uintptr_t)keep(bytes);
    live(1);
    return 0;
}

CALL(cuMemFree_v2, uint64_t memory)
{
    destroy((void *)(uintptr_t)memory);
    STEP(1);
    return 0;
}

CALL(cuMemcpyHtoD_v2, uint64_t to, const void *from, size_t bytes)
{
    UNSAFE_STEP(0);
    memcpy((void *)(uintptr_t)to, from, bytes);
    return 0;
}

CALL(cuMemcpyDtoH_v2, void *to, uint64_t from, size_t bytes)
{
    UNSAFE_STEP(0);
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return 0;
}

CALL(cuMemcpyDtoDAsync_v2, uint64_t to, uint64_t from, size_t bytes, void *stream)
{
    STEP(1);
    memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
    return 0;
}

CALL(cuMemsetD32Async, uint64_t to, unsigned value, size_t words, void *stream)
{
    STEP(1);
    for (size_t i = 0; i < words; i++)
        ((unsigned *)(uintptr_t)to)[i] = value;
    return 0;
}

CALL(cuMemsetD8_v2, uint64_t to, unsigned char byte, size_t bytes)
{
    UNSAFE_STEP(0);
    memset((void *)(uintptr_t)to, byte, bytes);
    return 0;
}

CALL(cuGraphInstantiateWithFlags, void **exec, void *graph, unsigned long long flags)
{
    STEP(1);
    return make(exec);
}

FREES(cuGraphDestroy)
FREES(cuGraphExecDestroy)
PASSES(cuGraphLaunch, void *exec, void *stream)
MAKES(cuEventCreate, void **thing, unsigned flags)
FREES(cuEventDestroy_v2)
PASSES(cuEventRecord, void *event, void *stream)
PASSES(cuEventSynchronize, void *event)

CALL(cuEventElapsedTime, float *ms, void *from, void *to)
{
    STEP(1);
    *ms = 2.5f;
    return 0;
}
