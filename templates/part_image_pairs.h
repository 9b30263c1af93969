/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_image_pairs.h - steps of soa images whose values come in pairs of tokens (plan->value_pairs).
**
** A load that transposes (matrix_ops.load_pairs) takes 16 bytes from each of 8 rows, to which lanes 8m to 8m + 7 point, and gives a
** lane, as its word m, bytes 2y and 2y + 1 of rows k_index(0) and k_index(1): a word of a pair of tokens, as images of native
** pages have them. 16 bytes begin at multiples of 16. Its rows are operand rows n .. n + 7, so they
** must begin in different banks. Groups of four tokens lie 32 bytes apart (modulo 128) and the step's second page
** PAIRS_PAGE_BYTES after its place: eight operand rows are a token of each of the step's eight groups, and the row eight on is
** the group's next token.
*/
#ifndef KVKILN_PART_IMAGE_PAIRS_H
#define KVKILN_PART_IMAGE_PAIRS_H

#include "part_image.h"

/* Of operand row `row` (i32): its token of the step. */
val pairs_token(struct kb *k, const struct plan *p, val row);
/* Fills tokens and places of v, which are those of pairs. */
void pairs_begin(struct kb *k, struct attend *v, const struct image *im);
/* Codes of product `sub`: key runs of its rows, words of its pairs of values; first: any token. */
void pairs_keys(struct kb *k, const struct attend *a, const struct slot_token *first, int sub, struct attend_codes *c);
void pairs_values(struct kb *k, const struct attend *a, int sub, struct attend_codes *c);

#endif
