/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_slot.c - where the parts of a slot lie, in every layout.
*/
#include "part_slot.h"

static void head_aos(struct kb *k, const struct slot_pool *pool, struct slot_head *h, val head)
{
    val stride = kb_param(K, pool->head_stride);
    h->record = kb_mul(K, head, stride);
    h->step = kb_param(K, pool->position_stride);
}

static void head_soa(struct kb *k, struct slot_head *h, val head)
{
    val heads32 = kb_param(K, "kv_heads");
    val heads = kb_zext(K, heads32, KB_I64);
    h->record = kb_muli(K, head, h->slot->record_bytes);
    h->step = kb_muli(K, heads, h->slot->record_bytes);
    val region = kb_muli(K, h->step, h->page_tokens);
    val own = kb_muli(K, head, 2LL * h->slot->fields * h->page_tokens);
    h->field = kb_add(K, region, own);
}

/* All of a head block's bytes are given by the layout, as soa's are. */
static void head_native(struct kb *k, struct slot_head *h, val head)
{
    val heads = kb_zext(K, kb_param(K, "kv_heads"), KB_I64);
    h->record = kb_muli(K, head, h->slot->record_bytes);
    h->step = kb_muli(K, heads, h->slot->record_bytes);
}

struct slot_head slot_head(struct kb *k, val head)
{
    static const struct slot_pool own = {"cache", "page_stride", "position_stride", "head_stride"};
    return slot_head_of(k, &own, head);
}

struct slot_head slot_head_of(struct kb *k, const struct slot_pool *pool, val head)
{
    const struct plan *p = kb_plan(k);
    return slot_head_in(k, pool, p->geo.layout, &p->slot, head);
}

struct slot_head slot_head_in(struct kb *k, const struct slot_pool *pool, enum layout layout,
                              const struct slot *slot, val head)
{
    struct slot_head h = {
        .slot = slot, .layout = layout, .page_tokens = kb_plan(k)->geo.page_tokens};
    h.cache = kb_param(K, pool->cache);
    h.page_stride = kb_param(K, pool->page_stride);
    val wide = kb_zext(K, head, KB_I64);
    if (h.layout == LAYOUT_SOA)
        head_soa(k, &h, wide);
    else if (h.layout == LAYOUT_NATIVE)
        head_native(k, &h, wide);
    else
        head_aos(k, pool, &h, wide);
    return h;
}

/* Fields and scales of a block are in the order of tokens 0, 8, 1, 9 ... */
static val place_order(struct kb *k, val place)
{
    val pair = kb_shli(K, kb_andi(K, place, 7), 1);
    return kb_add(K, pair, kb_lshri(K, place, 3));
}

static struct slot_token at_place(struct kb *k, const struct slot_head *h, val block, val place)
{
    struct slot_token t = {.head = h, .record = block, .place = place};
    t.field = kb_offset(K, block, kb_shli(K, place_order(K, place), 1));
    return t;
}

struct slot_token slot_token(struct kb *k, const struct slot_head *h, val page, val position)
{
    struct slot_token t = {.head = h};
    val page64 = kb_zext(K, page, KB_I64);
    val page_bytes = kb_mul(K, page64, h->page_stride);
    val start = kb_offset(K, h->cache, page_bytes);
    bool native = h->layout == LAYOUT_NATIVE;
    val step = native ? kb_lshri(K, position, 4) : position;
    val position64 = kb_zext(K, step, KB_I64);
    val steps = kb_mul(K, position64, h->step);
    val bytes = kb_add(K, h->record, steps);
    t.record = kb_offset(K, start, bytes);
    t.field = t.record;
    if (native)
        return at_place(K, h, t.record, kb_andi(K, position, NATIVE_TOKENS - 1));
    if (h->layout == LAYOUT_SOA) {
        val along = kb_shli(K, position64, 1);
        val field = kb_add(K, h->field, along);
        t.field = kb_offset(K, start, field);
    }
    return t;
}

val slot_steps(struct kb *k, const struct slot_head *h, val positions)
{
    return kb_mul(K, h->shared ? positions : kb_zext(K, positions, KB_I64), h->step);
}

struct slot_token slot_later(struct kb *k, const struct slot_token *token, val positions, val bytes)
{
    struct slot_token t = {.head = token->head};
    if (t.head->layout == LAYOUT_NATIVE)
        return at_place(K, t.head, token->record, kb_add(K, token->place, positions));
    t.record = kb_offset(K, token->record, bytes);
    t.field = t.record;
    if (t.head->layout == LAYOUT_SOA)
        t.field = kb_offset(K, token->field, kb_shli(K, positions, 1));
    return t;
}

val slot_codes(struct kb *k, const struct slot_token *t, const struct side *side)
{
    return kb_offseti(K, t->record, side->code_offset);
}

val slot_scales(struct kb *k, const struct slot_token *t, const struct side *side)
{
    val at = kb_offseti(K, t->record, side->scale_offset);
    if (t->head->layout != LAYOUT_NATIVE)
        return at;
    val order = place_order(K, t->place);
    return kb_offset(K, at, kb_muli(K, order, side->scale_bytes));
}

val slot_field(struct kb *k, const struct slot_token *t, const struct side *side, int i)
{
    if (t->head->layout == LAYOUT_SOA)
        return kb_offseti(K, t->field, 2LL * side->field_index[i] * t->head->page_tokens);
    return kb_offseti(K, t->field, side->field_offset[i]);
}

int slot_field_align(const struct slot_head *h, const struct side *side, int i)
{
    if (h->layout == LAYOUT_SOA) /* the field region starts after page_tokens records */
        return (h->page_tokens * h->slot->record_bytes) % 2 == 0 ? 2 : 1;
    return side->field_offset[i] % 2 == 0 ? 2 : 1;
}

val slot_finite_field(struct kb *k, val bits_i16)
{
    val half = kb_bitcast(K, bits_i16, KB_F16);
    val x = kb_to_f32(K, half);
    val number = kb_fcmp(K, KB_ORD, x, x);
    val zero = kb_f32(K, 0);
    val some = kb_select(K, number, x, zero);
    val most = kb_f32(K, 65504), least = kb_f32(K, -65504);
    val below = kb_fmin(K, some, most);
    return kb_fmax(K, below, least);
}

val slot_read_field(struct kb *k, const struct slot_token *t, const struct side *side, int i)
{
    val at = slot_field(k, t, side, i);
    if (slot_field_align(t->head, side, i) == 2) {
        val bits = kb_load(K, KB_I16, at, 2);
        return slot_finite_field(k, bits);
    }
    val low8 = kb_load(K, KB_I8, at, 1);
    val next = kb_offseti(K, at, 1);
    val high8 = kb_load(K, KB_I8, next, 1);
    val low = kb_zext(K, low8, KB_I16);
    val high16 = kb_zext(K, high8, KB_I16);
    val high = kb_shli(K, high16, 8);
    val bits = kb_or(K, low, high);
    return slot_finite_field(k, bits);
}

void slot_write_field(struct kb *k, const struct slot_token *t, const struct side *side, int i,
                      val x)
{
    val at = slot_field(k, t, side, i);
    if (slot_field_align(t->head, side, i) == 2) {
        val half = kb_to_half(K, x, KB_F16);
        kb_store(K, kb_bitcast(K, half, KB_I16), at, 2);
        return;
    }
    /* Bytes of a word whose origin is hidden: from a register that a conversion to f16 wrote, ptxas 13.0
    ** stores the number converted to an 8-bit integer (F2I.U8.F16) instead of its low byte. */
    val word = kb_opaque(K, kb_pack_half(K, x, x, KB_F16));
    kb_store(K, kb_trunc(K, word, KB_I8), at, 1);
    val high = kb_trunc(K, kb_lshri(K, word, 8), KB_I8);
    kb_store(K, high, kb_offseti(K, at, 1), 1);
}
