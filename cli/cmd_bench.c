/* SPDX-License-Identifier: Apache-2.0 */
/*
** cmd_bench.c - `kvkiln bench decode`: time of one decode step, beside the copy bandwidth of the
** same process.
**
** The output is verified first; repetitions take turns on sets of pages, so that a GPU's L2 holds
** nothing they read. On the host it is a CPU that is timed: useful to compare plans, not to compare
** machines.
*/
#include "bench_compile.h"
#include "bench_pool.h"
#include "check_read.h"

#include <argp.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_REPEATS = 10000, WARM_UP = 3, COPIES = 7 };

struct options {
    struct bench_shape shape;
    const char *device, *specs;
    long splits, repeats;
    int json;
};

struct timing {
    double median, low, high; /* ms */
};

struct figures {
    struct timing decode;
    double rel_l2, limit, copy_gbs, gbs;
    struct kvk_kernel_info kernel;
};

struct decode_body {
    const struct bench_pool *pool;
    struct kvk_decode_args args;
};

static kvk_status launch_decode(void *data, kvk_stream stream, kvk_error *err)
{
    struct decode_body *body = data;
    return kvk_decode(body->pool->kernels, &body->args, stream, err);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct timing summarise(double *ms, long count)
{
    qsort(ms, (size_t)count, sizeof *ms, by_value);
    double median = count % 2 ? ms[count / 2] : (ms[count / 2 - 1] + ms[count / 2]) / 2;
    return (struct timing){median, ms[0], ms[count - 1]};
}

static kvk_status time_decode(const struct bench_pool *pool, const struct options *o, int host,
                              struct timing *out, kvk_error *err)
{
    double *ms = cli_alloc((size_t)o->repeats, sizeof *ms);
    struct decode_body body = {.pool = pool};
    kvk_status status = KVK_OK;
    for (long i = -(host ? 1 : WARM_UP); i < o->repeats && !status; i++) {
        double once;
        bench_pool_decode_args(pool, (i + WARM_UP) % pool->sets, &body.args);
        body.args.splits = (int32_t)o->splits;
        status = kvk_time(pool->ctx, launch_decode, &body, &once, err);
        if (i >= 0)
            ms[i] = once;
    }
    if (!status)
        *out = summarise(ms, o->repeats);
    free(ms);
    return status;
}

struct copy_body {
    kvk_context *ctx;
    void *from, *to;
    size_t bytes;
};

static kvk_status launch_copy(void *data, kvk_stream stream, kvk_error *err)
{
    struct copy_body *body = data;
    return kvk_device_copy(body->ctx, body->to, body->from, body->bytes, stream, err);
}

/* GB/s, bytes read plus bytes written. */
static kvk_status copy_bandwidth(kvk_context *ctx, int host, double *gbs, kvk_error *err)
{
    struct copy_body body = {.ctx = ctx, .bytes = host ? (size_t)256 << 20 : (size_t)2 << 30};
    double ms[COPIES];
    kvk_status status = kvk_alloc(ctx, body.bytes, &body.from, err);
    if (!status)
        status = kvk_alloc(ctx, body.bytes, &body.to, err);
    if (!status)
        status = kvk_fill(ctx, body.from, 0x5A, body.bytes, err);
    if (!status)
        status = kvk_fill(ctx, body.to, 0, body.bytes, err);
    for (int i = -1; i < COPIES && !status; i++)
        status = kvk_time(ctx, launch_copy, &body, &ms[i < 0 ? 0 : i], err);
    if (!status)
        *gbs = 2 * (double)body.bytes / summarise(ms, COPIES).median * 1e-6;
    kvk_free(ctx, body.from);
    kvk_free(ctx, body.to);
    return status;
}

static kvk_status measure(const struct device *device, const struct options *o,
                          struct bench_pool *pool, struct figures *f, kvk_error *err)
{
    int host = device_is_host(device);
    kvk_status status =
        bench_pool_open(pool, device->ctx, &o->shape, (size_t)(host ? 64 : 512) << 20, err);
    if (!status)
        status = bench_pool_verify(pool, (int)o->splits, &f->rel_l2, err);
    f->limit = check_output_limit(o->shape.dtype);
    if (status || !(f->rel_l2 <= f->limit))
        return status;
    status = time_decode(pool, o, host, &f->decode, err);
    if (!status)
        status = copy_bandwidth(device->ctx, host, &f->copy_gbs, err);
    f->kernel = KVK_INIT(struct kvk_kernel_info);
    if (!status)
        status = kvk_kernel(pool->kernels, KVK_DECODE, &f->kernel, err);
    f->gbs = (double)pool->set_bytes / f->decode.median * 1e-6;
    return status;
}

static void print_figures(const struct options *o, const struct bench_pool *pool,
                          const struct figures *f, int host)
{
    const struct bench_shape *s = &o->shape;
    printf("decode %s %s, head size %ld, gqa %ld, %ld KV heads, batch %ld, context %ld, page %ld, "
           "%s\n",
           s->preset, pool->layout.slot_bytes && s->layout ? s->layout : "default layout",
           s->head_size, s->gqa, s->kv_heads, s->batch, s->context, s->page,
           cli_dtype_name(s->dtype));
    if (host)
        printf("this times a CPU running the kernels' host form, not a GPU\n");
    if (f->rel_l2 < 0)
        printf("not verified: %s is no shipped preset\n", s->preset);
    else
        printf("verified: relative L2 %.2e against double precision (limit %.1e) %s\n", f->rel_l2,
               f->limit, f->rel_l2 <= f->limit ? "PASS" : "FAIL");
    if (!(f->rel_l2 <= f->limit))
        return;
    printf("time      %.4f ms median, %.4f min, %.4f max of %ld\n", f->decode.median, f->decode.low,
           f->decode.high, o->repeats);
    printf("read      %zu compressed bytes, %.4g GB/s\n", pool->set_bytes, f->gbs);
    printf("copy      %.1f GB/s (read and written)\n", f->copy_gbs);
    printf("share     %.3g %% of copy bandwidth\n", 100 * f->gbs / f->copy_gbs);
    printf("kernel    %s: %d registers, %d bytes shared, %d local, %d threads, %d resident CTAs, "
           "splits ",
           f->kernel.name, f->kernel.registers, f->kernel.shared_bytes, f->kernel.local_bytes,
           f->kernel.threads, f->kernel.resident_ctas);
    printf(o->splits ? "%ld\n" : "chosen by the runtime\n", o->splits);
}

static void print_json(const struct device *device, const struct options *o,
                       const struct bench_pool *pool, const struct figures *f)
{
    const struct bench_shape *s = &o->shape;
    json_t *root = json_pack("{s:s, s:s, s:s?, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I}", "version",
                             kvk_version(), "preset", s->preset, "layout", s->layout, "head_size",
                             (json_int_t)s->head_size, "gqa", (json_int_t)s->gqa, "kv_heads",
                             (json_int_t)s->kv_heads, "batch", (json_int_t)s->batch, "context",
                             (json_int_t)s->context, "page", (json_int_t)s->page, "dtype",
                             cli_dtype_name(s->dtype), "splits", (json_int_t)o->splits);
    json_t *times =
        json_pack("{s:o, s:f, s:b, s:f, s:f, s:f, s:I, s:I, s:f, s:f, s:f}", "rel_l2",
                  compare_real(f->rel_l2), "limit", f->limit, "verified",
                  f->rel_l2 >= 0 && f->rel_l2 <= f->limit, "median_ms", f->decode.median, "min_ms",
                  f->decode.low, "max_ms", f->decode.high, "repeats", (json_int_t)o->repeats,
                  "compressed_bytes", (json_int_t)pool->set_bytes, "gbs", f->gbs, "copy_gbs",
                  f->copy_gbs, "share", f->copy_gbs > 0 ? f->gbs / f->copy_gbs : 0.0);
    json_t *kernel =
        json_pack("{s:s?, s:s?, s:i, s:i, s:i, s:i, s:i}", "kernel", f->kernel.name, "origin",
                  f->kernel.origin, "registers", f->kernel.registers, "shared_bytes",
                  f->kernel.shared_bytes, "local_bytes", f->kernel.local_bytes, "threads",
                  f->kernel.threads, "resident_ctas", f->kernel.resident_ctas);
    json_object_update(root, times);
    json_object_update(root, kernel);
    json_decref(times);
    json_decref(kernel);
    device_json(device, root);
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    printf("\n");
    json_decref(root);
}

enum {
    OPT_HEAD = 0x100,
    OPT_GQA,
    OPT_KV,
    OPT_BATCH,
    OPT_CONTEXT,
    OPT_PAGE,
    OPT_DTYPE,
    OPT_SPLITS,
    OPT_SEED
};

static const struct argp_option bench_options[] = {
    {"preset", 'p', "SPEC", 0, "preset or path of a .lua file (default turboquant_4bit_nc)", 0},
    {"layout", 'l', "LAYOUT", 0, "aos or soa (default aos)", 0},
    {"head-size", OPT_HEAD, "D", 0, "default 128", 0},
    {"gqa", OPT_GQA, "N", 0, "query heads a KV head (default 4)", 0},
    {"kv-heads", OPT_KV, "N", 0, "default 8", 0},
    {"batch", OPT_BATCH, "N", 0, "sequences (default 16; host 1)", 0},
    {"context", OPT_CONTEXT, "N", 0, "cached tokens a sequence (default 32768; host 4096)", 0},
    {"page", OPT_PAGE, "N", 0, "tokens a page (default 16)", 0},
    {"dtype", OPT_DTYPE, "T", 0, "bf16 (default), fp16", 0},
    {"splits", OPT_SPLITS, "N", 0, "0 (default): chosen by the runtime", 0},
    {"repeats", 'r', "N", 0, "default 20", 0},
    {"seed", OPT_SEED, "N", 0, "of the random rows (default 1)", 0},
    {"device", 'd', "DEVICE", 0, "auto (default), host, cuda:0, hip:0", 0},
    {"specs", 's', "DIR", 0, "look for presets here first", 0},
    {"json", 'j', 0, 0, "results as JSON", 0},
    {0},
};

static void number(struct argp_state *state, const char *option, const char *arg, long low,
                   long high, long *out)
{
    if (!cli_number(arg, low, high, out))
        argp_error(state, "--%s: '%s': accepted %ld to %ld", option, arg, low, high);
}

static error_t parse_shape(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    struct bench_shape *s = &o->shape;
    long seed;
    switch (key) {
    case OPT_HEAD: number(state, "head-size", arg, 8, 4096, &s->head_size); return 0;
    case OPT_GQA: number(state, "gqa", arg, 1, 128, &s->gqa); return 0;
    case OPT_KV: number(state, "kv-heads", arg, 1, 1024, &s->kv_heads); return 0;
    case OPT_BATCH: number(state, "batch", arg, 1, 65536, &s->batch); return 0;
    case OPT_CONTEXT: number(state, "context", arg, 1, 1 << 26, &s->context); return 0;
    case OPT_PAGE: number(state, "page", arg, 1, 4096, &s->page); return 0;
    case OPT_SEED:
        number(state, "seed", arg, 0, 1 << 30, &seed);
        s->seed = (unsigned)seed;
        return 0;
    case OPT_DTYPE:
        s->dtype = cli_dtype(arg);
        if (!s->dtype)
            argp_error(state, "--dtype: '%s': accepted bf16, fp16", arg);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'p': o->shape.preset = arg; return 0;
    case 'l':
        if (strcmp(arg, "aos") && strcmp(arg, "soa"))
            argp_error(state, "--layout: '%s': accepted aos, soa", arg);
        o->shape.layout = arg;
        return 0;
    case 'r': number(state, "repeats", arg, 1, MOST_REPEATS, &o->repeats); return 0;
    case OPT_SPLITS: number(state, "splits", arg, 0, 64, &o->splits); return 0;
    case 'd': o->device = arg; return 0;
    case 's': o->specs = arg; return 0;
    case 'j': o->json = 1; return 0;
    case ARGP_KEY_ARG:
        if (strcmp(arg, "decode") || state->arg_num)
            argp_error(state, "'%s': there are: bench decode, bench compile", arg);
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "what? there are: bench decode, bench compile"); return 0;
    default: return parse_shape(key, arg, state);
    }
}

static int run_bench(struct device *device, struct options *o)
{
    int host = device_is_host(device);
    struct bench_pool pool = {0};
    struct figures figures = {.rel_l2 = -1};
    kvk_error err = {0};
    if (!o->shape.batch)
        o->shape.batch = host ? 1 : 16;
    if (!o->shape.context)
        o->shape.context = host ? 4096 : 32768;
    kvk_status status = measure(device, o, &pool, &figures, &err);
    if (status)
        cli_error("bench decode", &err);
    else if (o->json)
        print_json(device, o, &pool, &figures);
    else
        print_figures(o, &pool, &figures, host);
    bench_pool_close(&pool);
    if (status)
        return status == KVK_E_DRIVER || status == KVK_E_DEVICE ? CLI_DEVICE : CLI_USAGE;
    return figures.rel_l2 <= figures.limit ? CLI_OK : CLI_FAILED;
}

int cmd_bench(int argc, char **argv)
{
    static const struct argp argp = {
        bench_options,
        parse,
        "decode\ncompile",
        "Times one decode step over a cache of random rows in shuffled pages, after comparing a "
        "sample of its output with double "
        "precision; prints the share of the copy bandwidth measured in the same process.",
        0,
        0,
        0};
    struct options o = {.repeats = 20,
                        .shape = {.preset = "turboquant_4bit_nc",
                                  .layout = "aos",
                                  .dtype = KVK_BFLOAT16,
                                  .head_size = 128,
                                  .gqa = 4,
                                  .kv_heads = 8,
                                  .page = 16,
                                  .seed = 1}};
    struct device device;
    if (argc > 1 && !strcmp(argv[1], "compile")) {
        static char name[] = "kvkiln bench compile";
        argv[1] = name;
        return bench_compile(argc - 1, argv + 1);
    }
    argp_parse(&argp, argc, argv, 0, 0, &o);
    if (device_open(o.device, o.specs, &device))
        return CLI_DEVICE;
    if (!o.json)
        device_print(&device);
    int code = run_bench(&device, &o);
    device_close(&device);
    return code;
}
