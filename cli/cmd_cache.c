/* SPDX-License-Identifier: Apache-2.0 */
/*
** cmd_cache.c - `kvkiln cache`: the folder of compiled kernels, by the runtime's own functions.
**
** Only files with names of the cache are looked at, and removed; another process may use the folder
** meanwhile: what is gone when it is to be read or removed is no trouble.
*/
#include "cli.h"

#include "../runtime/cache.h"
#include "../runtime/key.h"
#include "../runtime/object.h"

#include "build_id.h"

#include <argp.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum command { CACHE_PATH, CACHE_LIST, CACHE_VERIFY, CACHE_PRUNE, CACHE_CLEAR, CACHE_COMMANDS };
static const char *const names[CACHE_COMMANDS] = {"path", "list", "verify", "prune", "clear"};

struct options {
    enum command command;
    int given, json;
    const char *dir;
    uint64_t limit;
};

struct entry {
    char *name; /* of the file */
    char kernel[256], target[64], why[160];
    uint64_t bytes;
    time_t used;
    int whole, current; /* as sealed; of this build's generator */
};

struct entries {
    struct entry *items;
    size_t count, temporary, broken;
    uint64_t bytes;
};

/* One line of a key text: "generator ...". */
static int key_says(const char *key, const char *line)
{
    const char *at = strstr(key, line);
    return at && (at == key || at[-1] == '\n') && at[strlen(line)] == '\n';
}

static void inspect(struct entry *e, const void *bytes, size_t size)
{
    struct object object;
    kvk_error err = {0};
    char hex[KEY_HASH_CHARS];
    if (object_parse(bytes, size, &object, &err)) {
        snprintf(e->why, sizeof e->why, "%.150s", err.text);
        return;
    }
    object_get(&object, "kernel", e->kernel, sizeof e->kernel);
    object_get(&object, "target", e->target, sizeof e->target);
    key_hash(object.key, hex);
    if (strncmp(hex, e->name, KEY_HASH_CHARS - 1))
        snprintf(e->why, sizeof e->why, "the file's name is not that of its key");
    else
        e->whole = 1;
    e->current = key_says(object.key, "generator " KVK_BUILD_ID);
}

static void read_entry(const char *dir, struct entry *e)
{
    char *path = cli_format("%s/%s", dir, e->name);
    FILE *file = e->bytes && e->bytes <= CACHE_ENTRY_MOST_BYTES ? fopen(path, "rb") : NULL;
    void *bytes = file ? cli_alloc((size_t)e->bytes, 1) : NULL;
    if (!file)
        snprintf(e->why, sizeof e->why, "%s",
                 !e->bytes                           ? "the file is empty"
                 : e->bytes > CACHE_ENTRY_MOST_BYTES ? "the file is too large"
                                                     : strerror(errno));
    else
        inspect(e, bytes, fread(bytes, 1, (size_t)e->bytes, file));
    if (file)
        fclose(file);
    free(bytes);
    free(path);
}

static int by_use(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int order = (x->used < y->used) - (x->used > y->used);
    return order ? order : strcmp(x->name, y->name);
}

/* 0, or an errno of opening the folder; one that is not there is empty. */
static int read_entries(const char *dir, struct entries *out)
{
    struct stat st;
    size_t room = 0;
    memset(out, 0, sizeof *out);
    DIR *stream = opendir(dir);
    if (!stream)
        return errno == ENOENT ? 0 : errno;
    for (struct dirent *d; (d = readdir(stream)) != NULL;) {
        if (fstatat(dirfd(stream), d->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
            continue;
        out->temporary += (size_t)cache_is_temporary(d->d_name);
        if (!cache_is_entry(d->d_name))
            continue;
        if (out->count == room) {
            struct entry *more = cli_alloc(room = room ? 2 * room : 64, sizeof *more);
            if (out->count)
                memcpy(more, out->items, out->count * sizeof *more);
            free(out->items);
            out->items = more;
        }
        struct entry *e = &out->items[out->count++];
        *e = (struct entry){.name = cli_format("%s", d->d_name),
                            .bytes = (uint64_t)st.st_size,
                            .used = st.st_mtime};
        read_entry(dir, e);
        out->bytes += e->bytes;
        out->broken += !e->whole;
    }
    closedir(stream);
    if (out->count)
        qsort(out->items, out->count, sizeof *out->items, by_use);
    return 0;
}

static void free_entries(struct entries *entries)
{
    for (size_t i = 0; i < entries->count; i++)
        free(entries->items[i].name);
    free(entries->items);
}

static void print_json(const struct options *o, const char *dir, const struct entries *entries)
{
    json_t *array = json_array();
    for (size_t i = 0; i < entries->count; i++) {
        const struct entry *e = &entries->items[i];
        json_array_append_new(array,
                              json_pack("{s:s, s:s, s:s, s:I, s:I, s:b, s:b, s:s}", "file", e->name,
                                        "name", e->kernel, "target", e->target, "bytes",
                                        (json_int_t)e->bytes, "used", (json_int_t)e->used, "whole",
                                        e->whole, "this_build", e->current, "fault", e->why));
    }
    json_t *root = json_pack("{s:s, s:s, s:s, s:I, s:I, s:i, s:o}", "version", kvk_version(),
                             "command", names[o->command], "path", dir, "bytes",
                             (json_int_t)entries->bytes, "limit_bytes", (json_int_t)o->limit,
                             "temporary_files", (int)entries->temporary, "entries", array);
    json_dumpf(root, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(root);
}

static void print_entries(const struct options *o, const char *dir, const struct entries *entries)
{
    for (size_t i = 0; i < entries->count; i++) {
        const struct entry *e = &entries->items[i];
        char when[32] = "?";
        struct tm local;
        if (o->command == CACHE_VERIFY && e->whole)
            continue;
        if (localtime_r(&e->used, &local))
            strftime(when, sizeof when, "%Y-%m-%d %H:%M", &local);
        if (e->whole)
            printf("%-60s %-10s %9llu  %s%s\n", e->kernel, e->target, (unsigned long long)e->bytes,
                   when, e->current ? "" : "  of another build");
        else
            printf("%s: %s\n", e->name, e->why);
    }
    printf("%s: %zu kernels, %llu bytes, %zu damaged, %zu temporary files\n", dir, entries->count,
           (unsigned long long)entries->bytes, entries->broken, entries->temporary);
}

/* Removes entries and temporary files. */
static int clear(const char *dir)
{
    int error = 0;
    DIR *stream = opendir(dir);
    if (!stream)
        return errno == ENOENT ? 0 : errno;
    for (struct dirent *d; (d = readdir(stream)) != NULL;)
        if ((cache_is_entry(d->d_name) || cache_is_temporary(d->d_name)) &&
            unlinkat(dirfd(stream), d->d_name, 0) && errno != ENOENT)
            error = errno;
    closedir(stream);
    return error;
}

/* Damaged entries and those of other builds first, then the runtime's own sweep. */
static int prune(const char *dir, const struct entries *entries, uint64_t limit)
{
    int error = 0;
    for (size_t i = 0; i < entries->count; i++) {
        const struct entry *e = &entries->items[i];
        if (e->whole && e->current)
            continue;
        char *path = cli_format("%s/%s", dir, e->name);
        if (unlink(path) && errno != ENOENT)
            error = errno;
        free(path);
    }
    int swept = cache_sweep(dir, limit);
    return swept && swept != ENOENT ? swept : error;
}

static int run(const struct options *o, const char *dir)
{
    struct entries entries;
    int error = read_entries(dir, &entries), changed = 0;
    if (!error && (o->command == CACHE_PRUNE || o->command == CACHE_CLEAR)) {
        error = o->command == CACHE_CLEAR ? clear(dir) : prune(dir, &entries, o->limit);
        changed = 1;
    }
    if (changed && !error) {
        size_t before = entries.count;
        free_entries(&entries);
        error = read_entries(dir, &entries);
        if (!o->json)
            printf("%zu removed\n", before > entries.count ? before - entries.count : 0);
    }
    if (error)
        cli_message("cache %s: %s", dir, strerror(error));
    else if (o->json)
        print_json(o, dir, &entries);
    else
        print_entries(o, dir, &entries);
    int broken = o->command == CACHE_VERIFY && entries.broken;
    free_entries(&entries);
    return error ? CLI_USAGE : broken ? CLI_FAILED : CLI_OK;
}

/* "512M" to bytes; 0 if it is no such number. */
static uint64_t size_of(const char *text)
{
    char *end;
    errno = 0;
    unsigned long long value = *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    if (errno || !value)
        return 0;
    int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    return end[shift != 0] || value > UINT64_MAX >> (shift + 1) ? 0 : (uint64_t)value << shift;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'j': o->json = 1; return 0;
    case 'd': o->dir = arg; return 0;
    case 'l':
        o->limit = size_of(arg);
        if (!o->limit)
            argp_error(state, "--limit: '%s': accepted a number of bytes, or one with K, M or G",
                       arg);
        return 0;
    case ARGP_KEY_ARG:
        if (o->given++)
            argp_error(state, "one command, '%s' is another", arg);
        for (o->command = 0; o->command < CACHE_COMMANDS; o->command++)
            if (!strcmp(names[o->command], arg))
                return 0;
        argp_error(state, "'%s' is no command: accepted path, list, verify, prune, clear", arg);
        return 0;
    case ARGP_KEY_END:
        if (!o->given)
            argp_error(state, "no command: accepted path, list, verify, prune, clear");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option cache_options[] = {
    {"dir", 'd', "DIR", 0, "of this folder instead of the one that the environment names", 0},
    {"limit", 'l', "BYTES", 0, "prune: the bound (512M, 2G; default 1G)", 0},
    {"json", 'j', 0, 0, "results as JSON", 0},
    {0},
};

int cmd_cache(int argc, char **argv)
{
    static const struct argp argp = {
        cache_options,
        parse,
        "path\nlist\nverify\nprune\nclear",
        "path: where the cache of compiled kernels is; list: what lies in it, last used first; "
        "verify: reads every entry; prune: removes entries that are damaged or of another build, "
        "old temporary files, and the longest unused until the bound holds; clear: removes all "
        "entries.\vExit status: 0; 1 verify found damage; 2 usage, or a folder that cannot be "
        "read.",
        0,
        0,
        0};
    struct options o = {.limit = CACHE_DEFAULT_BYTES};
    argp_parse(&argp, argc, argv, 0, 0, &o);
    char *dir = cache_resolve_dir(o.dir);
    if (!dir) {
        cli_message("no cache: KVKILN_CACHE_DIR is empty, or none of KVKILN_CACHE_DIR, "
                    "XDG_CACHE_HOME, HOME names a directory");
        return CLI_USAGE;
    }
    int code = CLI_OK;
    if (o.command != CACHE_PATH || o.json)
        code = run(&o, dir);
    else
        printf("%s\n", dir);
    free(dir);
    return code;
}
