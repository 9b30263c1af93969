/* SPDX-License-Identifier: Apache-2.0 */
/*
** tiled.c - continuation prefill by way of dequantised tiles: the second way beside kvk_unified.
**
** The tokens of the sequence that any row sees, the chunk's own included, are cut into tiles. Of each
** tile the rows of the chunk that lie inside it are attended causally, and those after it in full;
** rows before it see none of it. So a row is finished by the tile it lies in, and meets each tile
** before that as a whole. Windows and slopes count from a row's position: rows inside a tile end
** where the tile does, and for those after it the launch says how far ahead of the tile's end they
** end, which is the number of tokens after the tile.
**
** A tile is dequantised straight into slots of the dense set: aos pages without fields, K then V.
** Results of the first tile go to the caller's out; later ones to a partial result, which is merged
** with the state: out after the first tile, fp32 in the workspace from the second on.
**
** Numbers that kernels read lie in the workspace as words. They are set by fills on the stream, in
** order with the launches that read them, so that the whole may be captured.
*/
#include "launch.h"

#include "error.h"

#include <string.h>

enum { TILE_DEFAULT = 32768, TILE_LEAST = 16, TABLE_PAGES = 64, REGION_ALIGNMENT = 16 };

/* Words of the workspace: three arrays of a first and a past-the-last, and the tile's block table. */
enum word {
    TILE,
    INSIDE = 2,
    AFTER = 4,
    FIRST_TOKEN = 6,
    WORDS_SET,
    TABLE,
    WORDS = TABLE + TABLE_PAGES
};

/* Where the parts of the workspace begin, in bytes. */
struct regions {
    int64_t lse, part_lse, state, part, tile;
};

struct tiled {
    const kvk_kernels *k;
    const struct kvk_tiled_args *a;
    kvk_stream stream;
    kvk_error *err;
    struct launch_rows query;
    int64_t begin, total, tile; /* tokens: the first that a row sees, all, a tile's */
    int32_t *words;             /* device */
    char *slots;                /* device: of the tile */
    struct kvk_partial out, state, part;
    int32_t known[WORDS_SET]; /* what the words hold */
};

static int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t round_up(int64_t bytes)
{
    return (bytes + REGION_ALIGNMENT - 1) / REGION_ALIGNMENT * REGION_ALIGNMENT;
}

/* Most query rows (token, head) of a call, and most pairs (token, head) of a tile: no launch of the
** call exceeds a grid, and no size here 2^63. */
static int64_t most_tokens(const kvk_kernels *k)
{
    return (LAUNCH_GRID_MOST / 2) / k->shape.query_heads;
}

static struct regions measure(const kvk_kernels *k, int64_t tokens)
{
    int64_t pairs = tokens * k->shape.query_heads, elements = pairs * k->shape.value_head_size;
    struct regions r = {.lse = round_up(WORDS * (int64_t)sizeof(int32_t))};
    r.part_lse = r.lse + round_up(pairs * (int64_t)sizeof(float));
    r.state = r.part_lse + round_up(pairs * (int64_t)sizeof(float));
    r.part = r.state + round_up(elements * (int64_t)sizeof(float));
    r.tile = r.part + round_up(elements * 2);
    return r;
}

/* The tile asked for, as far as the dense set's table and grids reach. */
static int64_t tile_wanted(const kvk_kernels *dense, int64_t tile_tokens)
{
    int64_t tile = tile_tokens ? tile_tokens : TILE_DEFAULT;
    tile = least_of(tile, (int64_t)TABLE_PAGES * dense->shape.page_tokens);
    return least_of(tile, most_tokens(dense));
}

static int64_t token_bytes(const kvk_kernels *dense)
{
    return dense->shape.kv_heads * dense->pages.slot_bytes;
}

/* ---- checks ---- */

/* The dtype of both sides of an uncompressed set, 0 if it is none. */
static kvk_dtype dense_dtype(const kvk_kernels *dense)
{
    static const char half[] = "kvk1:aos:k=fp16:v=fp16:", brain[] = "kvk1:aos:k=bf16:v=bf16:";
    const char *signature = dense->pages.signature;
    if (strncmp(signature, half, sizeof half - 1) == 0)
        return KVK_FLOAT16;
    return strncmp(signature, brain, sizeof brain - 1) == 0 ? KVK_BFLOAT16 : KVK_DTYPE_DEFAULT;
}

static kvk_status shapes_check(const kvk_kernels *k, const kvk_kernels *dense, const char *where,
                               kvk_error *err)
{
    const struct shape *x = &k->shape, *y = &dense->shape;
    const struct {
        const char *name;
        int a, b;
    } facts[] = {
        {"kv_heads", x->kv_heads, y->kv_heads},
        {"query_heads", x->query_heads, y->query_heads},
        {"head_size", x->head_size, y->head_size},
        {"value_head_size", x->value_head_size, y->value_head_size},
        {"dtype", (int)x->dtype, (int)y->dtype},
    };
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (facts[i].a != facts[i].b)
            return error_set(err, KVK_E_ARG, where, "dense: %s is %d, the kernels have %d",
                             facts[i].name, facts[i].b, facts[i].a);
    if (dense_dtype(dense) == KVK_DTYPE_DEFAULT || dense_dtype(dense) != x->dequant_dtype)
        return error_set(err, KVK_E_ARG, where,
                         "dense: pages are \"%s\", expected those of spec \"%s\": the kernels' "
                         "dequant_dtype",
                         dense->pages.signature, x->dequant_dtype == KVK_FLOAT16 ? "fp16" : "bf16");
    return KVK_OK;
}

static kvk_status sets_check(const kvk_kernels *k, const kvk_kernels *dense, const char *where,
                             kvk_error *err)
{
    if (!k || !dense)
        return error_set(err, KVK_E_ARG, where, "%s is NULL", k ? "dense" : "kernels");
    if (!k->kernel[KIND_DEQUANT] || !k->kernel[KIND_MERGE])
        return error_set(err, KVK_E_ARG, where, "the kernels were prepared without %s",
                         k->kernel[KIND_DEQUANT] ? "KVK_MERGE" : "KVK_DEQUANT");
    if (!dense->kernel[KIND_UNIFIED])
        return error_set(err, KVK_E_ARG, where, "dense was prepared without KVK_UNIFIED");
    if (k->ctx != dense->ctx)
        return error_set(err, KVK_E_ARG, where, "dense is of another context");
    return shapes_check(k, dense, where, err);
}

/* Tile and workspace: the largest tile that was asked for, is useful, and fits. */
static kvk_status choose_tile(struct tiled *t, const struct regions *r, const char *where)
{
    const struct kvk_tiled_args *a = t->a;
    const int64_t all = t->total - t->begin;
    int64_t useful = least_of(tile_wanted(a->dense, a->tile_tokens), all);
    int64_t least = least_of(useful, TILE_LEAST), need = r->tile + least * token_bytes(a->dense);
    if (a->workspace_bytes < (uint64_t)need)
        return error_set(t->err, KVK_E_WORKSPACE, where,
                         "workspace of %zu bytes, a tile of %lld tokens needs %lld",
                         a->workspace_bytes, (long long)least, (long long)need);
    uint64_t room = (a->workspace_bytes - (uint64_t)r->tile) / (uint64_t)token_bytes(a->dense);
    t->tile = room < (uint64_t)useful ? (int64_t)room : useful;
    if (t->tile < all && t->tile > TILE_LEAST)
        t->tile -= t->tile % TILE_LEAST;
    return launch_pointer(a->workspace, "workspace", REGION_ALIGNMENT, where, t->err);
}

static kvk_status numbers_check(const struct tiled *t, const char *where)
{
    const struct kvk_tiled_args *a = t->a;
    kvk_status status = launch_range(a->cached, "cached", 0, INT32_MAX, where, t->err);
    if (!status)
        status = launch_range(a->tokens, "tokens", 0, most_tokens(t->k), where, t->err);
    if (!status)
        status = launch_range(a->tile_tokens, "tile_tokens", 0, INT32_MAX, where, t->err);
    return status ? status
                  : launch_range(a->cached + a->tokens, "cached + tokens", 0, INT32_MAX, where,
                                 t->err);
}

static kvk_status tensors_check(const struct tiled *t, struct launch_rows rows[2],
                                const char *where)
{
    const struct kvk_tiled_args *a = t->a;
    struct launch_pool pool;
    const struct launch_attention common = {
        .query = &a->query,
        .out = &a->out,
        .table = a->block_table,
        .table_type = a->table_type,
        .lengths = a->workspace,
        .sinks = a->sinks,
        .alibi = a->alibi,
        .lse = a->lse,
        .window = a->window,
        .scale = a->scale,
        .soft_cap = a->soft_cap,
    };
    kvk_status status = launch_pool_check(t->k, &a->pool, &pool, where, t->err);
    return status ? status : launch_attention_check(a->dense, &common, rows, where, t->err);
}

/* ---- steps ---- */

/* Words first .. first + count - 1. */
static kvk_status fill(struct tiled *t, void *to, uint32_t value, int64_t count)
{
    const kvk_context *ctx = t->k->ctx;
    return ctx->driver->fill32(ctx->device, to, value, (size_t)count, t->stream, t->err);
}

static kvk_status put(struct tiled *t, enum word word, int64_t value)
{
    if (t->known[word] == value)
        return KVK_OK;
    t->known[word] = (int32_t)value;
    return fill(t, t->words + word, (uint32_t)value, 1);
}

/* Zeros, and the identity as the tile's block table. */
static kvk_status begin_words(struct tiled *t)
{
    int64_t page = t->a->dense->shape.page_tokens;
    kvk_status status = fill(t, t->words, 0, TABLE + 1);
    for (int64_t i = 1; !status && i * page < t->tile; i++)
        status = fill(t, t->words + TABLE + i, (uint32_t)i, 1);
    return status;
}

/* The partial result of row `first` on. */
static struct kvk_partial rows_from(const struct tiled *t, const struct kvk_partial *p,
                                    int64_t first)
{
    struct kvk_partial r = *p;
    int64_t bytes = p->dtype == KVK_FLOAT32 ? 4 : 2;
    r.out.data = (char *)p->out.data + first * p->out.row_stride * bytes;
    r.lse = p->lse + first * t->k->shape.query_heads;
    return r;
}

static kvk_status dequant(struct tiled *t, int64_t tokens)
{
    const kvk_kernels *dense = t->a->dense;
    const struct page_facts *p = &dense->pages;
    int64_t head = p->slot_bytes / 2, row = head * dense->shape.kv_heads;
    struct kvk_dequant_args d = KVK_INIT(struct kvk_dequant_args);
    d.pool = t->a->pool;
    d.key = (struct kvk_rows){t->slots + p->key_offset, row, head};
    d.value = (struct kvk_rows){t->slots + p->value_offset, row, head};
    d.block_table = t->a->block_table;
    d.table_type = t->a->table_type;
    d.out_start = t->words + TILE;
    d.first_token = t->words + FIRST_TOKEN;
    d.sequences = 1;
    d.rows = tokens;
    d.rotate_back = 1;
    return kvk_dequant(t->k, &d, t->stream, t->err);
}

/* Rows of the chunk from `first` on over the tile; `rows` says how many, as a word does. */
static kvk_status attend(struct tiled *t, enum word rows, int64_t first, int64_t count,
                         int64_t ahead, const struct kvk_partial *to, const float *sinks)
{
    const struct kvk_tiled_args *a = t->a;
    const struct kvk_partial out = rows_from(t, to, first);
    struct kvk_unified_args u = KVK_INIT(struct kvk_unified_args);
    u.pool = (struct kvk_pool){.data = t->slots, .pages = TABLE_PAGES};
    u.query = (struct kvk_rows){(char *)a->query.data + first * t->query.row * 2, t->query.row,
                                t->query.head};
    u.out = out.out;
    u.lse = out.lse;
    u.block_table = t->words + TABLE;
    u.lengths = t->words + TILE + 1;
    u.query_start = t->words + rows;
    u.sequences = 1;
    u.tokens = count;
    u.scale = a->scale;
    u.window = a->window;
    u.soft_cap = a->soft_cap;
    u.full = rows == AFTER;
    u.sinks = sinks;
    u.alibi = a->alibi;
    return launch_unified(a->dense, &u, (int32_t)ahead, t->stream, "kvk_unified", t->err);
}

static kvk_status merge(struct tiled *t, int64_t first, int64_t rows, const struct kvk_partial *a,
                        const struct kvk_partial *out, int with_lse)
{
    struct kvk_merge_args m = KVK_INIT(struct kvk_merge_args);
    m.a = rows_from(t, a, first);
    m.b = rows_from(t, &t->part, first);
    m.out = rows_from(t, out, first);
    if (!with_lse)
        m.out.lse = NULL;
    m.rows = rows;
    return kvk_merge(t->k, &m, t->stream, t->err);
}

/* Sinks as a partial result: zeros, whose log-sum-exps are the sink's logits. The caller's LSE is
** that without them. */
static kvk_status join_sinks(struct tiled *t, int64_t first, int64_t rows)
{
    const kvk_context *ctx = t->k->ctx;
    const int64_t heads = t->k->shape.query_heads;
    const struct kvk_partial part = rows_from(t, &t->part, first);
    const void *from = t->a->sinks;
    kvk_status status = fill(t, part.out.data, 0, rows * heads * t->k->shape.value_head_size / 2);
    for (int64_t done = 0, n; !status && done < rows; done += n) { /* each copy doubles them */
        n = done ? least_of(done, rows - done) : 1;
        status = ctx->driver->copy(ctx->device, part.lse + done * heads, from,
                                   (size_t)(n * heads) * sizeof(float), t->stream, t->err);
        from = part.lse;
    }
    return status ? status : merge(t, first, rows, &t->state, &t->out, 0);
}

/* Part of a later tile into what there is: rows inside the tile are finished by it. */
static kvk_status join(struct tiled *t, int64_t start, int64_t first, int64_t inside, int64_t after)
{
    const struct kvk_partial *before = start == t->begin + t->tile ? &t->out : &t->state;
    const struct kvk_partial *last = t->a->sinks ? &t->state : &t->out;
    kvk_status status = merge(t, first + inside, after, before, &t->state, 1);
    if (!status)
        status = merge(t, first, inside, before, last, 1);
    return status || !t->a->sinks || !inside ? status : join_sinks(t, first, inside);
}

static kvk_status step(struct tiled *t, int64_t start)
{
    const int64_t cached = t->a->cached, end = least_of(start + t->tile, t->total);
    const int64_t first = start > cached ? start - cached : 0;
    const int64_t past = end > cached ? end - cached : 0;
    const int64_t inside = past - first, after = t->a->tokens - past;
    const int is_first = start == t->begin;
    const struct kvk_partial *to = is_first ? &t->out : &t->part;
    kvk_status status = put(t, FIRST_TOKEN, start);
    if (!status)
        status = put(t, TILE + 1, end - start);
    if (!status)
        status = put(t, INSIDE + 1, inside);
    if (!status)
        status = put(t, AFTER + 1, after);
    if (!status)
        status = dequant(t, end - start);
    if (!status)
        status = attend(t, INSIDE, first, inside, 0, to, is_first ? t->a->sinks : NULL);
    if (!status)
        status = attend(t, AFTER, past, after, t->total - end, to, NULL);
    return status || is_first ? status : join(t, start, first, inside, after);
}

/* ---- calls ---- */

static void place(struct tiled *t, const struct regions *r, const struct launch_rows *out)
{
    const struct shape *s = &t->k->shape;
    char *base = t->a->workspace;
    const int64_t row = (int64_t)s->query_heads * s->value_head_size;
    float *lse = t->a->lse ? t->a->lse : (float *)(void *)(base + r->lse);
    t->words = (int32_t *)(void *)base;
    t->slots = base + r->tile;
    t->out = (struct kvk_partial){{t->a->out.data, out->row, out->head}, lse, s->dtype};
    t->state = (struct kvk_partial){{base + r->state, row, s->value_head_size}, lse, KVK_FLOAT32};
    t->part = (struct kvk_partial){
        {base + r->part, row, s->value_head_size}, (float *)(void *)(base + r->part_lse), s->dtype};
}

kvk_status kvk_tiled(const kvk_kernels *k, const struct kvk_tiled_args *a, kvk_stream stream,
                     kvk_error *err)
{
    struct tiled t = {.k = k, .a = a, .stream = stream, .err = err};
    struct launch_rows rows[2];
    kvk_status status = args_check(a, sizeof *a, "kvk_tiled_args", err);
    if (!status)
        status = sets_check(k, a->dense, __func__, err);
    if (!status)
        status = fork_check(k->ctx, __func__, err);
    if (!status)
        status = numbers_check(&t, __func__);
    if (status || !a->tokens)
        return status;
    t.total = a->cached + a->tokens;
    if (a->window > 0 && a->cached >= a->window)
        t.begin = a->cached + 1 - a->window;
    const struct regions regions = measure(k, a->tokens);
    status = choose_tile(&t, &regions, __func__);
    if (!status)
        status = tensors_check(&t, rows, __func__);
    if (status)
        return status;
    t.query = rows[0];
    place(&t, &regions, &rows[1]);
    status = begin_words(&t);
    for (int64_t start = t.begin; !status && start < t.total; start += t.tile)
        status = step(&t, start);
    return status;
}

size_t kvk_tiled_workspace_bytes(const kvk_kernels *k, const kvk_kernels *dense,
                                 const struct kvk_limits *limits, int64_t tile_tokens)
{
    if (args_check(limits, sizeof *limits, "kvk_limits", NULL) != KVK_OK ||
        sets_check(k, dense, __func__, NULL) != KVK_OK || limits->tokens <= 0 || tile_tokens < 0)
        return 0;
    if (limits->tokens > most_tokens(k))
        return SIZE_MAX;
    return (size_t)(measure(k, limits->tokens).tile +
                    tile_wanted(dense, tile_tokens) * token_bytes(dense));
}
