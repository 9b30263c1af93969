/* SPDX-License-Identifier: Apache-2.0 */
/*
** store.c - new K and V rows, quantised and scattered to their slots. One warp a (row, head): no
** row can influence another.
*/
#include "templates.h"

#include "part_encode.h"
#include "part_index.h"
#include "part_rowpair.h"

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
    val slots = kb_param(K, "slots"), wide = kb_param(K, "slots_64");
    val slot = index_load(k, slots, pair.row, wide);
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
