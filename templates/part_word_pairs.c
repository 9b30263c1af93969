/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_word_pairs.c - values of aos rows in images, by loads that transpose.
*/
#include "part_word_pairs.h"

#include "part_image_native.h"
#include "part_words.h"

enum { CHUNK = 16, ROWS = 8, AT_ONCE = 4, PAIR = 4 /* codes of a token */ };

static int chunks(const struct plan *p) { return p->slot.value.code_bytes / CHUNK; }

val word_pairs_row(struct kb *k) { return kb_andi(K, kb_lane(K), ROWS - 1); }

val word_pairs_fit(struct kb *k)
{
    val rest = kb_andi(K, kb_param(K, "image_pitch"), CHUNK - 1);
    return kb_icmpi(K, KB_EQ, rest, 0);
}

/* Bytes from a row's image to the head's codes. */
static val first_code(struct kb *k, const struct plan *p, val member)
{
    val slot = kb_muli(K, member, p->slot.slot_bytes);
    return kb_addi(K, slot, p->slot.value.code_offset);
}

/* Bytes before the codes in the first 16 that are read. */
static val before(struct kb *k, val first) { return kb_andi(K, first, CHUNK - 1); }

/* Lanes 8m to 8m + 7 tell of the m'th of a load's 8 x 8 words: 16 bytes side by side of the same rows, then of rows
** eight on. */
void word_pairs_begin(struct kb *k, struct attend *v, val member, val row)
{
    const struct plan *p = v->plan;
    struct attend_words *w = &v->words;
    int n = chunks(p);
    words_rows(K, v);
    val first = first_code(K, p, member), low = before(K, first);
    val which = kb_lshri(K, kb_lane(K), 3), chunk = which, half = kb_andi(K, which, 1);
    val begin = kb_add(K, row, kb_sub(K, first, low));
    val more = kb_muli(K, v->head.step, v->tokens_8);
    val at = begin;
    if (n < AT_ONCE) {
        chunk = kb_andi(K, which, n - 1);
        at = kb_add(K, at, kb_mul(K, kb_divi(K, which, n), more));
    }
    w->pairs = kb_held(K, kb_add(K, at, kb_shli(K, chunk, 4)));
    val page = kb_mul(K, kb_lshri(K, which, 1), v->image_page);
    at = kb_add(K, begin, kb_add(K, page, kb_mul(K, half, more)));
    w->pairs_last = kb_held(K, kb_addi(K, at, (long long)n * CHUNK));
    w->pairs_before = kb_held(K, kb_sub(K, kb_lshri(K, low, 1), v->y));
}

void word_pairs_load(struct kb *k, const struct attend *a, struct attend_codes *c)
{
    int n = chunks(a->plan), words = image_native_words(a), halves = ROWS / AT_ONCE;
    val last[AT_ONCE], is_before = kb_icmpi(K, KB_SGT, a->words.pairs_before, 0);
    for (int u = 0; u < a->plan->subtiles; u++)
        for (int w = 0; w < words; w += AT_ONCE) {
            val at = kb_offset(K, a->image, a->rows_8[2 * u + w / n]);
            at = kb_offseti(K, kb_offset(K, at, a->words.pairs), (long long)w % n * CHUNK);
            kb_matrix(K)->load_pairs(K, at, &c->value[u][0][w]);
        }
    kb_matrix(K)->load_pairs(K, kb_offset(K, a->image, a->words.pairs_last), last);
    for (int i = 0; i < AT_ONCE; i++) {
        val *x = &c->value[i / halves][0][i % halves * n];
        *x = kb_select(K, is_before, last[i], *x);
    }
}

void word_pairs_join(struct kb *k, const struct attend *a, struct attend_codes *c)
{
    enum { LOW = 0x5410, HIGH = 0x7632 };
    int n = chunks(a->plan);
    for (int u = 0; u < a->plan->subtiles; u++) {
        val joined[ATTEND_VALUE_WORDS];
        for (int w = 0; w < image_native_words(a); w++) {
            val *const *row = (val *const[]){c->value[u][w / n * 2], c->value[u][w / n * 2 + 1]};
            int i = w % n / 2;
            joined[w] = kb_byte_perm(K, row[0][i], row[1][i], w % 2 ? HIGH : LOW);
        }
        for (int w = 0; w < image_native_words(a); w++)
            c->value[u][0][w] = joined[w];
    }
}

val word_pairs_dim(struct kb *k, const struct plan *p, val member, val y, val d)
{
    val fit = word_pairs_fit(K), rest = kb_andi(K, d, PAIR - 1), c = kb_divi(K, d, PAIR);
    val own = kb_add(K, kb_muli(K, c, p->mma.y_tile), y);
    val low = kb_lshri(K, before(K, first_code(K, p, member)), 1);
    own = kb_sub(K, own, low);
    val word = kb_add(K, kb_muli(K, kb_lshri(K, c, 1), p->mma.y_tile), y);
    val other = kb_andi(K, c, 1);
    other = kb_add(K, kb_shli(K, word, 1), other);
    val turn = words_turn(K, &p->slot.value, member);
    other = kb_add(K, other, kb_lshri(K, turn, 1));
    val pair = kb_select(K, fit, own, other);
    return kb_andi(K, kb_add(K, kb_muli(K, pair, PAIR), rest), p->slot.value.head_size - 1);
}
