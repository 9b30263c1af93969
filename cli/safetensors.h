/* SPDX-License-Identifier: Apache-2.0 */
/*
** safetensors.h - reads a .safetensors file whole, trusting nothing in it.
**
** Format: u64 little-endian header length, a JSON object {name: {dtype, shape, data_offsets},
** "__metadata__": {text: text}}, then the data. Refused, each with one line: a header larger than
** 16 MiB or than the file, bytes that are no JSON, double names, unknown dtypes, offsets outside
** the data, overlapping tensors, holes, a size that is not shape x dtype.
*/
#ifndef KVKILN_CLI_SAFETENSORS_H
#define KVKILN_CLI_SAFETENSORS_H

#include <stddef.h>

enum { TENSOR_MAX_DIMS = 8, SAFETENSORS_ERROR = 256 };

enum tensor_type {
    TENSOR_U8,
    TENSOR_I8,
    TENSOR_BOOL,
    TENSOR_F8,
    TENSOR_I16,
    TENSOR_U16,
    TENSOR_F16,
    TENSOR_BF16,
    TENSOR_I32,
    TENSOR_U32,
    TENSOR_F32,
    TENSOR_I64,
    TENSOR_U64,
    TENSOR_F64
};

struct tensor {
    char *name;
    enum tensor_type type;
    int dims;
    long shape[TENSOR_MAX_DIMS];
    size_t count, bytes;       /* elements, bytes */
    size_t offset;             /* in the data */
    const unsigned char *data; /* any alignment */
};

struct json_t;
struct safetensors {
    unsigned char *file;
    struct tensor *tensors; /* in the order of the file's header */
    int ntensors;
    struct json_t *header;
};

/* 1, or 0 with one line in error[SAFETENSORS_ERROR]. */
int safetensors_open(const char *path, struct safetensors *out, char *error);
void safetensors_close(struct safetensors *st);

/* The same for bytes in memory, which the result takes over (also on an error). */
int safetensors_parse(unsigned char *bytes, size_t size, struct safetensors *out, char *error);

const struct tensor *safetensors_get(const struct safetensors *st,
                                     const char *name); /* NULL if absent */
const char *safetensors_text(const struct safetensors *st,
                             const char *name); /* of __metadata__; NULL if absent */
const char *tensor_type_name(enum tensor_type type);

#endif
