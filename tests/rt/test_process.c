/* SPDX-License-Identifier: Apache-2.0 */
/* Processes: children made by fork, and a library that is loaded and unloaded again. */
#include "rt.h"

#include "faults.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct open_context {
    kvk_context *ctx;
    const kvk_kernels *kernels;
    void *memory;
};

static int setup(void **state)
{
    (void)state;
    rt_generator_reset();
    rt_fake("libcuda.so.1");
    return 0;
}

/* ---- fork ---- */

static kvk_status nothing(void *data, kvk_stream stream, kvk_error *err)
{
    (void)data, (void)stream, (void)err;
    return KVK_OK;
}

static int refused(kvk_status status, kvk_error *err, const char *where)
{
    int good = status == KVK_E_FORK && err->status == KVK_E_FORK &&
               strstr(err->text, "made by fork") && strcmp(err->where, where) == 0;
    if (!good)
        fprintf(stderr, "%s: status %d, %s: %s\n", where, status, err->where, err->text);
    memset(err, 0, sizeof *err);
    return good;
}

#define REFUSED(call, ...) refused(call(__VA_ARGS__, &err), &err, #call)

/* Every call that touches a context. */
static int all_refused(const struct open_context *o)
{
    struct kvk_model model = rt_model();
    struct kvk_store_args store = KVK_INIT(struct kvk_store_args);
    struct kvk_decode_args decode = KVK_INIT(struct kvk_decode_args);
    struct kvk_unified_args unified = KVK_INIT(struct kvk_unified_args);
    struct kvk_dequant_args dequant = KVK_INIT(struct kvk_dequant_args);
    struct kvk_merge_args merge = KVK_INIT(struct kvk_merge_args);
    struct kvk_copy_args copy = KVK_INIT(struct kvk_copy_args);
    const kvk_kernels *k = o->kernels, *other;
    kvk_context *c = o->ctx;
    kvk_error err = {0};
    char host[8];
    double ms;
    void *memory;
    int good = REFUSED(kvk_prepare, c, &model, &other) && REFUSED(kvk_alloc, c, 16, &memory) &&
               REFUSED(kvk_upload, c, o->memory, host, 8) &&
               REFUSED(kvk_download, c, host, o->memory, 8) &&
               REFUSED(kvk_fill, c, o->memory, 0, 8) &&
               REFUSED(kvk_device_copy, c, o->memory, o->memory, 8, NULL) &&
               REFUSED(kvk_synchronize, c) && REFUSED(kvk_time, c, nothing, NULL, &ms) &&
               REFUSED(kvk_store, k, &store, NULL) && REFUSED(kvk_decode, k, &decode, NULL) &&
               REFUSED(kvk_unified, k, &unified, NULL) && REFUSED(kvk_merge, k, &merge, NULL) &&
               REFUSED(kvk_dequant, k, &dequant, NULL) && REFUSED(kvk_copy, k, NULL, &copy, NULL);
    kvk_free(c, o->memory);
    kvk_close(c);
    return good;
}

static int exit_code(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static struct open_context open_all(const char *device)
{
    struct kvk_options options = KVK_INIT(struct kvk_options);
    struct kvk_model model = rt_model();
    struct open_context o;
    kvk_error err = {0};
    options.device = device;
    options.cache_dir = "";
    if (kvk_open(&options, &o.ctx, &err) || kvk_prepare(o.ctx, &model, &o.kernels, &err) ||
        kvk_alloc(o.ctx, 64, &o.memory, &err))
        fail_msg("%s", err.text);
    return o;
}

static void children_are_refused_on(const char *device)
{
    struct open_context o = open_all(device);
    kvk_error err = {0};
    if (rt_launch_all(o.ctx, o.kernels, &err)) /* threads of the host device are running */
        fail_msg("%s", err.text);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        _exit(!all_refused(&o) ? 1 : rt_life(device, NULL, &err) ? 2 : 0);
    }
    assert_int_equal(exit_code(pid), 0);
    if (rt_launch_all(o.ctx, o.kernels, &err)) /* to the parent nothing happened */
        fail_msg("%s", err.text);
    kvk_close(o.ctx);
}

static void children_are_refused_and_open_their_own(void **state)
{
    (void)state;
    children_are_refused_on("cuda:0");
    kvk_register_generator(kvk_generator);
    children_are_refused_on("host");
}

/* Before Linux 4.14. */
static void children_are_refused_without_wiped_pages(void **state)
{
    (void)state;
    faults.missing = "madvise";
    children_are_refused_on("cuda:0");
    faults.missing = NULL;
}

static void grandchildren_are_refused(void **state)
{
    (void)state;
    struct open_context o = open_all("cuda:0");
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        pid_t inner = fork();
        if (inner == 0)
            _exit(!all_refused(&o));
        _exit(exit_code(inner));
    }
    assert_int_equal(exit_code(pid), 0);
    kvk_close(o.ctx);
}

/* ---- loading and unloading ---- */

struct api {
    kvk_status (*open)(const struct kvk_options *, kvk_context **, kvk_error *);
    kvk_status (*prepare)(kvk_context *, const struct kvk_model *, const kvk_kernels **,
                          kvk_error *);
    void (*close)(kvk_context *);
};

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found)
        fail_msg("%s", dlerror());
    return found;
}

static int count_in(const char *folder)
{
    int n = 0;
    DIR *dir = opendir(folder);
    while (dir && readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* malloc may have grown; under a sanitizer it always has. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SPARE_PAGES = INT_MAX };
#else
enum { SPARE_PAGES = 60 };
#endif

/* Of address space: mappings that lie side by side are one line of /proc/self/maps. */
static long pages(void)
{
    long n = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    assert_int_equal(fscanf(statm, "%ld", &n), 1);
    fclose(statm);
    return n;
}

static void load_use_unload(const char *dir)
{
    struct kvk_options options = KVK_INIT(struct kvk_options);
    struct kvk_model model = rt_model();
    const kvk_kernels *k;
    kvk_context *ctx;
    kvk_error err = {0};
    struct api api;
    void *library = dlopen(TEST_LIBRARY, RTLD_NOW | RTLD_LOCAL), *at;
    if (!library)
        fail_msg("%s", dlerror());
    memcpy(&api.open, (at = symbol(library, "kvk_open"), &at), sizeof at);
    memcpy(&api.prepare, (at = symbol(library, "kvk_prepare"), &at), sizeof at);
    memcpy(&api.close, (at = symbol(library, "kvk_close"), &at), sizeof at);
    options.device = "host";
    options.cache_dir = dir;
    model.kinds = KVK_STORE;
    if (api.open(&options, &ctx, &err) || api.prepare(ctx, &model, &k, &err))
        fail_msg("%s", err.text);
    api.close(ctx);
    dlclose(library);
}

/* The first round compiles: the generator stays loaded. All later ones leave nothing behind. */
static void the_library_can_be_unloaded(void **state)
{
    (void)state;
    char *dir = rt_folder();
    load_use_unload(dir);
    load_use_unload(dir);
    int files = count_in("/proc/self/fd"), threads = count_in("/proc/self/task");
    long before = pages();
    for (int i = 0; i < 100; i++)
        load_use_unload(dir);
    assert_null(dlopen(TEST_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)); /* it is really gone */
    assert_int_equal(count_in("/proc/self/fd"), files);
    assert_int_equal(count_in("/proc/self/task"), threads);
    if (pages() > before + SPARE_PAGES)
        fail_msg("%ld pages, now %ld", before, pages());
    assert_int_equal(rt_count(dir, NULL), 1);
    rt_remove(dir);
}

int main(int argc, char **argv)
{
    (void)argc;
    rt_with_fakes(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(children_are_refused_and_open_their_own, setup),
        cmocka_unit_test_setup(children_are_refused_without_wiped_pages, setup),
        cmocka_unit_test_setup(grandchildren_are_refused, setup),
        cmocka_unit_test_setup(the_library_can_be_unloaded, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
