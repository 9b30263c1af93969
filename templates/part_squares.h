/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_squares.h - lengths of values whose norm is corrected when read.
*/
#ifndef KVKILN_PART_SQUARES_H
#define KVKILN_PART_SQUARES_H

#include "part_attend.h"

/* Of one token in a warp's scratch; sums of squares of values lie behind all of these. */

/* Sums of squares of codes, and what of a lane's dims others count. Before the CTA's barrier. */
void attend_squares_table(struct kb *k, struct attend *a, const float *centroids);
/* Of a token's dims that other warps hold; NULL if there are none. `step`: as of attend_load_run. */
val attend_other_squares(struct kb *k, const struct attend *a, const struct slot_token *token, int step);
/* Of all tokens of a step, into the warp's scratch; then 1 / length of one of them. */
void attend_value_squares(struct kb *k, const struct attend *a, const struct attend_codes *c);
val attend_inverse_length(struct kb *k, const struct attend *a, val token);

/* part_tables.c: n words to shared memory, by the whole CTA. */
val attend_copy_table(struct kb *k, const char *name, const void *words, int n);
/* part_codes.c: `run` codes of a side from element `first` on, a multiple of `step`, and the block scales they need. */
void attend_load_run(struct kb *k, const struct attend *a, const struct slot_token *token,
                     const struct side *side, val first, int run, int step, val *words, val *scales);

#endif
