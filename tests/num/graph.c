/* SPDX-License-Identifier: Apache-2.0 */
/*
** graph.c - a call recorded with dummy lengths and replayed with other lengths, tables and data
** gives the bits of a fresh call.
**
** Bits of a case's variant: GRAPH_CAPTURED a CUDA graph, else the same call again (every device);
** UNIFIED; ONES the dummies are sequences of length 1 with 4 query tokens, else all lengths are 0;
** INVARIANT batch-invariant splits; SPLITS(n) n of them, 0 as many as are chosen. The other launches
** are in graph_moves.c and check_tiled.c; test_launches.py holds the list against the header.
*/
#include "graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNIFIED = 2, ONES = 4, INVARIANT = 8 }; /* and GRAPH_CAPTURED */
#define SPLITS(n) ((n) << 4)
enum { SEQUENCES = 4, BOUND = 512, SPARE = 2 };

/* Two batches with the same bounds: as many pages, as wide a table, as many rows. */
static const int batches[2][SEQUENCES] = {{130, 2, 40, 300}, {300, 40, 2, 130}};
static const int chunks[2][SEQUENCES] = {{130, 2, 1, 17}, {17, 1, 2, 130}};

void graph_record(struct num_run *run, struct graph *g, int variant)
{
    if (variant & GRAPH_CAPTURED)
        graph_capture(run, g);
    else
        g->body(run, g->data, NULL);
}

void graph_replay(struct num_run *run, const struct graph *g)
{
    if (g->exec)
        graph_launch(run, g);
    else
        g->body(run, g->data, NULL);
}

void graph_release(struct num_run *run, struct graph *g)
{
    if (g->exec)
        graph_free(run, g);
}

static void make(struct num_run *run, struct world *w, const struct num_case *c, int batch)
{
    uint64_t seed = num_case_seed(run, c) + (uint64_t)batch;
    struct world_options o = {.lengths = batches[batch],
                              .sequences = SEQUENCES,
                              .data_seed = seed,
                              .page_seed = seed,
                              .poison = 0xFF};

    world_make(run, w, &c->model, &o);
}

/* --- decode and unified --- */

struct call {
    struct attention a;
    struct attention_buffers b;
    const kvk_kernels *kernels;
};

static void queue(struct num_run *run, void *data, kvk_stream stream)
{
    struct call *call = data;

    attention_queue(run, &call->a, call->kernels, &call->b, stream);
}

static void call_make(struct num_run *run, struct call *call, const struct world *w, int variant,
                      int batch)
{
    int unified = (variant & UNIFIED) != 0;

    *call = (struct call){.a = {.w = w, .unified = unified, .max_context = BOUND}};
    call->a.batch_invariant = (variant & INVARIANT) != 0;
    call->a.splits = unified ? 0 : variant / SPLITS(1);
    call->a.spare_rows = unified ? SPARE : 0;
    for (int s = 0; s < SEQUENCES; s++)
        call->a.q_len[s] = unified ? chunks[batch][s] : 4;
    attention_rows(&call->a);
    attention_query(run, &call->a, (uint64_t)(5 + batch));
    call->kernels = num_prepare(run, &w->m, unified ? KVK_UNIFIED : KVK_DECODE);
    attention_upload(run, &call->a, call->kernels, &call->b);
}

void graph_fill(struct num_run *run, void *to, int byte, size_t bytes)
{
    kvk_error err = {0};

    num_ok(run, kvk_fill(run->ctx, to, byte, bytes, &err), &err, "kvk_fill");
}

void graph_put(struct num_run *run, void *to, const void *host, size_t bytes)
{
    kvk_error err = {0};

    num_ok(run, kvk_upload(run->ctx, to, host, bytes, &err), &err, "kvk_upload");
}

static void move(struct num_run *run, void *to, const void *from, size_t bytes)
{
    kvk_error err = {0};

    num_ok(run, kvk_device_copy(run->ctx, to, from, bytes, NULL, &err), &err, "kvk_device_copy");
}

static size_t table_bytes(const struct world *w)
{
    return (size_t)(SEQUENCES * w->table_stride - 1) * sizeof(int32_t);
}

/* Everything that a replay may find changed becomes nonsense or a dummy. */
static void make_dummy(struct num_run *run, const struct call *call, int ones)
{
    int32_t lengths[SEQUENCES], start[SEQUENCES + 1];

    for (int s = 0; s <= SEQUENCES; s++)
        start[s] = 4 * s;
    for (int s = 0; s < SEQUENCES; s++)
        lengths[s] = ones;
    graph_fill(run, call->b.query.base, 0xFF, call->b.query.elements * 2);
    graph_fill(run, call->b.table, ones ? 0 : 0xFF, table_bytes(call->a.w));
    graph_put(run, call->b.lengths, lengths, sizeof lengths);
    graph_put(run, call->b.start, start, sizeof start);
}

/* The data of another call into the buffers of this one; its results become untouched again. */
static void take(struct num_run *run, struct call *to, struct call *from)
{
    const struct world *w = from->a.w;
    kvk_error err = {0};

    move(run, to->b.pool.data, from->b.pool.data, w->pool_bytes);
    move(run, to->b.query.base, from->b.query.base, from->b.query.elements * 2);
    move(run, to->b.out.base, from->b.out.base, from->b.out.elements * 2);
    move(run, to->b.table, from->b.table, table_bytes(w));
    move(run, to->b.lengths, from->b.lengths, SEQUENCES * sizeof(int32_t));
    move(run, to->b.start, from->b.start, (SEQUENCES + 1) * sizeof(int32_t));
    num_ok(run, kvk_synchronize(run->ctx, &err), &err, "kvk_synchronize");
    graph_fill(run, to->b.lse, 0xFF, to->b.lse_bytes);
    graph_fill(run, to->b.workspace, 0xFF, to->b.workspace_bytes);
    to->a = from->a;
}

static void compare(struct num_run *run, const struct call *replayed, const struct call *fresh)
{
    const struct num_model *m = &fresh->a.w->m;
    size_t rows = (size_t)(fresh->a.start[SEQUENCES] * m->kv_heads * m->gqa);

    if (memcmp(replayed->a.out, fresh->a.out, rows * (size_t)m->dv * 2))
        num_differ(run, "the replay's output differs from a fresh call's");
    if (memcmp(replayed->a.lse, fresh->a.lse, rows * sizeof(float)))
        num_differ(run, "the replay's lse differs from a fresh call's");
}

void graph_attention(struct num_run *run, const struct num_case *c)
{
    struct world w[2];
    struct call recorded;
    struct graph g = {queue, &recorded, NULL, NULL};

    make(run, &w[0], c, 0);
    make(run, &w[1], c, 1);
    call_make(run, &recorded, &w[0], c->variant, 0);
    make_dummy(run, &recorded, (c->variant & ONES) != 0);
    graph_record(run, &g, c->variant);
    graph_replay(run, &g); /* the dummies themselves must be harmless */
    for (int round = 0; round < 3; round++) {
        struct call fresh;
        int batch = round % 2;
        call_make(run, &fresh, &w[batch], c->variant, batch);
        take(run, &recorded, &fresh);
        graph_replay(run, &g);
        attention_fetch(run, &recorded.a, &recorded.b);
        queue(run, &fresh, NULL);
        attention_fetch(run, &fresh.a, &fresh.b);
        compare(run, &recorded, &fresh);
        attention_check(run, &recorded.a);
    }
    graph_release(run, &g);
}

/* --- store --- */

struct store {
    const kvk_kernels *kernels;
    struct kvk_store_args args;
};

static void queue_store(struct num_run *run, void *data, kvk_stream stream)
{
    struct store *s = data;
    kvk_error err = {0};

    num_ok(run, kvk_store(s->kernels, &s->args, stream, &err), &err, "kvk_store");
}

/* Captured with every slot -1; replayed with two batches of rows. */
void graph_store(struct num_run *run, const struct num_case *c)
{
    struct world w[2];
    struct store s = {num_prepare(run, &c->model, KVK_STORE), KVK_INIT(struct kvk_store_args)};
    struct graph g = {queue_store, &s, NULL, NULL};

    make(run, &w[0], c, 0);
    make(run, &w[1], c, 1);
    size_t rows = (size_t)w[0].first_row[SEQUENCES], heads = (size_t)c->model.kv_heads;
    size_t d = (size_t)c->model.d, dv = (size_t)c->model.dv;
    struct num_rows key = num_rows_put(run, c->model.dtype, NULL, rows, heads, d, 0),
                    value = num_rows_put(run, c->model.dtype, NULL, rows, heads, dv, 0);
    int32_t *slots = num_host(run, rows * sizeof *slots);
    uint8_t *bytes = num_host(run, w[0].pool_bytes);
    memset(bytes, 0xFF, w[0].pool_bytes);
    s.args.pool = world_pool(run, &w[0], bytes);
    s.args.key = key.device;
    s.args.value = value.device;
    s.args.slots = num_device(run, rows * sizeof *slots); /* -1 */
    s.args.rows = (int64_t)rows;
    graph_record(run, &g, c->variant);
    graph_replay(run, &g);
    for (int batch = 0; batch < 2; batch++) {
        const struct world *now = &w[batch];
        for (int q = 0, row = 0; q < SEQUENCES; q++)
            for (int t = 0; t < now->lengths[q]; t++)
                slots[row++] = (int32_t)world_slot(now, q, t);
        graph_put(run, (void *)(uintptr_t)s.args.slots, slots, rows * sizeof *slots);
        graph_put(run, key.base, now->key, rows * heads * d * 2);
        graph_put(run, value.base, now->value, rows * heads * dv * 2);
        graph_fill(run, s.args.pool.data, 0xFF, now->pool_bytes);
        graph_replay(run, &g);
        num_download(run, bytes, s.args.pool.data, now->pool_bytes);
        if (memcmp(bytes, now->pool.data, now->pool_bytes))
            num_differ(run, "the replay stores other bytes in batch %d", batch);
    }
    graph_release(run, &g);
}

/* --- dequant --- */

struct dequant {
    const kvk_kernels *kernels;
    struct kvk_dequant_args args;
};

static void queue_dequant(struct num_run *run, void *data, kvk_stream stream)
{
    struct dequant *q = data;
    kvk_error err = {0};

    num_ok(run, kvk_dequant(q->kernels, &q->args, stream, &err), &err, "kvk_dequant");
}

/* One fresh call of the same arguments into buffers of its own. */
static uint16_t *fresh_dequant(struct num_run *run, const struct dequant *recorded,
                               const struct num_rows *like, size_t rows, int values)
{
    struct dequant fresh = *recorded;
    struct num_rows out = num_rows_put(run, like->dtype, NULL, like->rows, like->heads, like->d, 0);

    fresh.args.key = values ? (struct kvk_rows){0} : out.device;
    fresh.args.value = values ? out.device : (struct kvk_rows){0};
    queue_dequant(run, &fresh, NULL);
    return num_rows_get(run, &out, rows, "rows");
}

/* Captured with empty ranges; replayed with two batches. */
void graph_dequant(struct num_run *run, const struct num_case *c)
{
    struct world w[2];
    struct dequant q = {num_prepare(run, &c->model, KVK_DEQUANT),
                        KVK_INIT(struct kvk_dequant_args)};
    struct graph g = {queue_dequant, &q, NULL, NULL};

    make(run, &w[0], c, 0);
    make(run, &w[1], c, 1);
    size_t rows = (size_t)w[0].first_row[SEQUENCES], heads = (size_t)c->model.kv_heads;
    kvk_dtype dtype = c->model.dequant_dtype;
    struct num_rows key = num_rows_put(run, dtype, NULL, rows, heads, (size_t)c->model.d, 0),
                    value = num_rows_put(run, dtype, NULL, rows, heads, (size_t)c->model.dv, 0);
    int32_t start[SEQUENCES + 1] = {0}, *on_device = num_upload(run, start, sizeof start);
    q.args.pool = world_pool(run, &w[0], w[0].pool.data);
    q.args.key = key.device;
    q.args.value = value.device;
    q.args.block_table = num_device(run, table_bytes(&w[0]));
    q.args.table_stride = w[0].table_stride;
    q.args.out_start = on_device;
    q.args.sequences = SEQUENCES;
    q.args.rows = (int64_t)rows;
    q.args.rotate_back = 1;
    graph_record(run, &g, c->variant);
    graph_replay(run, &g);
    for (int batch = 0; batch < 2; batch++) {
        const struct world *now = &w[batch];
        for (int s = 0; s <= SEQUENCES; s++)
            start[s] = now->first_row[s];
        graph_put(run, on_device, start, sizeof start);
        graph_put(run, (void *)(uintptr_t)q.args.block_table, now->table, table_bytes(now));
        graph_put(run, q.args.pool.data, now->pool.data, now->pool_bytes);
        graph_replay(run, &g);
        uint16_t *k = num_rows_get(run, &key, rows, "key"),
                 *v = num_rows_get(run, &value, rows, "value");
        if (memcmp(k, fresh_dequant(run, &q, &key, rows, 0), rows * heads * key.d * 2) ||
            memcmp(v, fresh_dequant(run, &q, &value, rows, 1), rows * heads * value.d * 2))
            num_differ(run, "the replay's rows differ from a fresh call's in batch %d", batch);
    }
    graph_release(run, &g);
}

/* --- the list --- */

struct num_case *graph_cases(struct num_case *cases, size_t *count)
{
    static const struct {
        const char *name;
        num_body *body;
        int variant;
    } kinds[] = {{"decode_of_lengths_0", graph_attention, 0},
                 {"decode_of_lengths_1", graph_attention, ONES},
                 {"decode_of_1_split", graph_attention, SPLITS(1)},
                 {"decode_of_2_splits", graph_attention, SPLITS(2)},
                 {"decode_of_7_splits", graph_attention, SPLITS(7) | ONES},
                 {"decode_batch_invariant", graph_attention, INVARIANT},
                 {"unified_of_lengths_0", graph_attention, UNIFIED},
                 {"unified_of_lengths_1", graph_attention, UNIFIED | ONES},
                 {"store", graph_store, 0},
                 {"dequant", graph_dequant, 0},
                 {"merge", graph_merge, 0},
                 {"copy_slots", graph_copy, 0},
                 {"copy_pages", graph_copy, GRAPH_PAGES},
                 {"convert", graph_copy, GRAPH_CONVERT},
                 {"device_copy", graph_device_copy, 0}};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    const struct num_model models[] = {{ref_spec_find("turboquant_4bit_nc"), REF_AOS, 64, 64, 4, 2,
                                        16, KVK_BFLOAT16, KVK_BFLOAT16, 0},
                                       {ref_spec_find("turboquant_3bit_nc"), REF_SOA, 128, 128, 3,
                                        1, 64, KVK_FLOAT16, KVK_FLOAT16, 0}};

    cases = realloc(cases, (*count + 4 * KINDS) * sizeof *cases);
    if (!cases)
        abort();
    for (int i = 0; i < 4 * KINDS; i++) {
        int captured = i / KINDS % 2;
        struct num_case *c = &cases[(*count)++];
        *c = (struct num_case){.model = models[i / KINDS / 2],
                               .body = kinds[i % KINDS].body,
                               .variant =
                                   kinds[i % KINDS].variant | (captured ? GRAPH_CAPTURED : 0)};
        snprintf(c->name, sizeof c->name, "%s/%s/%s",
                 captured ? "graph_replay_equals_eager" : "same_call_on_other_data",
                 kinds[i % KINDS].name, c->model.spec->name);
    }
    return cases;
}
