/* SPDX-License-Identifier: Apache-2.0 */
/* What drivers refuse to load, in the words of docs/limits.md. */
#include "rt.h"

static const char *topology; /* of a folder of ours, as in test_hip.c */
#define HIP_TOPOLOGY_FOLDER topology
#define driver_hip driver_hip_under_test
extern const struct driver driver_hip_under_test;
#include "../../runtime/driver_hip.c"

static struct object parts(const char *manifest, const char *code)
{
    return (struct object){.key = "",
                           .manifest = manifest,
                           .manifest_bytes = strlen(manifest),
                           .code = code,
                           .code_bytes = strlen(code) + 1};
}

/* Loading the object on the first device of a driver is refused with this text. */
static void refuse(const struct driver *driver, const char *manifest, const char *code,
                   const char *text)
{
    const struct object object = parts(manifest, code);
    struct driver_device_info info;
    void *device, *module;
    kvk_error err = {0};

    if (driver->open(0, &device, &info, &err))
        fail_msg("%s", err.text);
    assert_int_equal(driver->load(device, &object, &module, &err), KVK_E_UNSUPPORTED);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" is not in \"%s\"", text, err.text);
    driver->close(device);
}

static void cuda_code(void **state)
{
    struct fake *fake = rt_fake("libcuda.so.1");

    (void)state;
    fake->version = 12040;
    fake->refuse_cubin = 209;
    refuse(&driver_cuda, "kernel x\nformat cubin\ntarget sm_90a\n", "code",
           "the driver (CUDA 12.4) cannot load cubin for sm_90a: error 209");
    fake->refuse_ptx = 218;
    refuse(&driver_cuda, "kernel x\nformat ptx\ntarget sm_90a\n", ".version 8.6\n",
           "the driver (CUDA 12.4) cannot load ptx for sm_90a: error 218");
    fake->refuse_ptx = 222;
    refuse(&driver_cuda, "kernel x\nformat ptx\ntarget sm_90a\n", ".version 8.6\n",
           "PTX 8.6 needs a driver for CUDA 12.7 or later, the one present is for CUDA 12.4");
}

static void hip_code(void **state)
{
    struct fake *fake = rt_fake("libamdhip64.so.6");
    char *folder = rt_topology();

    (void)state;
    topology = folder;
    fake->refuse_cubin = 209;
    refuse(&driver_hip_under_test, "kernel x\nformat hsaco\ntarget gfx942\n", "code",
           "the HIP runtime cannot load this code object: error 209");
    rt_remove(folder);
}

int main(int argc, char **argv)
{
    (void)argc;
    rt_with_fakes(argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(cuda_code), cmocka_unit_test(hip_code)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
