/* SPDX-License-Identifier: Apache-2.0 */
/*
** graph.h - one CUDA graph, through libcuda opened at run time: a program built on a machine without CUDA
** uses it where there is one.
*/
#ifndef ENGINE_GRAPH_H
#define ENGINE_GRAPH_H

struct graph {
    void *stream, *exec;
};

/* All of them return NULL, or which call failed. `ordinal` is N of "cuda:N". */
const char *graph_begin(struct graph *graph,
                        int ordinal);                /* what is queued on graph->stream now ... */
const char *graph_end(struct graph *graph);          /* ... is replayed by every ... */
const char *graph_launch(const struct graph *graph); /* ... of these, which waits for it */
void graph_free(struct graph *graph);

#endif
