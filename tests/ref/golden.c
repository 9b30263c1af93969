/* SPDX-License-Identifier: Apache-2.0 */
/*
** golden.c - a reader of case files for the tests.
*/
#include "golden.h"
#include "ref.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct golden {
    uint8_t *bytes;
    const uint8_t *data;
    size_t data_bytes;
    json_t *header;
};

static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    uint8_t *bytes = NULL;
    long n;

    if (!f)
        return NULL;
    if (!fseek(f, 0, SEEK_END) && (n = ftell(f)) >= 8 && !fseek(f, 0, SEEK_SET)) {
        bytes = malloc((size_t)n);
        *size = (size_t)n;
        if (bytes && fread(bytes, 1, *size, f) != *size) {
            free(bytes);
            bytes = NULL;
        }
    }
    fclose(f);
    return bytes;
}

struct golden *golden_open(const char *path)
{
    struct golden *g = calloc(1, sizeof *g);
    size_t size = 0;
    uint64_t header;

    if (!g)
        return NULL;
    g->bytes = read_file(path, &size);
    if (g->bytes) {
        memcpy(&header, g->bytes, 8);
        if (header <= size - 8) {
            g->header = json_loadb((const char *)g->bytes + 8, (size_t)header, 0, NULL);
            g->data = g->bytes + 8 + header;
            g->data_bytes = size - 8 - (size_t)header;
        }
    }
    if (!g->header) {
        golden_close(g);
        return NULL;
    }
    return g;
}

void golden_close(struct golden *g)
{
    if (!g)
        return;
    json_decref(g->header);
    free(g->bytes);
    free(g);
}

const char *golden_text(const struct golden *g, const char *key)
{
    return json_string_value(json_object_get(json_object_get(g->header, "__metadata__"), key));
}

int golden_int(const struct golden *g, const char *key)
{
    const char *text = golden_text(g, key);
    return text ? atoi(text) : 0;
}

static size_t element_bytes(const char *dtype)
{
    return !strcmp(dtype, "U8") ? 1 : !strcmp(dtype, "F16") || !strcmp(dtype, "BF16") ? 2 : 4;
}

int golden_get(const struct golden *g, const char *name, struct golden_tensor *out)
{
    json_t *entry = json_object_get(g->header, name), *shape = json_object_get(entry, "shape");
    json_t *offsets = json_object_get(entry, "data_offsets");
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0));
    size_t end = (size_t)json_integer_value(json_array_get(offsets, 1));

    *out = (struct golden_tensor){.count = 1};
    if (!entry || !dtype || json_array_size(shape) > 4)
        return 0;
    snprintf(out->dtype, sizeof out->dtype, "%s", dtype);
    out->dims = (int)json_array_size(shape);
    for (size_t i = 0; i < 4; i++) {
        out->shape[i] =
            i < json_array_size(shape) ? (size_t)json_integer_value(json_array_get(shape, i)) : 1;
        out->count *= out->shape[i];
    }
    out->data = g->data + begin;
    return end <= g->data_bytes && begin <= end && end - begin == out->count * element_bytes(dtype);
}

double golden_at(const struct golden_tensor *t, size_t i)
{
    float f;
    int32_t n;

    if (!strcmp(t->dtype, "F16"))
        return ref_f16_to(ref_get16(t->data + 2 * i));
    if (!strcmp(t->dtype, "BF16"))
        return ref_bf16_to(ref_get16(t->data + 2 * i));
    if (!strcmp(t->dtype, "U8"))
        return t->data[i];
    if (!strcmp(t->dtype, "I32")) {
        memcpy(&n, t->data + 4 * i, 4);
        return n;
    }
    memcpy(&f, t->data + 4 * i, 4);
    return f;
}

void golden_folder(const char *source_folder, char *path, size_t cap)
{
    const char *named = getenv("KVKILN_GOLDEN");
    DIR *dir;

    if (named && *named) {
        snprintf(path, cap, "%s", named);
        return;
    }
    snprintf(path, cap, "%s/../shared/golden", source_folder);
    dir = opendir(path);
    if (dir)
        closedir(dir);
    else
        snprintf(path, cap, "%s/tests/data", source_folder);
}
