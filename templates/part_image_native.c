/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_image_native.c - docs/layouts.md, "Planes and units", read by whole warps.
*/
#include "part_image_native.h"

enum { MOST_WORDS = 32, LOW_BITS = 0x33333333, CELLS = 32 };

bool image_is_native(const struct attend *a) { return a->image && a->head.layout == LAYOUT_NATIVE; }

/* A page's block of the warp's head. */
struct block {
    const struct attend *a;
    val record; /* shared */
    int sub;    /* which of the step's pages */
};

/* Where the lane's units of a plane begin. */
static val first_cell(struct kb *k, const struct block *b, const struct plane *plane)
{
    const struct attend *a = b->a;
    if (a->cell && plane->unit == 16) {
        val page = kb_offset(K, a->image, kb_muli(K, a->image_page, b->sub));
        return kb_offseti(K, kb_offset(K, page, a->cell), plane->at);
    }
    val first = kb_offseti(K, b->record, plane->at);
    return kb_offset(K, first, kb_muli(K, kb_lane(K), plane->unit));
}

/* A lane's words of a plane; `half`: of rows 8 to 15 of keys, the lane's cell being CELLS on. */
static void plane_words(struct kb *k, const struct block *b, const struct plane *plane, int rows,
                        int half, val *words)
{
    int unit = plane->unit, n = unit / 4;
    val cell = first_cell(K, b, plane);
    for (int i = 0; i * unit < plane->bytes; i++) {
        val at = kb_offseti(K, cell, (long long)(i * rows * NATIVE_LANES + half * CELLS) * unit);
        if (n <= 1) {
            val x = kb_load(K, unit == 4 ? KB_I32 : KB_I16, at, unit);
            words[i] = unit == 4 ? x : kb_zext(K, x, KB_I32);
            continue;
        }
        val v = kb_load(K, KB_VEC(KB_I32, n), at, unit);
        for (int j = 0; j < n; j++)
            words[i * n + j] = kb_extract(K, v, j);
    }
}

/* The word of high bits of which word w has its own at bits 2, 3, 0 or 1 of the nibbles, by w % 4. */
static val align_high(struct kb *k, val high, int w)
{
    int place = w % 4;
    return place < 2 ? kb_lshri(K, high, place) : kb_shli(K, high, 4 - place);
}

/* Word w from its planes: what lies in a nibble above the code is another's. */
static val join_planes(struct kb *k, const val *low, val high, int w)
{
    val x = kb_lshri(K, low[w / 2], 2 * (w % 2));
    if (!high)
        return x;
    high = align_high(K, high, w);
    return kb_bit_select(K, LOW_BITS, x, high);
}

bool image_in_pairs(const struct attend *a) { return image_is_native(a) || a->plan->value_pairs; }

void image_native_keys(struct kb *k, const struct attend *a, val block, int sub,
                       struct attend_codes *c)
{
    const struct plane *plane = a->plan->slot.key.plane;
    const struct block b = {a, block, sub};
    for (int half = 0; half < 2; half++) {
        val *words = c->key[sub][half], low[MOST_WORDS], high[MOST_WORDS] = {NULL};
        if (plane[NATIVE_MAIN].bits >= 4) {
            plane_words(K, &b, &plane[NATIVE_MAIN], NATIVE_KEY_ROWS, half, words);
            continue;
        }
        int whole = plane[NATIVE_HIGH].bits ? plane[NATIVE_HIGH].bytes / 4 : 0;
        plane_words(K, &b, &plane[NATIVE_MAIN], NATIVE_KEY_ROWS, half, low);
        if (whole)
            plane_words(K, &b, &plane[NATIVE_HIGH], NATIVE_KEY_ROWS, half, high);
        if (plane[NATIVE_TAIL].bits) {
            plane_words(K, &b, &plane[NATIVE_TAIL], NATIVE_KEY_ROWS, half, &high[whole]);
            high[whole] = kb_or(K, high[whole], kb_shli(K, high[whole], 18));
        }
        for (int w = 0; w < a->key_run / 8; w++)
            words[w] = join_planes(K, low, high[w / 4], w);
    }
}

int image_native_words(const struct attend *a) { return a->plan->geo.value_head_size / 16; }

/* The rest of high bits of a pair: a byte a token, of both tokens in its halves. */
static val pair_tail(struct kb *k, val tail, int pair)
{
    val own = kb_andi(K, kb_lshri(K, tail, 8 * pair), 0x00ff00ff);
    return kb_or(K, own, kb_shli(K, own, 10));
}

void image_native_values(struct kb *k, const struct attend *a, val block, int sub,
                         struct attend_codes *c)
{
    const struct plane *plane = a->plan->slot.value.plane;
    const struct block b = {a, block, sub};
    val *words = c->value[sub][0], low[MOST_WORDS], high[MOST_WORDS] = {NULL}, tail = NULL;
    if (plane[NATIVE_MAIN].bits == 4) {
        plane_words(K, &b, &plane[NATIVE_MAIN], NATIVE_VALUE_ROWS, 0, words);
        return;
    }
    plane_words(K, &b, &plane[NATIVE_MAIN], NATIVE_VALUE_ROWS, 0, low);
    int whole = plane[NATIVE_HIGH].bits ? plane[NATIVE_HIGH].bytes / 8 : 0; /* words of a pair */
    if (whole)
        plane_words(K, &b, &plane[NATIVE_HIGH], NATIVE_VALUE_ROWS, 0, high);
    if (plane[NATIVE_TAIL].bits)
        plane_words(K, &b, &plane[NATIVE_TAIL], NATIVE_VALUE_ROWS, 0, &tail);
    int n = image_native_words(a) / 2;
    for (int pair = 0; pair < 2; pair++) {
        val rest = tail ? pair_tail(K, tail, pair) : NULL;
        for (int w = 0; w < n; w++) {
            val bits = w / 4 < whole ? high[pair * whole + w / 4] : rest;
            words[pair * n + w] = join_planes(K, low + pair * n / 2, bits, w);
        }
    }
}

val image_native_word(const struct attend *a, const val *words, int pair, int dim)
{
    return words[pair * image_native_words(a) / 2 + dim / 4];
}
