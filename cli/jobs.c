/* SPDX-License-Identifier: Apache-2.0 */
/* jobs.c - see jobs.h. */
#include "jobs.h"

#include "cli.h"
#include "options.h"
#include "paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    OPT_TARGET = 't',
    OPT_KIND = 'k',
    OPT_LAYOUT = 'l',
    OPT_SPECS = 's',
    OPT_HEAD = 0x100,
    OPT_VALUE_HEAD,
    OPT_GQA,
    OPT_PAGE,
    OPT_DTYPE,
    OPT_OPTIONS,
    OPT_PLAN
};

static const struct argp_option options[] = {
    {"target", OPT_TARGET, "T,...", 0,
     "x86-64-v2, x86-64-v3, x86-64-v4, sm_80, sm_86, sm_89, sm_90a, sm_100a, sm_103a, sm_120a, "
     "sm_121a, gfx942, gfx950, gfx1100, gfx1200, gfx1201; a family (nvptx, amdgcn, host) or all",
     1},
    {"kind", OPT_KIND, "K,...", 0,
     "store, decode (and merge, which joins its splits), unified, dequant, merge, copy; convert by "
     "name only",
     1},
    {"head-size", OPT_HEAD, "D,...", 0, "head size of keys (default 128)", 1},
    {"value-head-size", OPT_VALUE_HEAD, "D,...", 0, "head size of values (default: that of keys)",
     1},
    {"gqa", OPT_GQA, "N,...", 0, "query heads a KV head (default 4)", 1},
    {"layout", OPT_LAYOUT, "L,...", 0, "aos, soa, native", 1},
    {"dtype", OPT_DTYPE, "T,...", 0, "bf16 (default), fp16", 1},
    {"page", OPT_PAGE, "N,...", 0, "tokens a page (default 16)", 1},
    {"options", OPT_OPTIONS, "O,...", 0,
     "of decode and unified: none (default), soft_cap, alibi, or some joined by +", 1},
    {"plan", OPT_PLAN, "FIELD=N,...", 0,
     "of decode and unified, for experiments: values of "
#define PLAN_FIELD(name, low, high, meaning) #name " "
#include "../runtime/plan.def"
#undef PLAN_FIELD
     "instead of what the tuned tables say; '' for rules alone",
     1},
    {"specs", OPT_SPECS, "DIR", 0, "look for presets and tuned tables here first", 1},
    {0},
};

static void text_items(struct argp_state *state, const char *option, char *arg,
                       struct text_list *list)
{
    list->count = cli_split(arg, list->items, JOBS_LIST);
    if (list->count < 1)
        argp_error(state, "--%s: an empty item, or more than %d", option, JOBS_LIST);
}

static void word_items(struct argp_state *state, const char *option, char *arg, const char *words,
                       struct text_list *list)
{
    text_items(state, option, arg, list);
    for (int i = 0; i < list->count; i++)
        options_word(state, option, list->items[i], words);
}

static void number_items(struct argp_state *state, const char *option, char *arg, long low,
                         long high, struct number_list *list)
{
    struct text_list texts;
    text_items(state, option, arg, &texts);
    list->count = texts.count;
    for (int i = 0; i < texts.count; i++)
        options_number(state, option, texts.items[i], low, high, &list->items[i]);
}

static void head_items(struct argp_state *state, const char *option, char *arg,
                       struct number_list *list)
{
    number_items(state, option, arg, OPTIONS_HEAD_LEAST, OPTIONS_HEAD_MOST, list);
}

/* "soft_cap+alibi" to its bits; 0 if a word is none of them. */
static int option_set(const char *text, long *bits)
{
    static const struct {
        const char *word;
        unsigned bit;
    } known[] = {{"none", 0}, {"soft_cap", KVK_SOFT_CAP}, {"alibi", KVK_ALIBI}};
    *bits = 0;
    for (;;) {
        size_t n = strcspn(text, "+"), i = 0;
        while (i < 3 && (strlen(known[i].word) != n || strncmp(known[i].word, text, n)))
            i++;
        if (i == 3)
            return 0;
        *bits |= known[i].bit;
        if (!text[n])
            return 1;
        text += n + 1;
    }
}

static void option_items(struct argp_state *state, char *arg, struct number_list *list)
{
    struct text_list texts;
    text_items(state, "options", arg, &texts);
    list->count = texts.count;
    for (int i = 0; i < texts.count; i++)
        if (!option_set(texts.items[i], &list->items[i]))
            argp_error(state, "--options: '%s': accepted none, soft_cap, alibi, soft_cap+alibi",
                       texts.items[i]);
}

static void plan_option(struct argp_state *state, const char *arg)
{
    struct tuned_plan values;
    kvk_error err;
    if (tuned_plan_parse("--plan", arg, &values, &err))
        argp_error(state, "%s", err.text);
}

/* SPEC arguments, each a list too; one that names a file is that file, commas and all. */
static void spec_items(struct argp_state *state, struct job_lists *lists)
{
    for (int i = state->next; i < state->argc; i++) {
        char *one = state->argv[i], **items = lists->specs + lists->nspecs;
        int room = JOBS_SPECS - lists->nspecs, whole = !strchr(one, ',') || access(one, F_OK) == 0;
        int count = whole ? room > 0 : cli_split(one, items, room);
        if (count < 1)
            argp_error(state, "SPEC: an empty item in '%s', or more than %d in all", one,
                       JOBS_SPECS);
        if (whole)
            *items = one;
        lists->nspecs += count;
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct job_lists *lists = state->input;
    switch (key) {
    case OPT_TARGET: text_items(state, "target", arg, &lists->targets); return 0;
    case OPT_KIND: word_items(state, "kind", arg, OPTIONS_KINDS, &lists->kinds); return 0;
    case OPT_LAYOUT: word_items(state, "layout", arg, OPTIONS_LAYOUTS, &lists->layouts); return 0;
    case OPT_DTYPE:
        text_items(state, "dtype", arg, &lists->dtypes);
        for (int i = 0; i < lists->dtypes.count; i++)
            options_dtype(state, lists->dtypes.items[i]);
        return 0;
    case OPT_HEAD: head_items(state, "head-size", arg, &lists->head_sizes); return 0;
    case OPT_VALUE_HEAD:
        head_items(state, "value-head-size", arg, &lists->value_head_sizes);
        return 0;
    case OPT_GQA: number_items(state, "gqa", arg, 1, OPTIONS_GQA_MOST, &lists->gqas); return 0;
    case OPT_PAGE: number_items(state, "page", arg, 1, OPTIONS_PAGE_MOST, &lists->pages); return 0;
    case OPT_OPTIONS: option_items(state, arg, &lists->options); return 0;
    case OPT_SPECS: lists->spec_dir = arg; return 0;
    case OPT_PLAN:
        plan_option(state, arg);
        lists->plan = arg;
        return 0;
    case ARGP_KEY_ARGS: spec_items(state, lists); return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "no SPEC given"); return 0;
    case ARGP_KEY_SUCCESS:
        if (!lists->targets.count)
            argp_error(state, "no --target given");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

const struct argp jobs_argp = {options, parse, 0, 0, 0, 0, 0};

int spec_text_get(const char *text, const char *field, char *value, size_t cap)
{
    size_t length = strlen(field);
    for (const char *line = text; line && *line;
         line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (!strncmp(line, field, length) && line[length] == ' ') {
            size_t size = strcspn(line + length + 1, "\n");
            snprintf(value, cap, "%.*s", (int)size, line + length + 1);
            return 1;
        }
    return 0;
}

/* The names that `name` stands for: itself, a family, or all. */
struct chosen_target {
    const char *name, *family;
};

static void refuse_target(const char *given, const struct gen_api *api, const char *groups)
{
    const char *name, *family;
    char *known = cli_format("%s", groups);
    for (int t = 0; api->target(t, &name, &family); t++) {
        char *more = cli_format("%s%s%s", known, *known ? ", " : "", name);
        free(known);
        known = more;
    }
    cli_message("--target: '%s': accepted %s", given, known);
    free(known);
}

int jobs_target(const char *name, const struct gen_api *api)
{
    const char *known, *family;
    for (int t = 0; api->target(t, &known, &family); t++)
        if (!strcmp(name, known))
            return 1;
    refuse_target(name, api, "");
    return 0;
}

static int choose_targets(const struct text_list *list, const struct gen_api *api,
                          struct chosen_target *out)
{
    int count = 0;
    for (int i = 0; i < list->count; i++) {
        int before = count;
        const char *name, *family;
        for (int t = 0; api->target(t, &name, &family); t++) {
            int wanted = !strcmp(list->items[i], name) || !strcmp(list->items[i], family) ||
                         !strcmp(list->items[i], "all");
            if (wanted && count < JOBS_LIST)
                out[count++] = (struct chosen_target){name, family};
        }
        if (count == before) {
            refuse_target(list->items[i], api, "all, nvptx, amdgcn, host");
            return 0;
        }
    }
    return count;
}

/* Lists with their defaults filled in, and the product so far. */
struct expansion {
    const struct gen_api *api;
    struct text_list kinds, dtypes;
    struct number_list heads, value_heads, gqas, pages, options;
    struct chosen_target targets[JOBS_LIST];
    int ntargets;
    struct jobs *jobs;
    int cap, every_layout; /* none was named: those that a shape does not have are left out */
};

/* gen/native.c says it at length to those who name the layout. */
static int has_layout(const struct gen_request *r)
{
    return strcmp(r->layout, "native") != 0 ||
           (r->head_size % 64 == 0 && r->value_head_size % 64 == 0 && r->page_tokens % 16 == 0);
}

static void add(struct expansion *e, const struct job *job)
{
    if (e->jobs->count == e->cap) {
        e->cap = e->cap ? 2 * e->cap : 64;
        e->jobs->items = realloc(e->jobs->items, (size_t)e->cap * sizeof *e->jobs->items);
        if (!e->jobs->items)
            abort();
    }
    struct job *copy = &e->jobs->items[e->jobs->count++];
    kvk_error err = {0};
    *copy = *job;
    if (e->api->name(&copy->request, &copy->name, &err)) {
        copy->name = NULL;
        copy->error = cli_format("%s", err.text);
    }
}

static void expand_geometry(struct expansion *e, struct job *job)
{
    struct gen_request *r = &job->request;
    for (int h = 0; h < e->heads.count; h++)
        for (int v = 0; v < (e->value_heads.count ? e->value_heads.count : 1); v++)
            for (int g = 0; g < e->gqas.count; g++)
                for (int p = 0; p < e->pages.count; p++)
                    for (int d = 0; d < e->dtypes.count; d++) {
                        r->head_size = (int)e->heads.items[h];
                        r->value_head_size =
                            e->value_heads.count ? (int)e->value_heads.items[v] : r->head_size;
                        r->gqa = (int)e->gqas.items[g];
                        r->page_tokens = (int)e->pages.items[p];
                        r->dtype = cli_dtype(e->dtypes.items[d]);
                        if (!e->every_layout || has_layout(r))
                            add(e, job);
                    }
}

/* Kinds that do not attend have no options. */
static void expand_options(struct expansion *e, struct job job)
{
    int attends = !strcmp(job.request.kind, "decode") || !strcmp(job.request.kind, "unified");
    for (int i = 0; i < (attends ? e->options.count : 1); i++) {
        job.request.options = attends ? (unsigned)e->options.items[i] : 0;
        expand_geometry(e, &job);
    }
}

static const char *constant_name(const char *layout)
{
    static const char *const names[] = {"aos", "soa", "native"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(layout, names[i]))
            return names[i];
    return layout;
}

static void expand_spec(struct expansion *e, const char *spec, const char *text,
                        const struct text_list *layouts)
{
    struct job job = {.spec = spec};
    job.request.spec_text = text;
    for (int t = 0; t < e->ntargets; t++)
        for (int l = 0; l < layouts->count; l++)
            for (int k = 0; k < e->kinds.count; k++) {
                job.family = e->targets[t].family;
                job.request.target = e->targets[t].name;
                job.request.layout = constant_name(layouts->items[l]);
                job.request.kind = e->kinds.items[k];
                expand_options(e, job);
            }
}

static void expand_all(struct expansion *e, const struct job_lists *lists,
                       enum jobs_default left_out)
{
    char *dirs = paths_specs(lists->spec_dir), words[64];
    for (int i = 0; i < lists->nspecs; i++) {
        kvk_error err = {0};
        struct text_list layouts = lists->layouts;
        char **text = &e->jobs->texts[i];
        if (e->api->spec_text(lists->specs[i], dirs, text, &err)) {
            *text = NULL;
            cli_error(lists->specs[i], &err);
            e->jobs->spec_errors[i] = cli_format("%s", err.text);
            e->jobs->failed_specs++;
            continue;
        }
        if (!layouts.count && spec_text_get(*text, "layouts", words, sizeof words)) {
            for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
                if (left_out == JOBS_ALL || !layouts.count)
                    layouts.items[layouts.count++] = word;
        }
        e->every_layout = !lists->layouts.count && left_out == JOBS_ALL;
        /* words are in `words` only for this turn: expand_spec keeps constants instead */
        expand_spec(e, lists->specs[i], *text, &layouts);
    }
    free(dirs);
}

static void number_default(struct number_list *list, const struct number_list *given, long value)
{
    *list = *given;
    if (!list->count)
        list->items[list->count++] = value;
}

static int by_name(const void *a, const void *b)
{
    const struct job *x = *(struct job *const *)a, *y = *(struct job *const *)b;
    int order = strcmp(x->name ? x->name : "", y->name ? y->name : "");
    return order ? order : strcmp(x->request.target, y->request.target);
}

/* Two jobs of one name and target would write one file: an
 * item named twice is dropped, two specs are an error. */
static void drop_twins(struct jobs *jobs)
{
    struct job **order = cli_alloc((size_t)jobs->count, sizeof(struct job *));
    for (int i = 0; i < jobs->count; i++)
        order[i] = &jobs->items[i];
    qsort(order, (size_t)jobs->count, sizeof *order, by_name);
    for (int i = 1; i < jobs->count; i++) {
        struct job *twin = order[i];
        if (!twin->name || by_name(&order[i - 1], &order[i]))
            continue;
        if (!strcmp(order[i - 1]->request.spec_text, twin->request.spec_text))
            twin->spec = NULL;
        else
            twin->error = cli_format("%s and %s make kernels of the same name", order[i - 1]->spec,
                                     twin->spec);
    }
    int kept = 0;
    for (int i = 0; i < jobs->count; i++)
        if (jobs->items[i].spec)
            jobs->items[kept++] = jobs->items[i];
        else
            free(jobs->items[i].name);
    jobs->count = kept;
    free(order);
}

/* Plan values from outside: --plan's, or a tuned table's. 0: of that which a job needs, and only such jobs fail. */
static int set_plan(const struct job_lists *lists, const char *dirs, struct job *job)
{
    kvk_error err = {0};
    struct tuned_plan values;
    struct gen_request *r = &job->request;
    if (strcmp(r->kind, "decode") != 0 && strcmp(r->kind, "unified") != 0)
        return 1;
    if (lists->plan) {
        tuned_plan_parse("--plan", lists->plan, &values, NULL);
        tuned_plan_format(&values, job->tuned.plan, sizeof job->tuned.plan);
    } else if (tuned_lookup(dirs, r, &job->tuned, &err)) {
        free(job->error);
        job->error = cli_format("tuned table: %s", err.text);
        return 0;
    }
    r->plan = job->tuned.plan;
    r->plan_source = lists->plan ? NULL : job->tuned.source;
    return 1;
}

static void set_plans(const struct job_lists *lists, struct jobs *jobs)
{
    char *dirs = paths_specs(lists->spec_dir);
    for (int i = 0; i < jobs->count; i++)
        jobs->failed_tables += !set_plan(lists, dirs, &jobs->items[i]);
    free(dirs);
}

/* Of these: decode's splits are joined by what lies in the object of merge. */
static struct text_list with_merge(const struct text_list *kinds)
{
    struct text_list all = *kinds;
    int decode = 0, merge = 0;
    for (int i = 0; i < all.count; i++) {
        decode |= !strcmp(all.items[i], "decode");
        merge |= !strcmp(all.items[i], "merge");
    }
    if (decode && !merge && all.count < JOBS_LIST)
        all.items[all.count++] = (char *)"merge";
    return all;
}

int jobs_make(const struct job_lists *lists, const struct gen_api *api, enum jobs_default left_out,
              struct jobs *out)
{
    static const struct text_list all_kinds = {{(char *)"store", (char *)"decode",
                                                (char *)"unified", (char *)"dequant",
                                                (char *)"merge", (char *)"copy"},
                                               6};
    static const struct text_list one_kind = {{(char *)"decode"}, 1},
                                  one_dtype = {{(char *)"bf16"}, 1};
    struct expansion e = {.api = api, .jobs = out};
    memset(out, 0, sizeof *out);
    e.ntargets = choose_targets(&lists->targets, api, e.targets);
    if (!e.ntargets)
        return 0;
    e.kinds = lists->kinds.count ? lists->kinds : left_out == JOBS_ALL ? all_kinds : one_kind;
    if (left_out == JOBS_ALL)
        e.kinds = with_merge(&e.kinds);
    e.dtypes = lists->dtypes.count ? lists->dtypes : one_dtype;
    number_default(&e.heads, &lists->head_sizes, 128);
    number_default(&e.gqas, &lists->gqas, 4);
    number_default(&e.pages, &lists->pages, 16);
    number_default(&e.options, &lists->options, 0);
    e.value_heads = lists->value_head_sizes;
    out->ntexts = lists->nspecs;
    out->texts = cli_alloc((size_t)lists->nspecs, sizeof *out->texts);
    out->spec_errors = cli_alloc((size_t)lists->nspecs, sizeof *out->spec_errors);
    expand_all(&e, lists, left_out);
    drop_twins(out);
    set_plans(lists, out);
    return 1;
}

void jobs_free(struct jobs *jobs)
{
    for (int i = 0; i < jobs->count; i++) {
        free(jobs->items[i].name);
        free(jobs->items[i].error);
    }
    for (int i = 0; i < jobs->ntexts; i++) {
        free(jobs->texts[i]);
        free(jobs->spec_errors[i]);
    }
    free(jobs->texts);
    free(jobs->spec_errors);
    free(jobs->items);
}

char *job_describe(const struct job *job)
{
    const struct gen_request *r = &job->request;
    if (job->name)
        return cli_format("%s.%s", job->name, r->target);
    return cli_format("%s of %s for %s, %s, head size %d/%d, gqa %d, page %d, %s", r->kind,
                      job->spec, r->target, r->layout, r->head_size, r->value_head_size, r->gqa,
                      r->page_tokens, cli_dtype_name(r->dtype));
}
