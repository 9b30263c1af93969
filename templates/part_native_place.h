/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_native_place.h - where eights of the native layout lie: what its reading and its writing share.
*/
#ifndef KVKILN_PART_NATIVE_PLACE_H
#define KVKILN_PART_NATIVE_PLACE_H

#include "part_slot.h"

/* Of one eight of one token: its lane (row, c) and which of the lane's eights of that token it is. All i32. */
struct native_place {
    const struct slot_token *token;
    const struct side *side;
    bool value;
    val row, lane, index;
    val pair, half; /* values: 1 for tokens 8 to 15; 1 for odd tokens, in the upper halves of words */
};

struct native_place native_place(struct kb *k, const struct slot_token *t, const struct side *side, val m);
/* Byte `byte` (i32) of the lane in plane `which`. */
val native_address(struct kb *k, const struct native_place *p, int which, val byte);
/* Byte of the value lane's word `word` (i32) of the pair, of which each has `words`, and in it the token's half. */
val native_value_byte(struct kb *k, const struct native_place *p, val word, int words);

#endif
