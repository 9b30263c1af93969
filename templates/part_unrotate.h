/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_unrotate.h - finished sums of rotated values to the values' own basis.
*/
#ifndef KVKILN_PART_UNROTATE_H
#define KVKILN_PART_UNROTATE_H

#include "part_attend.h"

struct unrotate {
    val buffer;           /* shared: plan_turn_bytes for the warps that share the rows */
    val member;           /* i32: this warp's place among these `members` warps */
    int members;
    val rows;             /* i32: rows of the tile that exist, or more */
};
void attend_unrotate(struct kb *k, const struct attend *a, const struct unrotate *u, struct attend_sums *s);

#endif
