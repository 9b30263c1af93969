/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_place.c - the work of a decode's CTA.
*/
#include "part_place.h"

struct place place_find(struct kb *k)
{
    const struct plan *p = kb_plan(k);
    struct place w;
    val heads = kb_param(K, "kv_heads");
    if (p->images) {
        attend_image_begin(K, &w.image);
        heads = kb_lshr(K, heads, w.image.shift);
    }
    w.rows.tokens = kb_param(K, "query_tokens");
    w.rows.count = kb_muli(K, w.rows.tokens, p->geo.gqa);
    val tiles = kb_divi(K, kb_addi(K, w.rows.count, p->rows - 1), p->rows);
    val rest = kb_udiv(K, kb_cta(K), heads);
    w.rows.head = kb_sub(K, kb_cta(K), kb_mul(K, rest, heads));
    if (p->images) {
        w.image.block = kb_mul(K, w.rows.head, w.image.heads);
        w.rows.head = kb_add(K, w.image.block, w.image.member);
    }
    val above = kb_udiv(K, rest, tiles);
    val row_tile = kb_sub(K, rest, kb_mul(K, above, tiles));
    w.sequence = kb_udiv(K, above, kb_param(K, "splits"));
    w.split = kb_sub(K, above, kb_mul(K, w.sequence, kb_param(K, "splits")));
    w.rows.first = kb_muli(K, row_tile, p->rows);
    w.rows.first_token = kb_mul(K, w.sequence, w.rows.tokens);
    return w;
}

val place_length(struct kb *k, const struct place *w)
{
    val at = kb_shli(K, kb_zext(K, w->sequence, KB_I64), 2);
    return kb_load(K, KB_I32, kb_offset(K, kb_param(K, "lengths"), at), 4);
}

void place_range(struct kb *k, struct attend *a, const struct place *w, val *start, val *end)
{
    val splits = kb_param(K, "splits"), window = kb_param(K, "window");
    val chunk = kb_udiv(K, kb_addi(K, kb_add(K, w->length, splits), -1), splits);
    val steps = kb_lshr(K, kb_addi(K, kb_add(K, chunk, a->stride), -1), a->stride_log);
    val fixed = kb_param(K, "split_tokens"); /* splits that end at fixed positions */
    val even = kb_shl(K, steps, a->stride_log);
    chunk = kb_select(K, kb_icmpi(K, KB_SGT, fixed, 0), fixed, even);
    val begin = kb_mul(K, w->split, chunk);
    *end = kb_smin(K, kb_add(K, begin, chunk), w->length);
    val oldest = kb_sub(K, w->length, w->rows.tokens); /* position of query token 0 */
    val windowed = kb_icmpi(K, KB_SGT, window, 0);
    val full = kb_icmpi(K, KB_NE, kb_param(K, "full"), 0);
    for (int i = 0; i < a->shape.lane_rows; i++) {
        val head, valid;
        val token = rows_token(K, &w->rows, kb_matrix(K)->x_row(K, i), &head, &valid);
        val position = kb_add(K, oldest, token);
        val reach = kb_addi(K, kb_sub(K, position, window), 1);
        val first = kb_select(K, windowed, kb_smax(K, reach, begin), begin);
        val limit = kb_addi(K, *end, -1);
        val last = kb_select(K, full, limit, kb_smin(K, position, limit));
        attend_row_options(K, a, i, position, head, valid);
        /* rows that do not exist are not written: where masks are rare, they must not call for them */
        a->first[i] = a->plan->lazy_reference ? kb_select(K, valid, first, begin) : first;
        a->last[i] = kb_select(K, valid, last, a->plan->lazy_reference ? limit : kb_i32(K, -1));
    }
    /* whole steps before the oldest row's window are skipped */
    val unseen = kb_sub(K, kb_addi(K, kb_sub(K, oldest, window), 1), begin);
    unseen = kb_select(K, windowed, kb_smax(K, unseen, kb_i32(K, 0)), kb_i32(K, 0));
    val skipped = kb_shl(K, kb_lshr(K, unseen, a->stride_log), a->stride_log);
    *start = kb_add(K, begin, skipped);
}
