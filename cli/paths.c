/* SPDX-License-Identifier: Apache-2.0 */
/* paths.c - see paths.h. */
#include "paths.h"

#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_LINKS = 40 };

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

static char *temporary_of(const char *path)
{
    return cli_format("%s.%ld.tmp", path, (long)getpid());
}

/* By a temporary file beside it, so that what is there is whole at all times. */
static int replace_file(const char *path, const void *data, size_t bytes)
{
    char *temporary = temporary_of(path);
    int good = write_file(temporary, data, bytes) && !rename(temporary, path);
    int failed = errno;
    if (!good)
        unlink(temporary);
    free(temporary);
    errno = failed;
    return good;
}

/* What `path` stands for: where it is a link, the file that this points at, which need not be there. malloc'd. */
static char *through_links(const char *path)
{
    char *at = cli_format("%s", path), to[PATH_MAX];
    for (int i = 0; i < MOST_LINKS; i++) {
        ssize_t length = readlink(at, to, sizeof to - 1);
        if (length <= 0)
            break;
        to[length] = '\0';
        char *slash = *to == '/' ? NULL : strrchr(at, '/');
        char *next = cli_format("%.*s%s", slash ? (int)(slash + 1 - at) : 0, at, to);
        free(at);
        at = next;
    }
    return at;
}

static int is_special(const char *path)
{
    struct stat st;
    return !stat(path, &st) && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

/* Devices and pipes are written to, not replaced, and so is what a link points at. */
int paths_write(const char *path, const void *data, size_t bytes, char **error)
{
    char *target = through_links(path);
    int good = is_special(path) ? write_file(path, data, bytes) : replace_file(target, data, bytes);
    if (!good)
        *error = cli_format("%s: %s", path, strerror(errno));
    free(target);
    return good;
}

/* A message, of errno, unless `good`. */
static int said(int good, const char *path)
{
    if (!good)
        cli_message("%s: %s", path, strerror(errno));
    return good;
}

/* By what will be done, as access() allows root what a file system does not. */
static int can_replace(const char *path)
{
    char *temporary = temporary_of(path);
    int file = open(temporary, O_WRONLY | O_CREAT | O_CLOEXEC, 0666), failed = errno;
    if (file >= 0) {
        close(file);
        unlink(temporary);
    }
    free(temporary);
    errno = failed;
    return file >= 0;
}

static int make_dir(const char *path)
{
    int failed = mkdir(path, 0777) ? errno : 0;
    if (!failed || is_dir(path))
        return 1;
    errno = failed == EEXIST ? ENOTDIR : failed;
    return 0;
}

/* Those in `path` that are not there, the first `length` bytes of it: said of the one that could not be made. */
static int make_dirs(const char *path, size_t length)
{
    int good = 1;
    for (size_t end = 1; end <= length && good; end++) {
        if (end < length && path[end] != '/')
            continue;
        char *folder = cli_format("%.*s", (int)end, path);
        good = said(make_dir(folder), folder);
        free(folder);
    }
    return good;
}

int paths_make_folder(const char *path)
{
    errno = ENOENT;
    if (!said(*path != '\0', path) || !make_dirs(path, strlen(path)))
        return 0;
    char *file = cli_format("%s/kvkiln", path);
    int good = said(can_replace(file), path);
    free(file);
    return good;
}

int paths_make_ready(const char *path)
{
    if (is_special(path))
        return said(!access(path, W_OK), path);
    char *target = through_links(path), *slash = strrchr(target, '/');
    errno = *path ? EISDIR : ENOENT;
    int good = said(*path && (!slash || slash[1]) && !is_dir(target), path) &&
               (!slash || make_dirs(target, (size_t)(slash - target))) &&
               said(can_replace(target), path);
    free(target);
    return good;
}
