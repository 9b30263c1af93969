/* SPDX-License-Identifier: Apache-2.0 */
/*
** What happens when libc says no: every allocation, thread and file operation of a whole life fails
** once. Leaks are for ./dev sanitize to see.
*/
#include "rt.h"

#include "faults.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct fake *fake;

static int setup(void **state)
{
    (void)state;
    rt_generator_reset();
    fake = rt_fake("libcuda.so.1");
    return 0;
}

static int disarm(void **state)
{
    (void)state;
    faults_disarm();
    return 0;
}

/* One life with the n-th call failing. Returns how many calls there were before it, or -1 past the last. */
static kvk_status failing_life(const char *device, const char *cache, unsigned families, int n)
{
    kvk_error err = {0};
    faults_arm(families, n, 0);
    kvk_status status = rt_life(device, cache, &err);
    faults_disarm();
    if (status == KVK_OK)
        return status;
    if (err.status != status || !*err.text || !*err.where)
        fail_msg("call %d, %s: status %d, but the error is %d \"%s\"", n, faults.failed, status,
                 err.status, err.text);
    return status;
}

static void every_one_may_fail(const char *device, const char *cache, unsigned families,
                               kvk_status expected, int least)
{
    int n = 0, failures = 0;
    do {
        kvk_status status = failing_life(device, cache, families, ++n);
        if (status && status != expected)
            fail_msg("call %d, %s: status %d, expected %d", n, faults.failed, status, expected);
        failures += status != KVK_OK;
        assert_int_equal(fake->live, 0);
        assert_int_equal(fake->depth, 0);
    } while (faults.failures);
    assert_true(n > least);
    assert_true(failures >= least);
    assert_int_equal(failing_life(device, cache, families, 0), KVK_OK);
}

static void every_allocation_may_fail_with_a_gpu(void **state)
{
    (void)state;
    every_one_may_fail("cuda:0", NULL, FAULT_MEMORY, KVK_E_MEMORY, 25);
}

/* A cache that cannot read or write for lack of memory is no cache, and no failure. */
static void every_allocation_may_fail_with_a_cache(void **state)
{
    (void)state;
    char *dir = rt_folder();
    every_one_may_fail("cuda:0", dir, FAULT_MEMORY, KVK_E_MEMORY, 20);
    rt_remove(dir);
}

/* Real kernels on the host, from a warm cache. */
static void every_allocation_may_fail_on_the_host(void **state)
{
    (void)state;
    char *dir = rt_folder();
    kvk_register_generator(kvk_generator);
    kvk_error err = {0};
    if (rt_life("host", dir, &err) != KVK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(rt_count(dir, ".kvko"), KIND_SERVING);
    rt_generator_reset(); /* what cannot be read for lack of memory is not compiled: the fake's is no host code */
    rt_generator.fail = KVK_E_MEMORY;
    every_one_may_fail("host", dir, FAULT_MEMORY, KVK_E_MEMORY, 40);
    rt_remove(dir);
}

/* The generator's own allocations, LLVM's not among them: an error, or the same object. */
static void every_allocation_may_fail_while_compiling(void **state)
{
    (void)state;
    static const char *const kinds[] = {"copy", "store"}, *const targets[] = {"x86-64-v3", "gfx942",
                                                                              "sm_90a"};
    for (int i = 0; i < 6; i++) {
        struct gen_request request = {
            .spec_text = "spec 1\nname fp16\nkey float\nkey.format fp16\nvalue float\n"
                         "value.format fp16\nlayouts aos\nquery native\n",
            .kind = kinds[i % 2],
            .layout = "aos",
            .target = targets[i / 2],
            .head_size = 64,
            .value_head_size = 64,
            .gqa = 1,
            .page_tokens = 16,
            .dtype = KVK_BFLOAT16};
        int n = 0, failures = 0;
        do {
            struct gen_artifacts made = {0};
            kvk_error err = {0};
            faults_arm(FAULT_MEMORY, ++n, 0);
            kvk_status status =
                kvk_generator()->compile(&request, 1u << GEN_EMIT_OBJECT, &made, &err);
            faults_disarm();
            failures += status != KVK_OK;
            if (status && (err.status != status || !*err.text))
                fail_msg("call %d, %s: status %d, but \"%s\"", n, faults.failed, status, err.text);
            if (status && status != KVK_E_MEMORY)
                fail_msg("call %d, %s: status %d: %s", n, faults.failed, status, err.text);
            kvk_generator()->artifacts_free(&made);
        } while (faults.failures);
        printf("# %s for %s: %d allocations\n", request.kind, request.target, n - 1);
        assert_true(failures > 0);
    }
}

/* No thread: the caller's own does the work. */
static void threads_are_not_needed(void **state)
{
    (void)state;
    char *dir = rt_folder();
    for (int n = 0; n < 4; n++)
        assert_int_equal(failing_life("cuda:0", NULL, FAULT_THREADS, n), KVK_OK);
    kvk_register_generator(kvk_generator);
    for (int n = 0; n < 8; n++)
        assert_int_equal(failing_life("host", dir, FAULT_THREADS, n), KVK_OK);
    rt_remove(dir);
}

/* ---- files ---- */

static const int errors[] = {EIO, ENOSPC, EACCES, EROFS, EBUSY, ESTALE, EINTR, EMFILE, EDQUOT};
enum { ERRORS = sizeof errors / sizeof *errors };

/* Whatever lies in the folder under the name of an entry is a whole object. */
static void entries_are_whole(const char *dir)
{
    DIR *stream = opendir(dir);
    for (struct dirent *d; stream && (d = readdir(stream)) != NULL;) {
        struct object object;
        size_t size;
        if (!cache_is_entry(d->d_name))
            continue;
        char *path = rt_path(dir, d->d_name);
        void *bytes = rt_read(path, &size);
        if (object_parse(bytes, size, &object, NULL) != KVK_OK)
            fail_msg("%s failed with %s: torn entry %s", faults.failed, strerror(faults.error),
                     d->d_name);
        free(bytes);
        free(path);
    }
    if (stream)
        closedir(stream);
}

/* Every file operation of a prepare fails once, with every error, on a cold or a warm directory. */
static void file_calls_may_fail(int warm)
{
    int least = 0;
    for (int e = 0; e < ERRORS; e++) {
        int n = 0;
        do {
            char *dir = rt_folder();
            const char *origin = NULL;
            if (warm)
                assert_int_equal(rt_prepare(dir, NULL, NULL), KVK_OK);
            faults_arm(FAULT_FILES, ++n, errors[e]);
            kvk_status status = rt_prepare(dir, &origin, NULL);
            faults_disarm();
            if (status)
                fail_msg("%s: %s: prepare failed", faults.failed, strerror(errors[e]));
            assert_true(rt_log.warnings <= 1);
            entries_are_whole(dir);
            if (strcmp(faults.failed, "unlink") != 0)
                assert_int_equal(rt_count(dir, ".tmp"), 0);
            assert_int_equal(rt_prepare(dir, NULL, NULL),
                             KVK_OK); /* repaired, if there was damage */
            assert_int_equal(rt_log.warnings, 0);
            assert_int_equal(rt_count(dir, ".kvko"), 2);
            assert_int_equal(rt_prepare(dir, &origin, NULL), KVK_OK);
            assert_string_equal(origin, "cache");
            rt_remove(dir);
        } while (faults.failures);
        least = n;
    }
    assert_true(least > (warm ? 8 : 12));
}

static void file_calls_may_fail_while_writing(void **state)
{
    (void)state;
    file_calls_may_fail(0);
}

static void file_calls_may_fail_while_reading(void **state)
{
    (void)state;
    file_calls_may_fail(1);
}

/* Clean-up of a directory on a network: somebody else's file is busy, or its handle stale. */
static void busy_and_stale_files_are_left(void **state)
{
    (void)state;
    char *dir = rt_folder();
    struct cache cache;
    faults_arm(0, 0, 0);
    assert_int_equal(rt_prepare(dir, NULL, NULL), KVK_OK);
    for (int e = 0; e < 2; e++) {
        faults_arm(0, 0, e ? ESTALE : EBUSY);
        faults.chance = 1 << 16;
        assert_int_equal(cache_open(&cache, dir, 1, rt_log_line, NULL, NULL), KVK_OK);
        faults.families = FAULT_FILES;
        assert_true(cache_sweep(dir, 0) != 0);
        faults_disarm();
        assert_int_equal(rt_count(dir, ".kvko"), 2);
        cache_close(&cache);
    }
    rt_remove(dir);
}

int main(int argc, char **argv)
{
    (void)argc;
    rt_with_fakes(argv);
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0); /* thousands of files, each synced */
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, disarm)
    const struct CMUnitTest tests[] = {
        TEST(every_allocation_may_fail_with_a_gpu),
        TEST(every_allocation_may_fail_with_a_cache),
        TEST(every_allocation_may_fail_on_the_host),
        TEST(every_allocation_may_fail_while_compiling),
        TEST(threads_are_not_needed),
        TEST(file_calls_may_fail_while_writing),
        TEST(file_calls_may_fail_while_reading),
        TEST(busy_and_stale_files_are_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
