/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_eights.h - one side of a slot, decoded by the lanes that share its vector (rowvec_share): eight codes at a time.
**
** Two steps, so that the loads of many vectors are under way before the first is decoded.
*/
#ifndef KVKILN_PART_EIGHTS_H
#define KVKILN_PART_EIGHTS_H

#include "part_rowvec.h"
#include "part_slot.h"

enum { EIGHTS_MAX = ROWVEC_MAX / 8 };

/* What a lane has loaded. */
struct eights {
    val word[EIGHTS_MAX][4]; /* codes, lowest first */
    val scale[EIGHTS_MAX];   /* block_float: i32 byte */
    val field[2];            /* f32, finite */
};

/* v has been shared; cached tokens do not change while a kernel runs. */
void eights_load(struct kb *k, const struct slot_token *token, const struct side *side, const struct rowvec *v,
                 struct eights *codes);
/* Fills v->x; a rotated side comes out in the rotated basis. `table`: a codebook's, as codebook_lanes has it, or NULL. */
void eights_decode(struct kb *k, const struct slot_token *token, const struct side *side, const struct eights *codes,
                   val table, struct rowvec *v);

#endif
