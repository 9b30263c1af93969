/* SPDX-License-Identifier: Apache-2.0 */
/* bench_pool.c - see bench_pool.h. */
#include "bench_pool.h"

#include "oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_ROWS = 4096 };

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

/* N(0,1) rows of a dtype (Box and Muller). */
static unsigned char *random_rows(size_t count, kvk_dtype dtype, uint64_t *state)
{
    unsigned char *rows = cli_alloc(count, 2);
    for (size_t i = 0; i < count; i++) {
        double x = sqrt(-2 * log(uniform(state))) * cos(2 * M_PI * uniform(state));
        number_put_u16(rows + 2 * i, dtype == KVK_FLOAT16 ? number_to_half(x) : number_to_bf16(x));
    }
    return rows;
}

static kvk_status copy_to_device(kvk_context *ctx, const void *host, size_t bytes, void *out,
                                 kvk_error *err)
{
    kvk_status status = kvk_alloc(ctx, bytes, (void **)out, err);
    return status || !host ? status : kvk_upload(ctx, *(void **)out, host, bytes, err);
}

/* Every page of the pool belongs to one sequence of one set, in a random order. */
static void shuffle_pages(struct bench_pool *p, uint64_t *state)
{
    long pages = p->pool.pages;
    p->host_tables = cli_alloc((size_t)pages, sizeof *p->host_tables);
    for (long i = 0; i < pages; i++)
        p->host_tables[i] = (int32_t)i;
    for (long i = pages - 1; i > 0; i--) {
        long j = (long)(next(state) % (uint64_t)(i + 1));
        int32_t page = p->host_tables[i];
        p->host_tables[i] = p->host_tables[j];
        p->host_tables[j] = page;
    }
}

/* Random rows for CHUNK_ROWS tokens, stored again and again to
 * other slots until every slot is written. */
static kvk_status store_all(struct bench_pool *p, uint64_t *state, kvk_error *err)
{
    const struct bench_shape *shape = &p->shape;
    size_t elements = (size_t)(CHUNK_ROWS * shape->kv_heads * shape->head_size);
    unsigned char *key = random_rows(elements, shape->dtype, state),
                  *value = random_rows(elements, shape->dtype, state);
    int64_t *slots = cli_alloc(CHUNK_ROWS, sizeof *slots), total = p->pool.pages * shape->page;
    struct kvk_store_args args = KVK_INIT(struct kvk_store_args);
    void *device_slots = NULL;
    kvk_status status = copy_to_device(p->ctx, key, 2 * elements, &args.key.data, err);
    if (!status)
        status = copy_to_device(p->ctx, value, 2 * elements, &args.value.data, err);
    if (!status)
        status = kvk_alloc(p->ctx, CHUNK_ROWS * sizeof *slots, &device_slots, err);
    args.pool = p->pool;
    args.slots = device_slots;
    args.slot_type = KVK_INT64;
    for (int64_t first = 0; first < total && !status; first += args.rows) {
        args.rows = total - first < CHUNK_ROWS ? total - first : CHUNK_ROWS;
        /* row i of this chunk goes to a slot that a stride coprime to
         * the chunk picks: no two chunks are alike in order */
        for (int64_t i = 0; i < args.rows; i++)
            slots[i] = args.rows == CHUNK_ROWS
                           ? first + (i * 1021 + first / CHUNK_ROWS * 577) % CHUNK_ROWS
                           : first + i;
        status = kvk_upload(p->ctx, device_slots, slots, (size_t)args.rows * sizeof *slots, err);
        if (!status)
            status = kvk_store(p->kernels, &args, NULL, err);
        if (!status)
            status = kvk_synchronize(p->ctx, err);
    }
    kvk_free(p->ctx, args.key.data);
    kvk_free(p->ctx, args.value.data);
    kvk_free(p->ctx, device_slots);
    free(key);
    free(value);
    free(slots);
    return status;
}

static kvk_status prepare(struct bench_pool *p, kvk_error *err)
{
    const struct bench_shape *shape = &p->shape;
    struct kvk_model model = KVK_INIT(struct kvk_model);
    struct kvk_limits limits = KVK_INIT(struct kvk_limits);
    model.spec = shape->preset;
    model.layout = shape->layout;
    model.kv_heads = (int)shape->kv_heads;
    model.query_heads = (int)(shape->kv_heads * shape->gqa);
    model.head_size = (int)shape->head_size;
    model.page_tokens = (int)shape->page;
    model.dtype = shape->dtype;
    model.kinds = KVK_STORE | KVK_DECODE;
    kvk_status status = kvk_prepare(p->ctx, &model, &p->kernels, err);
    p->layout = KVK_INIT(struct kvk_layout);
    if (!status)
        status = kvk_layout(p->kernels, &p->layout, err);
    if (status)
        return status;
    limits.sequences = shape->batch;
    limits.query_tokens = 1;
    limits.context = shape->context;
    p->workspace_bytes = kvk_workspace_bytes(p->kernels, &limits);
    return KVK_OK;
}

static kvk_status allocate(struct bench_pool *p, uint64_t *state, kvk_error *err)
{
    const struct bench_shape *shape = &p->shape;
    int32_t *lengths = cli_alloc((size_t)shape->batch, sizeof *lengths);
    size_t elements = (size_t)(shape->batch * shape->kv_heads * shape->gqa * shape->head_size);
    for (long i = 0; i < shape->batch; i++)
        lengths[i] = (int32_t)shape->context;
    p->query_bytes = 2 * elements;
    p->host_query = random_rows(elements, shape->dtype, state);
    kvk_status status =
        kvk_alloc(p->ctx, (size_t)p->pool.pages * p->layout.page_bytes, &p->pool.data, err);
    if (!status)
        status = copy_to_device(p->ctx, p->host_tables, (size_t)p->pool.pages * sizeof(int32_t),
                                &p->tables, err);
    if (!status)
        status = copy_to_device(p->ctx, lengths, (size_t)shape->batch * sizeof *lengths,
                                &p->lengths, err);
    if (!status)
        status = copy_to_device(p->ctx, p->host_query, p->query_bytes, &p->query, err);
    if (!status)
        status = kvk_alloc(p->ctx, p->query_bytes, &p->out, err);
    if (!status)
        status =
            kvk_alloc(p->ctx, p->workspace_bytes ? p->workspace_bytes : 16, &p->workspace, err);
    free(lengths);
    return status;
}

kvk_status bench_pool_open(struct bench_pool *p, kvk_context *ctx, const struct bench_shape *shape,
                           size_t total_bytes, kvk_error *err)
{
    uint64_t state = shape->seed;
    memset(p, 0, sizeof *p);
    p->ctx = ctx;
    p->shape = *shape;
    kvk_status status = prepare(p, err);
    if (status)
        return status;
    p->pages_per_sequence = (shape->context + shape->page - 1) / shape->page;
    p->set_bytes = (size_t)(shape->batch * shape->context * shape->kv_heads) * p->layout.slot_bytes;
    p->sets = (long)((total_bytes + p->set_bytes - 1) / p->set_bytes);
    p->pool.pages = p->sets * shape->batch * p->pages_per_sequence;
    shuffle_pages(p, &state);
    status = allocate(p, &state, err);
    return status ? status : store_all(p, &state, err);
}

void bench_pool_close(struct bench_pool *p)
{
    void *const memory[] = {p->pool.data, p->tables, p->lengths, p->query, p->out, p->workspace};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i])
            kvk_free(p->ctx, memory[i]);
    free(p->host_tables);
    free(p->host_query);
}

void bench_pool_decode_args(const struct bench_pool *p, long set, struct kvk_decode_args *args)
{
    *args = KVK_INIT(struct kvk_decode_args);
    args->pool = p->pool;
    args->query.data = p->query;
    args->out.data = p->out;
    args->block_table = p->tables + set * p->shape.batch * p->pages_per_sequence;
    args->table_stride = p->pages_per_sequence;
    args->lengths = p->lengths;
    args->sequences = p->shape.batch;
    args->query_tokens = 1;
    args->max_context = p->shape.context;
    args->workspace = p->workspace;
    args->workspace_bytes = p->workspace_bytes;
}

/* Adds the squares of differences and of references for the
 * query heads of one KV head of sequence 0. */
static void compare_head(const struct bench_pool *p, const struct slots *slots,
                         const unsigned char *pages, const int32_t *table, int head,
                         const unsigned char *out, double *square, double *reference)
{
    int d = slots->head_size, gqa = (int)p->shape.gqa;
    enum number number = p->shape.dtype == KVK_FLOAT16 ? NUMBER_F16 : NUMBER_BF16;
    double *query = cli_alloc((size_t)d, sizeof *query), *want = cli_alloc((size_t)d, sizeof *want);
    struct oracle_mask mask = {.scale = 1 / sqrt(d)};
    struct oracle_rows rows;
    oracle_decode(slots, pages, table, p->shape.context, head, &rows);
    for (int h = head * gqa; h < (head + 1) * gqa; h++) {
        size_t at = (size_t)h * (size_t)d;
        for (int i = 0; i < d; i++)
            query[i] = number_at(number, p->host_query, at + (size_t)i);
        oracle_attend(&rows, query, p->shape.context - 1, &mask, want);
        for (int i = 0; i < d; i++) {
            double diff = number_at(number, out, at + (size_t)i) - want[i];
            *square += diff * diff;
            *reference += want[i] * want[i];
        }
    }
    oracle_free(&rows);
    free(query);
    free(want);
}

/* Pages of sequence 0 of set 0, one behind the other. */
static kvk_status fetch_pages(const struct bench_pool *p, unsigned char *pages, int32_t *table,
                              kvk_error *err)
{
    kvk_status status = KVK_OK;
    for (long i = 0; i < p->pages_per_sequence && !status; i++) {
        const char *page =
            (const char *)p->pool.data + (size_t)p->host_tables[i] * p->layout.page_bytes;
        status = kvk_download(p->ctx, pages + (size_t)i * p->layout.page_bytes, page,
                              p->layout.page_bytes, err);
        table[i] = (int32_t)i;
    }
    return status;
}

kvk_status bench_pool_verify(const struct bench_pool *p, int splits, double *rel_l2, kvk_error *err)
{
    const struct bench_shape *shape = &p->shape;
    const struct format *format = slots_format(shape->preset);
    struct kvk_decode_args args;
    struct slots slots;
    double square = 0, reference = 0;
    *rel_l2 = -1;
    int soa = shape->layout && !strcmp(shape->layout, "soa");
    int known = format
                && slots_make(format, soa, (int)shape->kv_heads, (int)shape->head_size,
                              (int)shape->page, &slots)
                && slots.page_bytes == p->layout.page_bytes;
    unsigned char *pages = cli_alloc((size_t)p->pages_per_sequence, p->layout.page_bytes),
                  *out = cli_alloc(p->query_bytes, 1);
    int32_t *table = cli_alloc((size_t)p->pages_per_sequence, sizeof *table);
    bench_pool_decode_args(p, 0, &args);
    args.splits = splits;
    kvk_status status = kvk_fill(p->ctx, p->out, 0xFF, p->query_bytes, err);
    if (!status)
        status = kvk_decode(p->kernels, &args, NULL, err);
    if (!status)
        status = kvk_synchronize(p->ctx, err);
    if (!status)
        status = kvk_download(p->ctx, out, p->out, p->query_bytes, err);
    if (!status && known)
        status = fetch_pages(p, pages, table, err);
    if (!status && known) {
        compare_head(p, &slots, pages, table, 0, out, &square, &reference);
        if (shape->kv_heads > 1)
            compare_head(p, &slots, pages, table, (int)shape->kv_heads - 1, out, &square,
                         &reference);
        *rel_l2 = sqrt(square / reference);
    }
    free(pages);
    free(out);
    free(table);
    return status;
}
