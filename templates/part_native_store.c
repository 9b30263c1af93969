/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_native_store.c - a warp's codes into the native layout.
**
** A lane makes eights of its codes, where it has less than eight with its neighbours. What is stored
** in one piece may take up to four eights: those behind come from the lanes that hold them.
*/
#include "part_native.h"

#include "part_native_place.h"

enum { MOST_EIGHTS = ROWVEC_MAX / 8 };

/* The lane's eights, alike in all lanes that share one. */
struct eights {
    val word[MOST_EIGHTS];
    int n, sharers; /* of a lane; lanes that share one */
};

static struct eights gather(struct kb *k, const struct rowvec *v, const val *code)
{
    struct eights e = {.n = v->e < 8 ? 1 : v->e / 8, .sharers = v->e < 8 ? 8 / v->e : 1};
    for (int i = 0; i < v->e; i++) {
        val x = kb_shli(K, code[i], i % 8 * 4);
        e.word[i / 8] = i % 8 ? kb_or(K, e.word[i / 8], x) : x;
    }
    for (int step = 1; step < e.sharers; step *= 2) {
        val other = kb_shuffle_xor(K, e.word[0], step), own = e.word[0];
        val upper = kb_icmpi(K, KB_NE, kb_andi(K, v->lane, step), 0);
        val low = kb_select(K, upper, other, own), high = kb_select(K, upper, own, other);
        e.word[0] = kb_or(K, low, kb_shli(K, high, v->e * step * 4));
    }
    return e;
}

/* The eight `later` behind the lane's j'th; anything behind the vector's last. */
static val behind(struct kb *k, const struct rowvec *v, const struct eights *e, int j, int later)
{
    int at = j + later, lanes = at / e->n * e->sharers;
    if (!lanes)
        return e->word[at];
    val lane = kb_andi(K, kb_addi(K, v->lane, lanes), kb_warp_size(k) - 1);
    return kb_shuffle(K, e->word[at % e->n], lane);
}

/* High bits of codes, at bit 0 of their nibbles. */
static val high_bits(struct kb *k, val word)
{
    return kb_andi(K, kb_lshri(K, word, 2), 0x11111111);
}

static void store_if(struct kb *k, val cond, const struct native_place *p, int which, val byte,
                     val x, int bytes)
{
    int type = bytes == 1 ? KB_I8 : KB_I16;
    struct kb_if only = kb_if(K, cond);
    val at = native_address(K, p, which, byte);
    kb_store(K, bytes == 4 ? x : kb_trunc(K, x, type), at, bytes);
    kb_endif(K, &only);
}

/* word[i]: the i'th eight from this one on. */
static void store_key(struct kb *k, const struct native_place *p, const val word[4])
{
    const struct plane *plane = p->side->plane;
    int bits = plane[NATIVE_MAIN].bits, all = p->side->head_size / 32;
    int words = plane[NATIVE_HIGH].bytes / 4;
    if (bits == 4) {
        val at = native_address(K, p, NATIVE_MAIN, kb_shli(K, p->index, 2));
        kb_store(K, word[0], at, 4);
        return;
    }
    val even = kb_icmpi(K, KB_EQ, kb_andi(K, p->index, 1), 0);
    val low = kb_andi(K, word[0], 0x33333333), next = kb_andi(K, word[1], 0x33333333);
    val both = kb_or(K, low, kb_shli(K, next, 2));
    store_if(K, even, p, NATIVE_MAIN, kb_shli(K, p->index, 1), both, 4);
    if (p->side->codec.bits == 2)
        return;
    val high[4];
    for (int i = 0; i < 4; i++)
        high[i] = high_bits(K, word[i]);
    val first = kb_shli(K, high[0], 2), second = kb_shli(K, high[1], 3);
    val two = kb_or(K, first, second);
    if (words) {
        val four = kb_or(K, two, kb_or(K, high[2], kb_shli(K, high[3], 1)));
        val begins = kb_icmpi(K, KB_EQ, kb_andi(K, p->index, 3), 0);
        val full = kb_and(K, begins, kb_icmpi(K, KB_ULT, p->index, 4LL * words));
        store_if(K, full, p, NATIVE_HIGH, p->index, four, 4);
    }
    if (plane[NATIVE_TAIL].bits) {
        val folded = kb_andi(K, kb_lshri(K, two, 18), 0x3333);
        val tail = kb_or(K, kb_andi(K, two, 0xCCCC), folded);
        val last = kb_icmpi(K, KB_EQ, p->index, all - 2);
        store_if(K, last, p, NATIVE_TAIL, kb_i32(K, 0), tail, 2);
    }
}

/* High bits of an eight's dims 0-3 and 4-7 at bits 2 and 3 of nibbles. */
static val value_half(struct kb *k, val high)
{
    val low = kb_andi(K, high, 0x1111), next = kb_lshri(K, high, 16);
    val first = kb_shli(K, low, 2), second = kb_shli(K, next, 3);
    return kb_or(K, first, second);
}

static void store_value_high(struct kb *k, const struct native_place *p, const val word[2])
{
    const struct plane *plane = p->side->plane;
    int words = plane[NATIVE_HIGH].bytes / 8, all = p->side->head_size / 64;
    val own = value_half(K, high_bits(K, word[0]));
    val next = value_half(K, high_bits(K, word[1]));
    if (words) {
        val four = kb_or(K, own, kb_lshri(K, next, 2));
        val first = kb_icmpi(K, KB_EQ, kb_andi(K, p->index, 1), 0);
        val full = kb_and(K, first, kb_icmpi(K, KB_ULT, p->index, 2LL * words));
        val byte = native_value_byte(K, p, kb_lshri(K, p->index, 1), words);
        store_if(K, full, p, NATIVE_HIGH, byte, four, 2);
    }
    if (plane[NATIVE_TAIL].bits) {
        val folded = kb_andi(K, kb_lshri(K, own, 10), 0x33);
        val tail = kb_or(K, kb_andi(K, own, 0xCC), folded);
        val last = kb_icmpi(K, KB_EQ, p->index, all - 1);
        val byte = kb_add(K, kb_shli(K, p->half, 1), p->pair);
        store_if(K, last, p, NATIVE_TAIL, byte, tail, 1);
    }
}

static void store_value(struct kb *k, const struct native_place *p, const val word[2])
{
    int bits = p->side->plane[NATIVE_MAIN].bits, words = p->side->plane[NATIVE_MAIN].bytes / 8;
    val at_word = bits == 4 ? kb_shli(K, p->index, 1) : p->index;
    val at = native_address(K, p, NATIVE_MAIN, native_value_byte(K, p, at_word, words));
    val high = kb_lshri(K, word[0], 16);
    if (bits == 4) {
        kb_store(K, kb_trunc(K, word[0], KB_I16), at, 2);
        val next = kb_offseti(K, at, 4);
        kb_store(K, kb_trunc(K, high, KB_I16), next, 2);
        return;
    }
    val low = kb_andi(K, word[0], 0x3333);
    val both = kb_or(K, low, kb_shli(K, kb_andi(K, high, 0x3333), 2));
    kb_store(K, kb_trunc(K, both, KB_I16), at, 2);
    if (p->side->codec.bits == 3)
        store_value_high(K, p, word);
}

static struct kb_if writers(struct kb *k, const struct rowvec *v, int sharers)
{
    val writes = kb_icmpi(K, KB_EQ, kb_andi(K, v->lane, sharers - 1), 0);
    return kb_if(K, v->active ? kb_and(K, writes, v->active) : writes);
}

/* One byte a code: up to four at a time, which lie in one unit. */
static void store_bytes(struct kb *k, const struct slot_token *t, const struct side *side,
                        const struct rowvec *v, const val *code)
{
    int n = v->e < 4 ? v->e : 4, run = side->head_size / 4;
    int type = n == 1 ? KB_I8 : n == 2 ? KB_I16 : KB_I32;
    struct native_place p = {.token = t, .side = side, .row = t->place};
    struct kb_if only = writers(K, v, 1);
    for (int i = 0; i < v->e; i += n) {
        val x = code[i];
        for (int j = 1; j < n; j++)
            x = kb_or(K, x, kb_shli(K, code[i + j], 8 * j));
        val element = kb_addi(K, kb_muli(K, v->lane, v->e), i);
        p.lane = kb_divi(K, element, run);
        val at = native_address(K, &p, NATIVE_MAIN, kb_remi(K, element, run));
        kb_store(K, n == 4 ? x : kb_trunc(K, x, type), at, n);
    }
    kb_endif(K, &only);
}

/* Both words of an eight of bytes. A lane's share is whole units of 16, where head sizes are
** multiples of 64, so they are side by side. */
static void store_word_pair(struct kb *k, const struct slot_token *t, const struct side *side,
                            val m, const val word[2])
{
    int run = side->head_size / 4;
    val first = kb_shli(K, m, 3);
    struct native_place p = {.token = t, .side = side, .row = t->place};
    p.lane = kb_divi(K, first, run);
    val at = native_address(K, &p, NATIVE_MAIN, kb_remi(K, first, run));
    val high = kb_shl(K, kb_zext(K, word[1], KB_I64), kb_i64(K, 32));
    kb_store(K, kb_or(K, kb_zext(K, word[0], KB_I64), high), at, 8);
}

/* Pieces begin at eights that their number of eights divides, as it does `lanes`: those behind
** lie in the next lanes. */
void native_store_eights(struct kb *k, const struct slot_token *t, const struct side *side,
                         const struct rowvec *v, const val word[][2], val exists)
{
    bool value = side == &t->head->slot->value;
    int bits = side->codec.bits, more = bits >= 4 ? 1 : value || bits < 3 ? 2 : 4;
    val piece[MOST_EIGHTS][4];
    for (int j = 0; j < v->e / 8; j++)
        for (int later = 0; later < more; later++) {
            val lane = kb_addi(K, kb_lane(K), later);
            lane = kb_andi(K, lane, kb_warp_size(k) - 1);
            piece[j][later] = later ? kb_shuffle(K, word[j][0], lane) : word[j][0];
        }
    struct kb_if only = kb_if(K, exists);
    for (int j = 0; j < v->e / 8; j++) {
        val m = kb_addi(K, v->lane, (long long)j * v->lanes);
        if (bits == 8) {
            store_word_pair(k, t, side, m, word[j]);
            continue;
        }
        struct native_place p = native_place(K, t, side, m);
        if (value)
            store_value(K, &p, piece[j]);
        else
            store_key(K, &p, piece[j]);
    }
    kb_endif(K, &only);
}

void native_store(struct kb *k, const struct slot_token *t, const struct side *side,
                  const struct rowvec *v, const val *code)
{
    bool value = side == &t->head->slot->value, three = side->codec.bits == 3;
    int more = side->codec.bits == 4 ? 1 : value ? 2 : three ? 4 : 2; /* eights of one piece */
    if (side->codec.bits == 8) {
        store_bytes(K, t, side, v, code);
        return;
    }
    struct eights e = gather(K, v, code);
    val word[MOST_EIGHTS][4], first = kb_lshri(K, kb_muli(K, v->lane, v->e), 3);
    for (int j = 0; j < e.n; j++)
        for (int later = 0; later < more; later++)
            word[j][later] = behind(K, v, &e, j, later);
    struct kb_if only = writers(K, v, e.sharers);
    for (int j = 0; j < e.n; j++) {
        struct native_place p = native_place(K, t, side, kb_addi(K, first, j));
        if (value)
            store_value(K, &p, word[j]);
        else
            store_key(K, &p, word[j]);
    }
    kb_endif(K, &only);
}
