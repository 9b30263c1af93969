/* SPDX-License-Identifier: Apache-2.0 */
/*
** dequant.c - cached tokens back to rows of fp16 or bf16. plan->pair_lanes lanes hold a (row, head),
** and each of them plan->pair_turns, whose loads are all under way at once.
*/
#include "templates.h"

#include "part_decode.h"
#include "part_finite.h"
#include "part_pairs.h"

static val load_i32(struct kb *k, val base, val index)
{
    val wide = kb_sext(K, index, KB_I64);
    val bytes = kb_shli(K, wide, 2);
    val at = kb_offset(K, base, bytes);
    return kb_load_once(K, KB_I32, at, 4);
}

/* The last sequence whose first row is not beyond `row`: sequences without rows are passed over. */
static void find_sequences(struct kb *k, const struct pairs *p, val *sequence)
{
    val starts = kb_param(K, "out_start"), sequences = kb_param(K, "sequences");
    struct kb_loop search;
    val left = sequences, low[PAIR_TURNS_MAX + 1];
    for (int i = 0; i < p->n; i++)
        low[i] = kb_i32(K, 0);
    low[p->n] = left; /* all searches have as many left */
    kb_loop_begin(K, &search, low, p->n + 1);
    val several = kb_icmpi(K, KB_SGT, low[p->n], 1);
    kb_loop_while(K, &search, several);
    val half = kb_lshri(K, low[p->n], 1);
    for (int i = 0; i < p->n; i++) {
        val middle = kb_add(K, low[i], half);
        val start = load_i32(k, starts, middle);
        val at_or_after = kb_icmp(K, KB_SLE, start, p->row[i]);
        low[i] = kb_select(K, at_or_after, middle, low[i]);
    }
    low[p->n] = kb_sub(K, low[p->n], half);
    kb_loop_end(K, &search);
    for (int i = 0; i < p->n; i++)
        sequence[i] = low[i];
}

/* Which pairs the lane has; leaves the kernel where the warp has none. */
static void find_pairs(struct kb *k, struct pairs *p)
{
    const struct plan *plan = kb_plan(k);
    int at_once = kb_warp_size(k) / plan->pair_lanes;
    val warps = kb_muli(K, kb_cta(K), plan->vectors);
    val own = kb_muli(K, kb_warp(K), (long long)at_once * plan->pair_turns);
    val first = kb_add(K, warps, own), inner = kb_divi(K, kb_lane(K), plan->pair_lanes);
    val heads = kb_param(K, "kv_heads"), rows = kb_param(K, "rows");
    val before = kb_zext(K, kb_udiv(K, first, heads), KB_I64);
    kb_return_if(K, kb_icmp(K, KB_SGE, before, rows));
    val mine = kb_add(K, first, inner);
    p->n = plan->pair_turns;
    for (int i = 0; i < p->n; i++) {
        val vector = kb_addi(K, mine, (long long)i * at_once);
        val row = kb_udiv(K, vector, heads);
        p->at[i].head = kb_sub(K, vector, kb_mul(K, row, heads));
        p->at[i].row = kb_zext(K, row, KB_I64);
        p->exists[i] = kb_icmp(K, KB_SLT, p->at[i].row, rows);
        p->row[i] = kb_select(K, p->exists[i], row, kb_i32(K, 0));
    }
}

/* Page number of a token; 0 for a pair that does not exist. */
static val page_of(struct kb *k, val exists, val sequence, val token)
{
    val stride = kb_param(K, "table_stride"), wide = kb_param(K, "table_64");
    val row = kb_mul(K, kb_zext(K, sequence, KB_I64), stride);
    val index = kb_divi(K, token, kb_plan(k)->geo.page_tokens);
    val entry = kb_add(K, row, kb_zext(K, index, KB_I64));
    val shift = kb_addi(K, kb_zext(K, wide, KB_I64), 2);
    val at = kb_offset(K, kb_param(K, "table"), kb_shl(K, entry, shift));
    struct kb_if there = kb_if(K, exists);
    val page = kb_load_once(K, KB_I32, at, 4); /* of an int64 the low half */
    kb_endif(K, &there);
    return kb_merge(K, &there, page, kb_i32(K, 0));
}

/* Tokens of the pairs in their sequences; rows outside of all are none. */
static void find_tokens(struct kb *k, struct pairs *p)
{
    val sequence[PAIR_TURNS_MAX], starts = kb_param(K, "out_start"),
                                  first = kb_param(K, "first_token");
    val end = load_i32(k, starts, kb_param(K, "sequences")), some = NULL, zero = kb_i32(K, 0);
    val token[PAIR_TURNS_MAX];
    find_sequences(k, p, sequence);
    for (int i = 0; i < p->n; i++) {
        val start = load_i32(k, starts, sequence[i]);
        token[i] = kb_sub(K, p->row[i], start);
        val inside = kb_icmp(K, KB_SLT, p->row[i], end);
        val after = kb_icmpi(K, KB_SGE, token[i], 0);
        p->exists[i] = kb_and(K, p->exists[i], kb_and(K, inside, after));
        some = some ? kb_or(K, some, p->exists[i]) : p->exists[i];
    }
    kb_return_if(K, kb_not(K, kb_any(K, some)));
    struct kb_if has = kb_if(K, kb_not(K, kb_is_null(K, first)));
    val offset[PAIR_TURNS_MAX];
    for (int i = 0; i < p->n; i++)
        offset[i] = load_i32(k, first, sequence[i]);
    kb_endif(K, &has);
    for (int i = 0; i < p->n; i++)
        offset[i] = kb_merge(K, &has, offset[i], zero);
    for (int i = 0; i < p->n; i++) {
        val number = kb_select(K, p->exists[i], kb_add(K, token[i], offset[i]), zero);
        val page = page_of(k, p->exists[i], sequence[i], number);
        val position = kb_remi(K, number, kb_plan(k)->geo.page_tokens);
        p->head[i] = slot_head(k, p->at[i].head);
        p->token[i] = slot_token(k, &p->head[i], page, position);
    }
}

/* A warp a vector. Skipped if the caller gave no tensor for it. */
static void one_row(struct kb *k, const struct side *side, const struct pairs *p, const char *name,
                    val (*row_of)(struct kb *, const struct rowpair *))
{
    struct rowvec v, turned;
    struct kb_if wanted = kb_if(K, kb_not(K, kb_is_null(K, kb_param(K, name))));
    rowvec_make(k, &v, side->head_size);
    decode_side(k, side, &p->token[0], &v);
    if (side->codec.rotation == ROTATION_HADAMARD) {
        struct kb_if back = kb_if(K, kb_icmpi(K, KB_NE, kb_param(K, "rotate_back"), 0));
        turned = v;
        rotate(k, &turned);
        kb_endif(K, &back);
        for (int j = 0; j < v.e; j++)
            v.x[j] = kb_merge(K, &back, turned.x[j], v.x[j]);
    }
    for (int j = 0; rowpair_type(k) == KB_F16 && j < v.e; j++)
        v.x[j] = saturate(K, v.x[j]);
    val row = row_of(k, &p->at[0]);
    struct kb_if exists = kb_if(K, p->exists[0]);
    rowvec_store(k, &v, rowpair_type(k), row);
    kb_endif(K, &exists);
    kb_endif(K, &wanted);
}

void template_dequant(struct kb *k)
{
    const struct plan *plan = kb_plan(k);
    struct pairs p;
    find_pairs(k, &p);
    find_tokens(k, &p);
    if (plan->pair_lanes < kb_warp_size(k)) {
        pairs_write(k, &p);
        return;
    }
    if (plan->slot.key.head_size)
        one_row(k, &plan->slot.key, &p, "key", rowpair_key);
    if (plan->slot.value.head_size)
        one_row(k, &plan->slot.value, &p, "value", rowpair_value);
}
