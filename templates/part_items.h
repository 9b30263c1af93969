/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_items.h - which slots a copy or a conversion moves: items are slots, or the positions of pages.
*/
#ifndef KVKILN_PART_ITEMS_H
#define KVKILN_PART_ITEMS_H

#include "part_slot.h"

struct items {
    val pages, entry, position; /* i1; i64 index into the arrays; i64 in the page, if `pages` */
};

struct items items_find(struct kb *k, val row);
/* Number of the item's slot (i64) in the pool of parameter `capacity`; an item outside the pool leaves the kernel. */
val items_slot(struct kb *k, const struct items *it, const char *array, const char *capacity);
/* The token in that slot. */
struct slot_token items_token(struct kb *k, const struct slot_head *head, val slot);

/* Parameters of the pool that is read. */
extern const struct slot_pool items_source;

#endif
