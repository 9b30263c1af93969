/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_words.h - rows of the aos layout in images, read by aligned words (plan->key_words, value_words).
**
** Lane y (or group c) of n that share a row takes its words y, y + n, y + 2n, ...: lanes side by side read words
** side by side. A slot is a whole number of pairs of bytes, so codes begin at a word or in its middle; in an
** image whose rows are a multiple of 4 bytes apart that depends on the head alone. In its middle, a side's words
** begin two bytes behind its codes, and the two bytes left out are copied over the field behind the last code,
** which was loaded before: the words hold all codes, turned by two bytes. So does the query's row in shared
** memory, and output dims are named in that order. Where rows alternate (one head of such a slot), words are
** shifted together, and nothing is turned.
*/
#ifndef KVKILN_PART_WORDS_H
#define KVKILN_PART_WORDS_H

#include "part_attend.h"

/* Bytes from the codes of a side to its first word: 0 or 2. member: i32, the head among the CTA's. */
val words_turn(struct kb *k, const struct side *side, val member);
/* Where an element of a key row stands in the order in which lanes read it: all i32. */
val words_place(struct kb *k, const struct plan *p, val turn, val element);
/* The value dim of dim d (i32) of lane y's run; where values come in pairs (part_image_pairs.h), a token has half a word. */
val words_dim(struct kb *k, const struct plan *p, val turn, val y, val d);
/* Elements that stay together, neighbours, in both. */
int words_unit(const struct side *side);

/* v->words, of the head `member`. */
void words_begin(struct kb *k, struct attend *v, val member);
/* v->rows_8: bytes from an image to rows 8n of a step. */
void words_rows(struct kb *k, struct attend *v);
/* Keeps in registers where the lane's words of rows 0 to 7 of keys and of its first two value tokens begin, from the image on. */
void words_hold(struct kb *k, struct attend *v);
/* Copies what was left out of a token's words, by the lane that has loaded its fields. */
void words_patch(struct kb *k, const struct attend *a, const struct slot_token *own);
enum { WORD_ROWS = ATTEND_SUBTILES * ATTEND_TOKENS };

/* Rows of words: the lane's first of a row is at row + own (i32 bytes). */
struct word_rows {
    int count;
    val row[WORD_ROWS], own[WORD_ROWS], *words[WORD_ROWS];
};

/* n words of the lane of each row, `apart` words from one to the next. */
void words_load(struct kb *k, const struct attend *a, const struct word_rows *w, int n, int apart);

#endif
