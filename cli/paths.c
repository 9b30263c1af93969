/* SPDX-License-Identifier: Apache-2.0 */
/* paths.c - see paths.h. */
#include "paths.h"

#include "cli.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *executable_dir(void)
{
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0)
        return cli_format(".");
    path[length] = '\0';
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = '\0';
    return cli_format("%s", slash && slash > path ? path : "/");
}

static int is_dir(const char *path)
{
    struct stat info;
    return !stat(path, &info) && S_ISDIR(info.st_mode);
}

/* Folder `relative` to the executable if it exists, malloc'd. */
static char *beside(const char *relative)
{
    char *dir = executable_dir(), *path = cli_format("%s/%s", dir, relative);
    char *real = is_dir(path) ? realpath(path, NULL) : NULL; /* messages show it */
    free(dir);
    free(path);
    return real;
}

static char *join(char *list, const char *item)
{
    if (!item || !*item)
        return list;
    char *joined = *list ? cli_format("%s:%s", list, item) : cli_format("%s", item);
    free(list);
    return joined;
}

/* Of an installed tree, or else of the source tree above out/bin. What lies two folders above an
 * executable that was carried elsewhere is not ours: a source tree has the header. */
static char *shipped(const char *installed, const char *tree)
{
    char *path = beside(installed), *source = beside("../../runtime");
    char *header = cli_format("%s/kvkiln.h", source ? source : "");
    if (!path && source && access(header, F_OK) == 0)
        path = beside(tree);
    free(header);
    free(source);
    return path;
}

/* A folder that was named and is not there is a slip, which would go unnoticed where a preset of the same name is found
** elsewhere. */
static void need_dirs(const char *list)
{
    for (const char *dir = list;; dir++) {
        size_t length = strcspn(dir, ":");
        char *one = cli_format("%.*s", (int)length, dir);
        if (!is_dir(one)) {
            cli_message("--specs: '%s': accepted a folder", one);
            exit(CLI_USAGE);
        }
        free(one);
        dir += length;
        if (!*dir)
            return;
    }
}

char *paths_specs(const char *option)
{
    if (option)
        need_dirs(option);
    char *ours = shipped("../share/kvkiln/specs", "../../specs");
    char *list = join(join(cli_format("%s", ""), option), getenv("KVKILN_SPECS"));
    list = join(list, ours);
    free(ours);
    return list;
}

char *paths_data(const char *option)
{
    if (option)
        return is_dir(option) ? cli_format("%s", option) : NULL;
    return shipped("../share/kvkiln/data", "../../tests/data");
}

/* 0 with errno where that fails. */
static int write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    int good = file && fwrite(data, 1, bytes, file) == bytes;
    int failed = good ? 0 : errno;
    if (file && fclose(file) && good) {
        good = 0;
        failed = errno;
    }
    errno = failed;
    return good;
}

/* By a temporary file beside it, so that what is there is whole at all times. */
static int replace_file(const char *path, const void *data, size_t bytes)
{
    char *temporary = cli_format("%s.%ld.tmp", path, (long)getpid());
    int good = write_file(temporary, data, bytes) && !rename(temporary, path);
    int failed = errno;
    if (!good)
        unlink(temporary);
    free(temporary);
    errno = failed;
    return good;
}

/* Devices and pipes are written to, not replaced, and so is what a link points at. */
int paths_write(const char *path, const void *data, size_t bytes, char **error)
{
    struct stat st;
    int there = !stat(path, &st), good;
    char *target = there ? realpath(path, NULL) : NULL;
    if (there && !S_ISREG(st.st_mode))
        good = write_file(path, data, bytes);
    else
        good = replace_file(target ? target : path, data, bytes);
    if (!good)
        *error = cli_format("%s: %s", path, strerror(errno));
    free(target);
    return good;
}

int paths_make_dirs(const char *path)
{
    char *copy = cli_format("%s", path);
    for (char *c = copy + 1; *c; c++)
        if (*c == '/') {
            *c = '\0';
            mkdir(copy, 0777);
            *c = '/';
        }
    int good = !mkdir(copy, 0777) || errno == EEXIST;
    if (good && !is_dir(copy)) {
        errno = ENOTDIR;
        good = 0;
    }
    free(copy);
    return good;
}

int paths_make_parent(const char *path)
{
    char *copy = cli_format("%s", path), *slash = strrchr(copy, '/');
    int good = 1;
    if (slash && slash > copy) {
        *slash = '\0';
        good = paths_make_dirs(copy);
    }
    free(copy);
    return good;
}
