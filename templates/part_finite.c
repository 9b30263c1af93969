/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_finite.c - rows that leave a kernel in fp16 end at its largest number. What a cache holds may
** decode to more (elements of -65504 and 65504 to 65536), and sums of it are finite as well.
*/
#include "part_finite.h"

val saturate(struct kb *k, val x)
{
    val most = kb_f32(K, 65504), least = kb_f32(K, -65504);
    val over = kb_fcmp(K, KB_OGT, x, most);
    val below = kb_select(K, over, most, x);
    val under = kb_fcmp(K, KB_OLT, below, least);
    return kb_select(K, under, least, below);
}

val to_row(struct kb *k, val x, int type)
{
    val inside = type == KB_F16 ? saturate(K, x) : x;
    return kb_to_half(K, inside, type);
}

val to_row_pair(struct kb *k, val lo, val hi, int type)
{
    if (type != KB_F16)
        return kb_pack_half(K, lo, hi, type);
    val pair = kb_pack_finite(K, lo, hi);
    if (pair)
        return pair;
    val first = saturate(K, lo), second = saturate(K, hi);
    return kb_pack_half(K, first, second, type);
}
