/* SPDX-License-Identifier: Apache-2.0 */
/* kvk_tiled: what it checks, what it launches in which order, its workspace, and a driver that fails at each step. */
#include "rt.h"

#include "../../runtime/abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { H = 8, D = 128, WORDS_BYTES = 288, ROOM = 4 << 20 };

static struct fake *fake;
static kvk_context *ctx;
static const kvk_kernels *kernels, *dense;
static char *workspace; /* the fake fills memory for real */
static float sinks[H], slopes[H], lse[64 * H];

/* Aligned addresses that nothing reads. */
static void *at(uintptr_t offset) { return (void *)(uintptr_t)(0x10000 + offset); }

static const kvk_kernels *prepare(const struct kvk_model *model)
{
    const kvk_kernels *set = NULL;
    kvk_error err = {0};
    if (kvk_prepare(ctx, model, &set, &err) != KVK_OK)
        fail_msg("%s", err.text);
    return set;
}

/* The fake generator's pages become those of a preset that is uncompressed. */
static const kvk_kernels *prepare_dense(struct kvk_model model, const char *spec)
{
    char signature[64];
    model.spec = spec;
    snprintf(signature, sizeof signature, "kvk1:aos:k=%s:v=%s:d128x128", spec, spec);
    rt_generator.signature = signature;
    const kvk_kernels *set = prepare(&model);
    rt_generator.signature = NULL;
    return set;
}

static struct kvk_model dense_model(void)
{
    struct kvk_model model = rt_model();
    model.kinds = KVK_UNIFIED;
    model.page_tokens = 32;
    return model;
}

static int setup(void **state)
{
    (void)state;
    struct kvk_model model = rt_model();
    rt_generator_reset();
    fake = rt_fake("libcuda.so.1");
    ctx = rt_open(NULL);
    kernels = prepare(&model);
    dense = prepare_dense(dense_model(), "bf16");
    workspace = aligned_alloc(256, ROOM);
    assert_non_null(workspace);
    memset(workspace, 0xFF, ROOM);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    kvk_close(ctx);
    free(workspace);
    return 0;
}

static struct kvk_tiled_args tiled_args(void)
{
    struct kvk_tiled_args a = KVK_INIT(struct kvk_tiled_args);
    a.dense = dense;
    a.pool = (struct kvk_pool){.data = at(0), .pages = 100};
    a.query.data = at(16);
    a.out.data = at(32);
    a.block_table = at(48);
    a.cached = 100;
    a.tokens = 20;
    a.tile_tokens = 64;
    a.workspace = workspace;
    a.workspace_bytes = ROOM;
    return a;
}

static const struct fake_launch *launch(int i)
{
    assert_true(fake->launches > i && fake->launches <= FAKE_LAUNCHES);
    return &fake->launch[i];
}

static const void *params(int i, const char *function)
{
    assert_string_equal(launch(i)->function, function);
    return launch(i)->params;
}

#define PARAMS(i, kind) ((const struct abi_##kind *)params(i, "k_" #kind))

static const int32_t *word(int i) { return (const int32_t *)(const void *)workspace + i; }

/* Tokens 0..63 are before the chunk, 64..119 hold its 20 rows. */
static void a_chunk_in_the_second_tile(void **state)
{
    (void)state;
    struct kvk_tiled_args a = tiled_args();
    fake->launches = 0;
    assert_int_equal(kvk_tiled(kernels, &a, at(1), NULL), KVK_OK);
    assert_int_equal(fake->launches, 5);
    assert_ptr_equal(launch(4)->stream, at(1));
    const struct abi_dequant *tile = PARAMS(0, dequant);
    const struct abi_unified *whole = PARAMS(1, unified), *inside = PARAMS(3, unified);
    const struct abi_merge *join = PARAMS(4, merge);
    assert_int_equal(tile->rows, 64);
    assert_int_equal(tile->rotate_back, 1);
    assert_int_equal(PARAMS(2, dequant)->rows, 56);
    assert_int_equal(whole->full, 1);
    assert_int_equal(whole->query, (uintptr_t)a.query.data);
    assert_int_equal(whole->out, (uintptr_t)a.out.data); /* the first tile needs no merge */
    assert_int_equal(whole->cache, inside->cache);
    assert_int_equal(whole->cache, tile->key);
    assert_int_equal(inside->full, 0);
    assert_int_equal(inside->query, (uintptr_t)a.query.data);
    assert_int_equal(join->a, (uintptr_t)a.out.data);
    assert_int_equal(join->a_lse, whole->lse);
    assert_int_equal(join->b, inside->out);
    assert_int_equal(join->b_lse, inside->lse);
    assert_int_equal(join->out, (uintptr_t)a.out.data);
    assert_int_equal(join->rows, 20);
    const int32_t want[] = {0, 56, 0, 20, 0, 0, 64, 0, 0, 1}; /* as the last tile left them */
    assert_memory_equal(word(0), want, sizeof want);
}

/* Tiles 0..31 and 32..51 of a chunk alone: rows of the first are finished by it. */
static void a_chunk_across_two_tiles(void **state)
{
    (void)state;
    struct kvk_tiled_args a = tiled_args();
    a.cached = 0;
    a.tokens = 52;
    a.tile_tokens = 32;
    a.lse = lse;
    fake->launches = 0;
    assert_int_equal(kvk_tiled(kernels, &a, NULL, NULL), KVK_OK);
    assert_int_equal(fake->launches, 6);
    const uintptr_t row = 32 * H * D * 2;
    assert_int_equal(PARAMS(1, unified)->full, 0);
    assert_int_equal(PARAMS(1, unified)->lse, (uintptr_t)lse);
    assert_int_equal(PARAMS(2, unified)->full, 1);
    assert_int_equal(PARAMS(2, unified)->query, (uintptr_t)a.query.data + row);
    assert_int_equal(PARAMS(2, unified)->out, (uintptr_t)a.out.data + row);
    assert_int_equal(PARAMS(2, unified)->lse, (uintptr_t)(lse + 32 * H));
    assert_int_equal(PARAMS(4, unified)->query, (uintptr_t)a.query.data + row);
    assert_int_equal(PARAMS(5, merge)->rows, 20);
    assert_int_equal(PARAMS(5, merge)->a, (uintptr_t)a.out.data + row);
    assert_int_equal(PARAMS(5, merge)->out_lse, (uintptr_t)(lse + 32 * H));
}

/* Of one tile: unified's own. Of several: a partial result of zeros, joined last. */
static void sinks_join_once(void **state)
{
    (void)state;
    struct kvk_tiled_args a = tiled_args();
    for (int h = 0; h < H; h++)
        sinks[h] = (float)h;
    a.sinks = sinks;
    a.lse = lse;
    a.tile_tokens = 0;
    fake->launches = 0;
    assert_int_equal(kvk_tiled(kernels, &a, NULL, NULL), KVK_OK);
    assert_int_equal(fake->launches, 2);
    assert_int_equal(PARAMS(1, unified)->sinks, (uintptr_t)sinks);
    a.tile_tokens = 64;
    fake->launches = 0;
    assert_int_equal(kvk_tiled(kernels, &a, NULL, NULL), KVK_OK);
    assert_int_equal(fake->launches, 6);
    assert_int_equal(PARAMS(1, unified)->sinks, 0);
    assert_int_equal(PARAMS(3, unified)->sinks, 0);
    const struct abi_merge *join = PARAMS(4, merge), *last = PARAMS(5, merge);
    assert_int_equal(join->out, last->a);
    assert_int_equal(join->out_type, 0);
    assert_int_equal(last->out, (uintptr_t)a.out.data);
    assert_int_equal(last->out_lse, 0);
    const char *zeros = (const char *)(uintptr_t)last->b;
    for (int row = 0; row < 20; row++)
        assert_memory_equal((const float *)(uintptr_t)last->b_lse + row * H, sinks, sizeof sinks);
    for (int i = 0; i < 20 * H * D * 2; i++)
        assert_int_equal(zeros[i], 0);
}

static void soft_cap_and_empty_chunks(void **state)
{
    (void)state;
    struct kvk_model model = dense_model();
    struct kvk_tiled_args a = tiled_args();
    model.options = KVK_SOFT_CAP;
    a.dense = prepare_dense(model, "bf16");
    a.soft_cap = 30;
    fake->launches = 0;
    assert_int_equal(kvk_tiled(kernels, &a, NULL, NULL), KVK_OK);
    assert_true(PARAMS(1, unified)->soft_cap == 30);
    a = tiled_args();
    a.tokens = 0;
    fake->launches = fake->calls = 0;
    assert_int_equal(kvk_tiled(kernels, &a, NULL, NULL), KVK_OK);
    assert_int_equal(fake->launches, 0);
}

/* Tokens 0..63 and 64..119, then with a window only 69..119: rows before a tile's end by as many
** tokens as lie after it. */
static void windows_and_slopes_count_over_the_whole_sequence(void **state)
{
    (void)state;
    struct kvk_model model = dense_model();
    struct kvk_tiled_args a = tiled_args();
    model.options = KVK_ALIBI;
    a.dense = prepare_dense(model, "bf16");
    a.alibi = slopes;
    a.window = 101; /* the first row just sees token 0 */
    fake->launches = 0;
    assert_int_equal(kvk_tiled(kernels, &a, NULL, NULL), KVK_OK);
    assert_int_equal(fake->launches, 5);
    const struct abi_unified *whole = PARAMS(1, unified), *inside = PARAMS(3, unified);
    assert_int_equal(whole->alibi, (uintptr_t)slopes);
    assert_int_equal(whole->window, 101);
    assert_int_equal(whole->ahead, 56);
    assert_int_equal(inside->alibi, (uintptr_t)slopes);
    assert_int_equal(inside->window, 101);
    assert_int_equal(inside->ahead, 0);
    a.window = 32;
    a.tile_tokens = 48;
    fake->launches = 0;
    assert_int_equal(kvk_tiled(kernels, &a, NULL, NULL), KVK_OK);
    assert_int_equal(fake->launches, 6); /* 17 rows in the first tile, 3 in the second */
    assert_int_equal(PARAMS(1, unified)->ahead, 0);
    assert_int_equal(PARAMS(2, unified)->ahead, 3);
    assert_int_equal(PARAMS(3, dequant)->rows, 3);
    assert_int_equal(word(0)[6], 69 + 48);
    assert_int_equal(PARAMS(5, merge)->rows, 3);
}

/* ---- refusals ---- */

static void bad(const kvk_kernels *k, const struct kvk_tiled_args *a, kvk_status status,
                const char *text)
{
    kvk_error err = {0};
    fake->launches = fake->calls = 0;
    kvk_status got = kvk_tiled(k, a, NULL, &err);
    if (got != status || !strstr(err.text, text))
        fail_msg("%s (\"%s\"), expected %s with \"%s\"", kvk_status_name(got), err.text,
                 kvk_status_name(status), text);
    assert_int_equal(fake->calls, 0); /* nothing was queued */
}

#define BAD(set, status, text)                                                                     \
    do {                                                                                           \
        struct kvk_tiled_args a = tiled_args();                                                    \
        (void)(set);                                                                               \
        bad(kernels, &a, status, text);                                                            \
    } while (0)

static void arguments_are_checked(void **state)
{
    (void)state;
    BAD(a.size = 8, KVK_E_ARG, "kvk_tiled_args");
    BAD(a.cached = -1, KVK_E_SHAPE, "cached is -1");
    BAD(a.tokens = -1, KVK_E_SHAPE, "tokens is -1");
    BAD(a.tokens = INT32_MAX, KVK_E_SHAPE, "tokens is 2147483647");
    BAD(a.cached = INT32_MAX - 19, KVK_E_SHAPE, "cached + tokens is 2147483648");
    BAD(a.tile_tokens = -1, KVK_E_SHAPE, "tile_tokens is -1");
    BAD(a.pool.data = NULL, KVK_E_ARG, "pool.data");
    BAD(a.pool.page_stride = 196, KVK_E_SHAPE, "page_stride");
    BAD(a.query.data = NULL, KVK_E_ARG, "query");
    BAD(a.out.head_stride = 64, KVK_E_SHAPE, "out");
    BAD(a.block_table = at(2), KVK_E_ALIGN, "block_table");
    BAD(a.table_type = (kvk_index)9, KVK_E_ARG, "table_type is 9");
    BAD(a.sinks = at(2), KVK_E_ALIGN, "sinks");
    BAD(a.lse = at(2), KVK_E_ALIGN, "lse");
    BAD(a.soft_cap = 30, KVK_E_UNSUPPORTED, "without KVK_SOFT_CAP");
    BAD(a.alibi = slopes, KVK_E_UNSUPPORTED, "without KVK_ALIBI");
    BAD(a.window = -1, KVK_E_SHAPE, "window is -1");
    BAD(a.workspace = NULL, KVK_E_ARG, "workspace");
    BAD(a.workspace = workspace + 8, KVK_E_ALIGN, "workspace");
}

#define BAD_DENSE(set, spec, status, text)                                                         \
    do {                                                                                           \
        struct kvk_model model = dense_model();                                                    \
        struct kvk_tiled_args a = tiled_args();                                                    \
        (void)(set);                                                                               \
        a.dense = prepare_dense(model, spec);                                                      \
        bad(kernels, &a, status, text);                                                            \
    } while (0)

static void sets_must_go_together(void **state)
{
    (void)state;
    struct kvk_model model = rt_model();
    struct kvk_tiled_args a = tiled_args();
    kvk_context *other = rt_open(NULL), *mine = ctx;
    bad(NULL, &a, KVK_E_ARG, "kernels is NULL");
    BAD(a.dense = NULL, KVK_E_ARG, "dense is NULL");
    BAD(a.dense = kernels, KVK_E_ARG, "kvk1:fake");
    BAD_DENSE(model.kinds = KVK_DECODE, "bf16", KVK_E_ARG, "without KVK_UNIFIED");
    BAD_DENSE(model.kv_heads = 4, "bf16", KVK_E_ARG, "kv_heads is 4, the kernels have 2");
    BAD_DENSE(model.query_heads = 4, "bf16", KVK_E_ARG, "query_heads is 4");
    BAD_DENSE(model.head_size = 64, "bf16", KVK_E_ARG, "head_size is 64");
    BAD_DENSE(model.value_head_size = 64, "bf16", KVK_E_ARG, "value_head_size is 64");
    BAD_DENSE(model.dtype = KVK_FLOAT16, "bf16", KVK_E_ARG, "dtype");
    BAD_DENSE(model.page_tokens = 64, "fp16", KVK_E_ARG, "expected those of spec \"bf16\"");
    BAD_DENSE(model.options = KVK_ALIBI, "bf16", KVK_E_ARG, "prepared with KVK_ALIBI");
    model.kinds = KVK_DEQUANT;
    bad(prepare(&model), &a, KVK_E_ARG, "without KVK_MERGE");
    model.kinds = KVK_MERGE;
    bad(prepare(&model), &a, KVK_E_ARG, "without KVK_DEQUANT");
    ctx = other;
    a.dense = prepare_dense(dense_model(), "bf16");
    ctx = mine;
    bad(kernels, &a, KVK_E_ARG, "another context");
    kvk_close(other);
}

/* ---- workspace ---- */

static size_t promised(int64_t tokens, int64_t tile)
{
    struct kvk_limits limits = KVK_INIT(struct kvk_limits);
    limits.tokens = tokens;
    return kvk_tiled_workspace_bytes(kernels, dense, &limits, tile);
}

static void workspace_is_a_formula(void **state)
{
    (void)state;
    const size_t state_bytes = WORDS_BYTES + 20 * H * (2 * 4 + D * (4 + 2)), slot = 2 * 516;
    assert_int_equal(promised(20, 64), state_bytes + 64 * slot);
    assert_int_equal(promised(20, 0), state_bytes + 64 * 32 * slot); /* 64 pages of dense */
    assert_int_equal(promised(0, 64), 0);
    assert_int_equal(promised(20, -1), 0);
    assert_true(promised(INT64_MAX, 64) == SIZE_MAX);
    struct kvk_limits limits = KVK_INIT(struct kvk_limits);
    limits.tokens = 20;
    assert_int_equal(kvk_tiled_workspace_bytes(kernels, kernels, &limits, 64), 0);
    limits.context = INT64_MAX;
    assert_int_equal(kvk_tiled_workspace_bytes(kernels, dense, &limits, 64), promised(20, 64));
    struct kvk_tiled_args a = tiled_args();
    a.workspace_bytes = promised(20, 16) - 1;
    bad(kernels, &a, KVK_E_WORKSPACE, "a tile of 16 tokens needs");
    a.cached = 30;
    a.workspace_bytes = promised(20, 47); /* whole sixteens of it are used */
    fake->launches = 0;
    assert_int_equal(kvk_tiled(kernels, &a, NULL, NULL), KVK_OK);
    assert_int_equal(PARAMS(0, dequant)->rows, 32);
}

/* Every address that a launch gets lies inside what was promised. */
static void workspace_is_enough(void **state)
{
    (void)state;
    unsigned seed = 3;
    for (int round = 0; round < 200; round++) {
        struct kvk_tiled_args a = tiled_args();
        seed = seed * 1664525u + 1013904223u;
        a.cached = (seed >> 9) % 300;
        a.tokens = 1 + (seed >> 5) % 60;
        a.tile_tokens = 1 + (seed >> 20) % 200;
        a.sinks = seed & 64 ? sinks : NULL;
        a.window = seed & 1024 ? 1 + (int32_t)(seed >> 12) % 200 : 0;
        a.workspace_bytes = promised(a.tokens, a.tile_tokens);
        assert_true(a.workspace_bytes <= ROOM - 16);
        memset(workspace + a.workspace_bytes, 0xA5, 16);
        kvk_error err = {0};
        if (kvk_tiled(kernels, &a, NULL, &err) != KVK_OK)
            fail_msg("%s", err.text);
        for (int i = 0; i < 16; i++)
            assert_int_equal((unsigned char)workspace[a.workspace_bytes + (size_t)i], 0xA5);
    }
}

/* The n-th call of the driver fails, for every n: the status is that failure, no context stays pushed. */
static void a_driver_that_fails_is_reported(void **state)
{
    (void)state;
    int failures = 0;
    for (int n = 1;; n++) {
        struct kvk_tiled_args a = tiled_args();
        kvk_error err = {0};
        a.sinks = sinks;
        fake->calls = 0;
        fake->fail_at = n;
        fake->fail_code = 999;
        fake->failed = NULL;
        kvk_status status = kvk_tiled(kernels, &a, NULL, &err);
        fake->fail_at = 0;
        assert_int_equal(fake->depth, 0);
        if (!fake->failed)
            break;
        failures += status == KVK_E_DRIVER && err.driver == 999;
    }
    assert_true(failures > 30);
}

int main(int argc, char **argv)
{
    (void)argc;
    rt_with_fakes(argv);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_chunk_in_the_second_tile),
        TEST(a_chunk_across_two_tiles),
        TEST(sinks_join_once),
        TEST(soft_cap_and_empty_chunks),
        TEST(windows_and_slopes_count_over_the_whole_sequence),
        TEST(arguments_are_checked),
        TEST(sets_must_go_together),
        TEST(workspace_is_a_formula),
        TEST(workspace_is_enough),
        TEST(a_driver_that_fails_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
