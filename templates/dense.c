/* SPDX-License-Identifier: Apache-2.0 */
/*
** dense.c - unified attention over a cache of 16-bit rows: groups of four warps multiply tiles in
** shared memory (part_dense.h). Rows and tiles are unified's; CTAs take the tiles from the last to the
** first, because later rows see more.
*/
#include "part_dense.h"
#include "templates.h"

/* Where the CTA's rows are; leaves the kernel where it has none. */
static void find_rows(struct kb *k, struct dense *d)
{
    val heads = kb_param(K, "kv_heads"), index = kb_udiv(K, kb_cta(K), heads);
    d->rows.head = kb_sub(K, kb_cta(K), kb_mul(K, index, heads));
    val last = kb_addi(K, rows_first_tile(K, kb_param(K, "sequences")), -1);
    val tile = kb_sub(K, last, index);
    kb_return_if(K, kb_icmpi(K, KB_SLT, tile, 0));
    d->sequence = rows_sequence(K, tile);
    d->rows.first_token = rows_number(K, "query_start", d->sequence);
    val next = rows_number(K, "query_start", kb_addi(K, d->sequence, 1));
    d->rows.tokens = kb_sub(K, next, d->rows.first_token);
    d->rows.count = kb_muli(K, d->rows.tokens, d->plan->geo.gqa);
    val inner = kb_sub(K, tile, rows_first_tile(K, d->sequence));
    d->rows.first = kb_muli(K, inner, d->plan->rows);
    kb_return_if(K, kb_icmp(K, KB_SGE, d->rows.first, d->rows.count));
    d->length = rows_number(K, "lengths", d->sequence);
    val newest = kb_sub(K, d->length, d->rows.tokens);
    d->oldest = kb_add(K, newest, kb_param(K, "ahead"));
}

/* Tokens that some row of the CTA sees. */
static void find_tokens(struct kb *k, struct dense *d)
{
    const struct plan *p = d->plan;
    val window = kb_param(K, "window"), zero = kb_i32(K, 0);
    val full = kb_icmpi(K, KB_NE, kb_param(K, "full"), 0);
    val past = kb_smin(K, kb_addi(K, d->rows.first, p->rows), d->rows.count);
    val newest = kb_add(K, d->oldest, kb_divi(K, kb_addi(K, past, -1), p->geo.gqa));
    val reach = kb_smin(K, kb_addi(K, newest, 1), d->length);
    d->end = kb_smax(K, kb_select(K, full, d->length, reach), zero);
    val first = kb_add(K, d->oldest, kb_divi(K, d->rows.first, p->geo.gqa));
    val unseen = kb_addi(K, kb_sub(K, first, window), 1);
    val windowed = kb_icmpi(K, KB_SGT, window, 0);
    unseen = kb_select(K, windowed, kb_smax(K, unseen, zero), zero);
    d->start = kb_andi(K, unseen, -16);
    val tokens = kb_smax(K, kb_sub(K, d->end, d->start), kb_i32(K, 1));
    d->tiles = kb_divi(K, kb_addi(K, tokens, KB_TILE_TOKENS - 1), KB_TILE_TOKENS);
}

static void make_places(struct kb *k, struct dense *d)
{
    const struct plan *p = d->plan;
    int rows = p->rows, key = kb_tile_bytes(p->geo.head_size);
    int value = kb_tile_bytes(p->geo.value_head_size);
    d->keys = kb_shared(K, (size_t)(p->dense_tiles * key), 1024);
    d->values = kb_shared(K, (size_t)(p->dense_tiles * value), 1024);
    d->queries = kb_shared(K, (size_t)(p->dense * key), 1024);
    d->sums = kb_shared(K, (size_t)(rows * p->geo.value_head_size * 4), 16);
    d->factors = kb_shared(K, (size_t)(rows * 4), 16);
    d->full = kb_shared(K, (size_t)(p->dense_tiles * 8), 8);
    d->empty = kb_shared(K, (size_t)(p->dense_tiles * 8), 8);
    struct kb_if one = kb_if(K, kb_icmpi(K, KB_ULT, kb_tid(K), p->dense_tiles));
    val at = kb_shli(K, kb_tid(K), 3);
    kb_bulk_init(K, kb_offset(K, d->full, at), kb_i32(K, KB_GROUP_WARPS));
    kb_bulk_init(K, kb_offset(K, d->empty, at), kb_i32(K, p->row_warps));
    kb_endif(K, &one);
    kb_barrier(K);
}

/* Registers of a thread: 168 at the start, so that 384 threads fit; 2 * 232 + 40 = 3 * 168. */
enum { MANY_REGISTERS = 232, FEW_REGISTERS = 40 };

void template_dense(struct kb *k)
{
    const struct plan *p = kb_plan(k);
    struct dense d = {.plan = p};
    d.type = p->spec.key.format == FLOAT_BF16 ? KB_BF16 : KB_F16;
    find_rows(K, &d);
    find_tokens(K, &d);
    make_places(K, &d);
    val group = kb_lshri(K, kb_warp(K), 2);
    struct kb_if role = kb_if(K, kb_icmpi(K, KB_ULT, kb_warp(K), p->row_warps));
    struct dense_sums s;
    kb_group_registers(K, MANY_REGISTERS, true);
    dense_queries(K, &d, group);
    dense_attend(K, &d, group, &s);
    dense_write(K, &d, group, &s);
    kb_else(K, &role);
    kb_group_registers(K, FEW_REGISTERS, false);
    dense_bring(K, &d, kb_andi(K, kb_warp(K), KB_GROUP_WARPS - 1));
    kb_endif(K, &role);
}
