/* SPDX-License-Identifier: Apache-2.0 */
/*
** copy.c - whole slots to other slots, codes and fields as they are. One warp a (slot, head): its
** lanes share the bytes.
*/
#include "templates.h"

#include "part_items.h"
#include "part_native.h"
#include "part_rowpair.h"

/* The widest unit that every record begins at a multiple of. */
static int unit_bytes(const struct slot *slot, enum layout layout)
{
    int most = slot->alignment;
    if (layout == LAYOUT_SOA)
        while (slot->record_bytes % most)
            most /= 2;
    return most;
}

static int unit_type(int bytes)
{
    switch (bytes) {
    case 1: return KB_I8;
    case 2: return KB_I16;
    case 4: return KB_I32;
    case 8: return KB_I64;
    default: return KB_VEC(KB_I32, 4);
    }
}

/* `count` units of one after the other, lane by lane. */
static void copy_units(struct kb *k, val from, val to, int count, int bytes)
{
    int warp = kb_warp_size(k), type = unit_type(bytes);
    val lane = kb_lane(K);
    for (int first = 0; first < count; first += warp) {
        val unit = kb_addi(K, lane, first);
        val inside = kb_icmpi(K, KB_SLT, unit, count);
        struct kb_if exists = kb_if(K, inside);
        val offset = kb_muli(K, unit, bytes);
        val source = kb_offset(K, from, offset), target = kb_offset(K, to, offset);
        val x = kb_load(K, type, source, bytes);
        kb_store(K, x, target, bytes);
        kb_endif(K, &exists);
    }
}

/* soa: field f of the token, f in the lane. */
static void copy_fields(struct kb *k, const struct slot_token *from, const struct slot_token *to)
{
    const struct slot_head *h = to->head;
    int odd = h->page_tokens * h->slot->record_bytes % 2, bytes = odd ? 1 : 2;
    val lane = kb_lane(K);
    val inside = kb_icmpi(K, KB_SLT, lane, h->slot->fields);
    struct kb_if exists = kb_if(K, inside);
    val offset = kb_muli(K, lane, 2LL * h->page_tokens);
    for (int i = 0; i < 2; i += bytes) {
        val at = kb_addi(K, offset, i);
        val source = kb_offset(K, from->field, at), target = kb_offset(K, to->field, at);
        val x = kb_load(K, unit_type(bytes), source, bytes);
        kb_store(K, x, target, bytes);
    }
    kb_endif(K, &exists);
}

/* native, whole pages: blocks move as they lie, a sixteenth by every token's warp. */
static void copy_share(struct kb *k, const struct slot_token *from, const struct slot_token *to)
{
    int share = to->head->slot->slot_bytes, unit = share & -share;
    val first = kb_muli(K, to->place, share);
    val source = kb_offset(K, from->record, first), target = kb_offset(K, to->record, first);
    copy_units(k, source, target, share / (unit > 16 ? 16 : unit), unit > 16 ? 16 : unit);
}

/* native: a token's codes lie between those of others. */
static void copy_native(struct kb *k, const struct slot_token *from, const struct slot_token *to)
{
    const struct slot *s = to->head->slot;
    const struct side *sides[2] = {&s->key, &s->value};
    val lane = kb_lane(K);
    for (int i = 0; i < 2; i++) {
        val code[ROWVEC_MAX];
        struct rowvec v;
        if (!sides[i]->head_size)
            continue;
        rowvec_make(K, &v, sides[i]->head_size);
        slot_load(K, from, sides[i], &v, code);
        slot_store(K, to, sides[i], &v, code);
        if (sides[i]->scale_bytes) {
            val source = slot_scales(K, from, sides[i]), target = slot_scales(K, to, sides[i]);
            copy_units(k, source, target, sides[i]->scale_bytes, 1);
        }
        for (int f = 0; f < sides[i]->fields; f++) {
            struct kb_if first = kb_if(K, kb_icmpi(K, KB_EQ, lane, 0));
            val bits = kb_load(K, KB_I16, slot_field(K, from, sides[i], f), 2);
            kb_store(K, bits, slot_field(K, to, sides[i], f), 2);
            kb_endif(K, &first);
        }
    }
}

void template_copy(struct kb *k)
{
    const struct slot *s = &kb_plan(k)->slot;
    enum layout layout = kb_plan(k)->geo.layout;
    struct rowpair pair = rowpair_begin_of(k, "items", "kv_heads");
    struct items item = items_find(k, pair.row);
    val from_slot = items_slot(k, &item, "from_index", "from_capacity");
    val to_slot = items_slot(k, &item, "to_index", "capacity");
    struct slot_head from_head = slot_head_of(k, &items_source, pair.head);
    struct slot_head to_head = slot_head(k, pair.head);
    struct slot_token from = items_token(k, &from_head, from_slot);
    struct slot_token to = items_token(k, &to_head, to_slot);
    if (layout == LAYOUT_NATIVE) {
        struct kb_if whole = kb_if(K, item.pages);
        copy_share(k, &from, &to);
        kb_else(K, &whole);
        copy_native(k, &from, &to);
        kb_endif(K, &whole);
        return;
    }
    int bytes = unit_bytes(s, layout);
    copy_units(k, from.record, to.record, s->record_bytes / bytes, bytes);
    if (layout == LAYOUT_SOA)
        copy_fields(k, &from, &to);
}
