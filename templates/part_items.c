/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_items.c - which slots a copy or a conversion moves.
*/
#include "part_items.h"

#include "part_index.h"

const struct slot_pool items_source = {"from", "from_page_stride", "from_position_stride",
                                       "from_head_stride"};

struct items items_find(struct kb *k, val row)
{
    struct items it;
    int tokens = kb_plan(k)->geo.page_tokens;
    val flag = kb_param(K, "pages");
    it.pages = kb_icmpi(K, KB_NE, flag, 0);
    val page = kb_divi(K, row, tokens);
    it.position = kb_remi(K, row, tokens);
    it.entry = kb_select(K, it.pages, page, row);
    return it;
}

val items_slot(struct kb *k, const struct items *it, const char *array, const char *capacity)
{
    int tokens = kb_plan(k)->geo.page_tokens;
    val numbers = kb_param(K, array), wide = kb_param(K, "index_64");
    val slots = kb_param(K, capacity);
    val number = index_load(k, numbers, it->entry, wide);
    val pages = kb_divi(K, slots, tokens);
    val most = kb_select(K, it->pages, pages, slots);
    val outside = kb_icmp(K, KB_UGE, number, most); /* unsigned: negative numbers are outside too */
    kb_return_if(K, outside);
    val first = kb_muli(K, number, tokens);
    val of_page = kb_add(K, first, it->position);
    return kb_select(K, it->pages, of_page, number);
}

struct slot_token items_token(struct kb *k, const struct slot_head *head, val slot)
{
    val page64 = kb_divi(K, slot, head->page_tokens);
    val position64 = kb_remi(K, slot, head->page_tokens);
    val page = kb_trunc(K, page64, KB_I32), position = kb_trunc(K, position64, KB_I32);
    return slot_token(k, head, page, position);
}
