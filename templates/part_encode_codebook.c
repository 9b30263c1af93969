/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_encode_codebook.c - direction by centroids, length by one field (formats.md sections 8.1
** and 12.1).
*/
#include "part_encode.h"

#include "../gen/codebook.h"
#include "part_codebook.h"

/* x / (norm + 1e-8); returns the norm. */
static val normalise(struct kb *k, struct rowvec *v)
{
    val most = kb_f32(K, 65504);
    for (int i = 0; i < v->e; i++)
        v->x[i] = encode_sanitise(K, v->x[i], most);
    val square = rowvec_sum_squares(k, v);
    val norm = kb_sqrt(K, square);
    val little = kb_f32_bits(K, 0x322BCC77);
    val divisor = kb_fadd(K, norm, little);
    for (int i = 0; i < v->e; i++)
        v->x[i] = kb_fdiv(K, v->x[i], divisor);
    return norm;
}

/* How many of the sorted midpoints are <= y: a binary search whose tests choose the next midpoint
** by selection. */
static val index_of(struct kb *k, const float *mid, int bits, val y)
{
    val set[4], index = kb_i32(K, 0);
    for (int step = 0; step < bits; step++) {
        int half = 1 << (bits - step - 1), n = 1 << step;
        val t[8];
        for (int j = 0; j < n; j++)
            t[j] = kb_f32(K, mid[(2 * j + 1) * half - 1]);
        for (int level = 0; level < step;
             level++) /* the first test chose between halves of the table */
            for (int j = 0; j < n >> (level + 1); j++)
                t[j] = kb_select(K, set[level], t[j + (n >> (level + 1))], t[j]);
        set[step] = kb_fcmp(K, KB_OGE, y, t[0]);
        val one = kb_i32(K, half), zero = kb_i32(K, 0);
        val bit = kb_select(K, set[step], one, zero);
        index = kb_or(K, index, bit);
    }
    return index;
}

val encode_chosen_length(struct kb *k, const struct rowvec *v, const float *centroids, int bits,
                         const val *code)
{
    float squares[SPEC_MAX_CENTROIDS];
    val c2[ROWVEC_MAX];
    for (int i = 0; i < 1 << bits; i++)
        squares[i] = centroids[i] * centroids[i];
    for (int i = 0; i < v->e; i++)
        c2[i] = codebook_pick(K, squares, bits, code[i]);
    val sum = rowvec_sum(k, v, c2);
    val little = kb_f32(K, 1e-16);
    val square = kb_fadd(K, sum, little);
    return kb_sqrt(K, square);
}

/* Product of the normalised vector with its chosen centroids. */
static val chosen_product(struct kb *k, const struct rowvec *v, const float *centroids, int bits,
                          const val *code)
{
    val products[ROWVEC_MAX];
    for (int i = 0; i < v->e; i++) {
        val c = codebook_pick(K, centroids, bits, code[i]);
        products[i] = kb_fmul(K, v->x[i], c);
    }
    return rowvec_sum(k, v, products);
}

/* The number that is stored. Unbiased: <x, decoded x> = <x, x>, where the product with centroids
** allows it (a table of the user's own may turn a vector round; a zero vector has none). */
static val stored_norm(struct kb *k, const struct side *side, const struct rowvec *v,
                       const float *centroids, val norm, const val *code)
{
    int bits = side->codec.bits, unbiased = side->codec.unbiased_norm;
    val one = kb_f32(K, 1), zero = kb_f32(K, 0), length = one, usual = norm;
    if (side->norm_at_store || (unbiased && side->norm_at_read))
        length = encode_chosen_length(k, v, centroids, bits, code);
    if (side->norm_at_store) {
        val inverse = kb_fdiv(K, one, length);
        usual = kb_fmul(K, norm, inverse);
    }
    if (!unbiased)
        return usual;
    val product = chosen_product(k, v, centroids, bits, code);
    val scalar = kb_fdiv(K, norm, product);
    if (side->norm_at_read) /* the reader divides by the length */
        scalar = kb_fmul(K, scalar, length);
    val positive = kb_fcmp(K, KB_OGT, product, zero);
    return kb_select(K, positive, scalar, usual);
}

void encode_codebook(struct kb *k, const struct side *side, struct rowvec *v, struct encoded *out)
{
    float centroids[SPEC_MAX_CENTROIDS], mid[SPEC_MAX_CENTROIDS];
    int bits = side->codec.bits;
    codebook_of_side(side, centroids);
    codebook_midpoints(centroids, 1 << bits, mid);
    val norm = normalise(k, v);
    if (side->codec.rotation == ROTATION_HADAMARD)
        rotate(k, v);
    for (int i = 0; i < v->e; i++)
        out->code[i] = index_of(k, mid, bits, v->x[i]);
    val scalar = stored_norm(k, side, v, centroids, norm, out->code);
    val most = kb_f32(K, 65504);
    out->field[0] = kb_fmin(K, scalar, most);
}
