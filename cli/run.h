/* SPDX-License-Identifier: Apache-2.0 */
/*
** run.h - a sample on a device: its pool and tables in device memory, and each kind run on them.
**
** Outputs are filled with 0xFF (NaN) before a launch, so that an element nobody wrote cannot pass.
*/
#ifndef KVKILN_CLI_RUN_H
#define KVKILN_CLI_RUN_H

#include "sample.h"

struct run {
    kvk_context *ctx;
    const struct sample *sample;
    const kvk_kernels *kernels;
    struct kvk_layout layout;
    struct kvk_pool pool;
    size_t pool_bytes;
    int32_t *table, *lengths; /* device */
    void *workspace;
    size_t workspace_bytes;
    void *kept[16]; /* device memory to free */
    int nkept;
};

/* Prepares `spec` with the sample's geometry in `layout` and
 * allocates pool (contents undefined), tables and workspace. */
kvk_status run_open(struct run *run, kvk_context *ctx, const struct sample *sample,
                    const char *spec, const char *layout, unsigned kinds, kvk_error *err);
void run_close(struct run *run);

/* Fills the pool with 0xA5 and stores the sample's rows. */
kvk_status run_store(struct run *run, kvk_error *err);

/* The whole pool, from and to host memory of pool_bytes. */
kvk_status run_pool_download(struct run *run, unsigned char *host, kvk_error *err);
kvk_status run_pool_upload(struct run *run, const unsigned char *host, kvk_error *err);

/* One attention launch. query and out: host memory, [rows][H][D] of the sample's dtype. */
struct run_attend {
    const void *query;
    void *out;
    long rows; /* decode: sequences */
    long window;
    int with_sinks;
    int time_repeats; /* 0: not timed */
    double ms;        /* out: best of the repeats */
};
kvk_status run_decode(struct run *run, struct run_attend *attend, kvk_error *err);
kvk_status run_unified(struct run *run, struct run_attend *attend, kvk_error *err);

/* Host outputs [total][G][D] of the dequant dtype; keys stay rotated. */
kvk_status run_dequant(struct run *run, void *key, void *value, kvk_error *err);

#endif
