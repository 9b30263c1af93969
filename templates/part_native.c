/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_native.c - codes of the native layout: where an eight's parts lie, and reading them.
*/
#include "part_native.h"

#include "part_native_place.h"
#include "part_pack.h"

enum { RUN_WORDS = 40 };

static bool is_value(const struct slot_token *t, const struct side *side)
{
    return side == &t->head->slot->value;
}

struct native_place native_place(struct kb *k, const struct slot_token *t, const struct side *side,
                                 val m)
{
    struct native_place p = {.token = t, .side = side, .value = is_value(t, side)};
    int each = side->head_size / (p.value ? 64 : 32); /* eights of a row or of a lane */
    val outer = kb_divi(K, m, each);
    p.index = kb_remi(K, m, each);
    if (!p.value) {
        p.row = t->place;
        p.lane = outer;
        return p;
    }
    p.row = outer;
    p.lane = kb_andi(K, kb_lshri(K, t->place, 1), NATIVE_LANES - 1);
    p.pair = kb_lshri(K, t->place, 3);
    p.half = kb_andi(K, t->place, 1);
    return p;
}

val native_address(struct kb *k, const struct native_place *p, int which, val byte)
{
    const struct plane *plane = &p->side->plane[which];
    int rows = p->value ? NATIVE_VALUE_ROWS : NATIVE_KEY_ROWS, unit = plane->unit;
    val cell = kb_add(K, kb_muli(K, p->row, NATIVE_LANES), p->lane);
    val first = kb_muli(K, cell, unit), within = kb_remi(K, byte, unit);
    val at = kb_add(K, first, within);
    if (plane->bytes > unit) {
        val units = kb_divi(K, byte, unit);
        at = kb_add(K, at, kb_muli(K, units, (long long)rows * NATIVE_LANES * unit));
    }
    return kb_offset(K, kb_offseti(K, p->token->record, plane->at), at);
}

/* Byte of the value lane's word `word` of the pair, which has `words`, in the token's half. */
val native_value_byte(struct kb *k, const struct native_place *p, val word, int words)
{
    val at = kb_add(K, kb_muli(K, p->pair, words), word);
    val bytes = kb_shli(K, at, 2), half = kb_shli(K, p->half, 1);
    return kb_add(K, bytes, half);
}

static val load(struct kb *k, bool once, int type, val at, int align)
{
    return once ? kb_load_once(K, type, at, align) : kb_load(K, type, at, align);
}

static val load_half(struct kb *k, bool once, val at)
{
    return kb_zext(K, load(K, once, KB_I16, at, 2), KB_I32);
}

/* Two sources of a word of high bits: which of them the eight has is known at run time only where
** a side has both. */
static val choose(struct kb *k, val full, val tail, val is_tail)
{
    return !full ? tail : !tail ? full : kb_select(K, is_tail, tail, full);
}

/* The word of high bits in which the eight's lie. Where there is a full one, index / 4 of it may
** lie past the last: the last is read then. */
static val key_high(struct kb *k, const struct native_place *p, bool once)
{
    const struct plane *plane = p->side->plane;
    int words = plane[NATIVE_HIGH].bytes / 4;
    val word = kb_lshri(K, p->index, 2), full = NULL, tail = NULL;
    val is_tail = kb_icmpi(K, KB_EQ, word, words);
    if (words) {
        val inside = kb_smin(K, word, kb_i32(K, words - 1));
        full = load(K, once, KB_I32, native_address(K, p, NATIVE_HIGH, kb_shli(K, inside, 2)), 4);
    }
    if (plane[NATIVE_TAIL].bits) {
        tail = load_half(K, once, native_address(K, p, NATIVE_TAIL, kb_i32(K, 0)));
        tail = kb_or(K, tail, kb_shli(K, tail, 18));
    }
    return choose(K, full, tail, is_tail);
}

static val value_high(struct kb *k, const struct native_place *p, bool once)
{
    const struct plane *plane = p->side->plane;
    int words = plane[NATIVE_HIGH].bytes / 8; /* of a pair */
    val word = kb_lshri(K, p->index, 1), full = NULL, tail = NULL;
    val is_tail = kb_icmpi(K, KB_EQ, word, words);
    if (words) {
        val inside = kb_smin(K, word, kb_i32(K, words - 1));
        val byte = native_value_byte(K, p, inside, words);
        full = load_half(K, once, native_address(K, p, NATIVE_HIGH, byte));
    }
    if (plane[NATIVE_TAIL].bits) {
        val byte = kb_add(K, kb_shli(K, p->half, 1), p->pair);
        val at = native_address(K, p, NATIVE_TAIL, byte);
        tail = kb_zext(K, load(K, once, KB_I8, at, 1), KB_I32);
        tail = kb_or(K, tail, kb_shli(K, tail, 10));
    }
    return choose(K, full, tail, is_tail);
}

static void load_key(struct kb *k, const struct native_place *p, bool once, val words[2])
{
    int bits = p->side->plane[NATIVE_MAIN].bits;
    if (bits == 8) {
        val at = native_address(K, p, NATIVE_MAIN, kb_shli(K, p->index, 3));
        val both = load(K, once, KB_VEC(KB_I32, 2), at, 8);
        words[0] = kb_extract(K, both, 0);
        words[1] = kb_extract(K, both, 1);
        return;
    }
    val word = bits == 2 ? kb_lshri(K, p->index, 1) : p->index;
    val at = native_address(K, p, NATIVE_MAIN, kb_shli(K, word, 2));
    words[0] = load(K, once, KB_I32, at, 4);
    if (bits == 4)
        return;
    val shift = kb_shli(K, kb_andi(K, p->index, 1), 1);
    words[0] = kb_andi(K, kb_lshr(K, words[0], shift), 0x33333333);
    if (p->side->codec.bits == 2)
        return;
    val high = key_high(K, p, once), place = kb_andi(K, p->index, 3);
    shift = kb_xor(K, place, kb_i32(K, 2)); /* groups 0 to 3 lie at bits 2, 3, 0, 1 of a nibble */
    high = kb_andi(K, kb_lshr(K, high, shift), 0x11111111);
    words[0] = kb_or(K, words[0], kb_shli(K, high, 2));
}

static void load_value(struct kb *k, const struct native_place *p, bool once, val words[2])
{
    int bits = p->side->plane[NATIVE_MAIN].bits, pair_words = p->side->plane[NATIVE_MAIN].bytes / 8;
    val word = bits == 4 ? kb_shli(K, p->index, 1) : p->index;
    val byte = native_value_byte(K, p, word, pair_words);
    val at = native_address(K, p, NATIVE_MAIN, byte);
    val low = load_half(K, once, at), high;
    if (bits == 4) { /* units are 8 bytes or more: the next word is in the same */
        high = load_half(K, once, kb_offseti(K, at, 4));
        words[0] = kb_or(K, low, kb_shli(K, high, 16));
        return;
    }
    high = kb_andi(K, kb_lshri(K, low, 2), 0x3333);
    low = kb_andi(K, low, 0x3333);
    words[0] = kb_or(K, low, kb_shli(K, high, 16));
    if (p->side->codec.bits == 2)
        return;
    val first = kb_xor(K, kb_shli(K, kb_andi(K, p->index, 1), 1), kb_i32(K, 2)); /* 2 or 0 */
    val plane = kb_lshr(K, value_high(K, p, once), first);
    low = kb_andi(K, plane, 0x1111);
    high = kb_andi(K, kb_lshri(K, plane, 1), 0x1111);
    plane = kb_or(K, low, kb_shli(K, high, 16));
    words[0] = kb_or(K, words[0], kb_shli(K, plane, 2));
}

static void load8(struct kb *k, const struct slot_token *t, const struct side *side, val m,
                  bool once, val words[2])
{
    struct native_place p = native_place(K, t, side, m);
    if (p.value)
        load_value(K, &p, once, words);
    else
        load_key(K, &p, once, words);
}

void native_load8(struct kb *k, const struct slot_token *t, const struct side *side, val m,
                  val words[2])
{
    load8(K, t, side, m, true, words);
}

void native_load(struct kb *k, const struct slot_token *t, const struct side *side,
                 const struct rowvec *v, val *code)
{
    int bits = side->codec.bits, width = bits == 8 ? 8 : 4;
    val lane = v->active ? kb_select(K, v->active, v->lane, kb_i32(K, 0)) : v->lane;
    val element = kb_muli(K, lane, v->e), words[2];
    val within = kb_andi(K, element, 7); /* where a lane has less than eight */
    for (int i = 0; i < v->e; i++) {
        if (i % 8 == 0)
            load8(K, t, side, kb_lshri(K, kb_addi(K, element, i), 3), false, words);
        int bit = i % 8 * width;
        val word = words[bit / 32], x = kb_lshri(K, word, bit % 32);
        if (v->e < 8 && bits == 8) {
            val at = kb_addi(K, within, i);
            word = kb_select(K, kb_icmpi(K, KB_ULT, at, 4), words[0], words[1]);
            x = kb_lshr(K, word, kb_shli(K, kb_andi(K, at, 3), 3));
        } else if (v->e < 8) {
            x = kb_lshr(K, words[0], kb_shli(K, kb_addi(K, within, i), 2));
        }
        code[i] = kb_andi(K, x, (1 << bits) - 1);
    }
}

/* Eight nibbles of `bits` bits -> 8 * bits bits. */
static val squeeze(struct kb *k, val x, int bits)
{
    for (int have = 1; have < 8 && bits < 4; have *= 2) { /* codes that lie together */
        int from = 4 * have, to = bits * have;
        unsigned even = 0, odd;
        for (int at = 0; at < 32; at += 2 * from)
            even |= ((1u << to) - 1) << at;
        odd = even << from;
        val low = kb_andi(K, x, even), high = kb_andi(K, x, odd);
        x = kb_or(K, low, kb_lshri(K, high, from - to));
    }
    return x;
}

/* Appends `n` bits at bit `at` of a string of words. */
static void append(struct kb *k, val *words, int at, val x, int n)
{
    val low = kb_shli(K, x, at % 32);
    words[at / 32] = at % 32 ? kb_or(K, words[at / 32], low) : low;
    if (at % 32 + n > 32)
        words[at / 32 + 1] = kb_lshri(K, x, 32 - at % 32);
}

static void load_eights(struct kb *k, const struct slot_token *t, const struct side *side, val m,
                        int n, val *words)
{
    int bits = side->codec.bits;
    for (int i = 0; i < n; i++) {
        val eight[2], at = kb_addi(K, m, i);
        if (n > 1) /* what a run takes of the one behind the last it does not use */
            at = kb_smin(K, at, kb_i32(K, side->head_size / 8 - 1));
        load8(K, t, side, at, true, eight);
        if (bits == 8) {
            words[2 * i] = eight[0];
            words[2 * i + 1] = eight[1];
        } else {
            append(K, words, 8 * bits * i, squeeze(K, eight[0], bits), 8 * bits);
        }
    }
}

void native_load_run(struct kb *k, const struct slot_token *t, const struct side *side, val first,
                     int run, int step, val *words)
{
    int bits = side->codec.bits;
    val m = kb_lshri(K, first, 3);
    if (run % 8 == 0 && step % 8 == 0) {
        load_eights(K, t, side, m, run / 8, words);
        return;
    }
    bool within = 8 % run == 0 && step % run == 0; /* one eight */
    int n = within ? 1 : (run + 7 + 7) / 8, have = (8 * bits * n + 31) / 32;
    val string[RUN_WORDS];
    if (bits > 4 || have > RUN_WORDS) {
        kb_fail(K, "native: runs of %d codes of %d bits", run, bits);
        return;
    }
    load_eights(K, t, side, m, n, string);
    val shift = kb_muli(K, kb_andi(K, first, 7), bits); /* below 32 */
    for (int i = 0; i < (run * bits + 31) / 32; i++)
        words[i] = i + 1 < have ? kb_funnel(K, string[i], string[i + 1], shift)
                                : kb_lshr(K, string[i], shift);
}

void slot_store(struct kb *k, const struct slot_token *t, const struct side *side,
                const struct rowvec *v, const val *code)
{
    if (t->head->layout == LAYOUT_NATIVE)
        native_store(K, t, side, v, code);
    else
        pack_store(K, v, side->codec.bits, slot_codes(K, t, side), side->code_align, code);
}

void slot_load(struct kb *k, const struct slot_token *t, const struct side *side,
               const struct rowvec *v, val *code)
{
    if (t->head->layout == LAYOUT_NATIVE)
        native_load(K, t, side, v, code);
    else
        pack_load(K, v, side->codec.bits, slot_codes(K, t, side), side->code_align, code);
}
