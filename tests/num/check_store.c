/* SPDX-License-Identifier: Apache-2.0 */
/*
** check_store.c - store writes the oracle's bytes and no other byte of the pool.
*/
#include "contract.h"

#include <stdio.h>
#include <string.h>

enum { SKIPPED = 5 };

/* Rows in random order, with rows among them that must leave no trace. */
struct batch {
    size_t rows;
    int64_t *slots;
    uint16_t *key, *value;
};

static struct batch make_batch(struct num_run *run, const struct world *w, struct num_random *r)
{
    size_t tokens = (size_t)w->first_row[w->sequences], heads = (size_t)w->m.kv_heads;
    size_t key_row = heads * (size_t)w->m.d, value_row = heads * (size_t)w->m.dv;
    int64_t capacity = w->pool.pages * w->m.page;
    const int64_t outside[SKIPPED] = {-1, capacity, INT32_MIN, capacity + 1000003, INT32_MAX};
    struct batch b = {.rows = tokens + SKIPPED};
    int32_t *order = num_host(run, b.rows * sizeof *order);
    size_t from = 0;

    b.slots = num_host(run, b.rows * sizeof *b.slots);
    b.key = num_host(run, b.rows * key_row * 2);
    b.value = num_host(run, b.rows * value_row * 2);
    num_fill_normal(r, w->m.dtype, b.key, b.rows * key_row);
    num_fill_normal(r, w->m.dtype, b.value, b.rows * value_row);
    for (size_t i = 0; i < b.rows; i++)
        order[i] = (int32_t)i;
    num_shuffle(r, order, (int)b.rows);
    for (int s = 0; s < w->sequences; s++)
        for (int t = 0; t < w->lengths[s]; t++, from++) {
            size_t to = (size_t)order[from];
            b.slots[to] = world_slot(w, s, t);
            memcpy(b.key + to * key_row, w->key + from * key_row, key_row * 2);
            memcpy(b.value + to * value_row, w->value + from * value_row, value_row * 2);
        }
    for (size_t i = 0; i < SKIPPED; i++)
        b.slots[order[tokens + i]] = outside[i];
    return b;
}

static void call_store(struct num_run *run, const struct world *w, const struct batch *b,
                       struct kvk_pool pool, int wide, int strided)
{
    const kvk_kernels *kernels = num_prepare(run, &w->m, KVK_STORE);
    struct kvk_store_args args = KVK_INIT(struct kvk_store_args);
    size_t heads = (size_t)w->m.kv_heads, d = (size_t)w->m.d, dv = (size_t)w->m.dv;
    int32_t *narrow = num_host(run, b->rows * sizeof *narrow);
    kvk_error err = {0};

    for (size_t i = 0; i < b->rows; i++)
        narrow[i] = (int32_t)b->slots[i];
    args.pool = pool;
    args.key = num_rows_put(run, w->m.dtype, b->key, b->rows, heads, d, strided).device;
    args.value = num_rows_put(run, w->m.dtype, b->value, b->rows, heads, dv, strided).device;
    args.slots = wide ? num_upload(run, b->slots, b->rows * sizeof *b->slots)
                      : num_upload(run, narrow, b->rows * sizeof *narrow);
    args.slot_type = wide ? KVK_INT64 : KVK_INT32;
    args.rows = (int64_t)b->rows;
    num_ok(run, kvk_store(kernels, &args, NULL, &err), &err, "kvk_store");
}

/* Which part of which slot a byte of the pool belongs to, for the message. */
static void name_byte(const struct world *w, size_t byte, char *text, size_t cap)
{
    for (int s = 0; s < w->sequences; s++)
        for (int t = 0; t < w->lengths[s]; t++)
            for (int h = 0; h < w->m.kv_heads; h++) {
                if (w->f.layout == REF_NATIVE) /* parts of slots lie between others */
                    continue;
                struct ref_place at = ref_place(&w->f, &w->pool, world_slot(w, s, t), h);
                int row = w->first_row[s] + t;
                if (byte - at.key < w->f.key_bytes)
                    snprintf(text, cap, "key code byte %zu of row %d head %d", byte - at.key, row,
                             h);
                else if (byte - at.value < w->f.value_bytes)
                    snprintf(text, cap, "value code byte %zu of row %d head %d", byte - at.value,
                             row, h);
                else
                    for (int f = 0; f < w->f.key_fields + w->f.value_fields; f++)
                        if (byte - at.field[f] < 2)
                            snprintf(text, cap, "field %d of row %d head %d", f, row, h);
            }
}

static void compare_pool(struct num_run *run, const struct world *w, const uint8_t *got)
{
    const uint8_t *want = w->pool.data;
    size_t differ = 0, first = 0;
    char part[96] = "a byte of no stored slot, or of a native block";

    for (size_t i = 0; i < w->pool_bytes; i++)
        if (got[i] != want[i] && differ++ == 0)
            first = i;
    if (!differ)
        return;
    name_byte(w, first, part, sizeof part);
    num_differ(run, "pool: %zu of %zu bytes differ, first at %zu (%s): %02x, expected %02x", differ,
               w->pool_bytes, first, part, got[first], want[first]);
}

static void store_and_compare(struct num_run *run, struct world *w, uint64_t seed, int poison,
                              int wide, int strided)
{
    struct num_random r = num_random(seed, 11);
    struct batch b = make_batch(run, w, &r);
    uint8_t *bytes = num_host(run, w->pool_bytes);
    struct kvk_pool pool;

    if (run->fault == FAULT_ELEMENT)
        for (size_t i = 0; i < b.rows * (size_t)w->m.kv_heads * (size_t)w->m.d; i += (size_t)w->m.d)
            b.key[i] ^= 0x8000;
    memset(bytes, poison, w->pool_bytes);
    pool = world_pool(run, w, bytes);
    call_store(run, w, &b, pool, wide, strided);
    num_download(run, bytes, pool.data, w->pool_bytes);
    compare_pool(run, w, bytes);
}

void check_store_world(struct num_run *run, struct world *w, uint64_t seed)
{
    store_and_compare(run, w, seed, 0xFF, 0, 0);
}

void check_store_into(struct num_run *run, const struct world *w, struct kvk_pool pool)
{
    struct num_random r = num_random(9, 11);
    struct batch b = make_batch(run, w, &r);

    call_store(run, w, &b, pool, 0, 0);
}

/* Variants: 0 plain; 1 odd rows, 64-bit slots, strided rows and pool; 2 head-major pool, slots of
** one token. */
void check_store(struct num_run *run, const struct num_case *c)
{
    static const int ragged[] = {19, 0, 1, 33}, odd[] = {32, 17, 0}, single[] = {1, 1, 0, 1};
    static const int *const lengths[] = {ragged, odd, single};
    static const int sequences[] = {4, 3, 4}, poison[] = {0xA5, 0xFF, 0x00};
    static const enum world_pool pools[] = {POOL_DENSE, POOL_PADDED, POOL_HEAD_MAJOR};
    int v = c->variant;
    uint64_t seed = num_case_seed(run, c);
    struct world_options o = {.lengths = lengths[v],
                              .sequences = sequences[v],
                              .data_seed = seed,
                              .page_seed = seed + 1,
                              .pool = pools[v],
                              .special = v == 1,
                              .poison = poison[v]};
    struct world w;

    world_make(run, &w, &c->model, &o);
    store_and_compare(run, &w, seed, poison[v], v == 1, v == 1);
}

/* Stores the rows of a world into the same pages far apart, and compares page by page. */
void store_far(struct num_run *run, const struct world *w, struct kvk_pool pool, uint8_t *memory)
{
    struct num_random r = num_random(9, 11);
    struct batch b = make_batch(run, w, &r);
    uint8_t *bytes = num_host(run, w->pool_bytes);
    size_t page = (size_t)w->pool.page_stride;
    kvk_error err = {0};

    for (int64_t p = 0; p < w->pool.pages; p++)
        num_ok(run, kvk_fill(run->ctx, memory + p * pool.page_stride, 0, page, &err), &err,
               "kvk_fill");
    call_store(run, w, &b, pool, 1, 0);
    for (int64_t p = 0; p < w->pool.pages; p++)
        num_download(run, bytes + (size_t)p * page, memory + p * pool.page_stride, page);
    compare_pool(run, w, bytes);
}

/* Rows whose slot is outside the pool, alone in the call, change nothing. */
void prop_negative_slot(struct num_run *run, const struct num_case *c)
{
    static const int none[] = {0, 0};
    struct world_options o = {
        .lengths = none, .sequences = 2, .data_seed = 1, .page_seed = 1, .poison = 0x5A};
    struct world w;

    world_make(run, &w, &c->model, &o);
    store_and_compare(run, &w, num_case_seed(run, c), 0x5A, 0, 0);
}
