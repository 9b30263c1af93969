/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_rowpair.c - which (row, head) a warp handles in the kinds that do not attend, and where rows
** of K and V lie.
*/
#include "part_rowpair.h"

struct rowpair rowpair_begin(struct kb *k) { return rowpair_begin_of(k, "rows", "kv_heads"); }

struct rowpair rowpair_begin_of(struct kb *k, const char *rows_name, const char *heads_name)
{
    struct rowpair pair;
    val cta = kb_cta(K), warp = kb_warp(K);
    val first = kb_muli(K, cta, kb_plan(k)->vectors);
    val vector = kb_add(K, first, warp);
    val heads = kb_param(K, heads_name);
    val row = kb_udiv(K, vector, heads);
    val whole = kb_mul(K, row, heads);
    pair.head = kb_sub(K, vector, whole);
    pair.row = kb_zext(K, row, KB_I64);
    val rows = kb_param(K, rows_name);
    val beyond = kb_icmp(K, KB_SGE, pair.row, rows);
    kb_return_if(K, beyond);
    return pair;
}

static val row_of(struct kb *k, const struct rowpair *pair, const char *data,
                  const char *row_stride, const char *head_stride)
{
    val base = kb_param(K, data), per_row = kb_param(K, row_stride),
        per_head = kb_param(K, head_stride);
    val rows = kb_mul(K, pair->row, per_row);
    val head = kb_zext(K, pair->head, KB_I64);
    val heads = kb_mul(K, head, per_head);
    val elements = kb_add(K, rows, heads);
    val bytes = kb_shli(K, elements, 1);
    return kb_offset(K, base, bytes);
}

val rowpair_key(struct kb *k, const struct rowpair *pair)
{
    return row_of(k, pair, "key", "key_row", "key_head");
}
val rowpair_value(struct kb *k, const struct rowpair *pair)
{
    return row_of(k, pair, "value", "value_row", "value_head");
}

int rowpair_type(struct kb *k) { return kb_plan(k)->geo.dtype == KVK_FLOAT16 ? KB_F16 : KB_BF16; }
