/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_power_state.h - what part_powers.c keeps in struct attend.
*/
#ifndef KVKILN_PART_POWER_STATE_H
#define KVKILN_PART_POWER_STATE_H

#include "../gen/kb.h"

/* A word of value codes whose nibbles were brought to where f16 has them: [pair] of the last word asked for. */
struct power_word { int sub, word; val even, odd; };

/* All i32: bytes from an image to the lane's first scales of keys and values, in aos also to its codes (values: of
** both words, see powers_turns); from a group of tokens to the next, of four rows; a mask. */
struct attend_powers {
    val key_scales, value_scales, key_codes, value_codes[2], group_pitch, four_rows, low;
    struct power_word *words; /* of the step, [pair] */
};

#endif
