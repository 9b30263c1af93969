/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.c - see safetensors.h. */
#include "safetensors.h"

#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_MAX = 16 << 20 };
static const size_t file_max = (size_t)4 << 30;

static const struct {
    const char *name;
    enum tensor_type type;
    size_t bytes;
} types[] = {
    {"U8", TENSOR_U8, 1},      {"I8", TENSOR_I8, 1},     {"BOOL", TENSOR_BOOL, 1},
    {"F8_E4M3", TENSOR_F8, 1}, {"I16", TENSOR_I16, 2},   {"U16", TENSOR_U16, 2},
    {"F16", TENSOR_F16, 2},    {"BF16", TENSOR_BF16, 2}, {"I32", TENSOR_I32, 4},
    {"U32", TENSOR_U32, 4},    {"F32", TENSOR_F32, 4},   {"I64", TENSOR_I64, 8},
    {"U64", TENSOR_U64, 8},    {"F64", TENSOR_F64, 8},
};

static int fail(char *error, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int fail(char *error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error, SAFETENSORS_ERROR, format, args);
    va_end(args);
    for (char *c = error; *c; c++)
        if ((unsigned char)*c < ' ')
            *c = '?'; /* names come from the file */
    return 0;
}

const char *tensor_type_name(enum tensor_type type)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].type == type)
            return types[i].name;
    return "?";
}

static int read_shape(struct tensor *tensor, const json_t *shape, size_t element, char *error)
{
    if (!json_is_array(shape))
        return fail(error, "tensor '%.60s': no shape", tensor->name);
    if (json_array_size(shape) > TENSOR_MAX_DIMS)
        return fail(error, "tensor '%.60s': %zu dimensions, at most %d are read", tensor->name,
                    json_array_size(shape), TENSOR_MAX_DIMS);
    tensor->dims = (int)json_array_size(shape);
    tensor->count = 1;
    for (int i = 0; i < tensor->dims; i++) {
        const json_t *item = json_array_get(shape, (size_t)i);
        json_int_t n = json_integer_value(item);
        if (!json_is_integer(item) || n < 0 || n > LONG_MAX)
            return fail(error, "tensor '%.60s': shape[%d] is not a size", tensor->name, i);
        if (__builtin_mul_overflow(tensor->count, (size_t)n, &tensor->count))
            return fail(error, "tensor '%.60s': the shape's product overflows", tensor->name);
        tensor->shape[i] = (long)n;
    }
    if (__builtin_mul_overflow(tensor->count, element, &tensor->bytes))
        return fail(error, "tensor '%.60s': the shape's product overflows", tensor->name);
    return 1;
}

static int read_offsets(struct tensor *tensor, const json_t *offsets, size_t data_bytes,
                        char *error)
{
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return fail(error, "tensor '%.60s': data_offsets are not two numbers", tensor->name);
    json_int_t begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || end < begin || (unsigned long long)end > data_bytes)
        return fail(error,
                    "tensor '%.60s': data_offsets [%lld, %lld] are outside the %zu bytes of data",
                    tensor->name, (long long)begin, (long long)end, data_bytes);
    if ((size_t)(end - begin) != tensor->bytes)
        return fail(error, "tensor '%.60s': %lld bytes, but shape and dtype %s make %zu",
                    tensor->name, (long long)(end - begin), tensor_type_name(tensor->type),
                    tensor->bytes);
    tensor->offset = (size_t)begin;
    return 1;
}

static int read_tensor(struct tensor *tensor, const char *name, const json_t *entry,
                       size_t data_bytes, char *error)
{
    tensor->name = cli_format("%s", name);
    const char *type = json_string_value(json_object_get(entry, "dtype"));
    if (!json_is_object(entry) || !type)
        return fail(error, "tensor '%.60s': no dtype", name);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(type, types[i].name)) {
            tensor->type = types[i].type;
            return read_shape(tensor, json_object_get(entry, "shape"), types[i].bytes, error)
                   && read_offsets(tensor, json_object_get(entry, "data_offsets"), data_bytes,
                                   error);
        }
    return fail(error, "tensor '%.60s': unknown dtype '%.20s'", name, type);
}

static int by_offset(const void *a, const void *b)
{
    const struct tensor *x = *(struct tensor *const *)a, *y = *(struct tensor *const *)b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* The data must be covered by the tensors: no overlap, no hole. */
static int check_cover(const struct safetensors *st, size_t data_bytes, char *error)
{
    struct tensor **order = cli_alloc((size_t)st->ntensors, sizeof(struct tensor *));
    size_t end = 0;
    int good = 1;
    for (int i = 0; i < st->ntensors; i++)
        order[i] = &st->tensors[i];
    qsort(order, (size_t)st->ntensors, sizeof *order, by_offset);
    for (int i = 0; i < st->ntensors && good; i++) {
        if (order[i]->offset < end)
            good =
                fail(error, "tensor '%.60s' overlaps '%.60s'", order[i]->name, order[i - 1]->name);
        else if (order[i]->offset > end)
            good = fail(error, "%zu bytes before tensor '%.60s' belong to no tensor",
                        order[i]->offset - end, order[i]->name);
        end = order[i]->offset + order[i]->bytes;
    }
    free(order);
    return good && end != data_bytes
               ? fail(error, "%zu bytes at the end belong to no tensor", data_bytes - end)
               : good;
}

static int read_header(struct safetensors *st, json_t *header, const unsigned char *data,
                       size_t data_bytes, char *error)
{
    const char *name;
    json_t *entry;
    st->tensors = cli_alloc(json_object_size(header), sizeof *st->tensors);
    json_object_foreach (header, name, entry) {
        if (!strcmp(name, "__metadata__")) {
            if (!json_is_object(entry))
                return fail(error, "__metadata__ is not an object");
            continue;
        }
        struct tensor *tensor = &st->tensors[st->ntensors++];
        if (!read_tensor(tensor, name, entry, data_bytes, error))
            return 0;
        tensor->data = data + tensor->offset;
    }
    return check_cover(st, data_bytes, error);
}

int safetensors_parse(unsigned char *bytes, size_t size, struct safetensors *out, char *error)
{
    unsigned long long length = 0;
    json_error_t problem;
    memset(out, 0, sizeof *out);
    out->file = bytes;
    int good = 0;
    for (int i = 7; size >= 8 && i >= 0; i--)
        length = length << 8 | bytes[i];
    if (size < 8)
        fail(error, "%zu bytes are too few for a safetensors file", size);
    else if (length > HEADER_MAX)
        fail(error, "the header claims %llu bytes, more than %d are refused", length, HEADER_MAX);
    else if (length > size - 8)
        fail(error, "truncated: the header claims %llu bytes, %zu are there", length, size - 8);
    else if (!(out->header = json_loadb((const char *)bytes + 8, (size_t)length,
                                        JSON_REJECT_DUPLICATES, &problem)))
        fail(error, "the header is not valid JSON: %.160s", problem.text);
    else if (!json_is_object(out->header))
        fail(error, "the header is not a JSON object");
    else
        good = read_header(out, out->header, bytes + 8 + length, size - 8 - (size_t)length, error);
    if (!good)
        safetensors_close(out);
    return good;
}

/* Reads up to `size` bytes; returns how many there were. */
static size_t read_all(int fd, unsigned char *bytes, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = read(fd, bytes + done, size - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    return done;
}

int safetensors_open(const char *path, struct safetensors *out, char *error)
{
    struct stat info;
    memset(out, 0, sizeof *out);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a named pipe must not hang us */
    if (fd < 0)
        return fail(error, "%s", strerror(errno));
    if (fstat(fd, &info) || !S_ISREG(info.st_mode)) {
        close(fd);
        return fail(error, "not a regular file");
    }
    if ((size_t)info.st_size > file_max) {
        close(fd);
        return fail(error, "%lld bytes: more than 4 GiB is refused", (long long)info.st_size);
    }
    size_t size = (size_t)info.st_size;
    unsigned char *bytes = cli_alloc(size, 1);
    size_t got = read_all(fd, bytes, size);
    close(fd);
    return safetensors_parse(bytes, got, out, error);
}

void safetensors_close(struct safetensors *st)
{
    for (int i = 0; i < st->ntensors; i++)
        free(st->tensors[i].name);
    free(st->tensors);
    json_decref(st->header);
    free(st->file);
    memset(st, 0, sizeof *st);
}

const struct tensor *safetensors_get(const struct safetensors *st, const char *name)
{
    for (int i = 0; i < st->ntensors; i++)
        if (!strcmp(st->tensors[i].name, name))
            return &st->tensors[i];
    return NULL;
}

const char *safetensors_text(const struct safetensors *st, const char *name)
{
    return json_string_value(json_object_get(json_object_get(st->header, "__metadata__"), name));
}
