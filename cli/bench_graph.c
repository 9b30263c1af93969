/* SPDX-License-Identifier: Apache-2.0 */
/*
** bench_graph.c - capture and replay through libcuda, with prototypes of our own: the runtime leaves
** graphs to its callers, and a bench is one.
**
** Works in the primary context, where the library's memory and modules are.
*/
#include "bench_time.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CAPTURE_RELAXED = 2, STREAM_NON_BLOCKING = 1 };

struct bench_graph {
    void *library, *context, *stream, *exec;
    int device;
    int (*device_get)(int *device, int ordinal);
    int (*retain)(void **context, int device);
    int (*release)(int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*stream_make)(void **stream, unsigned flags);
    int (*stream_free)(void *stream);
    int (*begin)(void *stream, int mode);
    int (*end)(void *stream, void **graph);
    int (*instantiate)(void **exec, void *graph, unsigned long long flags);
    int (*graph_free)(void *graph);
    int (*launch)(void *exec, void *stream);
    int (*exec_free)(void *exec);
};

static kvk_status failed_call(kvk_error *err, const char *call, int code)
{
    memset(err, 0, sizeof *err);
    err->status = KVK_E_DRIVER;
    err->driver = code;
    snprintf(err->where, sizeof err->where, "bench_graph");
    snprintf(err->text, sizeof err->text, "%s failed with CUDA error %d", call, code);
    return err->status;
}

static int load(struct bench_graph *g)
{
    const struct {
        const char *name;
        void *function;
    } names[] = {{"cuDeviceGet", &g->device_get},
                 {"cuDevicePrimaryCtxRetain", &g->retain},
                 {"cuDevicePrimaryCtxRelease_v2", &g->release},
                 {"cuCtxPushCurrent_v2", &g->push},
                 {"cuCtxPopCurrent_v2", &g->pop},
                 {"cuStreamCreate", &g->stream_make},
                 {"cuStreamDestroy_v2", &g->stream_free},
                 {"cuStreamBeginCapture_v2", &g->begin},
                 {"cuStreamEndCapture", &g->end},
                 {"cuGraphInstantiateWithFlags", &g->instantiate},
                 {"cuGraphDestroy", &g->graph_free},
                 {"cuGraphLaunch", &g->launch},
                 {"cuGraphExecDestroy", &g->exec_free}};
    g->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *found = g->library ? dlsym(g->library, names[i].name) : NULL;
        if (!found)
            return 0;
        memcpy(names[i].function, &found, sizeof found);
    }
    return 1;
}

static kvk_status record(struct bench_graph *g, const struct bench_unit *unit, kvk_error *err)
{
    void *graph = NULL;
    kvk_status status = KVK_OK;
    int code = g->begin(g->stream, CAPTURE_RELAXED);
    if (code)
        return failed_call(err, "cuStreamBeginCapture", code);
    for (long i = 0; i < unit->launches && !status; i++)
        status = unit->body(unit->data, i, g->stream, err);
    code = g->end(g->stream, &graph); /* also after a failure: it must not stay open */
    if (!status && code)
        status = failed_call(err, "cuStreamEndCapture", code);
    if (!status && (code = g->instantiate(&g->exec, graph, 0)) != 0) {
        g->exec = NULL;
        status = failed_call(err, "cuGraphInstantiateWithFlags", code);
    }
    if (graph)
        g->graph_free(graph);
    return status;
}

kvk_status bench_graph_capture(struct bench_unit *unit, kvk_error *err)
{
    const char *name = unit->device->info.device;
    void *left;
    if (strncmp(name, "cuda:", 5))
        return KVK_OK;
    struct bench_graph *g = cli_alloc(1, sizeof *g);
    kvk_status status = KVK_OK;
    int code = 0;
    if (!load(g))
        status = failed_call(err, "loading the graph calls of libcuda.so.1", 0);
    else if ((code = g->device_get(&g->device, atoi(name + 5))) != 0 ||
             (code = g->retain(&g->context, g->device)) != 0)
        status = failed_call(err, "cuDevicePrimaryCtxRetain", code);
    else if ((code = g->push(g->context)) != 0)
        status = failed_call(err, "cuCtxPushCurrent", code);
    if (!status) {
        if ((code = g->stream_make(&g->stream, STREAM_NON_BLOCKING)) != 0)
            status = failed_call(err, "cuStreamCreate", code);
        else
            status = record(g, unit, err);
        g->pop(&left);
    }
    if (status)
        bench_graph_free(g);
    else
        unit->graph = g;
    return status;
}

kvk_status bench_graph_launch(struct bench_graph *g, kvk_stream stream, kvk_error *err)
{
    int code = g->launch(g->exec, stream);
    return code ? failed_call(err, "cuGraphLaunch", code) : KVK_OK;
}

void bench_graph_free(struct bench_graph *g)
{
    void *left;
    if (!g)
        return;
    if (g->context && !g->push(g->context)) {
        if (g->exec)
            g->exec_free(g->exec);
        if (g->stream)
            g->stream_free(g->stream);
        g->pop(&left);
    }
    if (g->context)
        g->release(g->device);
    if (g->library)
        dlclose(g->library);
    free(g);
}
