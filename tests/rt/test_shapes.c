/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_shapes.c - numbers of heads, lengths, strides and addresses are no part of a kernel: a thousand random ones
** compile nothing, write nothing into the cache, and make nothing on the device.
*/
#include "rt.h"

#include <stdint.h>
#include <stdlib.h>

enum { SHAPES = 1000, GQA = 4 };

static uint64_t seed = 88172645463325252u;

static int64_t draw(int64_t low, int64_t high)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return low + (int64_t)(seed % (uint64_t)(high - low + 1));
}

static void *address(void) { return (void *)(uintptr_t)(draw(1, 1 << 20) << 20); }

static struct kvk_rows rows(int heads)
{
    struct kvk_rows r = {.data = address()};
    if (draw(0, 1)) {
        r.head_stride = 128 + 8 * draw(0, 8);
        r.row_stride = heads * r.head_stride + 8 * draw(0, 99);
    }
    return r;
}

static struct kvk_pool pool(int kv_heads)
{
    struct kvk_pool p = {.data = address(), .pages = draw(1, 1 << 22)};
    if (draw(0, 1))
        p.page_stride = INT64_C(16) * 196 * kv_heads + 16 * draw(0, 1 << 10);
    return p;
}

static void attend(const kvk_kernels *k, int kv_heads, kvk_error *err)
{
    struct kvk_limits limits = KVK_INIT(struct kvk_limits);
    struct kvk_decode_args d = KVK_INIT(struct kvk_decode_args);
    struct kvk_unified_args u = KVK_INIT(struct kvk_unified_args);
    d.sequences = limits.sequences = draw(1, 300);
    d.query_tokens = limits.query_tokens = draw(1, 16);
    d.max_context = limits.context = draw(1, 1 << 20);
    d.pool = pool(kv_heads);
    d.query = rows(GQA * kv_heads), d.out = rows(GQA * kv_heads);
    d.block_table = address(), d.lengths = address(), d.workspace = address();
    d.table_stride = draw(d.max_context / 16 + 1, 1 << 20);
    d.window = (int32_t)draw(0, 1) * (int32_t)draw(1, 1 << 16);
    d.scale = (float)draw(0, 3);
    d.workspace_bytes = kvk_workspace_bytes(k, &limits);
    if (kvk_decode(k, &d, NULL, err))
        fail_msg("decode: %s", err->text);
    u.pool = d.pool, u.query = d.query, u.out = d.out, u.scale = d.scale, u.window = d.window;
    u.block_table = d.block_table, u.lengths = d.lengths, u.table_stride = d.table_stride;
    u.query_start = address();
    u.sequences = d.sequences;
    u.tokens = draw(1, 1 << 17);
    if (kvk_unified(k, &u, NULL, err))
        fail_msg("unified: %s", err->text);
}

static void move(const kvk_kernels *k, int kv_heads, kvk_error *err)
{
    struct kvk_store_args s = KVK_INIT(struct kvk_store_args);
    struct kvk_dequant_args q = KVK_INIT(struct kvk_dequant_args);
    s.pool = q.pool = pool(kv_heads);
    s.key = rows(kv_heads), s.value = rows(kv_heads);
    s.slots = address();
    s.slot_type = draw(0, 1) ? KVK_INT64 : KVK_INT32;
    s.rows = draw(1, 1 << 20);
    if (kvk_store(k, &s, NULL, err))
        fail_msg("store: %s", err->text);
    q.key = rows(kv_heads), q.value = rows(kv_heads);
    q.block_table = address(), q.out_start = address();
    q.table_stride = draw(1, 1 << 16);
    q.sequences = draw(1, 300);
    q.rows = draw(1, 1 << 20);
    if (kvk_dequant(k, &q, NULL, err))
        fail_msg("dequant: %s", err->text);
}

static void a_thousand_shapes_compile_nothing(void **state)
{
    struct kvk_model model = rt_model();
    struct fake *fake = rt_fake("libcuda.so.1");
    const kvk_kernels *k;
    kvk_error err = {0};
    char *dir = rt_folder();

    (void)state;
    rt_generator_reset();
    kvk_context *ctx = rt_open(dir);
    assert_int_equal(kvk_prepare(ctx, &model, &k, &err), KVK_OK);
    int compiles = rt_generator.compiles, files = rt_count(dir, NULL);
    long live = fake->live;
    assert_int_equal(compiles, KIND_SERVING);
    assert_int_equal(files, KIND_SERVING);
    for (int i = 0; i < SHAPES; i++) {
        model.kv_heads = (int)draw(1, 64);
        model.query_heads = GQA * model.kv_heads;
        if (kvk_prepare(ctx, &model, &k, &err))
            fail_msg("%d heads: %s", model.kv_heads, err.text);
        attend(k, model.kv_heads, &err);
        move(k, model.kv_heads, &err);
    }
    assert_true(fake->launches > 4 * SHAPES);
    assert_int_equal(rt_generator.compiles, compiles);
    assert_int_equal(rt_count(dir, NULL), files);
    assert_int_equal(fake->live, live);
    kvk_close(ctx);
    rt_remove(dir);
}

int main(int argc, char **argv)
{
    (void)argc;
    rt_with_fakes(argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_thousand_shapes_compile_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
