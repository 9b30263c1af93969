/* SPDX-License-Identifier: Apache-2.0 */
/*
** ahead.c - a server that never meets a compiler: kernels come from a pack that is linked in, or from
** a file, and what is in neither is an error that names the kernel.
**
**     ahead [DEVICE [SPEC FILE.kvkpack]]      auto (default), host, ...; turboquant_k8v4 (default)
**
** One sequence of TOKENS equal values: whatever the keys are, the answer is that value.
*/
#include <kvkiln.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

KVK_PACK_DECLARE(ahead_kernels);

enum { TOKENS = 40, PAGE = 16, PAGES = 3, KV_HEADS = 8, QUERY_HEADS = 32, HEAD_SIZE = 128 };
enum { BF16_ONE = 0x3f80, ROW = KV_HEADS * HEAD_SIZE, QUERY_ROW = QUERY_HEADS * HEAD_SIZE };

static double now_ms(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static struct kvk_model model_of(const char *spec, int head_size)
{
    struct kvk_model model = KVK_INIT(struct kvk_model);
    model.spec = spec;
    model.layout = "aos";
    model.kv_heads = KV_HEADS;
    model.query_heads = QUERY_HEADS;
    model.head_size = head_size;
    model.kinds = KVK_STORE | KVK_DECODE;
    return model;
}

static kvk_status open_without_compiler(const char *device, const char *file, kvk_context **ctx,
                                        kvk_error *err)
{
    const struct kvk_pack_memory linked[] = {KVK_PACK_MEMORY(ahead_kernels)};
    struct kvk_options options = KVK_INIT(struct kvk_options);
    options.device = device;
    options.compile = KVK_COMPILE_NEVER;
    options.cache_dir = ""; /* none: what runs is what was shipped */
    options.packs = file ? file : "";
    options.memory_packs = linked;
    options.memory_pack_count = 1;
    return kvk_open(&options, ctx, err);
}

static void *memory(kvk_context *ctx, const void *bytes, size_t size)
{
    void *device = NULL;
    if (kvk_alloc(ctx, size, &device, NULL) ||
        (bytes ? kvk_upload(ctx, device, bytes, size, NULL) : kvk_fill(ctx, device, 0, size, NULL)))
        return NULL;
    return device;
}

/* Stores and decodes; how many numbers of the answer are not 1, or -1. */
static int run(kvk_context *ctx, const kvk_kernels *kernels, kvk_error *err)
{
    static uint16_t ones[TOKENS * ROW], out[QUERY_ROW];
    static const int32_t table[PAGES] = {2, 0, 1}, length = TOKENS;
    int32_t slots[TOKENS];
    struct kvk_layout layout = KVK_INIT(struct kvk_layout);
    struct kvk_limits limits = KVK_INIT(struct kvk_limits);
    struct kvk_store_args store = KVK_INIT(struct kvk_store_args);
    struct kvk_decode_args decode = KVK_INIT(struct kvk_decode_args);
    if (kvk_layout(kernels, &layout, err))
        return -1;
    for (int i = 0; i < TOKENS * ROW; i++)
        ones[i] = BF16_ONE;
    for (int t = 0; t < TOKENS; t++)
        slots[t] = table[t / PAGE] * PAGE + t % PAGE;
    limits.sequences = 1;
    limits.context = TOKENS;
    store.pool.data = memory(ctx, NULL, layout.page_bytes * PAGES);
    store.pool.pages = PAGES;
    store.key.data = store.value.data = memory(ctx, ones, sizeof ones);
    store.slots = memory(ctx, slots, sizeof slots);
    store.rows = TOKENS;
    decode.pool = store.pool;
    decode.query.data = memory(ctx, ones, sizeof out);
    decode.out.data = memory(ctx, NULL, sizeof out);
    decode.block_table = memory(ctx, table, sizeof table);
    decode.table_stride = PAGES;
    decode.lengths = memory(ctx, &length, sizeof length);
    decode.sequences = 1;
    decode.max_context = TOKENS;
    decode.workspace_bytes = kvk_workspace_bytes(kernels, &limits);
    decode.workspace = memory(ctx, NULL, decode.workspace_bytes);
    if (kvk_store(kernels, &store, NULL, err) || kvk_decode(kernels, &decode, NULL, err) ||
        kvk_synchronize(ctx, err) || kvk_download(ctx, out, decode.out.data, sizeof out, err))
        return -1;
    int wrong = 0;
    for (int i = 0; i < QUERY_ROW; i++)
        wrong += out[i] != BF16_ONE;
    return wrong;
}

/* A kernel that nobody made: the text of the error is what an operator reads. */
static int miss_is_an_error(kvk_context *ctx, const char *spec)
{
    const kvk_kernels *kernels;
    kvk_error err = {0};
    struct kvk_model model = model_of(spec, HEAD_SIZE / 2);
    kvk_status status = kvk_prepare(ctx, &model, &kernels, &err);
    printf("not shipped: %s: %s\n", kvk_status_name(status), err.text);
    return status == KVK_E_MISS;
}

int main(int argc, char **argv)
{
    const char *device = argc > 1 ? argv[1] : NULL, *spec = argc > 3 ? argv[2] : "turboquant_k8v4";
    kvk_context *ctx = NULL;
    const kvk_kernels *kernels;
    kvk_error err = {0};
    struct kvk_model model = model_of(spec, HEAD_SIZE);
    struct kvk_kernel_info info = KVK_INIT(struct kvk_kernel_info);
    int wrong = -1;
    double start = now_ms(), opened = start, prepared = start;
    if (!open_without_compiler(device, argc > 3 ? argv[3] : NULL, &ctx, &err)) {
        opened = now_ms();
        if (!kvk_prepare(ctx, &model, &kernels, &err) &&
            !kvk_kernel(kernels, KVK_DECODE, &info, &err)) {
            prepared = now_ms();
            wrong = run(ctx, kernels, &err);
        }
    }
    if (wrong < 0) {
        fprintf(stderr, "ahead: %s: %s: %s\n", kvk_status_name(err.status), err.where, err.text);
        kvk_close(ctx);
        return 1;
    }
    printf("%s from a %s: opened in %.2f ms, prepared in %.2f ms\n", info.name, info.origin,
           opened - start, prepared - opened);
    int good = !wrong && strcmp(info.origin, "pack") == 0 && miss_is_an_error(ctx, spec);
    printf("%s: %d numbers, %d are not 1\n", good ? "PASS" : "FAIL", QUERY_ROW, wrong);
    kvk_close(ctx);
    return good ? 0 : 1;
}
