/* SPDX-License-Identifier: Apache-2.0 */
/*
** pack_write.c - see pack_write.h.
**
** Rows are sorted by key, frames follow in that order, strings are sorted and unique: nothing says
** which thread was first. Frames depend on zstd's version, which the manifest names.
*/
#include "pack_write.h"

#include "cli.h"

#include "../runtime/object.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { LEVEL = 19 };

static void sum(const void *bytes, size_t size, unsigned char out[PACK_SUM_BYTES])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, size));
    memcpy(out, canonical.digest, PACK_SUM_BYTES);
}

void pack_writer_init(struct pack_writer *w, const char *generator)
{
    memset(w, 0, sizeof *w);
    snprintf(w->generator, sizeof w->generator, "%s", generator);
    w->object = KVK_OBJECT_VERSION;
    w->abi = KVK_ABI_VERSION;
    pthread_mutex_init(&w->mutex, NULL);
}

static void item_free(struct pack_item *item)
{
    free(item->name);
    free(item->target);
    free(item->signature);
    free(item->stored);
}

void pack_writer_free(struct pack_writer *w)
{
    for (size_t i = 0; i < w->count; i++)
        item_free(&w->items[i]);
    for (size_t i = 0; i < w->nnotes; i++)
        free(w->notes[i]);
    free(w->items);
    free(w->notes);
    pthread_mutex_destroy(&w->mutex);
}

static void *grown(void *memory, size_t count, size_t size)
{
    void *more = realloc(memory, count * size);
    if (more)
        return more;
    cli_message("out of memory (%zu x %zu bytes)", count, size);
    exit(CLI_USAGE);
}

void pack_writer_note(struct pack_writer *w, const char *line)
{
    size_t i = 0;
    pthread_mutex_lock(&w->mutex);
    while (i < w->nnotes && strcmp(w->notes[i], line))
        i++;
    if (i == w->nnotes) {
        w->notes = grown(w->notes, w->nnotes + 1, sizeof *w->notes);
        w->notes[w->nnotes++] = cli_format("%s", line);
    }
    pthread_mutex_unlock(&w->mutex);
}

static void append(struct pack_writer *w, const struct pack_item *item)
{
    pthread_mutex_lock(&w->mutex);
    if (w->count == w->room) {
        w->room = w->room ? 2 * w->room : 64;
        w->items = grown(w->items, w->room, sizeof *w->items);
    }
    w->items[w->count++] = *item;
    pthread_mutex_unlock(&w->mutex);
}

/* Sums and frame of an item whose other fields are set; takes the item over. */
static char *add(struct pack_writer *w, struct pack_item *item, const char *key, const void *raw,
                 size_t bytes)
{
    size_t cap = ZSTD_compressBound(bytes);
    item->stored = cli_alloc(cap, 1);
    item->stored_bytes = ZSTD_compress(item->stored, cap, raw, bytes, LEVEL);
    if (ZSTD_isError(item->stored_bytes)) {
        char *error = cli_format("zstd: %s", ZSTD_getErrorName(item->stored_bytes));
        item_free(item);
        return error;
    }
    item->stored = grown(item->stored, item->stored_bytes, 1);
    item->raw_bytes = bytes;
    sum(key, strlen(key), item->key);
    sum(raw, bytes, item->raw_sum);
    sum(item->stored, item->stored_bytes, item->stored_sum);
    append(w, item);
    return NULL;
}

static enum pack_format format_of(const struct object *object)
{
    char word[16];
    if (object_get(object, "format", word, sizeof word))
        for (int f = 1; f < PACK_SPEC; f++)
            if (!strcmp(word, pack_format_name((enum pack_format)f)))
                return (enum pack_format)f;
    return PACK_FORMATS;
}

char *pack_writer_object(struct pack_writer *w, const char *key, const void *sealed, size_t bytes)
{
    struct object object;
    struct pack_item item = {0};
    char name[PACK_NAME_CAP], target[64], signature[PACK_NAME_CAP];
    kvk_error err = {0};
    void *resealed;
    size_t size;
    if (object_parse(sealed, bytes, &object, &err))
        return cli_format("%s", err.text);
    item.format = format_of(&object);
    if (item.format == PACK_FORMATS || !object_get(&object, "kernel", name, sizeof name) ||
        !object_get(&object, "target", target, sizeof target) ||
        !object_get(&object, "signature", signature, sizeof signature))
        return cli_format("the object's manifest lacks kernel, target, format or signature");
    object.key = key;
    object.key_bytes = strlen(key);
    if (object_seal(&object, &resealed, &size, &err))
        return cli_format("%s", err.text);
    item.name = cli_format("%s", name);
    item.target = cli_format("%s", target);
    item.signature = cli_format("%s", signature);
    char *error = add(w, &item, key, resealed, size);
    free(resealed);
    return error;
}

char *pack_writer_spec(struct pack_writer *w, const char *name, const char *text)
{
    char key[512];
    struct pack_item item = {.format = PACK_SPEC,
                             .name = cli_format("%s", name),
                             .target = cli_format("%s", ""),
                             .signature = cli_format("%s", "")};
    pack_spec_key(name, key, sizeof key);
    return add(w, &item, key, text, strlen(text));
}

char *pack_writer_row(struct pack_writer *w, const struct pack_row *row)
{
    struct pack_item item = {.format = row->format,
                             .name = cli_format("%s", row->name),
                             .target = cli_format("%s", row->target),
                             .signature = cli_format("%s", row->signature),
                             .stored = cli_alloc((size_t)row->stored_bytes, 1),
                             .stored_bytes = (size_t)row->stored_bytes,
                             .raw_bytes = (size_t)row->raw_bytes};
    memcpy(item.stored, row->data, item.stored_bytes);
    memcpy(item.key, row->key, PACK_SUM_BYTES);
    memcpy(item.stored_sum, row->stored_sum, PACK_SUM_BYTES);
    memcpy(item.raw_sum, row->raw_sum, PACK_SUM_BYTES);
    append(w, &item);
    return NULL;
}

/* ---- the file ---- */

/* Of equal contents the frame that sorts first stays: a merge does not depend on its order. */
static int by_key(const void *a, const void *b)
{
    const struct pack_item *x = a, *y = b;
    int order = memcmp(x->key, y->key, PACK_SUM_BYTES);
    return order ? order : memcmp(x->stored_sum, y->stored_sum, PACK_SUM_BYTES);
}

static char *drop_twins(struct pack_writer *w)
{
    size_t kept = 0;
    char *error = NULL;
    if (w->count)
        qsort(w->items, w->count, sizeof *w->items, by_key);
    for (size_t i = 0; i < w->count; i++) {
        struct pack_item *item = &w->items[i], *last = kept ? &w->items[kept - 1] : NULL;
        if (!last || memcmp(last->key, item->key, PACK_SUM_BYTES)) {
            w->items[kept++] = *item;
            continue;
        }
        if (memcmp(last->raw_sum, item->raw_sum, PACK_SUM_BYTES) && !error)
            error = cli_format("two different kernels under the key of %s.%s", item->name,
                               item->target);
        item_free(item);
    }
    w->count = kept;
    return error;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static size_t unique(const char **texts, size_t count)
{
    size_t kept = 0;
    qsort(texts, count, sizeof *texts, by_text);
    for (size_t i = 0; i < count; i++)
        if (!kept || strcmp(texts[kept - 1], texts[i]))
            texts[kept++] = texts[i];
    return kept;
}

/* Sorted, each once; sets the items' offsets. */
static char *make_strings(struct pack_writer *w, size_t *bytes)
{
    size_t count = 0, at = 0;
    const char **texts = cli_alloc(3 * w->count, sizeof *texts);
    for (size_t i = 0; i < w->count; i++) {
        texts[count++] = w->items[i].name;
        texts[count++] = w->items[i].target;
        texts[count++] = w->items[i].signature;
    }
    count = unique(texts, count);
    uint32_t *offsets = cli_alloc(count, sizeof *offsets);
    for (size_t i = 0; i < count; i++) {
        offsets[i] = (uint32_t)at;
        at += strlen(texts[i]) + 1;
    }
    char *strings = cli_alloc(at, 1);
    for (size_t i = 0; i < count; i++)
        strcpy(strings + offsets[i], texts[i]);
    for (size_t i = 0; i < w->count; i++) {
        struct pack_item *item = &w->items[i];
        uint32_t *to[3] = {&item->name_at, &item->target_at, &item->signature_at};
        char *from[3] = {item->name, item->target, item->signature};
        for (int f = 0; f < 3; f++) {
            const char **found = bsearch(&from[f], texts, count, sizeof *texts, by_text);
            *to[f] = offsets[found - texts];
        }
    }
    free(offsets);
    free(texts);
    *bytes = at;
    return strings;
}

/* "TARGET FORMAT", of which the manifest counts the kernels. */
static char *make_manifest(struct pack_writer *w)
{
    const char *space = strchr(w->generator, ' ');
    char *text = NULL;
    size_t bytes, specs = 0;
    FILE *out = open_memstream(&text, &bytes);
    char **words = cli_alloc(w->count, sizeof *words);
    for (size_t i = 0; i < w->count; i++) {
        specs += w->items[i].format == PACK_SPEC;
        words[i] = cli_format("%s %s", w->items[i].target, pack_format_name(w->items[i].format));
    }
    qsort(words, w->count, sizeof *words, by_text);
    if (w->nnotes)
        qsort(w->notes, w->nnotes, sizeof *w->notes, by_text);
    fprintf(out, "kvkiln %s\ngenerator %.*s\nllvm %s\nobject %u\nabi %u\n", kvk_version(),
            (int)strcspn(w->generator, " "), w->generator,
            space && !strncmp(space, " llvm ", 6) ? space + 6 : "?", w->object, w->abi);
    for (size_t i = 0; i < w->nnotes; i++)
        fprintf(out, "%s\n", w->notes[i]);
    fprintf(out, "specs %zu\nkernels %zu\n", specs, w->count - specs);
    for (size_t i = 0, n = 1; i < w->count; i++, n++)
        if (i + 1 == w->count || strcmp(words[i], words[i + 1])) {
            if (*words[i] != ' ')
                fprintf(out, "target %s %zu\n", words[i], n);
            n = 0;
        }
    fclose(out);
    for (size_t i = 0; i < w->count; i++)
        free(words[i]);
    free(words);
    return text;
}

static void put(unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

static size_t aligned(size_t at)
{
    return (at + PACK_ALIGNMENT - 1) / PACK_ALIGNMENT * PACK_ALIGNMENT;
}

static void put_row(unsigned char *row, const struct pack_item *item, size_t at)
{
    memcpy(row + PACK_ROW_KEY, item->key, PACK_SUM_BYTES);
    put(row + PACK_ROW_FORMAT, item->format, 4);
    put(row + PACK_ROW_NAME, item->name_at, 4);
    put(row + PACK_ROW_TARGET, item->target_at, 4);
    put(row + PACK_ROW_SIGNATURE, item->signature_at, 4);
    put(row + PACK_ROW_DATA, at, 8);
    put(row + PACK_ROW_STORED, item->stored_bytes, 8);
    put(row + PACK_ROW_RAW, item->raw_bytes, 8);
    memcpy(row + PACK_ROW_STORED_SUM, item->stored_sum, PACK_SUM_BYTES);
    memcpy(row + PACK_ROW_RAW_SUM, item->raw_sum, PACK_SUM_BYTES);
}

char *pack_writer_bytes(struct pack_writer *w, void **bytes, size_t *size)
{
    char *error = drop_twins(w);
    if (error)
        return error;
    size_t strings_bytes, strings_at = PACK_HEADER_BYTES + w->count * PACK_ROW_BYTES;
    char *strings = make_strings(w, &strings_bytes), *manifest = make_manifest(w);
    size_t manifest_at = strings_at + strings_bytes, manifest_bytes = strlen(manifest),
           data_at = aligned(manifest_at + manifest_bytes + 1), total = data_at;
    for (size_t i = 0; i < w->count; i++)
        total = aligned(total) + w->items[i].stored_bytes;
    unsigned char *file = cli_alloc(total, 1);
    memcpy(file, PACK_MAGIC, sizeof PACK_MAGIC - 1);
    put(file + PACK_AT_VERSION, PACK_VERSION, 4);
    put(file + PACK_AT_TOTAL, total, 8);
    put(file + PACK_AT_ROWS, w->count, 4);
    put(file + PACK_AT_OBJECT, w->object, 4);
    put(file + PACK_AT_ABI, w->abi, 4);
    put(file + PACK_AT_STRINGS, strings_at, 8);
    put(file + PACK_AT_STRINGS + 8, strings_bytes, 8);
    put(file + PACK_AT_MANIFEST, manifest_at, 8);
    put(file + PACK_AT_MANIFEST + 8, manifest_bytes, 8);
    put(file + PACK_AT_DATA, data_at, 8);
    memcpy(file + PACK_AT_GENERATOR, w->generator, strlen(w->generator));
    if (strings_bytes)
        memcpy(file + strings_at, strings, strings_bytes);
    memcpy(file + manifest_at, manifest, manifest_bytes);
    size_t at = data_at;
    for (size_t i = 0; i < w->count; i++) {
        put_row(file + PACK_HEADER_BYTES + i * PACK_ROW_BYTES, &w->items[i], at);
        memcpy(file + at, w->items[i].stored, w->items[i].stored_bytes);
        at = aligned(at + w->items[i].stored_bytes);
    }
    sum(file + PACK_AT_TOTAL, data_at - PACK_AT_TOTAL, file + PACK_AT_SUM);
    free(strings);
    free(manifest);
    *bytes = file;
    *size = total;
    return NULL;
}
