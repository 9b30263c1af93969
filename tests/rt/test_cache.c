/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of docs/cache.md, on a real directory. */
#include "rt.h"

#include "../../runtime/key.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NOBODY = 65534, PROCESSES = 16 };

static struct cache open_limited(const char *dir, uint64_t limit)
{
    struct cache cache;
    rt_log.warnings = 0;
    assert_int_equal(cache_open(&cache, dir, limit, rt_log_line, NULL, NULL), KVK_OK);
    return cache;
}

static void *make_object(const char *key, size_t code_bytes, size_t *bytes)
{
    void *out, *code = calloc(1, code_bytes);
    struct object o = {.key = key,
                       .key_bytes = strlen(key),
                       .manifest = "kernel x\n",
                       .manifest_bytes = 9,
                       .code = code,
                       .code_bytes = code_bytes};
    if (object_seal(&o, &out, bytes, NULL) != KVK_OK)
        abort();
    free(code);
    return out;
}

static void put(struct cache *cache, const char *key, size_t code_bytes)
{
    size_t bytes;
    void *object = make_object(key, code_bytes, &bytes);
    cache_store(cache, key, object, bytes);
    free(object);
}

static int has(struct cache *cache, const char *key)
{
    size_t bytes;
    void *object = cache_load(cache, key, &bytes);
    free(object);
    return object != NULL;
}

/* Runs in a child; its exit code. */
static int in_child(int (*body)(const char *dir), const char *dir)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(body(dir));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static char *temporary_name(const char *dir, const char *hash)
{
    char name[80];
    snprintf(name, sizeof name, ".%s.1.0123456789abcdef.tmp", hash);
    return rt_path(dir, name);
}

static void age(const char *path, long seconds)
{
    struct timespec times[2] = {{time(NULL) - seconds, 0}, {time(NULL) - seconds, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW), 0);
}

/* ---- reading ---- */

static void stored_is_found_and_private(void **state)
{
    (void)state;
    char *dir = rt_folder(), *deep = rt_path(dir, "a/b/c"), *entry;
    struct cache cache = open_limited(deep, 0);
    struct stat st;
    assert_false(has(&cache, "key"));
    assert_int_equal(rt_count(dir, NULL), 0); /* a miss makes nothing */
    put(&cache, "key", 100);
    assert_true(has(&cache, "key"));
    assert_false(has(&cache, "other"));
    assert_int_equal(rt_count(deep, NULL), 1);
    assert_int_equal(stat(deep, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    entry = rt_only_entry(deep);
    char hex[KEY_HASH_CHARS];
    key_hash("key", hex);
    assert_non_null(strstr(entry, hex));
    assert_int_equal(rt_log.warnings, 0);
    free(entry);
    cache_close(&cache);
    free(deep);
    rt_remove(dir);
}

static void damage_is_a_miss_and_repaired(void **state)
{
    (void)state;
    char *dir = rt_folder();
    struct cache cache = open_limited(dir, 0);
    put(&cache, "key", 300);
    char *entry = rt_only_entry(dir);
    size_t size;
    unsigned char *whole = rt_read(entry, &size);
    for (int damage = 0; damage < 6; damage++) {
        size_t n = damage == 0   ? 0
                   : damage == 1 ? 10
                   : damage == 2 ? size / 2
                   : damage == 3 ? size - 1
                                 : size;
        unsigned char *bytes = malloc(size);
        memcpy(bytes, whole, size);
        if (damage == 4)
            bytes[size / 3] ^= 4;
        if (damage == 5)
            bytes[8]++; /* another version */
        rt_write(entry, bytes, n);
        free(bytes);
        assert_false(has(&cache, "key"));
        put(&cache, "key", 300);
        assert_true(has(&cache, "key"));
    }
    assert_int_equal(rt_count(dir, NULL), 1);
    assert_int_equal(rt_log.warnings, 0);
    free(whole);
    free(entry);
    cache_close(&cache);
    rt_remove(dir);
}

/* A whole entry of another key under this key's name: the text inside decides. */
static void text_decides_not_the_hash(void **state)
{
    (void)state;
    char *dir = rt_folder();
    struct cache cache = open_limited(dir, 0);
    put(&cache, "key", 10);
    char *entry = rt_only_entry(dir);
    size_t bytes;
    void *foreign = make_object("another key", 10, &bytes);
    rt_write(entry, foreign, bytes);
    assert_false(has(&cache, "key"));
    put(&cache, "key", 10);
    assert_true(has(&cache, "key"));
    free(foreign);
    free(entry);
    cache_close(&cache);
    rt_remove(dir);
}

static void hostile_entries_are_not_followed(void **state)
{
    (void)state;
    char *dir = rt_folder();
    struct cache cache = open_limited(dir, 0);
    put(&cache, "key", 10);
    char *entry = rt_only_entry(dir), *elsewhere = rt_path(dir, "elsewhere");
    assert_int_equal(rename(entry, elsewhere), 0);
    assert_int_equal(symlink(elsewhere, entry), 0);
    assert_false(has(&cache, "key")); /* a link, though to a whole object */
    unlink(entry);
    assert_int_equal(mkfifo(entry, 0600), 0);
    assert_false(has(&cache, "key")); /* does not wait for a writer */
    put(&cache, "key", 10);
    assert_true(has(&cache, "key"));
    unlink(entry);
    int fd = open(entry, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(ftruncate(fd, (off_t)CACHE_ENTRY_MOST_BYTES + 1), 0); /* sparse */
    close(fd);
    assert_false(has(&cache, "key"));
    put(&cache, "key", 10);
    assert_true(has(&cache, "key"));
    assert_int_equal(rt_log.warnings, 0);
    unlink(entry);
    assert_int_equal(mkdir(entry, 0700), 0); /* cannot be replaced: memory only, said once */
    put(&cache, "key", 10);
    put(&cache, "key", 10);
    assert_int_equal(rt_log.warnings, 1);
    assert_int_equal(rt_count(dir, ".tmp"), 0);
    free(entry);
    free(elsewhere);
    cache_close(&cache);
    rt_remove(dir);
}

static void hits_refresh_old_entries(void **state)
{
    (void)state;
    char *dir = rt_folder();
    struct cache cache = open_limited(dir, 0);
    struct stat st;
    put(&cache, "key", 10);
    char *entry = rt_only_entry(dir);
    age(entry, 100000);
    assert_true(has(&cache, "key"));
    stat(entry, &st);
    assert_true(time(NULL) - st.st_mtime < 100);
    age(entry, 100); /* recent enough: a hit stays a read */
    assert_true(has(&cache, "key"));
    stat(entry, &st);
    assert_true(time(NULL) - st.st_mtime >= 100);
    free(entry);
    cache_close(&cache);
    rt_remove(dir);
}

/* ---- where it lies ---- */

static void directory_comes_from_options_then_environment(void **state)
{
    (void)state;
    char *home = getenv("HOME") ? strdup(getenv("HOME")) : NULL;
    static const struct {
        const char *dir, *own, *xdg, *home, *expect;
    } cases[] = {
        {"/o", "/k", "/x", "/h", "/o"},
        {NULL, "/k", "/x", "/h", "/k"},
        {NULL, NULL, "/x", "/h", "/x/kvkiln"},
        {NULL, NULL, NULL, "/h", "/h/.cache/kvkiln"},
        {NULL, NULL, "relative", "/h", "/h/.cache/kvkiln"},
        {NULL, NULL, NULL, NULL, NULL},
        {"", "/k", "/x", "/h", NULL},
        {NULL, "", "/x", "/h", NULL},
        {NULL, NULL, "", "", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *names[] = {"KVKILN_CACHE_DIR", "XDG_CACHE_HOME", "HOME"};
        const char *values[] = {cases[i].own, cases[i].xdg, cases[i].home};
        for (int n = 0; n < 3; n++)
            values[n] ? setenv(names[n], values[n], 1) : unsetenv(names[n]);
        char *dir = cache_resolve_dir(cases[i].dir);
        if (cases[i].expect)
            assert_string_equal(dir, cases[i].expect);
        else
            assert_null(dir);
        free(dir);
    }
    unsetenv("KVKILN_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    struct cache cache = open_limited(NULL, 0); /* no home: one warning, no failure */
    put(&cache, "a", 1);
    put(&cache, "b", 1);
    assert_int_equal(rt_log.warnings, 1);
    assert_non_null(strstr(rt_log.last, "HOME"));
    cache_close(&cache);
    cache = open_limited("", 0); /* asked for: no warning */
    put(&cache, "a", 1);
    assert_int_equal(rt_log.warnings, 0);
    cache_close(&cache);
    if (home)
        setenv("HOME", home, 1);
    free(home);
}

/* ---- trouble ---- */

static int read_only_body(const char *dir)
{
    if (geteuid() == 0 && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
        return 77;
    struct cache cache = open_limited(dir, 0);
    if (!has(&cache, "there"))
        return 1; /* reading goes on */
    put(&cache, "new", 10);
    put(&cache, "newer", 10);
    return rt_log.warnings == 1 && !has(&cache, "new") && strstr(rt_log.last, "memory only") ? 0
                                                                                             : 2;
}

static void read_only_directory_is_read(void **state)
{
    (void)state;
    char *dir = rt_folder(), *sub = rt_path(dir, "cache");
    struct cache cache = open_limited(sub, 0);
    put(&cache, "there", 10);
    char *entry = rt_only_entry(sub);
    chmod(dir, 0755);
    chmod(sub, 0555);
    chmod(entry, 0444);
    assert_int_equal(in_child(read_only_body, sub), 0);
    assert_int_equal(rt_count(sub, NULL), 1);
    chmod(sub, 0700);
    free(entry);
    free(sub);
    cache_close(&cache);
    rt_remove(dir);
}

static int unusable_body(const char *dir)
{
    if (geteuid() == 0 && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
        return 77;
    struct cache cache = open_limited(dir, 0);
    put(&cache, "new", 10);
    put(&cache, "newer", 10);
    return rt_log.warnings == 1 ? 0 : 1;
}

static void directory_that_cannot_be_made_is_said_once(void **state)
{
    (void)state;
    char *dir = rt_folder(), *file = rt_path(dir, "file"), *below = rt_path(dir, "file/cache"),
         *sub = rt_path(dir, "x/y");
    rt_write(file, "x", 1);
    chmod(dir, 0755);
    assert_int_equal(in_child(unusable_body, below), 0); /* a file in the way */
    assert_int_equal(in_child(unusable_body, file), 0);  /* the directory is a file */
    chmod(dir, 0555);
    assert_int_equal(in_child(unusable_body, sub), 0); /* no right to make it, nor has the owner */
    chmod(dir, 0755);
    assert_int_equal(in_child(unusable_body, "/proc/kvkiln"), 0);
    free(file);
    free(below);
    free(sub);
    rt_remove(dir);
}

static int full_body(const char *dir)
{
    struct rlimit limit = {4096, 4096};
    struct cache cache = open_limited(dir, 0);
    put(&cache, "before", 100);
    setrlimit(RLIMIT_FSIZE, &limit);
    put(&cache, "big", 100000); /* must not end the process by SIGXFSZ */
    put(&cache, "bigger", 100000);
    sigset_t pending;
    if (sigpending(&pending) != 0 || sigismember(&pending, SIGXFSZ))
        return 3;
    return rt_log.warnings == 1 && has(&cache, "before") && !has(&cache, "big") &&
                   rt_count(dir, NULL) == 1
               ? 0
               : 1;
}

static void full_disk_is_memory_only(void **state)
{
    (void)state;
    char *dir = rt_folder();
    assert_int_equal(in_child(full_body, dir), 0);
    rt_remove(dir);
}

/* ---- several processes ---- */

static int race_body(const char *dir)
{
    struct cache cache = open_limited(dir, 0);
    for (int i = 0; i < 20; i++) {
        if (!has(&cache, "key"))
            put(&cache, "key", 50000);
        if (!has(&cache, "key"))
            return 1;
        put(&cache, "key", 50000);
    }
    return rt_log.warnings;
}

static void sixteen_processes_share_an_empty_directory(void **state)
{
    (void)state;
    char *dir = rt_folder(), *sub = rt_path(dir, "new/cache");
    pid_t pids[PROCESSES];
    for (int i = 0; i < PROCESSES; i++)
        if ((pids[i] = fork()) == 0)
            _exit(race_body(sub));
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    assert_int_equal(rt_count(sub, NULL), 1);
    free(sub);
    rt_remove(dir);
}

static int publish_for_ever(const char *dir)
{
    struct cache cache = open_limited(dir, 0);
    for (int i = 0; i < 1000000; i++) {
        char key[16];
        snprintf(key, sizeof key, "key %d", i % 4);
        put(&cache, key, 200000);
    }
    return 0;
}

/* Killed at any moment: entries with their final name are whole, what else is left goes away when old. */
static void killed_writers_leave_nothing_harmful(void **state)
{
    (void)state;
    char *dir = rt_folder();
    for (int round = 0; round < 40; round++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(publish_for_ever(dir));
        usleep((useconds_t)(500 + 397 * round % 9000));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    struct cache cache = open_limited(dir, 0);
    for (int i = 0; i < 4; i++) {
        char key[16], hex[KEY_HASH_CHARS], name[64];
        snprintf(key, sizeof key, "key %d", i);
        key_hash(key, hex);
        snprintf(name, sizeof name, "%s.kvko", hex);
        char *path = rt_path(dir, name);
        assert_true(access(path, F_OK) != 0 || has(&cache, key));
        free(path);
        put(&cache, key, 10);
        assert_true(has(&cache, key));
    }
    assert_int_equal(rt_log.warnings, 0);
    cache_close(&cache);
    rt_remove(dir);
}

/* ---- bound ---- */

static void stale_temporaries_go_and_fresh_ones_stay(void **state)
{
    (void)state;
    char *dir = rt_folder();
    char *stale = temporary_name(dir, "00000000000000000000000000000000"),
         *foreign = rt_path(dir, ".other.tmp");
    char *fresh = temporary_name(dir, "11111111111111111111111111111111"),
         *note = rt_path(dir, "note.txt");
    rt_write(stale, "x", 1);
    rt_write(fresh, "x", 1);
    rt_write(foreign, "x", 1);
    rt_write(note, "x", 1);
    age(stale, 100000);
    age(foreign, 100000);
    age(note, 100000);
    struct cache cache = open_limited(dir, 0);
    put(&cache, "key", 10);
    assert_int_not_equal(access(stale, F_OK), 0);
    assert_int_equal(access(fresh, F_OK), 0);
    assert_int_equal(access(foreign, F_OK), 0);
    assert_int_equal(access(note, F_OK), 0);
    cache_close(&cache);
    free(stale);
    free(fresh);
    free(foreign);
    free(note);
    rt_remove(dir);
}

static void oldest_entries_make_room(void **state)
{
    (void)state;
    enum { ENTRIES = 10, BYTES = 10000 };
    char *dir = rt_folder(), *big = rt_path(dir, "big.bin"), *zeros = calloc(1, 100000);
    rt_write(big, zeros, 100000); /* not ours: not counted, not removed */
    struct cache cache = open_limited(dir, 5 * (BYTES + 500));
    for (int i = 0; i < ENTRIES; i++) {
        char key[16], hex[KEY_HASH_CHARS], name[64];
        snprintf(key, sizeof key, "key %d", i);
        put(&cache, key, BYTES);
        key_hash(key, hex);
        snprintf(name, sizeof name, "%s.kvko", hex);
        char *path = rt_path(dir, name);
        age(path, 1000 - i);
        free(path);
    }
    assert_int_equal(rt_count(dir, ".kvko"), 5);
    for (int i = 0; i < ENTRIES; i++) {
        char key[16];
        snprintf(key, sizeof key, "key %d", i);
        assert_int_equal(has(&cache, key), i >= 5);
    }
    put(&cache, "larger than the bound", 20 * BYTES);
    assert_int_equal(rt_count(dir, ".kvko"), 5);
    assert_int_equal(access(big, F_OK), 0);
    assert_int_equal(rt_log.warnings, 0);
    cache_close(&cache);
    free(big);
    free(zeros);
    rt_remove(dir);
}

static int sticky_body(const char *dir)
{
    if (geteuid() == 0 && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
        return 77;
    struct cache cache = open_limited(dir, 5000);
    put(&cache, "mine", 1000); /* the fourth of about 1200 bytes each */
    put(&cache, "mine too", 1000);
    return rt_log.warnings == 1 && strstr(rt_log.last, "old entries") && has(&cache, "mine too")
               ? 0
               : 1;
}

/* Others' entries that cannot be removed: said once, and writing goes on. */
static void failing_clean_up_is_said_once(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    char *dir = rt_folder(), *sub = rt_path(dir, "cache");
    struct cache cache = open_limited(sub, 0);
    put(&cache, "a", 1000);
    put(&cache, "b", 1000);
    put(&cache, "c", 1000);
    chmod(dir, 0755);
    chmod(sub, 01777);
    assert_int_equal(in_child(sticky_body, sub), 0);
    free(sub);
    cache_close(&cache);
    rt_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stored_is_found_and_private),
        cmocka_unit_test(damage_is_a_miss_and_repaired),
        cmocka_unit_test(text_decides_not_the_hash),
        cmocka_unit_test(hostile_entries_are_not_followed),
        cmocka_unit_test(hits_refresh_old_entries),
        cmocka_unit_test(directory_comes_from_options_then_environment),
        cmocka_unit_test(read_only_directory_is_read),
        cmocka_unit_test(directory_that_cannot_be_made_is_said_once),
        cmocka_unit_test(full_disk_is_memory_only),
        cmocka_unit_test(sixteen_processes_share_an_empty_directory),
        cmocka_unit_test(killed_writers_leave_nothing_harmful),
        cmocka_unit_test(stale_temporaries_go_and_fresh_ones_stay),
        cmocka_unit_test(oldest_entries_make_room),
        cmocka_unit_test(failing_clean_up_is_said_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
