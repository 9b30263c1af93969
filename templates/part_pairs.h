/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_pairs.h - cached vectors that few lanes of a warp share, back to rows of 16 bits.
*/
#ifndef KVKILN_PART_PAIRS_H
#define KVKILN_PART_PAIRS_H

#include "part_rowpair.h"
#include "part_slot.h"

enum { PAIR_TURNS_MAX = 4 };

/* A lane's (row, head), plan->pair_turns of them; one that does not exist has some token's place, and is not written. */
struct pairs {
    int n;
    struct rowpair at[PAIR_TURNS_MAX];
    val row[PAIR_TURNS_MAX], exists[PAIR_TURNS_MAX];
    struct slot_head head[PAIR_TURNS_MAX];
    struct slot_token token[PAIR_TURNS_MAX];
};

/* Both sides, each if the caller gave a tensor for it. */
void pairs_write(struct kb *k, const struct pairs *p);

#endif
