/* SPDX-License-Identifier: Apache-2.0 */
/*
** cache.h - sealed objects on disk, one file a key: docs/cache.md.
**
** Nothing here ever fails a caller: what cannot be read is a miss, what cannot be written stays in memory, and the
** first such trouble of a cache is said once through the log. Thread safe. Processes share a directory without locks.
*/
#ifndef KVKILN_CACHE_H
#define KVKILN_CACHE_H

#include "kvkiln.h"

#include <pthread.h>

#define CACHE_DEFAULT_BYTES (UINT64_C(1) << 30)
#define CACHE_ENTRY_MOST_BYTES (UINT64_C(256) << 20)

typedef void cache_log(void *data, kvk_log_level level, const char *line);

struct cache {
    char *dir;               /* NULL: memory only */
    int derived;             /* from the user's home, not named: entries of another user but root are not run */
    uint64_t limit_bytes;
    cache_log *log;
    void *log_data;
    pthread_mutex_t mutex;   /* over the fields below; never held during input or output */
    int warned, disabled;    /* disabled: nothing more is written */
    int swept;
    uint64_t unswept_bytes;  /* written since the directory was last looked over */
};

/* `dir` as in kvk_options: NULL = from the environment, "" = memory only. Touches no file. 0 or KVK_E_MEMORY. */
kvk_status cache_open(struct cache *cache, const char *dir, uint64_t limit_bytes, cache_log *log, void *log_data,
                      kvk_error *err);
void cache_close(struct cache *cache);

/* The object sealed under exactly this key text, malloc'd; NULL is a miss. */
void *cache_load(struct cache *cache, const char *key, size_t *bytes);

/* Publishes an object under its key and keeps the directory inside its bound. */
void cache_store(struct cache *cache, const char *key, const void *object, size_t bytes);

/* Directory that `dir` of kvk_options stands for, malloc'd; NULL = none. For people as well. */
char *cache_resolve_dir(const char *dir);

/* cache_sweep.c: removes stale temporary files, and oldest entries until the bound holds. 0 or an errno of removing. */
int cache_sweep(const char *dir, uint64_t limit_bytes);

/* Is it the name of an entry / of a temporary file of this cache? */
int cache_is_entry(const char *name);
int cache_is_temporary(const char *name);

#endif
