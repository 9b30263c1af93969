/* SPDX-License-Identifier: Apache-2.0 */
/* quality_data.c - see quality_data.h. */
#include "quality_data.h"

#include "number.h"
#include "options.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Number of "layers.<n>.key", -1 for "key"; 0 when the name is neither. */
static int key_name(const char *name, long *number)
{
    char *end;
    *number = -1;
    if (!strcmp(name, "key"))
        return 1;
    if (strncmp(name, "layers.", 7) || name[7] < '0' || name[7] > '9')
        return 0;
    *number = strtol(name + 7, &end, 10);
    return *number < LONG_MAX && !strcmp(end, ".key");
}

static int check_tensor(const struct tensor *t, char *error)
{
    if (t->type != TENSOR_F16 && t->type != TENSOR_BF16)
        snprintf(error, SAFETENSORS_ERROR, "tensor '%.60s': %s, accepted F16, BF16", t->name,
                 tensor_type_name(t->type));
    else if (t->dims != 3 || !t->count)
        snprintf(error, SAFETENSORS_ERROR,
                 "tensor '%.60s': accepted shape [rows, heads, head size], none of them 0",
                 t->name);
    else if (t->shape[1] > 1 << 16 || t->shape[2] < OPTIONS_HEAD_LEAST ||
             t->shape[2] > OPTIONS_HEAD_MOST)
        snprintf(error, SAFETENSORS_ERROR,
                 "tensor '%.60s': %ld heads of size %ld: accepted at most 65536, of size %d to %d",
                 t->name, t->shape[1], t->shape[2], OPTIONS_HEAD_LEAST, OPTIONS_HEAD_MOST);
    else
        return 1;
    return 0;
}

static int read_layer(const struct safetensors *st, const struct tensor *key, long number,
                      struct layer *out, char *error)
{
    size_t stem = strlen(key->name) - strlen("key");
    char *name = cli_format("%.*svalue", (int)stem, key->name);
    const struct tensor *value = safetensors_get(st, name);
    int good = 0;
    if (!value)
        snprintf(error, SAFETENSORS_ERROR, "no tensor '%.60s' beside '%.60s'", name, key->name);
    else if (!check_tensor(key, error) || !check_tensor(value, error))
        good = 0;
    else if (key->type != value->type || key->shape[0] != value->shape[0] ||
             key->shape[1] != value->shape[1])
        snprintf(error, SAFETENSORS_ERROR,
                 "tensors '%.60s' and '%.60s': accepted equal rows, heads and types", key->name,
                 name);
    else
        good = 1;
    if (good)
        *out = (struct layer){.number = number,
                              .dtype = key->type == TENSOR_F16 ? KVK_FLOAT16 : KVK_BFLOAT16,
                              .rows = key->shape[0],
                              .heads = key->shape[1],
                              .key_size = key->shape[2],
                              .value_size = value->shape[2],
                              .key = key->data,
                              .value = value->data};
    free(name);
    return good;
}

static int by_number(const void *a, const void *b)
{
    const struct layer *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

static int read_layers(struct quality_data *data, char *error)
{
    const struct safetensors *st = &data->st;
    data->layers = cli_alloc((size_t)st->ntensors, sizeof *data->layers);
    for (int i = 0; i < st->ntensors; i++) {
        long number;
        if (!key_name(st->tensors[i].name, &number))
            continue;
        if (!read_layer(st, &st->tensors[i], number, &data->layers[data->nlayers], error))
            return 0;
        data->nlayers++;
    }
    qsort(data->layers, (size_t)data->nlayers, sizeof *data->layers, by_number);
    for (int i = 1; i < data->nlayers; i++)
        if (data->layers[0].number < 0 || data->layers[i - 1].number == data->layers[i].number) {
            snprintf(error, SAFETENSORS_ERROR,
                     "layer %ld twice: accepted key and value, or each "
                     "layers.<n>.key and .value once",
                     data->layers[i - 1].number);
            return 0;
        }
    if (!data->nlayers)
        snprintf(error, SAFETENSORS_ERROR,
                 "no tensor 'key' or 'layers.<n>.key' in it: nothing to measure");
    return data->nlayers > 0;
}

int quality_data_open(const char *path, struct quality_data *out, char *error)
{
    memset(out, 0, sizeof *out);
    if (!safetensors_open(path, &out->st, error))
        return 0;
    if (read_layers(out, error))
        return 1;
    quality_data_close(out);
    return 0;
}

/* splitmix64 */
static uint64_t next(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static double uniform(uint64_t *state)
{
    return ((double)(next(state) >> 11) + 0.5) / 9007199254740992.0;
}

void quality_data_random(const struct random_rows *wanted, struct quality_data *out)
{
    const struct random_rows *w = wanted;
    size_t count = (size_t)w->rows * (size_t)w->head_size;
    uint64_t state = (uint64_t)w->seed;
    memset(out, 0, sizeof *out);
    out->random = cli_alloc(2 * count, 2);
    out->layers = cli_alloc(1, sizeof *out->layers);
    out->nlayers = 1;
    for (size_t i = 0; i < 2 * count; i += 2) { /* Box and Muller: two at a time */
        double radius = w->deviation * sqrt(-2 * log(uniform(&state)));
        double turn = 2 * M_PI * uniform(&state);
        double pair[2] = {w->mean + radius * cos(turn), w->mean + radius * sin(turn)};
        for (size_t j = 0; j < 2; j++)
            number_put_u16(out->random + 2 * (i + j), w->dtype == KVK_FLOAT16
                                                          ? number_to_half(pair[j])
                                                          : number_to_bf16(pair[j]));
    }
    out->layers[0] = (struct layer){.number = -1,
                                    .dtype = w->dtype,
                                    .rows = w->rows,
                                    .heads = 1,
                                    .key_size = w->head_size,
                                    .value_size = w->head_size,
                                    .key = out->random,
                                    .value = out->random + 2 * count};
}

void quality_data_close(struct quality_data *data)
{
    safetensors_close(&data->st);
    free(data->layers);
    free(data->random);
    memset(data, 0, sizeof *data);
}
