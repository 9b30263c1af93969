/* SPDX-License-Identifier: Apache-2.0 */
#include "faults.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct faults faults;

void faults_arm(unsigned families, int fail_at, int error)
{
    faults_disarm();
    faults.chance = 0;
    faults.calls = faults.failures = 0;
    faults.failed = "";
    faults.fail_at = fail_at;
    faults.error = error;
    faults.families = families;
}

void faults_disarm(void) { faults.families = 0; }

static int drawn(void)
{
    unsigned chance = faults.chance;
    if (!chance)
        return 0;
    unsigned long long x = atomic_fetch_add(&faults.random, 0x9E3779B97F4A7C15u);
    x = (x ^ x >> 31) * 0xBF58476D1CE4E5B9u;
    return (x ^ x >> 29) >> 48 < chance;
}

/* Counts a call; if it is to fail, sets errno. */
static int fails(unsigned family, int error, const char *name)
{
    if (!(faults.families & family))
        return 0;
    int call = ++faults.calls;
    if (call != faults.fail_at && !drawn())
        return 0;
    faults.failures++;
    faults.failed = name;
    errno = error;
    return 1;
}

#define NO_MEMORY(name) fails(FAULT_MEMORY, ENOMEM, name)
#define NO_FILE(name) fails(FAULT_FILES, faults.error, name)

/* WRAP(type, name, parameters): declares both names of a wrapped call and begins ours. */
#define WRAP(type, name, ...)                                                                      \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

/* ---- memory ---- */

WRAP(void *, malloc, size_t bytes) { return NO_MEMORY("malloc") ? NULL : __real_malloc(bytes); }

WRAP(void *, calloc, size_t n, size_t bytes)
{
    return NO_MEMORY("calloc") ? NULL : __real_calloc(n, bytes);
}

WRAP(void *, realloc, void *old, size_t bytes)
{
    return NO_MEMORY("realloc") ? NULL : __real_realloc(old, bytes);
}

WRAP(void *, aligned_alloc, size_t alignment, size_t bytes)
{
    return NO_MEMORY("aligned_alloc") ? NULL : __real_aligned_alloc(alignment, bytes);
}

WRAP(char *, strdup, const char *text) { return NO_MEMORY("strdup") ? NULL : __real_strdup(text); }

int __wrap_asprintf(char **out, const char *format, ...);
int __wrap_asprintf(char **out, const char *format, ...)
{
    va_list args;
    if (NO_MEMORY("asprintf"))
        return -1;
    va_start(args, format);
    int n = vasprintf(out, format, args);
    va_end(args);
    return n;
}

WRAP(void *, mmap, void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    return NO_MEMORY("mmap") ? MAP_FAILED : __real_mmap(at, bytes, protection, flags, fd, offset);
}

WRAP(int, mprotect, void *at, size_t bytes, int protection)
{
    return NO_MEMORY("mprotect") ? -1 : __real_mprotect(at, bytes, protection);
}

/* ---- threads ---- */

WRAP(int, pthread_create, pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
     void *data)
{
    return fails(FAULT_THREADS, EAGAIN, "pthread_create")
               ? EAGAIN
               : __real_pthread_create(thread, attr, run, data);
}

/* ---- libraries ---- */

WRAP(void *, dlsym, void *library, const char *name)
{
    const char *missing = faults.missing;
    return missing && strcmp(missing, name) == 0 ? NULL : __real_dlsym(library, name);
}

WRAP(int, madvise, void *at, size_t bytes, int advice)
{
    const char *missing = faults.missing;
    return missing && strcmp(missing, "madvise") == 0 ? -1 : __real_madvise(at, bytes, advice);
}

WRAP(void *, dlopen, const char *path, int flags)
{
    const char *missing = faults.missing;
    return __real_dlopen(missing && strcmp(missing, "dlopen") == 0 ? "/nowhere.so" : path, flags);
}

/* ---- files ---- */

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return NO_FILE("open") ? -1 : __real_open(path, flags, mode);
}

WRAP(ssize_t, read, int fd, void *to, size_t bytes)
{
    return NO_FILE("read") ? -1 : __real_read(fd, to, bytes);
}

/* A disk that fills up takes the first half. */
WRAP(ssize_t, write, int fd, const void *from, size_t bytes)
{
    if (!NO_FILE("write"))
        return __real_write(fd, from, bytes);
    int error = errno;
    if (error == ENOSPC && bytes > 1 && __real_write(fd, from, bytes / 2) < 0)
        return -1;
    errno = error;
    return -1;
}

/* The descriptor is gone all the same, as Linux has it. */
WRAP(int, close, int fd)
{
    int failing = NO_FILE("close"), error = errno;
    int status = __real_close(fd);
    if (failing)
        errno = error;
    return failing ? -1 : status;
}

WRAP(DIR *, opendir, const char *path) { return NO_FILE("opendir") ? NULL : __real_opendir(path); }

WRAP(struct dirent *, readdir, DIR *dir) { return NO_FILE("readdir") ? NULL : __real_readdir(dir); }

#define WRAP_FILE(name, parameters, arguments)                                                     \
    int __real_##name parameters;                                                                  \
    int __wrap_##name parameters;                                                                  \
    int __wrap_##name parameters { return NO_FILE(#name) ? -1 : __real_##name arguments; }

WRAP_FILE(fsync, (int fd), (fd))
WRAP_FILE(rename, (const char *from, const char *to), (from, to))
WRAP_FILE(unlink, (const char *path), (path))
WRAP_FILE(unlinkat, (int dir, const char *path, int flags), (dir, path, flags))
WRAP_FILE(mkdir, (const char *path, mode_t mode), (path, mode))
WRAP_FILE(fstat, (int fd, struct stat *st), (fd, st))
WRAP_FILE(fstatat, (int dir, const char *path, struct stat *st, int flags), (dir, path, st, flags))
WRAP_FILE(futimens, (int fd, const struct timespec times[2]), (fd, times))
