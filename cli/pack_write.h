/* SPDX-License-Identifier: Apache-2.0 */
/*
** pack_write.h - making a .kvkpack: rows in any order, from any thread, to one file whose bytes
** depend on the rows alone.
*/
#ifndef KVKILN_CLI_PACK_WRITE_H
#define KVKILN_CLI_PACK_WRITE_H

#include "../runtime/pack.h"

#include <pthread.h>

struct pack_item {
    char *name, *target, *signature;
    enum pack_format format;
    void *stored; /* a zstd frame */
    size_t stored_bytes, raw_bytes;
    unsigned char key[PACK_SUM_BYTES], stored_sum[PACK_SUM_BYTES], raw_sum[PACK_SUM_BYTES];
    uint32_t name_at, target_at, signature_at; /* in the strings */
};

struct pack_writer {
    struct pack_item *items;
    size_t count, room;
    char **notes; /* manifest lines about tools; a repeated one counts once */
    size_t nnotes;
    char generator[PACK_GENERATOR_CAP];
    uint32_t object, abi;
    pthread_mutex_t mutex;
};

/* Of this build's object and argument layout versions. */
void pack_writer_init(struct pack_writer *writer, const char *generator);
void pack_writer_free(struct pack_writer *writer);

void pack_writer_note(struct pack_writer *writer, const char *line);

/* A sealed object, stored under `key`; the canonical text of a spec; a row of another pack, as it
 * is. NULL, or what is wrong, malloc'd. */
char *pack_writer_object(struct pack_writer *writer, const char *key, const void *sealed,
                         size_t bytes);
char *pack_writer_spec(struct pack_writer *writer, const char *name, const char *text);
char *pack_writer_row(struct pack_writer *writer, const struct pack_row *row);

/* Sorts, drops rows that are there twice, and makes the file's bytes: malloc'd. An error is two
 * different rows under one key. */
char *pack_writer_bytes(struct pack_writer *writer, void **bytes, size_t *size);

#endif
