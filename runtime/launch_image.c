/* SPDX-License-Identifier: Apache-2.0 */
/*
** launch_image.c - how a decode takes images of pages: KV heads a CTA, and in how many copies a page comes.
*/
#include "launch.h"

#include "abi.h"

enum { BULK_BYTES = 16 }; /* what addresses and sizes of bulk copies are multiples of */

int32_t launch_image_heads(const kvk_kernels *k)
{
    const struct kernel *kernel = k->kernel[KIND_DECODE];
    int64_t heads = 1;
    while (heads * 2 <= kernel->image_heads && k->shape.kv_heads % (heads * 2) == 0)
        heads *= 2;
    return kernel->image_heads ? (int32_t)heads : 1;
}

static int suits(int64_t x) { return x % BULK_BYTES == 0; }

enum { GROUP_TOKENS = 4, BANKS_BYTES = 128 };

/* Bytes after every four rows of an image that keep reads of some tokens' same bytes in different
** banks of shared memory, where rows (aos: every fourth) by themselves begin in the same bank
** (part_image.c, part_powers.c). There is room for that where a CTA takes all the heads it can. */
static int64_t padding_of(const kvk_kernels *k, int64_t heads, int64_t row)
{
    const struct kernel *kernel = k->kernel[KIND_DECODE];
    int64_t apart = k->pages.soa ? row : GROUP_TOKENS * row;
    return apart % BANKS_BYTES == 0 && heads == kernel->image_heads ? kernel->image_padding : 0;
}

/* Tokens a copy. All: pages hold nothing but these heads, as images do; 4: they do but for
** padding; 1: other heads lie between; 0: no bulk copy is possible. */
static int32_t tokens_of(const kvk_kernels *k, const struct kvk_pool *pool,
                         const struct launch_pool *s, int64_t heads, int64_t padding)
{
    const struct page_facts *p = &k->pages;
    int64_t tokens = k->shape.page_tokens, record = p->soa ? p->record_bytes : p->slot_bytes;
    int dense = s->head == record && (p->soa || s->position == k->shape.kv_heads * record);
    if (s->head != record || !suits((int64_t)(uintptr_t)pool->data) || !suits(s->page) ||
        !suits(heads * tokens * p->slot_bytes))
        return 0;
    if (dense && heads == k->shape.kv_heads)
        return padding ? GROUP_TOKENS : (int32_t)tokens;
    int apart = suits(heads * record) && suits(s->position) &&
                (!p->soa || suits(heads * 2 * tokens * p->fields));
    return apart ? 1 : 0;
}

/* Blocks of these heads lie together, and as they are read. */
static struct launch_image image_native(const kvk_kernels *k, const struct kvk_pool *pool,
                                        const struct launch_pool *s, int32_t heads)
{
    int64_t bytes = heads * (int64_t)k->pages.record_bytes;
    int possible = suits((int64_t)(uintptr_t)pool->data) && suits(s->page) && suits(bytes);
    struct launch_image image = {.heads = heads, .bytes = (int32_t)bytes};
    image.tokens = possible ? k->shape.page_tokens : 0;
    return image;
}

struct launch_image launch_image(const kvk_kernels *k, const struct kvk_pool *pool,
                                 const struct launch_pool *s, int32_t heads)
{
    const struct page_facts *p = &k->pages;
    struct launch_image image = {.heads = heads};
    if (!k->kernel[KIND_DECODE]->image_heads)
        return image;
    if (p->native)
        return image_native(k, pool, s, image.heads);
    int64_t tokens = k->shape.page_tokens,
            row = image.heads * (p->soa ? p->record_bytes : p->slot_bytes);
    int64_t padding = padding_of(k, image.heads, row),
            fields = p->soa ? image.heads * 2 * tokens * p->fields : 0;
    image.pitch = (int32_t)row;
    image.bytes = (int32_t)(tokens / GROUP_TOKENS * (GROUP_TOKENS * row + padding) + fields);
    image.tokens = tokens_of(k, pool, s, image.heads, padding);
    return image;
}
