/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_place.h - what a CTA of decode works on: KV heads and query rows of one sequence, and a part of its tokens.
*/
#ifndef KVKILN_PART_PLACE_H
#define KVKILN_PART_PLACE_H

#include "part_image.h"
#include "part_rows.h"

/* All i32 and, but for rows.head, CTA-uniform. */
struct place {
    struct rows rows;
    val split, sequence, length;
    struct image image; /* where the plan has images: a CTA then takes some KV heads at once */
};

/* From the CTA's number alone. */
struct place place_find(struct kb *k);
/* Cached tokens of its sequence. */
val place_length(struct kb *k, const struct place *w);
/* Visible keys of the lane's rows; [start, end) of this split, no further than any row sees. */
void place_range(struct kb *k, struct attend *a, const struct place *w, val *start, val *end);

#endif
