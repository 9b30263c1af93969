/* SPDX-License-Identifier: Apache-2.0 */
/*
** dequant.c - cached tokens back to rows of fp16 or bf16. One warp a (row, head).
*/
#include "templates.h"

#include "part_decode.h"
#include "part_finite.h"
#include "part_index.h"
#include "part_rowpair.h"

static val load_i32(struct kb *k, val base, val index)
{
    val wide = kb_sext(K, index, KB_I64);
    val bytes = kb_shli(K, wide, 2);
    val at = kb_offset(K, base, bytes);
    return kb_load_once(K, KB_I32, at, 4);
}

/* The last sequence whose first row is not beyond `row`: sequences without rows are passed over. */
static val sequence_of(struct kb *k, val starts, val sequences, val row)
{
    struct kb_loop search;
    val bounds[2] = {kb_i32(K, 0), sequences};
    kb_loop_begin(K, &search, bounds, 2);
    val gap = kb_sub(K, bounds[1], bounds[0]);
    val several = kb_icmpi(K, KB_SGT, gap, 1);
    kb_loop_while(K, &search, several);
    val half = kb_lshri(K, gap, 1);
    val middle = kb_add(K, bounds[0], half);
    val start = load_i32(k, starts, middle);
    val at_or_after = kb_icmp(K, KB_SLE, start, row);
    bounds[0] = kb_select(K, at_or_after, middle, bounds[0]);
    bounds[1] = kb_select(K, at_or_after, bounds[1], middle);
    kb_loop_end(K, &search);
    return bounds[0];
}

/* Token of the row in its sequence. */
static val token_of(struct kb *k, val sequence, val start, val row)
{
    val first = kb_param(K, "first_token"), zero = kb_i32(K, 0);
    val along = kb_sub(K, row, start);
    val none = kb_is_null(K, first);
    val given = kb_not(K, none);
    struct kb_if has = kb_if(K, given);
    val offset = load_i32(k, first, sequence);
    kb_endif(K, &has);
    val from = kb_merge(K, &has, offset, zero);
    return kb_add(K, along, from);
}

static val page_of(struct kb *k, val sequence, val token)
{
    val table = kb_param(K, "table"), stride = kb_param(K, "table_stride");
    val sequence64 = kb_zext(K, sequence, KB_I64);
    val row = kb_mul(K, sequence64, stride);
    val index = kb_divi(K, token, kb_plan(k)->geo.page_tokens);
    val index64 = kb_zext(K, index, KB_I64);
    val entry = kb_add(K, row, index64);
    val wide = kb_param(K, "table_64");
    val page = index_load(k, table, entry, wide);
    return kb_trunc(K, page, KB_I32);
}

/* The rotation costs shuffles, so it has a branch of its own. */
static void rotate_back(struct kb *k, struct rowvec *v)
{
    struct rowvec turned = *v;
    val flag = kb_param(K, "rotate_back");
    val wanted = kb_icmpi(K, KB_NE, flag, 0);
    struct kb_if back = kb_if(K, wanted);
    rotate(k, &turned);
    kb_endif(K, &back);
    for (int i = 0; i < v->e; i++)
        v->x[i] = kb_merge(K, &back, turned.x[i], v->x[i]);
}

static void dequant_side(struct kb *k, const struct side *side, const struct slot_token *token,
                         val row, val present)
{
    struct rowvec v;
    int type = rowpair_type(k);
    struct kb_if wanted = kb_if(K, present);
    rowvec_make(k, &v, side->head_size);
    decode_side(k, side, token, &v);
    if (side->codec.rotation == ROTATION_HADAMARD)
        rotate_back(k, &v);
    for (int i = 0; type == KB_F16 && i < v.e; i++)
        v.x[i] = saturate(K, v.x[i]);
    rowvec_store(k, &v, type, row);
    kb_endif(K, &wanted);
}

/* Skipped if the caller gave no tensor for it. */
static val is_given(struct kb *k, const char *name)
{
    val data = kb_param(K, name);
    val null = kb_is_null(K, data);
    return kb_not(K, null);
}

void template_dequant(struct kb *k)
{
    const struct plan *p = kb_plan(k);
    struct rowpair pair = rowpair_begin(k);
    val starts = kb_param(K, "out_start"), sequences = kb_param(K, "sequences");
    val row = kb_trunc(K, pair.row, KB_I32);
    val sequence = sequence_of(k, starts, sequences, row);
    val start = load_i32(k, starts, sequence);
    val end = load_i32(k, starts, sequences);
    val before = kb_icmp(K, KB_SLT, row, start), after = kb_icmp(K, KB_SGE, row, end);
    val outside = kb_or(K, before, after);
    kb_return_if(K, outside);
    val token_number = token_of(k, sequence, start, row);
    val page = page_of(k, sequence, token_number);
    val position = kb_remi(K, token_number, p->geo.page_tokens);
    struct slot_head head = slot_head(k, pair.head);
    struct slot_token token = slot_token(k, &head, page, position);
    if (p->slot.key.head_size) {
        val key = rowpair_key(k, &pair), present = is_given(k, "key");
        dequant_side(k, &p->slot.key, &token, key, present);
    }
    if (p->slot.value.head_size) {
        val value = rowpair_value(k, &pair), present = is_given(k, "value");
        dequant_side(k, &p->slot.value, &token, value, present);
    }
}
