/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_image_pairs.c - tensor copies, tokens of operand rows, and values by loads that transpose.
*/
#include "part_image_pairs.h"

#include "part_image_native.h"

enum { CHUNK = 16, ROWS = 8, TOKENS = 16, AT_ONCE = 4 };

/* What lanes read together should lie in different units of a row: 16 bytes of each of four lanes
** of two rows, 8 of four rows, so rows that follow each other are tokens four and two apart. Longer
** runs are read every other unit: tokens one apart. */
val pairs_token(struct kb *k, val row)
{
    const struct plan *p = kb_plan(k);
    if (p->slot.key.code_bytes / p->mma.groups > CHUNK)
        return row;
    val low = kb_andi(K, kb_lshri(K, row, 2), 1), high = kb_shli(K, kb_andi(K, row, 1), 2);
    val same = kb_andi(K, row, -ROWS | 2), moved = kb_or(K, low, high);
    return kb_or(K, same, moved);
}

static int field_bytes(const struct plan *p) { return 2 * p->slot.fields * TOKENS; }

/* Up to a multiple of `unit`. */
static val up_to(struct kb *k, val bytes, int unit)
{
    return kb_andi(K, kb_addi(K, bytes, unit - 1), -unit);
}

void pairs_sizes(struct kb *k, struct image *im)
{
    const struct plan *p = kb_plan(k);
    val row = up_to(K, kb_muli(K, im->heads, p->slot.record_bytes), PLAN_ROW_BYTES);
    im->page_step = kb_muli(K, row, TOKENS);
    im->step_bytes = kb_muli(K, im->page_step, p->subtiles);
    im->field_step = up_to(K, kb_muli(K, im->heads, field_bytes(p)), PLAN_IMAGE_UNIT);
}

val pairs_bytes(struct kb *k, const struct image *im)
{
    const struct plan *p = kb_plan(k);
    val fields = kb_muli(K, im->heads, (long long)p->subtiles * field_bytes(p));
    return kb_add(K, im->step_bytes, fields);
}

val pairs_fields(struct kb *k, const struct image *im)
{
    val slots = kb_muli(K, im->groups, kb_plan(k)->images);
    return kb_offset(K, im->all, kb_mul(K, slots, im->step_bytes));
}

val pairs_place(struct kb *k, val token, val at)
{
    val part = kb_muli(K, kb_andi(K, at, -PLAN_ROW_BYTES), TOKENS);
    val own = kb_add(K, part, kb_muli(K, token, PLAN_ROW_BYTES));
    val turn = kb_shli(K, kb_andi(K, token, ROWS - 1), 4);
    return kb_add(K, own, kb_xor(K, kb_andi(K, at, PLAN_ROW_BYTES - 1), turn));
}

/* A lane's bytes of a token's keys, and how many of them one load takes. */
static int key_bytes(const struct attend *a)
{
    return a->key_run * a->plan->slot.key.codec.bits / 8;
}
static int key_unit(const struct attend *a)
{
    int bytes = key_bytes(a), unit = bytes & -bytes;
    return unit < CHUNK ? unit : CHUNK;
}

static int chunks(const struct plan *p) { return p->slot.value.code_bytes / CHUNK; }

/* The lane's row of load `i` of a product's first: lanes 8m to 8m + 7 tell of the m'th of the load's 8 x 8 words. */
static val value_place(struct kb *k, const struct attend *v, int i)
{
    const struct plan *p = v->plan;
    int n = chunks(p);
    val row = kb_andi(K, kb_lane(K), ROWS - 1), turn = kb_lshri(K, kb_lane(K), 3), chunk = turn;
    if (n < AT_ONCE) {
        chunk = kb_andi(K, turn, n - 1);
        row = kb_add(K, row, kb_muli(K, kb_divi(K, turn, n), ROWS));
    }
    val at = kb_shli(K, kb_addi(K, chunk, (long long)i * AT_ONCE), 4);
    at = kb_add(K, v->head.record, kb_addi(K, at, p->slot.value.code_offset));
    return pairs_place(K, pairs_token(K, row), at);
}

void pairs_begin(struct kb *k, struct attend *v)
{
    const struct plan *p = v->plan;
    v->tokens_8 = ROWS;
    v->y_token = pairs_token(K, v->y);
    for (int e = 0; e < v->shape.ke; e++)
        v->k_token[e] = pairs_token(K, kb_matrix(K)->k_index(K, e));
    for (int e = 0; e < v->shape.ye; e++)
        v->result_token[e] = pairs_token(K, kb_matrix(K)->result_y(K, e));
    int bytes = key_bytes(v), unit = key_unit(v);
    val first = kb_addi(K, kb_muli(K, v->group, bytes), p->slot.key.code_offset);
    first = kb_add(K, first, v->head.record);
    for (int i = 0; i < bytes / unit; i++) {
        val at = kb_addi(K, first, (long long)i * unit);
        v->key_places[i] = kb_held(K, pairs_place(K, v->y_token, at));
    }
    for (int i = 0; i * AT_ONCE < chunks(p); i++)
        v->v_steps[i] = kb_held(K, value_place(K, v, i));
}

/* Where `own` leads in the rows 8 * half on of page `sub`. */
static val rows_begin(struct kb *k, const struct attend *a, int sub, int half, val own)
{
    val page = sub ? kb_offset(K, a->image, kb_muli(K, a->image_page, sub)) : a->image;
    return kb_offseti(K, kb_offset(K, page, own), (long long)half * ROWS * PLAN_ROW_BYTES);
}

void pairs_keys(struct kb *k, const struct attend *a, int sub, struct attend_codes *c)
{
    int bytes = key_bytes(a), unit = key_unit(a), n = unit / 4;
    for (int t = 0; t < a->y_tiles; t++)
        for (int i = 0; i < bytes / unit; i++) {
            val at = rows_begin(K, a, sub, t, a->key_places[i]);
            val x = kb_load(K, n > 1 ? KB_VEC(KB_I32, n) : KB_I32, at, unit);
            for (int j = 0; j < n; j++)
                c->key[sub][t][i * n + j] = n > 1 ? kb_extract(K, x, j) : x;
        }
}

void pairs_values(struct kb *k, const struct attend *a, int sub, struct attend_codes *c)
{
    int n = chunks(a->plan), words = image_native_words(a);
    for (int w = 0; w < words; w += AT_ONCE) {
        val at = rows_begin(K, a, sub, w / n, a->v_steps[w % n / AT_ONCE]);
        kb_matrix(K)->load_pairs(K, at, &c->value[sub][0][w]);
    }
}

/* The map's dimensions: bytes of a token's records, tokens, parts, pages (runtime/launch_image.c). */
void pairs_copy(struct kb *k, const struct attend *a, const struct image *im, val page, int u,
                val slot, val index, val bar)
{
    const struct plan *p = a->plan;
    val zero = kb_i32(K, 0), to = kb_offset(K, im->ring, slot);
    to = kb_offset(K, to, kb_muli(K, im->page_step, u));
    val first = kb_muli(K, im->block, p->slot.record_bytes);
    const val at[KB_TENSOR_DIMS] = {first, zero, zero, page};
    kb_tensor_copy(K, to, at, bar);
    val heads = kb_param(K, "kv_heads"),
        before = kb_muli(K, heads, (long long)TOKENS * p->slot.record_bytes);
    before = kb_add(K, before, kb_muli(K, im->block, field_bytes(p)));
    val base = kb_mul(K, kb_zext(K, page, KB_I64), a->head.page_stride);
    val from = kb_offset(K, a->head.cache, kb_add(K, base, kb_zext(K, before, KB_I64)));
    val pages = kb_addi(K, kb_muli(K, index, p->subtiles), u);
    val fields = kb_offset(K, im->fields, kb_mul(K, pages, im->field_step));
    kb_bulk_copy(K, fields, from, kb_muli(K, im->heads, field_bytes(p)), bar);
}
