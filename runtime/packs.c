/* SPDX-License-Identifier: Apache-2.0 */
/*
** packs.c - see packs.h.
**
** A kernel goes by its cache key with "assembler any": a host that serves from packs has no
** assembler, and must find what one of another machine made.
*/
#include "packs.h"

#include "build_id.h"
#include "env.h"
#include "error.h"
#include "key.h"
#include "object.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPEC_KEY_CAP = 512, PLACES_NAMED = 3 };

static kvk_status check_build(const struct packs_item *item, kvk_error *err)
{
    const struct pack *p = &item->pack;
    if (p->abi != KVK_ABI_VERSION || p->object != KVK_OBJECT_VERSION)
        return ERR(err, KVK_E_OBJECT,
                   "pack %s has objects of version %u with argument layout %u, this runtime needs "
                   "%d and %d: build the pack anew",
                   item->name, p->object, p->abi, KVK_OBJECT_VERSION, KVK_ABI_VERSION);
    if (strcmp(p->generator, KVK_BUILD_ID) != 0)
        return ERR(err, KVK_E_OBJECT,
                   "pack %s was made by generator %s, this runtime belongs to %s: build the pack "
                   "anew",
                   item->name, p->generator, KVK_BUILD_ID);
    return KVK_OK;
}

static struct packs_item *add(struct packs *packs, const char *name, size_t length, kvk_error *err)
{
    struct packs_item *more = realloc(packs->items, (packs->count + 1) * sizeof *more);
    if (more)
        packs->items = more;
    char *copy = more ? strndup(name, length) : NULL;
    if (!copy) {
        error_set(err, KVK_E_MEMORY, "packs_open", "no memory for a pack");
        return NULL;
    }
    struct packs_item *item = &packs->items[packs->count++];
    *item = (struct packs_item){.name = copy};
    return item;
}

static kvk_status open_memory(struct packs *packs, const struct kvk_pack_memory *m, kvk_error *err)
{
    const char *name = m->name && *m->name ? m->name : "in memory";
    struct packs_item *item = add(packs, name, strlen(name), err);
    if (!item)
        return KVK_E_MEMORY;
    if (!m->data)
        return ERR(err, KVK_E_ARG, "pack %s: data is NULL", name);
    kvk_error below = {0};
    kvk_status status = pack_parse(m->data, m->bytes, &item->pack, &below);
    if (status)
        return ERR(err, status, "pack %s: %s", name, below.text);
    return check_build(item, err);
}

static kvk_status open_files(struct packs *packs, const char *paths, kvk_error *err)
{
    kvk_status status = KVK_OK;
    while (*paths && !status) {
        size_t n = strcspn(paths, ":");
        if (n) {
            struct packs_item *item = add(packs, paths, n, err);
            status = item ? pack_map(item->name, &item->pack, err) : KVK_E_MEMORY;
            if (!status)
                status = check_build(item, err);
        }
        paths += n + (paths[n] == ':');
    }
    return status;
}

kvk_status packs_open(struct packs *packs, const struct kvk_options *options, kvk_error *err)
{
    kvk_status status = KVK_OK;
    const char *paths = options->packs ? options->packs : env_get(ENV_PACKS);
    packs->log = options->log;
    packs->log_data = options->log_data;
    if (options->memory_pack_count && !options->memory_packs)
        return ERR(err, KVK_E_ARG, "memory_pack_count is %zu, memory_packs is NULL",
                   options->memory_pack_count);
    for (size_t i = 0; i < options->memory_pack_count && !status; i++)
        status = open_memory(packs, &options->memory_packs[i], err);
    return status || !paths ? status : open_files(packs, paths, err);
}

void packs_close(struct packs *packs)
{
    for (size_t i = 0; i < packs->count; i++) {
        pack_close(&packs->items[i].pack);
        free(packs->items[i].name);
    }
    free(packs->items);
    packs->items = NULL;
    packs->count = 0;
}

static void warn(struct packs *packs, const struct packs_item *item, const char *what)
{
    char line[1024];
    pthread_mutex_lock(&packs->mutex);
    int first = !packs->warned;
    packs->warned = 1;
    pthread_mutex_unlock(&packs->mutex);
    if (!first || !packs->log)
        return;
    snprintf(line, sizeof line, "pack %s: %s; kernels of it that are damaged are passed over",
             item->name, what);
    packs->log(packs->log_data, KVK_LOG_WARNING, line);
}

/* The row's bytes; NULL when it is not there or of no use. */
static kvk_status load(struct packs *packs, const struct packs_item *item, const char *key,
                       void **data, size_t *bytes, kvk_error *err)
{
    uint32_t row;
    kvk_error below = {0};
    *data = NULL;
    if (!pack_find(&item->pack, key, &row))
        return KVK_OK;
    kvk_status status = pack_read(&item->pack, row, data, bytes, &below);
    if (status == KVK_E_MEMORY)
        return ERR(err, status, "%s", below.text);
    if (status)
        warn(packs, item, below.text);
    return KVK_OK;
}

kvk_status packs_load(struct packs *packs, const struct gen_request *request, int ptx,
                      void **object, size_t *bytes, kvk_error *err)
{
    kvk_status status = KVK_OK;
    *object = NULL;
    if (!packs->count)
        return KVK_OK;
    char *key = key_for_pack(request, KVK_BUILD_ID, ptx);
    if (!key)
        return ERR(err, KVK_E_MEMORY, "no memory for a key");
    for (size_t i = 0; i < packs->count && !*object && !status; i++) {
        struct object parsed;
        kvk_error wrong = {0};
        void *data;
        status = load(packs, &packs->items[i], key, &data, bytes, err);
        if (!data)
            continue;
        if (object_parse(data, *bytes, &parsed, &wrong) != KVK_OK)
            warn(packs, &packs->items[i], wrong.text);
        else if (strcmp(parsed.key, key) == 0) /* else a collision of hashes */
            *object = data;
        if (!*object)
            free(data);
    }
    free(key);
    return status;
}

kvk_status packs_spec(struct packs *packs, const char *name, char **text, kvk_error *err)
{
    char key[SPEC_KEY_CAP];
    size_t bytes;
    *text = NULL;
    if (pack_spec_key(name, key, sizeof key) >= sizeof key)
        return KVK_OK;
    for (size_t i = 0; i < packs->count; i++) {
        uint32_t row;
        struct pack_row found;
        void *data;
        if (!pack_find(&packs->items[i].pack, key, &row))
            continue;
        pack_row(&packs->items[i].pack, row, &found);
        if (found.format != PACK_SPEC || strcmp(found.name, name) != 0)
            continue;
        kvk_status status = load(packs, &packs->items[i], key, &data, &bytes, err);
        if (status)
            return status;
        if (data && strlen(data) == bytes) {
            *text = data;
            return KVK_OK;
        }
        free(data);
    }
    return KVK_OK;
}

/* What a pack that has nothing for `target` is for, or "". */
static const char *other_targets(const struct pack *pack, const char *target)
{
    const char *only = "";
    for (uint32_t i = 0; i < pack->rows; i++) {
        struct pack_row row;
        pack_row(pack, i, &row);
        if (row.format != PACK_SPEC && strcmp(row.target, target) == 0)
            return "";
        if (row.format != PACK_SPEC && strcmp(only, row.target) != 0)
            only = *only ? "other targets" : row.target;
    }
    return only;
}

static void append(char *text, size_t cap, const char *format, const char *a, const char *b)
{
    size_t used = strlen(text);
    snprintf(text + used, cap - used, format, a, b);
}

void packs_describe(const struct packs *packs, const char *target, char *text, size_t cap)
{
    *text = '\0';
    for (size_t i = 0; i < packs->count; i++) {
        const struct packs_item *item = &packs->items[i];
        const char *others = other_targets(&item->pack, target);
        if (i == PLACES_NAMED) {
            char more[32];
            snprintf(more, sizeof more, "%zu", packs->count - i);
            append(text, cap, ", in %s more packs%s", more, "");
            return;
        }
        append(text, cap, i ? ", in pack %s%s" : "in pack %s%s", item->name, "");
        if (*others)
            append(text, cap, " (which is for %s%s)", others, "");
    }
}
