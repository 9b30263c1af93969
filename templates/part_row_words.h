/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_row_words.h - what part_words.c keeps in struct attend.
*/
#ifndef KVKILN_PART_ROW_WORDS_H
#define KVKILN_PART_ROW_WORDS_H

#include "../gen/kb.h"

/* What part_words.c knows of a head's rows. Bytes are i32. */
struct attend_words {
    val uneven;                /* i1, uniform: rows of one head begin at words and between them by turns; NULL: never */
    val key_turn, value_turn;  /* bytes from a side's codes to its first word, 0 or 2 */
    val from[2], to[2];        /* bytes in a slot: of two bytes of codes, of their place behind the last; NULL: none */
    val key, value;            /* bytes from a slot to the lane's first words */
    /* part_word_pairs.c, held: i32 bytes to the lane's rows of the first load, of the last one; more than 0: the lane needs it */
    val pairs, pairs_last, pairs_before;
};

#endif
