/* SPDX-License-Identifier: Apache-2.0 */
/*
** cmd_bench.c - `kvkiln bench decode|store|dequant|unified|tiled`: time of one launch, beside the copy
** bandwidth of the same process. `bench suite` and `bench compile` are in files of their own.
**
** On the host it is a CPU that is timed: useful to compare plans, not to compare machines.
*/
#include "bench_compile.h"
#include "bench_suite.h"
#include "bench_time.h"
#include "options.h"

#include "../runtime/tuned.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_REPEATS = 10000, CONTEXTS = 16 };

struct options {
    struct bench_shape shape;
    const struct bench_kind *kind;
    char *contexts[CONTEXTS];
    int ncontexts;
    const char *device, *specs;
    long batch, repeats;
    int json;
};

enum {
    OPT_HEAD = 0x100,
    OPT_VALUE_HEAD,
    OPT_GQA,
    OPT_KV,
    OPT_BATCH,
    OPT_CONTEXT,
    OPT_QUERY,
    OPT_PAGE,
    OPT_DTYPE,
    OPT_SPLITS,
    OPT_PLAN,
    OPT_FULL,
    OPT_SEED
};

static const struct argp_option bench_options[] = {
    {"preset", 'p', "SPEC", 0, "preset or path of a .lua file (default turboquant_4bit_nc)", 0},
    {"layout", 'l', "LAYOUT", 0, "aos (default), soa, native", 0},
    {"head-size", OPT_HEAD, "D", 0, "default 128", 0},
    {"value-head-size", OPT_VALUE_HEAD, "D", 0, "default: that of keys", 0},
    {"gqa", OPT_GQA, "N", 0, "query heads a KV head (default 4)", 0},
    {"kv-heads", OPT_KV, "N", 0, "default 8", 0},
    {"batch", OPT_BATCH, "N", 0, "sequences (default 16; store, unified and host 1)", 0},
    {"context", OPT_CONTEXT, "N,...", 0,
     "cached tokens a sequence (default 32768, store 65536; host 4096, unified 512), several for "
     "several runs; or a ragged batch: 1x131072+31x4096",
     0},
    {"query-tokens", OPT_QUERY, "N", 0,
     "newest tokens of each sequence that attend (default 1, unified 2048; host 64) or are stored "
     "(default: all)",
     0},
    {"page", OPT_PAGE, "N", 0, "tokens a page (default 16)", 0},
    {"dtype", OPT_DTYPE, "T", 0, "bf16 (default), fp16", 0},
    {"full", OPT_FULL, 0, 0, "decode, unified: no causal mask", 0},
    {"splits", OPT_SPLITS, "N", 0, "decode; 0 (default): chosen by the runtime", 0},
    {"plan", OPT_PLAN, "FIELD=N,...", 0, "decode, unified: as in kvkiln explain", 0},
    {"repeats", 'r', "N", 0, "default 20", 0},
    {"seed", OPT_SEED, "N", 0, "of the random rows (default 1)", 0},
    {"device", 'd', "DEVICE", 0, "auto (default), host, cuda:0, hip:0", 0},
    {"specs", 's', "DIR", 0, "look for presets and tuned tables here first", 0},
    {"json", 'j', 0, 0, "results as JSON", 0},
    {0},
};

static void parse_plan(struct argp_state *state, const char *arg)
{
    struct tuned_plan values;
    kvk_error err;
    if (tuned_plan_parse("--plan", arg, &values, &err))
        argp_error(state, "%s", err.text);
}

static error_t parse_shape(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    struct bench_shape *s = &o->shape;
    long seed;
    switch (key) {
    case OPT_HEAD:
        options_number(state, "head-size", arg, OPTIONS_HEAD_LEAST, OPTIONS_HEAD_MOST,
                       &s->head_size);
        return 0;
    case OPT_VALUE_HEAD:
        options_number(state, "value-head-size", arg, OPTIONS_HEAD_LEAST, OPTIONS_HEAD_MOST,
                       &s->value_head_size);
        return 0;
    case OPT_GQA: options_number(state, "gqa", arg, 1, OPTIONS_GQA_MOST, &s->gqa); return 0;
    case OPT_KV: options_number(state, "kv-heads", arg, 1, 1024, &s->kv_heads); return 0;
    case OPT_BATCH: options_number(state, "batch", arg, 1, 65536, &o->batch); return 0;
    case OPT_QUERY:
        options_number(state, "query-tokens", arg, 1, 1 << 26, &s->query_tokens);
        return 0;
    case OPT_PAGE: options_number(state, "page", arg, 1, OPTIONS_PAGE_MOST, &s->page); return 0;
    case OPT_SPLITS: options_number(state, "splits", arg, 0, 256, &s->splits); return 0;
    case OPT_FULL: s->full = 1; return 0;
    case OPT_SEED:
        options_number(state, "seed", arg, 0, 1 << 30, &seed);
        s->seed = (unsigned)seed;
        return 0;
    case OPT_DTYPE: s->dtype = options_dtype(state, arg); return 0;
    case OPT_PLAN:
        parse_plan(state, arg);
        s->plan = arg;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static void check(struct argp_state *state, struct options *o)
{
    struct bench_shape shape = o->shape;
    for (int i = 0; i < o->ncontexts; i++)
        if (!bench_shape_context(&shape, o->contexts[i], o->batch))
            argp_error(state, "--context: '%s': accepted N, or COUNTxN+COUNTxN... without --batch",
                       o->contexts[i]);
    if (!o->ncontexts)
        o->contexts[o->ncontexts++] = NULL;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'p': o->shape.preset = arg; return 0;
    case 'l': o->shape.layout = options_word(state, "layout", arg, OPTIONS_LAYOUTS); return 0;
    case 'r': options_number(state, "repeats", arg, 1, MOST_REPEATS, &o->repeats); return 0;
    case OPT_CONTEXT:
        o->ncontexts = cli_split(arg, o->contexts, CONTEXTS);
        if (o->ncontexts < 1)
            argp_error(state, "--context: an empty item, or more than %d", CONTEXTS);
        return 0;
    case 'd': o->device = arg; return 0;
    case 's': o->specs = arg; return 0;
    case 'j': o->json = 1; return 0;
    case ARGP_KEY_ARG: argp_error(state, "'%s': one kind only", arg); return 0;
    case ARGP_KEY_SUCCESS: check(state, o); return 0;
    default: return parse_shape(key, arg, state);
    }
}

static int exit_of(kvk_status status)
{
    return status == KVK_E_DRIVER || status == KVK_E_DEVICE ? CLI_DEVICE : CLI_USAGE;
}

/* One context of the list; *out gets its JSON. */
static int run_one(struct device *device, const struct options *o, const char *context,
                   double copy_gbs, json_t **out)
{
    struct bench_shape shape = o->shape;
    struct bench b;
    struct bench_result result = {.copy_gbs = copy_gbs};
    kvk_error err = {0};
    int host = device_is_host(device), code = CLI_OK;
    if (context)
        bench_shape_context(&shape, context, o->batch);
    else if (o->batch)
        shape.groups[0].count = o->batch;
    bench_shape_fill(&shape, o->kind, host);
    kvk_status status =
        bench_open(&b, device, o->kind, &shape, (size_t)(host ? 8 : 512) << 20, &err);
    if (!status)
        status = bench_measure(&b, device, o->repeats, &result, &err);
    if (status) {
        char *what = cli_format("bench %s", o->kind->name);
        cli_error(what, &err);
        free(what);
        code = exit_of(status);
    } else {
        code = bench_passed(&result) ? CLI_OK : CLI_FAILED;
        if (out)
            *out = bench_json(&b, &result);
        else
            bench_print(&b, &result);
    }
    bench_close(&b);
    return code;
}

static void print_json(const struct device *device, json_t *results)
{
    json_t *root = results;
    if (json_array_size(results) == 1)
        root = json_incref(json_array_get(results, 0));
    else
        root = json_pack("{s:s, s:O}", "version", kvk_version(), "results", results);
    device_json(device, root);
    json_object_set_new(root, "launches", json_string(device_launches(device)));
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    printf("\n");
    json_decref(root);
}

static int run_all(struct device *device, const struct options *o)
{
    json_t *results = o->json ? json_array() : NULL;
    double copy_gbs = 0;
    kvk_error err = {0};
    enum cli_exit code = CLI_OK;
    kvk_status status = bench_copy(device, &copy_gbs, &err);
    if (status) {
        cli_error("copy", &err);
        code = (enum cli_exit)exit_of(status);
    }
    for (int i = 0; i < o->ncontexts && !status; i++) {
        json_t *one = NULL;
        int ended = run_one(device, o, o->contexts[i], copy_gbs, results ? &one : NULL);
        code = cli_exit_worse(code, (enum cli_exit)ended);
        if (one)
            json_array_append_new(results, one);
    }
    if (results && json_array_size(results))
        print_json(device, results);
    json_decref(results);
    return code;
}

static int bench_kernels(const struct bench_kind *kind, int argc, char **argv)
{
    static const struct argp argp = {
        bench_options,
        parse,
        0,
        "Times one launch over a cache of random rows in shuffled pages, after comparing a sample "
        "of "
        "its output with double precision; prints the share of the copy bandwidth measured in the "
        "same process. CUDA launches overlap, where GPU and driver can, unless KVKILN_OVERLAP is "
        "2.",
        device_children,
        0,
        0};
    struct options o = {.repeats = 20, .kind = kind};
    struct device device;
    argp_parse(&argp, argc, argv, 0, 0, &o);
    device_overlap();
    kvk_status opened = device_open(o.device, o.specs, &device);
    if (opened)
        return device_exit(opened);
    if (!o.json) {
        device_print(&device);
        printf("launches  %s\n", device_launches(&device));
    }
    int code = run_all(&device, &o);
    device_close(&device);
    return code;
}

static void help(FILE *to)
{
    fprintf(to, "Usage: kvkiln bench KIND [OPTION...]\nTimes kernels.\n\n"
                "  decode, store, dequant, unified  one launch, beside the copy bandwidth\n"
                "  tiled                            prefill by way of dequantised tiles\n"
                "  suite                            the goals of this project, row by row\n"
                "  compile                          the generator\n\n"
                "`kvkiln bench KIND --help` tells more.\n");
}

int cmd_bench(int argc, char **argv)
{
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        help(stdout);
        return CLI_OK;
    }
    const struct bench_kind *kind = argc > 1 ? bench_kind_find(argv[1]) : NULL;
    if (argc < 2 || (!kind && strcmp(argv[1], "compile") != 0 && strcmp(argv[1], "suite") != 0)) {
        cli_message(
            "kvkiln bench: %s: there are decode, store, dequant, unified, tiled, suite, compile",
            argc > 1 ? argv[1] : "what?");
        return CLI_USAGE;
    }
    char *name = cli_format("kvkiln bench %s", argv[1]);
    argv[1] = name;
    int code = kind                              ? bench_kernels(kind, argc - 1, argv + 1)
               : strstr(name, "compile") != NULL ? bench_compile(argc - 1, argv + 1)
                                                 : bench_suite(argc - 1, argv + 1);
    free(name);
    return code;
}
