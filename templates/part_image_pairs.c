/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_image_pairs.c - tokens of operand rows, and values by loads that transpose.
*/
#include "part_image_pairs.h"

#include "part_image_native.h"
#include "part_squares.h"

enum { CHUNK = 16, ROWS = 8, AT_ONCE = 4 };

/* Page and group of a row. Lanes of two rows that follow each other read keys together: 16 bytes each of 64
** a row, so the rows lie 64 bytes apart; of longer runs every other 16 bytes, so they lie 16 apart. */
static void place_of_row(struct kb *k, const struct plan *p, val row, val *page, val *group)
{
    val low = kb_andi(K, row, 1), middle = kb_andi(K, kb_lshri(K, row, 1), 1);
    val high = kb_andi(K, kb_lshri(K, row, 2), 1);
    bool longer = p->slot.key.code_bytes / p->mma.groups > CHUNK;
    *page = longer ? low : high;
    val first = kb_shli(K, longer ? middle : low, 1);
    *group = kb_or(K, first, longer ? high : middle);
}

val pairs_token(struct kb *k, const struct plan *p, val row)
{
    val page, group;
    place_of_row(K, p, row, &page, &group);
    val first = kb_shli(K, page, 4);
    first = kb_or(K, first, kb_shli(K, group, 2));
    return kb_or(K, first, kb_lshri(K, row, 3));
}

/* Bytes from the step's first token to that of a row below 8. */
static val row_bytes(struct kb *k, const struct attend *v, const struct image *im, val row)
{
    val page, group;
    place_of_row(K, v->plan, row, &page, &group);
    val pages = kb_mul(K, page, im->page_step);
    return kb_add(K, pages, kb_mul(K, group, im->group_pitch));
}

static int chunks(const struct plan *p) { return p->slot.value.code_bytes / CHUNK; }

/* Where the lane's row of the first load begins: lanes 8m to 8m + 7 tell of the m'th of the load's 8 x 8 words. */
static val first_row(struct kb *k, const struct attend *v, const struct image *im)
{
    int n = chunks(v->plan);
    val row = kb_andi(K, kb_lane(K), ROWS - 1), turn = kb_lshri(K, kb_lane(K), 3);
    val at = row_bytes(K, v, im, row), chunk = n < AT_ONCE ? kb_andi(K, turn, n - 1) : turn;
    at = kb_add(K, at, kb_shli(K, chunk, 4));
    if (n < AT_ONCE)
        at = kb_add(K, at, kb_mul(K, kb_divi(K, turn, n), im->pitch));
    return kb_addi(K, at, v->plan->slot.value.code_offset);
}

void pairs_begin(struct kb *k, struct attend *v, const struct image *im)
{
    const struct plan *p = v->plan;
    v->tokens_8 = 1;
    v->y_token = pairs_token(K, p, v->y);
    for (int e = 0; e < v->shape.ke; e++)
        v->k_token[e] = pairs_token(K, p, kb_matrix(K)->k_index(K, e));
    for (int e = 0; e < v->shape.ye; e++)
        v->result_token[e] = pairs_token(K, p, kb_matrix(K)->result_y(K, e));
    int run = v->key_run * p->slot.key.codec.bits / 8;
    val own = row_bytes(K, v, im, v->y);
    own = kb_add(K, own, v->head.record);
    v->y_steps = kb_held(K, kb_add(K, own, kb_muli(K, v->group, run)));
    v->v_steps[0] = kb_held(K, kb_add(K, first_row(K, v, im), v->head.record));
    for (int i = 0; i < p->subtiles * v->y_tiles; i++)
        v->rows_8[i] = i ? kb_uniform(K, kb_muli(K, im->pitch, i)) : kb_i32(K, 0);
}

/* Where the step's rows 8i to 8i + 7 begin, for all lanes: theirs is added last, by the loads themselves. */
static val rows_begin(struct kb *k, const struct attend *a, int i)
{
    return kb_offset(K, a->image, a->rows_8[i]);
}

void pairs_keys(struct kb *k, const struct attend *a, const struct slot_token *first, int sub,
                struct attend_codes *c)
{
    for (int t = 0; t < a->y_tiles; t++) {
        struct slot_token token = *first;
        token.record = kb_offset(K, rows_begin(K, a, a->y_tiles * sub + t), a->y_steps);
        attend_load_run(K, a, &token, &a->plan->slot.key, kb_i32(K, 0), a->key_run, a->key_run,
                        c->key[sub][t], NULL);
    }
}

void pairs_values(struct kb *k, const struct attend *a, int sub, struct attend_codes *c)
{
    int n = chunks(a->plan), words = image_native_words(a);
    for (int w = 0; w < words; w += AT_ONCE) {
        val rows = rows_begin(K, a, a->y_tiles * sub + w / n);
        val at = kb_offseti(K, kb_offset(K, rows, a->v_steps[0]), (long long)w % n * CHUNK);
        kb_matrix(K)->load_pairs(K, at, &c->value[sub][0][w]);
    }
}
