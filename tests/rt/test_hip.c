/* SPDX-License-Identifier: Apache-2.0 */
/* The HIP driver, with a topology of our own. Failing calls: test_drivers.c. */
#include "rt.h"

static const char *topology;
#define HIP_TOPOLOGY_FOLDER topology
#define driver_hip driver_hip_under_test
extern const struct driver driver_hip_under_test;
#include "../../runtime/driver_hip.c"

static struct fake *fake;
static char *folder;

static int setup(void **state)
{
    (void)state;
    rt_generator_reset();
    fake = rt_fake("libamdhip64.so.6");
    fake->current = 0;
    topology = folder = rt_topology();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rt_remove(folder);
    return 0;
}

static struct object make_object_parts(void)
{
    static const char manifest[] = "kernel x\nformat hsaco\nentry store k_store 256 0\n";
    return (struct object){.key = "",
                           .manifest = manifest,
                           .manifest_bytes = sizeof manifest - 1,
                           .code = "code",
                           .code_bytes = 4};
}

static kvk_status timed(void *data, kvk_stream stream, kvk_error *err)
{
    (void)data, (void)stream, (void)err;
    return KVK_OK;
}

static kvk_status use(void *device, kvk_error *err)
{
    const struct driver *d = &driver_hip_under_test;
    const struct object o = make_object_parts();
    struct driver_entry e;
    void *module, *memory = NULL;
    char text[16] = "hello";
    double ms = 0;
    kvk_status status = d->load(device, &o, &module, err);
    if (status)
        return status;
    status = d->entry(device, module, "store k_store 256 0", &e, err);
    if (!status)
        status =
            d->launch(device, &e, (struct driver_grid){.ctas = 3}, text, sizeof text, NULL, err);
    if (!status)
        status = d->alloc(device, 64, &memory, err);
    if (!status)
        status = d->fill(device, memory, 1, 64, err);
    if (!status)
        status = d->upload(device, memory, text, sizeof text, err);
    if (!status)
        status = d->copy(device, (char *)memory + 32, memory, sizeof text, NULL, err);
    if (!status)
        status = d->download(device, text, (char *)memory + 32, sizeof text, err);
    if (!status)
        status = d->time(device, timed, NULL, &ms, err);
    if (!status)
        status = d->synchronize(device, err);
    if (!status && (ms != 1.5 || strcmp(text, "hello") != 0))
        status = KVK_E_INTERNAL;
    if (memory)
        d->free(device, memory);
    d->unload(device, module);
    return status;
}

static kvk_status whole_life(kvk_error *err)
{
    struct driver_device_info info;
    void *device;
    int devices;
    kvk_status status = driver_hip_under_test.count(&devices, err);
    if (!status)
        status = driver_hip_under_test.open(1, &device, &info, err);
    if (status)
        return status;
    status = use(device, err);
    driver_hip_under_test.close(device);
    return status;
}

static void devices_are_matched_by_bus(void **state)
{
    (void)state;
    struct driver_device_info info;
    kvk_error err;
    void *device;
    assert_int_equal(driver_hip_under_test.open(0, &device, &info, &err),
                     KVK_OK); /* c1:00.0 is node 2 */
    assert_string_equal(info.target, "gfx1100");
    assert_int_equal(info.multiprocessors, 96);
    driver_hip_under_test.close(device);
    assert_int_equal(driver_hip_under_test.open(1, &device, &info, &err), KVK_OK);
    assert_string_equal(info.target, "gfx942");
    assert_int_equal(info.multiprocessors, 304);
    driver_hip_under_test.close(device);
}

/* By order it would be the other GPU's target. */
static void unknown_places_are_no_guess(void **state)
{
    (void)state;
    struct driver_device_info info;
    kvk_error err;
    void *device;
    int bus_call = 0;
    for (int n = 1; !bus_call && n < 20; n++) {
        fake = rt_fake("libamdhip64.so.6");
        fake->fail_at = n;
        kvk_status status = driver_hip_under_test.open(0, &device, &info, &err);
        assert_int_not_equal(status, KVK_OK);
        bus_call = strcmp(fake->failed, "hipDeviceGetPCIBusId") == 0;
    }
    assert_true(bus_call);
    assert_non_null(strstr(err.text, "hipDeviceGetPCIBusId"));
}

static void other_targets_are_refused(void **state)
{
    (void)state;
    struct driver_device_info info;
    kvk_error err;
    void *device;
    rt_topology_node(
        folder, 1,
        "simd_count 416\nsimd_per_cu 4\ngfx_target_version 90010\nlocation_id 768\ndomain 0\n");
    assert_int_equal(driver_hip_under_test.open(1, &device, &info, &err), KVK_E_DEVICE);
    assert_non_null(strstr(err.text, "gfx90a (Fake AMD 1) is not supported"));
    topology = "/nowhere";
    assert_int_equal(driver_hip_under_test.open(1, &device, &info, &err), KVK_E_DEVICE);
    assert_non_null(strstr(err.text, "/nowhere"));
}

static void arguments_travel_in_one_buffer(void **state)
{
    (void)state;
    kvk_error err;
    assert_int_equal(whole_life(&err), KVK_OK);
    assert_int_equal(fake->launches, 1);
    assert_int_equal(fake->launch[0].grid, 3);
    assert_int_equal(fake->launch[0].threads, 256);
    assert_int_equal(fake->launch[0].bytes, 16);
    assert_memory_equal(fake->launch[0].params, "hello", 5);
    assert_int_equal(fake->current, 0); /* the caller's device is current again */
}

static void no_device_is_said(void **state)
{
    (void)state;
    kvk_error err;
    int devices;
    fake->devices = 0;
    assert_int_equal(driver_hip_under_test.count(&devices, &err), KVK_E_DEVICE);
    assert_string_equal(err.text, "no AMD GPU");
}

int main(int argc, char **argv)
{
    (void)argc;
    rt_with_fakes(argv);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(devices_are_matched_by_bus), TEST(unknown_places_are_no_guess),
        TEST(other_targets_are_refused),  TEST(arguments_travel_in_one_buffer),
        TEST(no_device_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
