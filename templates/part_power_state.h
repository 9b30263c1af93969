/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_power_state.h - what part_powers.c keeps in struct attend.
*/
#ifndef KVKILN_PART_POWER_STATE_H
#define KVKILN_PART_POWER_STATE_H

#include "../gen/kb.h"

/* A word of value codes whose nibbles were brought to where f16 has them: [pair] of the last word asked for. */
struct power_word { int sub, word; val even, odd; };

/* Bytes (i32) from the head's part of a subtile's image to the scales of the lane's chunks of its key rows and value
** tokens; from four tokens to the next four. */
struct attend_powers {
    val key[2], value[16], group_pitch;
    struct power_word *words; /* of the step, [pair] */
};

#endif
