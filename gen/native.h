/* SPDX-License-Identifier: Apache-2.0 */
/*
** native.h - the native layout: 16 tokens of a head together, in the order in which a warp multiplies them.
**
** docs/layouts.md has every byte. A head block (struct slot: record_bytes) holds key codes, value codes, 16-bit fields and
** block scales. Codes lie in planes, a plane in units of `unit` bytes, and a unit belongs to one lane (row, c), c 0..3:
**
**     byte `b` of lane (row, c):  at + b / unit * rows * 4 * unit + (row * 4 + c) * unit + b % unit
**
** Keys have 16 rows, a token each, and lane c holds elements c * D/4 ... Values have 8 rows, D/8 dims each, and lane c holds
** tokens 2c, 2c + 1 (pair 0) and 2c + 8, 2c + 9 (pair 1). Three-bit codes have three planes: their low two bits; their high
** bits, 4 groups of 8 codes a word; where D is an odd multiple of 64 the last two groups' high bits.
*/
#ifndef KVKILN_GEN_NATIVE_H
#define KVKILN_GEN_NATIVE_H

#include "spec.h"

#include <stdbool.h>

enum { NATIVE_TOKENS = 16, NATIVE_LANES = 4, NATIVE_KEY_ROWS = 16, NATIVE_VALUE_ROWS = 8 };

/* MAIN: 8, 4 or 2 bits a code. HIGH: bit 2 of codes, in words. TAIL: of the last 16 codes of a key lane (2 bytes), of the
** last 8 dims of a value lane's four tokens (4 bytes). */
enum { NATIVE_MAIN, NATIVE_HIGH, NATIVE_TAIL, NATIVE_PLANES };

struct plane {
    int bits;  /* of a code, 0: no such plane */
    int at;    /* bytes from the head block's beginning */
    int unit;  /* bytes, a power of two, at most 16 */
    int bytes; /* of a lane */
};

/* Fills the planes of a side whose codes begin at `at` of the head block; returns the offset behind them. */
int native_planes(const struct codec *codec, int head_size, bool value, int at, struct plane planes[NATIVE_PLANES]);

/* Is there a native layout of these codes? NULL, or what it takes, for messages. */
const char *native_codecs(const struct codec *key, const struct codec *value);

/* KVK_E_UNSUPPORTED: codecs, head sizes or pages that the layout is not defined for. */
kvk_status native_check(const struct spec *spec, const struct geometry *geo, kvk_error *err);

#endif
