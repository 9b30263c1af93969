/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_reference.h - the running reference of the softmax, and the sums that follow it.
*/
#ifndef KVKILN_PART_REFERENCE_H
#define KVKILN_PART_REFERENCE_H

#include "part_attend.h"

/* The sums before any token. */
void attend_clear(struct kb *k, const struct attend *a, struct attend_sums *s);
/* Before a step's weights: moves the references of rows that need it, with all their sums. most[row]: the largest of the lane's
** scores + log scale; reference[row]: what to subtract from a score, never infinite where a key is visible. */
void attend_reference(struct kb *k, const struct attend *a, const val *most, struct attend_sums *s,
                      val *reference);
/* With plan->lazy_reference its parts: i1: must a row's reference move for `most`? Is it time to take the middle off the sums
** (NULL: never)? Then, where one lane says so, by all of a warp: references that reach most[], sums under them, centred. */
val attend_is_above(struct kb *k, int row, val most, const struct attend_sums *s);
val attend_centring_due(struct kb *k, const struct attend *a, val start);
void attend_move_reference(struct kb *k, const struct attend *a, const val *most, struct attend_sums *s);
/* Sums after a branch, `before` being those where it was not taken. */
void attend_merge_sums(struct kb *k, const struct attend *a, const struct kb_if *taken, struct attend_sums *s,
                       const struct attend_sums *before);
/* x: weights as an operand. Their sums times the middle code, by the matrix unit itself: so they lose what the sums of codes
** lose. Nothing where codes are centred one by one. */
void attend_gain_middle(struct kb *k, const struct attend *a, const val *x, struct attend_sums *s);
/* Takes the middle off the output sums, so that they can be kept. */
void attend_centre(struct kb *k, const struct attend *a, struct attend_sums *s);
/* The same for rows that are finished: takes it off z, once that is summed over the lanes. */
void attend_close_middle(struct kb *k, const struct attend *a, struct attend_sums *s);
/* References of rows without any key become -inf. */
void attend_close_reference(struct kb *k, const struct attend *a, struct attend_sums *s);

#endif
