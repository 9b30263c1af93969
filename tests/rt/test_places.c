/* SPDX-License-Identifier: Apache-2.0 */
/*
** Where a cache may lie, and who shares it: homes of others, disks that are full or read-only, other
** mounts, many processes, killed ones, and builds of another age. Through kvk_prepare, which never
** fails because of the cache. What needs root or a mount namespace is skipped without.
*/
#include "rt.h"

#include "../../runtime/key.h"
#include "build_id.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOBODY = 65534, STRANGER = 65533, PROCESSES = 16, SKIP = 77 };

static int setup(void **state)
{
    (void)state;
    rt_generator_reset();
    rt_fake("libcuda.so.1");
    return 0;
}

/* How the copy came to be, or NULL where that failed. dir NULL: from the environment. */
static const char *prepare(const char *dir)
{
    const char *origin = NULL;
    kvk_error err = {0};
    if (rt_prepare(dir, &origin, &err))
        fprintf(stderr, "%s: %s\n", err.where, err.text);
    return origin;
}

/* Exit code of a child that runs the body as this user (0: as who we are). */
static int in_child(int (*body)(const char *), const char *dir, uid_t user)
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        if (user && (setgid(user) != 0 || setuid(user) != 0))
            _exit(SKIP);
        _exit(body(dir));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Entries that are no whole object. */
static int torn(const char *folder)
{
    int bad = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *d; dir && (d = readdir(dir)) != NULL;) {
        struct object object;
        size_t size;
        if (!cache_is_entry(d->d_name))
            continue;
        char *path = rt_path(folder, d->d_name);
        void *bytes = rt_read(path, &size);
        bad += object_parse(bytes, size, &object, NULL) != KVK_OK;
        free(bytes);
        free(path);
    }
    if (dir)
        closedir(dir);
    return bad;
}

/* The folder and all in it, readable by everybody. */
static void give_to(const char *folder, uid_t user)
{
    DIR *dir = opendir(folder);
    for (struct dirent *d; (d = readdir(dir)) != NULL;) {
        if (strcmp(d->d_name, "..") == 0)
            continue;
        mode_t mode = strcmp(d->d_name, ".") == 0 ? 0755 : 0644;
        assert_int_equal(fchownat(dirfd(dir), d->d_name, user, user, AT_SYMLINK_NOFOLLOW), 0);
        assert_int_equal(fchmodat(dirfd(dir), d->d_name, mode, 0), 0);
    }
    closedir(dir);
}

/* ---- homes ---- */

#define CHECK(claim)                                                                               \
    do {                                                                                           \
        if (!(claim)) {                                                                            \
            fprintf(stderr, "%s:%d: %s (%s; %d warnings: %s)\n", __FILE__, __LINE__, #claim, home, \
                    rt_log.warnings, rt_log.last);                                                 \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

static void set_home(const char *home)
{
    unsetenv("KVKILN_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", home, 1);
}

/* The home cannot be written: memory only, said once. */
static int cold_home(const char *home)
{
    set_home(home);
    const char *origin = prepare(NULL);
    CHECK(origin && strcmp(origin, "compiled") == 0);
    CHECK(rt_log.warnings == 1 && strstr(rt_log.last, "memory only"));
    return 0;
}

static int warm_home(const char *home)
{
    set_home(home);
    const char *origin = prepare(NULL);
    CHECK(origin && strcmp(origin, "cache") == 0);
    CHECK(rt_log.warnings == 0);
    return 0;
}

/* Entries of another user are not run, and replaced where that is possible. */
static int foreign_home(const char *home)
{
    set_home(home);
    const char *origin = prepare(NULL);
    CHECK(origin && strcmp(origin, "compiled") == 0);
    CHECK(rt_log.warnings == 1 && strstr(rt_log.last, "another user"));
    return 0;
}

static int named_folder(const char *home)
{
    const char *origin = prepare(home);
    CHECK(origin && strcmp(origin, "cache") == 0);
    return 0;
}

static void homes_that_cannot_be_written(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip(); /* needs root to become another user */
    char *home = rt_folder();
    chmod(home, 0755);
    assert_int_equal(in_child(cold_home, "/nowhere/at/all", NOBODY), 0);
    assert_int_equal(in_child(cold_home, home, NOBODY), 0); /* root's */
    assert_int_equal(chown(home, STRANGER, STRANGER), 0);
    assert_int_equal(in_child(cold_home, home, NOBODY), 0);
    assert_int_equal(rt_count(home, NULL), 0);
    rt_remove(home);
}

static void entries_of_other_users_are_not_run(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip(); /* needs root to own files of others */
    char *home = rt_folder(), *caches = rt_path(home, ".cache"), *dir = rt_path(caches, "kvkiln");
    assert_string_equal(prepare(dir), "compiled");
    chmod(home, 0755), chmod(caches, 0755);
    give_to(dir, STRANGER);
    assert_int_equal(in_child(named_folder, dir, 0), 0);  /* who names a folder trusts it */
    assert_int_equal(in_child(foreign_home, home, 0), 0); /* root in a user's home: sudo */
    assert_int_equal(in_child(warm_home, home, 0), 0);    /* replaced by root's own */
    give_to(dir, STRANGER);
    assert_int_equal(in_child(foreign_home, home, NOBODY), 0);
    assert_int_equal(rt_count(dir, NULL), 2);
    give_to(dir, NOBODY);
    assert_int_equal(in_child(warm_home, home, NOBODY), 0);
    free(dir);
    free(caches);
    rt_remove(home);
}

/* root's entries are everybody's: an image with a warm cache. */
static void entries_of_root_are_run(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    char *home = rt_folder(), *caches = rt_path(home, ".cache"), *dir = rt_path(caches, "kvkiln");
    assert_string_equal(prepare(dir), "compiled");
    chmod(home, 0755), chmod(caches, 0755);
    give_to(dir, 0);
    assert_int_equal(in_child(warm_home, home, NOBODY), 0);
    free(dir);
    free(caches);
    rt_remove(home);
}

/* ---- mounts, each in a namespace of its own ---- */

static int mount_at(const char *home, const char *options)
{
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return 0;
    return mount("kvkiln", home, "tmpfs", 0, options) == 0;
}

static void fill_up(const char *home, size_t leave)
{
    char *path = rt_path(home, "ballast"), block[4096] = "";
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    off_t size = 0;
    while (write(fd, block, sizeof block) > 0)
        size += (off_t)sizeof block;
    if (ftruncate(fd, size > (off_t)leave ? size - (off_t)leave : 0) != 0)
        abort();
    close(fd);
    free(path);
}

static int full_disk(const char *home)
{
    if (!mount_at(home, "size=64k"))
        return SKIP;
    for (size_t leave = 0; leave < 8192; leave += 4096) { /* no file, one of two */
        char *dir = rt_path(home, "cache");
        mkdir(dir, 0700);
        fill_up(home, leave);
        const char *origin = prepare(dir);
        CHECK(origin && strcmp(origin, "compiled") == 0);
        CHECK(rt_log.warnings == 1 && strstr(rt_log.last, "No space left"));
        CHECK(!torn(dir) && rt_count(dir, ".tmp") == 0);
        char *ballast = rt_path(home, "ballast");
        unlink(ballast);
        CHECK(prepare(dir) && rt_log.warnings == 0);
        CHECK(strcmp(prepare(dir), "cache") == 0);
        rt_remove(dir);
        free(ballast);
    }
    return 0;
}

static int read_only_disk(const char *home)
{
    char *dir = rt_path(home, "cache");
    if (!mount_at(home, NULL))
        return SKIP;
    CHECK(prepare(dir) && rt_log.warnings == 0);
    CHECK(mount("kvkiln", home, "tmpfs", MS_REMOUNT | MS_RDONLY, NULL) == 0);
    CHECK(strcmp(prepare(dir), "cache") == 0 && rt_log.warnings == 0);
    char *none = rt_path(home, "none");
    const char *origin = prepare(none);
    CHECK(origin && strcmp(origin, "compiled") == 0);
    CHECK(rt_log.warnings == 1 && strstr(rt_log.last, "Read-only"));
    free(none);
    free(dir);
    return 0;
}

/* Temporary files are made beside the entries: no rename from one file system to another. */
static int other_mount(const char *home)
{
    char *scratch = rt_folder();
    if (!mount_at(home, NULL)) {
        rt_remove(scratch);
        return SKIP;
    }
    setenv("TMPDIR", scratch, 1);
    CHECK(prepare(home) && rt_log.warnings == 0);
    CHECK(strcmp(prepare(home), "cache") == 0);
    CHECK(rt_count(scratch, NULL) == 0 && rt_count(home, ".kvko") == 2);
    rt_remove(scratch);
    return 0;
}

static void on_a_mount(int (*body)(const char *))
{
    char *dir = rt_folder();
    int code = in_child(body, dir, 0);
    rt_remove(dir);
    if (code == SKIP)
        skip(); /* no mount namespace here */
    assert_int_equal(code, 0);
}

static void full_disks_are_memory_only(void **state)
{
    (void)state;
    on_a_mount(full_disk);
}

static void read_only_disks_are_read(void **state)
{
    (void)state;
    on_a_mount(read_only_disk);
}

static void temporary_files_stay_on_the_same_mount(void **state)
{
    (void)state;
    on_a_mount(other_mount);
}

/* ---- processes ---- */

static int cold_process(const char *home)
{
    rt_generator.delay_ms = 20;
    CHECK(prepare(home) && rt_log.warnings == 0);
    return 0;
}

static void sixteen_cold_processes_succeed(void **state)
{
    (void)state;
    char *dir = rt_folder(), *sub = rt_path(dir, "not/yet/there");
    pid_t pids[PROCESSES];
    fflush(NULL);
    for (int i = 0; i < PROCESSES; i++)
        if ((pids[i] = fork()) == 0)
            _exit(cold_process(sub));
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    assert_int_equal(rt_count(sub, NULL), 2); /* one entry a kernel, nothing else */
    assert_int_equal(torn(sub), 0);
    assert_string_equal(prepare(sub), "cache");
    free(sub);
    rt_remove(dir);
}

static int prepare_for_ever(const char *dir)
{
    for (;;) {
        char *entry = NULL;
        prepare(dir);
        DIR *stream = opendir(dir);
        for (struct dirent *d; stream && (d = readdir(stream)) != NULL;)
            if (cache_is_entry(d->d_name)) {
                unlink(entry = rt_path(dir, d->d_name)); /* so that the next round compiles */
                free(entry);
            }
        if (stream)
            closedir(stream);
    }
    return 0;
}

static void killed_prepares_leave_nothing_harmful(void **state)
{
    (void)state;
    char *dir = rt_folder();
    for (int round = 0; round < 40; round++) {
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0)
            _exit(prepare_for_ever(dir));
        usleep((useconds_t)(1000 + 991 * round % 30000));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        assert_int_equal(torn(dir), 0);
    }
    assert_non_null(prepare(dir));
    assert_int_equal(rt_log.warnings, 0);
    assert_int_equal(rt_count(dir, ".kvko"), 2);
    assert_string_equal(prepare(dir), "cache");
    rt_remove(dir);
}

/* ---- ages ---- */

static char *key_of(const char *build)
{
    const struct gen_request r = {.spec_text = "spec 1\n",
                                  .kind = "store",
                                  .layout = "aos",
                                  .target = "sm_90a",
                                  .head_size = 128,
                                  .value_head_size = 128,
                                  .gqa = 4,
                                  .page_tokens = 16,
                                  .dtype = KVK_BFLOAT16};
    return key_make(&r, build, "none");
}

/* Each build of the generator finds its own kernels, and never another's. */
static void older_and_newer_builds_share_a_folder(void **state)
{
    (void)state;
    char *dir = rt_folder(), *keys[] = {key_of("older llvm 21"), key_of("newer llvm 22")};
    struct cache cache;
    size_t size[2];
    void *object[2];
    assert_int_equal(cache_open(&cache, dir, 0, rt_log_line, NULL, NULL), KVK_OK);
    for (int i = 0; i < 2; i++) {
        struct object o = {.key = keys[i],
                           .key_bytes = strlen(keys[i]),
                           .manifest = "kernel x\n",
                           .manifest_bytes = 9,
                           .code = i ? "new" : "old",
                           .code_bytes = 3};
        assert_null(cache_load(&cache, keys[i], &size[i]));
        assert_int_equal(object_seal(&o, &object[i], &size[i], NULL), KVK_OK);
        cache_store(&cache, keys[i], object[i], size[i]);
    }
    assert_int_equal(rt_count(dir, ".kvko"), 2);
    for (int i = 0; i < 2; i++) {
        size_t bytes;
        void *found = cache_load(&cache, keys[i], &bytes);
        assert_int_equal(bytes, size[i]);
        assert_memory_equal(found, object[i], bytes);
        free(found);
        free(object[i]);
        free(keys[i]);
    }
    cache_close(&cache);
    rt_remove(dir);
}

int main(int argc, char **argv)
{
    (void)argc;
    rt_with_fakes(argv);
#define TEST(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = {
        TEST(homes_that_cannot_be_written),
        TEST(entries_of_other_users_are_not_run),
        TEST(entries_of_root_are_run),
        TEST(full_disks_are_memory_only),
        TEST(read_only_disks_are_read),
        TEST(temporary_files_stay_on_the_same_mount),
        TEST(sixteen_cold_processes_succeed),
        TEST(killed_prepares_leave_nothing_harmful),
        TEST(older_and_newer_builds_share_a_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
