/* SPDX-License-Identifier: Apache-2.0 */
#include "number.h"

#include <math.h>

const struct small_float small_half = {5, 10, 15, SMALL_IEEE};
const struct small_float small_e4m3 = {4, 3, 7, SMALL_NO_INFINITY};
const struct small_float small_e5m2 = {5, 2, 15, SMALL_IEEE};
const struct small_float small_e4m3_fnuz = {4, 3, 8, SMALL_FNUZ};
const struct small_float small_e5m2_fnuz = {5, 2, 16, SMALL_FNUZ};
const struct small_float small_e2m1 = {2, 1, 1, SMALL_FINITE};

double small_value(const struct small_float *f, uint32_t bits)
{
    uint32_t mantissa = bits & ((1u << f->mantissa) - 1);
    int exponent = (int)(bits >> f->mantissa & ((1u << f->exponent) - 1)),
        top = (1 << f->exponent) - 1;
    bool negative = bits >> (f->mantissa + f->exponent) & 1;
    if (f->kind == SMALL_FNUZ && bits == 1u << (f->mantissa + f->exponent))
        return NAN;
    if (f->kind == SMALL_IEEE && exponent == top)
        return mantissa ? NAN : negative ? -INFINITY : INFINITY;
    if (f->kind == SMALL_NO_INFINITY && exponent == top && mantissa == (1u << f->mantissa) - 1)
        return NAN;
    double x = exponent ? ldexp(mantissa + (1u << f->mantissa), exponent - f->bias - f->mantissa)
                        : ldexp(mantissa, 1 - f->bias - f->mantissa);
    return negative ? -x : x;
}

static uint32_t overflow(const struct small_float *f, uint32_t sign, bool saturate)
{
    uint32_t all = (1u << (f->mantissa + f->exponent)) - 1,
             infinity = all & ~((1u << f->mantissa) - 1);
    switch (f->kind) {
    case SMALL_IEEE: return sign | (saturate ? infinity - 1 : infinity);
    case SMALL_NO_INFINITY: return sign | (saturate ? all - 1 : all);
    case SMALL_FNUZ: return saturate ? sign | all : 1u << (f->mantissa + f->exponent);
    default: return sign | all;
    }
}

static uint32_t not_a_number(const struct small_float *f)
{
    uint32_t all = (1u << (f->mantissa + f->exponent)) - 1;
    switch (f->kind) {
    case SMALL_IEEE: return (all & ~((1u << f->mantissa) - 1)) | 1u << (f->mantissa - 1);
    case SMALL_FNUZ: return all + 1;
    default: return all;
    }
}

uint32_t small_bits(const struct small_float *f, double x, bool saturate)
{
    uint32_t sign = signbit(x) ? 1u << (f->mantissa + f->exponent) : 0;
    uint32_t all = (1u << (f->mantissa + f->exponent)) - 1, most = all;
    int exponent;
    if (isnan(x))
        return not_a_number(f);
    if (f->kind == SMALL_IEEE)
        most = (all & ~((1u << f->mantissa) - 1)) - 1;
    else if (f->kind == SMALL_NO_INFINITY)
        most = all - 1;
    if (isinf(x))
        return overflow(f, sign, saturate && f->kind != SMALL_IEEE);
    if (x == 0)
        return f->kind == SMALL_FNUZ ? 0 : sign;
    frexp(x, &exponent);
    exponent = exponent - 1 < 1 - f->bias ? 1 - f->bias : exponent - 1;
    double steps =
        nearbyint(ldexp(fabs(x), f->mantissa - exponent)); /* exact but for the rounding */
    double bits = steps + ldexp(exponent + f->bias - 1, f->mantissa);
    if (bits > most)
        return overflow(f, sign, saturate);
    if (f->kind == SMALL_FNUZ && bits == 0)
        return 0;
    return sign | (uint32_t)bits;
}

float half_value(uint32_t bits)
{
    uint32_t sign = (bits & 0x8000) << 16, rest = bits & 0x7fff;
    if (rest >= 0x7c00)
        return as_float(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    if (rest >= 0x400)
        return as_float(sign | ((rest << 13) + (112u << 23)));
    float x = (float)rest * 0x1p-24f;
    return sign ? -x : x;
}

uint32_t half_bits(float x)
{
    uint32_t bits = float_bits(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000)
        return sign | 0x7e00 | (rest >> 13 & 0x3ff);
    if (rest >= 0x47800000)
        return sign | 0x7c00;
    if (rest < 0x38800000) /* subnormal: the sum rounds */
        return sign | (float_bits(as_float(rest) + 0.5f) - float_bits(0.5f));
    rest += 0xfff + (rest >> 13 & 1);
    return sign | ((rest - (112u << 23)) >> 13);
}

uint32_t half_of_double(double x) { return small_bits(&small_half, x, false); }

uint32_t bfloat_bits(float x)
{
    uint32_t bits = float_bits(x);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return bits >> 16 | 0x40;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

uint32_t half_fma(double a, double b, double c)
{
    double product = a * b, sum = product + c; /* halves: the product is exact */
    double part = sum - product, lost = (product - (sum - part)) + (c - part);
    uint64_t bits = double_bits(sum);
    if (isfinite(sum) && lost != 0 && !(bits & 1)) /* to odd, so that rounding again is right */
        sum = as_double((lost > 0) == (sum > 0) ? bits + 1 : bits - 1);
    return half_of_double(sum);
}

uint32_t approximate(double exact, uint32_t seed, bool jitter)
{
    float x = (float)exact;
    uint32_t bits = float_bits(x);
    if (jitter && isfinite(x) && x != 0 && (double)x != exact) {
        seed = (seed ^ seed >> 15) * 0x2c1b3c6d;
        seed = (seed ^ seed >> 12) * 0x297a2d39;
        if (seed >> 31) /* the neighbour on the other side: still less than an ulp off */
            bits += fabs(x) < fabs(exact) ? 1u : (uint32_t)-1;
    }
    return flush(bits);
}
