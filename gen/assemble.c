/* SPDX-License-Identifier: Apache-2.0 */
/*
** assemble.c - nvJitLink in process (by dlopen, own prototypes: nvJitLink.h's entry points have
** plain C types), or ptxas as a child process with temporary files. Neither is linked; both give
** the same code.
*/
#include "assemble.h"

#include "../runtime/error.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define QUICK "-Ofc=min" /* quicker compilation, from CUDA 13.0 on; older ones refuse it by name */

/* Beside a driver nvJitLink keeps what it made in the driver's cache under HOME, and what comes from there differs
** in bytes: objects would not be the same twice, and kvkiln has a cache of its own. Releases that do not know the
** option go without it. */
#define NO_CACHE "-no-cache"

/* ---- nvJitLink ---- */

enum { NVJITLINK_PTX = 2 };

struct jit {
    void *dso, *handle;
    int (*create)(void **, uint32_t, const char **);
    int (*destroy)(void **);
    int (*add)(void *, int, const void *, size_t, const char *);
    int (*complete)(void *);
    int (*cubin_size)(void *, size_t *);
    int (*cubin)(void *, void *);
    int (*error_size)(void *, size_t *);
    int (*error)(void *, char *);
    int (*info_size)(void *, size_t *);
    int (*info)(void *, char *);
};

static int jit_open(struct jit *j, const char *path)
{
    *j = (struct jit){.dso = dlopen(path, RTLD_NOW | RTLD_LOCAL)};
    if (!j->dso)
        return 0;
    const struct {
        void *slot;
        const char *name;
    } symbols[] = {
        {&j->create, "nvJitLinkCreate"},
        {&j->destroy, "nvJitLinkDestroy"},
        {&j->add, "nvJitLinkAddData"},
        {&j->complete, "nvJitLinkComplete"},
        {&j->cubin_size, "nvJitLinkGetLinkedCubinSize"},
        {&j->cubin, "nvJitLinkGetLinkedCubin"},
        {&j->error_size, "nvJitLinkGetErrorLogSize"},
        {&j->error, "nvJitLinkGetErrorLog"},
        {&j->info_size, "nvJitLinkGetInfoLogSize"},
        {&j->info, "nvJitLinkGetInfoLog"},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *f = dlsym(j->dso, symbols[i].name);
        if (!f)
            return 0;
        memcpy(symbols[i].slot, &f,
               sizeof f); /* a data pointer holds a function's address wherever dlsym exists */
    }
    return 1;
}

static char *jit_log(struct jit *j, int (*size)(void *, size_t *), int (*get)(void *, char *))
{
    size_t n = 0;
    if (size(j->handle, &n) || !n)
        return NULL;
    char *text = calloc(1, n + 1);
    if (text && get(j->handle, text)) {
        free(text);
        text = NULL;
    }
    return text;
}

/* nvJitLink is said to be safe where each thread has a handle of its own. ThreadSanitizer sees a mutex of the library
** made while another thread takes it, but not where handles are made and ended one after the other. */
static pthread_mutex_t handles = PTHREAD_MUTEX_INITIALIZER;

static int jit_create(struct jit *j, const char **options, uint32_t n)
{
    pthread_mutex_lock(&handles);
    int failed = j->create(&j->handle, n, options);
    if (failed && j->handle)
        j->destroy(&j->handle);
    pthread_mutex_unlock(&handles);
    if (failed)
        j->handle = NULL;
    return !failed;
}

static void jit_destroy(struct jit *j)
{
    pthread_mutex_lock(&handles);
    j->destroy(&j->handle);
    pthread_mutex_unlock(&handles);
}

static kvk_status jit_run(struct jit *j, const char *ptx, const char *arch, int quick, void **cubin,
                          size_t *bytes, char **report, kvk_error *err)
{
    char option[48];
    snprintf(option, sizeof option, "-arch=%s", arch);
    const char *options[] = {option, quick ? "-Xptxas=" QUICK : "-O3", "-verbose", NO_CACHE};
    if (!jit_create(j, options, 4) && !jit_create(j, options, 3))
        return ERR(err, KVK_E_COMPILE, "nvJitLink does not accept -arch=%s", arch);
    int rc =
        j->add(j->handle, NVJITLINK_PTX, ptx, strlen(ptx) + 1, "kernel.ptx"); /* with its NUL */
    rc = rc ? rc : j->complete(j->handle);
    rc = rc ? rc : j->cubin_size(j->handle, bytes);
    if (!rc && !(*cubin = malloc(*bytes)))
        return ERR(err, KVK_E_MEMORY, "out of memory");
    rc = rc ? rc : j->cubin(j->handle, *cubin);
    if (rc) {
        char *log = jit_log(j, j->error_size, j->error);
        kvk_status status =
            ERR(err, KVK_E_COMPILE, "nvJitLink for %s: %s", arch, log ? log : "no log");
        free(log);
        free(*cubin);
        *cubin = NULL;
        return status;
    }
    *report = jit_log(j, j->info_size, j->info);
    return KVK_OK;
}

static kvk_status by_jit(const char *path, const char *ptx, const char *arch, int quick,
                         void **cubin, size_t *bytes, char **report, kvk_error *err)
{
    struct jit j;
    kvk_status status = KVK_OK;
    if (!jit_open(&j, path))
        status = ERR(err, KVK_E_COMPILE, "cannot load %s: %s", path,
                     j.dso ? "a symbol is missing" : dlerror());
    else
        status = jit_run(&j, ptx, arch, quick, cubin, bytes, report, err);
    if (j.dso && j.handle)
        jit_destroy(&j);
    /* the library stays loaded: loading it again costs more than the memory it holds */
    return status;
}

/* ---- ptxas ---- */

static kvk_status write_all(int fd, const char *text, size_t n, kvk_error *err)
{
    while (n) {
        ssize_t w = write(fd, text, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return ERR(err, KVK_E_IO, "cannot write a temporary file: %s", strerror(errno));
        text += w;
        n -= (size_t)w;
    }
    return KVK_OK;
}

/* The rest of a file from its start; NUL appended. */
static void *read_file(const char *path, size_t *bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    char *p = NULL;
    if (fd >= 0 && !fstat(fd, &st) && (p = malloc((size_t)st.st_size + 1))) {
        ssize_t n = read(fd, p, (size_t)st.st_size);
        *bytes = n > 0 ? (size_t)n : 0;
        p[*bytes] = 0;
    }
    if (fd >= 0)
        close(fd);
    return p;
}

static int run(char *const argv[], const char *log)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t pid;
    int rc = posix_spawn(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    int status;
    if (rc)
        return -rc;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static kvk_status ptxas_in(const char *dir, const char *path, const char *ptx, const char *arch,
                           int quick, void **cubin, size_t *bytes, char **report, kvk_error *err)
{
    char in[64], out[64], log[64], option[48];
    snprintf(in, sizeof in, "%s/k.ptx", dir);
    snprintf(out, sizeof out, "%s/k.cubin", dir);
    snprintf(log, sizeof log, "%s/k.log", dir);
    snprintf(option, sizeof option, "-arch=%s", arch);
    int fd = open(in, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return ERR(err, KVK_E_IO, "%s: %s", in, strerror(errno));
    kvk_status status = write_all(fd, ptx, strlen(ptx), err);
    close(fd);
    if (!status) {
        char *argv[] = {(char *)path, option, quick ? QUICK : "-O3", "-v", "-o", out, in, NULL};
        int rc = run(argv, log);
        size_t n = 0;
        *report = read_file(log, &n);
        if (rc)
            status = ERR(err, KVK_E_COMPILE, "%s ended with %d: %s", path, rc,
                         *report ? *report : "no log");
        else if (!(*cubin = read_file(out, bytes)))
            status = ERR(err, KVK_E_COMPILE, "%s wrote no cubin", path);
    }
    unlink(in);
    unlink(out);
    unlink(log);
    return status;
}

static kvk_status by_ptxas(const char *path, const char *ptx, const char *arch, int quick,
                           void **cubin, size_t *bytes, char **report, kvk_error *err)
{
    char dir[] = "/tmp/kvkiln.XXXXXX";
    if (!mkdtemp(dir))
        return ERR(err, KVK_E_IO, "%s: %s", dir, strerror(errno));
    kvk_status status = ptxas_in(dir, path, ptx, arch, quick, cubin, bytes, report, err);
    rmdir(dir);
    return status;
}

static kvk_status by_any(const struct assembler *assembler, const char *ptx, const char *arch,
                         int quick, void **cubin, size_t *bytes, char **report, kvk_error *err)
{
    *cubin = NULL;
    *report = NULL;
    if (assembler->kind == ASSEMBLER_NVJITLINK)
        return by_jit(assembler->path, ptx, arch, quick, cubin, bytes, report, err);
    if (assembler->kind == ASSEMBLER_PTXAS)
        return by_ptxas(assembler->path, ptx, arch, quick, cubin, bytes, report, err);
    return ERR(err, KVK_E_COMPILE, "no assembler: neither libnvJitLink nor ptxas was found");
}

kvk_status assemble_ptx(const struct assembler *assembler, const char *ptx, const char *arch,
                        int quick, void **cubin, size_t *bytes, char **report, kvk_error *err)
{
    kvk_error first;
    if (quick && by_any(assembler, ptx, arch, 1, cubin, bytes, report, &first) == KVK_OK)
        return KVK_OK;
    if (quick)
        free(*report);
    return by_any(assembler, ptx, arch, 0, cubin, bytes, report, err);
}
