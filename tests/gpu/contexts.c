/* SPDX-License-Identifier: Apache-2.0 */
/* contexts.c - several contexts and threads on one device, and a CUDA context of the caller's own. */
#include "gpu.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 40, HOST_ROUNDS = 3, THREADS = 4 };

static int rounds(const struct test *t) { return t->ordinal < 0 ? HOST_ROUNDS : ROUNDS; }

int site_open(struct test *t, struct site *s, uint64_t seed)
{
    memset(s, 0, sizeof *s);
    if (work_context(t, &s->ctx) || work_kernels(t, s->ctx, 0, &s->kernels) ||
        stream_make(t, &s->stream) || work_make(t, &s->work, s->ctx, s->kernels, seed))
        return 1;
    s->want = work_expect(t, &s->work, s->kernels);
    return !s->want;
}

void site_close(const struct test *t, struct site *s)
{
    stream_free(t, s->stream);
    kvk_close(s->ctx);
    free(s->want);
    memset(s, 0, sizeof *s);
}

void every_kind_runs_on_two_contexts(struct test *t)
{
    struct site a = {0}, b = {0};

    /* the second one's kernels on the first one's memory: all of it is the primary context's */
    if (!site_open(t, &a, 1) && !site_open(t, &b, 2) && (t->fake || !work_untouched(t, &a.work)) &&
        !work_queue(t, &a.work, b.kernels, a.stream) && !stream_wait(t, a.ctx, a.stream))
        work_same(t, &a.work, a.want, "by the other context's kernels");
    site_close(t, &b);
    site_close(t, &a);
}

/* Both queue at once; in odd rounds each with the other's kernels. */
static int alternate(struct test *t, const struct site *a, const struct site *b)
{
    for (int round = 0; round < rounds(t); round++) {
        const int other = round % 2;
        if (work_queue(t, &a->work, other ? b->kernels : a->kernels, a->stream) ||
            work_queue(t, &b->work, other ? a->kernels : b->kernels, b->stream))
            return 1;
        if (round % 5)
            continue;
        if (stream_wait(t, a->ctx, a->stream) || work_same(t, &a->work, a->want, "first") ||
            stream_wait(t, b->ctx, b->stream) || work_same(t, &b->work, b->want, "second"))
            return 1;
    }
    return stream_wait(t, a->ctx, a->stream) || stream_wait(t, b->ctx, b->stream) ||
           work_same(t, &a->work, a->want, "first") || work_same(t, &b->work, b->want, "second");
}

void two_contexts_used_alternately(struct test *t)
{
    struct site a = {0}, b = {0};

    if (!site_open(t, &a, 3) && !site_open(t, &b, 4))
        alternate(t, &a, &b);
    site_close(t, &a);
    site_close(t, &b);
}

/* --- threads --- */

struct worker {
    struct test *t;
    const struct site *site;
    pthread_t thread;
    int started;
};

static void *run_rounds(void *data)
{
    const struct worker *w = data;
    const struct site *s = w->site;

    if (thread_begin(w->t))
        return NULL;
    for (int round = 0; round < rounds(w->t); round++)
        if (work_queue(w->t, &s->work, s->kernels, s->stream) ||
            stream_wait(w->t, s->ctx, s->stream) ||
            work_same(w->t, &s->work, s->want, "in a thread"))
            break;
    return NULL;
}

static void in_threads(struct test *t, const struct site *sites, int n)
{
    struct worker w[THREADS];

    for (int i = 0; i < n; i++) {
        w[i] = (struct worker){.t = t, .site = &sites[i]};
        w[i].started = !pthread_create(&w[i].thread, NULL, run_rounds, &w[i]);
        if (!w[i].started)
            test_fail(t, "no thread");
    }
    for (int i = 0; i < n; i++)
        if (w[i].started)
            pthread_join(w[i].thread, NULL);
}

void two_contexts_from_two_threads(struct test *t)
{
    struct site sites[2] = {{0}};

    if (!site_open(t, &sites[0], 5) && !site_open(t, &sites[1], 6))
        in_threads(t, sites, 2);
    site_close(t, &sites[0]);
    site_close(t, &sites[1]);
}

void one_context_from_four_threads(struct test *t)
{
    struct site sites[THREADS] = {{0}};
    int bad = site_open(t, &sites[0], 7);

    for (int i = 1; !bad && i < THREADS; i++) {
        sites[i] = sites[0];
        sites[i].want = NULL;
        bad = stream_make(t, &sites[i].stream) ||
              work_make(t, &sites[i].work, sites[0].ctx, sites[0].kernels, 7 + (uint64_t)i);
        sites[i].want = bad ? NULL : work_expect(t, &sites[i].work, sites[0].kernels);
        bad = !sites[i].want;
    }
    if (!bad)
        in_threads(t, sites, THREADS);
    for (int i = 1; i < THREADS; i++) {
        if (sites[i].stream != sites[0].stream)
            stream_free(t, sites[i].stream);
        free(sites[i].want);
    }
    site_close(t, &sites[0]);
}

/* --- a context that the caller has made with cuCtxCreate --- */

static int still_current(struct test *t, const void *want, const char *after)
{
    void *now;

    if (cuda_ok(t, cuda_get(t)->current(&now), "cuCtxGetCurrent"))
        return 1;
    return now == want ? 0 : test_fail(t, "%s: another context is current than before", after);
}

/* A stream of the other context is an error of the call, after which all goes on. */
static int refuse_stream(struct test *t, const struct site *s)
{
    const struct cuda *cu = cuda_get(t);
    void *stream;
    kvk_error err = {0};

    if (cuda_ok(t, cu->stream_make(&stream, STREAM_NON_BLOCKING), "cuStreamCreate"))
        return 1;
    kvk_status status = kvk_store(s->kernels, &s->work.store, stream, &err);
    cu->stream_free(stream);
    if (status != KVK_E_DRIVER || !err.driver)
        return test_fail(t, "a stream of another CUDA context: %s (%s), expected KVK_E_DRIVER",
                         kvk_status_name(status), err.text);
    return 0;
}

/* Everything from opening to closing with `context` current, which is none of kvkiln's. */
static int inside(struct test *t, const struct site *old, const void *context)
{
    struct site fresh = {0};
    int bad = work_queue(t, &old->work, old->kernels, NULL) || stream_wait(t, old->ctx, NULL) ||
              still_current(t, context, "a chain of launches") ||
              work_same(t, &old->work, old->want, "inside another context") ||
              work_context(t, &fresh.ctx) || still_current(t, context, "kvk_open") ||
              work_kernels(t, fresh.ctx, 0, &fresh.kernels) ||
              still_current(t, context, "kvk_prepare") ||
              work_queue(t, &old->work, fresh.kernels, NULL) || stream_wait(t, fresh.ctx, NULL) ||
              work_same(t, &old->work, old->want, "opened inside another context");

    kvk_close(fresh.ctx);
    return bad || still_current(t, context, "kvk_close");
}

/* The calling thread has no context; setting none takes only the top of its stack away. */
static int leave_all(struct test *t)
{
    const struct cuda *cu = cuda_get(t);
    void *now = NULL;

    for (int i = 0; i < 8; i++) {
        if (cuda_ok(t, cu->make_current(NULL), "cuCtxSetCurrent") ||
            cuda_ok(t, cu->current(&now), "cuCtxGetCurrent"))
            return 1;
        if (!now)
            return 0;
    }
    return test_fail(t, "a context stays current");
}

void a_context_of_the_callers_own(struct test *t)
{
    const struct cuda *cu = cuda_get(t);
    struct site s = {0};
    void *own = NULL;
    int device;

    if (!cu || site_open(t, &s, 11) || cuda_ok(t, cu->device(&device, t->ordinal), "cuDeviceGet") ||
        cuda_ok(t, cu->create(&own, 0, device), "cuCtxCreate"))
        goto done;
    if (!inside(t, &s, own) && !refuse_stream(t, &s) && !inside(t, &s, own) && !leave_all(t))
        inside(t, &s, NULL);
done:
    if (own)
        cu->destroy(own);
    if (s.ctx)
        cuda_use_primary(t);
    site_close(t, &s);
}
