/* SPDX-License-Identifier: Apache-2.0 */
/*
** sample.h - a sample case: inputs, a compressed cache and reference outputs in one safetensors
** file, checked so that every index in it can be used as it is.
*/
#ifndef KVKILN_CLI_SAMPLE_H
#define KVKILN_CLI_SAMPLE_H

#include "number.h"
#include "safetensors.h"
#include "slots.h"

#include "../runtime/kvkiln.h"

struct sample {
    struct safetensors st;
    const char *path, *preset, *layout;
    kvk_dtype dtype;
    enum number number; /* of dtype */
    int head_size, kv_heads, query_heads, page_tokens;
    double scale;
    struct slots slots;                                /* of the file's own cache */
    long rows, pages, sequences, table_stride, tokens; /* tokens: unified query rows */
    /* Tensors, NULL when absent. Integers are copied out. */
    const struct tensor *key, *value, *cache, *centroids, *decode_query, *decode_out, *dequant_key,
        *dequant_value;
    const struct tensor *unified_query, *sinks;
    int converted;                  /* from another layout: corrected norms were rounded twice */
    const unsigned char *pool;      /* the cache as `slots` describes it: its own bytes, or */
    unsigned char *plain;           /* those of a native one put through slots_from_native */
    int64_t *slot_mapping;          /* [rows] */
    int32_t *block_table, *lengths; /* [S][table_stride], [S] */
    int32_t *query_start;           /* [S+1] */
    long total;                     /* sum of lengths */
};

/* 1, or 0 with one line in error[SAFETENSORS_ERROR]. Nothing to close on an error. */
int sample_open(const char *path, struct sample *out, char *error);
void sample_close(struct sample *sample);

/* Is this a tensor that sample or check knows (input or output)? */
int sample_knows(const char *name);

/* N of "unified_out_windowN", or -1. */
long sample_window(const char *name);

#endif
