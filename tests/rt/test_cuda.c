/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA driver: which devices are taken, and what is said of others. Failing calls: test_drivers.c. */
#include "rt.h"

#include "faults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct fake *fake;

static int setup(void **state)
{
    (void)state;
    rt_generator_reset();
    fake = rt_fake("libcuda.so.1");
    return 0;
}

static void out_of_memory_has_its_own_status(void **state)
{
    (void)state;
    kvk_context *ctx = rt_open(NULL);
    kvk_error err;
    void *memory;
    fake->fail_at = fake->calls + 3; /* current, push, alloc */
    fake->fail_code = 2;
    assert_int_equal(kvk_alloc(ctx, 100, &memory, &err), KVK_E_MEMORY);
    assert_int_equal(err.driver, 2);
    assert_string_equal(fake->failed, "cuMemAlloc_v2");
    kvk_close(ctx);
}

static void targets_follow_compute_capability(void **state)
{
    (void)state;
    static const struct {
        int major, minor;
        const char *target;
    } cases[] = {
        {8, 0, "sm_80"},    {8, 6, "sm_86"},    {8, 7, "sm_86"},    {8, 9, "sm_89"},
        {9, 0, "sm_90a"},   {10, 0, "sm_100a"}, {10, 3, "sm_103a"}, {12, 0, "sm_120a"},
        {12, 1, "sm_121a"}, {7, 5, NULL},       {9, 1, NULL},       {10, 1, NULL},
        {11, 0, NULL},      {13, 0, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct driver_device_info info;
        kvk_error err;
        void *device;
        fake->major = cases[i].major;
        fake->minor = cases[i].minor;
        kvk_status status = driver_cuda.open(0, &device, &info, &err);
        assert_int_equal(status, cases[i].target ? KVK_OK : KVK_E_DEVICE);
        if (status) {
            assert_non_null(strstr(err.text, "compute capability"));
            continue;
        }
        assert_string_equal(info.target, cases[i].target);
        assert_string_equal(info.name, "Fake GPU 0");
        assert_int_equal(info.multiprocessors, 132);
        driver_cuda.close(device);
    }
    assert_int_equal(fake->live, 0);
}

static kvk_status try_open(const char *device, char reason[512], char name[32])
{
    struct kvk_options options = KVK_INIT(struct kvk_options);
    struct kvk_device_info info = KVK_INIT(struct kvk_device_info);
    kvk_context *ctx;
    kvk_error err = {0};
    options.device = device;
    options.cache_dir = "";
    kvk_status status = kvk_open(&options, &ctx, &err);
    snprintf(reason, 512, "%s", err.text);
    if (status)
        return status;
    assert_int_equal(kvk_device(ctx, &info, NULL), KVK_OK);
    snprintf(reason, 512, "%s", info.reason);
    snprintf(name, 32, "%s", info.device);
    kvk_close(ctx);
    return KVK_OK;
}

static void auto_takes_the_first_usable_device(void **state)
{
    (void)state;
    char reason[512], name[32];
    rt_fake("libamdhip64.so.6")->devices = 0;
    assert_int_equal(try_open(NULL, reason, name), KVK_OK);
    assert_string_equal(name, "cuda:0");
    assert_non_null(strstr(reason, "first usable cuda device"));
    fake->major = 7; /* there, but too old */
    assert_int_equal(try_open("auto", reason, name), KVK_OK);
    assert_string_equal(name, "host");
    assert_non_null(strstr(reason, "not cuda: compute capability 7.0"));
    assert_non_null(strstr(reason, "not hip: no AMD GPU"));
    fake->devices = 0;
    assert_int_equal(try_open("auto", reason, name), KVK_OK);
    assert_string_equal(name, "host");
    fake->devices = -1; /* cuInit: no device */
    assert_int_equal(try_open("auto", reason, name), KVK_OK);
    assert_non_null(strstr(reason, "no NVIDIA GPU"));
}

static void named_devices_are_never_replaced(void **state)
{
    (void)state;
    static const char *const unknown[] = {"cuda:", "cuda:x", "cuda:-1", "cuda:1x",         "gpu",
                                          "",      "cud",    "cuda0",   "cuda:99999999999"};
    char reason[512], name[32];
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        assert_int_equal(try_open(unknown[i], reason, name), KVK_E_ARG);
        assert_non_null(strstr(reason, "accepted"));
    }
    assert_int_equal(try_open("cuda:2", reason, name), KVK_E_DEVICE);
    assert_non_null(strstr(reason, "there are 2 cuda devices"));
    fake->major = 7;
    assert_int_equal(try_open("cuda:0", reason, name), KVK_E_DEVICE);
    fake->devices = -1;
    assert_int_equal(try_open("cuda", reason, name), KVK_E_DEVICE);
    assert_non_null(strstr(reason, "no NVIDIA GPU"));
    assert_int_equal(try_open("host", reason, name), KVK_OK);
    assert_string_equal(reason, "named by the caller");
}

/* ---- launches that overlap ---- */

/* What the last store's launch on `stream` was allowed. -1: kvk_open refuses. */
static int overlaps(int option, kvk_stream stream)
{
    struct kvk_options options = KVK_INIT(struct kvk_options);
    kvk_context *ctx;
    kvk_error err = {0};
    options.device = "cuda:0";
    options.cache_dir = "";
    options.overlap_launches = option;
    if (kvk_open(&options, &ctx, &err))
        return strstr(err.text, "accepted") ? -1 : -2;
    rt_store(ctx, stream);
    int found = fake->launch[(fake->launches - 1) % FAKE_LAUNCHES].overlaps;
    assert_ptr_equal(fake->launch[(fake->launches - 1) % FAKE_LAUNCHES].stream, stream);
    kvk_close(ctx);
    return found;
}

static void launches_overlap_where_asked_and_legal(void **state)
{
    (void)state;
    char memory;
    kvk_stream stream = &memory;
    rt_generator.extra = "grid_wait 1";
    unsetenv("KVKILN_OVERLAP");
    assert_int_equal(overlaps(0, stream), 0); /* off, unless asked for */
    assert_int_equal(overlaps(1, stream), 1);
    assert_int_equal(overlaps(2, stream), 0);
    assert_int_equal(overlaps(1, NULL), 0); /* default streams */
    assert_int_equal(overlaps(1, (kvk_stream)1), 0);
    assert_int_equal(overlaps(1, (kvk_stream)2), 0);
    fake->version = 12020; /* its graphs would refuse them */
    assert_int_equal(overlaps(1, stream), 0);
    fake->version = 12030;
    assert_int_equal(overlaps(1, stream), 1);
    faults.missing = "cuLaunchKernelEx";
    assert_int_equal(overlaps(1, stream), 0);
    faults.missing = NULL;
    rt_generator.extra = NULL; /* kernels that do not wait */
    assert_int_equal(overlaps(1, stream), 0);
    rt_generator.extra = "grid_wait 0";
    assert_int_equal(overlaps(1, stream), 0);
    rt_generator.extra = NULL;
}

static void the_environment_asks_for_overlap(void **state)
{
    (void)state;
    char memory;
    kvk_stream stream = &memory;
    rt_generator.extra = "grid_wait 1";
    setenv("KVKILN_OVERLAP", "1", 1);
    assert_int_equal(overlaps(0, stream), 1);
    assert_int_equal(overlaps(2, stream), 0); /* the program has the last word */
    setenv("KVKILN_OVERLAP", "2", 1);
    assert_int_equal(overlaps(0, stream), 0);
    assert_int_equal(overlaps(1, stream), 1);
    setenv("KVKILN_OVERLAP", "", 1);
    assert_int_equal(overlaps(0, stream), 0);
    setenv("KVKILN_OVERLAP", "yes", 1);
    assert_int_equal(overlaps(0, stream), -1);
    assert_int_equal(overlaps(1, stream), 1); /* not looked at */
    unsetenv("KVKILN_OVERLAP");
    assert_int_equal(overlaps(3, stream), -1);
    assert_int_equal(overlaps(-1, stream), -1);
    rt_generator.extra = NULL;
}

static void overlapping_launches_may_fail(void **state)
{
    (void)state;
    static char name[] = "kernel", memory[64];
    const struct driver_entry entry = {.function = name, .threads = 32, .overlaps = 1};
    const struct driver_grid one = {.ctas = 1};
    struct driver_device_info info;
    kvk_error err = {0};
    void *device;
    assert_int_equal(driver_cuda.open(0, &device, &info, &err), KVK_OK);
    fake->fail_at = fake->calls + 3; /* current, push, launch */
    assert_int_equal(driver_cuda.launch(device, &entry, one, memory, 8, memory, &err),
                     KVK_E_DRIVER);
    assert_string_equal(fake->failed, "cuLaunchKernelEx");
    assert_non_null(strstr(err.text, "cuLaunchKernelEx"));
    assert_int_equal(fake->depth, 0);
    assert_int_equal(driver_cuda.launch(device, &entry, one, memory, 8, memory, &err), KVK_OK);
    driver_cuda.close(device);
    assert_int_equal(fake->live, 0);
}

int main(int argc, char **argv)
{
    (void)argc;
    rt_with_fakes(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(out_of_memory_has_its_own_status, setup),
        cmocka_unit_test_setup(targets_follow_compute_capability, setup),
        cmocka_unit_test_setup(auto_takes_the_first_usable_device, setup),
        cmocka_unit_test_setup(named_devices_are_never_replaced, setup),
        cmocka_unit_test_setup(launches_overlap_where_asked_and_legal, setup),
        cmocka_unit_test_setup(the_environment_asks_for_overlap, setup),
        cmocka_unit_test_setup(overlapping_launches_may_fail, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
