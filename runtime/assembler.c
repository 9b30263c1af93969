/* SPDX-License-Identifier: Apache-2.0 */
/*
** assembler.c - the name says which build it is: the version found in its real path and its size,
** which differs between releases even where the path does not say.
*/
#include "assembler.h"

#include "env.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__aarch64__)
#define TARGET_DIR "/usr/local/cuda/targets/sbsa-linux/lib"
#define MULTIARCH_DIR "/usr/lib/aarch64-linux-gnu"
#else
#define TARGET_DIR "/usr/local/cuda/targets/x86_64-linux/lib"
#define MULTIARCH_DIR "/usr/lib/x86_64-linux-gnu"
#endif

static const char *const sonames[] = {"libnvJitLink.so.13", "libnvJitLink.so.12"};

static const char *const library_dirs[] = {
    "/usr/local/cuda/lib64", TARGET_DIR, MULTIARCH_DIR, "/usr/lib64", "/usr/lib",
};

/* The longest run of digits and dots in a path, the last one of equals: "13.0" of
** /usr/local/cuda-13.0/...; or "". */
static void version_in(const char *path, char *out, size_t cap)
{
    size_t best = 0, best_at = 0;
    for (size_t i = 0; path[i];) {
        size_t n = strspn(path + i, "0123456789.");
        size_t lead = strspn(path + i, ".");
        if (n > lead && n - lead >= best && strspn(path + i + lead, "0123456789") > 0) {
            best = n - lead;
            best_at = i + lead;
        }
        i += n ? n : 1;
    }
    if (best >= cap)
        best = cap - 1;
    memcpy(out, path + best_at, best);
    while (best && out[best - 1] == '.')
        best--;
    out[best] = '\0';
}

static int take(struct assembler *out, enum assembler_kind kind, const char *path)
{
    struct stat st;
    char real[PATH_MAX], version[32];
    size_t length = strlen(path);
    if (length >= sizeof out->path || !realpath(path, real) || stat(real, &st) != 0 ||
        !S_ISREG(st.st_mode))
        return 0;
    if (kind == ASSEMBLER_PTXAS && access(real, X_OK) != 0)
        return 0;
    version_in(real, version, sizeof version);
    memcpy(out->path, path, length + 1);
    out->kind = kind;
    snprintf(out->name, sizeof out->name, "%s %s%s%lld",
             kind == ASSEMBLER_PTXAS ? "ptxas" : "nvJitLink", version, *version ? " " : "",
             (long long)st.st_size);
    return 1;
}

/* `file` in each directory of a colon-separated list. */
static int take_from_list(struct assembler *out, enum assembler_kind kind, const char *list,
                          const char *file)
{
    char path[PATH_MAX];
    while (list && *list) {
        size_t n = strcspn(list, ":");
        if (n && snprintf(path, sizeof path, "%.*s/%s", (int)n, list, file) < (int)sizeof path &&
            take(out, kind, path))
            return 1;
        list += n + (list[n] == ':');
    }
    return 0;
}

/*
** The loader's cache holds every path as a NUL-ended string, in each of its formats: looking for
** "/NAME\0" needs no knowledge of them, and a wrong guess is refused by take().
*/
static int take_from_loader_cache(struct assembler *out, const char *soname)
{
    char needle[64];
    struct stat st;
    int found = 0, fd = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    size_t length = (size_t)snprintf(needle, sizeof needle, "/%s", soname) + 1; /* with its NUL */
    const char *map = MAP_FAILED;
    if (fstat(fd, &st) == 0 && st.st_size > 0 && st.st_size < (16 << 20))
        map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return 0;
    const char *end = map + st.st_size, *at = map;
    while (!found && (at = memmem(at, (size_t)(end - at), needle, length)) != NULL) {
        const char *start = at;
        while (start > map && start[-1])
            start--;
        found = start[0] == '/' && take(out, ASSEMBLER_NVJITLINK, start);
        at += length;
    }
    munmap((void *)map, (size_t)st.st_size);
    return found;
}

static int take_library(struct assembler *out, const char *soname)
{
    char path[PATH_MAX];
    if (take_from_list(out, ASSEMBLER_NVJITLINK, env_get(ENV_LIBRARY_PATH), soname) ||
        take_from_loader_cache(out, soname))
        return 1;
    for (size_t i = 0; i < sizeof library_dirs / sizeof *library_dirs; i++) {
        snprintf(path, sizeof path, "%s/%s", library_dirs[i], soname);
        if (take(out, ASSEMBLER_NVJITLINK, path))
            return 1;
    }
    return 0;
}

int assembler_find(struct assembler *out)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < sizeof sonames / sizeof *sonames; i++)
        if (take_library(out, sonames[i]))
            return 1;
    if (take_from_list(out, ASSEMBLER_PTXAS, env_get(ENV_PATH), "ptxas") ||
        take(out, ASSEMBLER_PTXAS, "/usr/local/cuda/bin/ptxas"))
        return 1;
    strcpy(out->name, "none");
    return 0;
}
