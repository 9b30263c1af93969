/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_squares.c - lengths of decoded value vectors, for codebook values whose norm is corrected
** when read.
**
** A lane holds a run of dims of each of its tokens, so the sum of squares of a token's centroids is
** a sum over the lanes that share the token; where warps share a row's dims, each reads the codes
** of the others, too: they cannot wait for each other inside the loop. The sums go through the
** warp's scratch to the lane that prepares the token's facts, where they become part of its scale.
*/
#include "part_squares.h"

/* Codes a look-up takes; a run that shares dims with another is looked up one by one. */
static int codes_each(const struct attend *a)
{
    return a->dims % 2 || a->plan->dims_overlap ? 1 : 2;
}

void attend_squares_table(struct kb *k, struct attend *a, const float *centroids)
{
    const struct plan *p = a->plan;
    int n = 1 << p->slot.value.codec.bits, each = codes_each(a), entries = each == 2 ? n * n : n;
    float squares[SPEC_MAX_CENTROIDS * SPEC_MAX_CENTROIDS];
    for (int i = 0; i < entries; i++) {
        float lo = centroids[i % n], hi = each == 2 ? centroids[i / n] : 0;
        squares[i] = lo * lo + hi * hi;
    }
    a->squares_table = attend_copy_table(K, "squares", squares, entries);
    if (!p->dims_overlap)
        return;
    val begin = kb_muli(K, a->y, a->dims);
    val first = kb_sub(K, attend_first_dim(K, a, a->y), a->dim_base);
    a->repeated = kb_sub(K, begin, first);
}

/* Sum over one run, without the dims that the run before has. */
static val run_squares(struct kb *k, const struct attend *a, const val *words)
{
    int each = codes_each(a), bits = each * a->plan->slot.value.codec.bits;
    val sum = NULL;
    for (int d = 0; d < a->dims; d += each) {
        val at = attend_bits(K, words, d / each * bits, bits, 4);
        val x = kb_load(K, KB_F32, kb_offset(K, a->squares_table, at), 4);
        if (a->repeated) {
            val own = kb_icmpi(K, KB_SLE, a->repeated, d);
            x = kb_select(K, own, x, kb_f32(K, 0));
        }
        sum = sum ? kb_fadd(K, sum, x) : x;
    }
    return sum;
}

val attend_other_squares(struct kb *k, const struct attend *a, const struct slot_token *token,
                         int step)
{
    const struct plan *p = a->plan;
    const struct side *side = &p->slot.value;
    int slice = side->head_size / p->dim_warps;
    val own = attend_first_dim(K, a, a->y), sum = NULL;
    for (int i = 1; i < p->dim_warps; i++) {
        val words[ATTEND_VALUE_WORDS];
        val first = kb_addi(K, own, (long long)i * slice); /* of the i-th warp after this one */
        val past = kb_addi(K, first, -side->head_size);
        val wraps =
            kb_icmpi(K, KB_SGE, kb_addi(K, a->dim_base, (long long)i * slice), side->head_size);
        attend_load_run(K, a, token, side, kb_select(K, wraps, past, first), a->dims, step, words,
                        NULL);
        val x = run_squares(K, a, words);
        sum = sum ? kb_fadd(K, sum, x) : x;
    }
    return sum;
}

/* Of token `token` of the step. */
static val squares_at(struct kb *k, const struct attend *a, val token)
{
    int tokens = 16 * a->plan->subtiles;
    val at = kb_offset(K, a->scratch, kb_shli(K, token, 2));
    return kb_offseti(K, at, (long long)tokens * plan_fact_bytes(a->plan));
}

void attend_value_squares(struct kb *k, const struct attend *a, const struct attend_codes *c)
{
    int masks[4], n = kb_matrix(K)->y_masks(kb_target(K), masks);
    int tiles = a->shape.k_tiles; /* subtiles of a product */
    for (int sub = 0; sub < a->plan->subtiles / tiles; sub++)
        for (int e = 0; e < a->shape.ke; e++) {
            val sum = run_squares(K, a, c->value[sub][e]);
            if (c->value_squares[sub][e])
                sum = kb_fadd(K, sum, c->value_squares[sub][e]);
            for (int i = 0; i < n; i++) {
                val other = kb_shuffle_xor(K, sum, masks[i]);
                sum = kb_fadd(K, sum, other);
            }
            val row = a->image ? a->k_token[e] : kb_matrix(K)->k_index(K, e);
            val token = kb_addi(K, row, 16 * tiles * sub);
            kb_store(K, sum, squares_at(K, a, token), 4);
        }
    kb_warp_sync(K);
}

/* 0 for a vector of zeros: its scale must not move the row's reference. */
val attend_inverse_length(struct kb *k, const struct attend *a, val token)
{
    val squares = kb_load(K, KB_F32, squares_at(K, a, token), 4);
    val some = kb_fcmp(K, KB_OGT, squares, kb_f32(K, 0));
    val inverse = kb_rsqrt(K, kb_fadd(K, squares, kb_f32(K, 1e-16)));
    return kb_select(K, some, inverse, kb_f32(K, 0));
}
