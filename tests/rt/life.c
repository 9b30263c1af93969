/* SPDX-License-Identifier: Apache-2.0 */
/* life.c - all that a program does with a context, once: for the suites in which every step may fail. */
#include "rt.h"

#include "../../runtime/error.h"

#include <string.h>

enum { HEADS = 8, D = 128, ROWS = 4, PAGES = 4, ROOM = 1 << 19 };

/* Device memory, zeros: every length is 0, every slot and page the first. */
struct life {
    kvk_context *ctx;
    char *pool, *rows, *numbers, *workspace;
    float *lse;
};

static kvk_status reserve(struct life *l, kvk_error *err)
{
    char **const parts[] = {&l->pool, &l->rows, &l->numbers, &l->workspace};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        void *memory;
        kvk_status status = kvk_alloc(l->ctx, ROOM, &memory, err);
        if (!status)
            status = kvk_fill(l->ctx, *parts[i] = memory, 0, ROOM, err);
        if (status)
            return status;
    }
    l->lse = (float *)(void *)(l->numbers + ROOM / 2);
    return KVK_OK;
}

static kvk_status attend(const struct life *l, const kvk_kernels *k, kvk_stream stream,
                         kvk_error *err)
{
    struct kvk_decode_args d = KVK_INIT(struct kvk_decode_args);
    struct kvk_unified_args u = KVK_INIT(struct kvk_unified_args);
    d.pool = u.pool = (struct kvk_pool){.data = l->pool, .pages = PAGES};
    d.query.data = u.query.data = l->rows;
    d.out.data = u.out.data = l->rows + ROOM / 2;
    d.block_table = u.block_table = l->numbers;
    d.lengths = u.lengths = u.query_start = (const int32_t *)(void *)l->numbers;
    d.table_stride = u.table_stride = 4;
    d.sequences = u.sequences = 2;
    d.max_context = 64;
    d.splits = 2; /* with its reduction: two launches */
    d.workspace = l->workspace;
    d.workspace_bytes = ROOM;
    u.tokens = ROWS;
    kvk_status status = kvk_decode(k, &d, stream, err);
    return status ? status : kvk_unified(k, &u, stream, err);
}

static kvk_status move(const struct life *l, const kvk_kernels *k, kvk_stream stream,
                       kvk_error *err)
{
    struct kvk_store_args s = KVK_INIT(struct kvk_store_args);
    struct kvk_dequant_args q = KVK_INIT(struct kvk_dequant_args);
    struct kvk_merge_args m = KVK_INIT(struct kvk_merge_args);
    struct kvk_copy_args c = KVK_INIT(struct kvk_copy_args);
    s.pool = q.pool = c.from = c.to = (struct kvk_pool){.data = l->pool, .pages = PAGES};
    s.key.data = s.value.data = l->rows;
    q.key.data = q.value.data = l->rows + ROOM / 2;
    s.slots = q.block_table = c.from_index = c.to_index = l->numbers;
    s.rows = q.rows = m.rows = ROWS;
    q.out_start = (const int32_t *)(void *)l->numbers;
    q.sequences = 1;
    q.table_stride = 4;
    c.items = 1;
    m.a = m.b = (struct kvk_partial){.out.data = l->rows, .lse = l->lse};
    m.out = (struct kvk_partial){.out.data = l->rows + ROOM / 2, .lse = l->lse};
    kvk_status status = kvk_store(k, &s, stream, err);
    if (!status)
        status = kvk_dequant(k, &q, stream, err);
    if (!status)
        status = kvk_merge(k, &m, stream, err);
    return status ? status : kvk_copy(k, NULL, &c, stream, err);
}

static kvk_status timed(void *data, kvk_stream stream, kvk_error *err)
{
    const struct life *l = data;
    return kvk_device_copy(l->ctx, l->rows + 32, l->rows, 16, stream, err);
}

kvk_status rt_launch_all(kvk_context *ctx, const kvk_kernels *k, kvk_error *err)
{
    struct life l = {.ctx = ctx};
    char host[16] = "hello";
    double ms = -1;
    kvk_status status = reserve(&l, err);
    if (!status)
        status = move(&l, k, NULL, err);
    if (!status)
        status = attend(&l, k, NULL, err);
    if (!status)
        status = kvk_upload(ctx, l.rows, host, sizeof host, err);
    if (!status)
        status = kvk_time(ctx, timed, &l, &ms, err);
    if (!status)
        status = kvk_synchronize(ctx, err);
    memset(host, 0, sizeof host);
    if (!status)
        status = kvk_download(ctx, host, l.rows + 32, sizeof host, err);
    if (!status && (ms < 0 || strcmp(host, "hello") != 0))
        status = error_set(err, KVK_E_INTERNAL, __func__, "wrong result");
    kvk_free(ctx, l.pool); /* the others are freed by kvk_close */
    return status;
}

kvk_status rt_life(const char *device, const char *cache, kvk_error *err)
{
    struct kvk_options options = KVK_INIT(struct kvk_options);
    struct kvk_model model = rt_model();
    const kvk_kernels *k;
    kvk_context *ctx;
    options.device = device;
    options.cache_dir = cache ? cache : "";
    kvk_status status = kvk_open(&options, &ctx, err);
    if (status)
        return status;
    status = kvk_prepare(ctx, &model, &k, err);
    if (!status)
        status = rt_launch_all(ctx, k, err);
    kvk_close(ctx);
    return status;
}
