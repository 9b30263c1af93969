/* SPDX-License-Identifier: Apache-2.0 */
/*
** kb_encode.h - roles of encoders that spend few instructions an element. Where a target has none of its own, others of the
** builder stand in: the same results, kb_tanh's last bits excepted.
*/
#ifndef KVKILN_GEN_KB_ENCODE_H
#define KVKILN_GEN_KB_ENCODE_H

#include "kb.h"

/* f32, approximate: relative error < 2^-10 */
val kb_tanh(struct kb *k, val x);
/* The bits of 2^23 + (x without its fraction), 0 <= x < 2^22: the whole number is in the low ones. */
val kb_whole(struct kb *k, val x);
/* w: a whole number of 2^23 to 2^24 as f32. Its bits, or those of w - 1 if d is below zero; |d| < 64. */
val kb_step(struct kb *k, val w, val d);
/* i32 holding two KB_F16 or KB_BF16, half by half. The least, -0 being below +0, of numbers; the most, where a NaN wins. */
val kb_min_pair(struct kb *k, int type, val a, val b);
val kb_max_pair(struct kb *k, int type, val a, val b);
/* Two f32 -> two e4m3fn bytes in an i16, lo in bits 0-7: nearest even, saturated, not of NaN. NULL: the target has none. */
val kb_e4m3_pair(struct kb *k, val lo, val hi);

/* What a target supplies; every entry may be NULL. */
struct encode_ops {
    val (*tanh)(struct kb *k, val x);
    val (*whole)(struct kb *k, val x);
    val (*step)(struct kb *k, val w, val d);
    val (*pair)(struct kb *k, int type, bool most, val a, val b);
    val (*e4m3_pair)(struct kb *k, val lo, val hi); /* with TF_FP8_CVT */
};
extern const struct encode_ops encode_nvptx;

#endif
