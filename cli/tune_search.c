/* SPDX-License-Identifier: Apache-2.0 */
/*
** tune_search.c - see tune.h. One field at a time: plans are few and nearly independent, and every
** one of them costs a compile and a verification.
*/
#include "tune.h"

#include <stdlib.h>
#include <string.h>

enum { MEMORY = 256, WARPS_MOST = 16 };

struct search {
    struct bench *b;
    const struct device *device;
    long repeats;
    int most;
    struct tune_found *found;
    struct tuned_plan best; /* so far; with every field it ever set */
    double best_ms;
    char seen[MEMORY][TUNED_PLAN_BYTES]; /* none of these can beat the best any more */
    int nseen;
    kvk_error *err;
};

static void nothing(struct tuned_plan *plan) { tuned_plan_parse("", "", plan, NULL); }

/* Values worth trying: powers of two of warps, everything of a field of few values. */
static int is_candidate(enum plan_field field, int value)
{
    return field != PLAN_warps || (value & (value - 1)) == 0;
}

static void say(const char *plan, const struct bench_result *r, const char *what)
{
    cli_message("%-44s %10.3f us  %s%s", *plan ? plan : "(rules)", 1e3 * r->times.median, what,
                r->kernel.local_bytes > 0 ? ", spills" : "");
}

/* KVK_OK and *ms < 0: the plan is not possible or wrong. */
static kvk_status time_plan(struct search *s, const struct tuned_plan *plan,
                            struct bench_result *result, double *ms)
{
    char text[TUNED_PLAN_BYTES];
    tuned_plan_format(plan, text, sizeof text);
    *ms = -1;
    kvk_status status = bench_replan(s->b, text, s->err);
    if (status == KVK_E_ARG || status == KVK_E_UNSUPPORTED || status == KVK_E_GENERATOR) {
        s->found->refused++;
        cli_message("%-44s not possible: %s", text, s->err->text);
        return KVK_OK;
    }
    if (!status)
        status = bench_measure(s->b, s->device, s->repeats, result, s->err);
    if (status)
        return status;
    s->found->tried++;
    if (!bench_passed(result)) {
        s->found->wrong++;
        cli_message("%-44s WRONG: relative L2 %.2e", text, result->verdict.rel_l2);
        return KVK_OK;
    }
    *ms = result->times.median;
    return KVK_OK;
}

/* What the rules, or the best plan so far, say of a field: the manifest of the kernel that was timed
** last with it. */
static int current(const struct bench_result *rule, const struct tuned_plan *best,
                   enum plan_field field)
{
    char line[48];
    if (best->value[field] != TUNED_RULE)
        return best->value[field];
    snprintf(line, sizeof line, "\nplan.%s ", tuned_field_name(field));
    const char *at = strstr(rule->kernel.manifest, line);
    return at ? atoi(at + strlen(line)) : TUNED_RULE;
}

/* Was this plan tried? From now on it was. */
static int is_known(struct search *s, const struct tuned_plan *plan)
{
    char text[TUNED_PLAN_BYTES];
    tuned_plan_format(plan, text, sizeof text);
    for (int i = 0; i < s->nseen; i++)
        if (!strcmp(s->seen[i], text))
            return 1;
    if (s->nseen < MEMORY)
        memcpy(s->seen[s->nseen++], text, sizeof text);
    return 0;
}

/* One field's other values; 1 in *better if one of them is faster. */
static kvk_status try_field(struct search *s, enum plan_field field, int *better)
{
    int now = current(&s->found->rule_run, &s->best, field);
    struct tuned_plan fastest = s->best;
    for (int value = 0; value <= WARPS_MOST && s->found->tried < s->most; value++) {
        struct tuned_plan plan = s->best;
        struct bench_result result = {0};
        double ms;
        if (value == now || !is_candidate(field, value) ||
            tuned_check_value("", field, value, NULL) != KVK_OK)
            continue;
        plan.value[field] = value;
        if (is_known(s, &plan))
            continue;
        kvk_status status = time_plan(s, &plan, &result, &ms);
        if (status)
            return status;
        if (ms < 0 && field == PLAN_min_ctas) /* refused: so are the greater ones */
            break;
        if (ms < 0)
            continue;
        char text[TUNED_PLAN_BYTES];
        tuned_plan_format(&plan, text, sizeof text);
        say(text, &result, ms < s->best_ms ? "faster" : "");
        if (ms < s->best_ms) {
            s->best_ms = ms;
            fastest = plan;
            *better = 1;
        } else if (field == PLAN_min_ctas && value > now && ms > 1.1 * s->best_ms) {
            break; /* fewer registers still will not help */
        }
    }
    s->best = fastest;
    return KVK_OK;
}

/* The rules' plan and the best one in turns: the least median of three each. */
static kvk_status confirm(struct search *s, double *rule_ms, double *best_ms)
{
    struct tuned_plan rules;
    int tried = s->found->tried;
    nothing(&rules);
    *rule_ms = *best_ms = 1e30;
    for (int i = 0; i < 6; i++) {
        struct bench_result result = {0};
        double ms, *least = i % 2 ? best_ms : rule_ms;
        kvk_status status = time_plan(s, i % 2 ? &s->best : &rules, &result, &ms);
        if (status)
            return status;
        *least = ms > 0 && ms < *least ? ms : *least;
    }
    s->found->tried = tried;
    return KVK_OK;
}

kvk_status tune_search(struct bench *b, const struct device *device, long repeats, int most,
                       double margin, struct tune_found *out, kvk_error *err)
{
    struct search s = {
        .b = b, .device = device, .repeats = repeats, .most = most, .found = out, .err = err};
    memset(out, 0, sizeof *out);
    nothing(&s.best);
    nothing(&out->best);
    kvk_status status = time_plan(&s, &s.best, &out->rule_run, &s.best_ms);
    if (status || s.best_ms < 0)
        return status;
    out->rule_ms = out->best_ms = s.best_ms;
    say("", &out->rule_run, "");
    for (int better = 1; better && !status;) {
        better = 0;
        for (int field = 0; field < PLAN_FIELDS && !status; field++)
            status = try_field(&s, (enum plan_field)field, &better);
    }
    char text[TUNED_PLAN_BYTES];
    if (status || !tuned_plan_format(&s.best, text, sizeof text))
        return status;
    status = confirm(&s, &out->rule_ms, &out->best_ms);
    if (!status && out->best_ms < (1 - margin) * out->rule_ms)
        out->best = s.best;
    return status;
}
