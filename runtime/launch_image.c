/* SPDX-License-Identifier: Apache-2.0 */
/*
** launch_image.c - how a decode takes images of pages: KV heads a CTA, and in how many copies a page comes.
*/
#include "launch.h"

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

enum { BANKS_BYTES = 128, ROW_BYTES = 128 };

/* Rows of a page of these heads: [part of ROW_BYTES][token], as templates/part_image_pairs.c reads them. A part
** begins ROW_BYTES after the one before, from any byte of a token on: the last may reach behind these heads. */
static int turned(const kvk_kernels *k, const struct kvk_pool *pool, const struct launch_pool *s,
                  int32_t heads, void *map)
{
    int64_t all = k->shape.kv_heads * k->pages.record_bytes;
    uint32_t tokens = (uint32_t)k->shape.page_tokens;
    uint32_t parts = (uint32_t)((heads * k->pages.record_bytes + ROW_BYTES - 1) / ROW_BYTES);
    const struct driver_tensor t = {
        .data = pool->data,
        .size = {(uint64_t)all, tokens, parts,
                 (uint64_t)(pool->pages > 0 ? pool->pages : INT32_MAX)},
        .stride = {(uint64_t)s->position, ROW_BYTES, (uint64_t)s->page},
        .box = {ROW_BYTES, tokens, parts, 1},
    };
    const struct driver *driver = k->ctx->driver;
    return driver->tensor_map && driver->tensor_map(k->ctx->device, &t, map);
}

const void *launch_image_map(const kvk_kernels *k, const struct kvk_pool *pool,
                             const struct launch_pool *s, struct launch_image *image,
                             struct launch_map *map)
{
    if (!k->kernel[KIND_DECODE]->turned)
        return NULL;
    if (image->tokens && !turned(k, pool, s, image->heads, map->bytes))
        image->tokens = 0;
    return map->bytes;
}

/* Bytes after every group of rows of an image that keep reads of some tokens' same bytes in different
** banks of shared memory, where rows (aos: groups) by themselves begin in the same bank
** (part_image.c, part_powers.c). There is room for that where a CTA takes all the heads it can. */
static int64_t padding_of(const kvk_kernels *k, int64_t heads, int64_t row)
{
    const struct kernel *kernel = k->kernel[KIND_DECODE];
    int64_t apart = k->pages.soa ? row : kernel->image_group * row;
    return apart % BANKS_BYTES == 0 && heads == kernel->image_heads ? kernel->image_padding : 0;
}

/* Tokens a copy. All: pages hold nothing but these heads, as images do; image_group: they do but for
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
        return padding ? (int32_t)k->kernel[KIND_DECODE]->image_group : (int32_t)tokens;
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
    int64_t group = k->kernel[KIND_DECODE]->image_group;
    image.pitch = (int32_t)row;
    image.bytes = (int32_t)(tokens / group * (group * row + padding) + fields);
    image.tokens = tokens_of(k, pool, s, image.heads, padding);
    if (k->kernel[KIND_DECODE]->turned) {
        int possible = suits((int64_t)(uintptr_t)pool->data) && suits(s->page);
        image.tokens = possible ? k->shape.page_tokens : 0;
    }
    return image;
}
