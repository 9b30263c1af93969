/* SPDX-License-Identifier: Apache-2.0 */
/* run.c - see run.h. */
#include "run.h"

#include "cli.h"

#include <stdlib.h>
#include <string.h>

/* Device memory with `bytes` of `host`, freed with the run. */
static kvk_status keep(struct run *run, const void *host, size_t bytes, void *out, kvk_error *err)
{
    void *memory = NULL;
    kvk_status status = kvk_alloc(run->ctx, bytes ? bytes : 16, &memory, err);
    if (status)
        return status;
    run->kept[run->nkept++] = memory;
    *(void **)out = memory;
    return host && bytes ? kvk_upload(run->ctx, memory, host, bytes, err) : KVK_OK;
}

/* Frees what was kept since `mark`. */
static void drop(struct run *run, int mark)
{
    while (run->nkept > mark)
        kvk_free(run->ctx, run->kept[--run->nkept]);
}

static long longest(const struct sample *s)
{
    long most = 1;
    for (long i = 0; i < s->sequences; i++)
        most = s->lengths[i] > most ? s->lengths[i] : most;
    return most;
}

static kvk_status allocate(struct run *run, kvk_error *err)
{
    const struct sample *s = run->sample;
    struct kvk_limits limits = KVK_INIT(struct kvk_limits);
    limits.sequences = s->sequences;
    limits.query_tokens = 1;
    limits.tokens = s->tokens ? s->tokens : 1;
    limits.context = longest(s);
    run->workspace_bytes = kvk_workspace_bytes(run->kernels, &limits);
    run->pool_bytes = (size_t)s->pages * run->layout.page_bytes;
    run->pool.pages = s->pages;
    kvk_status status = keep(run, NULL, run->pool_bytes, &run->pool.data, err);
    if (!status)
        status = keep(run, s->block_table,
                      (size_t)(s->sequences * s->table_stride) * sizeof(int32_t), &run->table, err);
    if (!status)
        status = keep(run, s->lengths, (size_t)s->sequences * sizeof(int32_t), &run->lengths, err);
    return status ? status : keep(run, NULL, run->workspace_bytes, &run->workspace, err);
}

kvk_status run_open(struct run *run, kvk_context *ctx, const struct sample *sample,
                    const char *spec, const char *layout, unsigned kinds, kvk_error *err)
{
    struct kvk_model model = KVK_INIT(struct kvk_model);
    const struct tensor *dequant =
        sample->dequant_key ? sample->dequant_key : sample->dequant_value;
    memset(run, 0, sizeof *run);
    run->ctx = ctx;
    run->sample = sample;
    model.spec = spec;
    model.layout = layout;
    model.kv_heads = sample->kv_heads;
    model.query_heads = sample->query_heads;
    model.head_size = sample->head_size;
    model.page_tokens = sample->page_tokens;
    model.dtype = sample->dtype;
    model.dequant_dtype = dequant && dequant->type == TENSOR_F16 ? KVK_FLOAT16
                          : dequant                              ? KVK_BFLOAT16
                                                                 : KVK_DTYPE_DEFAULT;
    model.kinds = kinds;
    kvk_status status = kvk_prepare(ctx, &model, &run->kernels, err);
    run->layout = KVK_INIT(struct kvk_layout);
    if (!status)
        status = kvk_layout(run->kernels, &run->layout, err);
    if (!status)
        status = allocate(run, err);
    if (status)
        run_close(run);
    return status;
}

void run_close(struct run *run)
{
    drop(run, 0);
}

kvk_status run_store(struct run *run, kvk_error *err)
{
    const struct sample *s = run->sample;
    struct kvk_store_args args = KVK_INIT(struct kvk_store_args);
    int mark = run->nkept;
    void *slots = NULL;
    kvk_status status = kvk_fill(run->ctx, run->pool.data, 0xA5, run->pool_bytes, err);
    if (!status)
        status = keep(run, s->key->data, s->key->bytes, &args.key.data, err);
    if (!status)
        status = keep(run, s->value->data, s->value->bytes, &args.value.data, err);
    if (!status)
        status = keep(run, s->slot_mapping, (size_t)s->rows * sizeof(int64_t), &slots, err);
    args.pool = run->pool;
    args.slots = slots;
    args.slot_type = KVK_INT64;
    args.rows = s->rows;
    if (!status)
        status = kvk_store(run->kernels, &args, NULL, err);
    if (!status)
        status = kvk_synchronize(run->ctx, err);
    drop(run, mark);
    return status;
}

kvk_status run_pool_download(struct run *run, unsigned char *host, kvk_error *err)
{
    return kvk_download(run->ctx, host, run->pool.data, run->pool_bytes, err);
}

kvk_status run_pool_upload(struct run *run, const unsigned char *host, kvk_error *err)
{
    return kvk_upload(run->ctx, run->pool.data, host, run->pool_bytes, err);
}

/* What both attention kinds share: device copies of query, out and sinks. */
struct buffers {
    void *query, *out;
    const float *sinks;
    size_t bytes;
};

static kvk_status buffers_make(struct run *run, const struct run_attend *a, struct buffers *b,
                               kvk_error *err)
{
    const struct sample *s = run->sample;
    b->bytes = (size_t)a->rows * (size_t)s->query_heads * (size_t)s->head_size * 2;
    b->sinks = NULL;
    kvk_status status = keep(run, a->query, b->bytes, &b->query, err);
    if (!status)
        status = keep(run, NULL, b->bytes, &b->out, err);
    if (!status && a->with_sinks)
        status = keep(run, s->sinks->data, s->sinks->bytes, &b->sinks, err);
    return status ? status : kvk_fill(run->ctx, b->out, 0xFF, b->bytes ? b->bytes : 16, err);
}

struct launch {
    const kvk_kernels *kernels;
    struct kvk_decode_args decode;
    struct kvk_unified_args unified;
};

static kvk_status launch_decode(void *data, kvk_stream stream, kvk_error *err)
{
    struct launch *launch = data;
    return kvk_decode(launch->kernels, &launch->decode, stream, err);
}

static kvk_status launch_unified(void *data, kvk_stream stream, kvk_error *err)
{
    struct launch *launch = data;
    return kvk_unified(launch->kernels, &launch->unified, stream, err);
}

/* Launches once, fetches the output, then times. */
static kvk_status attend(struct run *run, struct run_attend *a, const struct buffers *b,
                         struct launch *launch, kvk_status (*body)(void *, kvk_stream, kvk_error *),
                         kvk_error *err)
{
    kvk_status status = body(launch, NULL, err);
    if (!status)
        status = kvk_synchronize(run->ctx, err);
    if (!status)
        status = kvk_download(run->ctx, a->out, b->out, b->bytes, err);
    for (int i = 0; i < a->time_repeats && !status; i++) {
        double ms;
        status = kvk_time(run->ctx, body, launch, &ms, err);
        a->ms = i == 0 || ms < a->ms ? ms : a->ms;
    }
    return status;
}

kvk_status run_decode(struct run *run, struct run_attend *a, kvk_error *err)
{
    const struct sample *s = run->sample;
    struct launch launch = {.kernels = run->kernels, .decode = KVK_INIT(struct kvk_decode_args)};
    struct kvk_decode_args *args = &launch.decode;
    struct buffers b;
    int mark = run->nkept;
    kvk_status status = buffers_make(run, a, &b, err);
    if (!status) {
        args->pool = run->pool;
        args->query.data = b.query;
        args->out.data = b.out;
        args->block_table = run->table;
        args->table_stride = s->table_stride;
        args->lengths = run->lengths;
        args->sequences = s->sequences;
        args->query_tokens = 1;
        args->max_context = longest(s);
        args->scale = (float)s->scale;
        args->window = (int32_t)a->window;
        args->sinks = b.sinks;
        args->workspace = run->workspace;
        args->workspace_bytes = run->workspace_bytes;
        status = attend(run, a, &b, &launch, launch_decode, err);
    }
    drop(run, mark);
    return status;
}

kvk_status run_unified(struct run *run, struct run_attend *a, kvk_error *err)
{
    const struct sample *s = run->sample;
    struct launch launch = {.kernels = run->kernels, .unified = KVK_INIT(struct kvk_unified_args)};
    struct kvk_unified_args *args = &launch.unified;
    struct buffers b;
    int mark = run->nkept;
    int32_t *starts = NULL;
    kvk_status status = buffers_make(run, a, &b, err);
    if (!status)
        status =
            keep(run, s->query_start, (size_t)(s->sequences + 1) * sizeof(int32_t), &starts, err);
    if (!status) {
        args->pool = run->pool;
        args->query.data = b.query;
        args->out.data = b.out;
        args->block_table = run->table;
        args->table_stride = s->table_stride;
        args->lengths = run->lengths;
        args->query_start = starts;
        args->sequences = s->sequences;
        args->tokens = a->rows;
        args->scale = (float)s->scale;
        args->window = (int32_t)a->window;
        args->sinks = b.sinks;
        args->workspace = run->workspace;
        args->workspace_bytes = run->workspace_bytes;
        status = attend(run, a, &b, &launch, launch_unified, err);
    }
    drop(run, mark);
    return status;
}

kvk_status run_dequant(struct run *run, void *key, void *value, kvk_error *err)
{
    const struct sample *s = run->sample;
    struct kvk_dequant_args args = KVK_INIT(struct kvk_dequant_args);
    size_t bytes = (size_t)s->total * (size_t)s->kv_heads * (size_t)s->head_size * 2;
    int32_t *starts = cli_alloc((size_t)s->sequences + 1, sizeof *starts), *device_starts = NULL;
    int mark = run->nkept;
    for (long i = 0; i < s->sequences; i++)
        starts[i + 1] = starts[i] + s->lengths[i];
    kvk_status status =
        keep(run, starts, (size_t)(s->sequences + 1) * sizeof *starts, &device_starts, err);
    free(starts);
    if (!status)
        status = keep(run, NULL, bytes, &args.key.data, err);
    if (!status)
        status = keep(run, NULL, bytes, &args.value.data, err);
    if (!status)
        status = kvk_fill(run->ctx, args.key.data, 0xFF, bytes, err);
    if (!status)
        status = kvk_fill(run->ctx, args.value.data, 0xFF, bytes, err);
    args.pool = run->pool;
    args.block_table = run->table;
    args.table_stride = s->table_stride;
    args.out_start = device_starts;
    args.sequences = s->sequences;
    args.rows = s->total;
    if (!status)
        status = kvk_dequant(run->kernels, &args, NULL, err);
    if (!status)
        status = kvk_synchronize(run->ctx, err);
    if (!status)
        status = kvk_download(run->ctx, key, args.key.data, bytes, err);
    if (!status)
        status = kvk_download(run->ctx, value, args.value.data, bytes, err);
    drop(run, mark);
    return status;
}
