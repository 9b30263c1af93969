/* SPDX-License-Identifier: Apache-2.0 */
#include "part_rows.h"

val rows_token(struct kb *k, const struct rows *r, val row, val *head, val *valid)
{
    int gqa = kb_plan(k)->geo.gqa;
    val at = kb_add(K, r->first, row);
    *valid = kb_icmp(K, KB_SLT, at, r->count);
    val i = kb_divi(K, at, gqa);
    val inner = kb_sub(K, at, kb_muli(K, i, gqa));
    *head = kb_add(K, kb_muli(K, r->head, gqa), inner);
    return i;
}

val rows_pointer(struct kb *k, const char *base, const char *row_stride, const char *head_stride,
                 val token, val head)
{
    val a = kb_mul(K, kb_zext(K, token, KB_I64), kb_param(K, row_stride));
    val b = kb_mul(K, kb_zext(K, head, KB_I64), kb_param(K, head_stride));
    val elements = kb_add(K, a, b);
    return kb_offset(K, kb_param(K, base), kb_shli(K, elements, 1));
}

val rows_query(struct kb *k, void *data, val row)
{
    const struct rows *r = data;
    val head, valid;
    val i = rows_token(K, r, row, &head, &valid);
    val first = kb_muli(K, r->head, kb_plan(k)->geo.gqa);
    i = kb_select(K, valid, i, kb_i32(K, 0));
    head = kb_select(K, valid, head, first);
    val token = kb_add(K, r->first_token, i);
    return rows_pointer(K, "query", "query_row", "query_head", token, head);
}

val rows_number(struct kb *k, const char *array, val index)
{
    val at = kb_shli(K, kb_zext(K, index, KB_I64), 2);
    return kb_load(K, KB_I32, kb_offset(K, kb_param(K, array), at), 4);
}

val rows_first_tile(struct kb *k, val sequence)
{
    const struct plan *p = kb_plan(k);
    val start = kb_zext(K, rows_number(K, "query_start", sequence), KB_I64);
    val rows = kb_mul(K, start, kb_i64(K, p->geo.gqa));
    val tiles = kb_trunc(K, kb_divi(K, rows, p->rows), KB_I32);
    return kb_add(K, tiles, sequence);
}

val rows_sequence(struct kb *k, val tile)
{
    struct {
        val low, high;
    } s = {kb_i32(K, 0), kb_param(K, "sequences")};
    struct kb_loop loop;
    kb_loop_begin(K, &loop, (val *)&s, 2);
    kb_loop_while(K, &loop, kb_icmp(K, KB_SGT, kb_sub(K, s.high, s.low), kb_i32(K, 1)));
    val middle = kb_lshri(K, kb_add(K, s.low, s.high), 1);
    val before = kb_icmp(K, KB_SLE, rows_first_tile(K, middle), tile);
    s.low = kb_select(K, before, middle, s.low);
    s.high = kb_select(K, before, s.high, middle);
    kb_loop_end(K, &loop);
    return s.low;
}
