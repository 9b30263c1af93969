/* SPDX-License-Identifier: Apache-2.0 */
/*
** plan_images.c - decode: pages as images in shared memory, and how many of them for whom.
*/
#include "plan_rules.h"

enum {
    IMAGE_HEADS = 8,      /* of which queries find room beside a ring */
    LARGE_PIECE = 6 << 10 /* bytes of a page */
};

static int least(int a, int b) { return a < b ? a : b; }

/* Pages of 16 tokens; larger ones of the native layout are such pages one after the other. */
static bool pages_suit(const struct plan *p)
{
    return p->geo.layout == LAYOUT_NATIVE || p->geo.page_tokens == 16;
}

/* Native images are nibbles: values that are masked where they stand, keys that are looked up by nibbles, or whole
** codes. */
static bool native_suits(const struct plan *p)
{
    const struct mma_shape *m = &p->mma;
    return m->groups == 4 && m->y_tile == 8 && m->ke == 4 &&
           (p->spec.value.kind == CODEC_AFFINE || p->powers) &&
           (p->powers || p->spec.key.kind == CODEC_CODEBOOK || p->spec.key.bits >= 4);
}

/* What part_image.c can do: a page is 16 tokens, a warp holds all dims of its rows. On gfx targets, whose matrix units
** take operands of other forms, every number of images gave wrong sums or read past the ring (tests/amdsim, gfx942,
** gfx1100, gfx1201; aos and soa). */
bool plan_images_possible(const struct plan *p)
{
    if (p->target->family == FAMILY_AMDGCN)
        return false;
    bool order = p->geo.layout != LAYOUT_NATIVE || native_suits(p);
    return order && p->kind == KIND_DECODE && pages_suit(p) && p->dim_warps == 1 && !p->turn_rows &&
           !p->dims_overlap && p->slot.slot_bytes % 2 == 0 &&
           (p->powers || (!p->slot.key.scale_bytes && !p->slot.value.scale_bytes));
}

/* Where images were measured to be faster than loads: multiprocessors with room for a ring beside
** a table, codes with fields (a slot's parts are then many small loads), and kernels whose
** registers allow 16 warps or that keep 8 busy. */
bool plan_images_help(const struct plan *p)
{
    int size = p->geo.head_size;
    bool room = p->target->family == FAMILY_NVPTX && p->target->flags & TF_BULK_COPY &&
                p->target->shared_bytes >= 3 * 65536;
    return room && pages_suit(p) && p->spec.value.rotation == ROTATION_NONE && !p->geo.options &&
           p->key_operand == OPERAND_F16 &&
           (p->powers || (p->slot.fields && p->spec.value.kind == CODEC_AFFINE)) &&
           size == p->geo.value_head_size && (size == 64 || size == 128 || size == 256);
}

/* 8 warps keep up with memory where nothing is looked up, or need the registers. */
static bool few_warps(const struct plan *p)
{
    bool squares = plan_squares_possible(p);
    bool wide = p->geo.layout == LAYOUT_AOS && p->geo.gqa > 4 && !squares && !p->powers;
    return p->spec.key.kind == CODEC_FLOAT || wide || (p->slot.key.norm_at_read && !squares) ||
           p->geo.head_size > 128 || p->narrow > 1;
}

int plan_image_warps(const struct plan *p) { return few_warps(p) ? 8 : 16; }
static int image_steps(const struct plan *p)
{
    bool powers = p->powers && p->geo.layout == LAYOUT_AOS; /* 228 us with 2, 239 with 3 */
    bool more = p->slot.key.norm_at_read || (p->narrow > 1 && !powers);
    return more && p->geo.head_size <= 128 && p->warps <= 8 ? 3 : 2;
}

/* 16 warps and one more would leave 96 registers a thread: a multiprocessor's quarter has five of them
** then, and 16384 registers. (nvJitLink ignores setmaxnreg.) */
static void plan_producer(struct plan *p)
{
    bool aos = p->geo.layout == LAYOUT_AOS;
    bool two = p->narrow == 2 && p->spec.key.bits < 8 && !p->slot.key.norm_at_read &&
               p->target->flags & TF_WGMMA;
    bool tight = (p->narrow > 1 && !two) || /* 168 registers would spill */
                 (aos && p->geo.head_size > 128);
    p->producer = plan_pick(p, PLAN_producer, p->bulk && p->warps < 16 && !tight);
    plan_because(p, "producer", "%s",
                 p->producer ? "no reader of a slot falls behind by asking for its next pages"
                             : "readers take turns in asking for pages");
}

/* KV heads a CTA at most: where fewer of them still come in large pieces, more groups of warps wait for their pages
** independently (sm_90a: 4bit_nc native 141 us with 4, 144 with 8, soa of 8 rows 145 and 151). */
static int most_heads(const struct plan *p)
{
    int half = IMAGE_HEADS / 2 * p->slot.record_bytes;
    bool apart = p->geo.layout == LAYOUT_NATIVE || (p->turned && half % PLAN_ROW_BYTES == 0);
    return apart && IMAGE_HEADS / 2 * 16 * p->slot.slot_bytes >= LARGE_PIECE ? IMAGE_HEADS / 2
                                                                             : IMAGE_HEADS;
}

void plan_images(struct plan *p, bool wanted)
{
    p->images = plan_pick(p, PLAN_images, wanted ? image_steps(p) : 0);
    int size = p->geo.head_size;
    bool sizes = size == 512 || (p->images && (size == 64 || size == 128 || size == 256));
    p->swizzled = p->narrow && p->key_operand == OPERAND_F16 && sizes;
    p->bulk = p->images && p->target->flags & TF_BULK_COPY;
    plan_producer(p);
    bool looks_up = p->spec.key.kind == CODEC_CODEBOOK;
    p->image_padding = p->images && looks_up && p->geo.layout == LAYOUT_SOA ? 32
                       : p->powers && p->geo.layout == LAYOUT_AOS           ? 32
                                                                            : 0;
    p->image_group = p->powers ? 8 : 4;
    plan_rows(p);
    p->image_heads = p->images ? least(p->warps, most_heads(p)) : 0;
    plan_because(
        p, "images", "%s",
        p->images ? "whole pages come to shared memory ahead of their step: registers hold one step"
                  : "codes go straight to registers");
    plan_because(p, "image_padding", "%s",
                 p->image_padding
                     ? "look-ups need shared memory's time: some tokens begin in different banks"
                     : "one copy a page");
}
