/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_scaled.c - scores by a matrix unit that multiplies FP4 codes with 8-bit floats and applies the
** scales itself: no look-up, no conversion. What a lane holds of a key row is what it holds for every
** matrix unit, consecutive elements; a step takes as many of them as share a scale, at most 32, and
** zeros fill the rest. The query is e4m3, a byte an element.
*/
#include "part_scaled.h"

#include "part_encode.h"

static int gcd(int a, int b) { return b ? gcd(b, a % b) : a; }

/* Elements of a lane's run that a step takes. */
static int chunk_of(const struct attend *a)
{
    return gcd(a->key_run, a->plan->slot.key.codec.group);
}

void attend_scaled_query(struct kb *k, const struct rowvec *v, val at)
{
    for (int i = 0; i < v->e; i++) {
        val byte = kb_trunc(K, encode_e4m3(K, v->x[i]), KB_I8);
        kb_store(K, byte, kb_offseti(K, at, i), 1);
    }
}

/* 16 bytes of the query for one of the two runs of step s; those past the chunk are zeros. */
static void query_run(struct kb *k, const struct attend *a, val tile, int s, int run, val *words)
{
    int chunk = chunk_of(a), align = a->key_run % 16 || chunk % 16 ? 8 : 16, n = align / 4;
    val group, first;
    kb_matrix(K)->scaled_x(K, run, &group, &first);
    val row = kb_matrix(K)->x_row(K, 0);
    val at = kb_muli(K, row, plan_query_pitch(a->plan) * 2);
    at = kb_add(K, at, kb_muli(K, group, a->key_run));
    if (chunk > 16)
        at = kb_add(K, at, first);
    val from = kb_offseti(K, kb_offset(K, tile, at), s * chunk);
    val inside = kb_icmpi(K, KB_EQ, first, 0);
    for (int w = 0; w < 4; w++)
        words[w] = kb_i32(K, 0);
    for (int w = 0; 4 * w < chunk && w < 4; w += n) {
        val v = kb_load(K, KB_VEC(KB_I32, n), kb_offseti(K, from, 4 * w), align);
        for (int i = 0; i < n; i++) {
            val x = kb_extract(K, v, i);
            words[w + i] = chunk > 16 ? x : kb_select(K, inside, x, kb_i32(K, 0));
        }
    }
}

void attend_scaled_products(struct kb *k, const struct attend *a, val tile,
                            const struct attend_codes *c, val *r)
{
    int chunk = chunk_of(a), each = a->shape.ye;
    for (int s = 0; s * chunk < a->key_run; s++) {
        val x[8], y[4];
        query_run(K, a, tile, s, 0, x);
        query_run(K, a, tile, s, 1, x + 4);
        for (int sub = 0; sub < a->plan->subtiles; sub++) {
            for (int w = 0; w < 4; w++)
                y[w] = 8 * w < chunk ? c->key[sub][0][s * chunk / 8 + w] : kb_i32(K, 0);
            kb_matrix(K)->mma_scaled(K, r + sub * each, x, y, c->key_scale[sub][0][s]);
        }
    }
}
