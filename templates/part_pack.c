/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_pack.c - a warp's codes to and from one bit stream.
**
** A string is up to eight codes in an integer, i32 where they fit.
*/
#include "part_pack.h"

enum { PIECE = 8 };

/* Codes of a lane that make one string. */
static int piece_of(const struct rowvec *v, int bits)
{
    int n = v->e < PIECE ? v->e : PIECE;
    while (n * bits > 64)
        n /= 2;
    return n;
}

static int word_of(int bits) { return bits <= 32 ? KB_I32 : KB_I64; }

static val widen(struct kb *k, val x, int type)
{
    return type == KB_I64 ? kb_zext(K, x, KB_I64) : x;
}

/* Largest power of two up to 8 that divides both. */
static int unit_of(int bytes, int align)
{
    int unit = 1;
    while (unit < 8 && bytes % (2 * unit) == 0 && align % (2 * unit) == 0)
        unit *= 2;
    return unit;
}

static int unit_type(int unit)
{
    return unit == 1 ? KB_I8 : unit == 2 ? KB_I16 : unit == 4 ? KB_I32 : KB_I64;
}

static int width_of(int type)
{
    return type == KB_I8 ? 8 : type == KB_I16 ? 16 : type == KB_I32 ? 32 : 64;
}

/* x, a string of `type`, as another integer type. */
static val resize(struct kb *k, val x, int from, int to)
{
    if (width_of(from) == width_of(to))
        return x;
    return width_of(from) < width_of(to) ? kb_zext(K, x, to) : kb_trunc(K, x, to);
}

static val string_of(struct kb *k, const val *code, int n, int bits)
{
    int type = word_of(n * bits);
    val s = widen(k, code[0], type);
    for (int i = 1; i < n; i++) {
        val wide = widen(k, code[i], type);
        val placed = kb_shli(K, wide, i * bits);
        s = kb_or(K, s, placed);
    }
    return s;
}

void pack_store_string(struct kb *k, val s, int bytes, val at, int align)
{
    int unit = unit_of(bytes, align);
    for (int i = 0; i < bytes; i += unit) {
        val shifted = kb_lshri(K, s, 8 * i);
        val part = resize(k, shifted, word_of(8 * bytes), unit_type(unit));
        val to = kb_offseti(K, at, i);
        kb_store(K, part, to, unit);
    }
}

val pack_load_string(struct kb *k, int bytes, val at, int align)
{
    int unit = unit_of(bytes, align), type = word_of(8 * bytes);
    val s = NULL;
    for (int i = 0; i < bytes; i += unit) {
        val from = kb_offseti(K, at, i);
        val part = kb_load(K, unit_type(unit), from, unit);
        val wide = resize(k, part, unit_type(unit), type);
        val placed = kb_shli(K, wide, 8 * i);
        s = s ? kb_or(K, s, placed) : placed;
    }
    return s;
}

/* Pointer to the byte in which the lane's codes begin. */
static val lane_pointer(struct kb *k, val lane, int lane_bits, val base)
{
    val bit = kb_muli(K, lane, lane_bits);
    val byte = kb_lshri(K, bit, 3);
    return kb_offset(K, base, byte);
}

/* Lanes whose codes are whole bytes. */
static void store_whole(struct kb *k, const struct rowvec *v, int bits, val base, int align,
                        const val *code)
{
    int n = piece_of(v, bits), bytes = n * bits / 8;
    val at = lane_pointer(k, v->lane, v->e * bits, base);
    struct rowvec_if only = rowvec_if_active(k, v);
    for (int i = 0; i < v->e; i += n) {
        val s = string_of(k, code + i, n, bits);
        val to = kb_offseti(K, at, (long long)bytes * (i / n));
        pack_store_string(k, s, bytes, to, align);
    }
    rowvec_endif(k, &only);
}

/* Lanes that join: after each step the lower of two holds the codes of both. */
static void store_joined(struct kb *k, const struct rowvec *v, int bits, val base, int align,
                         const val *code)
{
    int n = v->e;
    val s = string_of(k, code, n, bits);
    for (; n * bits % 8; n *= 2) {
        val upper = kb_shuffle_xor(K, s, n / v->e);
        int type = word_of(2 * n * bits);
        val high = widen(k, upper, type), low = widen(k, s, type);
        val placed = kb_shli(K, high, n * bits);
        s = kb_or(K, low, placed);
    }
    val place = kb_andi(K, v->lane, n / v->e - 1);
    val writes = kb_icmpi(K, KB_EQ, place, 0);
    if (v->active)
        writes = kb_and(K, writes, v->active);
    val at = lane_pointer(k, v->lane, v->e * bits, base);
    struct kb_if only = kb_if(K, writes);
    pack_store_string(k, s, n * bits / 8, at, align);
    kb_endif(K, &only);
}

void pack_store(struct kb *k, const struct rowvec *v, int bits, val base, int align,
                const val *code)
{
    if (v->e * bits % 8)
        store_joined(k, v, bits, base, align, code);
    else
        store_whole(k, v, bits, base, align, code);
}

/* A lane whose codes begin and end inside bytes: byte by byte, never past the last. */
static val load_straddling(struct kb *k, const struct rowvec *v, int bits, val base, val lane)
{
    int lane_bits = v->e * bits, grid = lane_bits & -lane_bits;
    int most = (8 - grid + lane_bits + 7) / 8, type = word_of(8 * most);
    val bit = kb_muli(K, lane, lane_bits);
    val first = kb_lshri(K, bit, 3), shift32 = kb_andi(K, bit, 7);
    val last = kb_i32(K, v->d * bits / 8 - 1);
    val s = NULL;
    for (int i = 0; i < most; i++) {
        val next = kb_addi(K, first, i);
        val index = kb_smin(K, next, last);
        val at = kb_offset(K, base, index);
        val byte = kb_load(K, KB_I8, at, 1);
        val wide = kb_zext(K, byte, type);
        val placed = kb_shli(K, wide, 8 * i);
        s = s ? kb_or(K, s, placed) : placed;
    }
    val shift = widen(k, shift32, type);
    val low = kb_lshr(K, s, shift);
    return resize(k, low, type, word_of(lane_bits));
}

static void split_string(struct kb *k, val s, int n, int bits, val *code)
{
    for (int i = 0; i < n; i++) {
        val shifted = kb_lshri(K, s, i * bits);
        val low = resize(k, shifted, word_of(n * bits), KB_I32);
        code[i] = kb_andi(K, low, (1 << bits) - 1);
    }
}

void pack_load(struct kb *k, const struct rowvec *v, int bits, val base, int align, val *code)
{
    val lane = v->lane;
    if (v->active) {
        val zero = kb_i32(K, 0);
        lane = kb_select(K, v->active, lane, zero);
    }
    if (v->e * bits % 8) {
        val s = load_straddling(k, v, bits, base, lane);
        split_string(k, s, v->e, bits, code);
        return;
    }
    int n = piece_of(v, bits), bytes = n * bits / 8;
    val at = lane_pointer(k, lane, v->e * bits, base);
    for (int i = 0; i < v->e; i += n) {
        val from = kb_offseti(K, at, (long long)bytes * (i / n));
        val s = pack_load_string(k, bytes, from, align);
        split_string(k, s, n, bits, code + i);
    }
}
