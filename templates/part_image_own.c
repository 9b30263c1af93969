/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_image_own.c - pages that no bulk copy takes: lanes load them and store them.
*/
#include "part_image_own.h"

#include "part_image_pages.h"
#include "part_image_pairs.h"

enum { TOKENS = 16 };

/* Bytes from the record of the warp's head (rows that are turned: from their page) to byte `at` of a token's. */
static val own_place(struct kb *k, const struct image *im, val token, val at)
{
    const struct plan *p = kb_plan(k);
    if (!p->turned)
        return kb_add(K, image_place(K, im, token), at);
    return pairs_place(K, token, kb_add(K, kb_muli(K, im->member, p->slot.record_bytes), at));
}

/* Units row by row of `row` units, `step` bytes apart, to where an image has tokens, or, `im`
** being NULL, to one place. */
static void copy_units(struct kb *k, const struct image *im, val from, val step, val to, int row,
                       int rows, int unit)
{
    int type = unit == 16  ? KB_VEC(KB_I32, 4)
               : unit == 8 ? KB_VEC(KB_I32, 2)
               : unit == 4 ? KB_I32
               : unit == 2 ? KB_I16
                           : KB_I8;
    val i = kb_lane(k);
    struct kb_loop loop;
    kb_loop_begin(K, &loop, &i, 1);
    kb_loop_while(K, &loop, kb_icmpi(K, KB_SLT, i, (long long)row * rows));
    loop.rolled = true;
    val r = kb_divi(K, i, row);
    val at = kb_muli(K, kb_sub(K, i, kb_muli(K, r, row)), unit);
    val place = kb_offset(K, kb_offset(K, from, kb_mul(K, kb_zext(K, r, KB_I64), step)), at);
    val x = kb_load_once(K, type, place, unit);
    kb_store(K, x, kb_offset(K, to, im ? own_place(K, im, r, at) : at), unit);
    i = kb_addi(K, i, kb_warp_size(k));
    kb_loop_end(K, &loop);
}

void image_copy_own(struct kb *k, const struct attend *a, const struct attend *v,
                    const struct image *im, val start, val slot)
{
    const struct slot *s = &a->plan->slot;
    bool native = a->head.layout == LAYOUT_NATIVE;
    int unit = s->record_bytes & -s->record_bytes;
    int most = native ? 16 : s->alignment;
    unit = unit < most ? unit : most;
    val pages[ATTEND_SUBTILES];
    kb_warp_sync(K); /* the step before has been read */
    image_pages(K, a, start, pages);
    struct {
        val u, page, to, field;
    } c = {kb_i32(K, 0), pages[0], slot,
           kb_offset(K, v->image_fields ? v->image_fields : slot, v->head.field)};
    struct kb_loop loop;
    kb_loop_begin(K, &loop, (val *)&c, 4);
    kb_loop_while(K, &loop, kb_icmpi(K, KB_SLT, c.u, a->plan->subtiles));
    loop.rolled = true;
    val base = image_page_begin(K, a, c.page), record = kb_offset(K, base, a->head.record);
    val to = a->plan->turned ? c.to : kb_offset(K, c.to, v->head.record);
    copy_units(K, native ? NULL : im, record, a->head.step, to, s->record_bytes / unit,
               native ? 1 : TOKENS, unit);
    if (a->head.layout == LAYOUT_SOA && s->fields) {
        val fields = kb_offset(K, base, a->head.field);
        copy_units(K, NULL, fields, kb_i64(K, 0), c.field, s->fields * TOKENS, 1, 2);
    }
    c.u = kb_addi(K, c.u, 1);
    c.page = pages[a->plan->subtiles - 1];
    c.to = kb_offset(K, c.to, v->image_page);
    c.field = kb_offset(K, c.field, im->field_step);
    kb_loop_end(K, &loop);
    kb_warp_sync(K);
}
