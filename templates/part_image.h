/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_image.h - steps of decode from images of pages in shared memory (plan->images).
**
** A CTA takes image_heads KV heads at once (a launch's number, a power of two that divides kv_heads and the warps), a warp
** one of them: warps of the same page range form a group, and groups take steps in turn. A step's pages come into a slot of
** the group's ring as they lie in memory, by the bulk copy engine, so whole pages cross the memory system and no thread
** computes their addresses; the step that comes next in a slot is asked for by a warp that does nothing else (plan->producer),
** or by its readers in turn. Where
** pages cannot be copied so (image_tokens 0: strided pools; targets without the engine), every warp copies its own head.
*/
#ifndef KVKILN_PART_IMAGE_H
#define KVKILN_PART_IMAGE_H

#include "part_attend.h"

struct image {
    val shift, heads;        /* i32: log2 of the KV heads a CTA, and these */
    val member, groups, group; /* i32: this warp's of them; groups of warps; this warp's */
    val tokens;              /* i32: of a page in one copy: 16, plan->image_group, 1, or 0 */
    val pitch, group_pitch; /* i32: from token to token, from a group of them to the next */
    /* i32: of a page, from one to the next of a slot, of a slot, from a page's fields to the next's */
    val page_bytes, page_step, step_bytes, field_step;
    val all, ring;           /* shared: everything, to be used again at the end; this group's first slot */
    val fields;              /* shared, with plan->turned: fields of its first page, else NULL */
    val bars, all_empty;     /* shared: mbarriers of all groups' slots, as full and empty */
    val full, empty;         /* shared, of this group's first slot: mbarriers: it was copied, its readers are done */
    val block;               /* i32: first KV head of the CTA */
};

/* Places and barriers; a CTA barrier must follow. Call once, outside any branch. */
void attend_image_begin(struct kb *k, struct image *im);
/* Asks for the first pages of [start, end), where plan->bulk: once, any time before attend_image_range of the same. */
void attend_image_begin_range(struct kb *k, const struct attend *a, const struct image *im, val start, val end);
/* Asks for all pages of [start, end), as places for them become free: by the producer, where the plan has one. */
void attend_image_produce(struct kb *k, const struct attend *a, const struct image *im, val start, val end);
/* attend_range over [start, end) of the CTA, `a` being that of the warp's head; joins come after. */
void attend_image_range(struct kb *k, const struct attend *a, const struct image *im, val start, val end,
                        struct attend_sums *s);

#endif
