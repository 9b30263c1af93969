/* SPDX-License-Identifier: Apache-2.0 */
/* tune.h - the parts of `kvkiln tune`: searching plans of one shape, and the table that keeps them. */
#ifndef KVKILN_CLI_TUNE_H
#define KVKILN_CLI_TUNE_H

#include "bench_time.h"

#include "../runtime/tuned.h"

/* One shape's outcome. */
struct tune_found {
    struct tuned_plan best;        /* what differs from the rules; all TUNED_RULE: nothing is faster */
    struct bench_result rule_run;  /* by rules alone */
    double rule_ms, best_ms;       /* the two in turns, at the end */
    int tried, refused, wrong;     /* plans: timed, not possible, with a wrong output */
    int left;                      /* of those timed: so slow that a few repeats were enough */
};

/* Times plans of an open bench: from the rules' plan on, one field at a time, until no field helps, at most `most` plans. Each is
** verified before it is timed, and left early if it is far slower than the best so far. A plan is better if it is faster by
** `margin` (0.02 = 2 %), in turns with the rules' plan at the end. */
kvk_status tune_search(struct bench *b, const struct device *device, long repeats, int most, double margin,
                       struct tune_found *out, kvk_error *err);

/* ---- tune_ahead.c ---- */
enum { TUNE_PLANS = 256, TUNE_THREADS_MOST = 16 };
struct tune_plans {
    char text[TUNE_PLANS][TUNED_PLAN_BYTES];
    int count;
};
/* Makes the kernels of these plans, `threads` at a time, so that bench_replan finds them made. Says so on stderr. */
void tune_ahead(const struct bench *b, const struct tune_plans *plans, int threads);
int tune_threads(void); /* as many as there are CPUs, TUNE_THREADS_MOST at most */

/* ---- tune_table.c ---- */
/* The row of a bench's shape; its plan is empty. */
void tune_row(const struct bench *b, const char *spec_text, struct tuned_row *out);
/* Puts a row in the place of one that matches the same, or takes that one out if the plan is empty. */
void tune_merge(struct tuned_table *table, const struct tuned_row *row);
/* A missing file is an empty table. */
kvk_status tune_load(const char *path, struct tuned_table *out, kvk_error *err);
/* Sorted, by paths_write. 1, or 0 with *error malloc'd. */
int tune_save(const char *path, struct tuned_table *table, char **error);

#endif
