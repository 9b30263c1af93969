/* SPDX-License-Identifier: Apache-2.0 */
/*
** op_float.c - vector instructions on floats and halves, conversions. Denormals are kept, except by
** the approximations.
*/
#include "fn.h"

#include <math.h>

/* ---- floats ---- */

/* The number, where one of them is none; -0 is less than +0. */
static inline float most(float a, float b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) ? b : a;
    if (a == b)
        return signbit(a) ? b : a;
    return a > b ? a : b;
}
static inline float least(float a, float b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) ? b : a;
    if (a == b)
        return signbit(a) ? a : b;
    return a < b ? a : b;
}
static inline float median(float a, float b, float c)
{
    if (isnan(a) || isnan(b) || isnan(c))
        return least(least(a, b), c);
    return most(least(a, b), least(most(a, b), c));
}

F32(add_f32, a + b)
F32(sub_f32, a - b)
F32(subrev_f32, b - a)
F32(mul_f32, a *b)
F32(fma_f32, fmaf(a, b, c))
F32(max_f32, most(a, b))
F32(min_f32, least(a, b))
F32(max3_f32, most(most(a, b), c))
F32(min3_f32, least(least(a, b), c))
F32(med3_f32, median(a, b, c))
F32(minmax_f32, most(least(a, b), c))
F32(maxmin_f32, least(most(a, b), c))
F32(floor_f32, floorf(a))
F32(ceil_f32, ceilf(a))
F32(trunc_f32, truncf(a))
F32(rndne_f32, nearbyintf(a))
F32(fract_f32, fminf(a - floorf(a), 0x1.fffffep-1f))
F32(ldexp_f32, ldexpf(a, (int32_t)float_bits(b)))

static float mantissa(float a)
{
    int e;
    return isfinite(a) ? frexpf(a, &e) : a;
}
static int exponent(float a)
{
    int e = 0;
    if (isfinite(a) && a != 0)
        frexpf(a, &e);
    return e;
}
F32(frexp_mant_f32, mantissa(a))
U32(frexp_exp_f32, exponent(as_float(a)))

#define PAIRS(id, expression)                                                                      \
    static float pair_##id(float a, float b, float c)                                              \
    {                                                                                              \
        (void)c;                                                                                   \
        return (expression);                                                                       \
    }                                                                                              \
    void op_##id(struct vec *x)                                                                    \
    {                                                                                              \
        EACH                                                                                       \
        {                                                                                          \
            x->d[l] = float_bits(                                                                  \
                pair_##id(as_float(x->s[0][l]), as_float(x->s[1][l]), as_float(x->s[2][l])));      \
            x->dh[l] = float_bits(                                                                 \
                pair_##id(as_float(x->h[0][l]), as_float(x->h[1][l]), as_float(x->h[2][l])));      \
        }                                                                                          \
    }
PAIRS(pk_add_f32, a + b)
PAIRS(pk_mul_f32, a *b)
PAIRS(pk_fma_f32, fmaf(a, b, c))

/* ---- approximations: subnormals in and out are zero ---- */

#define APPROXIMATE(id, exact)                                                                     \
    void op_##id(struct vec *x)                                                                    \
    {                                                                                              \
        EACH                                                                                       \
        {                                                                                          \
            double a = as_float(flush(x->s[0][l]));                                                \
            x->d[l] = approximate(exact, x->s[0][l], x->jitter);                                   \
        }                                                                                          \
    }
APPROXIMATE(rcp_f32, 1 / a)
APPROXIMATE(rsq_f32, 1 / sqrt(a))
APPROXIMATE(exp_f32, exp2(a))
APPROXIMATE(log_f32, log2(a))
APPROXIMATE(sin_f32, sin(a * 6.283185307179586))
APPROXIMATE(cos_f32, cos(a * 6.283185307179586))

void op_sqrt_f32(struct vec *x)
{
    EACH x->d[l] = approximate(sqrt(as_float(flush(x->s[0][l]))), x->s[0][l], x->jitter);
}

#define SCALAR_APPROXIMATE(id, exact)                                                              \
    void op_##id(struct scalar *x)                                                                 \
    {                                                                                              \
        double a = as_float(flush((uint32_t)x->s[0]));                                             \
        x->d = approximate(exact, (uint32_t)x->s[0], false);                                       \
        x->keep = true;                                                                            \
    }
SCALAR_APPROXIMATE(s_exp_f32, exp2(a))
SCALAR_APPROXIMATE(s_log_f32, log2(a))
SCALAR_APPROXIMATE(s_rcp_f32, 1 / a)
SCALAR_APPROXIMATE(s_rsq_f32, 1 / sqrt(a))

/* ---- division in steps ---- */

static int biased(float x) { return (int)(float_bits(x) >> 23 & 255); }
static bool subnormal(double x) { return x != 0 && fabs(x) < 0x1p-126; }

/* a: which of the two is wanted; b: the denominator; c: the numerator */
static float div_scale(float a, float b, float c, bool *scaled)
{
    bool numerator = a == c, denominator = a == b;
    double quotient = (double)c / b;
    *scaled = false;
    if (c == 0 || b == 0)
        return NAN;
    if (biased(c) - biased(b) >= 96) {
        *scaled = true;
        return denominator ? ldexpf(a, 64) : a;
    }
    if (subnormal(b))
        return ldexpf(a, 64);
    if (subnormal(1.0 / b) && subnormal(quotient)) {
        *scaled = true;
        return denominator ? ldexpf(a, 64) : a;
    }
    if (subnormal(1.0 / b))
        return ldexpf(a, -64);
    if (subnormal(quotient)) {
        *scaled = true;
        return numerator ? ldexpf(a, 64) : a;
    }
    return biased(c) <= 23 ? ldexpf(a, 64) : a;
}

void op_div_scale_f32(struct vec *x)
{
    x->out = 0;
    EACH
    {
        bool scaled;
        x->d[l] = float_bits(
            div_scale(as_float(x->s[0][l]), as_float(x->s[1][l]), as_float(x->s[2][l]), &scaled));
        x->out |= (uint64_t)scaled << l;
    }
}

/* Back from what div_scale did: up if the numerator was not large, else down. */
F32(div_fmas_f32,
    x->mask >> l & 1 ? ldexpf(fmaf(a, b, c), biased(c) > 127 ? 64 : -64) : fmaf(a, b, c))

static float div_fixup(float a, float b, float c)
{
    float sign = signbit(b) != signbit(c) ? -1 : 1;
    if (isnan(c) || isnan(b))
        return isnan(c) ? c : b;
    if ((b == 0 && c == 0) || (isinf(b) && isinf(c)))
        return as_float(0xffc00000);
    if (b == 0 || isinf(c))
        return copysignf(INFINITY, sign);
    if (isinf(b) || c == 0)
        return copysignf(0, sign);
    if (biased(c) - biased(b) < -150)
        return copysignf(0, sign);
    return copysignf(a, sign);
}
F32(div_fixup_f32, div_fixup(a, b, c))

/* ---- halves ---- */

#define HALF(x) half_value((x)&0xffff)
#define HALVES(id, expression)                                                                     \
    static uint32_t half_##id(float a, float b, float c)                                           \
    {                                                                                              \
        (void)c;                                                                                   \
        return (expression);                                                                       \
    }                                                                                              \
    void op_##id(struct vec *x)                                                                    \
    {                                                                                              \
        EACH x->d[l] = half_##id(HALF(x->s[0][l]), HALF(x->s[1][l]), HALF(x->s[2][l]));            \
    }                                                                                              \
    void op_pk_##id(struct vec *x)                                                                 \
    {                                                                                              \
        EACH x->d[l] =                                                                             \
            half_##id(HALF(x->s[0][l]), HALF(x->s[1][l]), HALF(x->s[2][l])) |                      \
            half_##id(HALF(x->s[0][l] >> 16), HALF(x->s[1][l] >> 16), HALF(x->s[2][l] >> 16))      \
                << 16;                                                                             \
    }
/* Sums and products of two halves are exact in double. */
HALVES(add_f16, half_of_double((double)a + b))
HALVES(mul_f16, half_of_double((double)a *b))
HALVES(fma_f16, half_fma(a, b, c))
HALVES(max_f16, half_bits(most(a, b)))
HALVES(min_f16, half_bits(least(a, b)))
U32(sub_f16, half_of_double((double)HALF(a) - HALF(b)))
U32(fma_mix_f16, half_bits(fmaf(as_float(a), as_float(b), as_float(c))))
U32(dot2_f16, float_bits((float)((double)HALF(a) * HALF(b) + (double)HALF(a >> 16) * HALF(b >> 16) +
                                 as_float(c))))

/* ---- conversions ---- */

static uint32_t to_signed(float a)
{
    return isnan(a)       ? 0
           : a >= 0x1p31f ? 0x7fffffff
           : a < -0x1p31f ? 0x80000000
                          : (uint32_t)(int32_t)a;
}
static uint32_t to_unsigned(float a)
{
    return !(a > 0) ? 0 : a >= 0x1p32f ? 0xffffffff : (uint32_t)a;
}
U32(cvt_f16_f32, half_bits(as_float(a)))
U32(cvt_f32_f16, float_bits(HALF(a)))
U32(cvt_pk_f16_f32, half_bits(as_float(a)) | half_bits(as_float(b)) << 16)
U32(cvt_pk_bf16_f32, bfloat_bits(as_float(a)) | bfloat_bits(as_float(b)) << 16)
U32(cvt_f32_bf16, a << 16)
U32(cvt_f32_i32, float_bits((float)(int32_t)a))
U32(cvt_f32_u32, float_bits((float)a))
U32(cvt_i32_f32, to_signed(as_float(a)))
U32(cvt_u32_f32, to_unsigned(as_float(a)))
U32(cvt_ubyte0, float_bits((float)(a & 0xff)))
U32(cvt_ubyte1, float_bits((float)(a >> 8 & 0xff)))
U32(cvt_ubyte2, float_bits((float)(a >> 16 & 0xff)))
U32(cvt_ubyte3, float_bits((float)(a >> 24)))
U32(cvt_f16_u16, half_bits((float)(a & 0xffff)))
U32(cvt_f16_i16, half_bits((float)(int16_t)a))

#define REAL(id, expression)                                                                       \
    void op_##id(struct scalar *x)                                                                 \
    {                                                                                              \
        float a = as_float((uint32_t)x->s[0]), b = as_float((uint32_t)x->s[1]);                    \
        (void)b;                                                                                   \
        x->d = (expression);                                                                       \
        x->keep = true;                                                                            \
    }
REAL(s_add_f32, float_bits(a + b))
REAL(s_sub_f32, float_bits(a - b))
REAL(s_mul_f32, float_bits(a *b))
REAL(s_max_f32, float_bits(most(a, b)))
REAL(s_min_f32, float_bits(least(a, b)))
REAL(s_cvt_u32_f32, to_unsigned(a))
REAL(s_cvt_i32_f32, to_signed(a))
REAL(s_cvt_f32_u32, float_bits((float)float_bits(a)))
REAL(s_cvt_f32_i32, float_bits((float)(int32_t)float_bits(a)))
REAL(s_cvt_f32_f16, float_bits(half_value(float_bits(a) & 0xffff)))
REAL(s_cvt_hi_f32_f16, float_bits(half_value(float_bits(a) >> 16)))
