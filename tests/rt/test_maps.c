/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_maps.c - decodes whose pages come by tensor copies: the map that they are given, and launches without one.
** What such a box holds is in templates/part_image_pairs.h.
*/
#include "rt.h"

#include "../../runtime/abi.h"
#include "faults.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 16, U8 = 0, SWIZZLE_128 = 3, PROMOTE_128 = 2, POOL = 0x10000 };

static struct fake *fake;

static int setup(void **state)
{
    (void)state;
    rt_generator_reset();
    faults.missing = NULL;
    fake = rt_fake("libcuda.so.1");
    return 0;
}

/* Opens cuda:0; kernels of soa pages: records of 1.5 head_size bytes, two fields. */
static kvk_context *open_kernels(int heads, int head_size, const char *manifest, int overlap,
                                 const kvk_kernels **kernels)
{
    struct kvk_options options = KVK_INIT(struct kvk_options);
    struct kvk_model model = rt_model();
    kvk_context *ctx;
    kvk_error err = {0};
    options.device = "cuda:0";
    options.cache_dir = "";
    options.overlap_launches = overlap;
    assert_int_equal(kvk_open(&options, &ctx, &err), KVK_OK);
    model.layout = "soa";
    model.kv_heads = heads;
    model.query_heads = 4 * heads;
    model.head_size = head_size;
    rt_generator.extra = manifest;
    if (kvk_prepare(ctx, &model, kernels, &err))
        fail_msg("%s: %s", err.where, err.text);
    rt_generator.extra = NULL;
    return ctx;
}

/* The last decode; behind it comes, of several splits, the reduction. */
static const struct fake_launch *last(void)
{
    const struct fake_launch *l = NULL;
    for (int i = 1; i <= fake->launches && i <= 2; i++) {
        l = &fake->launch[(fake->launches - i) % FAKE_LAUNCHES];
        if (strcmp(l->function, "k_decode") == 0)
            return l;
        assert_false(l->listed);
    }
    fail_msg("no decode");
    return l;
}

static struct abi_decode parameters(void)
{
    struct abi_decode p;
    assert_int_equal(last()->bytes, sizeof p);
    memcpy(&p, last()->params, sizeof p);
    return p;
}

/* One launch, which is given a map at its place; the fields of image_* as they should be. */
static void decode_listed(const kvk_kernels *k, const struct kvk_decode_args *a, kvk_stream stream,
                          int shift, int tokens)
{
    assert_int_equal(kvk_decode(k, a, stream, NULL), KVK_OK);
    assert_true(last()->listed);
    assert_int_equal(last()->map_at % 64, 0);
    const struct abi_decode p = parameters();
    assert_int_equal(p.cache, POOL);
    assert_int_equal(p.image_shift, shift);
    assert_int_equal(p.image_tokens, tokens);
}

/* The map of the launch is the one that the driver filled last. */
static void check_filled(void)
{
    for (int i = 0; i < FAKE_MAP_BYTES; i++)
        assert_int_equal(last()->map[i], fake->maps);
}

#define HEADS(n) RT_IMAGES(n, "0") "\nturned 1"

struct map_case {
    int heads, head_size;
    const char *manifest;
    int64_t pages, page_stride; /* 0: unlimited, dense */
    int shift;
    uint64_t size[4], stride[3];
    uint32_t parts; /* of 128 bytes, in the box */
};

/* Records of head size 64 are 96 bytes, of 128 192. */
static const struct map_case map_cases[] = {
    {8, 128, HEADS("8"), 10, 0, 3, {1536, 16, 12, 10}, {1536, 128, 25088}, 12},
    {1, 128, HEADS("8"), 10, 0, 0, {192, 16, 2, 10}, {192, 128, 3136}, 2},
    {1, 64, HEADS("8"), 10, 0, 0, {96, 16, 1, 10}, {96, 128, 1600}, 1},
    {3, 128, HEADS("8"), 7, 0, 0, {576, 16, 2, 7}, {576, 128, 9408}, 2},
    {8, 128, HEADS("4"), 10, 0, 2, {1536, 16, 6, 10}, {1536, 128, 25088}, 6},
    {12, 64, HEADS("8"), 10, 0, 2, {1152, 16, 3, 10}, {1152, 128, 19200}, 3},
    {8, 128, HEADS("8"), 0, 0, 3, {1536, 16, 12, INT32_MAX}, {1536, 128, 25088}, 12},
    {8, 128, HEADS("8"), 10, 29184, 3, {1536, 16, 12, 10}, {1536, 128, 29184}, 12},
};

static void maps_are_of_the_pool(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof map_cases / sizeof *map_cases; i++) {
        const struct map_case *c = &map_cases[i];
        const struct fake_map *m = &fake->map;
        const kvk_kernels *k;
        kvk_context *ctx = open_kernels(c->heads, c->head_size, c->manifest, 0, &k);
        struct kvk_decode_args a = rt_decode_args();
        a.pool.pages = c->pages;
        a.pool.page_stride = c->page_stride;
        fake->maps = 0;
        decode_listed(k, &a, NULL, c->shift, TOKENS);
        assert_int_equal(fake->maps, 1);
        check_filled();
        assert_int_equal(m->type, U8);
        assert_int_equal(m->rank, 4);
        assert_ptr_equal(m->data, a.pool.data);
        assert_memory_equal(m->size, c->size, sizeof c->size);
        assert_memory_equal(m->stride, c->stride, sizeof c->stride);
        assert_memory_equal(m->box, ((const uint32_t[]){128, TOKENS, c->parts, 1}), 16);
        assert_memory_equal(m->step, ((const uint32_t[]){1, 1, 1, 1}), 16);
        assert_int_equal(m->interleave, 0);
        assert_int_equal(m->swizzle, SWIZZLE_128);
        assert_int_equal(m->promotion, PROMOTE_128);
        assert_int_equal(m->fill, 0);
        assert_int_equal(fake->unentered, 0);
        kvk_close(ctx);
    }
}

/* Of a call whose every argument differs: a list tells the kernel what the buffer tells one without a map. */
static void lists_are_in_the_order_of_buffers(void **state)
{
    (void)state;
    static const char *const manifests[] = {HEADS("8"), RT_IMAGES("8", "0")};
    struct abi_decode p[2];
    for (int i = 0; i < 2; i++) {
        const kvk_kernels *k;
        kvk_context *ctx = open_kernels(8, 128, manifests[i], 0, &k);
        struct kvk_decode_args a = rt_decode_args();
        a.table_type = KVK_INT64;
        a.lse = rt_at(96);
        a.sinks = rt_at(128);
        a.query.row_stride = 8192;
        a.query.head_stride = 136;
        a.out.row_stride = 8200;
        a.out.head_stride = 144;
        a.window = 77;
        a.full = 1;
        a.scale = 0.25f;
        assert_int_equal(kvk_decode(k, &a, NULL, NULL), KVK_OK);
        assert_int_equal(last()->listed, !i);
        assert_int_equal(last()->threads, 128);
        assert_int_equal(last()->shared, 2048);
        p[i] = parameters();
        kvk_close(ctx);
    }
    assert_int_equal(fake->maps, 1);
    assert_int_equal(p[0].window, 77);
    assert_memory_equal(&p[0], &p[1], sizeof p[0]);
}

/* A kernel's other launches, and kernels without maps, are as ever. */
static void other_launches_are_buffers(void **state)
{
    (void)state;
    static const char *const manifests[] = {NULL, RT_IMAGES("8", "0") "\nturned 0",
                                            RT_IMAGES("8", "32")};
    const kvk_kernels *k;
    kvk_context *ctx;
    for (size_t i = 0; i < sizeof manifests / sizeof *manifests; i++) {
        struct kvk_decode_args a = rt_decode_args();
        ctx = open_kernels(8, 128, manifests[i], 0, &k);
        assert_int_equal(kvk_decode(k, &a, NULL, NULL), KVK_OK);
        assert_false(last()->listed);
        assert_int_equal(!!parameters().image_tokens, i > 0);
        kvk_close(ctx);
    }
    ctx = open_kernels(8, 128, HEADS("8"), 0, &k);
    fake->launches = 0;
    assert_int_equal(rt_launch_all(ctx, k, NULL), KVK_OK);
    assert_true(fake->launches <= FAKE_LAUNCHES);
    int listed = 0;
    for (int i = 0; i < fake->launches; i++) {
        int decode = strcmp(fake->launch[i].function, "k_decode") == 0;
        listed += decode;
        assert_int_equal(fake->launch[i].listed, decode);
    }
    assert_int_equal(listed, 1);
    kvk_close(ctx);
}

/* The kernel then copies by itself. It has a parameter for the map all the same. */
static void without_a_map_nothing_is_copied(void **state)
{
    (void)state;
    const kvk_kernels *k;
    struct kvk_decode_args a = rt_decode_args();
    kvk_context *ctx = open_kernels(8, 128, HEADS("8"), 0, &k);
    fake->refuse_map = 1;
    decode_listed(k, &a, NULL, 3, 0);
    assert_int_equal(fake->maps, 1);
    fake->refuse_map = 0;
    decode_listed(k, &a, NULL, 3, TOKENS);
    a.pool.pages = ((int64_t)1 << 32) + 1; /* more than a map has room for */
    decode_listed(k, &a, NULL, 3, 0);
    fake->maps = 0;
    a = rt_decode_args();
    a.pool.page_stride = 25088 + 4; /* nor are the driver's own copies possible */
    decode_listed(k, &a, NULL, 3, 0);
    assert_int_equal(fake->maps, 0);
    a.pool.page_stride = 25088 + 16;
    decode_listed(k, &a, NULL, 3, TOKENS);
    kvk_close(ctx);
}

static void old_drivers_make_no_map(void **state)
{
    (void)state;
    const kvk_kernels *k;
    const struct kvk_decode_args a = rt_decode_args();
    faults.missing = "cuTensorMapEncodeTiled";
    kvk_context *ctx = open_kernels(8, 128, HEADS("8"), 0, &k);
    decode_listed(k, &a, NULL, 3, 0);
    assert_int_equal(fake->maps, 0);
    kvk_close(ctx);
    faults.missing = NULL;
}

static void overlapping_launches_are_given_maps(void **state)
{
    (void)state;
    static char stream;
    const kvk_kernels *k;
    const struct kvk_decode_args a = rt_decode_args();
    kvk_context *ctx = open_kernels(8, 128, HEADS("8") "\ngrid_wait 1", 1, &k);
    decode_listed(k, &a, &stream, 3, TOKENS);
    assert_int_equal(last()->overlaps, 1);
    check_filled();
    decode_listed(k, &a, NULL, 3, TOKENS);
    assert_int_equal(last()->overlaps, 0);
    check_filled();
    kvk_close(ctx);
}

/* As in test_joins.c: two splits of a row on the average; the heads of a CTA are then half as many. */
static void pairs_are_given_maps(void **state)
{
    (void)state;
    const kvk_kernels *k;
    struct kvk_decode_args a = rt_decode_args();
    struct kvk_limits limits = KVK_INIT(struct kvk_limits);
    kvk_context *ctx = open_kernels(2, 128, HEADS("1") "\nneighbours 2", 0, &k);
    a.sequences = limits.sequences = 132;
    a.max_context = 1 << 20;
    a.workspace_bytes = kvk_workspace_bytes(k, &limits);
    decode_listed(k, &a, NULL, 0, TOKENS);
    assert_int_equal(last()->cluster, 2);
    assert_int_equal(parameters().cluster_log, 1);
    assert_int_equal(fake->map.box[2], 2);
    check_filled();
    kvk_close(ctx);
}

int main(int argc, char **argv)
{
    (void)argc;
    rt_with_fakes(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(maps_are_of_the_pool, setup),
        cmocka_unit_test_setup(lists_are_in_the_order_of_buffers, setup),
        cmocka_unit_test_setup(other_launches_are_buffers, setup),
        cmocka_unit_test_setup(without_a_map_nothing_is_copied, setup),
        cmocka_unit_test_setup(old_drivers_make_no_map, setup),
        cmocka_unit_test_setup(overlapping_launches_are_given_maps, setup),
        cmocka_unit_test_setup(pairs_are_given_maps, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
