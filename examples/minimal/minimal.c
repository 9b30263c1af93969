/* SPDX-License-Identifier: Apache-2.0 */
/*
** minimal.c - the lines of docs/embedding.md as a program: one sequence of one token, whose answer
** is the token's own value, here all ones.
*/
#include <kvkiln.h>
#include <stdio.h>

enum {
    PAGES = 4,
    KV_HEADS = 8,
    QUERY_HEADS = 32,
    HEAD_SIZE = 128,
    CONTEXT = 64,
    BF16_ONE = 0x3f80
};

/* Device memory with `bytes` in it, or zeros. An engine has its own. */
static void *memory(kvk_context *ctx, const void *bytes, size_t size)
{
    void *device = NULL;
    if (kvk_alloc(ctx, size, &device, NULL) ||
        (bytes ? kvk_upload(ctx, device, bytes, size, NULL) : kvk_fill(ctx, device, 0, size, NULL)))
        return NULL;
    return device;
}

/* What the lines below take from the engine around them. */
struct engine {
    kvk_context *ctx;
    const kvk_kernels *kernels;
    void *pool, *workspace, *key, *value, *query, *out, *slots, *block_table, *lengths;
    size_t workspace_bytes;
};

/* docs/embedding.md: begin */
static kvk_status start(struct engine *e, struct kvk_layout *layout, kvk_error *err)
{
    struct kvk_model model = KVK_INIT(struct kvk_model);
    model.spec = "turboquant_4bit_nc";
    model.kv_heads = KV_HEADS, model.query_heads = QUERY_HEADS, model.head_size = HEAD_SIZE;
    if (kvk_open(NULL, &e->ctx, err) || kvk_prepare(e->ctx, &model, &e->kernels, err))
        return err->status;
    return kvk_layout(e->kernels, layout, err); /* layout->page_bytes * PAGES is the pool's size */
}

static kvk_status step(const struct engine *e, kvk_stream stream, kvk_error *err)
{
    struct kvk_store_args store = {sizeof store, .rows = 1, .slots = e->slots};
    struct kvk_decode_args decode = {sizeof decode, .sequences = 1, .max_context = CONTEXT};
    store.pool = decode.pool = (struct kvk_pool){.data = e->pool, .pages = PAGES};
    store.key.data = e->key, store.value.data = e->value;
    decode.query.data = e->query, decode.out.data = e->out;
    decode.block_table = e->block_table, decode.table_stride = PAGES, decode.lengths = e->lengths;
    decode.workspace = e->workspace, decode.workspace_bytes = e->workspace_bytes;
    if (kvk_store(e->kernels, &store, stream, err))
        return err->status;
    return kvk_decode(e->kernels, &decode, stream, err);
}
/* docs/embedding.md: end */

/* Memory of all that the step names: one sequence, whose token 0 lies in page 2. */
static int allocate(struct engine *e, const struct kvk_layout *layout)
{
    static uint16_t ones[QUERY_HEADS * HEAD_SIZE];
    static const int32_t slot[] = {2 * 16}, table[PAGES] = {2}, length[] = {1};
    struct kvk_limits limits = KVK_INIT(struct kvk_limits);
    for (int i = 0; i < QUERY_HEADS * HEAD_SIZE; i++)
        ones[i] = BF16_ONE;
    limits.sequences = 1, limits.context = CONTEXT;
    e->workspace_bytes = kvk_workspace_bytes(e->kernels, &limits);
    e->workspace = memory(e->ctx, NULL, e->workspace_bytes);
    e->pool = memory(e->ctx, NULL, layout->page_bytes * PAGES);
    e->key = e->value = e->query = memory(e->ctx, ones, sizeof ones);
    e->out = memory(e->ctx, NULL, sizeof ones);
    e->slots = memory(e->ctx, slot, sizeof slot);
    e->block_table = memory(e->ctx, table, sizeof table);
    e->lengths = memory(e->ctx, length, sizeof length);
    return e->workspace && e->pool && e->key && e->out && e->slots && e->block_table && e->lengths;
}

int main(void)
{
    static uint16_t out[QUERY_HEADS * HEAD_SIZE];
    struct engine e = {0};
    struct kvk_layout layout = KVK_INIT(struct kvk_layout);
    kvk_error err = {0};
    int wrong = 0;
    if (start(&e, &layout, &err) || !allocate(&e, &layout) || step(&e, NULL, &err) ||
        kvk_synchronize(e.ctx, &err) || kvk_download(e.ctx, out, e.out, sizeof out, &err)) {
        fprintf(stderr, "minimal: %s: %s\n", err.where, *err.text ? err.text : "out of memory");
        return 1;
    }
    for (int i = 0; i < QUERY_HEADS * HEAD_SIZE; i++)
        wrong += out[i] != BF16_ONE;
    printf("%s: %d numbers, %d are not 1\n", wrong ? "FAIL" : "PASS", QUERY_HEADS * HEAD_SIZE,
           wrong);
    kvk_close(e.ctx);
    return wrong != 0;
}
