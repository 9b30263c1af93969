/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_pack.h - a warp's codes to and from one bit stream: element d is bits b * d ... b * d + b - 1, lowest first.
**
** D is a multiple of 8, so that eight codes are always b whole bytes: where a lane's codes are not, lanes that make up
** eight join theirs by shuffles, and the first of them writes. No byte outside the stream is read or written.
*/
#ifndef KVKILN_PART_PACK_H
#define KVKILN_PART_PACK_H

#include "part_rowvec.h"

/* code[i]: i32 below 2^bits, of v's shape. base: pointer to the stream, a multiple of `align`. bits: 2..8 or 16 */
void pack_store(struct kb *k, const struct rowvec *v, int bits, val base, int align, const val *code);
void pack_load(struct kb *k, const struct rowvec *v, int bits, val base, int align, val *code);
/* `bytes` bytes (1 to 8) as an integer, i32 up to 4 of them. */
void pack_store_string(struct kb *k, val s, int bytes, val at, int align);
val pack_load_string(struct kb *k, int bytes, val at, int align);

#endif
