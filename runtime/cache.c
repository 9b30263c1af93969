/* SPDX-License-Identifier: Apache-2.0 */
/*
** cache.c - finding, reading and publishing entries.
**
** An entry is written beside its final name under a name nobody else can have, synced, and renamed:
** readers see a whole file or none, and the last of several writers wins with equal bytes. A
** process killed anywhere leaves at most a temporary file, which a later sweep removes. No lock is
** taken, so none can be left behind.
*/
#include "cache.h"

#include "env.h"
#include "error.h"
#include "key.h"
#include "object.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PATH_CAP = 4096, REFRESH_SECONDS = 3600, NAME_TRIES = 8 };

static char *join(const char *a, const char *b)
{
    char *path;
    return asprintf(&path, "%s%s", a, b) < 0 ? NULL : path;
}

char *cache_resolve_dir(const char *dir)
{
    const char *env;
    if (!dir)
        dir = env_get(ENV_CACHE_DIR);
    if (dir)
        return *dir ? strdup(dir) : NULL;
    env = env_get(ENV_XDG_CACHE);
    if (env && env[0] == '/') /* the XDG rules: a relative path is ignored */
        return join(env, "/kvkiln");
    env = env_get(ENV_HOME);
    return env && env[0] == '/' ? join(env, "/.cache/kvkiln") : NULL;
}

kvk_status cache_open(struct cache *cache, const char *dir, uint64_t limit_bytes, cache_log *log,
                      void *log_data, kvk_error *err)
{
    memset(cache, 0, sizeof *cache);
    const char *asked = dir ? dir : env_get(ENV_CACHE_DIR);
    cache->dir = cache_resolve_dir(dir);
    cache->derived = !asked;
    if (asked && *asked && !cache->dir)
        return ERR(err, KVK_E_MEMORY, "no memory for a path");
    cache->limit_bytes = limit_bytes ? limit_bytes : CACHE_DEFAULT_BYTES;
    cache->log = log;
    cache->log_data = log_data;
    cache->disabled = asked && !*asked; /* memory only by request needs no warning */
    pthread_mutex_init(&cache->mutex, NULL);
    return KVK_OK;
}

void cache_close(struct cache *cache)
{
    pthread_mutex_destroy(&cache->mutex);
    free(cache->dir);
    cache->dir = NULL;
}

/* One warning for the life of a cache, whatever goes wrong and how often. */
static void trouble(struct cache *cache, const char *what, int error, int disable)
{
    char line[PATH_CAP + 256];
    pthread_mutex_lock(&cache->mutex);
    int first = !cache->warned;
    cache->warned = 1;
    if (disable)
        cache->disabled = 1;
    pthread_mutex_unlock(&cache->mutex);
    if (!first || !cache->log)
        return;
    if (cache->dir)
        snprintf(line, sizeof line, "kernel cache %s: %s: %s%s", cache->dir, what, strerror(error),
                 disable ? "; new kernels are kept in memory only" : "");
    else
        snprintf(line, sizeof line,
                 "no kernel cache: none of KVKILN_CACHE_DIR, XDG_CACHE_HOME, HOME names a "
                 "directory; kernels are kept in memory only");
    cache->log(cache->log_data, KVK_LOG_WARNING, line);
}

static int is_disabled(struct cache *cache)
{
    pthread_mutex_lock(&cache->mutex);
    int disabled = cache->disabled;
    pthread_mutex_unlock(&cache->mutex);
    return disabled;
}

static int entry_path(const struct cache *cache, const char *key, char path[PATH_CAP])
{
    char hex[KEY_HASH_CHARS];
    key_hash(key, hex);
    int n = snprintf(path, PATH_CAP, "%s/%s.kvko", cache->dir, hex);
    return n > 0 && n < PATH_CAP;
}

static void *read_all(int fd, size_t size)
{
    unsigned char *bytes = malloc(size ? size : 1);
    size_t have = 0;
    while (bytes && have < size) {
        ssize_t n = read(fd, bytes + have, size - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    if (have == size)
        return bytes;
    free(bytes);
    return NULL;
}

/* The use of an entry is its modification time; written at most once an hour, so that hits stay
** reads. */
static void refresh(int fd, const struct stat *st)
{
    if (time(NULL) - st->st_mtime > REFRESH_SECONDS && futimens(fd, NULL) != 0)
        return; /* another owner's, or read-only: it then ages, which costs a compile some day */
}

/* Entries are executed, and a home may be another user's (sudo keeps HOME). Root may plant in any home. */
static int is_foreign(struct cache *cache, const struct stat *st)
{
    if (!cache->derived || st->st_uid == geteuid() || st->st_uid == 0)
        return 0;
    trouble(cache, "entries of another user are not used", EPERM, 0);
    return 1;
}

void *cache_load(struct cache *cache, const char *key, size_t *bytes)
{
    char path[PATH_CAP];
    struct stat st;
    struct object object;
    void *data = NULL;
    if (!cache->dir || !entry_path(cache, key, path))
        return NULL;
    /* A link, pipe or device under our name is not ours: not followed, not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 &&
        (uint64_t)st.st_size <= CACHE_ENTRY_MOST_BYTES && !is_foreign(cache, &st))
        data = read_all(fd, (size_t)st.st_size);
    if (data && (object_parse(data, (size_t)st.st_size, &object, NULL) != KVK_OK ||
                 strcmp(object.key, key) != 0)) {
        free(data);
        data = NULL;
    }
    if (data) {
        refresh(fd, &st);
        *bytes = (size_t)st.st_size;
    }
    close(fd);
    return data;
}

/* mkdir -p, private: cached code is executed. 0 or an errno. */
static int make_directory(const char *dir)
{
    char path[PATH_CAP];
    size_t length = strlen(dir);
    if (length >= sizeof path)
        return ENAMETOOLONG;
    memcpy(path, dir, length + 1);
    if (mkdir(path, 0700) == 0 || errno == EEXIST)
        return 0;
    for (char *p = path + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST && errno != EROFS && errno != EACCES)
            return errno;
        *p = '/';
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : errno;
}

static uint64_t random_bits(void)
{
    uint64_t bits;
    if (getrandom(&bits, sizeof bits, GRND_NONBLOCK) == (ssize_t)sizeof bits)
        return bits;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_nsec << 32 ^ (uint64_t)(uintptr_t)&bits ^ (uint64_t)getpid() << 16;
}

/* A file that no other process, thread or machine has: made exclusively, tried again under another
** name. */
static int open_temporary(const char *path, char temporary[PATH_CAP])
{
    const char *name = strrchr(path, '/') + 1;
    for (int i = 0; i < NAME_TRIES; i++) {
        int n =
            snprintf(temporary, PATH_CAP, "%.*s.%.*s.%ld.%016llx.tmp", (int)(name - path), path,
                     KEY_HASH_CHARS - 1, name, (long)getpid(), (unsigned long long)random_bits());
        if (n < 0 || n >= PATH_CAP) {
            errno = ENAMETOOLONG;
            return -1;
        }
        int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

/* Past a file size limit, write raises SIGXFSZ, whose default ends the process: it is held back and
** taken here. */
static int write_all(int fd, const void *data, size_t bytes)
{
    sigset_t limit, before, pending;
    const struct timespec at_once = {0, 0};
    const unsigned char *from = data;
    int error = 0, was_pending;
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &limit, &before);
    was_pending = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ);
    while (bytes && !error) {
        ssize_t n = write(fd, from, bytes);
        if (n >= 0) {
            from += n;
            bytes -= (size_t)n;
        } else if (errno != EINTR) {
            error = errno;
        }
    }
    if (error == EFBIG && !was_pending)
        sigtimedwait(&limit, NULL, &at_once);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* 0 or an errno; *what names the step. Leaves no temporary file unless the process dies inside. */
static int publish(const char *path, const void *object, size_t bytes, const char **what)
{
    char temporary[PATH_CAP];
    *what = "cannot make a file";
    int fd = open_temporary(path, temporary), error;
    if (fd < 0)
        return errno;
    *what = "cannot write";
    error = write_all(fd, object, bytes);
    if (!error && fsync(fd) != 0 && errno != EINVAL && errno != EROFS)
        error = errno;
    if (close(fd) != 0 && !error && errno != EINTR)
        error = errno;
    if (!error) {
        *what = "cannot rename a file to its final name";
        if (rename(temporary, path) == 0)
            return 0;
        error = errno;
    }
    unlink(temporary);
    return error;
}

/* Counts what was written; says whether the directory is to be looked over now. */
static int sweep_is_due(struct cache *cache, size_t bytes)
{
    pthread_mutex_lock(&cache->mutex);
    cache->unswept_bytes += bytes;
    int due = !cache->swept || cache->unswept_bytes > cache->limit_bytes / 32;
    if (due) {
        cache->swept = 1;
        cache->unswept_bytes = 0;
    }
    pthread_mutex_unlock(&cache->mutex);
    return due;
}

void cache_store(struct cache *cache, const char *key, const void *object, size_t bytes)
{
    char path[PATH_CAP];
    const char *what = "cannot make the directory";
    if (is_disabled(cache))
        return;
    if (!cache->dir) {
        trouble(cache, "", 0, 1);
        return;
    }
    if (bytes > CACHE_ENTRY_MOST_BYTES || bytes > cache->limit_bytes)
        return; /* would be thrown out at once */
    int error = entry_path(cache, key, path) ? 0 : ENAMETOOLONG;
    if (!error)
        error = make_directory(cache->dir);
    if (!error)
        error = publish(path, object, bytes, &what);
    if (error) {
        trouble(cache, what, error, 1);
        return;
    }
    if (sweep_is_due(cache, bytes) && (error = cache_sweep(cache->dir, cache->limit_bytes)) != 0)
        trouble(cache, "cannot remove old entries", error, 0);
}
