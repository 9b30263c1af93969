/* SPDX-License-Identifier: Apache-2.0 */
/*
** Drivers that fail: every call of a whole life fails once, a device is lost at every call, memory
** runs out while code is loaded, symbols are missing. The same for CUDA and HIP.
*/
#include "rt.h"

#include "faults.h"

static const char *topology; /* of a folder of ours: hip:1 is a gfx942 */
#define HIP_TOPOLOGY_FOLDER topology
#include "../../runtime/driver_hip.c" /* instead of the library's */

struct vendor {
    const char *device, *soname, *name;
    const char *load; /* its call that loads code */
    const char *enter;
};

static const struct vendor vendors[] = {
    {"cuda:1", "libcuda.so.1", "NVIDIA", "cuModuleLoadDataEx", "cuCtxPushCurrent_v2"},
    {"hip:1", "libamdhip64.so.6", "HIP", "hipModuleLoadData", "hipSetDevice"},
};
enum { VENDORS = sizeof vendors / sizeof *vendors };

static int setup(void **state)
{
    (void)state;
    topology = rt_topology();
    rt_generator_reset();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    char *folder;
    memcpy(&folder, &topology, sizeof folder);
    rt_remove(folder);
    faults.missing = NULL;
    return 0;
}

/* ---- each call once ---- */

static void check_failure(const struct vendor *v, const struct fake *fake, kvk_status status,
                          const kvk_error *err)
{
    /* what cannot enter the device cannot free there either */
    if (strcmp(fake->failed, v->enter) != 0)
        assert_int_equal(fake->live, 0);
    assert_int_equal(fake->depth, 0);
    if (status == KVK_OK) /* clean-up, or a question whose answer may stay unknown */
        return;
    assert_int_equal(fake->unentered, 0);
    assert_int_equal(err->status, status);
    assert_int_equal(err->driver, 999);
    if (!strstr(err->text, fake->failed))
        fail_msg("%s failed, but the text is: %s", fake->failed, err->text);
}

static void calls_may_fail(const struct vendor *v)
{
    kvk_error err = {0};
    struct fake *fake = rt_fake(v->soname);
    kvk_status status = rt_life(v->device, NULL, &err);
    if (status)
        fail_msg("%s", err.text);
    assert_int_equal(fake->live, 0);
    assert_int_equal(fake->unentered, 0);
    assert_int_equal(fake->launches, KIND_SERVING + 1); /* and decode's reduction */
    assert_int_equal(fake->torn, 0);
    assert_int_equal(fake->strict, 0); /* code is loaded whatever is being captured */
    assert_int_equal(fake->mode, 0);
    int calls = fake->calls, failures = 0;
    for (int n = 1; n <= calls; n++) {
        fake = rt_fake(v->soname);
        fake->fail_at = n;
        memset(&err, 0, sizeof err);
        status = rt_life(v->device, NULL, &err);
        check_failure(v, fake, status, &err);
        failures += status != KVK_OK;
    }
    assert_true(failures > calls / 4); /* the others: cleaning up, or a question */
}

static void every_call_may_fail(void **state)
{
    (void)state;
    for (int i = 0; i < VENDORS; i++)
        calls_may_fail(&vendors[i]);
}

/* ---- a device that is gone ---- */

static void lost_devices_are_errors(void **state)
{
    (void)state;
    for (int i = 0; i < VENDORS; i++) {
        const struct vendor *v = &vendors[i];
        kvk_error err = {0};
        struct fake *fake = rt_fake(v->soname);
        assert_int_equal(rt_life(v->device, NULL, &err), KVK_OK);
        int last = 0;
        for (int calls = fake->calls, n = 1; n <= calls; n++) {
            fake = rt_fake(v->soname);
            fake->fail_from = n;
            fake->fail_code = 719;
            memset(&err, 0, sizeof err);
            kvk_status status = rt_life(v->device, NULL, &err);
            assert_true(status == KVK_E_DRIVER || status == KVK_E_DEVICE || status == KVK_OK);
            assert_true(status || n > last); /* only while closing does nobody notice */
            last = status ? n : last;
            if (status) {
                assert_int_equal(err.driver, 719);
                assert_non_null(strstr(err.text, "719"));
            }
        }
        assert_true(last > 40);
    }
}

/* ---- loading code ---- */

static void no_memory_for_code_is_not_remembered(void **state)
{
    (void)state;
    for (int i = 0; i < VENDORS; i++) {
        struct kvk_options options = KVK_INIT(struct kvk_options);
        struct kvk_model model = rt_model();
        struct fake *fake = rt_fake(vendors[i].soname);
        const kvk_kernels *k;
        kvk_context *ctx;
        kvk_error err = {0};
        options.device = vendors[i].device;
        options.cache_dir = "";
        rt_generator_reset();
        assert_int_equal(kvk_open(&options, &ctx, &err), KVK_OK);
        model.kinds = KVK_STORE;
        fake->refuse_cubin = fake->refuse_ptx = 2;
        assert_int_equal(kvk_prepare(ctx, &model, &k, &err), KVK_E_MEMORY);
        assert_int_equal(err.driver, 2);
        assert_non_null(strstr(err.text, vendors[i].load));
        assert_int_equal(rt_generator.compiles, 1); /* other code would not help */
        fake->refuse_cubin = fake->refuse_ptx = 0;
        assert_int_equal(kvk_prepare(ctx, &model, &k, &err), KVK_OK);
        kvk_close(ctx);
        assert_int_equal(fake->live, 0);
    }
}

/* ---- closing under load ---- */

static void closing_waits_for_what_is_queued(void **state)
{
    (void)state;
    for (int i = 0; i < VENDORS; i++) {
        struct kvk_options options = KVK_INIT(struct kvk_options);
        struct fake *fake = rt_fake(vendors[i].soname);
        kvk_context *ctx;
        kvk_error err = {0};
        options.device = vendors[i].device;
        options.cache_dir = "";
        assert_int_equal(kvk_open(&options, &ctx, &err), KVK_OK);
        rt_store(ctx, NULL);
        assert_int_equal(fake->queued, 1);
        kvk_close(ctx);
        assert_int_equal(fake->queued, 0);
        assert_int_equal(fake->torn, 0);
        assert_int_equal(fake->live, 0);
    }
}

/* ---- libraries of another age ---- */

static void missing(const struct vendor *v, const char *symbol)
{
    struct kvk_options options = KVK_INIT(struct kvk_options);
    char text[64];
    kvk_context *ctx;
    kvk_error err = {0};
    options.device = v->device;
    faults.missing = symbol;
    assert_int_equal(kvk_open(&options, &ctx, &err), KVK_E_DEVICE);
    faults.missing = NULL;
    snprintf(text, sizeof text, "is too old: it has no %s", symbol);
    if (!strstr(err.text, text) || !strstr(err.text, v->name))
        fail_msg("%s is missing, but the text is: %s", symbol, err.text);
}

static void missing_symbols_are_named(void **state)
{
    (void)state;
#define FN(name, symbol, parameters) missing(&vendors[0], symbol);
#include "../../runtime/cuda_fn.def"
#undef FN
#define FN(name, symbol, parameters) missing(&vendors[1], symbol);
#include "../../runtime/hip_fn.def"
#undef FN
}

static void missing_libraries_are_said(void **state)
{
    (void)state;
    static const char *const texts[] = {"no NVIDIA driver", "no HIP runtime"};
    for (int i = 0; i < VENDORS; i++) {
        struct kvk_options options = KVK_INIT(struct kvk_options);
        kvk_context *ctx;
        kvk_error err = {0};
        options.device = vendors[i].device;
        faults.missing = "dlopen";
        assert_int_equal(kvk_open(&options, &ctx, &err), KVK_E_DEVICE);
        faults.missing = NULL;
        assert_non_null(strstr(err.text, texts[i]));
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    rt_with_fakes(argv);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(every_call_may_fail),
        TEST(lost_devices_are_errors),
        TEST(no_memory_for_code_is_not_remembered),
        TEST(closing_waits_for_what_is_queued),
        TEST(missing_symbols_are_named),
        TEST(missing_libraries_are_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
