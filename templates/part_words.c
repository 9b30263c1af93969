/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_words.c - rows of the aos layout in images, read by aligned words.
*/
#include "part_words.h"

enum { MOST_ROWS = WORD_ROWS, TURN_BITS = 16 };

/* Can its codes begin in the middle of a word? */
static bool can_turn(const struct slot *slot, const struct side *side)
{
    return slot->slot_bytes % 4 || side->code_offset % 4;
}

val words_turn(struct kb *k, const struct side *side, val member)
{
    const struct slot *slot = &kb_plan(k)->slot;
    if (!can_turn(slot, side))
        return kb_i32(K, 0);
    val at = kb_addi(K, kb_muli(K, member, slot->slot_bytes), side->code_offset);
    val uneven = kb_icmpi(K, KB_NE, kb_andi(K, kb_param(K, "image_pitch"), 2), 0);
    return kb_select(K, uneven, kb_i32(K, 0), kb_andi(K, at, 2));
}

int words_unit(const struct side *side) { return TURN_BITS / side->codec.bits; }

/* turn bytes as elements */
static val turned(struct kb *k, const struct side *side, val turn)
{
    return kb_lshri(K, kb_muli(K, turn, 8), __builtin_ctz((unsigned)side->codec.bits));
}

val words_place(struct kb *k, const struct plan *p, val turn, val element)
{
    const struct side *side = &p->slot.key;
    int size = side->head_size, each = 32 / side->codec.bits, lanes = p->mma.groups;
    val first = kb_sub(K, element, turned(K, side, turn));
    val at = kb_andi(K, first, size - 1);
    val word = kb_divi(K, at, each), rest = kb_andi(K, at, each - 1);
    val turns = kb_divi(K, word, lanes);
    val lane = kb_sub(K, word, kb_muli(K, turns, lanes));
    val own = kb_muli(K, lane, size / lanes);
    own = kb_add(K, own, kb_muli(K, turns, each));
    return kb_add(K, own, rest);
}

val words_dim(struct kb *k, const struct plan *p, val turn, val y, val d)
{
    const struct side *side = &p->slot.value;
    int each = (p->value_pairs ? 16 : 32) / side->codec.bits;
    val turns = kb_divi(K, d, each), rest = kb_andi(K, d, each - 1);
    val word = kb_add(K, kb_muli(K, turns, p->mma.y_tile), y);
    val at = kb_add(K, kb_muli(K, word, each), rest);
    return kb_andi(K, kb_add(K, at, turned(K, side, turn)), side->head_size - 1);
}

/* Where two bytes of codes go to is overwritten whether or not they are left out: its field was loaded. Of two
** sides of which always one is turned at most, one move is made. */
static void begin_moves(struct kb *k, struct attend *v)
{
    const struct plan *p = v->plan;
    const struct side *key = &p->slot.key, *value = &p->slot.value, *move[2];
    struct attend_words *w = &v->words;
    int n = 0;
    if (p->key_words && can_turn(&p->slot, key))
        move[n++] = key;
    if (p->value_words && can_turn(&p->slot, value))
        move[n++] = value;
    for (int i = 0; i < n; i++) {
        w->from[i] = kb_i32(K, move[i]->code_offset);
        w->to[i] = kb_i32(K, move[i]->field_offset[0]);
    }
    bool alike = (key->code_offset - value->code_offset) % 4 == 0;
    if (n < 2 || alike)
        return;
    val is_key = kb_icmpi(K, KB_NE, w->key_turn, 0);
    w->from[0] = kb_select(K, is_key, w->from[0], w->from[1]);
    w->to[0] = key->code_bytes == value->code_bytes ? kb_addi(K, w->from[0], key->code_bytes)
                                                    : kb_select(K, is_key, w->to[0], w->to[1]);
    w->from[1] = NULL;
}

void words_begin(struct kb *k, struct attend *v, val member)
{
    const struct plan *p = v->plan;
    const struct side *key = &p->slot.key, *value = &p->slot.value;
    struct attend_words *w = &v->words;
    *w = (struct attend_words){.uneven = NULL};
    if (p->slot.slot_bytes % 4)
        w->uneven = kb_icmpi(K, KB_NE, kb_andi(K, kb_param(K, "image_pitch"), 2), 0);
    w->key_turn = p->key_words ? words_turn(K, key, member) : kb_i32(K, 0);
    w->value_turn = p->value_words ? words_turn(K, value, member) : kb_i32(K, 0);
    val first = kb_add(K, w->key_turn, kb_shli(K, v->group, 2));
    w->key = kb_addi(K, first, key->code_offset);
    first = kb_add(K, w->value_turn, kb_shli(K, v->y, 2));
    w->value = kb_addi(K, first, value->code_offset);
    begin_moves(K, v);
}

void words_rows(struct kb *k, struct attend *v)
{
    for (int i = 0; i < 2 * v->plan->subtiles; i++) {
        val later = kb_muli(K, v->head.step, (long long)(i % 2) * v->tokens_8);
        v->rows_8[i] = kb_uniform(K, kb_add(K, kb_muli(K, v->image_page, i / 2), later));
    }
}

void words_hold(struct kb *k, struct attend *v)
{
    struct attend_words *w = &v->words;
    if (v->plan->key_words) {
        val first = kb_add(K, kb_add(K, v->y_steps, w->key), v->head.record);
        v->y_steps = kb_held(K, first);
    }
    for (int e = 0; v->plan->value_words && e < 2; e++) {
        val first = kb_add(K, kb_add(K, v->v_steps[e], w->value), v->head.record);
        v->v_steps[e] = kb_held(K, first);
    }
    if (!v->rows_8[0])
        words_rows(K, v);
    for (int i = 0; i < 2 && w->from[i]; i++) {
        w->from[i] = kb_uniform(K, w->from[i]);
        w->to[i] = kb_uniform(K, w->to[i]);
    }
}

void words_patch(struct kb *k, const struct attend *a, const struct slot_token *own)
{
    const struct attend_words *w = &a->words;
    if (!w->from[0])
        return;
    kb_warp_sync(K); /* lanes that share a token have its fields */
    for (int i = 0; i < 2 && w->from[i]; i++) {
        val x = kb_load(K, KB_I16, kb_offset(K, own->record, w->from[i]), 2);
        kb_store(K, x, kb_offset(K, own->record, w->to[i]), 2);
    }
    kb_warp_sync(K);
}

static void aligned(struct kb *k, val at, int n, int apart, val *words)
{
    for (int i = 0; i < n; i++)
        words[i] = kb_load(K, KB_I32, kb_offseti(K, at, 4LL * apart * i), 4);
}

static void shifted(struct kb *k, val at, int n, int apart, val *words)
{
    val low = kb_address_bits(K, at, 2), shift = kb_shli(K, low, 3);
    val first = kb_offset(K, at, kb_sub(K, kb_i32(K, 0), low));
    for (int i = 0; i < n; i++) {
        val one = kb_load(K, KB_I32, kb_offseti(K, first, 4LL * apart * i), 4);
        val next = kb_load(K, KB_I32, kb_offseti(K, first, 4LL * apart * i + 4), 4);
        words[i] = kb_funnel(K, one, next, shift);
    }
}

/* Places are made in the branch that needs them: the other one's loads add them up themselves. */
void words_load(struct kb *k, const struct attend *a, const struct word_rows *w, int n, int apart)
{
    val other[MOST_ROWS][ATTEND_VALUE_WORDS];
    struct kb_if uneven = {0};
    if (a->words.uneven) {
        uneven = kb_if(K, a->words.uneven);
        for (int r = 0; r < w->count; r++)
            shifted(K, kb_offset(K, w->row[r], w->own[r]), n, apart, other[r]);
        kb_else(K, &uneven);
    }
    for (int r = 0; r < w->count; r++)
        aligned(K, kb_offset(K, w->row[r], w->own[r]), n, apart, w->words[r]);
    if (!a->words.uneven)
        return;
    kb_endif(K, &uneven);
    for (int r = 0; r < w->count; r++)
        for (int i = 0; i < n; i++)
            w->words[r][i] = kb_merge(K, &uneven, other[r][i], w->words[r][i]);
}
