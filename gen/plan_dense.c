/* SPDX-License-Identifier: Apache-2.0 */
/*
** plan_dense.c - attention over rows of 16 bits by products of four warps (templates/dense.c): when,
** and with how much shared memory.
*/
#include "plan_rules.h"

#include "kb_group.h"

enum {
    GROUPS = 2,         /* 128 rows: both halves of a tile's time are another group's */
    TILES = 4,          /* of keys and values: two in use, two on their way */
    CHUNK_TOKENS = 8192 /* as plan.c's */
};

static bool sixteen_bits(const struct side *s)
{
    const struct codec *c = &s->codec;
    bool whole = s->head_size == 64 || s->head_size == 128;
    return c->kind == CODEC_FLOAT && c->bits == 16 && whole && s->code_align == KB_UNIT;
}

bool plan_dense_possible(const struct plan *p)
{
    const struct side *key = &p->slot.key, *value = &p->slot.value;
    bool rows = p->geo.dtype == KVK_BFLOAT16 || key->codec.format == FLOAT_FP16;
    return p->kind == KIND_UNIFIED && p->target->ops->group && sixteen_bits(key) &&
           sixteen_bits(value) && key->codec.format == value->codec.format && rows &&
           p->spec.query == QUERY_NATIVE && p->geo.page_tokens % 16 == 0 && !p->geo.options &&
           plan_dense_bytes(p, GROUPS) <= p->target->shared_bytes;
}

/* Others are asked for something else. */
static bool nothing_else_set(const struct plan *p)
{
    for (int i = 0; i < PLAN_FIELDS; i++)
        if (i != PLAN_dense && p->set.value[i] != TUNED_RULE)
            return false;
    return true;
}

/* Keys and values, queries, sums of earlier chunks, rows' factors, barriers. */
int plan_dense_bytes(const struct plan *p, int groups)
{
    int rows = groups * KB_GROUP_ROWS, value = p->geo.value_head_size;
    int ring = TILES * (kb_tile_bytes(p->geo.head_size) + kb_tile_bytes(value));
    return ring + rows * (p->geo.head_size * 2 + value * 4 + 4) + 2 * TILES * 8 + 1024;
}

bool plan_dense(struct plan *p)
{
    bool possible = plan_dense_possible(p);
    bool helps = possible && p->target->flags & TF_WGMMA && nothing_else_set(p);
    p->dense = plan_pick(p, PLAN_dense, helps ? GROUPS : 0);
    if (p->kind == KIND_UNIFIED)
        plan_because(p, "dense", "%s",
                     !possible  ? "rows of 16 bits without options, 64 or 128 elements, alone"
                     : p->dense ? "groups of four warps multiply tiles in shared memory that one "
                                  "group brings"
                                : "each warp multiplies for itself");
    if (!p->dense || !possible)
        return false;
    p->mma = p->target->mma;
    p->warps = KB_GROUP_WARPS * (p->dense + 1);
    p->rows = p->dense * KB_GROUP_ROWS;
    p->row_warps = KB_GROUP_WARPS * p->dense;
    p->tile_tokens = KB_TILE_TOKENS;
    p->dense_tiles = TILES;
    p->chunk_tokens = CHUNK_TOKENS;
    p->paged_subtiles = 1;
    p->min_ctas = p->target->family == FAMILY_NVPTX; /* with the threads it says how many registers
                                                        groups have to share */
    plan_because(p, "dense_tiles", "two in use, two on their way");
    plan_because(p, "chunk_tokens",
                 "matrix units truncate when they accumulate: chunks meet in f32 additions");
    return true;
}
