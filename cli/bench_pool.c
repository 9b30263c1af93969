/* SPDX-License-Identifier: Apache-2.0 */
/* bench_pool.c - the cache of a bench: kernels, shuffled pages, random rows. */
#include "bench.h"

#include "number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* PERIOD: elements of random rows that differ; what is larger repeats them. */
enum { CHUNK_ROWS = 4096, PERIOD = 1 << 20, MOST_SETS = 256 };

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

static double normal(uint64_t *state)
{
    double radius = sqrt(-2 * log(uniform(state)));
    return radius * cos(2 * M_PI * uniform(state));
}

kvk_status bench_put(struct bench *b, const void *host, size_t bytes, void **device, kvk_error *err)
{
    kvk_status status = kvk_alloc(b->ctx, bytes ? bytes : 16, device, err);
    return status || !host ? status : kvk_upload(b->ctx, *device, host, bytes, err);
}

kvk_status bench_output(struct bench *b, int which, size_t bytes, kvk_error *err)
{
    b->out_bytes[which] = bytes;
    return kvk_alloc(b->ctx, bytes, &b->out[which], err);
}

kvk_status bench_random(struct bench *b, size_t elements, unsigned salt, struct bench_random *out,
                        kvk_error *err)
{
    uint64_t state = b->shape.seed * UINT64_C(1000003) + salt;
    size_t period = elements < PERIOD ? elements : PERIOD, done = 2 * period;
    out->elements = elements;
    out->period = period;
    out->chunk = cli_alloc(period, 2);
    for (size_t i = 0; i < period; i++) {
        double x = normal(&state);
        number_put_u16(out->chunk + 2 * i,
                       b->shape.dtype == KVK_FLOAT16 ? number_to_half(x) : number_to_bf16(x));
    }
    kvk_status status = kvk_alloc(b->ctx, 2 * elements, &out->device, err);
    if (!status)
        status = kvk_upload(b->ctx, out->device, out->chunk, done, err);
    for (size_t more; done < 2 * elements && !status; done += more) {
        more = done < 2 * elements - done ? done : 2 * elements - done;
        status = kvk_device_copy(b->ctx, (char *)out->device + done, out->device, more, NULL, err);
    }
    return status ? status : kvk_synchronize(b->ctx, err);
}

double bench_random_at(const struct bench *b, const struct bench_random *rows, size_t i)
{
    return number_at(b->shape.dtype == KVK_FLOAT16 ? NUMBER_F16 : NUMBER_BF16, rows->chunk,
                     i % rows->period);
}

const int32_t *bench_table(const struct bench *b, long set, long sequence)
{
    return b->host_tables + (set * b->batch + sequence) * b->stride;
}

static long pages_of(const struct bench *b, long tokens)
{
    return (tokens + b->shape.page - 1) / b->shape.page;
}

static kvk_status prepare(const struct bench *b, unsigned kinds, const char *plan,
                          const kvk_kernels **out, kvk_error *err)
{
    const struct bench_shape *shape = &b->shape;
    struct kvk_model model = KVK_INIT(struct kvk_model);
    model.spec = shape->preset;
    model.layout = shape->layout;
    model.kv_heads = (int)shape->kv_heads;
    model.query_heads = (int)(shape->kv_heads * shape->gqa);
    model.head_size = (int)shape->head_size;
    model.value_head_size = (int)shape->value_head_size;
    model.page_tokens = (int)shape->page;
    model.dtype = shape->dtype;
    model.kinds = kinds;
    model.plan = plan;
    if (kinds & KVK_DEQUANT && b->kind != &bench_dequant)
        model.dequant_dtype = KVK_FLOAT16;
    return kvk_prepare(b->ctx, &model, out, err);
}

kvk_status bench_prepare(const struct bench *b, const char *plan, const kvk_kernels **out,
                         kvk_error *err)
{
    return prepare(b, b->kind->bits, plan, out, err);
}

static kvk_status prepare_all(struct bench *b, kvk_error *err)
{
    kvk_status status = prepare(b, KVK_STORE, NULL, &b->store, err);
    if (!status)
        status = bench_prepare(b, b->shape.plan, &b->kernels, err);
    b->layout = KVK_INIT(struct kvk_layout);
    if (!status)
        status = kvk_layout(b->store, &b->layout, err);
    struct slots slots;
    const struct format *format = slots_format(b->shape.preset);
    int known = format && b->shape.head_size == b->shape.value_head_size &&
                slots_make(format, b->shape.layout, (int)b->shape.kv_heads, (int)b->shape.head_size,
                           (int)b->shape.page, &slots) &&
                slots.page_bytes == b->layout.page_bytes;
    if (!status && !known)
        status = prepare(b, KVK_DEQUANT, NULL, &b->reader, err);
    return status;
}

/* Sequences of a set, and how many sets make `pool_bytes`. */
static void size_pool(struct bench *b, size_t pool_bytes)
{
    for (int g = 0; g < b->shape.ngroups; g++)
        b->batch += b->shape.groups[g].count;
    b->context = cli_alloc((size_t)b->batch, sizeof *b->context);
    long at = 0;
    for (int g = 0; g < b->shape.ngroups; g++)
        for (long i = 0; i < b->shape.groups[g].count; i++) {
            long tokens = b->shape.groups[g].tokens, pages = pages_of(b, tokens);
            b->context[at++] = tokens;
            b->tokens += tokens;
            b->set_pages += pages;
            b->stride = pages > b->stride ? pages : b->stride;
            b->longest = tokens > b->longest ? tokens : b->longest;
        }
    size_t set = (size_t)b->set_pages * b->layout.page_bytes;
    b->sets = (long)((pool_bytes + set - 1) / set);
    b->sets = b->sets > MOST_SETS ? MOST_SETS : b->host || b->sets > 1 ? b->sets : 2;
    b->pool.pages = b->sets * b->set_pages;
}

/* Every page of the pool belongs to one sequence of one set, in a random order. */
static void shuffle_pages(struct bench *b, uint64_t *state)
{
    long pages = b->pool.pages, at = 0;
    int32_t *order = cli_alloc((size_t)pages, sizeof *order);
    for (long i = 0; i < pages; i++)
        order[i] = (int32_t)i;
    for (long i = pages - 1; i > 0; i--) {
        long j = (long)(next(state) % (uint64_t)(i + 1));
        int32_t page = order[i];
        order[i] = order[j];
        order[j] = page;
    }
    b->host_tables = cli_alloc((size_t)(b->sets * b->batch * b->stride), sizeof *b->host_tables);
    for (long s = 0; s < b->sets * b->batch; s++)
        for (long i = 0; i < b->stride; i++)
            b->host_tables[s * b->stride + i] =
                i < pages_of(b, b->context[s % b->batch]) ? order[at++] : -1;
    free(order);
}

static kvk_status put_numbers(struct bench *b, uint64_t *state, kvk_error *err)
{
    int32_t *lengths = cli_alloc((size_t)b->batch + 1, sizeof *lengths);
    shuffle_pages(b, state);
    for (long i = 0; i < b->batch; i++)
        lengths[i] = (int32_t)b->context[i];
    kvk_status status = bench_put(b, lengths, (size_t)b->batch * sizeof *lengths, &b->lengths, err);
    if (!status)
        status =
            bench_put(b, b->host_tables, (size_t)(b->sets * b->batch * b->stride) * sizeof(int32_t),
                      &b->tables, err);
    free(lengths);
    return status;
}

/* The same rows again and again, to all slots, each time in another order. */
static kvk_status store_all(struct bench *b, kvk_error *err)
{
    const struct bench_shape *s = &b->shape;
    struct bench_random key = {0}, value = {0};
    int64_t *slots = cli_alloc(CHUNK_ROWS, sizeof *slots), total = b->pool.pages * s->page;
    struct kvk_store_args args = KVK_INIT(struct kvk_store_args);
    void *device_slots = NULL;
    size_t row = (size_t)(CHUNK_ROWS * s->kv_heads);
    kvk_status status = bench_random(b, row * (size_t)s->head_size, 1, &key, err);
    if (!status)
        status = bench_random(b, row * (size_t)s->value_head_size, 2, &value, err);
    if (!status)
        status = bench_put(b, NULL, CHUNK_ROWS * sizeof *slots, &device_slots, err);
    args.pool = b->pool;
    args.key.data = key.device;
    args.value.data = value.device;
    args.slots = device_slots;
    args.slot_type = KVK_INT64;
    for (int64_t first = 0; first < total && !status; first += args.rows) {
        args.rows = total - first < CHUNK_ROWS ? total - first : CHUNK_ROWS;
        for (int64_t i = 0; i < args.rows; i++) /* a stride coprime to the chunk */
            slots[i] = args.rows == CHUNK_ROWS
                           ? first + (i * 1021 + first / CHUNK_ROWS * 577) % CHUNK_ROWS
                           : first + i;
        status = kvk_upload(b->ctx, device_slots, slots, (size_t)args.rows * sizeof *slots, err);
        if (!status)
            status = kvk_store(b->store, &args, NULL, err);
        if (!status)
            status = kvk_synchronize(b->ctx, err);
    }
    kvk_free(b->ctx, key.device);
    kvk_free(b->ctx, value.device);
    kvk_free(b->ctx, device_slots);
    free(key.chunk);
    free(value.chunk);
    free(slots);
    return status;
}

static kvk_status check_tokens(const struct bench *b, kvk_error *err)
{
    for (long i = 0; i < b->batch && b->kind != &bench_dequant; i++)
        if (b->context[i] < b->shape.query_tokens) {
            memset(err, 0, sizeof *err);
            err->status = KVK_E_ARG;
            snprintf(err->text, sizeof err->text,
                     "query-tokens: %ld: accepted at most a sequence's %ld cached tokens",
                     b->shape.query_tokens, b->context[i]);
            return err->status;
        }
    return KVK_OK;
}

static kvk_status make_workspace(struct bench *b, kvk_error *err)
{
    struct kvk_limits limits = KVK_INIT(struct kvk_limits);
    if (!b->kind->limits)
        return KVK_OK;
    b->kind->limits(b, &limits);
    kvk_free(b->ctx, b->workspace);
    b->workspace = NULL;
    b->workspace_bytes = kvk_workspace_bytes(b->kernels, &limits);
    return bench_put(b, NULL, b->workspace_bytes, &b->workspace, err);
}

kvk_status bench_replan(struct bench *b, const char *plan, kvk_error *err)
{
    b->shape.plan = plan;
    kvk_status status = bench_prepare(b, plan, &b->kernels, err);
    return status ? status : make_workspace(b, err);
}

kvk_status bench_open(struct bench *b, const struct device *device, const struct bench_kind *kind,
                      const struct bench_shape *shape, size_t pool_bytes, kvk_error *err)
{
    memset(b, 0, sizeof *b);
    b->ctx = device->ctx;
    b->host = device_is_host(device);
    b->kind = kind;
    b->shape = *shape;
    b->references = cli_alloc(BENCH_REFERENCES, sizeof *b->references);
    uint64_t state = shape->seed;
    kvk_status status = prepare_all(b, err);
    if (status)
        return status;
    size_pool(b, pool_bytes);
    status = check_tokens(b, err);
    if (!status)
        status =
            kvk_alloc(b->ctx, (size_t)b->pool.pages * b->layout.page_bytes, &b->pool.data, err);
    if (!status)
        status = put_numbers(b, &state, err);
    if (!status && kind != &bench_store)
        status = store_all(b, err);
    if (!status)
        status = kind->make(b, err);
    return status ? status : make_workspace(b, err);
}

void bench_close(struct bench *b)
{
    void *const memory[] = {b->pool.data, b->tables,       b->lengths,     b->starts,
                            b->slots,     b->query.device, b->key.device,  b->out[0],
                            b->out[1],    b->workspace,    b->value.device};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i])
            kvk_free(b->ctx, memory[i]);
    free(b->context);
    free(b->host_tables);
    free(b->host_slots);
    free(b->query.chunk);
    free(b->key.chunk);
    free(b->value.chunk);
    bench_references_free(b);
    memset(b, 0, sizeof *b);
}
