/* SPDX-License-Identifier: Apache-2.0 */
/*
** contract_ragged.c - decodes whose sequences are of very different lengths: each takes splits in
** proportion, found on the device, and whatever the lengths are, every token counts once.
*/
#include "contract.h"

#include <string.h>

enum { MANY = 40 };

static void check(struct num_run *run, const struct num_case *c, const int *lengths, int sequences)
{
    uint64_t seed = num_case_seed(run, c);
    struct world_options o = {.lengths = lengths,
                              .sequences = sequences,
                              .data_seed = seed,
                              .page_seed = seed,
                              .poison = 0xFF};
    struct world w;

    world_make(run, &w, &c->model, &o);
    for (int variant = 0; variant < (sequences == MANY ? 2 : 4); variant++) {
        struct attention a = {.w = &w, .window = variant == 1 ? 300 : 0};
        for (int s = 0; s < sequences; s++)
            a.q_len[s] = variant == 3 ? 16 : variant == 2 ? 3 : 1; /* 16: few slots */
        if (variant == 2)
            a.max_context = 4000; /* no more than a bound */
        attention_rows(&a);
        attention_query(run, &a, seed + (uint64_t)variant);
        attention_call(run, &a);
        attention_check(run, &a);
    }
}

void contract_ragged(struct num_run *run, const struct num_case *c)
{
    static const int one[] = {1111}, equal[] = {1400, 1400, 1400}, empty[] = {0, 0, 1300, 0};
    static const int few[] = {2500, 40, 0, 700, 33, 1};
    int many[MANY], descending[MANY];

    check(run, c, one, 1);
    check(run, c, equal, 3);
    check(run, c, empty, 4);
    check(run, c, few, 6);
    for (int s = 0; s < MANY; s++) {
        many[s] = s == 35 ? 2200 : 20 + s * 7 % 90;
        descending[s] = 1000 - 25 * s;
    }
    check(run, c, many, MANY); /* more sequences than lanes look at once */
    check(run, c, descending, MANY);
}
