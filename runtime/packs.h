/* SPDX-License-Identifier: Apache-2.0 */
/*
** packs.h - the packs of a context: opened and checked by kvk_open, then only read. Thread safe.
*/
#ifndef KVKILN_PACKS_H
#define KVKILN_PACKS_H

#include "cache.h"
#include "gen_api.h"
#include "pack.h"

struct packs_item {
    struct pack pack;
    char *name;              /* path, or the name of a pack in memory */
};

struct packs {
    struct packs_item *items;
    size_t count;
    cache_log *log;
    void *log_data;
    pthread_mutex_t mutex;   /* over warned */
    int warned;
};

/* Those in memory, then the files. Every one must be whole and of this build: KVK_E_OBJECT names it and both versions. */
kvk_status packs_open(struct packs *packs, const struct kvk_options *options, kvk_error *err);
void packs_close(struct packs *packs);

/* The sealed object of a request, as PTX or not (request->assemble is not looked at; other targets have one form), malloc'd; NULL:
** in no pack. A damaged row is a miss, said once through the log. KVK_OK or KVK_E_MEMORY. */
kvk_status packs_load(struct packs *packs, const struct gen_request *request, int ptx, void **object, size_t *bytes,
                      kvk_error *err);

/* The canonical text of a spec by name, malloc'd; NULL: in no pack. KVK_OK or KVK_E_MEMORY. */
kvk_status packs_spec(struct packs *packs, const char *name, char **text, kvk_error *err);

/* "in pack a.kvkpack (sm_80 only), in pack b.kvkpack": where a kernel for `target` was sought. */
void packs_describe(const struct packs *packs, const char *target, char *text, size_t cap);

#endif
