/* SPDX-License-Identifier: Apache-2.0 */
/* bench_suite.h - `kvkiln bench suite`: the rows of bench_goals.def, run and reported. */
#ifndef KVKILN_CLI_BENCH_SUITE_H
#define KVKILN_CLI_BENCH_SUITE_H

#include "bench_time.h"

#include <stdio.h>

enum goal_measure { SHARE, MICROSECONDS, SMALL, TFLOPS, AGAINST_EVEN, AGAINST_ONE };
enum goal_state { GOAL_NOT_RUN, GOAL_MET, GOAL_UNMET, GOAL_NO_LAYOUT, GOAL_WRONG, GOAL_ERROR };

struct goal {
    const char *group;
    const struct bench_kind *kind;
    const char *preset, *layout;
    int head_size, gqa;
    const char *context;
    int query_tokens, full;
    enum goal_measure measure;
    double goal;
};

struct goal_row {
    const struct goal *goal;
    enum goal_state state;
    double value, limit; /* in the measure's unit */
    struct bench_result result;
    json_t *json;        /* bench_json of the run, NULL: none */
    char sequences[64]; /* as run: small on a host */
    char error[200];
};

struct suite {
    struct device device;
    struct goal_row *rows;
    int count, quick;
    double copy_gbs, copy_gbs_end, seconds;
};

/* argv[0] is "kvkiln bench suite"; returns an exit code. */
int bench_suite(int argc, char **argv);

/* ---- bench_suite_report.c ---- */
/* On a CPU a goal is neither met nor missed. */
const char *suite_state_name(const struct suite *suite, enum goal_state state);
void suite_print_row(const struct suite *suite, const struct goal_row *row);
void suite_markdown(const struct suite *suite, FILE *out);
json_t *suite_json(const struct suite *suite);

#endif
