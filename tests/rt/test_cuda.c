/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA driver: which devices are taken, and what is said of others. Failing calls: test_drivers.c. */
#include "rt.h"

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

int main(int argc, char **argv)
{
    (void)argc;
    rt_with_fakes(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(out_of_memory_has_its_own_status, setup),
        cmocka_unit_test_setup(targets_follow_compute_capability, setup),
        cmocka_unit_test_setup(auto_takes_the_first_usable_device, setup),
        cmocka_unit_test_setup(named_devices_are_never_replaced, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
