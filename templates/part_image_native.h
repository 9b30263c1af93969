/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_image_native.h - a step's codes from an image of a page of the native layout: whole units, lanes side by side, and what a
** lane reads is its operands. Codes of 2 and 3 bits come as nibbles whose upper bits may be anything.
*/
#ifndef KVKILN_PART_IMAGE_NATIVE_H
#define KVKILN_PART_IMAGE_NATIVE_H

#include "part_attend.h"

/* Is that how this warp's steps are read? */
bool image_is_native(const struct attend *a);
/* Do values come as words of pairs of tokens? */
bool image_in_pairs(const struct attend *a);
/* The keys of a subtile's 16 tokens, to c->key[sub]; the values, to c->value[sub][0]: the words of pair 0, then of pair 1. block:
** the head block in the image. */
void image_native_keys(struct kb *k, const struct attend *a, val block, int sub, struct attend_codes *c);
void image_native_values(struct kb *k, const struct attend *a, val block, int sub, struct attend_codes *c);
/* Words of a subtile's values. */
int image_native_words(const struct attend *a);
/* Dims 4w ... 4w + 3 of a pair of tokens: that word of them. */
val image_native_word(const struct attend *a, const val *words, int pair, int dim);

#endif
