/* SPDX-License-Identifier: Apache-2.0 */
/* bench_suite_report.c - a suite as lines, as a Markdown table and as JSON. */
#include "bench_suite.h"

#include "compare.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *words; /* of JSON; for people */
} measures[] = {[SHARE] = {"share", "of copy"},
                [MICROSECONDS] = {"microseconds", "us"},
                [SMALL] = {"microseconds", "us (7 us and bytes at 85 % of copy)"},
                [TFLOPS] = {"tflops", "TFLOP/s"},
                [AGAINST_EVEN] = {"ratio_to_even", "x the time of an even batch"},
                [AGAINST_ONE] = {"ratio_to_one", "x the time of one query token"}};

const char *suite_state_name(const struct suite *suite, enum goal_state state)
{
    static const char *const names[] = {"not run", "met",   "unmet", "without the layout",
                                        "wrong",   "failed"};
    int judged = state == GOAL_MET || state == GOAL_UNMET;
    return judged && device_is_host(&suite->device) ? "on a CPU" : names[state];
}

static int at_least(const struct goal *g) { return g->measure == SHARE || g->measure == TFLOPS; }

/* "92.0 %", "5.00", with the measure's words where `words`. */
static char *value_text(const struct goal *g, double value, int words)
{
    if (g->measure == SHARE)
        return cli_format("%.1f %%", 100 * value);
    return cli_format(g->measure == TFLOPS ? "%.0f%s%s" : "%.2f%s%s", value, words ? " " : "",
                      words ? measures[g->measure].words : "");
}

static char *goal_text(const struct goal_row *row)
{
    int known = row->state == GOAL_MET || row->state == GOAL_UNMET;
    char *value = value_text(row->goal, known ? row->limit : row->goal->goal, 1);
    char *text = cli_format("%s %s", at_least(row->goal) ? ">=" : "<=", value);
    free(value);
    return text;
}

static char *measured_text(const struct goal_row *row)
{
    return row->state == GOAL_MET || row->state == GOAL_UNMET ? value_text(row->goal, row->value, 0)
                                                              : cli_format("-");
}

void suite_print_row(const struct suite *suite, const struct goal_row *row)
{
    const struct goal *g = row->goal;
    char *goal = goal_text(row), *measured = measured_text(row);
    printf("%-34s %-20s %-6s D %-3d gqa %-2d %-18s %9.4f ms %9s  %s: %s%s%s\n", g->group, g->preset,
           g->layout, g->head_size, g->gqa, row->sequences, row->result.times.median, measured,
           goal, suite_state_name(suite, row->state), *row->error ? ": " : "", row->error);
    fflush(stdout);
    free(goal);
    free(measured);
}

void suite_markdown(const struct suite *suite, FILE *out)
{
    const struct kvk_device_info *info = &suite->device.info;
    fprintf(out,
            "%s (%s, %s), kvkiln %s; copy %.1f GB/s (read and written), at the end %.1f; launches "
            "%s; %.0f s.%s\n\n",
            info->name, info->device, info->target, kvk_version(), suite->copy_gbs,
            suite->copy_gbs_end, device_launches(&suite->device), suite->seconds,
            device_is_host(&suite->device)
                ? " This is a CPU, with small shapes: nothing is judged by it."
                : "");
    fprintf(out, "| work | preset | layout | D | gqa | sequences | time, us | without rests | GB/s "
                 "| measured | goal | |\n"
                 "|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < suite->count; i++) {
        const struct goal_row *row = &suite->rows[i];
        const struct goal *g = row->goal;
        char *goal = goal_text(row), *measured = measured_text(row);
        fprintf(out, "| %s | %s | %s | %d | %d | %s | %.2f | %.2f | %.4g | %s | %s | %s |\n",
                g->group, g->preset, g->layout, g->head_size, g->gqa, row->sequences,
                1e3 * row->result.times.median, 1e3 * row->result.times.sustained,
                bench_gbs(&row->result), measured, goal, suite_state_name(suite, row->state));
        free(goal);
        free(measured);
    }
}

static json_t *row_json(const struct suite *suite, const struct goal_row *row)
{
    const struct goal *g = row->goal;
    int known = row->state == GOAL_MET || row->state == GOAL_UNMET;
    json_t *met = known && !device_is_host(&suite->device) ? json_boolean(row->state == GOAL_MET)
                                                           : json_null();
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:i, s:i, s:s, s:s, s:s, s:f, s:o, s:o, s:o, s:s, s:s, s:O*}", "work",
        g->group, "kind", g->kind->name, "preset", g->preset, "layout", g->layout, "head_size",
        g->head_size, "gqa", g->gqa, "sequences", row->sequences, "measure",
        measures[g->measure].name, "sense", at_least(g) ? "at least" : "at most", "goal", g->goal,
        "limit", known ? json_real(row->limit) : json_null(), "value",
        known ? compare_real(row->value) : json_null(), "met", met, "state",
        suite_state_name(suite, row->state), "error", row->error, "bench", row->json);
}

json_t *suite_json(const struct suite *suite)
{
    json_t *rows = json_array();
    for (int i = 0; i < suite->count; i++)
        json_array_append_new(rows, row_json(suite, &suite->rows[i]));
    json_t *root = json_pack("{s:s, s:b, s:b, s:f, s:f, s:f, s:o}", "version", kvk_version(),
                             "host", device_is_host(&suite->device), "quick", suite->quick,
                             "copy_gbs", suite->copy_gbs, "copy_gbs_end", suite->copy_gbs_end,
                             "seconds", suite->seconds, "rows", rows);
    device_json(&suite->device, root);
    json_object_set_new(root, "launches", json_string(device_launches(&suite->device)));
    return root;
}
