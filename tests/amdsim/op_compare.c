/* SPDX-License-Identifier: Apache-2.0 */
/*
** op_compare.c - conditions of lanes.
*/
#include "fn.h"

#include <math.h>

#define COMPARE(id, type, value, condition)                                                        \
    void op_##id(struct vec *x)                                                                    \
    {                                                                                              \
        uint64_t out = 0;                                                                          \
        EACH                                                                                       \
        {                                                                                          \
            type a = (type)(value(x, 0, l)), b = (type)(value(x, 1, l));                           \
            out |= (uint64_t)(condition) << l;                                                     \
        }                                                                                          \
        x->out = out;                                                                              \
    }
#define WORD(x, k, l) x->s[k][l]
#define LONG(x, k, l) (x->s[k][l] | (uint64_t)x->h[k][l] << 32)
#define SINGLE(x, k, l) as_float(x->s[k][l])
#define HALF(x, k, l) half_value(x->s[k][l] & 0xffff)

#define ORDERED(t, type, value)                                                                    \
    COMPARE(lt_##t, type, value, a < b)                                                            \
    COMPARE(eq_##t, type, value, a == b)                                                           \
    COMPARE(le_##t, type, value, a <= b)                                                           \
    COMPARE(gt_##t, type, value, a > b)                                                            \
    COMPARE(ge_##t, type, value, a >= b)
#define INTEGERS(t, type, value) ORDERED(t, type, value) COMPARE(ne_##t, type, value, a != b)
#define REALS(t, value)                                                                            \
    ORDERED(t, float, value)                                                                       \
    COMPARE(lg_##t, float, value, a<b || a> b)                                                     \
    COMPARE(o_##t, float, value, !isunordered(a, b))                                               \
    COMPARE(u_##t, float, value, isunordered(a, b))                                                \
    COMPARE(nge_##t, float, value, !(a >= b))                                                      \
    COMPARE(nlg_##t, float, value, !(a < b || a > b))                                              \
    COMPARE(ngt_##t, float, value, !(a > b))                                                       \
    COMPARE(nle_##t, float, value, !(a <= b))                                                      \
    COMPARE(neq_##t, float, value, !(a == b))                                                      \
    COMPARE(nlt_##t, float, value, !(a < b))

INTEGERS(i32, int32_t, WORD)
INTEGERS(u32, uint32_t, WORD)
INTEGERS(i16, int16_t, WORD)
INTEGERS(u16, uint16_t, WORD)
INTEGERS(i64, int64_t, LONG)
INTEGERS(u64, uint64_t, LONG)
REALS(f32, SINGLE)
REALS(f16, HALF)

/* Bits: signalling NaN, quiet NaN, -infinity, -normal, -subnormal, -0, +0, +subnormal, +normal,
** +infinity */
static int class_of(uint32_t bits)
{
    uint32_t rest = bits & 0x7fffffff;
    bool negative = bits >> 31;
    if (rest > 0x7f800000)
        return rest & 0x400000 ? 1 : 0;
    int size = rest == 0x7f800000 ? 3 : rest >= 0x800000 ? 2 : rest ? 1 : 0;
    return negative ? 5 - size : 6 + size;
}

void op_class_f32(struct vec *x)
{
    x->out = 0;
    EACH x->out |= (uint64_t)(x->s[1][l] >> class_of(x->s[0][l]) & 1) << l;
}
