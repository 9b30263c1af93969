/* SPDX-License-Identifier: Apache-2.0 */
/* contract.h - the promises of kvkiln.h as cases, each on a few models. */
#ifndef KVKILN_TESTS_CONTRACT_H
#define KVKILN_TESTS_CONTRACT_H

#include "world.h"

/* contract.c */
num_body contract_workspace, contract_workspace_formula, contract_mixed_batch, contract_windows,
    contract_large_scores, contract_values, contract_poisoned_token, contract_no_silent_fallback;

/* contract_ragged.c */
num_body contract_ragged;

/* contract_memory.c */
num_body contract_fused_rows, contract_layers, contract_page_numbers, contract_last_slot;

/* check_store.c: kvk_store of the world's rows gives the world's bytes. */
void check_store_world(struct num_run *run, struct world *w, uint64_t seed);
/* kvk_store of the world's rows into any pool. */
void check_store_into(struct num_run *run, const struct world *w, struct kvk_pool pool);
/* check_dequant.c: kvk_dequant of the world gives what the oracle reads there. */
void check_dequant_world(struct num_run *run, const struct world *w, int rotate_back);

/* contract_list.c: appends the cases. */
struct num_case *contract_cases(struct num_case *cases, size_t *count);

#endif
