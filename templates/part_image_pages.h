/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_image_pages.h - where the pages of a step are in the pool, and where a token of a page is in its image.
*/
#ifndef KVKILN_PART_IMAGE_PAGES_H
#define KVKILN_PART_IMAGE_PAGES_H

#include "part_image.h"

/* Bytes to a token of an image. */
val image_place(struct kb *k, const struct image *im, val token);
/* Page numbers of the step that begins at token `start`, one a subtile, or, where pages are several images, bytes to these in the
** pool; past the sequence's end its last page again. */
void image_pages(struct kb *k, const struct attend *a, val start, val *pages);
/* Where a page of image_pages begins. */
val image_page_begin(struct kb *k, const struct attend *a, val page);

#endif
