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
