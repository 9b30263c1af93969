/* SPDX-License-Identifier: Apache-2.0 */
/*
** sample.h - cases whose shape, format, options and lengths all follow from a seed and a number.
*/
#ifndef KVKILN_TESTS_SAMPLE_H
#define KVKILN_TESTS_SAMPLE_H

#include "world.h"

enum { SAMPLE_CORE = 40, SAMPLE_FULL = 2000, SAMPLE_NAME = 48 };

enum sample_kind {
    SAMPLE_STORE,
    SAMPLE_DEQUANT,
    SAMPLE_COPY,
    SAMPLE_MERGE,
    SAMPLE_COMPILE, /* for a GPU that need not be there */
    SAMPLE_DECODE,
    SAMPLE_UNIFIED
};

struct sample {
    enum sample_kind kind;
    struct num_model model;
    char name[SAMPLE_NAME]; /* of the spec, if it is no preset */
    struct ref_spec spec;
    int variant;    /* of the body; of SAMPLE_COMPILE what is compiled */
    int many;       /* tokens */
    int may_refuse; /* the shape is more than is promised */
    int sequences, lengths[NUM_MAX_SEQUENCES], q_len[NUM_MAX_SEQUENCES];
    enum world_pool pool;
    int window, splits, strided, spare_rows, no_lse, sinks, full, table_64, batch_invariant;
    float scale, soft_cap;
};

/* --- sample.c --- */
void sample_draw(uint64_t seed, int number, struct sample *out);
num_body sample_run; /* variant: the sample's number */
/* Samples 0 .. n-1 behind the cases; they belong to --full from number `core` on. */
struct num_case *sample_cases(struct num_case *cases, size_t *count, uint64_t seed, int n,
                              int core);

/* --- sample_compile.c --- */
/* The kernel of a sample for the target that its variant chooses. */
void sample_compile(struct num_run *run, const struct sample *s);

/* --- sample_spec.c --- */
/* A preset, or two codecs that need not have met; `attends`: one that attention takes. */
void sample_spec(struct num_random *r, struct sample *s);

#endif
