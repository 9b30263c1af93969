/* SPDX-License-Identifier: Apache-2.0 */
/* test_joins.c - how the splits of a decode are joined: by whom, in how many launches. */
#include "rt.h"

#include "../../runtime/abi.h"

#include <string.h>

enum { G = 2 };

static struct fake *fake;
static kvk_context *ctx;

static int setup(void **state)
{
    (void)state;
    rt_generator_reset();
    fake = rt_fake("libcuda.so.1");
    ctx = rt_open(NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    kvk_close(ctx);
    return 0;
}

static const struct fake_launch *last(int back)
{
    assert_true(fake->launches > back);
    return &fake->launch[(fake->launches - 1 - back) % FAKE_LAUNCHES];
}

/* Where the kernels can, and each sequence has few splits on the average: no second launch. */
static void few_splits_are_joined_by_one_launch(void **state)
{
    (void)state;
    static const struct {
        int64_t sequences;
        int slots, joined;
    } calls[] = {{60, 792, 1}, {49, 792, 0}, {396, 792, 1}, {397, 397, 0}};
    struct kvk_model model = rt_model();
    const kvk_kernels *kernels;
    model.head_size = 64;
    rt_generator.extra = "neighbours 1";
    assert_int_equal(kvk_prepare(ctx, &model, &kernels, NULL), KVK_OK);
    rt_generator.extra = NULL;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct kvk_decode_args a = rt_decode_args();
        struct kvk_limits limits = KVK_INIT(struct kvk_limits);
        struct abi_decode p;
        int before = fake->launches, split = calls[i].slots > calls[i].sequences;
        a.sequences = limits.sequences = calls[i].sequences;
        a.max_context = 1 << 20;
        a.workspace_bytes = kvk_workspace_bytes(kernels, &limits);
        assert_int_equal(kvk_decode(kernels, &a, NULL, NULL), KVK_OK);
        assert_int_equal(fake->launches - before, split && !calls[i].joined ? 2 : 1);
        memcpy(&p, last(split && !calls[i].joined)->params, sizeof p);
        assert_int_equal(p.spread, split ? calls[i].slots : 0);
        assert_int_equal(!!p.arrivals, calls[i].joined);
        assert_int_equal(!!p.map, split && !calls[i].joined);
        uintptr_t end = (uintptr_t)a.workspace + a.workspace_bytes;
        assert_true(!calls[i].joined || p.arrivals + 8 * G * (uintptr_t)calls[i].sequences <= end);
    }
}

/* Two splits on the average: CTAs in clusters of two, where the device then holds no fewer. */
static void two_splits_are_launched_in_pairs(void **state)
{
    (void)state;
    static const struct {
        int64_t sequences;
        int clusters, pairs, slots; /* 132 SMs * 4 CTAs, over 2 heads */
    } calls[] = {{132, 264, 1, 264},
                 {121, 264, 1, 264},
                 {132, 263, 0, 264},
                 {88, 264, 0, 264},
                 {133, 264, 0, 133}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct kvk_model model = rt_model();
        struct kvk_decode_args a = rt_decode_args();
        struct kvk_limits limits = KVK_INIT(struct kvk_limits);
        struct kvk_options options = KVK_INIT(struct kvk_options);
        struct abi_decode p;
        const kvk_kernels *kernels;
        kvk_context *own;
        options.device = "cuda:0";
        options.cache_dir = "";
        fake->clusters = calls[i].clusters;
        assert_int_equal(kvk_open(&options, &own, NULL), KVK_OK);
        rt_generator.extra = "neighbours 2\n" RT_IMAGES("1", "0");
        assert_int_equal(kvk_prepare(own, &model, &kernels, NULL), KVK_OK);
        rt_generator.extra = NULL;
        a.sequences = limits.sequences = calls[i].sequences;
        a.max_context = 1 << 20;
        a.workspace_bytes = kvk_workspace_bytes(kernels, &limits);
        int before = fake->launches;
        assert_int_equal(kvk_decode(kernels, &a, NULL, NULL), KVK_OK);
        const struct fake_launch *decode = last(fake->launches - before - 1);
        memcpy(&p, decode->params, sizeof p);
        assert_int_equal(decode->cluster, calls[i].pairs ? 2 : 0);
        assert_int_equal(p.cluster_log, calls[i].pairs);
        assert_int_equal(decode->grid, G * calls[i].slots);
        assert_true(!calls[i].pairs || (p.arrivals && !p.map && fake->launches == before + 1));
        kvk_close(own);
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    rt_with_fakes(argv);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(few_splits_are_joined_by_one_launch),
        TEST(two_splits_are_launched_in_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
