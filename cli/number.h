/* SPDX-License-Identifier: Apache-2.0 */
/*
** number.h - the small floating-point formats, to and from double. Little-endian bytes, any
** alignment.
*/
#ifndef KVKILN_CLI_NUMBER_H
#define KVKILN_CLI_NUMBER_H

#include <stddef.h>
#include <stdint.h>

enum number { NUMBER_F16, NUMBER_BF16, NUMBER_F32 };

uint16_t number_u16(const unsigned char *bytes);
uint32_t number_u32(const unsigned char *bytes);
void number_put_u16(unsigned char *bytes, uint16_t value);

double number_from_half(uint16_t bits);
double number_from_bf16(uint16_t bits);
double number_from_e4m3(uint8_t bits);  /* FP8 e4m3fn: 0x7F and 0xFF are NaN */
double number_from_e2m1(unsigned code); /* FP4, sign in bit 3 */

/* Round to nearest even; overflow becomes infinity (half, bf16) or saturates (e4m3). */
uint16_t number_to_half(double value);
uint16_t number_to_bf16(double value);
uint8_t number_to_e4m3(double value);

/* Element `i` of an array of one of the formats. */
double number_at(enum number format, const void *data, size_t i);
size_t number_bytes(enum number format);

/* Distance of two half patterns in steps of the last place; the
 * two zeros are the same number. NaN: a huge distance. */
long number_half_steps(uint16_t a, uint16_t b);

#endif
