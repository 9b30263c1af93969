/* SPDX-License-Identifier: Apache-2.0 */
/* sample.c - see sample.h. Each step returns 0 after it has said why. */
#include "sample.h"

#include "cli.h"
#include "options.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int reject(char *error, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int reject(char *error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error, SAFETENSORS_ERROR, format, args);
    va_end(args);
    for (char *c = error; *c; c++)
        if ((unsigned char)*c < ' ')
            *c = '?';
    return 0;
}

static int meta_number(const struct safetensors *st, const char *name, long low, long high,
                       int *out, char *error)
{
    const char *text = safetensors_text(st, name);
    long value;
    if (!text)
        return reject(error, "metadata '%s' is missing", name);
    if (!cli_number(text, low, high, &value))
        return reject(error, "metadata '%s': '%.40s': accepted %ld to %ld", name, text, low, high);
    *out = (int)value;
    return 1;
}

static int meta_dtype(struct sample *s, char *error)
{
    const char *text = safetensors_text(&s->st, "dtype");
    if (!text)
        return reject(error, "metadata 'dtype' is missing");
    s->dtype = cli_dtype(text);
    if (s->dtype == KVK_DTYPE_DEFAULT)
        return reject(error, "metadata 'dtype': '%.40s': accepted float16, bfloat16", text);
    s->number = s->dtype == KVK_FLOAT16 ? NUMBER_F16 : NUMBER_BF16;
    return 1;
}

static int meta_scale(struct sample *s, char *error)
{
    const char *text = safetensors_text(&s->st, "softmax_scale");
    char *end;
    s->scale = text ? strtod(text, &end) : 1 / sqrt(s->head_size);
    if (text && (end == text || *end || !isfinite(s->scale)))
        return reject(error, "metadata 'softmax_scale': '%.40s' is not a number", text);
    return 1;
}

static int read_meta(struct sample *s, char *error)
{
    const struct safetensors *st = &s->st;
    int slot_size;
    s->preset = safetensors_text(st, "preset");
    s->layout = safetensors_text(st, "layout");
    if (!s->preset || !s->layout)
        return reject(error, "metadata '%s' is missing", s->preset ? "layout" : "preset");
    const struct format *format = slots_format(s->preset);
    if (!format)
        return reject(error, "metadata 'preset': '%.60s' is not a preset", s->preset);
    if (strcmp(s->layout, "aos") && strcmp(s->layout, "soa") && strcmp(s->layout, "native"))
        return reject(error, "metadata 'layout': '%.40s': accepted aos, soa, native", s->layout);
    if (!meta_dtype(s, error) ||
        !meta_number(st, "head_size", OPTIONS_HEAD_LEAST, OPTIONS_HEAD_MOST, &s->head_size,
                     error) ||
        !meta_number(st, "num_kv_heads", 1, 65536, &s->kv_heads, error) ||
        !meta_number(st, "num_query_heads", 1, 65536, &s->query_heads, error) ||
        !meta_number(st, "block_size", 1, OPTIONS_PAGE_MOST, &s->page_tokens, error) ||
        !meta_number(st, "slot_size", 1, 1 << 20, &slot_size, error) || !meta_scale(s, error))
        return 0;
    s->converted = format->key == KEY_CODEBOOK && safetensors_text(st, "converted_from");
    if (s->query_heads % s->kv_heads)
        return reject(error, "%d query heads are not a multiple of %d KV heads", s->query_heads,
                      s->kv_heads);
    if (!slots_make(format, s->layout, s->kv_heads, s->head_size, s->page_tokens, &s->slots))
        return reject(error, "%s has no head size %d in layout %s", s->preset, s->head_size,
                      s->layout);
    if ((size_t)slot_size != s->slots.slot_bytes)
        return reject(error, "metadata 'slot_size': %d: %s at head size %d has %zu bytes",
                      slot_size, s->preset, s->head_size, s->slots.slot_bytes);
    return 1;
}

/* A tensor that may be absent; present, it must have this type and shape. -1 in shape: any size. */
static int want(struct sample *s, const char *name, enum tensor_type type, int dims,
                const long *shape, const struct tensor **out, char *error)
{
    const struct tensor *tensor = safetensors_get(&s->st, name);
    *out = tensor;
    if (!tensor)
        return 1;
    if (tensor->type != type)
        return reject(error, "tensor '%s': dtype %s, expected %s", name,
                      tensor_type_name(tensor->type), tensor_type_name(type));
    if (tensor->dims != dims)
        return reject(error, "tensor '%s': %d dimensions, expected %d", name, tensor->dims, dims);
    for (int i = 0; i < dims; i++)
        if (shape[i] >= 0 && tensor->shape[i] != shape[i])
            return reject(error, "tensor '%s': shape[%d] is %ld, expected %ld", name, i,
                          tensor->shape[i], shape[i]);
    return 1;
}

static int need(struct sample *s, const char *name, enum tensor_type type, int dims,
                const long *shape, const struct tensor **out, char *error)
{
    return want(s, name, type, dims, shape, out, error) &&
           (*out || reject(error, "tensor '%s' is missing", name));
}

static int32_t *copy_int32(const struct tensor *tensor)
{
    int32_t *copy = cli_alloc(tensor->count, sizeof *copy);
    for (size_t i = 0; i < tensor->count; i++)
        copy[i] = (int32_t)number_u32(tensor->data + 4 * i);
    return copy;
}

static int read_cache(struct sample *s, char *error)
{
    const struct tensor *t = safetensors_get(&s->st, "cache");
    if (!t)
        return reject(error, "tensor 'cache' is missing");
    s->cache = t;
    if (t->type != TENSOR_U8 || t->dims < 2 || t->shape[0] < 1)
        return reject(error, "tensor 'cache': expected U8 [pages, ...]");
    s->pages = t->shape[0];
    if (t->bytes / (size_t)s->pages != s->slots.page_bytes || t->bytes % (size_t)s->pages)
        return reject(error, "tensor 'cache': %zu bytes in %ld pages, expected %zu a page",
                      t->bytes, s->pages, s->slots.page_bytes);
    if (s->pages > INT32_MAX / s->page_tokens)
        return reject(error, "tensor 'cache': %ld pages of %d tokens", s->pages, s->page_tokens);
    s->pool = t->data;
    if (s->slots.native) {
        s->plain = cli_alloc((size_t)s->pages, s->slots.page_bytes);
        slots_from_native(&s->slots, t->data, (size_t)s->pages, s->plain);
        s->pool = s->plain;
    }
    return 1;
}

static int read_tables(struct sample *s, char *error)
{
    const struct tensor *table, *lengths;
    if (!need(s, "seq_lens", TENSOR_I32, 1, (long[]){-1}, &lengths, error))
        return 0;
    s->sequences = lengths->shape[0];
    if (!need(s, "block_table", TENSOR_I32, 2, (long[]){s->sequences, -1}, &table, error))
        return 0;
    s->table_stride = table->shape[1];
    s->lengths = copy_int32(lengths);
    s->block_table = copy_int32(table);
    for (long i = 0; i < s->sequences; i++) {
        long length = s->lengths[i];
        if (length < 0 || length > s->table_stride * s->page_tokens)
            return reject(error, "seq_lens[%ld] is %ld: the block table has room for %ld", i,
                          length, s->table_stride * s->page_tokens);
        s->total += length;
        for (long j = 0; j * s->page_tokens < length; j++) {
            int32_t page = s->block_table[i * s->table_stride + j];
            if (page < 0 || page >= s->pages)
                return reject(error, "block_table[%ld][%ld] is %d: the cache has %ld pages", i, j,
                              page, s->pages);
        }
    }
    return 1;
}

static int by_slot(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Two rows in one slot would leave it holding either of them. */
static int check_distinct(const int64_t *slots, long rows, char *error)
{
    int64_t *sorted = cli_alloc((size_t)rows, sizeof *sorted);
    int64_t twice = -1;
    memcpy(sorted, slots, (size_t)rows * sizeof *sorted);
    qsort(sorted, (size_t)rows, sizeof *sorted, by_slot);
    for (long i = 1; i < rows; i++)
        if (sorted[i] >= 0 && sorted[i] == sorted[i - 1])
            twice = sorted[i];
    free(sorted);
    return twice < 0 || reject(error, "slot_mapping names slot %lld twice", (long long)twice);
}

static int read_slots(struct sample *s, char *error)
{
    const struct tensor *t = safetensors_get(&s->st, "slot_mapping");
    if (!t) {
        s->key = s->value = NULL;
        return 1;
    }
    if ((t->type != TENSOR_I32 && t->type != TENSOR_I64) || t->dims != 1)
        return reject(error, "tensor 'slot_mapping': expected I32 or I64 [rows]");
    if (s->key && t->shape[0] != s->rows)
        return reject(error, "tensor 'slot_mapping': %ld rows, 'key' has %ld", t->shape[0],
                      s->rows);
    s->slot_mapping = cli_alloc(t->count, sizeof *s->slot_mapping);
    for (size_t i = 0; i < t->count; i++) {
        const unsigned char *at = t->data + i * (t->type == TENSOR_I32 ? 4 : 8);
        int64_t slot = t->type == TENSOR_I32
                           ? (int32_t)number_u32(at)
                           : (int64_t)(number_u32(at) | (uint64_t)number_u32(at + 4) << 32);
        if (slot >= (int64_t)s->pages * s->page_tokens)
            return reject(error, "slot_mapping[%zu] is %lld: the cache has %ld slots", i,
                          (long long)slot, s->pages * s->page_tokens);
        s->slot_mapping[i] = slot;
    }
    return check_distinct(s->slot_mapping, (long)t->count, error);
}

static int read_inputs(struct sample *s, char *error)
{
    enum tensor_type type = s->dtype == KVK_FLOAT16 ? TENSOR_F16 : TENSOR_BF16;
    const long rows[] = {-1, s->kv_heads, s->head_size};
    if (!want(s, "key", type, 3, rows, &s->key, error) ||
        !want(s, "value", type, 3, rows, &s->value, error))
        return 0;
    if (!s->key || !s->value)
        s->key = s->value = NULL;
    else if (s->key->shape[0] != s->value->shape[0])
        return reject(error, "'key' has %ld rows, 'value' %ld", s->key->shape[0],
                      s->value->shape[0]);
    s->rows = s->key ? s->key->shape[0] : 0;
    const long query[] = {s->sequences, s->query_heads, s->head_size};
    return read_slots(s, error) &&
           want(s, "decode_query", type, 3, query, &s->decode_query, error) &&
           want(s, "decode_out", type, 3, query, &s->decode_out, error) &&
           want(s, "sinks", TENSOR_F32, 1, (long[]){s->query_heads}, &s->sinks, error);
}

static int read_unified(struct sample *s, char *error)
{
    enum tensor_type type = s->dtype == KVK_FLOAT16 ? TENSOR_F16 : TENSOR_BF16;
    const struct tensor *start;
    long shape[] = {-1, s->query_heads, s->head_size};
    if (!want(s, "unified_query", type, 3, shape, &s->unified_query, error) ||
        !want(s, "query_start_loc", TENSOR_I32, 1, (long[]){s->sequences + 1}, &start, error))
        return 0;
    if (!s->unified_query || !start) {
        s->unified_query = NULL;
        return 1;
    }
    s->tokens = shape[0] = s->unified_query->shape[0];
    s->query_start = copy_int32(start);
    for (long i = 0; i < s->sequences; i++) {
        long begin = s->query_start[i], end = s->query_start[i + 1];
        if (begin < 0 || end < begin || end > s->tokens || end - begin > s->lengths[i] ||
            (i == 0 && begin))
            return reject(error,
                          "query_start_loc [%ld, %ld] of sequence %ld: %ld rows, %d cached tokens",
                          begin, end, i, s->tokens, s->lengths[i]);
    }
    for (int i = 0; i < s->st.ntensors; i++) {
        const char *name = s->st.tensors[i].name;
        const struct tensor *out;
        if ((!strcmp(name, "unified_out") || !strcmp(name, "unified_out_sinks") ||
             sample_window(name) >= 0) &&
            !want(s, name, type, 3, shape, &out, error))
            return 0;
    }
    return 1;
}

static int read_dequant(struct sample *s, char *error)
{
    const struct tensor *any = safetensors_get(&s->st, "dequant_key");
    if (!any)
        any = safetensors_get(&s->st, "dequant_value");
    enum tensor_type type = any && any->type == TENSOR_BF16 ? TENSOR_BF16 : TENSOR_F16;
    const long shape[] = {s->total, s->kv_heads, s->head_size};
    return want(s, "dequant_key", type, 3, shape, &s->dequant_key, error) &&
           want(s, "dequant_value", type, 3, shape, &s->dequant_value, error);
}

int sample_open(const char *path, struct sample *out, char *error)
{
    memset(out, 0, sizeof *out);
    out->path = path;
    if (!safetensors_open(path, &out->st, error))
        return 0;
    int good = read_meta(out, error) && read_cache(out, error) && read_tables(out, error) &&
               read_inputs(out, error) && read_unified(out, error) && read_dequant(out, error) &&
               want(out, "centroids", TENSOR_F32, 1, (long[]){-1}, &out->centroids, error);
    if (!good)
        sample_close(out);
    return good;
}

void sample_close(struct sample *s)
{
    free(s->plain);
    free(s->slot_mapping);
    free(s->block_table);
    free(s->lengths);
    free(s->query_start);
    safetensors_close(&s->st);
    memset(s, 0, sizeof *s);
}

int sample_knows(const char *name)
{
    static const char *const known[] = {
        "key",           "value",       "slot_mapping",  "cache",
        "block_table",   "seq_lens",    "centroids",     "decode_query",
        "decode_out",    "dequant_key", "dequant_value", "query_start_loc",
        "unified_query", "unified_out", "sinks",         "unified_out_sinks"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(name, known[i]))
            return 1;
    return sample_window(name) >= 0;
}

long sample_window(const char *name)
{
    static const char prefix[] = "unified_out_window";
    long window;
    if (strncmp(name, prefix, sizeof prefix - 1) ||
        !cli_number(name + sizeof prefix - 1, 1, INT32_MAX, &window))
        return -1;
    return window;
}
