/* SPDX-License-Identifier: Apache-2.0 */
/*
** graph_moves.c - merge, copy of slots and pages, and kvk_device_copy, recorded with dummies and
** replayed on other data: see graph.c.
*/
#include "graph.h"

#include <math.h>
#include <string.h>

enum { ROWS = 13, ITEMS = 20, BYTES = 4099 };

/* --- merge --- */

struct merge {
    const kvk_kernels *kernels;
    struct kvk_merge_args args;
    size_t pairs, dv;
};

static void queue_merge(struct num_run *run, void *data, kvk_stream stream)
{
    const struct merge *m = data;
    kvk_error err = {0};

    num_ok(run, kvk_merge(m->kernels, &m->args, stream, &err), &err, "kvk_merge");
}

/* No key on either side, and rows that must not count. */
static void make_empty(struct num_run *run, const struct merge *m, float *lse)
{
    for (size_t i = 0; i < m->pairs; i++)
        lse[i] = -INFINITY;
    graph_fill(run, m->args.a.out.data, 0xFF, m->pairs * m->dv * 4);
    graph_fill(run, m->args.b.out.data, 0xFF, m->pairs * m->dv * 2);
    graph_put(run, m->args.a.lse, lse, m->pairs * sizeof *lse);
    graph_put(run, m->args.b.lse, lse, m->pairs * sizeof *lse);
}

/* Side a in fp32, side b in the model's type; some rows have keys on one side only. */
static void put_sides(struct num_run *run, const struct merge *m, kvk_dtype dtype, uint64_t seed)
{
    struct num_random r = num_random(seed, 41);
    const size_t n = m->pairs * m->dv;
    float *x = num_host(run, n * sizeof *x);
    uint16_t *half = num_host(run, n * sizeof *half);

    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < m->pairs; i++)
            x[i] = num_below(&r, 5) == side ? -INFINITY : 3 * num_normal(&r);
        graph_put(run, side ? m->args.b.lse : m->args.a.lse, x, m->pairs * sizeof *x);
    }
    for (size_t i = 0; i < n; i++)
        x[i] = num_normal(&r);
    num_fill_normal(&r, dtype, half, n);
    graph_put(run, m->args.a.out.data, x, n * sizeof *x);
    graph_put(run, m->args.b.out.data, half, n * sizeof *half);
}

static void compare_merged(struct num_run *run, const struct merge *replayed,
                           const struct merge *fresh)
{
    const size_t bytes[2] = {fresh->pairs * fresh->dv * 2, fresh->pairs * sizeof(float)};

    for (int i = 0; i < 2; i++) {
        uint8_t *x = num_host(run, bytes[i]), *y = num_host(run, bytes[i]);
        const struct kvk_partial *p = &replayed->args.out, *q = &fresh->args.out;
        num_download(run, x, i ? (void *)p->lse : p->out.data, bytes[i]);
        num_download(run, y, i ? (void *)q->lse : q->out.data, bytes[i]);
        if (memcmp(x, y, bytes[i]))
            num_differ(run, "the replay's %s differs from a fresh call's", i ? "lse" : "output");
    }
}

void graph_merge(struct num_run *run, const struct num_case *c)
{
    struct merge m = {.kernels = num_prepare(run, &c->model, KVK_MERGE),
                      .args = KVK_INIT(struct kvk_merge_args)};
    struct graph g = {queue_merge, &m, NULL, NULL};

    m.pairs = ROWS * (size_t)(c->model.kv_heads * c->model.gqa);
    m.dv = (size_t)c->model.dv;
    float *lse = num_host(run, m.pairs * sizeof *lse);
    m.args.a.out.data = num_device(run, m.pairs * m.dv * 4);
    m.args.a.dtype = KVK_FLOAT32;
    m.args.b.out.data = num_device(run, m.pairs * m.dv * 2);
    m.args.out.out.data = num_device(run, m.pairs * m.dv * 2);
    m.args.a.lse = num_device(run, m.pairs * sizeof *lse);
    m.args.b.lse = num_device(run, m.pairs * sizeof *lse);
    m.args.out.lse = num_device(run, m.pairs * sizeof *lse);
    m.args.rows = ROWS;
    make_empty(run, &m, lse);
    graph_record(run, &g, c->variant);
    graph_replay(run, &g);
    for (int batch = 0; batch < 2; batch++) {
        struct merge fresh = m;
        put_sides(run, &m, c->model.dtype, num_case_seed(run, c) + (uint64_t)batch);
        graph_fill(run, m.args.out.out.data, 0xFF, m.pairs * m.dv * 2);
        graph_fill(run, m.args.out.lse, 0xFF, m.pairs * sizeof *lse);
        graph_replay(run, &g);
        fresh.args.out.out.data = num_device(run, m.pairs * m.dv * 2);
        fresh.args.out.lse = num_device(run, m.pairs * sizeof *lse);
        queue_merge(run, &fresh, NULL);
        compare_merged(run, &m, &fresh);
    }
    graph_release(run, &g);
}

/* --- copy --- */

struct copy {
    const kvk_kernels *kernels, *source;
    struct kvk_copy_args args;
};

static void queue_copy(struct num_run *run, void *data, kvk_stream stream)
{
    const struct copy *copy = data;
    kvk_error err = {0};

    num_ok(run, kvk_copy(copy->kernels, NULL, &copy->args, stream, &err), &err, "kvk_copy");
}

/* The same call with a source of another layout. */
static void queue_convert(struct num_run *run, void *data, kvk_stream stream)
{
    const struct copy *copy = data;
    struct kvk_convert_args args = KVK_INIT(struct kvk_convert_args);
    kvk_error err = {0};

    args.from = copy->args.from;
    args.to = copy->args.to;
    args.from_index = copy->args.from_index;
    args.to_index = copy->args.to_index;
    args.items = copy->args.items;
    args.pages = copy->args.pages;
    num_ok(run, kvk_convert(copy->kernels, copy->source, &args, stream, &err), &err, "kvk_convert");
}

/* Different targets, any sources; one item's target is outside. Returns how many are inside. */
static int put_items(struct num_run *run, const struct copy *copy, int units, uint64_t seed)
{
    struct num_random r = num_random(seed, 43);
    int32_t from[ITEMS], to[ITEMS], *order = num_host(run, (size_t)units * sizeof *order);
    int inside = 0;

    for (int i = 0; i < units; i++)
        order[i] = i;
    num_shuffle(&r, order, units);
    for (int i = 0; i < ITEMS; i++) {
        from[i] = num_below(&r, units);
        to[i] = i < units && i != 1 ? order[i] : units;
        inside += to[i] < units;
    }
    graph_put(run, (void *)(uintptr_t)copy->args.from_index, from, sizeof from);
    graph_put(run, (void *)(uintptr_t)copy->args.to_index, to, sizeof to);
    return inside;
}

/* Between two pools; recorded with every index -1. */
void graph_copy(struct num_run *run, const struct num_case *c)
{
    static const int lengths[] = {130, 2, 40, 300};
    const int pages = (c->variant & GRAPH_PAGES) != 0, converts = c->variant & GRAPH_CONVERT;
    const unsigned kind = converts ? KVK_CONVERT : KVK_COPY;
    struct num_model source = c->model;
    struct world w;
    struct world_options o = {
        .lengths = lengths, .sequences = 4, .data_seed = num_case_seed(run, c), .poison = 0x5A};
    struct copy copy = {num_prepare(run, &c->model, kind), NULL, KVK_INIT(struct kvk_copy_args)};
    void (*const queue)(struct num_run *, void *, kvk_stream) =
        converts ? queue_convert : queue_copy;
    struct graph g = {queue, &copy, NULL, NULL};

    if (converts)
        source.layout = REF_NATIVE;
    copy.source = num_prepare(run, &source, kind);
    world_make(run, &w, &source, &o);
    const int units = (int)w.pool.pages * (pages ? 1 : c->model.page);
    uint8_t *before = num_host(run, w.pool_bytes), *got = num_host(run, w.pool_bytes),
            *want = num_host(run, w.pool_bytes);
    copy.args.from = world_pool(run, &w, w.pool.data);
    copy.args.to = world_pool(run, &w, before);
    copy.args.from_index = num_device(run, ITEMS * sizeof(int32_t)); /* -1 */
    copy.args.to_index = num_device(run, ITEMS * sizeof(int32_t));
    copy.args.items = ITEMS;
    copy.args.pages = pages;
    graph_record(run, &g, c->variant);
    graph_replay(run, &g);
    for (int batch = 0; batch < 2; batch++) {
        struct copy fresh = copy;
        memset(before, 0xC3 + batch, w.pool_bytes);
        fresh.args.to = world_pool(run, &w, before);
        graph_put(run, copy.args.to.data, before, w.pool_bytes);
        int inside = put_items(run, &copy, units, num_case_seed(run, c) + (uint64_t)batch);
        graph_replay(run, &g);
        num_download(run, got, copy.args.to.data, w.pool_bytes);
        queue(run, &fresh, NULL);
        num_download(run, want, fresh.args.to.data, w.pool_bytes);
        if (memcmp(got, want, w.pool_bytes) || (inside && !memcmp(got, before, w.pool_bytes)))
            num_differ(run, "the replay's pool differs from a fresh call's in batch %d", batch);
    }
    graph_release(run, &g);
}

/* --- kvk_device_copy --- */

struct bytes {
    void *from, *to;
};

static void queue_bytes(struct num_run *run, void *data, kvk_stream stream)
{
    const struct bytes *b = data;
    kvk_error err = {0};

    num_ok(run, kvk_device_copy(run->ctx, b->to, b->from, BYTES, stream, &err), &err,
           "kvk_device_copy");
}

void graph_device_copy(struct num_run *run, const struct num_case *c)
{
    struct bytes b = {num_device(run, BYTES), num_device(run, BYTES)};
    struct graph g = {queue_bytes, &b, NULL, NULL};
    struct num_random r = num_random(num_case_seed(run, c), 47);
    uint8_t sent[BYTES], got[BYTES];

    graph_record(run, &g, c->variant);
    for (int batch = 0; batch < 2; batch++) {
        for (int i = 0; i < BYTES; i++)
            sent[i] = (uint8_t)num_next(&r);
        graph_put(run, b.from, sent, BYTES);
        graph_fill(run, b.to, 0xFF, BYTES);
        graph_replay(run, &g);
        num_download(run, got, b.to, BYTES);
        if (memcmp(got, sent, BYTES))
            num_differ(run, "the replay's bytes differ in batch %d", batch);
    }
    graph_release(run, &g);
}
