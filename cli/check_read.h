/* SPDX-License-Identifier: Apache-2.0 */
/* check_read.h - what the kernels read out of a cache, against a sample's reference outputs. */
#ifndef KVKILN_CLI_CHECK_READ_H
#define KVKILN_CLI_CHECK_READ_H

#include "compare.h"
#include "run.h"

/* Relative L2 that outputs of this dtype may have. */
double check_output_limit(kvk_dtype dtype);

/* Kinds that the sample's outputs need (KVK_DECODE, KVK_UNIFIED), and KVK_DEQUANT if it has such tensors. */
unsigned check_output_kinds(const struct sample *sample);
unsigned check_dequant_kinds(const struct sample *sample);

/* Both read run's pool. `own`: the pool is the sample's own cache, so that exact rules hold. */
kvk_status check_dequant(struct run *run, int own, struct comparisons *all, kvk_error *err);

/* decode_out, unified_out and its variants; `suffix` is appended to the names, `limit` is the relative L2. */
kvk_status check_outputs(struct run *run, const char *suffix, double limit, struct comparisons *all, kvk_error *err);

#endif
