/* SPDX-License-Identifier: Apache-2.0 */
/*
** cmd_tune.c - `kvkiln tune`: times plans of every shape asked for by the code of `kvkiln bench`, and
** keeps those that beat the rules in a tuned table.
*/
#include "generator.h"
#include "jobs.h"
#include "options.h"
#include "paths.h"
#include "tune.h"

#include <argp.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIST = 16, MOST_PLANS = 64 };

struct numbers {
    long items[LIST];
    int count;
};

struct options {
    char **specs;
    int nspecs;
    struct numbers head_sizes, gqas;
    char *layouts[LIST];
    int nlayouts;
    const struct bench_kind *kind;
    struct bench_shape shape;
    const char *context, *device, *spec_dir, *output;
    long repeats, most, margin;
    int dry;
};

/* While it runs. */
struct tuning {
    const struct options *o;
    struct device device;
    const struct gen_api *api;
    struct tuned_table table;
    int shapes, unsaved; /* unsaved: the table could not be written, and nothing more is timed */
};

enum {
    OPT_HEAD = 0x100,
    OPT_GQA,
    OPT_KV,
    OPT_CONTEXT,
    OPT_PAGE,
    OPT_DTYPE,
    OPT_MOST,
    OPT_MARGIN,
    OPT_DRY
};

static const struct argp_option tune_options[] = {
    {"layout", 'l', "L,...", 0, "default: every layout of the spec", 0},
    {"head-size", OPT_HEAD, "D,...", 0, "default 128", 0},
    {"gqa", OPT_GQA, "N,...", 0, "query heads a KV head (default 4)", 0},
    {"kind", 'k', "KIND", 0, "decode (default) or unified", 0},
    {"kv-heads", OPT_KV, "N", 0, "default 8", 0},
    {"context", OPT_CONTEXT, "COUNTxN+...", 0,
     "sequences and their cached tokens (default 16x32768, unified 1x32768; host 1x4096, 1x512)",
     0},
    {"page", OPT_PAGE, "N", 0, "tokens a page (default 16)", 0},
    {"dtype", OPT_DTYPE, "T", 0, "bf16 (default), fp16", 0},
    {"repeats", 'r', "N", 0, "of each plan (default 11)", 0},
    {"plans", OPT_MOST, "N", 0, "most plans timed a shape (default 64)", 0},
    {"margin", OPT_MARGIN, "PERCENT", 0, "a plan must beat the rules by this (default 2)", 0},
    {"output", 'o', "DIR", 0, "spec directory whose tuned/TARGET.lua is written (default specs)",
     0},
    {"dry-run", OPT_DRY, 0, 0, "write nothing", 0},
    {"device", 'd', "DEVICE", 0, "auto (default), host, cuda:0, hip:0", 0},
    {"specs", 's', "DIR", 0, "look for presets here first", 0},
    {0},
};

static void numbers(struct argp_state *state, const char *option, char *arg, long low, long high,
                    struct numbers *out)
{
    char *items[LIST];
    out->count = cli_split(arg, items, LIST);
    if (out->count < 1)
        argp_error(state, "--%s: an empty item, or more than %d", option, LIST);
    for (int i = 0; i < out->count; i++)
        options_number(state, option, items[i], low, high, &out->items[i]);
}

static void check_context(struct argp_state *state, struct options *o, const char *arg)
{
    struct bench_shape shape = o->shape;
    if (!strchr(arg, 'x') || !bench_shape_context(&shape, arg, 0))
        argp_error(state, "--context: '%s': accepted COUNTxN+COUNTxN...", arg);
    o->context = arg;
}

static error_t parse_shape(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case OPT_HEAD:
        numbers(state, "head-size", arg, OPTIONS_HEAD_LEAST, OPTIONS_HEAD_MOST, &o->head_sizes);
        return 0;
    case OPT_GQA: numbers(state, "gqa", arg, 1, OPTIONS_GQA_MOST, &o->gqas); return 0;
    case OPT_KV: options_number(state, "kv-heads", arg, 1, 1024, &o->shape.kv_heads); return 0;
    case OPT_CONTEXT: check_context(state, o, arg); return 0;
    case OPT_PAGE:
        options_number(state, "page", arg, 1, OPTIONS_PAGE_MOST, &o->shape.page);
        return 0;
    case OPT_DTYPE: o->shape.dtype = options_dtype(state, arg); return 0;
    case 'k':
        o->kind = bench_kind_find(options_word(state, "kind", arg, "decode, unified"));
        return 0;
    case 'l':
        o->nlayouts = cli_split(arg, o->layouts, LIST);
        if (o->nlayouts < 1)
            argp_error(state, "--layout: an empty item, or more than %d", LIST);
        for (int i = 0; i < o->nlayouts; i++)
            options_word(state, "layout", o->layouts[i], OPTIONS_LAYOUTS);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'r': options_number(state, "repeats", arg, 1, 10000, &o->repeats); return 0;
    case OPT_MOST: options_number(state, "plans", arg, 1, 1000, &o->most); return 0;
    case OPT_MARGIN: options_number(state, "margin", arg, 0, 100, &o->margin); return 0;
    case OPT_DRY: o->dry = 1; return 0;
    case 'o': o->output = arg; return 0;
    case 'd': o->device = arg; return 0;
    case 's': o->spec_dir = arg; return 0;
    case ARGP_KEY_ARGS:
        o->specs = state->argv + state->next;
        o->nspecs = state->argc - state->next;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "no SPEC given"); return 0;
    default: return parse_shape(key, arg, state);
    }
}

static void note_of(const struct tuning *t, const struct bench *b, const struct tune_found *found,
                    struct tuned_row *row)
{
    char context[64];
    bench_shape_text(&b->shape, context, sizeof context);
    int n = snprintf(row->note, sizeof row->note, "%.2f us, by rule %.2f; %s, %ld KV heads; %.40s",
                     1e3 * found->best_ms, 1e3 * found->rule_ms, context, b->shape.kv_heads,
                     t->device.info.name);
    if (n < 0) /* a device's name may be cut */
        row->note[0] = '\0';
    for (char *c = row->note; *c; c++)
        if (*c == '"' || *c == '\\' || *c < ' ')
            *c = ' ';
}

static char *table_path(const struct tuning *t)
{
    return cli_format("%s/tuned/%s.lua", t->o->output, t->device.info.target);
}

static void save(struct tuning *t)
{
    char *path = table_path(t), *error = NULL;
    t->unsaved = !tune_save(path, &t->table, &error);
    if (t->unsaved)
        cli_message("%s", error);
    free(error);
    free(path);
}

/* A shape's outcome into the table, and that to the file before anything is said: who reads that a
** shape is done may stop the rest. */
static void keep(struct tuning *t, const struct bench *b, const char *spec_text,
                 const struct tune_found *found)
{
    struct tuned_row row;
    tune_row(b, spec_text, &row);
    row.plan = found->best;
    note_of(t, b, found, &row);
    tune_merge(&t->table, &row);
    t->shapes++;
    if (!t->o->dry)
        save(t);
}

static void report(const struct bench *b, const struct tune_found *found)
{
    char plan[TUNED_PLAN_BYTES];
    tuned_plan_format(&found->best, plan, sizeof plan);
    printf(
        "%s %s %s head size %ld gqa %ld: %d plans timed, %d of them left early, %d not possible, "
        "%d wrong; by rule %.3f us, ",
        b->kind->name, b->shape.preset, b->shape.layout, b->shape.head_size, b->shape.gqa,
        found->tried, found->left, found->refused, found->wrong, 1e3 * found->rule_ms);
    if (*plan)
        printf("%s %.3f us\n", plan, 1e3 * found->best_ms);
    else
        printf("nothing faster\n");
    fflush(stdout);
}

static int tune_shape(struct tuning *t, const struct bench_shape *shape, const char *spec_text)
{
    struct bench b;
    struct tune_found found;
    kvk_error err = {0};
    kvk_status status = bench_open(&b, &t->device, t->o->kind, shape,
                                   device_is_host(&t->device) ? 1 : (size_t)512 << 20, &err);
    if (!status)
        status = tune_search(&b, &t->device, t->o->repeats, (int)t->o->most,
                             (double)t->o->margin / 100, &found, &err);
    if (!status) {
        keep(t, &b, spec_text, &found);
        report(&b, &found);
    } else {
        cli_error(shape->preset, &err);
    }
    bench_close(&b);
    return status ? (int)cli_exit_of(status) : found.wrong ? CLI_FAILED : CLI_OK;
}

/* Every layout, head size and gqa of one spec. */
static enum cli_exit tune_spec(struct tuning *t, const char *spec)
{
    const struct options *o = t->o;
    char *dirs = paths_specs(o->spec_dir), *text = NULL, words[64] = "", *layouts[LIST];
    kvk_error err = {0};
    int count = o->nlayouts;
    enum cli_exit code = CLI_OK;
    kvk_status status = t->api->spec_text(spec, dirs, &text, &err);
    free(dirs);
    if (status) {
        cli_error(spec, &err);
        return CLI_USAGE;
    }
    memcpy(layouts, o->layouts, sizeof layouts);
    if (!count && spec_text_get(text, "layouts", words, sizeof words))
        for (char *word = strtok(words, " "); word && count < LIST; word = strtok(NULL, " "))
            layouts[count++] = word;
    for (int l = 0; l < count; l++)
        for (int h = 0; h < o->head_sizes.count; h++)
            for (int g = 0; g < o->gqas.count && !t->unsaved; g++) {
                struct bench_shape shape = o->shape;
                shape.preset = spec;
                shape.layout = layouts[l];
                shape.head_size = o->head_sizes.items[h];
                shape.gqa = o->gqas.items[g];
                shape.plan = "";
                if (o->context)
                    bench_shape_context(&shape, o->context, 0);
                bench_shape_fill(&shape, o->kind, device_is_host(&t->device));
                code = cli_exit_worse(code, (enum cli_exit)tune_shape(t, &shape, text));
            }
    free(text);
    return code;
}

/* Before anything is timed: can the table be written, and read? */
static enum cli_exit open_table(struct tuning *t, const char *path)
{
    kvk_error err = {0};
    if (!t->o->dry && !paths_make_ready(path))
        return CLI_USAGE;
    if (!tune_load(path, &t->table, &err))
        return CLI_OK;
    cli_error("tuned table", &err);
    return CLI_USAGE;
}

static enum cli_exit tune(struct tuning *t)
{
    char *path = table_path(t);
    enum cli_exit code = open_table(t, path);
    for (int i = 0; i < t->o->nspecs && code != CLI_USAGE && code != CLI_DEVICE && !t->unsaved; i++)
        code = cli_exit_worse(code, tune_spec(t, t->o->specs[i]));
    if (t->unsaved)
        code = cli_exit_worse(code, CLI_USAGE);
    else if (t->shapes && !t->o->dry)
        printf("%s: %d rows\n", path, t->table.count);
    free(path);
    tuned_free(&t->table);
    return code;
}

int cmd_tune(int argc, char **argv)
{
    static const struct argp argp = {
        tune_options,
        parse,
        "SPEC...",
        "Times plans of decode or unified kernels on a device, each verified first, and keeps what "
        "beats "
        "the rules of the generator in DIR/tuned/TARGET.lua, beside what is there. SPEC is a "
        "preset's "
        "name or the path of a .lua file.\vExit status: 1 if a plan's output was wrong.",
        device_children,
        0,
        0};
    struct options o = {.kind = &bench_decode,
                        .repeats = 11,
                        .most = MOST_PLANS,
                        .margin = 2,
                        .output = "specs",
                        .head_sizes = {{128}, 1},
                        .gqas = {{4}, 1}};
    struct tuning t = {.o = &o};
    kvk_error err = {0};
    argp_parse(&argp, argc, argv, 0, 0, &o);
    t.api = generator_get(&err);
    if (!t.api) {
        cli_error("generator", &err);
        return CLI_USAGE;
    }
    kvk_status status = device_open(o.device, o.spec_dir, &t.device);
    if (status)
        return device_exit(status);
    device_print(&t.device);
    if (device_is_host(&t.device))
        printf("this times a CPU running the kernels' host form, not a GPU\n");
    enum cli_exit code = tune(&t);
    device_close(&t.device);
    return code;
}
