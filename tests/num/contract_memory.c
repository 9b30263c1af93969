/* SPDX-License-Identifier: Apache-2.0 */
/*
** contract_memory.c - where rows and pages may lie: engines' own buffers, far addresses, last bytes.
*/
#include "contract.h"

#include <string.h>

static void make(struct num_run *run, struct world *w, const struct num_case *c, const int *lengths,
                 int sequences)
{
    uint64_t seed = num_case_seed(run, c);
    struct world_options o = {.lengths = lengths,
                              .sequences = sequences,
                              .data_seed = seed,
                              .page_seed = seed,
                              .poison = 0xFF};

    world_make(run, w, &c->model, &o);
}

static void put_strides(struct kvk_pool *pool, const struct world *w)
{
    if (w->f.layout != REF_AOS)
        return;
    pool->position_stride = w->pool.position_stride;
    pool->head_stride = w->pool.head_stride;
}

static void same_pool(struct num_run *run, const uint8_t *got, const uint8_t *want, size_t bytes,
                      const char *what)
{
    for (size_t i = 0; i < bytes; i++)
        if (got[i] != want[i])
            num_differ(run, "%s: byte %zu of the pool is %02x, expected %02x", what, i, got[i],
                       want[i]);
}

/* --- fused QKV rows --- */

/* The rows that a projection leaves: query heads, key heads, value heads of a token side by side. */
struct fused {
    size_t row, key, value; /* elements a row, where keys and values begin */
    uint16_t *host, *device;
};

static struct fused fuse(struct num_run *run, const struct world *w, const uint16_t *query)
{
    size_t queries = (size_t)(w->m.kv_heads * w->m.gqa * w->m.d),
           keys = (size_t)(w->m.kv_heads * w->m.d), values = (size_t)(w->m.kv_heads * w->m.dv),
           rows = (size_t)w->first_row[w->sequences];
    struct fused f = {queries + keys + values, queries, queries + keys, NULL, NULL};

    f.host = num_host(run, rows * f.row * 2);
    for (size_t r = 0; r < rows; r++) {
        memcpy(f.host + r * f.row, query + r * queries, queries * 2);
        memcpy(f.host + r * f.row + f.key, w->key + r * keys, keys * 2);
        memcpy(f.host + r * f.row + f.value, w->value + r * values, values * 2);
    }
    f.device = num_upload(run, f.host, rows * f.row * 2);
    return f;
}

/* A prefill out of one fused buffer: stored from it, then attended from it; the buffer stays. */
void contract_fused_rows(struct num_run *run, const struct num_case *c)
{
    static const int lengths[] = {33, 17};
    const kvk_kernels *kernels = num_prepare(run, &c->model, KVK_STORE | KVK_UNIFIED);
    struct kvk_store_args store = KVK_INIT(struct kvk_store_args);
    struct attention_buffers b;
    kvk_error err = {0};
    int32_t slots[50];
    struct world w;

    make(run, &w, c, lengths, 2);
    struct attention a = {.w = &w, .unified = 1, .q_len = {33, 17}};
    attention_rows(&a);
    attention_query(run, &a, 5);
    struct fused f = fuse(run, &w, a.query);
    for (int s = 0, row = 0; s < 2; s++)
        for (int t = 0; t < lengths[s]; t++)
            slots[row++] = (int32_t)world_slot(&w, s, t);
    uint8_t *pool = num_host(run, w.pool_bytes);
    memset(pool, 0xFF, w.pool_bytes);
    attention_upload(run, &a, kernels, &b);
    store.pool = b.pool = world_pool(run, &w, pool);
    store.key = (struct kvk_rows){f.device + f.key, (int64_t)f.row, 0};
    store.value = (struct kvk_rows){f.device + f.value, (int64_t)f.row, 0};
    store.slots = num_upload(run, slots, sizeof slots);
    store.rows = 50;
    num_ok(run, kvk_store(kernels, &store, NULL, &err), &err, "kvk_store");
    num_download(run, pool, store.pool.data, w.pool_bytes);
    same_pool(run, pool, w.pool.data, w.pool_bytes, "fused rows");
    b.query.device = (struct kvk_rows){f.device, (int64_t)f.row, 0};
    attention_queue(run, &a, kernels, &b, NULL);
    attention_fetch(run, &a, &b);
    attention_check(run, &a);
    uint16_t *after = num_host(run, 50 * f.row * 2);
    num_download(run, after, f.device, 50 * f.row * 2);
    if (memcmp(after, f.host, 50 * f.row * 2))
        num_differ(run, "the fused buffer was written");
}

/* --- several layers in one allocation --- */

enum { LAYERS = 3 };

/* Pages of layers side by side: layer l's page p at (p * LAYERS + l) * page bytes. */
static void spread(const struct world *w, uint8_t *memory, int layer, const uint8_t *pages)
{
    size_t page = (size_t)w->pool.page_stride;

    for (size_t p = 0; p < (size_t)w->pool.pages; p++)
        memcpy(memory + (p * LAYERS + (size_t)layer) * page, pages + p * page, page);
}

/* Each layer stores and attends in its own pages only. */
void contract_layers(struct num_run *run, const struct num_case *c)
{
    static const int lengths[] = {40, 19};
    size_t bytes;
    uint8_t *memory, *want, *got;
    struct world w;

    make(run, &w, c, lengths, 2);
    w.pool.page_stride = (w.pool.page_stride + 15) / 16 * 16; /* a pool begins at 16 bytes */
    w.pool_bytes = (size_t)(w.pool.pages * w.pool.page_stride);
    w.pool.data = num_host(run, w.pool_bytes);
    memset(w.pool.data, 0xFF, w.pool_bytes);
    world_store(&w);
    bytes = w.pool_bytes * LAYERS;
    want = num_host(run, bytes);
    got = num_host(run, bytes);
    memset(want, 0x7F, bytes);
    memory = num_upload(run, want, bytes);
    for (int layer = 0; layer < LAYERS; layer++) {
        struct kvk_pool pool = {.data = memory + (size_t)layer * (size_t)w.pool.page_stride,
                                .pages = w.pool.pages,
                                .page_stride = w.pool.page_stride * LAYERS};
        put_strides(&pool, &w);
        memset(w.pool.data, 0x7F, w.pool_bytes);
        world_store(&w);
        spread(&w, want, layer, w.pool.data);
        check_store_into(run, &w, pool);
        num_download(run, got, memory, bytes);
        same_pool(run, got, want, bytes, "layers in one allocation");
        for (int unified = 0; unified < 2; unified++) {
            struct attention a = {.w = &w, .unified = unified, .pool = &pool, .q_len = {2, 2}};
            attention_rows(&a);
            attention_query(run, &a, (uint64_t)(5 + layer));
            attention_call(run, &a);
            attention_check(run, &a);
        }
    }
}

/* --- page numbers above 2100 with pages of a million elements: beyond 2^31 bytes and elements --- */

void contract_page_numbers(struct num_run *run, const struct num_case *c)
{
    static const int lengths[] = {29, 21};
    const int64_t stride = INT64_C(2) << 20, first = 2100;
    struct world w;

    make(run, &w, c, lengths, 2);
    int64_t pages = first + w.pool.pages;
    uint8_t *memory = num_device_untouched(run, (size_t)(pages * stride));
    for (int64_t p = 0; p < w.pool.pages; p++)
        num_place_page(run, memory, (size_t)(pages * stride),
                       &(struct page_at){w.pool.data + p * w.pool.page_stride,
                                         (size_t)((first + p) * stride),
                                         (size_t)w.pool.page_stride});
    struct kvk_pool pool = {.data = memory, .pages = pages, .page_stride = stride};
    put_strides(&pool, &w);
    struct world far = w;
    far.table = num_host(run, (size_t)(2 * w.table_stride + 1) * sizeof *far.table);
    for (int i = 0; i < 2 * w.table_stride; i++)
        far.table[i] = w.table[i] < 0 ? -1 : w.table[i] + (int32_t)first;
    for (int unified = 0; unified < 2; unified++) {
        struct attention a = {.w = &w, .unified = unified, .q_len = {3, 3}}, b;
        attention_rows(&a);
        attention_query(run, &a, 5);
        b = a;
        b.w = &far;
        b.pool = &pool;
        attention_call(run, &a);
        attention_call(run, &b);
        if (memcmp(a.out, b.out, (size_t)(6 * w.m.kv_heads * w.m.gqa * w.m.dv) * 2))
            num_differ(run, "%s: pages numbered from %lld give other results",
                       unified ? "unified" : "decode", (long long)first);
    }
}

/* --- the last slot of the last page, where an allocation ends --- */

void contract_last_slot(struct num_run *run, const struct num_case *c)
{
    int lengths[1] = {2 * c->model.page};
    struct world w;

    make(run, &w, c, lengths, 1);
    w.table[0] = 0;
    w.table[1] = (int32_t)w.pool.pages - 1;
    memset(w.pool.data, 0xFF, w.pool_bytes);
    world_store(&w);
    check_store_world(run, &w, 3);
    check_dequant_world(run, &w, 0);
    for (int unified = 0; unified < 2; unified++) {
        struct attention a = {.w = &w, .unified = unified, .q_len = {2}};
        attention_rows(&a);
        attention_query(run, &a, 5);
        attention_call(run, &a);
        attention_check(run, &a);
    }
}
