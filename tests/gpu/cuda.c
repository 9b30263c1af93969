/* SPDX-License-Identifier: Apache-2.0 */
/* cuda.c - libcuda by dlopen, with prototypes of our own: see gpu.h. */
#include "gpu.h"

#include <dlfcn.h>
#include <string.h>

static struct cuda cu;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *missing;

static void load(void)
{
    static const struct {
        const char *symbol;
        size_t offset;
    } calls[] = {
#define FN(name, symbol, parameters) {symbol, offsetof(struct cuda, name)},
#include "cuda_calls.def"
#undef FN
    };
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    missing = library ? NULL : "libcuda.so.1";
    for (size_t i = 0; !missing && i < sizeof calls / sizeof *calls; i++) {
        void *symbol = dlsym(library, calls[i].symbol);
        memcpy((char *)&cu + calls[i].offset, &symbol, sizeof symbol);
        missing = symbol ? NULL : calls[i].symbol;
    }
    if (!missing && cu.init(0))
        missing = "a device: cuInit fails";
}

const struct cuda *cuda_get(struct test *t)
{
    pthread_once(&once, load);
    if (missing)
        test_fail(t, "there is no %s", missing);
    return missing ? NULL : &cu;
}

int cuda_ok(struct test *t, int code, const char *call)
{
    return code ? test_fail(t, "%s: CUDA error %d", call, code) : 0;
}

int cuda_use_primary(struct test *t)
{
    void *context;
    int device;

    if (!cuda_get(t))
        return 1;
    return cuda_ok(t, cu.device(&device, t->ordinal), "cuDeviceGet") ||
           /* until the process ends */
           cuda_ok(t, cu.retain(&context, device), "cuDevicePrimaryCtxRetain") ||
           cuda_ok(t, cu.make_current(context), "cuCtxSetCurrent");
}

int thread_begin(struct test *t) { return t->ordinal >= 0 ? cuda_use_primary(t) : 0; }

int stream_make(struct test *t, kvk_stream *stream)
{
    *stream = NULL;
    if (t->ordinal < 0)
        return 0;
    return cuda_use_primary(t) ||
           cuda_ok(t, cu.stream_make(stream, STREAM_NON_BLOCKING), "cuStreamCreate");
}

int stream_wait(struct test *t, kvk_context *ctx, kvk_stream stream)
{
    kvk_error err;

    if (stream)
        return cuda_ok(t, cu.stream_wait(stream), "cuStreamSynchronize");
    return test_ok(t, kvk_synchronize(ctx, &err), &err, "kvk_synchronize");
}

void stream_free(const struct test *t, kvk_stream stream)
{
    if (t->ordinal >= 0 && stream)
        cu.stream_free(stream);
}
