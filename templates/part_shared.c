/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_shared.c - rows of few lanes: loading them, and their codes into slots.
*/
#include "part_shared.h"

#include "part_native.h"
#include "part_pack.h"
#include "part_rowpair.h"

enum { RUN_WORDS = 4 };

/* Words of a run from 16 bytes that are aligned to one element. */
static void by_elements(struct kb *k, val at, val *word)
{
    for (int i = 0; i < 2 * RUN_WORDS; i++) {
        val bits = kb_load_once(K, KB_I16, kb_offseti(K, at, 2LL * i), 2);
        val wide = kb_zext(K, bits, KB_I32);
        word[i / 2] = i % 2 ? kb_or(K, word[i / 2], kb_shli(K, wide, 16)) : wide;
    }
}

static void by_units(struct kb *k, val at, val *word)
{
    val unit = kb_load_once(K, KB_VEC(KB_I32, RUN_WORDS), at, 16);
    for (int i = 0; i < RUN_WORDS; i++)
        word[i] = kb_extract(K, unit, i);
}

val shared_any(struct kb *k, val cond)
{
    val some = kb_zext(K, kb_any(K, cond), KB_I32);
    return kb_icmpi(K, KB_NE, kb_uniform(K, some), 0);
}

void shared_load(struct kb *k, struct shared *s, const struct side *side, val row)
{
    *s = (struct shared){.side = side, .type = rowpair_type(k)};
    rowvec_share(k, &s->v, side->head_size, kb_plan(k)->pair_lanes);
    val at = kb_offset(K, row, kb_shli(K, s->v.lane, 4)), other[ROWVEC_MAX / 2];
    val apart = shared_any(k, kb_icmpi(K, KB_NE, kb_address_bits(K, row, 15), 0));
    int words = s->v.e / 2, step = 16 * s->v.lanes;
    struct kb_if odd = kb_if(K, apart);
    for (int i = 0; i < words; i += RUN_WORDS)
        by_elements(k, kb_offseti(K, at, (long long)i / RUN_WORDS * step), other + i);
    kb_else(K, &odd);
    for (int i = 0; i < words; i += RUN_WORDS)
        by_units(k, kb_offseti(K, at, (long long)i / RUN_WORDS * step), s->word + i);
    kb_endif(K, &odd);
    for (int i = 0; i < words; i++)
        s->word[i] = kb_merge(K, &odd, other[i], s->word[i]);
}

/* Stream m begins at byte m * bits. */
static void store_stream(struct kb *k, const struct shared *s, const struct slot_token *token,
                         int j, val m)
{
    int bits = s->side->codec.bits, both = s->side->code_align | bits;
    val codes = slot_codes(K, token, s->side), at = kb_offset(K, codes, kb_muli(K, m, bits));
    val string = s->code[j][0];
    if (bits > 4) {
        val high = kb_shl(K, kb_zext(K, s->code[j][1], KB_I64), kb_i64(K, 32));
        string = kb_or(K, kb_zext(K, string, KB_I64), high);
    }
    pack_store_string(k, string, bits, at, both & -both);
}

void shared_store(struct kb *k, const struct shared *s, const struct slot_token *token, val exists)
{
    const struct rowvec *v = &s->v;
    if (token->head->layout == LAYOUT_NATIVE) {
        native_store_eights(k, token, s->side, v, s->code, exists);
    } else {
        struct kb_if there = kb_if(K, exists);
        for (int j = 0; j < v->e / 8; j++)
            store_stream(k, s, token, j, kb_addi(K, v->lane, (long long)j * v->lanes));
        kb_endif(K, &there);
    }
    val first = kb_and(K, exists, kb_icmpi(K, KB_EQ, v->lane, 0));
    struct kb_if only = kb_if(K, first);
    for (int i = 0; i < s->side->fields; i++)
        slot_write_field(k, token, s->side, i, s->field[i]);
    kb_endif(K, &only);
}
