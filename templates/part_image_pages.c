/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_image_pages.c - page numbers of a step, and where pages and an image's tokens lie.
*/
#include "part_image_pages.h"

enum { TOKENS = 16 };

val image_place(struct kb *k, const struct image *im, val token)
{
    int tokens = kb_plan(k)->image_group;
    val group = kb_divi(K, token, tokens), rest = kb_andi(K, token, tokens - 1);
    val first = kb_mul(K, group, im->group_pitch);
    return kb_add(K, first, kb_mul(K, rest, im->pitch));
}

/* Pages of 16n tokens are n images, one after the other (native). */
static bool several(const struct attend *a) { return a->plan->geo.page_tokens > TOKENS; }

void image_pages(struct kb *k, const struct attend *a, val start, val *pages)
{
    int tokens = a->plan->geo.page_tokens;
    val last = kb_andi(K, kb_addi(K, a->length, -1), -TOKENS);
    for (int u = 0; u < a->plan->subtiles; u++) {
        val begin = kb_smin(K, kb_addi(K, start, (long long)TOKENS * u), last);
        val index = kb_divi(K, begin, tokens);
        pages[u] = attend_page(K, a, index);
        if (!several(a))
            continue;
        val within = kb_sub(K, begin, kb_muli(K, index, tokens));
        val before = kb_zext(K, kb_divi(K, within, TOKENS), KB_I64);
        val page = kb_mul(K, kb_zext(K, pages[u], KB_I64), a->head.page_stride);
        pages[u] = kb_add(K, page, kb_mul(K, before, a->head.step));
    }
}

val image_page_begin(struct kb *k, const struct attend *a, val page)
{
    val bytes = several(a) ? page : kb_mul(K, kb_zext(K, page, KB_I64), a->head.page_stride);
    return kb_offset(K, a->head.cache, bytes);
}
