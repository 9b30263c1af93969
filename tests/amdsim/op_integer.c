/* SPDX-License-Identifier: Apache-2.0 */
/*
** op_integer.c - vector instructions on bits and integers.
*/
#include "fn.h"

U32(mov, a)
U64(mov_b64, A)
U32(not, ~a)
U32(and, a &b)
U32(or, a | b)
U32(xor, a ^ b)
U32(xnor, ~(a ^ b))
U32(xor3, a ^ b ^ c)
U32(or3, a | b | c)
U32(and_or, (a & b) | c)
U32(lshl_or, a << (b & 31) | c)
U32(lshlrev, b << (a & 31))
U32(lshrrev, b >> (a & 31))
U32(ashrrev, (int32_t)b >> (a & 31))
U32(lshlrev_b16, b << (a & 15) & 0xffff)
U32(lshrrev_b16, (b & 0xffff) >> (a & 15))
U32(ashrrev_i16, (uint16_t)((int16_t)b >> (a & 15)))
U32(pk_lshlrev_b16, (b << (a & 15) & 0xffff) | b >> 16 << (a >> 16 & 15) << 16)
U32(pk_lshrrev_b16, (b & 0xffff) >> (a & 15) | b >> 16 >> (a >> 16 & 15) << 16)
U32(pk_ashrrev_i16, (uint16_t)((int16_t)b >> (a & 15)) |
                        (uint32_t)(uint16_t)((int16_t)(b >> 16) >> (a >> 16 & 15)) << 16)
U64(lshlrev_b64, B << (a & 63))
U64(lshrrev_b64, B >> (a & 63))
U64(ashrrev_i64, (uint64_t)((int64_t)B >> (a & 63)))
U32(bfi, (a & b) | (~a & c))
U32(bfm, ((1u << (a & 31)) - 1) << (b & 31))
U32(alignbit, (b | (uint64_t)a << 32) >> (c & 31))
U32(alignbyte, (b | (uint64_t)a << 32) >> 8 * (c & 3))
U32(pack_f16, (a & 0xffff) | b << 16)
U32(cndmask, x->mask >> l & 1 ? b : a)
U32(bcnt, (uint32_t)__builtin_popcount(a) + b)
U32(ffbh, a ? __builtin_clz(a) : -1)
U32(ffbl, a ? __builtin_ctz(a) : -1)
U32(mbcnt_lo, (uint32_t)__builtin_popcount(l < 32 ? a & ((1u << l) - 1) : a) + b)
U32(mbcnt_hi, (uint32_t)__builtin_popcount(l < 32 ? 0 : a & ((1u << (l - 32)) - 1)) + b)

/* op_sel alone chooses: a word of the first source, a word of the second. */
void op_pk_mov(struct vec *x)
{
    EACH
    {
        x->d[l] = x->s[0][l];
        x->dh[l] = x->s[1][l];
    }
}

static uint32_t reversed(uint32_t a)
{
    uint32_t r = 0;
    for (int i = 0; i < 32; i++)
        r |= (a >> i & 1) << (31 - i);
    return r;
}
U32(bfrev, reversed(a))

static uint32_t field(uint32_t a, uint32_t from, uint32_t width)
{
    return width ? a >> from & (~0u >> (32 - width)) : 0;
}
static uint32_t signed_field(uint32_t a, uint32_t from, uint32_t width)
{
    uint32_t x = field(a, from, width);
    return width && x >> (width - 1) ? x | ~(~0u >> (32 - width)) : x;
}
U32(bfe_u32, field(a, b & 31, c & 31))
U32(bfe_i32, signed_field(a, b & 31, c & 31))

/* Bytes 0 to 3 are of b, 4 to 7 of a; 8 to 11: a sign all over; 12: zero; more: ones. */
static uint32_t perm_byte(uint64_t string, uint32_t select)
{
    if (select >= 13)
        return 0xff;
    if (select == 12)
        return 0;
    if (select >= 8)
        return string >> (16 * (select - 8) + 15) & 1 ? 0xff : 0;
    return string >> 8 * select & 0xff;
}

void op_perm(struct vec *x)
{
    EACH
    {
        uint64_t string = x->s[1][l] | (uint64_t)x->s[0][l] << 32;
        uint32_t select = x->s[2][l], d = 0;
        for (int i = 0; i < 4; i++)
            d |= perm_byte(string, select >> 8 * i & 0xff) << 8 * i;
        x->d[l] = d;
    }
}

void op_bitop3(struct vec *x)
{
    EACH
    {
        uint32_t d = 0;
        for (unsigned k = 0; k < 8; k++)
            if (x->immediate >> k & 1)
                d |= (k & 4 ? x->s[0][l] : ~x->s[0][l]) & (k & 2 ? x->s[1][l] : ~x->s[1][l]) &
                     (k & 1 ? x->s[2][l] : ~x->s[2][l]);
        x->d[l] = d;
    }
}

/* ---- arithmetic ---- */

#define LOW24(a) ((a)&0xffffff)
#define SIGNED24(a) ((int32_t)((a) << 8) >> 8)
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define I(a) ((int32_t)(a))
#define PACKED(low, high) (((uint32_t)(low)&0xffff) | (uint32_t)(high) << 16)

U32(add_u32, a + b)
U32(sub_u32, a - b)
U32(subrev_u32, b - a)
U32(add3, a + b + c)
U32(add_lshl, (a + b) << (c & 31))
U32(lshl_add, (a << (b & 31)) + c)
U32(xad, (a ^ b) + c)
U64(lshl_add_u64, (A << (b & 7)) + C)
U32(mul_lo_u32, a *b)
U32(mul_hi_u32, (uint64_t)a *b >> 32)
U32(mul_hi_i32, (uint64_t)((int64_t)I(a) * I(b)) >> 32)
U32(mul_u24, LOW24(a) * LOW24(b))
U32(mul_i24, (uint32_t)SIGNED24(a) * (uint32_t)SIGNED24(b))
U32(mad_u24, LOW24(a) * LOW24(b) + c)
U32(mad_i24, (uint32_t)SIGNED24(a) * (uint32_t)SIGNED24(b) + c)
U32(min_i32, MIN(I(a), I(b)))
U32(max_i32, MAX(I(a), I(b)))
U32(min_u32, MIN(a, b))
U32(max_u32, MAX(a, b))
U32(min3_i32, MIN(MIN(I(a), I(b)), I(c)))
U32(max3_i32, MAX(MAX(I(a), I(b)), I(c)))
U32(min3_u32, MIN(MIN(a, b), c))
U32(max3_u32, MAX(MAX(a, b), c))
U32(med3_i32, MAX(MIN(I(a), I(b)), MIN(MAX(I(a), I(b)), I(c))))
U32(med3_u32, MAX(MIN(a, b), MIN(MAX(a, b), c)))
U32(pk_add_u16, PACKED(a + b, (a >> 16) + (b >> 16)))
U32(pk_sub_u16, PACKED(a - b, (a >> 16) - (b >> 16)))
U32(pk_mul_lo_u16, PACKED((a & 0xffff) * (b & 0xffff), (a >> 16) * (b >> 16)))
U32(pk_mad_u16, PACKED((a & 0xffff) * (b & 0xffff) + c, (a >> 16) * (b >> 16) + (c >> 16)))

/* value: 33 bits and more; its bit 32 is the carry, or the borrow */
#define CARRY(id, value)                                                                           \
    void op_##id(struct vec *x)                                                                    \
    {                                                                                              \
        x->out = 0;                                                                                \
        EACH                                                                                       \
        {                                                                                          \
            uint64_t a = x->s[0][l], b = x->s[1][l], in = x->mask >> l & 1, result = (value);      \
            x->d[l] = (uint32_t)result;                                                            \
            x->out |= (result >> 32 & 1) << l;                                                     \
        }                                                                                          \
    }
CARRY(add_co, a + b + in)
CARRY(sub_co, a - b - in)
CARRY(subrev_co, b - a - in)

void op_mad_u64_u32(struct vec *x)
{
    x->out = 0;
    EACH
    {
        uint64_t c = x->s[2][l] | (uint64_t)x->h[2][l] << 32;
        uint64_t result = (uint64_t)x->s[0][l] * x->s[1][l] + c;
        x->d[l] = (uint32_t)result;
        x->dh[l] = (uint32_t)(result >> 32);
        x->out |= (uint64_t)(result < c) << l;
    }
}

void op_mad_i64_i32(struct vec *x)
{
    x->out = 0;
    EACH
    {
        int64_t c = (int64_t)(x->s[2][l] | (uint64_t)x->h[2][l] << 32),
                product = (int64_t)I(x->s[0][l]) * I(x->s[1][l]);
        int64_t result;
        x->out |= (uint64_t)__builtin_add_overflow(product, c, &result) << l;
        x->d[l] = (uint32_t)result;
        x->dh[l] = (uint32_t)((uint64_t)result >> 32);
    }
}
