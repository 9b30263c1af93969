/* SPDX-License-Identifier: Apache-2.0 */
/*
** graph.h - calls that are recorded once and replayed over other data: as a CUDA graph, or, on
** devices without one, as the same call with the same arguments again.
*/
#ifndef KVKILN_TESTS_GRAPH_H
#define KVKILN_TESTS_GRAPH_H

#include "world.h"

typedef void graph_body(struct num_run *run, void *data, kvk_stream stream);

struct graph {
    graph_body *body;
    void *data;
    void *exec, *stream; /* CUgraphExec, CUstream: of a captured one */
};

/* --- graph_cuda.c --- */
/* Skips the case if the device has no CUDA graphs. Nothing runs. */
void graph_capture(struct num_run *run, struct graph *g);
void graph_launch(struct num_run *run, const struct graph *g);
void graph_free(struct num_run *run, struct graph *g);

/* --- graph.c; variant: see there --- */
enum { GRAPH_CAPTURED = 1, GRAPH_PAGES = 2, GRAPH_CONVERT = 4 };
void graph_record(struct num_run *run, struct graph *g, int variant);
void graph_replay(struct num_run *run, const struct graph *g); /* done when it returns */
void graph_release(struct num_run *run, struct graph *g);
void graph_fill(struct num_run *run, void *to, int byte, size_t bytes);
void graph_put(struct num_run *run, void *to, const void *host, size_t bytes);
num_body graph_attention, graph_store, graph_dequant;
/* --- graph_moves.c --- */
num_body graph_merge, graph_copy, graph_device_copy;
struct num_case *graph_cases(struct num_case *cases, size_t *count);

#endif
