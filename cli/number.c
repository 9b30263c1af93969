/* SPDX-License-Identifier: Apache-2.0 */
/*
** number.c - small floating-point formats by ldexp and rint, so that nothing depends on the
** machine's own conversions. A format has `mantissa` stored bits and a smallest normal exponent
** `low`: a value's quantum is 2^(max(e, low) - mantissa).
*/
#include "number.h"

#include <limits.h>
#include <math.h>
#include <string.h>

uint16_t number_u16(const unsigned char *bytes)
{
    return (uint16_t)(bytes[0] | bytes[1] << 8);
}

uint32_t number_u32(const unsigned char *bytes)
{
    return number_u16(bytes) | (uint32_t)number_u16(bytes + 2) << 16;
}

void number_put_u16(unsigned char *bytes, uint16_t value)
{
    bytes[0] = (unsigned char)(value & 0xFF);
    bytes[1] = (unsigned char)(value >> 8);
}

double number_from_half(uint16_t bits)
{
    int exponent = bits >> 10 & 31, mantissa = bits & 0x3FF;
    double value = exponent == 31 ? (mantissa ? NAN : INFINITY)
                   : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                                  : ldexp(mantissa, -24);
    return bits & 0x8000 ? -value : value;
}

double number_from_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

double number_from_e4m3(uint8_t bits)
{
    int exponent = bits >> 3 & 15, mantissa = bits & 7;
    if ((bits & 0x7F) == 0x7F)
        return NAN;
    double value = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
    return bits & 0x80 ? -value : value;
}

double number_from_e2m1(unsigned code)
{
    static const double magnitude[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return code & 8 ? -magnitude[code & 7] : magnitude[code & 7];
}

/* Bits of |value| rounded to even in a format; rounding into the next binade and from subnormal to
 * normal both come out of the plain addition, because encodings of positive numbers are ordered. */
static uint32_t encode(double magnitude, int mantissa, int low)
{
    if (magnitude == 0)
        return 0;
    int exponent = ilogb(magnitude);
    if (exponent < low)
        return (uint32_t)rint(ldexp(magnitude, mantissa - low));
    uint32_t quanta = (uint32_t)rint(ldexp(magnitude, mantissa - exponent));
    return ((uint32_t)(exponent - low) << mantissa) + quanta;
}

uint16_t number_to_half(double value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    if (isnan(value))
        return 0x7E00;
    double magnitude = fabs(value);
    return (uint16_t)(sign | (magnitude >= 65520 ? 0x7C00 : encode(magnitude, 10, -14)));
}

uint16_t number_to_bf16(double value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    if (isnan(value))
        return 0x7FC0;
    double magnitude = fabs(value);
    return (uint16_t)(sign | (magnitude >= ldexp(511, 119) ? 0x7F80 : encode(magnitude, 7, -126)));
}

uint8_t number_to_e4m3(double value)
{
    uint8_t sign = signbit(value) ? 0x80 : 0;
    if (isnan(value))
        return 0x7F;
    double magnitude = fabs(value);
    return (uint8_t)(sign | (magnitude >= 448 ? 0x7E : encode(magnitude, 3, -6)));
}

double number_at(enum number format, const void *data, size_t i)
{
    const unsigned char *bytes = (const unsigned char *)data + i * number_bytes(format);
    if (format == NUMBER_F16)
        return number_from_half(number_u16(bytes));
    if (format == NUMBER_BF16)
        return number_from_bf16(number_u16(bytes));
    uint32_t bits = number_u32(bytes);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

size_t number_bytes(enum number format)
{
    return format == NUMBER_F32 ? 4 : 2;
}

long number_half_steps(uint16_t a, uint16_t b)
{
    long x = a & 0x8000 ? -(long)(a & 0x7FFF) : a, y = b & 0x8000 ? -(long)(b & 0x7FFF) : b;
    if ((a & 0x7FFF) > 0x7C00 || (b & 0x7FFF) > 0x7C00)
        return a == b ? 0 : LONG_MAX;
    return x < y ? y - x : x - y;
}
