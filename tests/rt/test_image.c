/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_image.c - the parameters of a decode that takes images of pages: copied as they say, pages give
** every token, head and field at its place. What kernels do with them is in templates/part_image.c.
*/
#include "rt.h"

#include "../../runtime/launch.h"

#include <stdlib.h>
#include <string.h>

enum { TOKENS = 16, GROUP = 4, BLOCK = 16 };

struct pool {
    int heads, record, fields, soa; /* of the whole page; soa: fields behind all records */
    int gap;                        /* aos: bytes between tokens that are no slot's */
};

static kvk_kernels kernels(struct kernel *kernel, const struct pool *p, int most, int padding)
{
    kvk_kernels k = {.shape = {.kv_heads = p->heads, .page_tokens = TOKENS}};
    *kernel = (struct kernel){
        .image_heads = most, .image_padding = padding, .image_group = 4, .tile_tokens = 16 * most};
    k.kernel[KIND_DECODE] = kernel;
    k.pages = (struct page_facts){.soa = p->soa,
                                  .record_bytes = p->record,
                                  .slot_bytes = p->record + (p->soa ? 2 * p->fields : 0),
                                  .fields = p->fields};
    return k;
}

static unsigned char byte_at(size_t i) { return (unsigned char)(i * 2654435761u >> 13); }

/* What a kernel copies for the heads from `first` on. */
static void copy(const struct pool *p, const struct launch_image *image, const unsigned char *page,
                 int first, int position, unsigned char *out)
{
    int fields = p->soa ? image->heads * 2 * TOKENS * p->fields : 0, each = image->tokens;
    int group = (image->bytes - fields) / GROUP, last = TOKENS - each;
    for (int t = 0; t < TOKENS; t += each) {
        int bytes = each * image->pitch + (t == last && each > 1 ? fields : 0);
        memcpy(out + t / GROUP * group + t % GROUP * image->pitch,
               page + first * p->record + t * position, (size_t)bytes);
    }
    if (each == 1)
        memcpy(out + 3 * group + 4 * image->pitch,
               page + TOKENS * position + first * 2 * TOKENS * p->fields, (size_t)fields);
}

static void compare(const struct pool *p, const struct launch_image *image,
                    const unsigned char *page, int first, int position, const unsigned char *out)
{
    int fields = p->soa ? image->heads * 2 * TOKENS * p->fields : 0;
    int group = (image->bytes - fields) / GROUP;
    for (int t = 0; t < TOKENS; t++)
        assert_memory_equal(out + t / GROUP * group + t % GROUP * image->pitch,
                            page + first * p->record + t * position,
                            (size_t)(image->heads * p->record));
    assert_memory_equal(out + 3 * group + 4 * image->pitch,
                        page + TOKENS * position + first * 2 * TOKENS * p->fields, (size_t)fields);
}

/* Tokens a copy that launch_image chose, every byte of every block of heads compared. */
static int copied(const struct pool *p, int most, int padding)
{
    struct kernel kernel;
    kvk_kernels k = kernels(&kernel, p, most, padding);
    int position = p->heads * p->record + p->gap;
    int bytes = TOKENS * position + (p->soa ? p->heads * 2 * TOKENS * p->fields : 0);
    int room = (bytes + BLOCK - 1) / BLOCK * BLOCK;
    unsigned char *page = aligned_alloc(BLOCK, (size_t)room), *out = malloc((size_t)room + 1024);
    assert_true(page && out);
    for (int i = 0; i < bytes; i++)
        page[i] = byte_at((size_t)i);
    const struct kvk_pool pool = {.data = page};
    const struct launch_pool strides = {.page = room, .position = position, .head = p->record};
    const struct launch_image image = launch_image(&k, &pool, &strides, launch_image_heads(&k));
    assert_int_equal(p->heads % image.heads, 0);
    for (int first = 0; image.tokens && first < p->heads; first += image.heads) {
        copy(p, &image, page, first, position, out);
        compare(p, &image, page, first, position, out);
    }
    free(page);
    free(out);
    return image.tokens;
}

static void copies_put_everything_in_its_place(void **state)
{
    (void)state;
    static const struct {
        struct pool pool;
        int most, padding, tokens;
    } cases[] = {
        {{8, 128, 3, 1, 0}, 8, 32, 4}, /* all heads, padded */
        {{8, 192, 2, 1, 0}, 8, 0, 16}, /* all heads, one copy */
        {{1, 384, 2, 1, 0}, 8, 0, 16},
        {{2, 128, 3, 1, 0}, 8, 32, 16},
        {{3, 128, 3, 1, 0}, 8, 32, 1},  /* one of three */
        {{16, 128, 3, 1, 0}, 8, 32, 1}, /* eight of sixteen */
        {{12, 96, 3, 1, 0}, 8, 32, 1},
        {{8, 134, 0, 0, 0}, 8, 0, 16},
        {{1, 134, 0, 0, 0}, 8, 0, 16},
        {{16, 134, 0, 0, 0}, 8, 0, 1},
        {{8, 136, 0, 0, 0}, 8, 16, 4}, /* every fourth row begins in the same bank */
        {{8, 132, 0, 0, 0}, 8, 16, 4},
        {{8, 134, 0, 0, 0}, 8, 16, 16},
        {{4, 136, 0, 0, 0}, 8, 16, 16},
        {{3, 134, 0, 0, 0}, 8, 0, 0},  /* a slot of 134 bytes is no bulk copy */
        {{8, 196, 0, 0, 16}, 8, 0, 1}, /* a pool with gaps */
        {{8, 196, 0, 0, 4}, 8, 0, 0},
        {{5, 128, 3, 1, 0}, 4, 32, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (copied(&cases[i].pool, cases[i].most, cases[i].padding) != cases[i].tokens)
            fail_msg("case %zu: not %d tokens a copy", i, cases[i].tokens);
}

static void kernels_without_images_get_none(void **state)
{
    (void)state;
    const struct pool p = {8, 128, 3, 1, 0};
    struct kernel kernel;
    kvk_kernels k = kernels(&kernel, &p, 0, 0);
    const struct kvk_pool pool = {0};
    const struct launch_pool strides = {0};
    const struct launch_image image = launch_image(&k, &pool, &strides, launch_image_heads(&k));
    assert_int_equal(image.heads, 1);
    assert_int_equal(image.tokens, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_put_everything_in_its_place),
        cmocka_unit_test(kernels_without_images_get_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
