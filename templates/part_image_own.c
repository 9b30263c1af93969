/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_image_own.c - pages that no bulk copy takes: lanes load them and store them.
*/
#include "part_image_own.h"

#include "part_image_pages.h"
#include "part_image_pairs.h"

enum {
    TOKENS = 16,
    AT_ONCE = 8,    /* rows of aos that a warp copies side by side */
    UNIT = 8,       /* bytes of a load, at least */
    MOST_UNITS = 12 /* loads of a lane */
};

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

/*
** aos. No bulk copy takes KV heads apart whose records are no multiple of 16 bytes, and lanes that wait for every two
** bytes are what such a launch takes its time for. So an eighth of the warp takes a row: its units, from the first
** multiple of one on, all of a lane before any is stored; and what is left of it, in pieces, of which some lie before
** the units and some behind.
*/
struct cut {
    int lanes, unit,
        align; /* of a row; bytes of a unit; bytes that records begin at multiples of: a piece */
    int units, columns, pieces; /* of a record; units of a lane */
};

struct row {
    val from, to, own,
        before; /* the record, in the pool and in the image; i32: which of its lanes; bytes to its units */
};

static struct cut cut_of(const struct plan *p)
{
    struct cut c = {.align = p->slot.alignment, .lanes = p->target->warp / AT_ONCE};
    c.unit = c.align < UNIT ? UNIT : c.align;
    c.units = (p->slot.record_bytes - (c.unit - c.align)) / c.unit;
    c.columns = (c.units + c.lanes - 1) / c.lanes;
    c.pieces = (p->slot.record_bytes - c.units * c.unit) / c.align;
    return c;
}

static bool can_cut(const struct plan *p)
{
    const struct cut c = cut_of(p);
    bool fits = c.units >= c.lanes && c.columns <= MOST_UNITS && c.pieces <= c.lanes;
    return p->geo.layout == LAYOUT_AOS && fits;
}

/* The lane's row of the `i`th eight of a step. */
static struct row row_of(struct kb *k, const struct attend *a, const struct attend *v,
                         const struct image *im, const val *pages, val slot, val i)
{
    const struct plan *p = a->plan;
    const struct cut c = cut_of(p);
    val lane = kb_opaque(K, kb_lane(K)); /* its places are not kept from step to step */
    val u = kb_divi(K, i, TOKENS / AT_ONCE), eight = kb_andi(K, i, TOKENS / AT_ONCE - 1);
    val row = kb_divi(K, lane, c.lanes);
    row = kb_or(K, row, kb_muli(K, eight, AT_ONCE));
    val page = kb_select(K, kb_icmpi(K, KB_EQ, u, 0), pages[0], pages[p->subtiles - 1]);
    val first = kb_offset(K, image_page_begin(K, a, page), a->head.record);
    struct row r = {.own = kb_andi(K, lane, c.lanes - 1)};
    r.from = kb_offset(K, first, kb_mul(K, kb_zext(K, row, KB_I64), a->head.step));
    val place = p->image_padding ? image_place(K, im, row) : kb_mul(K, row, im->pitch);
    place = kb_add(K, v->head.record, place);
    r.to = kb_offset(K, slot, kb_add(K, place, kb_mul(K, u, v->image_page)));
    val past = kb_address_bits(K, r.from, c.unit - 1);
    r.before = kb_andi(K, kb_sub(K, kb_i32(K, 0), past), c.unit - c.align);
    return r;
}

static void store_unit(struct kb *k, const struct cut *c, val x, val to)
{
    int n = c->unit / c->align;
    for (int i = 0; n > 1 && i < n; i++) {
        val part = kb_extract(K, x, i);
        kb_store(K, part, kb_offseti(K, to, (long long)i * c->align), c->align);
    }
    if (n == 1)
        kb_store(K, x, to, c->unit);
}

/* x: what was loaded; some: i1, the lane has a last unit; NULL: all lanes have. */
static void store_units(struct kb *k, const struct cut *c, const val *x, val some, val to)
{
    for (int i = 0; i < c->columns; i++) {
        struct kb_if last = {0};
        bool asks = some && i == c->columns - 1;
        if (asks)
            last = kb_if(K, some);
        store_unit(K, c, x[i], kb_offseti(K, to, (long long)i * c->lanes * c->unit));
        if (asks)
            kb_endif(K, &last);
    }
}

/* A lane that has no last unit, or no piece, loads another again. */
static void copy_row(struct kb *k, const struct cut *c, const struct row *r)
{
    int type = c->align == 2 ? KB_VEC(KB_I16, 4) : KB_VEC(KB_I32, c->unit / 4);
    int last = c->columns - 1, rest = c->units - last * c->lanes;
    val first = kb_add(K, r->before, kb_muli(K, r->own, c->unit));
    val x[MOST_UNITS], at = NULL, piece = NULL;
    val from = kb_offset(K, r->from, first), to = kb_offset(K, r->to, first);
    val some = rest < c->lanes ? kb_icmpi(K, KB_SLT, r->own, rest) : NULL;
    for (int i = 0; i < c->columns; i++) {
        val on = kb_i32(K, i * c->lanes * c->unit);
        if (some && i == last)
            on = kb_select(K, some, on, kb_i32(K, 0));
        x[i] = kb_load_once(K, type, kb_offset(K, from, on), c->unit);
    }
    if (c->pieces) {
        at = kb_muli(K, kb_smin(K, r->own, kb_i32(K, c->pieces - 1)), c->align);
        val behind = kb_addi(K, at, (long long)c->units * c->unit);
        at = kb_select(K, kb_icmp(K, KB_SLT, at, r->before), at, behind);
        val place = kb_offset(K, r->from, at);
        piece = kb_load_once(K, c->align == 2 ? KB_I16 : KB_I32, place, c->align);
    }
    store_units(K, c, x, some, to);
    if (!piece)
        return;
    struct kb_if there = kb_if(K, kb_icmpi(K, KB_SLT, r->own, c->pieces));
    kb_store(K, piece, kb_offset(K, r->to, at), c->align);
    kb_endif(K, &there);
}

static void copy_rows(struct kb *k, const struct attend *a, const struct attend *v,
                      const struct image *im, const val *pages, val slot)
{
    const struct cut c = cut_of(a->plan);
    val i = kb_i32(K, 0);
    struct kb_loop loop;
    kb_loop_begin(K, &loop, &i, 1);
    kb_loop_while(K, &loop, kb_icmpi(K, KB_SLT, i, a->plan->subtiles * TOKENS / AT_ONCE));
    loop.rolled = true;
    const struct row r = row_of(K, a, v, im, pages, slot, i);
    copy_row(K, &c, &r);
    i = kb_addi(K, i, 1);
    kb_loop_end(K, &loop);
}

/* The pages of a step one after the other, unit by unit. */
static void copy_pages(struct kb *k, const struct attend *a, const struct attend *v,
                       const struct image *im, const val *pages, val slot)
{
    const struct slot *s = &a->plan->slot;
    bool native = a->head.layout == LAYOUT_NATIVE;
    int unit = s->record_bytes & -s->record_bytes;
    int most = native ? 16 : s->alignment;
    unit = unit < most ? unit : most;
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
}

void image_copy_own(struct kb *k, const struct attend *a, const struct attend *v,
                    const struct image *im, val start, val slot)
{
    val pages[ATTEND_SUBTILES];
    kb_warp_sync(K); /* the step before has been read */
    image_pages(K, a, start, pages);
    if (can_cut(a->plan))
        copy_rows(K, a, v, im, pages, slot);
    else
        copy_pages(K, a, v, im, pages, slot);
    kb_warp_sync(K);
}
