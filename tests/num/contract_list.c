/* SPDX-License-Identifier: Apache-2.0 */
/*
** contract_list.c - which models each promise is held against: a few whose kernels the other cases
** compile anyway.
*/
#include "contract.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MODELS = 6 };

struct claim {
    const char *name;
    num_body *body;
    int models; /* the first so many */
};

static const struct claim claims[] = {
    {"workspace_is_a_formula", contract_workspace, 2},
    {"workspace_does_not_grow_with_context", contract_workspace_formula, 2},
    {"ragged_batches_are_spread", contract_ragged, 3},
    {"mixed_batch_gives_what_each_gives_alone", contract_mixed_batch, 2},
    {"windows_of_the_length_of_the_context", contract_windows, MODELS},
    {"scores_of_ten_thousand", contract_large_scores, MODELS},
    {"values_of_any_size", contract_values, 4},
    {"a_bad_token_spreads_to_no_other_sequence", contract_poisoned_token, MODELS},
    {"nothing_is_ignored", contract_no_silent_fallback, 2},
    {"rows_of_a_fused_projection", contract_fused_rows, MODELS},
    {"layers_in_one_allocation", contract_layers, MODELS},
    {"page_numbers_above_2100", contract_page_numbers, 2},
    {"last_slot_of_the_last_page", contract_last_slot, MODELS},
};
enum { CLAIMS = sizeof claims / sizeof *claims };

static const struct {
    const char *spec;
    enum ref_layout layout;
    int d, gqa, kv_heads, page;
    kvk_dtype dtype;
} models[MODELS] = {
    {"turboquant_4bit_nc", REF_AOS, 64, 4, 2, 16, KVK_BFLOAT16},
    {"turboquant_3bit_nc", REF_SOA, 128, 3, 1, 64, KVK_FLOAT16},
    {"turboquant_k3v4_nc", REF_AOS, 64, 4, 2, 16, KVK_BFLOAT16},
    {"ultraquant_4bit", REF_AOS, 64, 4, 2, 16, KVK_BFLOAT16},
    {"fp16", REF_AOS, 128, 4, 2, 32, KVK_BFLOAT16},
    {"bf16", REF_AOS, 64, 3, 2, 16, KVK_BFLOAT16},
};

static void add(struct num_case *c, const char *name, num_body *body, const struct num_model *m,
                int variant)
{
    *c = (struct num_case){.model = *m, .body = body, .variant = variant};
    snprintf(c->name, sizeof c->name, "%s/%s.%s.d%d.g%d.%s.p%d", name, m->spec->name,
             ref_layout_name(m->layout), m->d, m->gqa, m->dtype == KVK_FLOAT16 ? "fp16" : "bf16",
             m->page);
}

struct num_case *contract_cases(struct num_case *cases, size_t *count)
{
    cases = realloc(cases, (*count + CLAIMS * MODELS) * sizeof *cases);
    if (!cases)
        abort();
    for (int i = 0; i < CLAIMS; i++)
        for (int k = 0; k < claims[i].models; k++) {
            const struct num_model m = {ref_spec_find(models[k].spec),
                                        models[k].layout,
                                        models[k].d,
                                        models[k].d,
                                        models[k].gqa,
                                        models[k].kv_heads,
                                        models[k].page,
                                        models[k].dtype,
                                        models[k].dtype,
                                        0};
            add(&cases[(*count)++], claims[i].name, claims[i].body, &m, 0);
        }
    return cases;
}
