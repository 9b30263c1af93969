/* SPDX-License-Identifier: Apache-2.0 */
/*
** spec.c - finding a spec, reading its file, and what geometry suits it.
**
** A bare name is a stem in one of the directories, then an embedded preset; anything with a '/' or
** ending in ".lua" is a path. Files are opened without blocking and must be regular and small: a
** pipe or a device never holds us up.
*/
#include "spec.h"

#include "../runtime/error.h"
#include "spec_fields.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

extern const char *const spec_embedded_data[][2]; /* made from specs/ during the build */

int spec_embedded(int index, const char **name, const char **source)
{
    if (index < 0)
        return 0;
    for (int i = 0; i <= index; i++)
        if (!spec_embedded_data[i][0])
            return 0;
    *name = spec_embedded_data[index][0];
    *source = spec_embedded_data[index][1];
    return 1;
}

static const char *const layout_names[LAYOUT_COUNT] = {"aos", "soa", "native"};

const char *layout_name(enum layout layout)
{
    return (unsigned)layout < LAYOUT_COUNT ? layout_names[layout] : "?";
}

int layout_from_name(const char *name)
{
    for (int i = 0; name && i < LAYOUT_COUNT; i++)
        if (!strcmp(name, layout_names[i]))
            return i;
    return -1;
}

/* Reads at most cap bytes. Returns the number, or -1 with a reason: what is there instead of a
** readable file. */
static long read_regular(const char *path, char *buffer, long cap, char *reason, size_t reason_cap)
{
    struct stat st;
    long length = 0;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0) {
        snprintf(reason, reason_cap, "%s",
                 errno == ENOENT   ? "no such file"
                 : errno == EACCES ? "not permitted"
                 : errno == ENXIO  ? "not a regular file"
                                   : "cannot be opened");
        length = -1;
    } else if (!S_ISREG(st.st_mode)) {
        snprintf(reason, reason_cap, "%s",
                 S_ISDIR(st.st_mode) ? "a directory" : "not a regular file");
        length = -1;
    }
    while (length >= 0 && length < cap) {
        ssize_t n = read(fd, buffer + length, (size_t)(cap - length));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            snprintf(reason, reason_cap, "cannot be read");
            length = -1;
        }
        if (n <= 0)
            break;
        length += n;
    }
    if (fd >= 0)
        close(fd);
    return length;
}

/* A path in a message: its end matters most. */
static void short_path(const char *path, char *out, size_t cap)
{
    size_t length = strlen(path);
    spec_printable(length < cap ? path : path + length - cap + 1, length < cap ? length : cap - 1,
                   out, cap);
}

static void stem_of(const char *path, char *out, size_t cap)
{
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    size_t length = strlen(base);
    if (length > 4 && !strcmp(base + length - 4, ".lua"))
        length -= 4;
    snprintf(out, cap, "%.*s", (int)(length < cap ? length : cap - 1), base);
}

static kvk_status load_file(const char *path, struct spec_search *search, struct spec *out,
                            kvk_error *err)
{
    char shown[200], stem[SPEC_NAME_MAX + 1], reason[32] = "";
    short_path(path, shown, sizeof shown);
    stem_of(path, stem, sizeof stem);
    char *source = malloc(SPEC_FILE_BYTES + 1);
    if (!source)
        return ERR(err, KVK_E_MEMORY, "%s: no memory to read it", shown);
    long bytes = read_regular(path, source, SPEC_FILE_BYTES + 1, reason, sizeof reason);
    kvk_status status;
    if (bytes < 0)
        status =
            ERR(err, KVK_E_SPEC, "%s: file: %s: accepted a regular, readable file", shown, reason);
    else if (bytes > SPEC_FILE_BYTES)
        status =
            ERR(err, KVK_E_SPEC, "%s: file size: more than %d bytes: accepted at most %d bytes",
                shown, SPEC_FILE_BYTES, SPEC_FILE_BYTES);
    else
        status = spec_evaluate(shown, stem, source, (size_t)bytes, search, out, err);
    free(source);
    return status;
}

/* Path of the n-th non-empty directory's NAME.lua: 1, 0 = past the last, -1 = longer than any path
** can be. */
static int candidate(const char *dirs, int n, const char *name, char *path, size_t cap)
{
    while (dirs && *dirs) {
        size_t length = strcspn(dirs, ":");
        if (length && n-- == 0) {
            if (length + strlen(name) + sizeof "/.lua" > cap)
                return -1;
            snprintf(path, cap, "%.*s/%s.lua", (int)length, dirs, name);
            return 1;
        }
        dirs += length + (dirs[length] == ':');
    }
    return 0;
}

static kvk_status not_found(const char *name, const struct spec_search *search, kvk_error *err)
{
    char places[160], presets[240] = "";
    const char *preset, *source, *dirs = search->dirs ? search->dirs : "";
    for (int i = 0; spec_embedded(i, &preset, &source); i++) {
        size_t used = strlen(presets);
        snprintf(presets + used, sizeof presets - used, "%s%s", i ? ", " : "", preset);
    }
    spec_printable(dirs, strlen(dirs), places, sizeof places);
    return ERR(err, KVK_E_SPEC, "preset: \"%s\": accepted %s%s, %s.lua in %s%s", name, presets,
               search->depth ? "" : ", a path of a .lua file", name,
               *places ? "" : "a spec directory (none given)", places);
}

static int is_path(const char *name)
{
    size_t length = strlen(name);
    return strchr(name, '/') || (length > 4 && !strcmp(name + length - 4, ".lua"));
}

static kvk_status find_preset(const char *name, struct spec_search *search, struct spec *out,
                              kvk_error *err)
{
    char path[4096];
    struct stat st;
    int more;
    for (int n = 0; (more = candidate(search->dirs, n, name, path, sizeof path)); n++)
        if (more > 0 && (stat(path, &st) == 0 || (errno != ENOENT && errno != ENOTDIR)))
            return load_file(path, search, out, err);
    const char *preset, *source;
    for (int i = 0; spec_embedded(i, &preset, &source); i++)
        if (!strcmp(preset, name)) {
            char file[SPEC_NAME_MAX + 8];
            snprintf(file, sizeof file, "%s.lua", name);
            return spec_evaluate(file, name, source, strlen(source), search, out, err);
        }
    return not_found(name, search, err);
}

kvk_status spec_find(const char *name, struct spec_search *search, struct spec *out, kvk_error *err)
{
    char fault[SPEC_FAULT_MAX], shown[48];
    if (search->depth == 0 && is_path(name))
        return load_file(name, search, out, err);
    spec_printable(name, strlen(name), shown, sizeof shown);
    if (search->depth >= SPEC_DEPTH)
        return ERR(err, KVK_E_SPEC,
                   "preset: \"%s\": accepted at most %d presets that derive from each other", shown,
                   SPEC_DEPTH);
    if (!spec_check_name(name, fault))
        return ERR(err, KVK_E_SPEC,
                   "preset: \"%s\": accepted a name of 1..63 characters of [a-z0-9_]%s", shown,
                   search->depth ? "" : ", or a path of a .lua file");
    return find_preset(name, search, out, err);
}

static long long clock_ns(clockid_t id)
{
    struct timespec t;
    return clock_gettime(id, &t) ? 0 : t.tv_sec * 1000000000LL + t.tv_nsec;
}

kvk_status spec_load(const char *name, const char *dirs, struct spec *out, kvk_error *err)
{
    if (!name || !out)
        return ERR(err, KVK_E_ARG, "%s is missing", name ? "out" : "the spec's name");
    long long budget = SPEC_TIME_MS * 1000000LL;
    struct spec_search search = {dirs, 0, SPEC_INSTRUCTIONS, clock_ns(CLOCK_MONOTONIC) + budget,
                                 clock_ns(CLOCK_THREAD_CPUTIME_ID) + budget};
    struct spec spec;
    memset(&spec, 0, sizeof spec);
    kvk_status status = spec_find(name, &search, &spec, err);
    if (status == KVK_OK)
        *out = spec;
    return status;
}

static kvk_status check_range(const char *field, int value, int low, int high, int multiple,
                              kvk_error *err)
{
    if (value >= low && value <= high && value % multiple == 0)
        return KVK_OK;
    if (multiple > 1)
        return ERR(err, KVK_E_SHAPE, "%s: %d: accepted %d..%d, a multiple of %d", field, value, low,
                   high, multiple);
    return ERR(err, KVK_E_SHAPE, "%s: %d: accepted %d..%d", field, value, low, high);
}

static int head_multiple(const struct codec *codec)
{
    return codec->kind == CODEC_BLOCK_FLOAT ? codec->group : 8;
}

static kvk_status check_layout(const struct spec *spec, enum layout layout, kvk_error *err)
{
    char accepted[32] = "";
    for (int i = 0; i < spec->nlayouts; i++) {
        if (spec->layouts[i] == layout)
            return KVK_OK;
        size_t used = strlen(accepted);
        snprintf(accepted + used, sizeof accepted - used, "%s%s", i ? ", " : "",
                 layout_name(spec->layouts[i]));
    }
    return ERR(err, KVK_E_ARG, "layout: %s: accepted %s (of %s)", layout_name(layout), accepted,
               spec->name);
}

kvk_status spec_check_geometry(const struct spec *spec, const struct geometry *geo, kvk_error *err)
{
    kvk_status status = check_layout(spec, geo->layout, err);
    if (!status)
        status = check_range("head_size", geo->head_size, 16, 1024, head_multiple(&spec->key), err);
    if (!status)
        status = check_range("value_head_size", geo->value_head_size, 16, 1024,
                             head_multiple(&spec->value), err);
    if (!status)
        status = check_range("gqa", geo->gqa, 1, 128, 1, err);
    if (!status)
        status = check_range("page_tokens", geo->page_tokens, 1, 4096, 1, err);
    if (!status && geo->dtype != KVK_FLOAT16 && geo->dtype != KVK_BFLOAT16)
        status = ERR(err, KVK_E_ARG, "dtype: %d: accepted fp16, bf16", (int)geo->dtype);
    return status;
}
