/* SPDX-License-Identifier: Apache-2.0 */
/* The bench's captured graphs and copies over a driver library that fails on demand. */
#include "rt.h"

#include "../../cli/bench_copy.c"
#include "../../cli/bench_graph.c"
#include "../../cli/bench_time.c"

#include <time.h>

int device_is_host(const struct device *d) { return !strncmp(d->info.device, "host", 4); }

struct calls {
    long count, last, fail_at;
    kvk_stream stream;
};

static kvk_status body(void *data, long i, kvk_stream stream, kvk_error *err)
{
    struct calls *calls = data;
    assert_int_equal(i, calls->count++);
    assert_non_null(stream);
    calls->stream = stream;
    if (i != calls->fail_at)
        return KVK_OK;
    err->status = KVK_E_SHAPE;
    return KVK_E_SHAPE;
}

/* Inside kvk_time, where the runtime has entered the context: as the bench calls it. */
static kvk_status launch(void *data, kvk_stream stream, kvk_error *err)
{
    return bench_graph_launch(data, stream, err);
}

static struct fake *fake;
static struct device device;
static kvk_context *ctx;

static int setup(void **state)
{
    (void)state;
    fake = rt_fake("libcuda.so.1");
    rt_generator_reset();
    ctx = rt_open(NULL);
    device.ctx = ctx;
    device.info = KVK_INIT(struct kvk_device_info);
    return kvk_device(ctx, &device.info, NULL) != KVK_OK;
}

static int teardown(void **state)
{
    (void)state;
    kvk_close(ctx);
    return 0;
}

static void launches_are_captured_once_and_replayed(void **state)
{
    (void)state;
    struct calls calls = {.fail_at = -1};
    struct bench_unit unit = {&device, body, &calls, 3, NULL};
    kvk_error err = {0};
    double ms = 0;
    long before = fake->live;
    assert_int_equal(bench_graph_capture(&unit, &err), KVK_OK);
    assert_non_null(unit.graph);
    assert_int_equal(calls.count, 3);
    for (int i = 0; i < 2; i++)
        assert_int_equal(kvk_time(ctx, launch, unit.graph, &ms, &err), KVK_OK);
    assert_int_equal(calls.count, 3);
    assert_true(ms > 0);
    bench_graph_free(unit.graph);
    assert_int_equal(fake->live, before);
    assert_int_equal(fake->depth, 0);
    assert_int_equal(fake->unentered, 0);
}

static void a_launch_that_fails_ends_the_capture(void **state)
{
    (void)state;
    struct calls calls = {.fail_at = 1};
    struct bench_unit unit = {&device, body, &calls, 3, NULL};
    kvk_error err = {0};
    long before = fake->live;
    assert_int_equal(bench_graph_capture(&unit, &err), KVK_E_SHAPE);
    assert_null(unit.graph);
    assert_int_equal(calls.count, 2);
    assert_int_equal(fake->live, before);
    assert_int_equal(fake->depth, 0);
}

static void every_call_may_fail(void **state)
{
    (void)state;
    int n = 1, failed = 0;
    for (int done = 0; !done; n++) {
        struct calls calls = {.fail_at = -1};
        struct bench_unit unit = {&device, body, &calls, 2, NULL};
        kvk_error err = {0};
        long before = fake->live;
        fake->calls = 0;
        fake->fail_at = n;
        fake->failed = NULL;
        kvk_status status = bench_graph_capture(&unit, &err);
        done = !fake->failed;
        fake->fail_at = 0;
        if (status) {
            assert_int_equal(status, KVK_E_DRIVER);
            assert_int_equal(err.driver, 999);
            assert_non_null(strstr(err.text, "CUDA error 999"));
            assert_null(unit.graph);
            failed++;
        }
        bench_graph_free(unit.graph);
        assert_int_equal(fake->live, before);
        assert_int_equal(fake->depth, 0);
        assert_true(n < 100);
    }
    assert_true(failed >= 6);
}

static void only_cuda_has_graphs(void **state)
{
    (void)state;
    struct calls calls = {.fail_at = -1};
    struct bench_unit unit = {&device, body, &calls, 2, NULL};
    kvk_error err = {0};
    device.info.device = "hip:0";
    assert_int_equal(bench_graph_capture(&unit, &err), KVK_OK);
    assert_null(unit.graph);
    assert_int_equal(calls.count, 0);
}

static kvk_status nothing(void *data, long i, kvk_stream stream, kvk_error *err)
{
    (void)data, (void)i, (void)stream, (void)err;
    return KVK_OK;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* With rests of three times a unit's length; a device without graphs is timed once. */
static void graphs_are_timed_with_and_without_rests(void **state)
{
    (void)state;
    struct calls calls = {.fail_at = -1};
    struct bench_unit unit = {&device, body, &calls, 2, NULL};
    struct bench_times t;
    kvk_error err = {0};
    double begun = now_ms();
    int both = fake->calls, one;
    assert_int_equal(bench_unit_times(&unit, 3, &t, &err), KVK_OK);
    both = fake->calls - both;
    assert_true(t.graph && t.sustained > 0 && t.low > 0 && t.low <= t.median && t.median <= t.high);
    assert_true(now_ms() - begun >= 3 * 3 * t.low * (double)t.launches);
    calls.count = 0;
    begun = now_ms();
    assert_int_equal(bench_unit_paced(&unit, 3, BENCH_RESTED, &t, &err), KVK_OK);
    assert_true(t.graph && t.sustained == 0 && t.low > 0 && t.repeats == 3);
    assert_true(now_ms() - begun >= 3 * 3 * t.low * (double)t.launches);
    calls.count = 0;
    one = fake->calls;
    assert_int_equal(bench_unit_paced(&unit, 3, BENCH_AT_ONCE, &t, &err), KVK_OK);
    assert_true(t.graph && t.sustained > 0 && t.sustained == t.median);
    one = fake->calls - one; /* by one way alone: four units instead of eight */
    assert_true(one > 0 && one < both);
    device.info.device = "hip:0";
    unit.body = nothing;
    assert_int_equal(bench_unit_times(&unit, 3, &t, &err), KVK_OK);
    assert_true(!t.graph && t.sustained == 0 && t.median > 0);
}

/* The fake runs no kernel: the one that copied nothing must not count, whatever its time was. */
static void a_copy_kernel_that_copies_nothing_is_not_counted(void **state)
{
    (void)state;
    kvk_error err = {0};
    double gbs = 0;
    long before = fake->live;
    assert_int_equal(fastest_copy(&device, 1 << 20, &gbs, &err), KVK_OK);
    assert_true(gbs > 0);
    assert_int_equal(fake->launches, 1 + LAUNCHES); /* one to load it, a captured unit */
    assert_string_equal(fake->launch[0].function, "copy");
    assert_int_equal(fake->launch[0].grid, (1 << 20) / 16 / 256);
    assert_int_equal(fake->launch[0].bytes, 24);
    assert_int_equal(fake->live, before + 1); /* the module stays */
    assert_int_equal(fake->unentered, 0);
}

int main(int argc, char **argv)
{
    (void)argc;
    rt_with_fakes(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(launches_are_captured_once_and_replayed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_launch_that_fails_ends_the_capture, setup, teardown),
        cmocka_unit_test_setup_teardown(every_call_may_fail, setup, teardown),
        cmocka_unit_test_setup_teardown(a_copy_kernel_that_copies_nothing_is_not_counted, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(only_cuda_has_graphs, setup, teardown),
        cmocka_unit_test_setup_teardown(graphs_are_timed_with_and_without_rests, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
