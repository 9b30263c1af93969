/* SPDX-License-Identifier: Apache-2.0 */
/*
** capture.c - CUDA graphs beside threads and contexts. That every launch can be captured is shown by
** num (graph_replay_equals_eager). The mode is the strictest.
*/
#include "gpu.h"

#include <stdlib.h>

static int capture_begin(struct test *t, const struct site *s)
{
    return cuda_ok(t, cuda_get(t)->capture(s->stream, CAPTURE_GLOBAL), "cuStreamBeginCapture");
}

/* `bad`: the capture is ended, and nothing made. */
static int capture_end(struct test *t, const struct site *s, int bad, void **exec)
{
    const struct cuda *cu = cuda_get(t);
    void *graph = NULL;
    int code = cu->capture_end(s->stream, &graph);

    *exec = NULL;
    bad = bad || cuda_ok(t, code, "cuStreamEndCapture") ||
          cuda_ok(t, cu->instantiate(exec, graph, 0), "cuGraphInstantiateWithFlags");
    if (graph)
        cu->graph_free(graph);
    return bad;
}

static int replay(struct test *t, const struct site *s, void *exec)
{
    return cuda_ok(t, cuda_get(t)->graph_launch(exec, s->stream), "cuGraphLaunch") ||
           stream_wait(t, s->ctx, s->stream);
}

/* The graph on other data than it was captured with, against a chain without a graph. */
static int replay_on_other_data(struct test *t, const struct site *s, void *exec, uint64_t seed)
{
    if (work_seed(t, &s->work, seed))
        return 1;
    uint8_t *want = work_expect(t, &s->work, s->kernels);
    int bad = !want || work_seed(t, &s->work, seed + 1000) || replay(t, s, exec) ||
              work_seed(t, &s->work, seed) || replay(t, s, exec) ||
              work_same(t, &s->work, want, "a replay");
    free(want);
    return bad;
}

static void end_graph(struct test *t, void *exec)
{
    if (exec)
        cuda_get(t)->exec_free(exec);
}

/* --- preparing beside a capture --- */

struct prepare {
    struct test *t;
    kvk_context *ctx;
    int model;
};

static void *prepare(void *data)
{
    const struct prepare *p = data;
    const kvk_kernels *kernels;

    work_kernels(p->t, p->ctx, p->model, &kernels);
    return NULL;
}

/* A chain, kernels loaded by another thread meanwhile, and a chain again: all in one capture. */
static int capture_beside(struct test *t, const struct site *s, struct prepare *p)
{
    pthread_t thread;
    void *exec;

    if (capture_begin(t, s))
        return 1;
    int bad = work_queue(t, &s->work, s->kernels, s->stream);
    if (pthread_create(&thread, NULL, prepare, p))
        bad = test_fail(t, "no thread");
    else
        pthread_join(thread, NULL);
    bad = work_queue(t, &s->work, s->kernels, s->stream) || bad;
    bad = capture_end(t, s, bad || t->failed, &exec) ||
          replay_on_other_data(t, s, exec, 31 + (uint64_t)p->model);
    end_graph(t, exec);
    return bad;
}

void capture_while_another_thread_prepares(struct test *t)
{
    struct site s = {0};
    kvk_context *fresh = NULL;

    if (!site_open(t, &s, 30) && !work_context(t, &fresh)) {
        for (int model = 1; !t->failed && model < WORK_MODELS; model++)
            capture_beside(t, &s, &(struct prepare){t, s.ctx, model});
        for (int model = 0; !t->failed && model < WORK_MODELS; model++)
            capture_beside(t, &s, &(struct prepare){t, fresh, model});
    }
    kvk_close(fresh);
    site_close(t, &s);
}

/* --- graphs and contexts --- */

void a_graph_of_two_contexts(struct test *t)
{
    struct site a = {0}, b = {0};
    void *exec = NULL;

    if (!site_open(t, &a, 41) && !site_open(t, &b, 42) && !capture_begin(t, &a)) {
        int bad = work_queue(t, &a.work, a.kernels, a.stream) ||
                  work_queue(t, &b.work, b.kernels, a.stream);
        if (!capture_end(t, &a, bad, &exec) && !replay_on_other_data(t, &a, exec, 43))
            work_same(t, &b.work, b.want, "the second half of a replay");
    }
    end_graph(t, exec);
    site_close(t, &b);
    site_close(t, &a);
}

void a_graph_outlives_other_contexts(struct test *t)
{
    struct site a = {0}, b = {0};
    void *exec = NULL;

    if (!site_open(t, &a, 44) && !site_open(t, &b, 45) && !capture_begin(t, &a)) {
        int bad = work_queue(t, &a.work, a.kernels, a.stream);
        bad = capture_end(t, &a, bad, &exec);
        site_close(t, &b);
        if (!bad)
            replay_on_other_data(t, &a, exec, 46);
    }
    end_graph(t, exec);
    site_close(t, &b);
    site_close(t, &a);
}
