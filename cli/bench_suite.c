/* SPDX-License-Identifier: Apache-2.0 */
/*
** bench_suite.c - runs the goals of bench_goals.def and says which are met.
**
** A host is given the same rows in small: to try the suite out, not to judge anything.
*/
#include "bench_suite.h"

#include "options.h"
#include "paths.h"

#include <argp.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 11, QUICK_REPEATS = 3, SECONDS = 360 };

static const struct goal goals[] = {
#define GOAL(group, kind, preset, layout, head, gqa, context, query, full, measure, goal)          \
    {group, &bench_##kind, preset, layout, head, gqa, context, query, full, measure, goal},
#include "bench_goals.def"
#undef GOAL
};
enum { GOALS = sizeof goals / sizeof *goals };

struct options {
    const char *device, *specs, *json, *markdown, *only;
    long seconds;
    int quick;
};

/* The same in small. */
static void shrink(struct bench_shape *s)
{
    s->kv_heads = 1;
    for (int i = 0; i < s->ngroups; i++) {
        struct bench_group *g = &s->groups[i];
        g->count = g->count > 2 ? 2 : g->count;
        g->tokens = g->tokens > 131000 ? 96 : g->tokens > 64 ? 48 : g->tokens;
    }
    if (s->query_tokens > 16)
        s->query_tokens = 16;
}

static void shape_of(const struct suite *suite, const struct goal *g, struct bench_shape *shape)
{
    *shape = (struct bench_shape){.preset = g->preset,
                                  .layout = g->layout,
                                  .head_size = g->head_size,
                                  .gqa = g->gqa,
                                  .query_tokens = g->query_tokens,
                                  .full = g->full};
    int host = device_is_host(&suite->device);
    bench_shape_context(shape, g->context, 0);
    if (host)
        shrink(shape);
    bench_shape_fill(shape, g->kind, host);
}

static kvk_status run_shape(struct suite *suite, const struct bench_kind *kind,
                            const struct bench_shape *shape, struct bench_result *result,
                            json_t **json, kvk_error *err)
{
    struct bench b;
    int host = device_is_host(&suite->device);
    result->copy_gbs = suite->copy_gbs;
    kvk_status status =
        bench_open(&b, &suite->device, kind, shape, host ? 1 : (size_t)512 << 20, err);
    if (!status)
        status = bench_measure(&b, &suite->device,
                               host           ? 1
                               : suite->quick ? QUICK_REPEATS
                                              : REPEATS,
                               result, err);
    if (!status && json)
        *json = bench_json(&b, result);
    bench_close(&b);
    return status;
}

/* The shape that a row's time is divided by: 1 if there is one. */
static int other_shape(const struct goal *g, struct bench_shape *shape)
{
    if (g->measure == AGAINST_ONE)
        shape->query_tokens = 1;
    if (g->measure == AGAINST_EVEN) {
        long tokens = 0, count = 0;
        for (int i = 0; i < shape->ngroups; i++) {
            tokens += shape->groups[i].count * shape->groups[i].tokens;
            count += shape->groups[i].count;
        }
        shape->ngroups = 1;
        shape->groups[0] = (struct bench_group){count, tokens / count};
    }
    return g->measure == AGAINST_ONE || g->measure == AGAINST_EVEN;
}

static void judge(struct goal_row *row, double other_ms)
{
    const struct bench_result *r = &row->result;
    double ms = r->times.median, goal = row->goal->goal;
    int at_least = row->goal->measure == SHARE || row->goal->measure == TFLOPS;
    row->limit = goal;
    switch (row->goal->measure) {
    case SHARE: row->value = bench_gbs(r) / r->copy_gbs; break;
    case TFLOPS: row->value = r->work.flops / ms * 1e-9; break;
    case MICROSECONDS: row->value = 1e3 * ms; break;
    case SMALL:
        row->value = 1e3 * ms;
        row->limit = goal + (r->work.read + r->work.written) / (0.85 * r->copy_gbs) * 1e-3;
        break;
    case AGAINST_EVEN:
    case AGAINST_ONE: row->value = ms / other_ms; break;
    }
    int met = at_least ? row->value >= row->limit : row->value <= row->limit;
    row->state = met ? GOAL_MET : GOAL_UNMET;
}

static kvk_status run_row(struct suite *suite, struct goal_row *row, kvk_error *err)
{
    struct bench_shape shape;
    struct bench_result other = {0};
    shape_of(suite, row->goal, &shape);
    bench_shape_text(&shape, row->sequences, sizeof row->sequences);
    kvk_status status = run_shape(suite, row->goal->kind, &shape, &row->result, &row->json, err);
    if (status == KVK_E_SPEC && !strcmp(row->goal->layout, "native")) {
        row->state = GOAL_NO_LAYOUT;
        return KVK_OK;
    }
    if (!status && other_shape(row->goal, &shape))
        status = run_shape(suite, row->goal->kind, &shape, &other, NULL, err);
    if (status) {
        row->state = GOAL_ERROR;
        snprintf(row->error, sizeof row->error, "%.*s", (int)sizeof row->error - 1, err->text);
    } else if (!bench_passed(&row->result) || (other.verdict.compared && !bench_passed(&other))) {
        row->state = GOAL_WRONG;
    } else {
        judge(row, other.times.median);
    }
    return status;
}

static enum cli_exit run_rows(struct suite *suite, long seconds)
{
    double start = cli_now_ms();
    enum cli_exit code = CLI_OK;
    kvk_error err = {0};
    for (int i = 0; i < suite->count; i++) {
        struct goal_row *row = &suite->rows[i];
        if ((cli_now_ms() - start) / 1e3 >= (double)seconds)
            break;
        kvk_status status = run_row(suite, row, &err);
        suite_print_row(suite, row);
        if (status)
            code = cli_exit_worse(code, cli_exit_of(status));
        else if (row->state == GOAL_WRONG)
            code = cli_exit_worse(code, CLI_FAILED);
        if (status == KVK_E_DRIVER) /* the context is of no use any more */
            break;
    }
    if (code != CLI_DEVICE && bench_copy(&suite->device, &suite->copy_gbs_end, &err))
        code = CLI_DEVICE;
    suite->seconds = (cli_now_ms() - start) / 1e3;
    return code;
}

/* Does a word of the row contain `text`? */
static int is_about(const struct goal *g, const char *text)
{
    return strstr(g->group, text) || strstr(g->preset, text) || strstr(g->layout, text) ||
           strstr(g->kind->name, text);
}

static int choose_rows(struct suite *suite, const struct options *o)
{
    const char *group = "";
    suite->quick = o->quick;
    suite->rows = cli_alloc(GOALS, sizeof *suite->rows);
    for (int i = 0; i < GOALS; i++) {
        if ((o->only && !is_about(&goals[i], o->only)) ||
            (o->quick && !strcmp(group, goals[i].group)))
            continue;
        suite->rows[suite->count++].goal = &goals[i];
        group = goals[i].group;
    }
    return suite->count;
}

/* `text`, which it frees, to the file that an option named. */
static int write_text(const char *path, char *text, size_t bytes)
{
    char *error = NULL;
    int good = paths_write(path, text, bytes, &error);
    if (!good)
        cli_message("%s", error);
    free(error);
    free(text);
    return good;
}

static int write_json(const struct suite *suite, const char *path)
{
    json_t *root = suite_json(suite);
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(root);
    return write_text(path, text, text ? strlen(text) : 0);
}

static int write_markdown(const struct suite *suite, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    if (!memory || (suite_markdown(suite, memory), fclose(memory))) {
        cli_message("%s: out of memory", path);
        free(text);
        return 0;
    }
    return write_text(path, text, bytes);
}

static int write_files(const struct suite *suite, const struct options *o)
{
    int good = !o->json || write_json(suite, o->json);
    return (!o->markdown || write_markdown(suite, o->markdown)) && good;
}

static void print_end(const struct suite *suite)
{
    int states[GOAL_ERROR + 1] = {0};
    for (int i = 0; i < suite->count; i++)
        states[suite->rows[i].state]++;
    if (device_is_host(&suite->device)) { /* both are called the same */
        states[GOAL_MET] += states[GOAL_UNMET];
        states[GOAL_UNMET] = 0;
    }
    printf("%d rows in %.0f s:", suite->count, suite->seconds);
    for (int i = 0; i <= GOAL_ERROR; i++)
        if (states[i])
            printf(" %d %s;", states[i], suite_state_name(suite, (enum goal_state)i));
    printf(" copy %.1f GB/s, at the end %.1f\n", suite->copy_gbs, suite->copy_gbs_end);
}

static const struct argp_option suite_options[] = {
    {"device", 'd', "DEVICE", 0, "auto (default), host, cuda:0, hip:0", 0},
    {"json", 'j', "FILE", 0, "results as JSON", 0},
    {"markdown", 'm', "FILE", 0, "results as a table", 0},
    {"quick", 'q', 0, 0, "the first row of each group, fewer repeats", 0},
    {"only", 'o', "TEXT", 0, "rows with TEXT in their work, kind, preset or layout", 0},
    {"seconds", 't', "N", 0, "no row begins later than this (default 360)", 0},
    {"specs", 's', "DIR", 0, "look for presets and tuned tables here first", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'd': o->device = arg; return 0;
    case 'j': o->json = arg; return 0;
    case 'm': o->markdown = arg; return 0;
    case 'o': o->only = arg; return 0;
    case 'q': o->quick = 1; return 0;
    case 's': o->specs = arg; return 0;
    case 't': options_number(state, "seconds", arg, 1, 86400, &o->seconds); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int bench_suite(int argc, char **argv)
{
    static const struct argp argp = {
        suite_options,
        parse,
        0,
        "Measures the goals of this project on a GPU, each verified first, and says which are met. "
        "On "
        "the host the same rows run in small: nothing is judged by that.",
        device_children,
        0,
        0};
    struct options o = {.seconds = SECONDS};
    struct suite suite = {0};
    kvk_error err = {0};
    enum cli_exit code;
    argp_parse(&argp, argc, argv, 0, 0, &o);
    if ((o.json && !paths_make_ready(o.json)) || (o.markdown && !paths_make_ready(o.markdown)))
        return CLI_USAGE;
    device_overlap();
    kvk_status status = device_open(o.device, o.specs, &suite.device);
    if (status)
        return device_exit(status);
    device_print(&suite.device);
    if (!choose_rows(&suite, &o)) {
        cli_message("--only: '%s': no row has it in its work, kind, preset or layout", o.only);
        code = CLI_USAGE;
    } else if (bench_copy(&suite.device, &suite.copy_gbs, &err)) {
        cli_error("copy", &err);
        code = CLI_DEVICE;
    } else {
        code = run_rows(&suite, o.seconds);
        print_end(&suite);
        if (!write_files(&suite, &o))
            code = cli_exit_worse(code, CLI_USAGE);
    }
    for (int i = 0; i < suite.count; i++)
        json_decref(suite.rows[i].json);
    free(suite.rows);
    device_close(&suite.device);
    return code;
}
