/* SPDX-License-Identifier: Apache-2.0 */
/*
** prepare.h - the kernels of one kvk_prepare, and getting them: prepare_run.c.
*/
#ifndef KVKILN_PREPARE_H
#define KVKILN_PREPARE_H

#include "context.h"

/* One kernel that the prepare needs. */
struct job {
    int wanted;
    struct gen_request request;
    char *key;
    struct kernel *kernel;
    int mine, done;          /* claimed by this prepare; already built, or failed */
    kvk_status status;
    kvk_error error;
    double ms;
};

struct prepare {
    kvk_context *ctx;
    struct job jobs[KIND_COUNT];
    int total, reported;     /* kernels wanted, and those the callback knows of */
    int cancelled;           /* only the calling thread reads and writes these three */

    pthread_mutex_t mutex;   /* over the fields below */
    pthread_cond_t changed;  /* a build has ended */
    int next, stop;          /* the crew takes no further job */
    int ended[KIND_COUNT], nended;
};

/* Sets every wanted job's kernel, or its status and error. Returns when no thread of it is left. */
void prepare_run(struct prepare *prepare);

#endif
