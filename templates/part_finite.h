/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_finite.h - rows that leave a kernel in fp16 end at its largest number.
*/
#ifndef KVKILN_PART_FINITE_H
#define KVKILN_PART_FINITE_H

#include "../gen/kb.h"

/* An f32 into the range of fp16; a NaN stays one. */
val saturate(struct kb *k, val x);
/* An f32 to KB_F16, saturated, or KB_BF16. */
val to_row(struct kb *k, val x, int type);

/* Two f32 to one such pair. */
val to_row_pair(struct kb *k, val lo, val hi, int type);

#endif
