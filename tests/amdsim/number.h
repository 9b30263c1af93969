/* SPDX-License-Identifier: Apache-2.0 */
/*
** number.h - floating-point formats as bits. Rounding is to nearest, ties to even.
*/
#ifndef KVKILN_AMDSIM_NUMBER_H
#define KVKILN_AMDSIM_NUMBER_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline float as_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
static inline uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}
static inline double as_double(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, 8);
    return x;
}
static inline uint64_t double_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, 8);
    return bits;
}

/* A small format: sign, `exponent` bits with this bias, `mantissa` bits. NaN and infinity follow
** its kind. */
struct small_float {
    int exponent, mantissa, bias;
    enum { SMALL_IEEE, SMALL_NO_INFINITY, SMALL_FNUZ, SMALL_FINITE } kind;
};
extern const struct small_float small_half, small_e4m3, small_e5m2, small_e4m3_fnuz,
    small_e5m2_fnuz, small_e2m1;
double small_value(const struct small_float *f, uint32_t bits);
/* saturate: the largest finite value instead of infinity or NaN on overflow */
uint32_t small_bits(const struct small_float *f, double x, bool saturate);

float half_value(uint32_t bits);
uint32_t half_bits(float x);
uint32_t half_of_double(double x);
static inline float bfloat_value(uint32_t bits) { return as_float(bits << 16); }
uint32_t bfloat_bits(float x);

/* a * b + c rounded once to half */
uint32_t half_fma(double a, double b, double c);

/* What an approximation may give: the nearest value, or with jitter any that is less than an ulp
** off. */
uint32_t approximate(double exact, uint32_t seed, bool jitter);
static inline uint32_t flush(uint32_t bits) { return bits & 0x7f800000 ? bits : bits & 0x80000000; }

#endif
