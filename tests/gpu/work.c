/* SPDX-License-Identifier: Apache-2.0 */
/*
** work.c - one chain of launches: store, decode, unified, merge of both, dequant, copy. All that it
** reads and writes is one piece of memory, laid out by place(), which is put back before each chain
** by a copy on the same stream. Same seed, same bytes, whatever context or stream it runs on.
*/
#include "gpu.h"

#include <stdlib.h>
#include <string.h>

enum {
    SEQUENCES = 3,
    KV_HEADS = 2,
    HEADS = 8,
    D = 128,
    PAGE = 16,
    TABLE = 20,
    ROWS = 300 + 17 + 129,
    POOL = 40,
    COPIES = 5
};

static const int32_t lengths[SEQUENCES] = {300, 17, 129};

static const struct {
    const char *spec, *layout;
} models[WORK_MODELS] = {{"turboquant_4bit_nc", "aos"},
                         {"turboquant_4bit_nc", "soa"},
                         {"turboquant_k8v4", "aos"},
                         {"turboquant_k8v4", "soa"}};

int work_context(struct test *t, kvk_context **ctx)
{
    struct kvk_options o = KVK_INIT(struct kvk_options);
    kvk_error err;

    o.device = t->device;
    o.cache_dir = "";
    o.compile = KVK_COMPILE_NEVER; /* $KVKILN_PACKS */
    return test_ok(t, kvk_open(&o, ctx, &err), &err, "kvk_open");
}

int work_kernels(struct test *t, kvk_context *ctx, int model, const kvk_kernels **kernels)
{
    struct kvk_model m = KVK_INIT(struct kvk_model);
    kvk_error err;

    m.spec = models[model].spec;
    m.layout = models[model].layout;
    m.kv_heads = KV_HEADS;
    m.query_heads = HEADS;
    m.head_size = D;
    m.page_tokens = PAGE;
    return test_ok(t, kvk_prepare(ctx, &m, kernels, &err), &err, "kvk_prepare");
}

/* --- memory: the host's copy of it is filled with inputs, and poison --- */

static size_t take(size_t *at, size_t bytes)
{
    size_t here = *at;

    *at += (bytes + 255) / 256 * 256;
    return here;
}

static int place(struct test *t, const kvk_kernels *kernels, struct work *w)
{
    struct work_layout *l = &w->at;
    struct kvk_layout pages = KVK_INIT(struct kvk_layout);
    struct kvk_limits limits = KVK_INIT(struct kvk_limits);
    kvk_error err;
    size_t at = 0;

    if (test_ok(t, kvk_layout(kernels, &pages, &err), &err, "kvk_layout"))
        return 1;
    limits.sequences = limits.tokens = SEQUENCES;
    limits.context = lengths[0];
    l->workspace_bytes = kvk_workspace_bytes(kernels, &limits);
    l->pool_bytes = POOL * pages.page_bytes;
    l->key = take(&at, ROWS * KV_HEADS * D * 2);
    l->value = take(&at, ROWS * KV_HEADS * D * 2);
    l->query = take(&at, 2 * SEQUENCES * HEADS * D * 2);
    l->slots = take(&at, ROWS * sizeof(int32_t));
    l->table = take(&at, SEQUENCES * TABLE * sizeof(int32_t));
    l->lengths = take(&at, sizeof lengths);
    l->query_start = take(&at, (SEQUENCES + 1) * sizeof(int32_t));
    l->out_start = take(&at, (SEQUENCES + 1) * sizeof(int32_t));
    l->from = take(&at, COPIES * sizeof(int32_t));
    l->to = take(&at, COPIES * sizeof(int32_t));
    l->pool = take(&at, l->pool_bytes);
    for (int i = 0; i < 3; i++) {
        l->out[i] = take(&at, SEQUENCES * HEADS * D * 2);
        l->lse[i] = take(&at, SEQUENCES * HEADS * sizeof(float));
    }
    for (int i = 0; i < 2; i++)
        l->rows[i] = take(&at, ROWS * KV_HEADS * D * 2);
    w->compared = at;
    l->workspace = take(&at, l->workspace_bytes);
    w->bytes = at;
    return 0;
}

static uint64_t next(uint64_t *state)
{
    uint64_t x = *state += 0x9E3779B97F4A7C15u;

    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* bf16, close to normal. */
static void random_rows(uint64_t *state, void *to, size_t n)
{
    uint16_t *x = to;

    for (size_t i = 0; i < n; i++) {
        float sum = -2;
        uint32_t bits;
        for (int k = 0; k < 4; k++)
            sum += (float)(next(state) >> 40) / 16777216.0f;
        sum *= 1.7f;
        memcpy(&bits, &sum, sizeof bits);
        x[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

/* Pages of all sequences in random order; the pages past them are the targets of the copies. */
static void number(uint64_t *state, const struct work_layout *l, char *host)
{
    int32_t *slots = (int32_t *)(void *)(host + l->slots), *start;
    int32_t *table = (int32_t *)(void *)(host + l->table), pages[POOL];
    int row = 0, page = 0;

    for (int i = 0; i < POOL; i++)
        pages[i] = i;
    for (int i = POOL - 1; i > 0; i--) {
        int k = (int)(next(state) % (uint64_t)(i + 1));
        int32_t swap = pages[i];
        pages[i] = pages[k];
        pages[k] = swap;
    }
    for (int s = 0; s < SEQUENCES; s++) {
        for (int token = 0; token < lengths[s]; token++, row++) {
            if (token % PAGE == 0)
                table[s * TABLE + token / PAGE] = pages[page++];
            slots[row] = table[s * TABLE + token / PAGE] * PAGE + token % PAGE;
        }
        start = (int32_t *)(void *)(host + l->out_start);
        start[0] = 0;
        start[s + 1] = row;
        start = (int32_t *)(void *)(host + l->query_start);
        start[0] = 0;
        start[s + 1] = s + 1;
    }
    memcpy(host + l->lengths, lengths, sizeof lengths);
    memcpy(host + l->from, pages, COPIES * sizeof *pages);
    memcpy(host + l->to, pages + page, COPIES * sizeof *pages);
}

static void describe(struct work *w, const struct work_layout *l)
{
    char *b = w->base;
    struct kvk_pool pool = {.data = b + l->pool, .pages = POOL};
    void *table = b + l->table, *length = b + l->lengths;

    w->store = (struct kvk_store_args){sizeof w->store, .pool = pool, .rows = ROWS};
    w->store.key.data = b + l->key;
    w->store.value.data = b + l->value;
    w->store.slots = b + l->slots;
    w->decode = (struct kvk_decode_args){sizeof w->decode, .pool = pool, .sequences = SEQUENCES};
    w->decode.query.data = b + l->query;
    w->decode.out.data = b + l->out[0];
    w->decode.lse = (float *)(void *)(b + l->lse[0]);
    w->decode.block_table = table;
    w->decode.table_stride = TABLE;
    w->decode.lengths = length;
    w->decode.max_context = lengths[0];
    w->decode.workspace = b + l->workspace;
    w->decode.workspace_bytes = l->workspace_bytes;
    w->unified = (struct kvk_unified_args){sizeof w->unified, .pool = pool, .sequences = SEQUENCES};
    w->unified.query.data = b + l->query + SEQUENCES * HEADS * D * 2;
    w->unified.out.data = b + l->out[1];
    w->unified.lse = (float *)(void *)(b + l->lse[1]);
    w->unified.block_table = table;
    w->unified.table_stride = TABLE;
    w->unified.lengths = length;
    w->unified.query_start = (const int32_t *)(void *)(b + l->query_start);
    w->unified.tokens = SEQUENCES;
    w->merge = (struct kvk_merge_args){sizeof w->merge, .rows = SEQUENCES};
    for (int i = 0; i < 3; i++) {
        struct kvk_partial *p = i == 0 ? &w->merge.a : i == 1 ? &w->merge.b : &w->merge.out;
        p->out.data = b + l->out[i];
        p->lse = (float *)(void *)(b + l->lse[i]);
    }
    w->dequant = (struct kvk_dequant_args){sizeof w->dequant, .pool = pool, .sequences = SEQUENCES};
    w->dequant.key.data = b + l->rows[0];
    w->dequant.value.data = b + l->rows[1];
    w->dequant.block_table = table;
    w->dequant.table_stride = TABLE;
    w->dequant.out_start = (const int32_t *)(void *)(b + l->out_start);
    w->dequant.rows = ROWS;
    w->dequant.rotate_back = 1;
    w->copy = (struct kvk_copy_args){sizeof w->copy, .from = pool, .to = pool, .pages = 1};
    w->copy.from_index = b + l->from;
    w->copy.to_index = b + l->to;
    w->copy.items = COPIES;
}

int work_seed(struct test *t, const struct work *w, uint64_t seed)
{
    char *host = malloc(w->bytes);
    kvk_error err;

    if (!host)
        return test_fail(t, "no memory");
    memset(host, 0xFF, w->bytes);
    random_rows(&seed, host + w->at.key, ROWS * KV_HEADS * D);
    random_rows(&seed, host + w->at.value, ROWS * KV_HEADS * D);
    random_rows(&seed, host + w->at.query, 2 * SEQUENCES * HEADS * D);
    number(&seed, &w->at, host);
    int bad = test_ok(t, kvk_upload(w->ctx, w->image, host, w->bytes, &err), &err, "kvk_upload") ||
              /* the copy to the device may not be done yet, and streams need not wait for it */
              test_ok(t, kvk_synchronize(w->ctx, &err), &err, "kvk_synchronize");
    free(host);
    return bad;
}

int work_make(struct test *t, struct work *w, kvk_context *ctx, const kvk_kernels *kernels,
              uint64_t seed)
{
    void *base, *image;
    kvk_error err;

    memset(w, 0, sizeof *w);
    w->ctx = ctx;
    if (place(t, kernels, w) ||
        test_ok(t, kvk_alloc(ctx, w->bytes, &base, &err), &err, "kvk_alloc") ||
        test_ok(t, kvk_alloc(ctx, w->bytes, &image, &err), &err, "kvk_alloc"))
        return 1;
    w->base = base;
    w->image = image;
    describe(w, &w->at);
    return work_seed(t, w, seed);
}

void work_free(struct work *w)
{
    kvk_free(w->ctx, w->base);
    kvk_free(w->ctx, w->image);
}

int work_queue(struct test *t, const struct work *w, const kvk_kernels *k, kvk_stream stream)
{
    kvk_error err;

    return test_ok(t, kvk_device_copy(w->ctx, w->base, w->image, w->bytes, stream, &err), &err,
                   "kvk_device_copy") ||
           test_ok(t, kvk_store(k, &w->store, stream, &err), &err, "kvk_store") ||
           test_ok(t, kvk_decode(k, &w->decode, stream, &err), &err, "kvk_decode") ||
           test_ok(t, kvk_unified(k, &w->unified, stream, &err), &err, "kvk_unified") ||
           test_ok(t, kvk_merge(k, &w->merge, stream, &err), &err, "kvk_merge") ||
           test_ok(t, kvk_dequant(k, &w->dequant, stream, &err), &err, "kvk_dequant") ||
           test_ok(t, kvk_copy(k, NULL, &w->copy, stream, &err), &err, "kvk_copy");
}

uint8_t *work_fetch(struct test *t, const struct work *w)
{
    uint8_t *bytes = malloc(w->compared);
    kvk_error err;

    if (!bytes)
        test_fail(t, "no memory");
    else if (test_ok(t, kvk_download(w->ctx, bytes, w->base, w->compared, &err), &err,
                     "kvk_download")) {
        free(bytes);
        bytes = NULL;
    }
    return bytes;
}

int work_same(struct test *t, const struct work *w, const uint8_t *want, const char *when)
{
    uint8_t *got = work_fetch(t, w);
    size_t at = 0;

    if (!got)
        return 1;
    while (at < w->compared && got[at] == want[at])
        at++;
    free(got);
    return at < w->compared ? test_fail(t, "%s: byte %zu of %zu differs", when, at, w->compared)
                            : 0;
}

uint8_t *work_expect(struct test *t, const struct work *w, const kvk_kernels *kernels)
{
    kvk_error err;

    if (work_queue(t, w, kernels, NULL) ||
        test_ok(t, kvk_synchronize(w->ctx, &err), &err, "kvk_synchronize"))
        return NULL;
    return work_fetch(t, w);
}

int work_untouched(struct test *t, const struct work *w)
{
    static const char *const names[] = {"decode", "unified", "merge", "dequant", "dequant"};
    const size_t starts[] = {w->at.out[0], w->at.out[1], w->at.out[2], w->at.rows[0],
                             w->at.rows[1]};
    uint8_t *got = work_fetch(t, w);
    int bad = !got;

    for (size_t i = 0; !bad && i < sizeof starts / sizeof *starts; i++)
        if (got[starts[i]] == 0xFF && !memcmp(got + starts[i], got + starts[i] + 1, 255))
            bad = test_fail(t, "%s has written nothing", names[i]);
    free(got);
    return bad;
}
