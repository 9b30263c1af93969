/* SPDX-License-Identifier: Apache-2.0 */
/*
** store.c - new K and V rows, quantised and scattered to their slots. One warp a (row, head): no
** row can influence another.
*/
#include "templates.h"

#include "part_encode.h"
#include "part_rowpair.h"

/* The row's slot number as i64. */
static val slot_number(struct kb *k, val row)
{
    val slots = kb_param(K, "slots"), flag = kb_param(K, "slots_64");
    val is_wide = kb_icmpi(K, KB_NE, flag, 0);
    struct kb_if either = kb_if(K, is_wide);
    val bytes64 = kb_shli(K, row, 3);
    val at64 = kb_offset(K, slots, bytes64);
    val wide = kb_load_once(K, KB_I64, at64, 8);
    kb_else(K, &either);
    val bytes32 = kb_shli(K, row, 2);
    val at32 = kb_offset(K, slots, bytes32);
    val narrow = kb_load_once(K, KB_I32, at32, 4);
    val extended = kb_sext(K, narrow, KB_I64);
    kb_endif(K, &either);
    return kb_merge(K, &either, wide, extended);
}

static void store_side(struct kb *k, const struct side *side, val row,
                       const struct slot_token *token)
{
    struct rowvec v;
    rowvec_make(k, &v, side->head_size);
    rowvec_load(k, &v, rowpair_type(k), row);
    encode_side(k, side, &v, token);
}

void template_store(struct kb *k)
{
    const struct plan *p = kb_plan(k);
    struct rowpair pair = rowpair_begin(k);
    val slot = slot_number(k, pair.row);
    val capacity = kb_param(K, "capacity");
    val outside =
        kb_icmp(K, KB_UGE, slot, capacity); /* unsigned: negative numbers are outside too */
    kb_return_if(K, outside);
    val page64 = kb_divi(K, slot, p->geo.page_tokens);
    val position64 = kb_remi(K, slot, p->geo.page_tokens);
    val page = kb_trunc(K, page64, KB_I32), position = kb_trunc(K, position64, KB_I32);
    struct slot_head head = slot_head(k, pair.head);
    struct slot_token token = slot_token(k, &head, page, position);
    if (p->slot.key.head_size) {
        val key = rowpair_key(k, &pair);
        store_side(k, &p->slot.key, key, &token);
    }
    if (p->slot.value.head_size) {
        val value = rowpair_value(k, &pair);
        store_side(k, &p->slot.value, value, &token);
    }
}
