/* SPDX-License-Identifier: Apache-2.0 */
/*
** check_tiled.c - continuation prefill in dequantised tiles against the oracle, against unified, and
** over a million tokens.
*/
#include "graph.h"

#include <math.h>
#include <string.h>

enum { MILLION = 1000000, CHUNK = 100, BLOCK = 20000, WORKSPACE = 64 << 20 };

static size_t query_heads(const struct num_model *m) { return (size_t)(m->gqa * m->kv_heads); }

/* The uncompressed set of the same model, its pages as large as the call takes them. */
static const kvk_kernels *prepare_dense(struct num_run *run, const struct num_model *m, int page)
{
    struct kvk_model d = KVK_INIT(struct kvk_model);
    const kvk_kernels *kernels = NULL;
    kvk_error err = {0};

    d.spec = m->dequant_dtype == KVK_FLOAT16 ? "fp16" : "bf16";
    d.kv_heads = m->kv_heads;
    d.query_heads = m->kv_heads * m->gqa;
    d.head_size = m->d;
    d.value_head_size = m->dv;
    d.page_tokens = page;
    d.dtype = m->dtype;
    d.kinds = KVK_UNIFIED;
    d.options = m->options;
    num_ok(run, kvk_prepare(run->ctx, &d, &kernels, &err), &err, "kvk_prepare");
    return kernels;
}

struct sets {
    const kvk_kernels *kernels, *dense;
};

static size_t workspace_bytes(struct num_run *run, const struct sets *s, int64_t tokens,
                              int64_t tile)
{
    struct kvk_limits limits = KVK_INIT(struct kvk_limits);
    size_t bytes;

    limits.tokens = tokens;
    bytes = kvk_tiled_workspace_bytes(s->kernels, s->dense, &limits, tile);
    if (bytes == 0 || bytes == SIZE_MAX)
        num_fail(run, "kvk_tiled_workspace_bytes is %zu", bytes);
    return bytes;
}

/* The same call as the attention's, of its one sequence. */
struct call {
    struct sets sets;
    struct attention_buffers buffers;
    struct kvk_tiled_args args;
};

static struct call tiled_upload(struct num_run *run, struct attention *a, const struct sets *s,
                                int64_t tile)
{
    struct call c = {.sets = *s, .args = KVK_INIT(struct kvk_tiled_args)};
    struct kvk_tiled_args *args = &c.args;

    attention_upload(run, a, num_prepare(run, &a->w->m, KVK_UNIFIED), &c.buffers);
    args->dense = s->dense;
    args->pool = c.buffers.pool;
    args->query = c.buffers.query.device;
    args->out = c.buffers.out.device;
    args->block_table = c.buffers.table;
    args->table_type = a->table_64 ? KVK_INT64 : KVK_INT32;
    args->cached = a->w->lengths[0] - a->q_len[0];
    args->tokens = a->q_len[0];
    args->tile_tokens = tile;
    args->scale = a->scale;
    args->window = a->window;
    args->soft_cap = a->soft_cap;
    args->sinks = c.buffers.sinks;
    args->alibi = c.buffers.alibi;
    args->lse = c.buffers.lse;
    args->workspace_bytes = workspace_bytes(run, s, args->tokens, tile);
    args->workspace = num_device(run, args->workspace_bytes);
    return c;
}

static void tiled_queue(struct num_run *run, void *data, kvk_stream stream)
{
    const struct call *c = data;
    kvk_error err = {0};

    num_ok(run, kvk_tiled(c->sets.kernels, &c->args, stream, &err), &err, "kvk_tiled");
}

static void tiled_call(struct num_run *run, struct attention *a, const struct sets *s, int64_t tile)
{
    struct call c = tiled_upload(run, a, s, tile);

    tiled_queue(run, &c, NULL);
    attention_fetch(run, a, &c.buffers);
}

/* Keys that were rounded to bf16 move a score by up to 2^-8 of it. */
static double lse_limit(const struct num_model *m)
{
    return m->dequant_dtype == KVK_BFLOAT16 ? 1e-2 : 3e-3;
}

/* Two results of as many rows, by the limits of one against the truth. */
static void compare(struct num_run *run, const struct num_model *m, const struct attention *got,
                    const struct attention *want, size_t rows)
{
    double limit = m->dtype == KVK_FLOAT16 ? 1e-3 : 4e-3, error = 0, norm = 0;
    size_t pairs = rows * query_heads(m), n = pairs * (size_t)m->dv;

    for (size_t i = 0; i < n; i++) {
        double x = num_value(m->dtype, got->out[i]), y = num_value(m->dtype, want->out[i]);
        error += (x - y) * (x - y);
        norm += y * y;
    }
    run->error = fmax(run->error, sqrt(error / norm));
    if (!(sqrt(error) <= 1.5 * limit * sqrt(norm)))
        num_differ(run, "tiled and unified differ by %.3g (relative L2)", sqrt(error / norm));
    for (size_t i = 0; got->lse && i < pairs; i++) {
        double x = (double)got->lse[i], y = (double)want->lse[i];
        run->lse_error = fmax(run->lse_error, fabs(x - y));
        if (!(fabs(x - y) <= lse_limit(m) * fmax(1, fabs(y) / 8)))
            num_differ(run, "lse: pair %zu is %.6g, of unified %.6g", i, x, y);
    }
}

/* What the call asks of attention: sinks, and what the model's options and the variant say. The
** last head's slope favours far keys. */
static void ask(struct num_run *run, struct attention *a, const struct num_model *m, int with_sinks)
{
    const size_t heads = query_heads(m);
    float *sinks = num_host(run, heads * sizeof *sinks);
    float *slopes = num_host(run, heads * sizeof *slopes);

    for (size_t h = 0; h < heads; h++) {
        sinks[h] = 0.5f * (float)(h % 7) - 1;
        slopes[h] = exp2f(-8.0f * (float)(h + 1) / (float)heads);
    }
    slopes[heads - 1] = -0.01f;
    a->sinks = with_sinks ? sinks : NULL;
    a->alibi = m->options & KVK_ALIBI ? slopes : NULL;
    a->soft_cap = m->options & KVK_SOFT_CAP ? 1.75f : 0;
}

/* Variant: row of the table. Windows end inside a tile of the rows, reach over several, are met by
** some rows of a tile only, and hold a row's own token alone. */
void check_tiled(struct num_run *run, const struct num_case *c)
{
    static const struct {
        int cached, tokens, tile, page, sinks, strided, table_64, other, no_lse, window;
    } call[] = {
        {0, 1, 0, 4096, 0, 0, 0, 0, 0, 0},        {0, 75, 16, 4096, 1, 0, 1, 0, 0, 0},
        {3000, 3, 1000, 4096, 0, 1, 0, 0, 0, 0},  {701, 300, 256, 64, 1, 0, 0, 0, 0, 0},
        {97, 129, 48, 16, 0, 0, 0, 0, 1, 0},      {2999, 16, 64, 4096, 1, 1, 0, 0, 1, 0},
        {45, 17, 1, 1, 0, 0, 0, 0, 0, 0},         {512, 100, 0, 8, 1, 0, 0, 1, 0, 0},
        {701, 300, 64, 64, 1, 0, 0, 0, 0, 100},   {97, 129, 48, 16, 0, 1, 0, 0, 0, 37},
        {3000, 3, 512, 4096, 0, 0, 1, 0, 0, 999}, {2999, 16, 64, 4096, 1, 0, 0, 1, 0, 128},
        {40, 70, 16, 4096, 1, 0, 0, 0, 0, 1},     {30, 50, 0, 4096, 1, 0, 0, 0, 0, 1000},
    };
    const int v = c->variant, total = call[v].cached + call[v].tokens;
    uint64_t seed = num_case_seed(run, c);
    struct world_options o = {.lengths = &total,
                              .sequences = 1,
                              .data_seed = seed,
                              .page_seed = seed + 1,
                              .pool = call[v].strided ? POOL_PADDED : POOL_DENSE,
                              .poison = 0xFF};
    struct num_model m = c->model;
    struct world w;
    struct attention unified = {.w = &w,
                                .unified = 1,
                                .strided = call[v].strided,
                                .window = call[v].window,
                                .table_64 = call[v].table_64,
                                .no_lse = call[v].no_lse},
                     tiled;

    m.dequant_dtype = call[v].other && m.dtype == KVK_BFLOAT16 ? KVK_FLOAT16 : m.dtype;
    world_make(run, &w, &m, &o);
    unified.q_len[0] = call[v].tokens;
    attention_rows(&unified);
    attention_query(run, &unified, seed + 2);
    ask(run, &unified, &m, call[v].sinks);
    tiled = unified;
    struct num_model rows = m; /* dequant and merge know no options */
    rows.options = 0;
    struct sets s = {num_prepare(run, &rows, KVK_DEQUANT | KVK_MERGE),
                     prepare_dense(run, &m, call[v].page)};
    tiled.lse_limit = lse_limit(&m);
    attention_call(run, &unified);
    tiled_call(run, &tiled, &s, call[v].tile);
    attention_check(run, &tiled);
    compare(run, &m, &tiled, &unified, (size_t)call[v].tokens);
}

/* Captured with one query and replayed with another, over a workspace of other bytes. */
void graph_tiled(struct num_run *run, const struct num_case *c)
{
    static const int total = 800, chunk = 100, tile = 256;
    uint64_t seed = num_case_seed(run, c);
    const size_t pairs = (size_t)chunk * query_heads(&c->model);
    struct world_options o = {
        .lengths = &total, .sequences = 1, .data_seed = seed, .page_seed = 5, .poison = 0xFF};
    struct num_model m = c->model;
    struct world w;
    struct attention first = {.w = &w, .unified = 1}, other;
    kvk_error err = {0};

    m.dequant_dtype = m.dtype;
    world_make(run, &w, &m, &o);
    first.q_len[0] = chunk;
    first.sinks = num_host(run, query_heads(&m) * sizeof *first.sinks);
    attention_rows(&first);
    other = first;
    attention_query(run, &first, seed + 1);
    attention_query(run, &other, seed + 2);
    struct sets s = {num_prepare(run, &m, KVK_DEQUANT | KVK_MERGE), prepare_dense(run, &m, 4096)};
    struct call call = tiled_upload(run, &first, &s, tile);
    struct graph g = {.body = tiled_queue, .data = &call};
    graph_capture(run, &g);
    num_ok(run,
           kvk_upload(run->ctx, call.args.query.data, other.query, pairs * (size_t)m.d * 2, &err),
           &err, "kvk_upload");
    num_ok(run, kvk_fill(run->ctx, call.args.workspace, 0xFF, call.args.workspace_bytes, &err),
           &err, "kvk_fill");
    graph_launch(run, &g);
    attention_fetch(run, &first, &call.buffers);
    graph_free(run, &g);
    tiled_call(run, &other, &s, tile);
    if (memcmp(first.out, other.out, pairs * (size_t)m.dv * 2) ||
        memcmp(first.lse, other.lse, pairs * sizeof *first.lse))
        num_differ(run, "a replay differs from an eager call");
}

/* ---- a million tokens ---- */

/* A pool of a million tokens and a chunk. Rows come from two blocks, each block of tokens at another
** offset of theirs, so that no two pairs of a key and a value are alike. */
struct million {
    struct num_model m;
    struct kvk_pool pool;
    int32_t *table; /* device */
    void *rows[2], *query;
    size_t pages;
};

static void random_rows(struct num_run *run, const struct million *x, uint64_t seed, void **rows)
{
    struct num_random r = num_random(seed, 31);
    size_t n = (size_t)(2 * BLOCK * x->m.kv_heads * x->m.d);
    uint16_t *bits = num_host(run, n * 2);

    num_fill_normal(&r, x->m.dtype, bits, n);
    *rows = num_upload(run, bits, n * 2);
}

static void store_block(struct num_run *run, const struct million *x, const kvk_kernels *store,
                        const int32_t *table, int32_t *slots, int block)
{
    struct kvk_store_args args = KVK_INIT(struct kvk_store_args);
    size_t row = (size_t)(x->m.kv_heads * x->m.d);
    kvk_error err = {0};

    args.rows = MILLION + CHUNK - block * BLOCK < BLOCK ? MILLION + CHUNK - block * BLOCK : BLOCK;
    for (int i = 0; i < args.rows; i++) {
        int token = block * BLOCK + i;
        slots[i] = table[token / x->m.page] * x->m.page + token % x->m.page;
    }
    args.pool = x->pool;
    args.key.data = (uint16_t *)x->rows[0] + (size_t)(block * 131) * row;
    args.value.data = (uint16_t *)x->rows[1] + (size_t)(block * 257) * row;
    args.slots = num_upload(run, slots, BLOCK * sizeof *slots);
    num_ok(run, kvk_store(store, &args, NULL, &err), &err, "kvk_store");
}

static void million_make(struct num_run *run, struct million *x, uint64_t seed)
{
    const kvk_kernels *store = num_prepare(run, &x->m, KVK_STORE);
    struct kvk_layout l = KVK_INIT(struct kvk_layout);
    struct num_random r = num_random(seed, 33);
    int32_t *slots = num_host(run, BLOCK * sizeof *slots), *table;
    size_t queries = CHUNK * query_heads(&x->m) * (size_t)x->m.d;
    uint16_t *query = num_host(run, queries * 2);
    kvk_error err = {0};

    num_ok(run, kvk_layout(store, &l, &err), &err, "kvk_layout");
    x->pages = (size_t)((MILLION + CHUNK + x->m.page - 1) / x->m.page);
    table = num_host(run, x->pages * sizeof *table);
    for (size_t i = 0; i < x->pages; i++)
        table[i] = (int32_t)i;
    num_shuffle(&r, table, (int)x->pages);
    x->table = num_upload(run, table, x->pages * sizeof *table);
    x->pool.pages = (int64_t)x->pages;
    x->pool.data = num_device(run, x->pages * l.page_bytes);
    for (int i = 0; i < 2; i++)
        random_rows(run, x, seed + (uint64_t)i, &x->rows[i]);
    for (int block = 0; block * BLOCK < MILLION + CHUNK; block++)
        store_block(run, x, store, table, slots, block);
    num_fill_normal(&r, x->m.dtype, query, queries);
    x->query = num_upload(run, query, queries * 2);
}

static void million_fetch(struct num_run *run, const struct million *x, struct attention *a,
                          const void *out, const float *lse)
{
    size_t pairs = CHUNK * query_heads(&x->m), bytes = pairs * (size_t)x->m.dv * 2;

    a->out = num_host(run, bytes);
    a->lse = num_host(run, pairs * sizeof *lse);
    num_download(run, a->out, out, bytes);
    num_download(run, a->lse, lse, pairs * sizeof *lse);
}

static void million_unified(struct num_run *run, const struct million *x, void *out, float *lse)
{
    static const int32_t lengths[] = {MILLION + CHUNK}, start[] = {0, CHUNK};
    struct kvk_unified_args args = KVK_INIT(struct kvk_unified_args);
    kvk_error err = {0};

    args.pool = x->pool;
    args.query.data = x->query;
    args.out.data = out;
    args.lse = lse;
    args.block_table = x->table;
    args.table_stride = (int64_t)x->pages;
    args.lengths = num_upload(run, lengths, sizeof lengths);
    args.query_start = num_upload(run, start, sizeof start);
    args.sequences = 1;
    args.tokens = CHUNK;
    args.scale = 0.25f; /* some keys matter more */
    num_ok(run, kvk_unified(num_prepare(run, &x->m, KVK_UNIFIED), &args, NULL, &err), &err,
           "kvk_unified");
}

static void million_tiled(struct num_run *run, const struct million *x, void *out, float *lse)
{
    struct kvk_tiled_args args = KVK_INIT(struct kvk_tiled_args);
    kvk_error err = {0};

    args.dense = prepare_dense(run, &x->m, 4096);
    args.pool = x->pool;
    args.query.data = x->query;
    args.out.data = out;
    args.lse = lse;
    args.block_table = x->table;
    args.cached = MILLION;
    args.tokens = CHUNK;
    args.scale = 0.25f;
    args.workspace = num_device(run, WORKSPACE);
    args.workspace_bytes = WORKSPACE;
    num_ok(run, kvk_tiled(num_prepare(run, &x->m, KVK_DEQUANT | KVK_MERGE), &args, NULL, &err),
           &err, "kvk_tiled");
}

/* Both ways over a million cached tokens, the tiled one in 64 MiB: for devices with memory. The host would take
** minutes, a simulated GPU hours. */
void check_million(struct num_run *run, const struct num_case *c)
{
    struct million x = {.m = c->model};
    size_t pairs = CHUNK * query_heads(&x.m), bytes = pairs * (size_t)x.m.dv * 2;
    struct attention result[2] = {0};

    num_gpus_only(run, "a million tokens are for GPUs");
    x.m.dequant_dtype = x.m.dtype;
    million_make(run, &x, num_case_seed(run, c));
    for (int tiled = 0; tiled < 2; tiled++) {
        void *out = num_device(run, bytes);
        float *lse = num_device(run, pairs * sizeof *lse);
        (tiled ? million_tiled : million_unified)(run, &x, out, lse);
        million_fetch(run, &x, &result[tiled], out, lse);
    }
    compare(run, &x.m, &result[1], &result[0], CHUNK);
}
