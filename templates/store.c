/* SPDX-License-Identifier: Apache-2.0 */
/*
** store.c - new K and V rows, quantised and scattered to their slots. plan->pair_lanes lanes a (row,
** head): no row can influence another.
*/
#include "templates.h"

#include "part_encode.h"
#include "part_index.h"
#include "part_rowpair.h"
#include "part_shared.h"

/* The token of a slot number, if that is one; else *exists is false and the token is none. */
static struct slot_token token_of(struct kb *k, struct slot_head *head, const struct rowpair *pair,
                                  val slot)
{
    const struct plan *p = kb_plan(k);
    val page64 = kb_divi(K, slot, p->geo.page_tokens);
    val position64 = kb_remi(K, slot, p->geo.page_tokens);
    val page = kb_trunc(K, page64, KB_I32), position = kb_trunc(K, position64, KB_I32);
    *head = slot_head(k, pair->head);
    return slot_token(k, head, page, position);
}

static void store_side(struct kb *k, const struct side *side, val row,
                       const struct slot_token *token)
{
    struct rowvec v;
    rowvec_make(k, &v, side->head_size);
    rowvec_load(k, &v, rowpair_type(k), row);
    encode_side(k, side, &v, token);
}

static void one_pair(struct kb *k)
{
    const struct plan *p = kb_plan(k);
    struct rowpair pair = rowpair_begin(k);
    struct slot_head head;
    val slot = index_load(k, kb_param(K, "slots"), pair.row, kb_param(K, "slots_64"));
    /* unsigned: negative numbers are outside too */
    kb_return_if(K, kb_icmp(K, KB_UGE, slot, kb_param(K, "capacity")));
    struct slot_token token = token_of(k, &head, &pair, slot);
    if (p->slot.key.head_size)
        store_side(k, &p->slot.key, rowpair_key(k, &pair), &token);
    if (p->slot.value.head_size)
        store_side(k, &p->slot.value, rowpair_value(k, &pair), &token);
}

/* Lanes whose pair is none, or has no slot, encode row 0 and store nothing. */
static void several_pairs(struct kb *k)
{
    const struct plan *p = kb_plan(k);
    struct shared key, value;
    struct rowpair pair;
    struct slot_head head;
    val slots = kb_param(K, "slots"), heads = kb_param(K, "kv_heads"), rows = kb_param(K, "rows");
    int at_once = kb_warp_size(k) / p->pair_lanes;
    val ctas = kb_muli(K, kb_cta(K), p->vectors), warps = kb_muli(K, kb_warp(K), at_once);
    val first = kb_add(K, ctas, warps), inner = kb_divi(K, kb_lane(K), p->pair_lanes);
    val before = kb_zext(K, kb_udiv(K, first, heads), KB_I64);
    kb_return_if(K, kb_icmp(K, KB_SGE, before, rows));
    val vector = kb_add(K, first, inner), row = kb_udiv(K, vector, heads);
    pair.head = kb_sub(K, vector, kb_mul(K, row, heads));
    val row64 = kb_zext(K, row, KB_I64), none = kb_i64(K, 0);
    val exists = kb_icmp(K, KB_SLT, row64, rows);
    pair.row = kb_select(K, exists, row64, none);
    shared_load(k, &key, &p->slot.key, rowpair_key(k, &pair));
    shared_load(k, &value, &p->slot.value, rowpair_value(k, &pair));
    val slot = index_load(k, slots, pair.row, kb_param(K, "slots_64"));
    exists = kb_and(K, exists, kb_icmp(K, KB_ULT, slot, kb_param(K, "capacity")));
    slot = kb_select(K, exists, slot, none);
    struct slot_token token = token_of(k, &head, &pair, slot);
    shared_encode(k, &value); /* first: what is left of it waits in fewer registers than the key */
    shared_store(k, &value, &token, exists);
    shared_encode(k, &key);
    shared_store(k, &key, &token, exists);
}

void template_store(struct kb *k)
{
    if (kb_plan(k)->pair_lanes < kb_warp_size(k))
        several_pairs(k);
    else
        one_pair(k);
}
