/* SPDX-License-Identifier: Apache-2.0 */
/*
** tune_search.c - see tune.h. One field at a time: plans are few and nearly independent, and every
** one of them costs a compile and a timing. What is tried, and in which order, does not depend on
** which kernels were made ahead.
*/
#include "tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* FEW repeats, without rests, tell a plan that is 1.5 times as slow as the best from one that is worth
** all of them: a GPU that lowers its clock meanwhile is slower by a seventh. */
enum { WARPS_MOST = 16, FEW = 3 };
static const double HOPELESS = 1.5;

struct search {
    struct bench *b;
    const struct device *device;
    long repeats;
    int most, threads;
    struct tune_found *found;
    struct tuned_plan best; /* so far; with every field it ever set */
    double best_ms;
    struct tune_plans seen;  /* none of these can beat the best any more */
    struct tune_plans ahead; /* their kernels were made before they are tried */
    kvk_error *err;
};

static void nothing(struct tuned_plan *plan) { tuned_plan_parse("", "", plan, NULL); }

/* Values worth trying: powers of two of warps, everything of a field of few values. */
static int is_candidate(enum plan_field field, int value, int now)
{
    return value != now && (field != PLAN_warps || (value & (value - 1)) == 0) &&
           tuned_check_value("", field, value, NULL) == KVK_OK;
}

/* One plan's outcome. */
struct trial {
    struct bench_result result;
    double ms;
    int left; /* early: ms is of few repeats */
};

static void say(const char *plan, const struct bench_result *r, const char *what)
{
    cli_message("%-44s %10.3f us  %s%s", *plan ? plan : "(rules)", 1e3 * r->times.median, what,
                r->kernel.local_bytes > 0 ? ", spills" : "");
}

/* Few repeats if the best so far is far faster, else all of them. */
static kvk_status time_checked(struct search *s, double best_ms, struct trial *t)
{
    struct bench_unit unit = bench_unit_of(s->b, s->device);
    struct bench_times *times = &t->result.times;
    kvk_status status = KVK_OK;
    if (s->repeats > FEW && best_ms > 0) {
        status = bench_unit_paced(&unit, FEW, BENCH_AT_ONCE, times, s->err);
        t->left = !status && times->median > HOPELESS * best_ms;
        s->found->left += t->left;
    }
    if (!status && !t->left)
        status = bench_unit_paced(&unit, s->repeats, BENCH_RESTED, times, s->err);
    t->ms = times->median;
    return status;
}

/* KVK_OK and ms < 0: the plan is not possible or wrong. best_ms 0: timed to the end, however slow. */
static kvk_status time_plan(struct search *s, const struct tuned_plan *plan, double best_ms,
                            struct trial *t)
{
    char text[TUNED_PLAN_BYTES];
    tuned_plan_format(plan, text, sizeof text);
    *t = (struct trial){.ms = -1};
    kvk_status status = bench_replan(s->b, text, s->err);
    if (status == KVK_E_ARG || status == KVK_E_UNSUPPORTED || status == KVK_E_GENERATOR) {
        s->found->refused++;
        cli_message("%-44s not possible: %s", text, s->err->text);
        return KVK_OK;
    }
    if (!status)
        status = bench_check(s->b, &t->result, s->err);
    if (status)
        return status;
    s->found->tried++;
    if (!bench_passed(&t->result)) {
        s->found->wrong++;
        cli_message("%-44s WRONG: relative L2 %.2e", text, t->result.verdict.rel_l2);
        return KVK_OK;
    }
    return time_checked(s, best_ms, t);
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

static int is_among(const struct tune_plans *plans, const char *text)
{
    int i = 0;
    while (i < plans->count && strcmp(plans->text[i], text) != 0)
        i++;
    return i < plans->count;
}

static void remember(struct tune_plans *plans, const char *text)
{
    if (plans->count < TUNE_PLANS)
        snprintf(plans->text[plans->count++], TUNED_PLAN_BYTES, "%s", text);
}

/* Was this plan tried? From now on it was. */
static int is_known(struct search *s, const struct tuned_plan *plan)
{
    char text[TUNED_PLAN_BYTES];
    tuned_plan_format(plan, text, sizeof text);
    if (is_among(&s->seen, text))
        return 1;
    remember(&s->seen, text);
    return 0;
}

/* One field's plans, of those that are neither tried nor made, until there are `room`. */
static void add_plans(const struct search *s, enum plan_field field, int room,
                      struct tune_plans *out)
{
    int now = current(&s->found->rule_run, &s->best, field);
    for (int value = 0; value <= WARPS_MOST && out->count < room; value++) {
        char text[TUNED_PLAN_BYTES];
        struct tuned_plan plan = s->best;
        if (!is_candidate(field, value, now))
            continue;
        plan.value[field] = value;
        tuned_plan_format(&plan, text, sizeof text);
        if (!is_among(&s->seen, text) && !is_among(&s->ahead, text))
            remember(out, text);
    }
}

/* The plans of a field, if they are not made yet; threads that they leave idle make those of the next
** fields, which are tried unless this field helps. */
static void make_ahead(struct search *s, int field)
{
    struct tune_plans plans;
    int room = s->most - s->found->tried;
    plans.count = 0;
    if (s->threads < 2)
        return;
    add_plans(s, (enum plan_field)field, room, &plans);
    room = room < s->threads ? room : s->threads;
    for (int next = field + 1; next < PLAN_FIELDS && plans.count; next++)
        add_plans(s, (enum plan_field)next, room, &plans);
    for (int i = 0; i < plans.count; i++)
        remember(&s->ahead, plans.text[i]);
    tune_ahead(s->b, &plans, s->threads);
}

/* One field's other values; 1 in *better if one of them is faster. */
static kvk_status try_field(struct search *s, enum plan_field field, int *better)
{
    int now = current(&s->found->rule_run, &s->best, field);
    struct tuned_plan fastest = s->best;
    make_ahead(s, field);
    for (int value = 0; value <= WARPS_MOST && s->found->tried < s->most; value++) {
        struct tuned_plan plan = s->best;
        struct trial t;
        if (!is_candidate(field, value, now))
            continue;
        plan.value[field] = value;
        if (is_known(s, &plan))
            continue;
        kvk_status status = time_plan(s, &plan, s->best_ms, &t);
        if (status)
            return status;
        if (t.ms < 0 && field == PLAN_min_ctas) /* refused: so are the greater ones */
            break;
        if (t.ms < 0)
            continue;
        char text[TUNED_PLAN_BYTES];
        tuned_plan_format(&plan, text, sizeof text);
        say(text, &t.result, t.left ? "left early" : t.ms < s->best_ms ? "faster" : "");
        if (!t.left && t.ms < s->best_ms) {
            s->best_ms = t.ms;
            fastest = plan;
            *better = 1;
        } else if (field == PLAN_min_ctas && value > now && t.ms > 1.1 * s->best_ms) {
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
        struct trial t;
        double *least = i % 2 ? best_ms : rule_ms;
        kvk_status status = time_plan(s, i % 2 ? &s->best : &rules, 0, &t);
        if (status)
            return status;
        *least = t.ms > 0 && t.ms < *least ? t.ms : *least;
    }
    s->found->tried = tried;
    return KVK_OK;
}

static kvk_status search(struct search *s)
{
    kvk_status status = KVK_OK;
    for (int better = 1; better && !status;) {
        better = 0;
        for (int field = 0; field < PLAN_FIELDS && !status; field++)
            status = try_field(s, (enum plan_field)field, &better);
    }
    return status;
}

kvk_status tune_search(struct bench *b, const struct device *device, long repeats, int most,
                       double margin, struct tune_found *out, kvk_error *err)
{
    struct search s = {.b = b,
                       .device = device,
                       .repeats = repeats,
                       .most = most,
                       .threads = tune_threads(),
                       .found = out,
                       .err = err};
    struct trial rules;
    char text[TUNED_PLAN_BYTES];
    memset(out, 0, sizeof *out);
    nothing(&s.best);
    nothing(&out->best);
    kvk_status status = time_plan(&s, &s.best, 0, &rules);
    out->rule_run = rules.result;
    s.best_ms = rules.ms;
    if (status || s.best_ms < 0)
        return status;
    out->rule_ms = out->best_ms = s.best_ms;
    say("", &out->rule_run, "");
    status = search(&s);
    if (status || !tuned_plan_format(&s.best, text, sizeof text))
        return status;
    status = confirm(&s, &out->rule_ms, &out->best_ms);
    if (!status && out->best_ms < (1 - margin) * out->rule_ms)
        out->best = s.best;
    return status;
}
