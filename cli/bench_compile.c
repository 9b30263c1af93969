/* SPDX-License-Identifier: Apache-2.0 */
/*
** bench_compile.c - times the generator (spec text to sealed object, assembly included) inside one
** process, and how long a second process takes to load a host kernel from the cache that a first
** one filled.
*/
#include "bench_compile.h"

#include "cli.h"
#include "generator.h"
#include "jobs.h"
#include "options.h"
#include "paths.h"

#include <argp.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_REPEATS = 1000 };

struct options {
    struct gen_request request;
    const char *preset, *specs;
    long repeats;
    int json;
};

static const struct argp_option compile_options[] = {
    {"preset", 'p', "SPEC", 0, "preset or path of a .lua file (default turboquant_4bit_nc)", 0},
    {"target", 't', "TARGET", 0, "default sm_90a", 0},
    {"kind", 'k', "KIND", 0, "default decode", 0},
    {"layout", 'l', "LAYOUT", 0, "aos, soa (default), native", 0},
    {"head-size", 'D', "D", 0, "default 128", 0},
    {"gqa", 'g', "N", 0, "default 4", 0},
    {"repeats", 'r', "N", 0, "default 9", 0},
    {"specs", 's', "DIR", 0, "look for presets here first", 0},
    {"json", 'j', 0, 0, "results as JSON", 0},
    {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    long n;
    switch (key) {
    case 'p': o->preset = arg; return 0;
    case 't': o->request.target = arg; return 0;
    case 'k': o->request.kind = options_word(state, "kind", arg, OPTIONS_KINDS); return 0;
    case 'l': o->request.layout = options_word(state, "layout", arg, OPTIONS_LAYOUTS); return 0;
    case 's': o->specs = arg; return 0;
    case 'j': o->json = 1; return 0;
    case 'D':
        options_number(state, "head-size", arg, OPTIONS_HEAD_LEAST, OPTIONS_HEAD_MOST, &n);
        o->request.head_size = (int)n;
        return 0;
    case 'g':
        options_number(state, "gqa", arg, 1, OPTIONS_GQA_MOST, &n);
        o->request.gqa = (int)n;
        return 0;
    case 'r': options_number(state, "repeats", arg, 1, MOST_REPEATS, &o->repeats); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The first object; every later one must equal it. */
struct made {
    void *bytes;
    size_t size;
    char format[16];
};

/* The object of merge, where decode is timed: it joins decode's splits, and a preparation makes it at the same time. */
struct mate {
    const struct gen_api *api;
    struct gen_request request;
    kvk_status status;
    kvk_error err;
};

static void *compile_mate(void *data)
{
    struct mate *m = data;
    struct gen_artifacts out = {0};
    m->status = m->api->compile(&m->request, 1u << GEN_EMIT_OBJECT, &out, &m->err);
    m->api->artifacts_free(&out);
    return NULL;
}

static kvk_status compile_both(const struct gen_api *api, const struct gen_request *r,
                               struct gen_artifacts *out, kvk_error *err)
{
    struct mate mate = {.api = api, .request = *r};
    pthread_t thread;
    mate.request.kind = "merge";
    int alone = strcmp(r->kind, "decode") != 0;
    if (!alone && pthread_create(&thread, NULL, compile_mate, &mate)) {
        err->status = KVK_E_MEMORY;
        snprintf(err->text, sizeof err->text, "no thread");
        return err->status;
    }
    kvk_status status = api->compile(r, 1u << GEN_EMIT_OBJECT, out, err);
    if (alone)
        return status;
    pthread_join(thread, NULL);
    if (status || !mate.status)
        return status;
    api->artifacts_free(out);
    *err = mate.err;
    return mate.status;
}

static kvk_status compile_once(const struct gen_api *api, const struct gen_request *r, double *ms,
                               struct made *made, kvk_error *err)
{
    struct gen_artifacts out;
    double start = cli_now_ms();
    kvk_status status = compile_both(api, r, &out, err);
    *ms = cli_now_ms() - start;
    if (status)
        return status;
    char *text = out.data[GEN_EMIT_OBJECT];
    size_t size = out.bytes[GEN_EMIT_OBJECT];
    if (made->bytes) {
        int equal = size == made->size && !memcmp(text, made->bytes, size);
        api->artifacts_free(&out);
        if (equal)
            return KVK_OK;
        err->status = KVK_E_INTERNAL;
        snprintf(err->text, sizeof err->text, "two compiles of one request differ");
        return err->status;
    }
    const char *line = memmem(text, size, "\nformat ", 8);
    snprintf(made->format, sizeof made->format, "%.*s", line ? (int)strcspn(line + 8, "\n") : 1,
             line ? line + 8 : "?");
    made->bytes = text;
    made->size = size;
    out.data[GEN_EMIT_OBJECT] = NULL;
    api->artifacts_free(&out);
    return KVK_OK;
}

/* In a process of its own: prepares a host decode kernel over `dir`; milliseconds, negative if it
** was not `origin`. */
static double prepare_in_child(const struct options *o, const char *dir, const char *origin)
{
    int ends[2];
    double ms = -1;
    if (pipe(ends))
        return -1;
    pid_t pid = fork();
    if (!pid) {
        struct kvk_options options = KVK_INIT(struct kvk_options);
        struct kvk_model model = KVK_INIT(struct kvk_model);
        struct kvk_kernel_info info = KVK_INIT(struct kvk_kernel_info);
        const kvk_kernels *kernels;
        kvk_context *ctx;
        options.device = "host";
        options.cache_dir = dir;
        options.generator = generator_path();
        model.spec = o->preset;
        model.layout = o->request.layout;
        model.kv_heads = 1;
        model.query_heads = o->request.gqa;
        model.head_size = o->request.head_size;
        model.kinds = KVK_DECODE;
        if (!kvk_open(&options, &ctx, NULL) && !kvk_prepare(ctx, &model, &kernels, NULL) &&
            !kvk_kernel(kernels, KVK_DECODE, &info, NULL) && !strcmp(info.origin, origin))
            ms = info.prepare_ms;
        _exit(write(ends[1], &ms, sizeof ms) != sizeof ms);
    }
    close(ends[1]);
    if (pid < 0 || read(ends[0], &ms, sizeof ms) != sizeof ms)
        ms = -1;
    close(ends[0]);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    return ms;
}

static double load_from_cache(const struct options *o)
{
    char dir[] = "/tmp/kvkiln-bench.XXXXXX";
    if (!mkdtemp(dir))
        return -1;
    double ms = -1;
    if (prepare_in_child(o, dir, "compiled") >= 0)
        ms = prepare_in_child(o, dir, "cache");
    char *command = cli_format("rm -rf '%s'", dir);
    if (system(command))
        cli_message("cannot remove %s", dir);
    free(command);
    return ms;
}

static void report(const struct options *o, const char *name, const char *format, size_t bytes,
                   const double *ms, double cached)
{
    double median = ms[o->repeats / 2];
    if (o->json) {
        json_t *j =
            json_pack("{s:s, s:s, s:s, s:I, s:f, s:f, s:f, s:f}", "kernel", name, "target",
                      o->request.target, "format", format, "bytes", (json_int_t)bytes, "median_ms",
                      median, "min_ms", ms[0], "max_ms", ms[o->repeats - 1], "cache_ms", cached);
        json_dumpf(j, stdout, JSON_INDENT(2));
        puts("");
        json_decref(j);
        return;
    }
    printf("compile %s for %s: %s, %zu bytes\n", name, o->request.target, format, bytes);
    int decode = strcmp(o->request.kind, "decode") == 0;
    printf("time    %.1f ms median, %.1f min, %.1f max of %ld, spec text to sealed object%s\n",
           median, ms[0], ms[o->repeats - 1], o->repeats,
           decode ? "s: this, and beside it merge, which joins its splits" : "");
    if (cached >= 0)
        printf("cache   %.2f ms: the host kernel of the same shape, loaded by a second process\n",
               cached);
}

static int run(struct options *o)
{
    kvk_error err = {0};
    const struct gen_api *api = generator_get(&err);
    if (api && !jobs_target(o->request.target, api))
        return CLI_USAGE;
    char *dirs = paths_specs(o->specs), *text = NULL, *name = NULL;
    struct made made = {0};
    double *ms = cli_alloc((size_t)o->repeats, sizeof *ms);
    kvk_status status = api ? api->spec_text(o->preset, dirs, &text, &err) : err.status;
    o->request.spec_text = text;
    if (!status)
        status = api->name(&o->request, &name, &err);
    for (long i = -1; !status && i < o->repeats; i++) /* the first one loads the assembler */
        status = compile_once(api, &o->request, &ms[i < 0 ? 0 : i], &made, &err);
    if (status) {
        cli_error("bench compile", &err);
    } else {
        qsort(ms, (size_t)o->repeats, sizeof *ms, by_value);
        report(o, name, made.format, made.size, ms, load_from_cache(o));
    }
    free(made.bytes);
    free(text);
    free(name);
    free(dirs);
    free(ms);
    return status ? CLI_USAGE : CLI_OK;
}

int bench_compile(int argc, char **argv)
{
    static const struct argp argp = {
        compile_options,
        parse,
        0,
        "Times one kernel from its spec to a loadable object, assembly included, in one process "
        "(decode with the object of merge beside it, which joins its splits); and the load of a "
        "host kernel from the cache by a second process.",
        0,
        0,
        0};
    struct options o = {.preset = "turboquant_4bit_nc",
                        .repeats = 9,
                        .request = {.kind = "decode",
                                    .layout = "soa",
                                    .target = "sm_90a",
                                    .head_size = 128,
                                    .gqa = 4,
                                    .page_tokens = 16,
                                    .dtype = KVK_BFLOAT16,
                                    .assemble = 1}};
    argp_parse(&argp, argc, argv, 0, 0, &o);
    return run(&o);
}
