/* SPDX-License-Identifier: Apache-2.0 */
/*
** convert.c - slots of a pool of one layout to slots of a pool of the plan's. One warp a (slot,
** head): codes move as they are, and so do scales and fields, but for the scalar of a codebook side
** whose norm is corrected: aos corrects at read, the others at store (formats.md section 4).
*/
#include "templates.h"

#include "part_codebook.h"
#include "part_encode.h"
#include "part_items.h"
#include "part_native.h"
#include "part_rowpair.h"

/* One side of both slots: the same codec, at other places. */
struct pair {
    const struct side *from, *to;
    const struct slot_token *source, *target;
};

/* A stored scalar times or over the length of the chosen centroids, rounded a second time. */
static val correct(struct kb *k, const struct pair *p, const struct rowvec *v, const val *code,
                   val scalar)
{
    float centroids[SPEC_MAX_CENTROIDS];
    if (p->from->norm_at_read == p->to->norm_at_read)
        return scalar;
    codebook_of_side(p->to, centroids);
    val factor = encode_chosen_length(K, v, centroids, p->to->codec.bits, code);
    if (p->to->norm_at_store)
        factor = kb_fdiv(K, kb_f32(K, 1), factor);
    val most = kb_f32(K, 65504);
    return encode_sanitise(K, kb_fmul(K, scalar, factor), most);
}

static void convert_fields(struct kb *k, const struct pair *p, const struct rowvec *v,
                           const val *code)
{
    val field[2];
    for (int i = 0; i < p->from->fields; i++)
        field[i] = slot_read_field(K, p->source, p->from, i);
    if (p->from->fields)
        field[0] = correct(K, p, v, code, field[0]);
    struct kb_if first = kb_if(K, kb_icmpi(K, KB_EQ, v->lane, 0));
    for (int i = 0; i < p->to->fields; i++)
        slot_write_field(K, p->target, p->to, i, field[i]);
    kb_endif(K, &first);
}

static void convert_scales(struct kb *k, const struct pair *p, val lane)
{
    int n = p->from->scale_bytes, warp = kb_warp_size(k);
    val from = slot_scales(K, p->source, p->from), to = slot_scales(K, p->target, p->to);
    for (int first = 0; first < n; first += warp) {
        val i = kb_addi(K, lane, first);
        struct kb_if inside = kb_if(K, kb_icmpi(K, KB_SLT, i, n));
        val byte = kb_load(K, KB_I8, kb_offset(K, from, i), 1);
        kb_store(K, byte, kb_offset(K, to, i), 1);
        kb_endif(K, &inside);
    }
}

static void convert_side(struct kb *k, const struct pair *p)
{
    val code[ROWVEC_MAX];
    struct rowvec v;
    if (!p->to->head_size)
        return;
    rowvec_make(K, &v, p->to->head_size);
    slot_load(K, p->source, p->from, &v, code);
    slot_store(K, p->target, p->to, &v, code);
    convert_fields(K, p, &v, code);
    convert_scales(K, p, v.lane);
}

/* Where the call says that the source has this layout. */
static void convert_from(struct kb *k, enum layout layout, val head, val slot,
                         const struct slot_token *target)
{
    const struct plan *p = kb_plan(k);
    struct geometry geo = p->geo;
    struct slot facts;
    geo.layout = layout;
    if (layout == p->geo.layout || slot_make(&p->spec, &geo, &facts, NULL))
        return; /* kvk_copy's; or a layout that the spec has not: no call comes from there */
    val is = kb_icmpi(K, KB_EQ, kb_param(K, "from_layout"), layout);
    struct kb_if chosen = kb_if(K, is);
    struct slot_head from = slot_head_in(K, &items_source, layout, &facts, head);
    struct slot_token source = items_token(K, &from, slot);
    struct pair key = {&facts.key, &p->slot.key, &source, target};
    struct pair value = {&facts.value, &p->slot.value, &source, target};
    convert_side(K, &key);
    convert_side(K, &value);
    kb_endif(K, &chosen);
}

void template_convert(struct kb *k)
{
    struct rowpair pair = rowpair_begin_of(k, "items", "kv_heads");
    struct items item = items_find(K, pair.row);
    val from_slot = items_slot(K, &item, "from_index", "from_capacity");
    val to_slot = items_slot(K, &item, "to_index", "capacity");
    struct slot_head head = slot_head(K, pair.head);
    struct slot_token target = items_token(K, &head, to_slot);
    for (int layout = 0; layout < LAYOUT_COUNT; layout++)
        convert_from(K, (enum layout)layout, pair.head, from_slot, &target);
}
