/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_place.h - what a CTA of decode works on: KV heads and query rows of one sequence, and a part of its tokens.
*/
#ifndef KVKILN_PART_PLACE_H
#define KVKILN_PART_PLACE_H

#include "part_arrive.h"
#include "part_image.h"
#include "part_rows.h"
#include "part_spread.h"

/* All i32 and, but for rows.head, CTA-uniform. */
struct place {
    struct rows rows;
    val block, blocks; /* of KV heads: which of them, how many */
    val slot;    /* of a part of a sequence: its place in the grid */
    val rank;    /* of the CTA in its cluster: neighbouring slots of one tile and block are one */
    struct share share;
    val tile, tiles; /* of query rows of a sequence and a KV head */
    struct image image; /* where the plan has images: a CTA then takes some KV heads at once */
    val kept; /* shared: what place_again reads */
};

/* From the CTA's number alone: heads, rows, slot. */
struct place place_find(struct kb *k);
/* The rest. By all threads, outside any branch; a CTA with nothing to do ends here. */
void place_look_up(struct kb *k, struct place *w, const struct spread *s);
/* For the reduction: where the sequence's partial results begin, and how many splits they are of. */
void place_tell(struct kb *k, const struct place *w);
/* What is needed after the work, into shared memory and back (a CTA barrier between): registers of the steps are not for it. */
void place_keep(struct kb *k, struct place *w);
void place_again(struct kb *k, struct place *w);
/* plan->neighbours: before the work, and after. */
void place_arrive(struct kb *k, const struct place *w);
struct mates place_mates(struct kb *k, const struct place *w);
/* Visible keys of the lane's rows; [start, end) of this split, no further than any row sees. */
void place_range(struct kb *k, struct attend *a, const struct place *w, const struct spread *s, val *start, val *end);

#endif
