/* SPDX-License-Identifier: Apache-2.0 */
/* check_read.h - what the kernels read out of a cache, against a sample's reference outputs. */
#ifndef KVKILN_CLI_CHECK_READ_H
#define KVKILN_CLI_CHECK_READ_H

#include "compare.h"
#include "run.h"

/* Relative L2 that outputs of this dtype may have. */
double check_output_limit(kvk_dtype dtype);

/* Kinds that the sample's outputs need (KVK_DECODE,
 * KVK_UNIFIED), and KVK_DEQUANT if it has such tensors. */
unsigned check_output_kinds(const struct sample *sample);
unsigned check_dequant_kinds(const struct sample *sample);

/* A cache of ours that is not the sample's own, on the host:
 * its codes may differ here and there from the sample's. */
struct check_pool {
    const struct slots *slots;
    const unsigned char *bytes;
};

/* What run's pool holds is read: the sample's own cache, or `ours` if that is not NULL. Then the
 * sample's outputs are moved by what the two caches' differences make in double precision, so that
 * the limits need not grow. */
kvk_status check_dequant(struct run *run, const struct check_pool *ours, struct comparisons *all,
                         kvk_error *err);

/* decode_out, unified_out and its variants; `suffix` is
 * appended to the names, `limit` is the relative L2. */
struct check_rule {
    const char *suffix;
    double limit;
    const struct check_pool *ours;
};
kvk_status check_outputs(struct run *run, const struct check_rule *rule, struct comparisons *all,
                         kvk_error *err);

#endif
