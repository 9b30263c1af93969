/* SPDX-License-Identifier: Apache-2.0 */
/* Progress and cancelling of kvk_prepare, and how many compiles run at a time. Clean under a thread sanitizer. */
#include "rt.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a callback saw. Callbacks of one context may run on several threads: the calling ones. */
struct seen {
    _Atomic pthread_t caller; /* reports on other threads are not counted */
    int reports, beats, done, total, wrong;
    _Atomic int cancel_at; /* cancels when so many are done; -1: at the first beat; 0: never */
    _Atomic int elsewhere;
    char kinds[256], origins[256];
};

static int see(void *data, const struct kvk_progress *p)
{
    struct seen *s = data;
    if (!pthread_equal(pthread_self(), s->caller)) {
        s->elsewhere++;
        return 0;
    }
    if (p->kind) {
        s->reports++;
        snprintf(s->kinds + strlen(s->kinds), sizeof s->kinds - strlen(s->kinds), "%s ", p->kind);
        snprintf(s->origins + strlen(s->origins), sizeof s->origins - strlen(s->origins), "%s ",
                 p->origin ? p->origin : "failed");
    } else {
        s->beats++;
    }
    s->wrong += p->size != sizeof *p || p->done < s->done || p->done > p->total || p->ms < 0;
    s->done = p->done;
    s->total = p->total;
    return s->cancel_at < 0 ? !p->kind : s->cancel_at && p->done >= s->cancel_at;
}

static int setup(void **state)
{
    (void)state;
    rt_generator_reset();
    rt_fake("libcuda.so.1");
    return 0;
}

static kvk_context *open_seen(struct seen *seen, int threads, const char *cache)
{
    struct kvk_options o = KVK_INIT(struct kvk_options);
    kvk_context *ctx;
    seen->caller = pthread_self();
    o.device = "cuda:0";
    o.cache_dir = cache ? cache : "";
    o.prepare_threads = threads;
    o.progress = see;
    o.progress_data = seen;
    assert_int_equal(kvk_open(&o, &ctx, NULL), KVK_OK);
    return ctx;
}

static int words(const char *text, const char *word)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        count++;
    return count;
}

static void every_kernel_is_reported(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct kvk_model model = rt_model();
    const kvk_kernels *k;
    char *dir = rt_folder();
    kvk_context *ctx = open_seen(&seen, 0, dir);
    assert_int_equal(kvk_prepare(ctx, &model, &k, NULL), KVK_OK);
    assert_int_equal(seen.reports, KIND_SERVING);
    assert_int_equal(seen.done, KIND_SERVING);
    assert_int_equal(seen.total, KIND_SERVING);
    assert_int_equal(seen.wrong + seen.elsewhere, 0);
    assert_int_equal(words(seen.origins, "compiled"), KIND_SERVING);
    assert_int_equal(words(seen.kinds, "unified"), 1);
    model.kinds = KVK_STORE | KVK_DECODE; /* another set of kernels that are there */
    seen = (struct seen){.caller = pthread_self()};
    assert_int_equal(kvk_prepare(ctx, &model, &k, NULL), KVK_OK);
    assert_int_equal(words(seen.origins, "memory"), 3); /* merge joins the splits of decode */
    kvk_close(ctx);
    seen = (struct seen){0};
    ctx = open_seen(&seen, 0, dir);
    assert_int_equal(kvk_prepare(ctx, &model, &k, NULL), KVK_OK);
    assert_int_equal(words(seen.origins, "cache"), 3);
    assert_int_equal(seen.total, 3);
    kvk_close(ctx);
    rt_remove(dir);
}

static void slow_compiles_are_accompanied(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct kvk_model model = rt_model();
    const kvk_kernels *k;
    model.kinds = KVK_STORE;
    rt_generator.delay_ms = 600;
    kvk_context *ctx = open_seen(&seen, 0, NULL);
    assert_int_equal(kvk_prepare(ctx, &model, &k, NULL), KVK_OK);
    assert_true(seen.beats >= 3); /* about 11 on a machine that is not busy */
    assert_int_equal(seen.wrong, 0);
    kvk_close(ctx);
}

static void failures_are_reported(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct kvk_model model = rt_model();
    const kvk_kernels *k;
    rt_generator.fail = KVK_E_COMPILE;
    rt_generator.fail_kind = 'd'; /* decode, dequant */
    kvk_context *ctx = open_seen(&seen, 0, NULL);
    assert_int_equal(kvk_prepare(ctx, &model, &k, NULL), KVK_E_COMPILE);
    assert_int_equal(words(seen.origins, "failed"), 2);
    assert_int_equal(seen.done, KIND_SERVING);
    kvk_close(ctx);
}

static void cancelling_loses_nothing(void **state)
{
    (void)state;
    struct kvk_model model = rt_model();
    const kvk_kernels *k;
    for (int at = 1; at <= KIND_SERVING; at++) {
        struct seen seen = {.cancel_at = at};
        kvk_error err = {0};
        char *dir = rt_folder();
        rt_generator.compiles = 0;
        kvk_context *ctx = open_seen(&seen, 1, dir);
        kvk_status status = kvk_prepare(ctx, &model, &k, &err);
        int made = rt_generator.compiles;
        assert_true(made >= at && made <= KIND_SERVING);
        assert_int_equal(rt_count(dir, ".kvko"), made);
        if (made < KIND_SERVING) {
            assert_int_equal(status, KVK_E_CANCELLED);
            assert_null(k);
            assert_non_null(strstr(err.text, "the progress callback asked to stop"));
        } else {
            assert_int_equal(status, KVK_OK); /* nothing was left to cancel */
        }
        assert_int_equal(seen.reports, at); /* who asked to stop is not asked again */
        seen.cancel_at = 0;
        assert_int_equal(kvk_prepare(ctx, &model, &k, NULL), KVK_OK);
        assert_int_equal(rt_generator.compiles, KIND_SERVING);
        kvk_close(ctx);
        rt_remove(dir);
    }
}

static void cancelling_waits_for_what_runs(void **state)
{
    (void)state;
    struct seen seen = {.cancel_at = -1};
    struct kvk_model model = rt_model();
    const kvk_kernels *k;
    rt_generator.delay_ms = 300;
    kvk_context *ctx = open_seen(&seen, 2, NULL);
    assert_int_equal(kvk_prepare(ctx, &model, &k, NULL), KVK_E_CANCELLED);
    assert_int_equal(rt_generator.running, 0);
    assert_true(rt_generator.compiles < KIND_SERVING);
    kvk_close(ctx); /* at once: nothing is left behind */
}

/* ---- two prepares ---- */

struct other {
    kvk_context *ctx;
    struct kvk_model model;
    kvk_status status;
};

static void *prepare_other(void *data)
{
    struct other *o = data;
    const kvk_kernels *k;
    o->status = kvk_prepare(o->ctx, &o->model, &k, NULL);
    return NULL;
}

/* One claims all kernels and gives up; the other, which waited for them, makes them. */
static void who_waited_for_a_cancelled_one_goes_on(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct kvk_model model = rt_model();
    const kvk_kernels *k;
    pthread_t thread;
    rt_generator.delay_ms = 200;
    kvk_context *ctx = open_seen(&seen, 1, NULL);
    struct other other = {.ctx = ctx, .model = model};
    assert_int_equal(pthread_create(&thread, NULL, prepare_other, &other), 0);
    while (!rt_generator.running)
        usleep(1000);
    /* the other one has claimed: it is cancelled when it is asked for the first time */
    seen.cancel_at = -1;
    seen.caller = thread;
    assert_int_equal(kvk_prepare(ctx, &model, &k, NULL), KVK_OK);
    pthread_join(thread, NULL);
    assert_int_equal(other.status, KVK_E_CANCELLED);
    assert_int_equal(rt_generator.compiles, KIND_SERVING);
    kvk_close(ctx);
}

/* And who only waits can give up at once. */
static void waiting_can_be_cancelled(void **state)
{
    (void)state;
    struct seen seen = {.cancel_at = -1};
    struct kvk_model model = rt_model();
    const kvk_kernels *k;
    pthread_t thread;
    model.kinds = KVK_STORE;
    rt_generator.delay_ms = 1500;
    kvk_context *ctx = open_seen(&seen, 1, NULL);
    struct other other = {.ctx = ctx, .model = model};
    assert_int_equal(pthread_create(&thread, NULL, prepare_other, &other), 0);
    while (!rt_generator.running)
        usleep(1000);
    assert_int_equal(kvk_prepare(ctx, &model, &k, NULL), KVK_E_CANCELLED);
    assert_int_equal(rt_generator.running, 1); /* the other compile still runs */
    assert_int_equal(seen.beats, 1);           /* who asked to stop is not asked again */
    assert_int_equal(seen.reports, 0);
    pthread_join(thread, NULL);
    assert_int_equal(other.status, KVK_OK);
    assert_int_equal(rt_generator.compiles, 1);
    kvk_close(ctx);
}

static void threads_bound_compiles(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 6, 64};
    struct kvk_model model = rt_model();
    const kvk_kernels *k;
    rt_generator.delay_ms = 100;
    for (int i = 0; i < 4; i++) {
        struct seen seen = {0};
        rt_generator.most_running = 0;
        kvk_context *ctx = open_seen(&seen, counts[i], NULL);
        assert_int_equal(kvk_prepare(ctx, &model, &k, NULL), KVK_OK);
        assert_true(rt_generator.most_running <= counts[i]);
        assert_true(rt_generator.most_running >= (counts[i] > 1 ? 2 : 1));
        kvk_close(ctx);
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    rt_with_fakes(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_kernel_is_reported, setup),
        cmocka_unit_test_setup(slow_compiles_are_accompanied, setup),
        cmocka_unit_test_setup(failures_are_reported, setup),
        cmocka_unit_test_setup(cancelling_loses_nothing, setup),
        cmocka_unit_test_setup(cancelling_waits_for_what_runs, setup),
        cmocka_unit_test_setup(who_waited_for_a_cancelled_one_goes_on, setup),
        cmocka_unit_test_setup(waiting_can_be_cancelled, setup),
        cmocka_unit_test_setup(threads_bound_compiles, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
