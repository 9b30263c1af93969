/* SPDX-License-Identifier: Apache-2.0 */
/*
** kb_group.c - see kb_group.h. A target with products of its own fills target_ops.group; here is what
** serves the others.
*/
#include "kb_internal.h"

#include "kb_group.h"
#include "target_group.h"

enum { BLOCK = 64, BLOCK_BYTES = KB_TILE_TOKENS * BLOCK * 2, ROW_BYTES = BLOCK * 2 };

int kb_tile_bytes(int columns) { return columns / BLOCK * BLOCK_BYTES; }

val kb_tile_offset(struct kb *k, val row, val unit)
{
    val place = kb_xor(K, unit, kb_andi(K, row, 7));
    val first = kb_shli(K, row, 7);
    return kb_add(K, first, kb_shli(K, place, 4));
}

/* Address of the element (row, column) of a tile; column = constant + less than 8. */
static val element(struct kb *k, val tile, val row, int column, val more)
{
    val unit = kb_i32(K, column % BLOCK / 8);
    val first = kb_tile_offset(K, row, unit), at = kb_add(K, first, kb_shli(K, more, 1));
    at = kb_addi(K, at, column / BLOCK * BLOCK_BYTES);
    return kb_offset(K, tile, at);
}

/* Pairs of columns 16 * step + {0, 8} + 2 c of a row. */
static void row_pairs(struct kb *k, val tile, val row, int step, val *pairs)
{
    val along = kb_shli(K, kb_andi(K, kb_lane(K), 3), 1);
    for (int half = 0; half < 2; half++) {
        val at = element(K, tile, row, 16 * step + 8 * half, along);
        pairs[half] = kb_load(K, KB_I32, at, 4);
    }
}

static val row_of_lane(struct kb *k) { return kb_lshri(K, kb_lane(K), 2); }

static void plain_scores(struct kb *k, int type, int size, val queries, val keys, val *s)
{
    val warp = kb_shli(K, kb_andi(K, kb_warp(K), 3), 4);
    val row = kb_add(K, row_of_lane(K), warp);
    for (int i = 0; i < KB_TILE_TOKENS / 2; i++)
        s[i] = kb_f32(K, 0);
    for (int step = 0; step < size / 16; step++) {
        val x[4], y[2];
        row_pairs(K, queries, row, step, x);
        row_pairs(K, queries, kb_addi(K, row, 8), step, x + 2);
        for (int tile = 0; tile < KB_TILE_TOKENS / 8; tile++) {
            row_pairs(K, keys, kb_addi(K, row_of_lane(K), 8 * tile), step, y);
            kb_matrix(K)->mma(K, type, s + 4 * tile, x, y);
        }
    }
}

/* Elements of a column that neighbour in its rows. */
static val column_pair(struct kb *k, val tile, val row, int column)
{
    val pair[2];
    for (int i = 0; i < 2; i++) {
        val own = kb_addi(K, row, i), at = element(K, tile, own, column, row_of_lane(K));
        pair[i] = kb_zext(K, kb_load(K, KB_I16, at, 2), KB_I32);
    }
    return kb_or(K, pair[0], kb_shli(K, pair[1], 16));
}

static void plain_values(struct kb *k, int type, int size, const val *p, int terms, val values,
                         val *o)
{
    val along = kb_shli(K, kb_andi(K, kb_lane(K), 3), 1);
    for (int i = 0; i < KB_TILE_TOKENS / 16 * terms; i++) {
        int step = i % (KB_TILE_TOKENS / 16);
        const val *a = p + 4 * i;
        const val x[4] = {a[0], a[2], a[1], a[3]};
        for (int tile = 0; tile < size / 8; tile++) {
            val y[2];
            for (int half = 0; half < 2; half++) {
                val row = kb_addi(K, along, 16 * step + 8 * half);
                y[half] = column_pair(K, values, row, 8 * tile);
            }
            kb_matrix(K)->mma(K, type, o + 4 * tile, x, y);
        }
    }
}

static const struct group_ops *ops(struct kb *k) { return k->target->ops->group; }

void kb_group_scores(struct kb *k, int type, int size, val queries, val keys, val *s)
{
    if (ops(k)->scores)
        ops(k)->scores(k, type, size, queries, keys, s);
    else
        plain_scores(k, type, size, queries, keys, s);
}

void kb_group_values(struct kb *k, int type, int size, const val *p, int terms, val values, val *o)
{
    if (ops(k)->values)
        ops(k)->values(k, type, size, p, terms, values, o);
    else
        plain_values(k, type, size, p, terms, values, o);
}

void kb_group_wait(struct kb *k, int pending, val *x, int n, const val *held, int m)
{
    if (ops(k)->wait)
        ops(k)->wait(k, pending, x, n, held, m);
}

void kb_group_registers(struct kb *k, int registers, bool more)
{
    if (ops(k)->registers)
        ops(k)->registers(k, registers, more);
}

void kb_group_sync(struct kb *k, val group) { ops(k)->sync(k, group); }
void kb_arrive(struct kb *k, val bar) { ops(k)->arrive(k, bar); }

void kb_copy(struct kb *k, val to, val from, val valid)
{
    if (ops(k)->copy) {
        ops(k)->copy(k, to, from, valid);
        return;
    }
    struct kb_if exists = kb_if(K, valid);
    val bytes = kb_load(K, KB_VEC(KB_I32, 4), from, KB_UNIT);
    kb_endif(K, &exists);
    val zeros = kb_const(K, KB_VEC(KB_I32, 4), 0);
    kb_store(K, kb_merge(K, &exists, bytes, zeros), to, KB_UNIT);
}

void kb_copy_batch(struct kb *k)
{
    if (ops(k)->copy_batch)
        ops(k)->copy_batch(k);
}

void kb_copy_wait(struct kb *k, int pending)
{
    if (ops(k)->copy_wait)
        ops(k)->copy_wait(k, pending);
}
