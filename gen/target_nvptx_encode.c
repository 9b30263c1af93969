/* SPDX-License-Identifier: Apache-2.0 */
/*
** target_nvptx_encode.c - roles of encoders: directed rounding, minima of pairs, conversion to FP8.
*/
#include "kb_encode.h"
#include "target.h"

static val tanh_approx(struct kb *k, val x)
{
    return kb_asm(k, KB_F32, &x, 1, "tanh.approx.f32 $0, $1;", "=f,f", false);
}

static val whole(struct kb *k, val x)
{
    val sum = KB_CALL("llvm.nvvm.add.rz.f", x, kb_f32(k, 8388608));
    return kb_bitcast(k, sum, KB_I32);
}

/* Rounded down, w + d / 64 is w or w - 1. */
static val step(struct kb *k, val w, val d)
{
    val sum = KB_CALL("llvm.nvvm.fma.rm.f", d, kb_f32(k, 1.0 / 64), w);
    return kb_bitcast(k, sum, KB_I32);
}

static val pair(struct kb *k, int type, bool most, val a, val b)
{
    const char *text = type == KB_F16 ? most ? "max.NaN.f16x2 $0, $1, $2;" : "min.f16x2 $0, $1, $2;"
                       : most         ? "max.NaN.bf16x2 $0, $1, $2;"
                                      : "min.bf16x2 $0, $1, $2;";
    return kb_asm(k, KB_I32, (const val[]){a, b}, 2, text, "=r,r,r", false);
}

static val e4m3_pair(struct kb *k, val lo, val hi)
{
    return kb_asm(k, KB_I16, (const val[]){hi, lo}, 2, "cvt.rn.satfinite.e4m3x2.f32 $0, $1, $2;",
                  "=h,f,f", false);
}

const struct encode_ops encode_nvptx = {
    .tanh = tanh_approx,
    .whole = whole,
    .step = step,
    .pair = pair,
    .e4m3_pair = e4m3_pair,
};
