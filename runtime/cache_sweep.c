/* SPDX-License-Identifier: Apache-2.0 */
/*
** cache_sweep.c - keeping the directory inside its bound.
**
** Only names of this cache are counted or removed; whatever else lies in the directory stays.
** Several processes may sweep at once: a file that another one removed first is no trouble. An
** entry that is removed while it is being read stays readable to that reader.
*/
#include "cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HASH_CHARS = 32, STALE_SECONDS = 3600 };

struct entry {
    char name[HASH_CHARS + 6];
    struct timespec used;
    uint64_t bytes;
};

struct list {
    struct entry *entries;
    size_t count, room;
    uint64_t bytes;
};

static int starts_with_hash(const char *name)
{
    return strspn(name, "0123456789abcdef") == HASH_CHARS;
}

int cache_is_entry(const char *name)
{
    return starts_with_hash(name) && strcmp(name + HASH_CHARS, ".kvko") == 0;
}

int cache_is_temporary(const char *name)
{
    size_t length = strlen(name);
    return name[0] == '.' && starts_with_hash(name + 1) && name[1 + HASH_CHARS] == '.' &&
           strcmp(name + length - 4, ".tmp") == 0;
}

static int oldest_first(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec)
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    if (x->used.tv_nsec != y->used.tv_nsec)
        return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int add(struct list *list, const char *name, const struct stat *st)
{
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 256;
        struct entry *more = realloc(list->entries, room * sizeof *more);
        if (!more)
            return ENOMEM;
        list->entries = more;
        list->room = room;
    }
    struct entry *e = &list->entries[list->count++];
    strcpy(e->name, name);
    e->used = st->st_mtim;
    e->bytes = (uint64_t)st->st_size;
    list->bytes += e->bytes;
    return 0;
}

/* A file somebody else removed meanwhile is gone all the same. */
static int drop(int dir, const char *name)
{
    return unlinkat(dir, name, 0) == 0 || errno == ENOENT ? 0 : errno;
}

static int collect(DIR *stream, struct list *list)
{
    int dir = dirfd(stream), error = 0;
    struct stat st;
    time_t now = time(NULL);
    for (struct dirent *d; (d = readdir(stream)) != NULL;) {
        int entry = cache_is_entry(d->d_name), temporary = cache_is_temporary(d->d_name);
        if ((!entry && !temporary) || fstatat(dir, d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(st.st_mode))
            continue;
        int e = 0;
        if (temporary && now - st.st_mtime > STALE_SECONDS)
            e = drop(dir, d->d_name);
        else if (entry)
            e = add(list, d->d_name, &st);
        error = e ? e : error;
    }
    return error;
}

int cache_sweep(const char *path, uint64_t limit_bytes)
{
    struct list list = {0};
    DIR *stream = opendir(path);
    if (!stream)
        return errno;
    int error = collect(stream, &list);
    if (list.bytes > limit_bytes)
        qsort(list.entries, list.count, sizeof *list.entries, oldest_first);
    for (size_t i = 0; i < list.count && list.bytes > limit_bytes; i++) {
        int e = drop(dirfd(stream), list.entries[i].name);
        if (e)
            error = e;
        else
            list.bytes -= list.entries[i].bytes;
    }
    free(list.entries);
    closedir(stream);
    return error;
}
