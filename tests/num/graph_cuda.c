/* SPDX-License-Identifier: Apache-2.0 */
/*
** graph_cuda.c - capture and replay through libcuda, with prototypes of our own.
**
** Works in the primary context, where the library's own memory and modules are. The capture mode is
** the strictest: an allocation or a synchronisation of any thread inside it fails the capture.
*/
#include "graph.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { CAPTURE_GLOBAL = 0, STREAM_NON_BLOCKING = 1 };

static struct {
    int (*device_get)(int *device, int ordinal);
    int (*retain)(void **context, int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*stream_make)(void **stream, unsigned flags);
    int (*stream_free)(void *stream);
    int (*stream_wait)(void *stream);
    int (*begin)(void *stream, int mode);
    int (*end)(void *stream, void **graph);
    int (*instantiate)(void **exec, void *graph, unsigned long long flags);
    int (*graph_free)(void *graph);
    int (*launch)(void *exec, void *stream);
    int (*exec_free)(void *exec);
    void *context, *left;
} cu;

static void get(struct num_run *run, void *library, void *function, const char *name)
{
    void *found = dlsym(library, name);

    if (!found)
        num_fail(run, "libcuda.so.1 has no %s", name);
    memcpy(function, &found, sizeof found);
}

static void ok(struct num_run *run, int code, const char *call)
{
    if (code)
        num_fail(run, "%s: CUDA error %d", call, code);
}

static void load(struct num_run *run, int ordinal)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int device;

    if (!library)
        num_fail(run, "libcuda.so.1 cannot be loaded");
    get(run, library, &cu.device_get, "cuDeviceGet");
    get(run, library, &cu.retain, "cuDevicePrimaryCtxRetain");
    get(run, library, &cu.push, "cuCtxPushCurrent_v2");
    get(run, library, &cu.pop, "cuCtxPopCurrent_v2");
    get(run, library, &cu.stream_make, "cuStreamCreate");
    get(run, library, &cu.stream_free, "cuStreamDestroy_v2");
    get(run, library, &cu.stream_wait, "cuStreamSynchronize");
    get(run, library, &cu.begin, "cuStreamBeginCapture_v2");
    get(run, library, &cu.end, "cuStreamEndCapture");
    get(run, library, &cu.instantiate, "cuGraphInstantiateWithFlags");
    get(run, library, &cu.graph_free, "cuGraphDestroy");
    get(run, library, &cu.launch, "cuGraphLaunch");
    get(run, library, &cu.exec_free, "cuGraphExecDestroy");
    ok(run, cu.device_get(&device, ordinal), "cuDeviceGet");
    ok(run, cu.retain(&cu.context, device),
       "cuDevicePrimaryCtxRetain"); /* until the process ends */
}

/* "cuda:N" of the open device; any other has no graphs that are tested here. */
static void enter(struct num_run *run)
{
    struct kvk_device_info info = KVK_INIT(struct kvk_device_info);
    kvk_error err = {0};

    num_ok(run, kvk_device(run->ctx, &info, &err), &err, "kvk_device");
    if (strncmp(info.device, "cuda:", 5)) {
        run->skipped = 1;
        num_fail(run, "%s has no CUDA graphs", info.device);
    }
    if (!cu.context)
        load(run, atoi(info.device + 5));
    ok(run, cu.push(cu.context), "cuCtxPushCurrent");
}

static void leave(struct num_run *run) { ok(run, cu.pop(&cu.left), "cuCtxPopCurrent"); }

/* A failure inside a capture must not leave it open: it would fail every later case. */
static void body_in_capture(struct num_run *run, struct graph *g)
{
    jmp_buf *outer = run->leave, here;
    void *graph = NULL;

    run->leave = &here;
    if (setjmp(here)) {
        run->leave = outer;
        cu.end(g->stream, &graph);
        cu.pop(&cu.left);
        longjmp(*outer, 1);
    }
    g->body(run, g->data, g->stream);
    run->leave = outer;
}

void graph_capture(struct num_run *run, struct graph *g)
{
    void *graph = NULL;

    enter(run);
    ok(run, cu.stream_make(&g->stream, STREAM_NON_BLOCKING), "cuStreamCreate");
    ok(run, cu.begin(g->stream, CAPTURE_GLOBAL), "cuStreamBeginCapture");
    body_in_capture(run, g);
    ok(run, cu.end(g->stream, &graph), "cuStreamEndCapture");
    ok(run, cu.instantiate(&g->exec, graph, 0), "cuGraphInstantiateWithFlags");
    ok(run, cu.graph_free(graph), "cuGraphDestroy");
    leave(run);
}

/* What the default stream was given before is done before, and the graph when this returns. */
void graph_launch(struct num_run *run, const struct graph *g)
{
    kvk_error err = {0};

    num_ok(run, kvk_synchronize(run->ctx, &err), &err, "kvk_synchronize");
    enter(run);
    ok(run, cu.launch(g->exec, g->stream), "cuGraphLaunch");
    ok(run, cu.stream_wait(g->stream), "cuStreamSynchronize");
    leave(run);
}

void graph_free(struct num_run *run, struct graph *g)
{
    enter(run);
    ok(run, cu.exec_free(g->exec), "cuGraphExecDestroy");
    ok(run, cu.stream_free(g->stream), "cuStreamDestroy");
    leave(run);
}
