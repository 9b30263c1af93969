/* SPDX-License-Identifier: Apache-2.0 */
/*
** plan_pairs.c - store and dequant: how many lanes hold a (row, head).
*/
#include "plan_rules.h"

enum {
    PAIR_LANES = 8,
    PAIR_ELEMENTS = 64, /* of a lane's vectors at once */
    PAIR_TURNS = 2,
    STORE_LANES = 4,
    STORE_ELEMENTS = 32, /* most of a lane */
    STORE_CTAS = 5       /* of a multiprocessor: 96 registers a thread */
};

/* A vector in eight lanes needs three shuffled steps of its rotation, not five, and its rows are
** written by 16 bytes. */
static bool in_eight_lanes(int size)
{
    return (size & (size - 1)) == 0 && size >= 8 * PAIR_LANES && size <= 32 * PAIR_LANES;
}

/* CTAs of a multiprocessor, so many that no kernel spills: nine leave a thread 56 registers. Lanes
** hold twice as much of 256 elements, and before sm_90 a number takes more steps. */
static int pair_ctas(const struct plan *p, int size)
{
    bool wide = p->target->flags & TF_BULK_COPY && size <= 16 * PAIR_LANES;
    bool four = p->geo.layout == LAYOUT_SOA && p->spec.value.bits >= 4;
    return !wide ? 0 : p->geo.layout == LAYOUT_AOS ? 7 : four ? 9 : 8;
}

static void dequant_pairs(struct plan *p)
{
    int warp = p->target->warp, key = p->geo.head_size, value = p->geo.value_head_size;
    int size = key > value ? key : value;
    bool shared = in_eight_lanes(key) && in_eight_lanes(value);
    p->pair_lanes = shared ? PAIR_LANES : warp;
    int held = (size + p->pair_lanes - 1) / p->pair_lanes, most = PAIR_ELEMENTS / held;
    p->pair_turns = !shared || most < 1 ? 1 : most > PAIR_TURNS ? PAIR_TURNS : most;
    p->shuffled = shared && p->target->family == FAMILY_NVPTX && p->spec.key.kind == CODEC_CODEBOOK;
    p->min_ctas = shared ? pair_ctas(p, size) : 0;
    p->vectors = p->warps * (warp / p->pair_lanes) * p->pair_turns;
    plan_because(p, "pair_lanes", "%s",
                 shared ? "eight lanes a vector: rows by 16 bytes, fewer shuffles a rotation"
                        : "a warp holds the vector, whose blocks eight lanes could not");
    plan_because(p, "pair_turns", "vectors of a lane whose loads are under way at once");
    plan_because(p, "min_ctas", "%s",
                 p->min_ctas ? "more warps hide more latency than the registers would (measured, "
                               "sm_90a)"
                             : "the assembler may use all registers");
    plan_because(p, "shuffled", "%s",
                 p->shuffled ? "a shuffle instead of a tree of selections"
                             : "no codebook, or shuffles cost more than selections");
}

/* Encoders of few instructions have no options, and know only these. */
static bool few_instructions(const struct side *s)
{
    const struct codec *c = &s->codec;
    switch (c->kind) {
    case CODEC_CODEBOOK:
        return c->rotation == ROTATION_HADAMARD && !c->unbiased_norm && !c->ncentroids;
    case CODEC_AFFINE: return c->bits <= 4 && !c->stored_params;
    case CODEC_FLOAT: return c->format == FLOAT_E4M3;
    default: return false;
    }
}

static bool in_few_lanes(const struct plan *p, const struct side *s)
{
    int size = s->head_size;
    bool power = (size & (size - 1)) == 0 && size >= 8 * p->pair_lanes;
    return power && size <= STORE_ELEMENTS * p->pair_lanes && few_instructions(s);
}

/* CTAs of a multiprocessor, so many that no kernel spills. Rows of fp16 take more registers. */
static int store_ctas(const struct plan *p)
{
    bool codebook = p->spec.key.kind == CODEC_CODEBOOK;
    if (!(p->target->flags & TF_BULK_COPY))
        return 0;
    bool planes = p->geo.layout == LAYOUT_NATIVE && p->spec.key.bits == 3 && p->geo.head_size > 128;
    if (p->geo.dtype != KVK_BFLOAT16 || planes) /* planes: sm_103a spilled 4 bytes */
        return STORE_CTAS - 1;
    return codebook && p->geo.layout == LAYOUT_SOA ? STORE_CTAS + 1 : STORE_CTAS;
}

static void store_pairs(struct plan *p)
{
    enum family family = p->target->family;
    int key = p->geo.head_size, value = p->geo.value_head_size, size = key > value ? key : value;
    p->pair_lanes = size > STORE_LANES * STORE_ELEMENTS ? size / STORE_ELEMENTS : STORE_LANES;
    bool shared =
        family != FAMILY_AMDGCN && in_few_lanes(p, &p->slot.key) && in_few_lanes(p, &p->slot.value);
    if (!shared)
        p->pair_lanes = p->target->warp;
    p->pair_turns = 1;
    p->min_ctas = shared ? store_ctas(p) : 0;
    p->shuffled = shared && family == FAMILY_NVPTX;
    p->vectors = p->warps * (p->target->warp / p->pair_lanes);
    plan_because(p, "pair_lanes", "%s",
                 shared ? "few lanes a vector: what is done once a vector is done for many at once"
                        : "a warp holds the vector");
}

void plan_pairs(struct plan *p)
{
    if (p->kind == KIND_DEQUANT)
        dequant_pairs(p);
    else if (p->kind == KIND_STORE)
        store_pairs(p);
}
