/* SPDX-License-Identifier: Apache-2.0 */
/* graph.c - see graph.h. kvkiln works in the device's primary context, and so does this. */
#include "graph.h"

#include <dlfcn.h>
#include <string.h>

enum { CAPTURE_MODE_GLOBAL = 0, STREAM_NON_BLOCKING = 1 };

static struct {
    int (*init)(unsigned flags);
    int (*device)(int *device, int ordinal);
    int (*retain)(void **context, int device);
    int (*make_current)(void *context);
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_destroy)(void *stream);
    int (*stream_wait)(void *stream);
    int (*capture)(void *stream, int mode);
    int (*capture_end)(void *stream, void **graph);
    int (*instantiate)(void **exec, void *graph, unsigned long long flags);
    int (*graph_destroy)(void *graph);
    int (*launch)(void *exec, void *stream);
    int (*exec_destroy)(void *exec);
} cu;

static int get(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

static const char *load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return "dlopen of libcuda.so.1";
    int good = get(library, "cuInit", &cu.init) & get(library, "cuDeviceGet", &cu.device) &
               get(library, "cuDevicePrimaryCtxRetain", &cu.retain) &
               get(library, "cuCtxSetCurrent", &cu.make_current) &
               get(library, "cuStreamCreate", &cu.stream_create) &
               get(library, "cuStreamDestroy_v2", &cu.stream_destroy) &
               get(library, "cuStreamSynchronize", &cu.stream_wait) &
               get(library, "cuStreamBeginCapture_v2", &cu.capture) &
               get(library, "cuStreamEndCapture", &cu.capture_end) &
               get(library, "cuGraphInstantiateWithFlags", &cu.instantiate) &
               get(library, "cuGraphDestroy", &cu.graph_destroy) &
               get(library, "cuGraphLaunch", &cu.launch) &
               get(library, "cuGraphExecDestroy", &cu.exec_destroy);
    return good ? NULL : "a function of libcuda.so.1";
}

const char *graph_begin(struct graph *graph, int ordinal)
{
    int device;
    void *context;
    const char *failed = load();
    if (failed)
        return failed;
    if (cu.init(0) || cu.device(&device, ordinal))
        return "cuDeviceGet";
    if (cu.retain(&context, device) || cu.make_current(context))
        return "cuDevicePrimaryCtxRetain";
    if (cu.stream_create(&graph->stream, STREAM_NON_BLOCKING))
        return "cuStreamCreate";
    return cu.capture(graph->stream, CAPTURE_MODE_GLOBAL) ? "cuStreamBeginCapture" : NULL;
}

const char *graph_end(struct graph *graph)
{
    void *captured = NULL;
    if (cu.capture_end(graph->stream, &captured))
        return "cuStreamEndCapture";
    int code = cu.instantiate(&graph->exec, captured, 0);
    cu.graph_destroy(captured);
    return code ? "cuGraphInstantiateWithFlags" : NULL;
}

const char *graph_launch(const struct graph *graph)
{
    if (cu.launch(graph->exec, graph->stream))
        return "cuGraphLaunch";
    return cu.stream_wait(graph->stream) ? "cuStreamSynchronize" : NULL;
}

void graph_free(struct graph *graph)
{
    if (graph->exec)
        cu.exec_destroy(graph->exec);
    if (graph->stream)
        cu.stream_destroy(graph->stream);
}
