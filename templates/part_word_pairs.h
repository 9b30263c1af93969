/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_word_pairs.h - values of the aos layout in images, by loads that transpose (plan->value_pairs without plan->turned).
**
** A load takes 16 bytes of each of eight tokens, from a multiple of 16, and gives lane y their y'th two bytes: four codes of two
** tokens, put together. A head's codes begin anywhere in 16 bytes, but by whole pairs of bytes, and where rows are a multiple of
** 16 bytes apart at the same place in all of them: so the row is read from the multiple before, one load more, whose lanes below
** the first pair take the place of what comes before the codes. The dims of a lane are turned by as many pairs, and output dims
** are named in that order. Where rows are not so far apart, words come as in part_words.h and are put together two by two; their
** dims lie otherwise.
*/
#ifndef KVKILN_PART_WORD_PAIRS_H
#define KVKILN_PART_WORD_PAIRS_H

#include "part_attend.h"

/* v->words of the head `member`, once words_begin has been called; row: i32 bytes to the token of the lane's row (lane % 8). */
void word_pairs_begin(struct kb *k, struct attend *v, val member, val row);
/* The lane's row of a load: i32. */
val word_pairs_row(struct kb *k);
/* Words of all subtiles: [half of its tokens][16 bytes]. */
void word_pairs_load(struct kb *k, const struct attend *a, struct attend_codes *c);
/* Of whole words of a step's tokens (part_words.h) what word_pairs_load gives. */
void word_pairs_join(struct kb *k, const struct attend *a, struct attend_codes *c);
/* The value dim of dim d (i32) of lane y's run, of the head `member`. */
val word_pairs_dim(struct kb *k, const struct plan *p, val member, val y, val d);
/* Can rows of an image be read so? i1, uniform. */
val word_pairs_fit(struct kb *k);

#endif
