/* SPDX-License-Identifier: Apache-2.0 */
/* closing.c - modules go while launches are queued, and contexts while others work. */
#include "gpu.h"

#include <stdlib.h>
#include <string.h>

enum { CHAINS = 20, ROUNDS = 8, BLOCKERS = 200 };

/* Copies that keep a stream busy for some tens of milliseconds. */
struct blocker {
    kvk_context *ctx;
    char *memory;
    size_t bytes;
};

static int block(struct test *t, struct blocker *b, kvk_context *ctx, kvk_stream stream)
{
    void *memory;
    kvk_error err;

    b->ctx = ctx;
    b->bytes = t->ordinal >= 0 && !t->fake ? (size_t)256 << 20 : 4096;
    if (test_ok(t, kvk_alloc(ctx, 2 * b->bytes, &memory, &err), &err, "kvk_alloc"))
        return 1;
    b->memory = memory;
    for (int i = 0; i < BLOCKERS; i++)
        if (test_ok(t,
                    kvk_device_copy(ctx, b->memory + b->bytes, b->memory, b->bytes, stream, &err),
                    &err, "kvk_device_copy"))
            return 1;
    return 0;
}

/* Whether all that the stream was given is done must be as said. */
static int expect_done(struct test *t, kvk_stream stream, int done, const char *when)
{
    if (t->ordinal < 0)
        return 0;
    int code = cuda_get(t)->stream_query(stream);
    if (code && code != CUDA_NOT_READY)
        return cuda_ok(t, code, "cuStreamQuery");
    return (code == 0) == done
               ? 0
               : test_fail(t, "%s the stream is %s", when, done ? "still busy" : "idle");
}

/* Memory is the first context's, kernels are the second's: which goes with all of them queued. */
void closing_under_load(struct test *t)
{
    struct site s = {0};
    struct blocker b = {0};
    kvk_context *ctx = NULL;
    const kvk_kernels *kernels;
    int bad = site_open(t, &s, 21) || work_context(t, &ctx) || work_kernels(t, ctx, 0, &kernels) ||
              work_seed(t, &s.work, 22);

    free(s.want);
    s.want = bad ? NULL : work_expect(t, &s.work, s.kernels);
    bad = bad || !s.want || block(t, &b, s.ctx, s.stream);
    for (int i = 0; !bad && i < CHAINS; i++)
        bad = work_queue(t, &s.work, kernels, s.stream);
    bad = bad || expect_done(t, s.stream, 0, "before kvk_close");
    kvk_close(ctx);
    if (!bad && !expect_done(t, s.stream, 1, "after kvk_close") && !stream_wait(t, s.ctx, s.stream))
        work_same(t, &s.work, s.want, "after its kernels' context was closed");
    site_close(t, &s);
}

struct other {
    struct test *t;
    const struct site *site;
    int stop; /* atomic */
};

static void *keep_launching(void *data)
{
    struct other *o = data;
    const struct site *s = o->site;

    if (thread_begin(o->t))
        return NULL;
    while (!__atomic_load_n(&o->stop, __ATOMIC_ACQUIRE))
        if (work_queue(o->t, &s->work, s->kernels, s->stream) ||
            stream_wait(o->t, s->ctx, s->stream) ||
            work_same(o->t, &s->work, s->want, "while another context comes and goes"))
            break;
    return NULL;
}

void closing_one_context_leaves_the_other(struct test *t)
{
    struct site s = {0};
    struct other o = {t, &s, 0};
    pthread_t thread;

    if (site_open(t, &s, 23) || pthread_create(&thread, NULL, keep_launching, &o)) {
        test_fail(t, "no thread");
        site_close(t, &s);
        return;
    }
    for (int round = 0; round < ROUNDS; round++) {
        struct site brief = {0};
        int bad = site_open(t, &brief, 24 + (uint64_t)round) ||
                  work_queue(t, &brief.work, brief.kernels, brief.stream);
        kvk_stream stream = brief.stream;
        brief.stream = NULL; /* closed with work on its stream */
        site_close(t, &brief);
        stream_free(t, stream);
        if (bad)
            break;
    }
    __atomic_store_n(&o.stop, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    site_close(t, &s);
}
