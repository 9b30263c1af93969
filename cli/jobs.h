/* SPDX-License-Identifier: Apache-2.0 */
/*
** jobs.h - from lists on a command line to kernels: every combination of spec, target, kind, layout
** and geometry.
*/
#ifndef KVKILN_CLI_JOBS_H
#define KVKILN_CLI_JOBS_H

#include "../runtime/tuned.h"

#include <argp.h>

enum { JOBS_LIST = 64, JOBS_SPECS = 256 };

struct text_list {
    char *items[JOBS_LIST];
    int count;
};

struct number_list {
    long items[JOBS_LIST];
    int count;
};

/* As parsed by jobs_argp; an empty list means the default. */
struct job_lists {
    char *specs[JOBS_SPECS];
    int nspecs;
    struct text_list targets, kinds, layouts, dtypes;
    struct number_list head_sizes, value_head_sizes, gqas, pages;
    struct number_list options; /* sets of kvk_option_bits, for decode and unified */
    const char *spec_dir;
    const char *plan; /* of decode and unified; NULL: what the tuned tables say */
};

/* Parser of the options and of SPEC..., to be used as a child:
 * its input is the struct job_lists. */
extern const struct argp jobs_argp;

struct job {
    struct gen_request request; /* spec_text belongs to the jobs */
    const char *spec, *family;
    char *name; /* of the kernel; NULL when it cannot be one: `error` says why */
    char *error;
    struct tuned tuned; /* what request.plan and plan_source point at (set when all jobs stand) */
};

struct jobs {
    struct job *items;
    int count;
    char **texts;       /* canonical texts, one a spec, NULL where it could not be read */
    char **spec_errors; /* one a spec, NULL where it could be read; also reported on stderr */
    int ntexts;
    int failed_specs;
    int failed_tables; /* jobs whose tuned table could not be read: job.error says why */
};

enum jobs_default {
    JOBS_ALL,
    JOBS_ONE
}; /* kinds and layouts left out: all there are, or decode and the spec's first */

/* 1, or 0 after a message (an unknown target). Job by job problems are in job.error. */
int jobs_make(const struct job_lists *lists, const struct gen_api *api, enum jobs_default left_out,
              struct jobs *out);
void jobs_free(struct jobs *jobs);

/* Is this the name of one target? 0 after a message that tells all of them. */
int jobs_target(const char *name, const struct gen_api *api);

/* "soa sm_90a head size 80 ..." for messages, malloc'd. */
char *job_describe(const struct job *job);

/* Value of the line "field value" of a canonical spec text: 1 and a copy, or 0. */
int spec_text_get(const char *text, const char *field, char *value, size_t cap);

#endif
