/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_spread.h - splits in proportion to what there is to read, found by every CTA from the lengths on the device.
**
** A launch has `spread` slots for its sequences, more than sequences. A sequence takes one slot, or as many as it has parts of
** at most L steps, where L is the least number for which the slots suffice, not below `least`. So no CTA works much longer than
** if all sequences were of one length.
*/
#ifndef KVKILN_PART_SPREAD_H
#define KVKILN_PART_SPREAD_H

#include "../gen/kb.h"

/* Steps of a decode's CTA: `stride` tokens, a power of two. i32 */
struct spread {
    val tokens;         /* query tokens a sequence */
    val stride, stride_log;
};

/* What a slot does. i32, equal in the CTA */
struct share {
    val sequence, split;
    val count;          /* splits of the sequence */
    val length;         /* its cached tokens */
    val place;          /* of its first split among those of all sequences that have more than one */
};

/* First token that any query row of a sequence sees, rounded down to whole steps; steps from there to its end. */
val spread_origin(struct kb *k, const struct spread *s, val length);
val spread_steps(struct kb *k, const struct spread *s, val length);
/* By all threads of the CTA, outside any branch; a CTA with nothing to do ends here. */
struct share spread_find(struct kb *k, const struct spread *s, val slot);

#endif
