/* SPDX-License-Identifier: Apache-2.0 */
/*
** fn.h - how the functions of ops.def are written: an expression of a, b, c on every lane l.
*/
#ifndef KVKILN_AMDSIM_FN_H
#define KVKILN_AMDSIM_FN_H

#include "sim.h"

#include "number.h"

#define V(name, signature, fn, rule) void op_##fn(struct vec *x);
#define S(name, signature, fn, rule) void op_##fn(struct scalar *x);
#define X(name, fn, argument) void op_##fn(struct wave *w, struct insn *i, int argument_);
#include "ops.def"
#undef V
#undef S
#undef X

#define EACH for (int l = 0; l < x->lanes; l++)

#define U32(id, expression)                                                                        \
    void op_##id(struct vec *x)                                                                    \
    {                                                                                              \
        EACH                                                                                       \
        {                                                                                          \
            uint32_t a = x->s[0][l], b = x->s[1][l], c = x->s[2][l];                               \
            (void)a, (void)b, (void)c;                                                             \
            x->d[l] = (uint32_t)(expression);                                                      \
        }                                                                                          \
    }

#define F32(id, expression)                                                                        \
    void op_##id(struct vec *x)                                                                    \
    {                                                                                              \
        EACH                                                                                       \
        {                                                                                          \
            float a = as_float(x->s[0][l]), b = as_float(x->s[1][l]), c = as_float(x->s[2][l]);    \
            (void)a, (void)b, (void)c;                                                             \
            x->d[l] = float_bits(expression);                                                      \
        }                                                                                          \
    }

/* 64-bit sources A, B, C beside the low words a, b, c; a 64-bit result */
#define U64(id, expression)                                                                        \
    void op_##id(struct vec *x)                                                                    \
    {                                                                                              \
        EACH                                                                                       \
        {                                                                                          \
            uint32_t a = x->s[0][l], b = x->s[1][l], c = x->s[2][l];                               \
            uint64_t A = a | (uint64_t)x->h[0][l] << 32, B = b | (uint64_t)x->h[1][l] << 32;       \
            uint64_t C = c | (uint64_t)x->h[2][l] << 32;                                           \
            (void)a, (void)b, (void)c, (void)A, (void)B, (void)C;                                  \
            uint64_t result = (expression);                                                        \
            x->d[l] = (uint32_t)result;                                                            \
            x->dh[l] = (uint32_t)(result >> 32);                                                   \
        }                                                                                          \
    }

#endif
