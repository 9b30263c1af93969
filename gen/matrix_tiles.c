/* SPDX-License-Identifier: Apache-2.0 */
/*
** matrix_tiles.c - the narrow form for several tiles of query rows (plan->narrow of them): what is of Y is made
** once and meets the rows of each tile. A lane's rows are tile 0's, then tile 1's ...; so are operands and results
** of a Y tile.
*/
#include "kb_internal.h"

enum { MOST_RESULTS = 16 }; /* of one tile's operand or product */

static const struct matrix_ops *one(struct kb *k) { return k->target->ops->narrow; }
static const struct mma_shape *of_one(struct kb *k) { return &k->target->narrow; }

static val x_row(struct kb *k, int i)
{
    int rows = of_one(k)->lane_rows;
    return kb_addi(k, one(k)->x_row(k, i % rows), i / rows * of_one(k)->rows);
}

static val operand_row(struct kb *k, int i)
{
    int rows = of_one(k)->operand_rows;
    return kb_addi(k, one(k)->operand_row(k, i % rows), i / rows * of_one(k)->rows);
}

static val y_index(struct kb *k) { return one(k)->y_index(k); }
static val group(struct kb *k) { return one(k)->group(k); }
static val result_y(struct kb *k, int e) { return one(k)->result_y(k, e); }
static val k_index(struct kb *k, int e) { return one(k)->k_index(k, e); }

static int reduce_masks(const struct target *t, int masks[4])
{
    return t->ops->narrow->reduce_masks(t, masks);
}

static int group_masks(const struct target *t, int masks[4])
{
    return t->ops->narrow->group_masks(t, masks);
}

static int y_masks(const struct target *t, int masks[4])
{
    return t->ops->narrow->y_masks(t, masks);
}

/* Results of row tile `tile` among those of `y_tiles`, [Y tile][row][e]: to `own`, or back. */
static void move(struct kb *k, val *all, val *own, int tile, int y_tiles, bool back)
{
    int each = of_one(k)->lane_rows * of_one(k)->ye;
    for (int y = 0; y < y_tiles; y++)
        for (int i = 0; i < each; i++) {
            val *a = &all[(y * k->plan->narrow + tile) * each + i], *b = &own[y * each + i];
            *(back ? a : b) = *(back ? b : a);
        }
}

static void mma(struct kb *k, int type, val *acc, const val *x, const val *y)
{
    const struct mma_shape *m = of_one(k);
    for (int tile = 0; tile < k->plan->narrow; tile++) {
        val own[MOST_RESULTS];
        move(k, acc, own, tile, m->tiles, false);
        one(k)->mma(k, type, own, x + tile * m->operand_rows * m->ke / 2, y);
        move(k, acc, own, tile, m->tiles, true);
    }
}

static void x_from_result(struct kb *k, int type, const val *r, val *pairs)
{
    const struct mma_shape *m = of_one(k);
    int y_tiles = 16 / m->y_tile * m->k_tiles;
    for (int tile = 0; tile < k->plan->narrow; tile++) {
        val own[MOST_RESULTS], all[4 * MOST_RESULTS];
        for (int i = 0; i < y_tiles * k->plan->narrow * m->lane_rows * m->ye; i++)
            all[i] = r[i];
        move(k, all, own, tile, y_tiles, false);
        one(k)->x_from_result(k, type, own, pairs + tile * m->operand_rows * m->ke / 2);
    }
}

static void load_pairs(struct kb *k, val at, val words[4]) { one(k)->load_pairs(k, at, words); }

const struct matrix_ops matrix_tiles = {
    .x_row = x_row,
    .operand_row = operand_row,
    .y_index = y_index,
    .group = group,
    .result_y = result_y,
    .k_index = k_index,
    .reduce_masks = reduce_masks,
    .group_masks = group_masks,
    .y_masks = y_masks,
    .mma = mma,
    .x_from_result = x_from_result,
    .load_pairs = load_pairs, /* where the narrow form has it */
};
