/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_slot.h - where the parts of a slot lie, in every layout.
**
** Three steps, so that each value is computed as far out as it can be: a head (once a CTA or warp), a token of it,
** a part of the token. Strides are the entry's page_stride, position_stride, head_stride; offsets are 64 bits.
*/
#ifndef KVKILN_PART_SLOT_H
#define KVKILN_PART_SLOT_H

#include "../gen/plan.h"

/* One KV head of the pool. */
struct slot_head {
    const struct slot *slot;
    enum layout layout;
    int page_tokens;
    val cache, page_stride;   /* bytes from page to page */
    val record, step;         /* i64 bytes: of the head's first record in a page; from position to position
                              ** (native: of its first block; from block to block) */
    val field;                /* soa: i64 bytes of the head's first field in a page */
    bool shared;              /* of a page's image in shared memory: record, step and field are i32 */
};

/* One token of it. */
struct slot_token {
    const struct slot_head *head;
    val record;               /* pointer to the slot (aos), to the data record (soa) or to the block of 16 tokens (native) */
    val field;                /* soa: pointer to field 0; aos: the slot; native: the block plus the token's place in a field */
    val place;                /* native: i32 position in the block */
};

/* head: i32. Reads the parameters cache, page_stride, position_stride, head_stride, kv_heads of the entry. */
struct slot_head slot_head(struct kb *k, val head);
/* The same of another pool, whose parameters have these names. */
struct slot_pool { const char *cache, *page_stride, *position_stride, *head_stride; };
struct slot_head slot_head_of(struct kb *k, const struct slot_pool *pool, val head);
/* And of another layout than the plan's. */
struct slot_head slot_head_in(struct kb *k, const struct slot_pool *pool, enum layout layout, const struct slot *slot, val head);

/* page (a page number, taken as non-negative) and position in the page: i32. */
struct slot_token slot_token(struct kb *k, const struct slot_head *head, val page, val position);

/* The token some positions after another of its page (native: of its block): `bytes` (i64) is positions (i32) times head->step
** (native: anything). */
struct slot_token slot_later(struct kb *k, const struct slot_token *token, val positions, val bytes);
val slot_steps(struct kb *k, const struct slot_head *head, val positions); /* that product */

/* side: &slot->key or &slot->value */
val slot_codes(struct kb *k, const struct slot_token *token, const struct side *side);
val slot_scales(struct kb *k, const struct slot_token *token, const struct side *side); /* block_float */
val slot_field(struct kb *k, const struct slot_token *token, const struct side *side, int i);
int slot_field_align(const struct slot_head *head, const struct side *side, int i); /* 1 or 2 */

/* Field i as f32, made finite: NaN is read as 0, an infinity as +-65504. */
val slot_read_field(struct kb *k, const struct slot_token *token, const struct side *side, int i);
/* The same for 16 bits that the caller has loaded himself. */
val slot_finite_field(struct kb *k, val bits_i16);
/* x (f32, at most 65504 in magnitude) rounded to fp16 and stored as field i. */
void slot_write_field(struct kb *k, const struct slot_token *token, const struct side *side, int i, val x);

#endif
