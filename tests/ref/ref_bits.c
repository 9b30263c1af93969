/* SPDX-License-Identifier: Apache-2.0 */
/*
** ref_bits.c - number formats and bit streams, from their definitions.
*/
#include "ref.h"

#include <math.h>
#include <string.h>

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}

uint16_t ref_f16_from(float x)
{
    uint32_t u = bits_of(x), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;

    if (a > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (a >= 0x47800000) /* 65536 */
        return (uint16_t)(sign | 0x7c00);
    if (a < 0x38800000) /* below 2^-14: a multiple of 2^-24 */
        return (uint16_t)(sign | (uint32_t)rintf(fabsf(x) * 0x1p24f));
    a -= 0x38000000; /* exponent bias 127 -> 15 */
    return (uint16_t)(sign | (a + 0xfff + (a >> 13 & 1)) >> 13);
}

float ref_f16_to(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;
    float a;

    if (e == 31)
        a = m ? NAN : INFINITY;
    else if (e == 0)
        a = ldexpf((float)m, -24);
    else
        a = ldexpf((float)(1024 + m), e - 25);
    return h & 0x8000 ? -a : a;
}

uint16_t ref_bf16_from(float x)
{
    uint32_t u = bits_of(x);

    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)((u >> 16 & 0x8000) | 0x7fc0);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

float ref_bf16_to(uint16_t h) { return float_of((uint32_t)h << 16); }

/* Nearest byte of a format with `man` mantissa bits and smallest normal exponent `emin`, for 0 <=
** a <= largest. */
static unsigned small_from(float a, int man, int emin)
{
    int e;

    if (a < ldexpf(1, emin))
        return (unsigned)rintf(ldexpf(a, man - emin)); /* 2^man is the smallest normal number */
    frexpf(a, &e);
    e -= 1; /* 2^e <= a < 2^(e+1) */
    /* 2^man .. 2^(man+1): the carry lands in the exponent */
    unsigned q = (unsigned)rintf(ldexpf(a, man - e));
    return ((unsigned)(e - emin + 1) << man) + q - (1u << man);
}

static float small_to(unsigned magnitude, int man, int emin)
{
    int e = (int)(magnitude >> man), m = (int)(magnitude & ((1u << man) - 1));

    if (e == 0)
        return ldexpf((float)m, emin - man);
    return ldexpf((float)((1 << man) + m), e - 1 + emin - man);
}

uint8_t ref_e4m3_from(float x)
{
    uint8_t sign = signbit(x) ? 0x80 : 0;
    float a = fabsf(x);

    if (isnan(x))
        return 0x7f;
    return a >= 448 ? sign | 0x7e : (uint8_t)(sign | small_from(a, 3, -6));
}

float ref_e4m3_to(uint8_t b)
{
    float a = (b & 0x7f) == 0x7f ? NAN : small_to(b & 0x7f, 3, -6);
    return b & 0x80 ? -a : a;
}

uint8_t ref_e5m2_from(float x)
{
    uint8_t sign = signbit(x) ? 0x80 : 0;
    float a = fabsf(x);

    if (isnan(x))
        return 0x7f;
    return a >= 57344 ? sign | 0x7b : (uint8_t)(sign | small_from(a, 2, -14));
}

float ref_e5m2_to(uint8_t b)
{
    unsigned m = b & 0x7f;
    float a = m > 0x7c ? NAN : m == 0x7c ? INFINITY : small_to(m, 2, -14);
    return b & 0x80 ? -a : a;
}

uint8_t ref_e4b15_from(float x)
{
    uint32_t u = bits_of(x), a = u & 0x7fffffff, h;

    if (a >= 0x47800000)
        h = 0x7c00;
    else if (a < 0x38800000)
        h = (uint32_t)(fabsf(x) * 0x1p24f);
    else
        h = (a - 0x38000000) >> 13;
    if (h > 0x3f00)
        h = 0x3f00;
    return (uint8_t)((u >> 24 & 0x80) | (h + 64) >> 7);
}

float ref_e4b15_to(uint8_t b) { return ref_f16_to((uint16_t)((b & 0x80) << 8 | (b & 0x7f) << 7)); }

unsigned ref_get_code(const uint8_t *bytes, int bits, int element)
{
    const int at = element * bits, end = at + bits - 1;
    unsigned word = 0;

    for (int i = end / 8; i >= at / 8; i--) /* of the bytes that hold it, and no other */
        word = word << 8 | bytes[i];
    return word >> at % 8 & ((1u << bits) - 1);
}

void ref_put_code(uint8_t *bytes, int bits, int element, unsigned code)
{
    for (int i = 0; i < bits; i++) {
        int at = element * bits + i;
        bytes[at / 8] = (uint8_t)(bytes[at / 8] | (code >> i & 1) << at % 8);
    }
}

uint16_t ref_get16(const uint8_t *bytes) { return (uint16_t)(bytes[0] | bytes[1] << 8); }

void ref_put16(uint8_t *bytes, uint16_t v)
{
    bytes[0] = (uint8_t)v;
    bytes[1] = (uint8_t)(v >> 8);
}
