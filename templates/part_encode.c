/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_encode.c - which encoder a side has, and its bytes into the slot.
*/
#include "part_encode.h"

#include "part_native.h"

val encode_sanitise(struct kb *k, val x, val most)
{
    val least = kb_fneg(K, most), zero = kb_f32(K, 0);
    val number = kb_fcmp(K, KB_ORD, x, x);
    val some = kb_select(K, number, x, zero);
    val below = kb_fmin(K, some, most);
    return kb_fmax(K, below, least);
}

static void write_fields(struct kb *k, const struct side *side, const struct slot_token *token,
                         const struct encoded *e, val lane)
{
    val first = kb_icmpi(K, KB_EQ, lane, 0);
    struct kb_if only = kb_if(K, first);
    for (int i = 0; i < side->fields; i++)
        slot_write_field(k, token, side, i, e->field[i]);
    kb_endif(K, &only);
}

/* One byte a group, by the first lane of the group. */
static void write_scales(struct kb *k, const struct side *side, const struct slot_token *token,
                         const struct rowvec *v, const struct encoded *e)
{
    int group = side->codec.group;
    int per_lane = v->e > group ? v->e / group : 1, lanes = v->e > group ? 1 : group / v->e;
    val place = kb_andi(K, v->lane, lanes - 1);
    val writes = kb_icmpi(K, KB_EQ, place, 0);
    if (v->active)
        writes = kb_and(K, writes, v->active);
    val base = slot_scales(k, token, side);
    val element = kb_muli(K, v->lane, v->e);
    val index = kb_divi(K, element, group);
    val at = kb_offset(K, base, index);
    struct kb_if only = kb_if(K, writes);
    for (int j = 0; j < per_lane; j++) {
        val byte = kb_trunc(K, e->scale[j], KB_I8);
        val to = kb_offseti(K, at, j);
        kb_store(K, byte, to, 1);
    }
    kb_endif(K, &only);
}

void encode_side(struct kb *k, const struct side *side, struct rowvec *v,
                 const struct slot_token *token)
{
    struct encoded e = {0};
    switch (side->codec.kind) {
    case CODEC_CODEBOOK: encode_codebook(k, side, v, &e); break;
    case CODEC_AFFINE: encode_affine(k, side, v, &e); break;
    case CODEC_FLOAT: encode_float(k, side, v, &e); break;
    case CODEC_BLOCK_FLOAT: encode_block(k, side, v, &e); break;
    }
    slot_store(k, token, side, v, e.code);
    if (side->fields)
        write_fields(k, side, token, &e, v->lane);
    if (side->scale_bytes)
        write_scales(k, side, token, v, &e);
}
