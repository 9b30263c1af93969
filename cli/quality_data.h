/* SPDX-License-Identifier: Apache-2.0 */
/*
** quality_data.h - the rows whose coding is judged: keys and values of one or more layers, out of a
** file or random.
*/
#ifndef KVKILN_CLI_QUALITY_DATA_H
#define KVKILN_CLI_QUALITY_DATA_H

#include "cli.h"
#include "safetensors.h"

/* [rows][heads][head_size] of keys, the same of values; 16-bit elements, any alignment. */
struct layer {
    long number; /* of layers.<n>.key, or -1: the file has no numbers */
    kvk_dtype dtype;
    long rows, heads, key_size, value_size;
    const unsigned char *key, *value;
};

struct quality_data {
    struct layer *layers; /* ascending by number */
    int nlayers;
    struct safetensors st; /* of a file, else empty */
    unsigned char *random; /* random rows, else NULL */
};

struct random_rows {
    long rows, head_size, seed;
    kvk_dtype dtype;
    double mean, deviation;
};

/* Tensors `key` and `value`, or `layers.<n>.key` and `layers.<n>.value`; others are ignored.
** 1, or 0 with one line in error[SAFETENSORS_ERROR]. */
int quality_data_open(const char *path, struct quality_data *out, char *error);

/* One layer of one head, normally distributed; the same rows for the same arguments. */
void quality_data_random(const struct random_rows *wanted, struct quality_data *out);

void quality_data_close(struct quality_data *data);

#endif
