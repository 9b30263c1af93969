/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_image_own.h - what the readers of an image copy by themselves: where a launch says that no bulk copy is possible
** (image_tokens 0: strided pools, rows of a CTA's heads that are no multiple of 16 bytes), and on targets without the engine.
*/
#ifndef KVKILN_PART_IMAGE_OWN_H
#define KVKILN_PART_IMAGE_OWN_H

#include "part_image.h"

/* By a warp: the pages of the step that begins at token `start`, of its own head alone, to the slot at `slot`; v: the warp's
** view of the image. */
void image_copy_own(struct kb *k, const struct attend *a, const struct attend *v, const struct image *im, val start, val slot);

#endif
