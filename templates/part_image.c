/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_image.c - steps of decode from images of pages in shared memory.
*/
#include "part_image.h"

#include "../gen/kb_group.h"

#include "part_image_native.h"
#include "part_image_own.h"
#include "part_image_pages.h"
#include "part_image_pairs.h"
#include "part_powers.h"
#include "part_query.h"
#include "part_reference.h"
#include "part_word_pairs.h"
#include "part_words.h"

enum { TOKENS = 16, BAR_BYTES = 8, MOST_IMAGES = 16 };

static int slots(const struct plan *p) { return p->warps * p->images; }

/* A loop, which is no more than a branch here: the assembler makes a branch of so few instructions
** into predicates, and race checkers then see all threads in it. */
static void begin_barriers(struct kb *k, const struct image *im)
{
    const struct plan *p = kb_plan(k);
    val i = kb_tid(k);
    struct kb_loop loop;
    kb_loop_begin(K, &loop, &i, 1);
    kb_loop_while(K, &loop, kb_icmpi(K, KB_SLT, i, slots(p)));
    loop.rolled = true;
    val at = kb_muli(K, i, BAR_BYTES);
    kb_bulk_init(K, kb_offset(K, im->bars, at), kb_i32(K, 1));
    kb_bulk_init(K, kb_offset(K, im->all_empty, at), im->heads);
    i = kb_addi(K, i, (long long)p->warps * kb_warp_size(K));
    kb_loop_end(K, &loop);
}

void attend_image_begin(struct kb *k, struct image *im)
{
    const struct plan *p = kb_plan(k);
    im->shift = kb_param(K, "image_shift");
    im->tokens = kb_param(K, "image_tokens");
    im->heads = kb_shl(K, kb_i32(K, 1), im->shift);
    im->groups = kb_lshr(K, kb_i32(K, p->warps), im->shift);
    im->group = kb_uniform(K, kb_lshr(K, kb_warp(K), im->shift));
    im->member = kb_and(K, kb_warp(K), kb_addi(K, im->heads, -1));
    im->pitch = kb_param(K, "image_pitch");
    im->page_bytes = kb_param(K, "image_bytes");
    int fields = p->geo.layout == LAYOUT_SOA ? 2 * p->slot.fields * TOKENS : 0;
    im->group_pitch = kb_divi(K, kb_sub(K, im->page_bytes, kb_muli(K, im->heads, fields)),
                              TOKENS / p->image_group);
    int unit = plan_image_unit(p);
    im->page_step = kb_andi(K, kb_addi(K, im->page_bytes, unit - 1), -unit);
    im->field_step = im->page_step;
    im->step_bytes = kb_muli(K, im->page_step, p->subtiles);
    if (p->turned)
        pairs_sizes(K, im);
    im->all = kb_shared(K, (size_t)plan_ring_bytes(p), p->turned ? PLAN_TURN_BYTES : 128);
    val own = kb_mul(K, kb_muli(K, im->step_bytes, p->images), im->group);
    im->ring = kb_offset(K, im->all, own);
    im->fields = NULL;
    if (p->turned) {
        val before = kb_muli(K, im->group, (long long)p->images * p->subtiles);
        before = kb_mul(K, before, im->field_step);
        im->fields = kb_offset(K, pairs_fields(K, im), before);
    }
    val bars = kb_shared(K, (size_t)slots(p) * 2 * BAR_BYTES, 8);
    val empty = kb_offseti(K, bars, (long long)slots(p) * BAR_BYTES);
    val first = kb_muli(K, im->group, p->images * BAR_BYTES);
    im->bars = bars;
    im->all_empty = empty;
    im->full = kb_offset(K, bars, first);
    im->empty = kb_offset(K, empty, first);
    if (!p->bulk)
        return;
    if (p->turned)
        kb_tensor_begin(K);
    begin_barriers(K, im);
}

/* Which token a row of the matrix unit's operands is: of rows that are read together, tokens
** whose places in shared memory fill all banks. 8 lanes read 64 bytes each of keys of rows 2i and
** 2i + 1, 16 lanes 32 bytes of values of rows 0, 2, 4, 6. soa: groups of four tokens lie 32 bytes
** (modulo 128) apart; such rows are of all groups, the first two bits of the group from bits 1
** and 2 of the row, turned by the parity. aos: tokens lie an odd multiple of 16 bytes apart; such
** rows are tokens 4 apart, and 0, 2, 4, 6 modulo 8. 8 rows on is the next token but one (soa) or
** the next. */
static val token_of(struct kb *k, enum layout layout, val row)
{
    val r0 = kb_andi(K, row, 1), r3 = kb_andi(K, kb_lshri(K, row, 3), 1);
    val high = kb_andi(K, kb_lshri(K, row, 2), 1), turned = kb_xor(K, r0, high);
    if (layout == LAYOUT_SOA) {
        val low = kb_or(K, r0, kb_shli(K, r3, 1)), middle = kb_shli(K, kb_andi(K, row, 2), 1);
        val all = kb_or(K, low, middle);
        return kb_or(K, all, kb_shli(K, turned, 3));
    }
    val low = kb_or(K, r3, kb_andi(K, row, 2)), upper = kb_shli(K, turned, 2);
    val all = kb_or(K, low, upper);
    return kb_or(K, all, kb_shli(K, high, 3));
}

/* Where words are read: rows 0 to 7 of keys are tokens that lie an odd multiple of 16 bytes apart, and words of
** values of rows 0, 2, 4, 6 are of four of them. Even multiples: these rows are neighbours, which lie 32 bytes apart,
** or 64 or 128, and so on, which meets banks twice and more. */
static val word_token(struct kb *k, const struct image *im, val row)
{
    val even = kb_icmpi(K, KB_EQ, kb_andi(K, im->pitch, 16), 0);
    val high = kb_andi(K, row, 8), low = kb_andi(K, row, 7);
    val half = kb_lshri(K, low, 1), odd = kb_shli(K, kb_andi(K, row, 1), 2);
    val turned = kb_or(K, half, odd);
    return kb_or(K, kb_select(K, even, turned, low), high);
}

static val image_token(struct kb *k, const struct image *im, const struct plan *p, val row)
{
    if (p->key_words || p->value_words)
        return word_token(K, im, row);
    if (p->powers && p->geo.layout == LAYOUT_AOS)
        return powers_token(K, row);
    return token_of(K, p->geo.layout, row);
}

static void image_tokens(struct kb *k, const struct image *im, struct attend *v)
{
    enum layout layout = v->head.layout;
    if (layout == LAYOUT_NATIVE) { /* in the order of rows already */
        v->tokens_8 = 8;
        v->y_token = v->y;
        for (int e = 0; e < v->shape.ke; e++)
            v->k_token[e] = kb_matrix(K)->k_index(K, e);
        for (int e = 0; e < v->shape.ye; e++)
            v->result_token[e] = kb_matrix(K)->result_y(K, e);
        return;
    }
    const struct plan *p = v->plan;
    if (p->turned) {
        pairs_begin(K, v);
        return;
    }
    bool words = p->key_words || p->value_words;
    v->tokens_8 = words ? 8 : layout == LAYOUT_SOA || p->powers ? 2 : 1;
    v->y_token = image_token(K, im, p, v->y);
    for (int e = 0; e < v->shape.ke; e++) {
        val row = kb_matrix(K)->k_index(K, e);
        v->k_token[e] = image_token(K, im, p, row);
        v->v_steps[e] = image_place(K, im, v->k_token[e]);
    }
    for (int e = 0; e < v->shape.ye; e++) {
        val row = kb_matrix(K)->result_y(K, e);
        v->result_token[e] = image_token(K, im, p, row);
    }
    v->y_steps = image_place(K, im, v->y_token);
}

/* Bytes from an image to the fields of a token of its step. */
static val field_place(struct kb *k, const struct attend *v, const struct image *im, val token)
{
    val page = kb_mul(K, kb_lshri(K, token, 4), im->field_step), own = kb_andi(K, token, 15);
    if (v->head.layout == LAYOUT_SOA)
        return kb_add(K, page, kb_add(K, v->head.field, kb_shli(K, own, 1)));
    val first = kb_add(K, page, v->head.record);
    if (v->head.layout == LAYOUT_AOS)
        return kb_add(K, first, image_place(K, im, own));
    val pair = kb_shli(K, kb_andi(K, own, 7), 2), second = kb_shli(K, kb_lshri(K, own, 3), 1);
    return kb_add(K, first, kb_or(K, pair, second));
}

/* What a step's addresses begin with: made again in each step it would be a twelfth of its instructions. */
static void hold(struct kb *k, struct attend *v, const struct image *im)
{
    const struct plan *p = v->plan;
    val lane = kb_lane(K), token = p->turned ? pairs_token(K, lane) : lane;
    val row = p->turned ? kb_matrix(K)->result_y(K, 0) : v->result_token[0];
    v->own_token = kb_held(K, token);
    v->own_field = kb_held(K, field_place(K, v, im, token));
    v->facts_to = kb_offset(K, v->scratch, kb_shli(K, lane, 4));
    v->facts_from = kb_offset(K, v->scratch, kb_shli(K, row, 4));
    if (p->held_places == HELD_LEAST)
        return;
    if (p->held_places == HELD_ALL)
        v->query_place = kb_held(K, attend_query_place(K, v, 0));
    v->query = kb_uniform(K, v->query);
    v->facts_to = kb_held(K, v->facts_to);
    v->facts_from = kb_held(K, v->facts_from);
    if (v->key_table.lane)
        v->key_table.lane = kb_held(K, v->key_table.lane);
    if (p->key_words || p->value_words)
        words_hold(K, v);
    if (v->head.layout == LAYOUT_NATIVE)
        v->cell = kb_held(K, kb_add(K, v->head.record, kb_shli(K, lane, 4)));
    if (p->held_places == HELD_SOME)
        return;
    attend_seen_by_all(K, v, &v->all_first, &v->all_last);
    v->all_first = kb_held(K, v->all_first);
    v->all_last = kb_held(K, v->all_last);
}

static void hold_image(struct kb *k, struct image *im)
{
    im->ring = kb_uniform(K, im->ring);
    im->full = kb_uniform(K, im->full);
    im->empty = kb_held(K, im->empty);
    im->step_bytes = kb_uniform(K, im->step_bytes);
    if (im->fields && kb_plan(k)->held_places < HELD_ALL) {
        im->fields = kb_uniform(K, im->fields);
        im->field_step = kb_uniform(K, im->field_step);
    }
}

/* The warp's head inside an image: offsets are 32 bits. */
static struct attend view(struct kb *k, const struct attend *a, const struct image *im)
{
    const struct slot *slot = &a->plan->slot;
    struct attend v = *a;
    v.head.shared = true;
    const struct plan *p = a->plan;
    v.head.record = kb_muli(K, im->member, slot->record_bytes);
    v.head.step = im->pitch;
    int group = p->image_group;
    val groups = kb_muli(K, im->group_pitch, TOKENS / group - 1),
        region = kb_add(K, groups, kb_muli(K, im->pitch, group));
    if (p->turned)
        region = kb_i32(K, 0);
    v.head.field = kb_add(K, region, kb_muli(K, im->member, 2LL * slot->fields * TOKENS));
    v.image_page = im->page_step;
    image_tokens(K, im, &v);
    if (v.plan->key_words || v.plan->value_words)
        words_begin(K, &v, im->member);
    if (p->value_pairs && !p->turned) {
        val token = image_token(K, im, p, word_pairs_row(K));
        word_pairs_begin(K, &v, im->member, image_place(K, im, token));
    }
    if (v.plan->powers)
        powers_begin(K, &v, im->group_pitch);
    if (v.plan->held_places)
        hold(K, &v, im);
    return v;
}

/* One page's bulk copies, by one lane: whole, by groups of four tokens, the last with the fields
** behind it, or by tokens of these heads and then their fields. */
static void copy_page(struct kb *k, const struct attend *a, const struct image *im, val page,
                      val to, val bar)
{
    const struct slot *slot = &a->plan->slot;
    bool fields = a->head.layout == LAYOUT_SOA && slot->fields;
    val base = image_page_begin(K, a, page);
    if (a->head.layout == LAYOUT_NATIVE) { /* these heads' blocks lie together */
        val first = kb_muli(K, kb_zext(K, im->block, KB_I64), slot->record_bytes);
        kb_bulk_copy(K, to, kb_offset(K, base, first), im->page_bytes, bar);
        return;
    }
    val head_bytes = fields ? kb_i64(K, slot->record_bytes) : kb_param(K, "head_stride");
    val record = kb_mul(K, kb_zext(K, im->block, KB_I64), head_bytes);
    val each = im->tokens;
    val bytes = kb_mul(K, each, im->pitch),
        field_bytes = kb_muli(K, im->heads, 2LL * slot->fields * TOKENS);
    val step = kb_mul(K, kb_zext(K, each, KB_I64), a->head.step);
    int tokens = a->plan->image_group;
    val padding = kb_sub(K, im->group_pitch, kb_muli(K, im->pitch, tokens));
    struct {
        val token, to, from;
    } c = {each, to, kb_offset(K, base, record)};
    struct kb_loop loop;
    kb_loop_begin(K, &loop, (val *)&c, 3);
    kb_loop_while(K, &loop, kb_icmpi(K, KB_SLT, c.token, TOKENS));
    loop.rolled = true;
    kb_bulk_copy(K, c.to, c.from, bytes, bar);
    val group = kb_icmpi(K, KB_EQ, kb_andi(K, c.token, tokens - 1), 0);
    c.to = kb_offset(K, c.to, kb_select(K, group, kb_add(K, bytes, padding), bytes));
    c.from = kb_offset(K, c.from, step);
    c.token = kb_add(K, c.token, each);
    kb_loop_end(K, &loop);
    val size = bytes; /* of the last, which has the page's fields behind it */
    if (fields) {
        val behind = kb_icmpi(K, KB_SGT, each, 1);
        size = kb_select(K, behind, kb_add(K, bytes, field_bytes), bytes);
    }
    kb_bulk_copy(K, c.to, c.from, size, bar);
    if (!fields)
        return;
    struct kb_if apart = kb_if(K, kb_icmpi(K, KB_EQ, each, 1));
    val heads = kb_zext(K, kb_param(K, "kv_heads"), KB_I64);
    val region = kb_muli(K, heads, (long long)TOKENS * slot->record_bytes);
    region =
        kb_add(K, region, kb_muli(K, kb_zext(K, im->block, KB_I64), 2LL * slot->fields * TOKENS));
    val behind = kb_offset(K, c.to, bytes);
    kb_bulk_copy(K, behind, kb_offset(K, base, region), field_bytes, bar);
    kb_endif(K, &apart);
}

static void fill(struct kb *k, const struct attend *a, const struct image *im, const val *pages,
                 val slot, val index, val bar)
{
    const struct plan *p = a->plan;
    int head_bytes = p->subtiles * TOKENS * p->slot.slot_bytes;
    val bytes = p->turned ? pairs_bytes(K, im) : kb_muli(K, im->heads, head_bytes);
    kb_bulk_expect(K, bar, bytes); /* what is copied: padding is not */
    for (int u = 0; a->plan->turned && u < a->plan->subtiles; u++)
        pairs_copy(K, a, im, pages[u], u, slot, index, bar);
    if (a->plan->turned)
        return;
    struct {
        val u, page, to;
    } c = {kb_i32(K, 0), pages[0], kb_offset(K, im->ring, slot)};
    struct kb_loop loop;
    kb_loop_begin(K, &loop, (val *)&c, 3);
    kb_loop_while(K, &loop, kb_icmpi(K, KB_SLT, c.u, a->plan->subtiles));
    loop.rolled = true;
    copy_page(K, a, im, c.page, c.to, bar);
    c.u = kb_addi(K, c.u, 1);
    c.page = pages[a->plan->subtiles - 1];
    c.to = kb_offset(K, c.to, im->page_step);
    kb_loop_end(K, &loop);
}

/* The steps that a group begins with, by its first lane; their page numbers are looked up together. */
static void first_fills(struct kb *k, const struct attend *a, const struct image *im, val start,
                        val end)
{
    val leads = kb_icmpi(K, KB_EQ, kb_or(K, im->member, kb_lane(K)), 0);
    int subtiles = a->plan->subtiles, n = a->plan->images * subtiles;
    struct {
        val i, start, slot, bar, pages[MOST_IMAGES * ATTEND_SUBTILES];
    } c = {kb_i32(K, 0), start, kb_i32(K, 0), im->full, {NULL}};
    val any = kb_and(K, leads, kb_icmp(K, KB_SLT, start, end));
    struct kb_if leader = kb_if(K, kb_and(K, any, kb_icmpi(K, KB_NE, im->tokens, 0)));
    for (int i = 0; i < a->plan->images; i++) {
        val at = kb_add(K, start, kb_muli(K, a->stride, i));
        image_pages(K, a, at, c.pages + i * subtiles);
    }
    struct kb_loop loop;
    kb_loop_begin(K, &loop, (val *)&c, sizeof c / sizeof(val));
    val more = kb_icmp(K, KB_SLT, c.start, end), room = kb_icmpi(K, KB_SLT, c.i, a->plan->images);
    kb_loop_while(K, &loop, kb_and(K, more, room));
    loop.rolled = true;
    fill(K, a, im, c.pages, c.slot, c.i, c.bar);
    for (int i = subtiles; i < n; i++)
        c.pages[i - subtiles] = c.pages[i];
    c.i = kb_addi(K, c.i, 1);
    c.start = kb_add(K, c.start, a->stride);
    c.slot = kb_add(K, c.slot, im->step_bytes);
    c.bar = kb_offseti(K, c.bar, BAR_BYTES);
    kb_loop_end(K, &loop);
    kb_endif(K, &leader);
    kb_warp_sync(K);
}

static val first_start(struct kb *k, const struct plan *p, const struct image *im, val start)
{
    return kb_add(K, start, kb_muli(K, im->group, (long long)TOKENS * p->subtiles));
}

void attend_image_begin_range(struct kb *k, const struct attend *a, const struct image *im,
                              val start, val end)
{
    val first = first_start(K, a->plan, im, start);
    first_fills(K, a, im, first, end);
}

/* Where the producer is: the next step's first token, its group, slot and its slot's turn, its pages. */
struct produce {
    val start, group, index, phase, pages[ATTEND_SUBTILES];
};

/* Groups take steps in turn. */
static void next_step(struct kb *k, const struct plan *p, const struct image *im, struct produce *c)
{
    val group = kb_addi(K, c->group, 1), zero = kb_i32(K, 0);
    val around = kb_icmp(K, KB_EQ, group, im->groups);
    c->group = kb_select(K, around, zero, group);
    val index = kb_select(K, around, kb_addi(K, c->index, 1), c->index);
    val wraps = kb_icmpi(K, KB_EQ, index, p->images);
    c->index = kb_select(K, wraps, zero, index);
    c->phase = kb_select(K, wraps, kb_sub(K, kb_i32(K, 1), c->phase), c->phase);
}

void attend_image_produce(struct kb *k, const struct attend *a, const struct image *im, val start,
                          val end)
{
    const struct plan *p = a->plan;
    struct image all = *im;
    all.ring = im->all;
    if (p->turned)
        all.fields = pairs_fields(K, im);
    val some = kb_icmp(K, KB_SLT, start, end), copied = kb_icmpi(K, KB_NE, im->tokens, 0);
    some = kb_and(K, some, copied);
    val first = kb_icmpi(K, KB_EQ, kb_tid(K), (long long)p->warps * kb_warp_size(K));
    struct kb_if one = kb_if(K, kb_and(K, some, first));
    struct produce c = {start, kb_i32(K, 0), kb_i32(K, 0), kb_i32(K, 1), {NULL}};
    image_pages(K, a, start, c.pages);
    struct kb_loop loop;
    kb_loop_begin(K, &loop, (val *)&c, 4 + p->subtiles);
    kb_loop_while(K, &loop, kb_icmp(K, KB_SLT, c.start, end));
    loop.rolled = true;
    val pages[ATTEND_SUBTILES] = {c.pages[0], c.pages[1]};
    c.start = kb_addi(K, c.start, (long long)TOKENS * p->subtiles);
    image_pages(K, a, c.start, c.pages); /* on their way while this step waits for its slot */
    val slot = kb_add(K, kb_muli(K, c.group, p->images), c.index);
    val bar = kb_muli(K, slot, BAR_BYTES);
    kb_bulk_wait(K, kb_offset(K, im->all_empty, bar), c.phase); /* at once, the first time */
    val to = kb_mul(K, slot, im->step_bytes), full = kb_offset(K, im->bars, bar);
    fill(K, a, &all, pages, to, slot, full);
    next_step(K, p, im, &c);
    kb_loop_end(K, &loop);
    kb_endif(K, &one);
    kb_warp_sync(K);
}

/* What the loop carries: where the step's slot is, and which way its mbarrier was last seen to turn. */
struct turn {
    val start, index, phase;
    struct attend_sums sums;
};

static void advance(struct kb *k, const struct attend *a, struct turn *c)
{
    c->start = kb_add(K, c->start, a->stride);
    if (a->plan->images == 2) {
        c->phase = kb_xor(K, c->phase, c->index);
        c->index = kb_xor(K, c->index, kb_i32(K, 1));
        return;
    }
    val next = kb_addi(K, c->index, 1);
    val wraps = kb_icmpi(K, KB_EQ, next, a->plan->images);
    c->index = kb_select(K, wraps, kb_i32(K, 0), next);
    c->phase = kb_select(K, wraps, kb_sub(K, kb_i32(K, 1), c->phase), c->phase);
}

/* What a step does once its keys have been used. */
struct between {
    const struct attend *a, *view;
    const struct image *im;
    const struct turn *at;
    struct attend_codes *codes;
    val slot;
    val asks_below; /* i32: steps that begin below ask for one that exists, and by bulk copies */
};

/* Waits for the values, by a word of each load, and for the products, which took the keys (the
** fields are in shared memory again): the slot is free then. */
static void settle(struct kb *k, const struct between *b, const val *products)
{
    const struct plan *p = b->a->plan;
    const struct mma_shape *m = &b->a->shape;
    int run = b->a->dims, words = (run * p->slot.value.codec.bits / 8 + 3) / 4;
    int unit = plan_run_unit(&p->slot.value, run, run),
        apart = unit < 4 || p->value_words ? 1 : unit / 4;
    int tokens = m->ke;
    if (image_in_pairs(b->view)) { /* words of all tokens, a load's or what they became */
        const struct plane *plane = &p->slot.value.plane[NATIVE_MAIN];
        tokens = 1;
        words = image_native_words(b->view);
        apart = p->value_pairs ? 4 : plane->bits == 4 ? plane->unit / 4 : 1;
    }
    val all = kb_bitcast(K, products[0], KB_I32);
    for (int i = m->tiles; i < p->subtiles * b->a->y_tiles; i += m->tiles)
        all = kb_xor(K, all, kb_bitcast(K, products[i * m->lane_rows * m->ye], KB_I32));
    for (int u = 0; u < p->subtiles / m->k_tiles; u++)
        for (int e = 0; e < tokens; e++)
            for (int i = 0; i < words; i += apart)
                all = kb_xor(K, all, b->codes->value[u][e][i]);
    if (p->powers)
        all = powers_settle(K, b->a, b->codes, all);
    kb_bulk_settle(K, all);
    kb_warp_sync(K);
}

/* A slot is filled again when all of its readers have said so. */
static void give_back(struct kb *k, const struct between *b)
{
    struct kb_if one = kb_if(K, kb_icmpi(K, KB_EQ, kb_lane(K), 0));
    kb_arrive(K, kb_offset(K, b->im->empty, kb_muli(K, b->at->index, BAR_BYTES)));
    kb_endif(K, &one);
}

/* Tokens from a step to the one that comes into its slot next. */
static val steps_on(struct kb *k, const struct attend *a)
{
    return kb_muli(K, a->stride, a->plan->images);
}

/* The readers of a slot take turns in asking for the step that comes `images` steps later, when all of
** them have given it back. */
static void refill(struct kb *k, const struct between *b)
{
    const struct image *im = b->im;
    val turn = kb_lshr(K, b->at->start, b->a->stride_log);
    val own = kb_icmp(K, KB_EQ, kb_and(K, turn, kb_addi(K, im->heads, -1)), im->member);
    val exists = kb_icmp(K, KB_SLT, b->at->start, b->asks_below), pages[ATTEND_SUBTILES];
    struct kb_if asks = kb_if(K, kb_and(K, own, exists));
    val next = kb_add(K, b->at->start, steps_on(K, b->a));
    image_pages(K, b->a, next, pages);
    val at = kb_muli(K, b->at->index, BAR_BYTES);
    kb_bulk_wait(K, kb_offset(K, im->empty, at), b->at->phase);
    struct kb_if one = kb_if(K, kb_elect(K));
    fill(K, b->a, im, pages, b->slot, b->at->index, kb_offset(K, im->full, at));
    kb_endif(K, &one);
    kb_endif(K, &asks);
}

/* Values come to registers when those of the keys are free. The warp comes together after it. */
static void after_keys(struct kb *k, void *data, const val *products)
{
    const struct between *b = data;
    if (!b->a->plan->slot.value.norm_at_read)
        attend_load_values(K, b->view, b->at->start, b->codes);
    if (!b->a->plan->bulk)
        return;
    settle(K, b, products);
    give_back(K, b);
    if (!b->a->plan->producer)
        refill(K, b);
}

static void arrive(struct kb *k, const struct attend *a, const struct attend *v,
                   const struct image *im, const struct turn *c, val slot)
{
    if (!a->plan->bulk) {
        image_copy_own(K, a, v, im, c->start, slot);
        return;
    }
    struct kb_if copied = kb_if(K, kb_icmpi(K, KB_NE, im->tokens, 0));
    kb_bulk_wait(K, kb_offset(K, im->full, kb_muli(K, c->index, BAR_BYTES)), c->phase);
    kb_else(K, &copied);
    image_copy_own(K, a, v, im, c->start, slot);
    kb_endif(K, &copied);
}

void attend_image_range(struct kb *k, const struct attend *a, const struct image *im, val start,
                        val end, struct attend_sums *sums)
{
    const struct plan *p = a->plan;
    struct attend v = view(K, a, im);
    struct image own = *im;
    if (p->held_places > HELD_LEAST)
        hold_image(K, &own);
    im = &own;
    struct turn c = {.index = kb_i32(K, 0), .phase = kb_i32(K, 0)};
    c.start = first_start(K, p, im, start);
    attend_clear(K, a, &c.sums);
    if (p->powers)
        powers_clear(K, &c.sums);
    val below = kb_sub(K, end, steps_on(K, a)), copied = kb_icmpi(K, KB_NE, im->tokens, 0);
    below = kb_select(K, copied, below, kb_i32(K, 0));
    struct kb_loop loop;
    kb_loop_begin(K, &loop, (val *)&c, sizeof c / sizeof(val));
    kb_loop_while(K, &loop, kb_icmp(K, KB_SLT, c.start, end));
    struct attend_codes now = {0};
    struct between b = {a, &v, im, &c, &now, .asks_below = below};
    b.slot = kb_mul(K, c.index, im->step_bytes);
    v.image = kb_offset(K, im->ring, b.slot);
    if (p->turned)
        v.image_fields =
            kb_offset(K, im->fields, kb_mul(K, c.index, kb_muli(K, im->field_step, p->subtiles)));
    v.after_keys = after_keys;
    v.after_data = &b;
    arrive(K, a, &v, im, &c, v.image);
    attend_load_keys(K, &v, c.start, &now);
    if (p->slot.value.norm_at_read) /* their lengths come first */
        attend_load_values(K, &v, c.start, &now);
    struct power_word words[2];
    v.powers.words = words;
    if (p->powers)
        powers_load(K, a, &v, c.start, &now, &c.sums);
    attend_step(K, &v, c.start, &now, &c.sums);
    advance(K, a, &c);
    kb_loop_end(K, &loop);
    if (p->powers)
        powers_close(K, a, &c.sums);
    *sums = c.sums;
}
