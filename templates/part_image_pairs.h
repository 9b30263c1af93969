/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_image_pairs.h - steps of soa images whose values come in pairs of tokens (plan->value_pairs).
**
** A load that transposes (matrix_ops.load_pairs) takes 16 bytes from each of 8 rows, to which lanes 8m to 8m + 7 point, and gives a
** lane, as its word m, bytes 2y and 2y + 1 of rows k_index(0) and k_index(1): a word of a pair of tokens, as images of native
** pages have them. Its rows must begin in different banks, and those of a head's tokens all begin in the same.
**
** So the records of a CTA's heads of a page come as [part][token][128 bytes], and the units of 16 bytes of a row are
** exclusive-ored with the last bits of its token, as a tensor copy of such a box does by itself (PTX ISA, "Swizzling modes");
** the fields of all slots lie behind all rows. A lane's places are the same in all steps: they are made once and held.
*/
#ifndef KVKILN_PART_IMAGE_PAIRS_H
#define KVKILN_PART_IMAGE_PAIRS_H

#include "part_image.h"

/* Sizes of im, from im->heads. */
void pairs_sizes(struct kb *k, struct image *im);
/* Where fields lie: of all groups' slots, from im->all on. */
val pairs_fields(struct kb *k, const struct image *im);
/* What the copies of a step bring, i32. */
val pairs_bytes(struct kb *k, const struct image *im);
/* Bytes from the rows of a page to byte `at` (i32) of the records of a token. */
val pairs_place(struct kb *k, val token, val at);
/* Of operand row `row` (i32): its token of the step. */
val pairs_token(struct kb *k, val row);
/* Fills tokens and places of v, which are those of pairs. */
void pairs_begin(struct kb *k, struct attend *v);
/* By one thread: the copies of page number `page` to the `u`th page of the slot that begins `slot` bytes on, the `index`th. */
void pairs_copy(struct kb *k, const struct attend *a, const struct image *im, val page, int u, val slot,
                val index, val bar);
/* Codes of product `sub`: key runs of its rows, words of its pairs of values. */
void pairs_keys(struct kb *k, const struct attend *a, int sub, struct attend_codes *c);
void pairs_values(struct kb *k, const struct attend *a, int sub, struct attend_codes *c);

#endif
