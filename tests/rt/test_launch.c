/* SPDX-License-Identifier: Apache-2.0 */
/* What the launches check, the grids and parameters they hand to the driver, the layout and the workspace formula. */
#include "rt.h"

#include "../../runtime/abi.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { G = 2, H = 8, D = 128, P = 16, SLOT = 196 };

static struct fake *fake;
static kvk_context *ctx;
static const kvk_kernels *aos, *soa;

/* Aligned addresses that nothing reads. */
static void *at(uintptr_t offset) { return (void *)(uintptr_t)(0x10000 + offset); }

static int setup(void **state)
{
    (void)state;
    struct kvk_model model = rt_model();
    rt_generator_reset();
    fake = rt_fake("libcuda.so.1");
    ctx = rt_open(NULL);
    kvk_error err;
    if (kvk_prepare(ctx, &model, &aos, &err) != KVK_OK)
        fail_msg("%s", err.text);
    model.layout = "soa";
    assert_int_equal(kvk_prepare(ctx, &model, &soa, NULL), KVK_OK);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    kvk_close(ctx);
    return 0;
}

static struct kvk_store_args store_args(void)
{
    struct kvk_store_args a = KVK_INIT(struct kvk_store_args);
    a.pool = (struct kvk_pool){.data = at(0), .pages = 10};
    a.key.data = at(2);
    a.value.data = at(4);
    a.slots = at(8);
    a.rows = 7;
    return a;
}

static struct kvk_decode_args decode_args(void)
{
    struct kvk_decode_args a = KVK_INIT(struct kvk_decode_args);
    a.pool = (struct kvk_pool){.data = at(0), .pages = 10};
    a.query.data = at(16);
    a.out.data = at(32);
    a.block_table = at(48);
    a.table_stride = 4;
    a.lengths = at(64);
    a.sequences = 3;
    a.max_context = 64;
    a.workspace = at(4096);
    a.workspace_bytes = 1 << 24;
    return a;
}

static struct kvk_unified_args unified_args(void)
{
    struct kvk_unified_args a = KVK_INIT(struct kvk_unified_args);
    a.pool = (struct kvk_pool){.data = at(0), .pages = 10};
    a.query.data = at(16);
    a.out.data = at(32);
    a.block_table = at(48);
    a.table_stride = 4;
    a.lengths = at(64);
    a.query_start = at(80);
    a.sequences = 3;
    a.tokens = 39;
    return a;
}

static struct kvk_dequant_args dequant_args(void)
{
    struct kvk_dequant_args a = KVK_INIT(struct kvk_dequant_args);
    a.pool = (struct kvk_pool){.data = at(0), .pages = 10};
    a.key.data = at(16);
    a.value.data = at(32);
    a.block_table = at(48);
    a.table_stride = 4;
    a.out_start = at(64);
    a.sequences = 3;
    a.rows = 100;
    return a;
}

/* The last launch but `back`. */
static const struct fake_launch *last(int back)
{
    assert_true(fake->launches > back);
    return &fake->launch[(fake->launches - 1 - back) % FAKE_LAUNCHES];
}

/* ---- layout ---- */

static void layout_of_aos(void **state)
{
    (void)state;
    struct kvk_layout l = KVK_INIT(struct kvk_layout);
    assert_int_equal(kvk_layout(aos, &l, NULL), KVK_OK);
    assert_int_equal(l.slot_bytes, SLOT);
    assert_int_equal(l.page_bytes, P * G * SLOT);
    assert_int_equal(l.position_stride, G * SLOT);
    assert_int_equal(l.head_stride, SLOT);
    assert_int_equal(l.meta_offset, 0);
    assert_int_equal(l.fields, 2);
    assert_int_equal(l.field_offset[0], 192);
    assert_int_equal(l.field_offset[1], 194);
    assert_true(fabs(l.ratio - 512.0 / 196) < 1e-12);
    assert_string_equal(l.signature, "kvk1:fake:aos:128:128:16");
}

/* The numbers of formats.md section 4: k8v4, D 128, 16 tokens, 2 heads. */
static void layout_of_soa(void **state)
{
    (void)state;
    struct kvk_layout l = KVK_INIT(struct kvk_layout);
    assert_int_equal(kvk_layout(soa, &l, NULL), KVK_OK);
    assert_int_equal(l.page_bytes, 6272);
    assert_int_equal(l.head_stride, 192);
    assert_int_equal(l.position_stride, 384);
    assert_int_equal(l.meta_offset, 6144);
    assert_int_equal(l.field_offset[0], 6144);
    assert_int_equal(l.field_offset[1], 6176);
    l.size = 8;
    assert_int_equal(kvk_layout(soa, &l, NULL), KVK_E_ARG);
}

/* ---- what reaches the driver ---- */

static void store_fills_its_parameters(void **state)
{
    (void)state;
    struct kvk_store_args a = store_args();
    struct abi_store p;
    a.slot_type = KVK_INT64;
    a.key.row_stride = 1024;
    assert_int_equal(kvk_store(aos, &a, at(1), NULL), KVK_OK);
    assert_int_equal(last(0)->bytes, sizeof p);
    assert_string_equal(last(0)->function, "k_store");
    assert_ptr_equal(last(0)->stream, at(1));
    assert_int_equal(last(0)->grid, (7 * G + 3) / 4);
    assert_int_equal(last(0)->threads, 128);
    assert_int_equal(last(0)->shared, 2048);
    memcpy(&p, last(0)->params, sizeof p);
    assert_int_equal(p.page_stride, P * G * SLOT);
    assert_int_equal(p.position_stride, G * SLOT);
    assert_int_equal(p.head_stride, SLOT);
    assert_int_equal(p.key_row, 1024);
    assert_int_equal(p.key_head, D);
    assert_int_equal(p.value_row, G * D);
    assert_int_equal(p.capacity, 10 * P);
    assert_int_equal(p.rows, 7);
    assert_int_equal(p.kv_heads, G);
    assert_int_equal(p.slots_64, 1);
}

static void short_decode_is_one_launch(void **state)
{
    (void)state;
    struct kvk_decode_args a = decode_args();
    struct abi_decode p;
    a.sinks = at(128);
    a.lse = at(256);
    assert_int_equal(kvk_decode(aos, &a, NULL, NULL), KVK_OK);
    assert_int_equal(fake->launches, 1);
    assert_int_equal(last(0)->grid, 3 * G);
    memcpy(&p, last(0)->params, sizeof p);
    assert_int_equal(p.splits, 1);
    assert_int_equal(p.query_tokens, 1);
    assert_int_equal(p.sinks, (uintptr_t)at(128));
    assert_int_equal(p.lse, (uintptr_t)at(256));
    assert_int_equal(p.query_row, H * D);
    assert_true(fabsf(p.scale - 1.0f / sqrtf(128.0f)) < 1e-9f);
}

static void long_decode_is_split_and_reduced(void **state)
{
    (void)state;
    struct kvk_decode_args a = decode_args();
    struct abi_decode p;
    struct abi_reduce r;
    a.sinks = at(128);
    a.lse = at(256);
    a.query_tokens = 5;      /* 20 rows a head: two tiles of 16 */
    a.max_context = 1 << 20; /* 132 SMs * 4 CTAs * 3 waves = 1584 CTAs over 12 */
    assert_int_equal(kvk_decode(aos, &a, NULL, NULL), KVK_OK);
    assert_int_equal(fake->launches, 2);
    memcpy(&p, last(1)->params, sizeof p);
    memcpy(&r, last(0)->params, sizeof r);
    assert_string_equal(last(0)->function, "k_reduce");
    assert_int_equal(p.splits, 64);
    assert_int_equal(last(1)->grid, 3 * G * 2 * 64);
    assert_int_equal(p.sinks, 0);
    assert_int_equal(p.lse, 0);
    assert_int_equal(r.sinks, (uintptr_t)at(128));
    assert_int_equal(r.lse, (uintptr_t)at(256));
    assert_int_equal(r.rows, 3 * 5 * H);
    assert_int_equal(last(0)->grid, 3 * 5 * H);
    assert_int_equal(last(0)->bytes, sizeof r);
    assert_int_equal(r.splits, 64);
    assert_int_equal(r.query_heads, H);
}

static void unified_and_dequant_grids(void **state)
{
    (void)state;
    struct kvk_unified_args u = unified_args();
    struct kvk_dequant_args d = dequant_args();
    assert_int_equal(kvk_unified(aos, &u, NULL, NULL), KVK_OK);
    assert_int_equal(last(0)->grid, (39 * 4 / 16 + 3) * G);
    assert_int_equal(last(0)->shared, 65536);
    assert_int_equal(fake->dynamic_shared, 65536); /* asked for beyond 48 KiB */
    assert_int_equal(last(0)->bytes, sizeof(struct abi_unified));
    assert_int_equal(kvk_dequant(soa, &d, NULL, NULL), KVK_OK);
    assert_int_equal(last(0)->grid, 100 * G / 4);
    assert_int_equal(last(0)->bytes, sizeof(struct abi_dequant));
}

static void empty_calls_queue_nothing(void **state)
{
    (void)state;
    struct kvk_store_args s = KVK_INIT(struct kvk_store_args);
    struct kvk_decode_args d = KVK_INIT(struct kvk_decode_args);
    struct kvk_unified_args u = KVK_INIT(struct kvk_unified_args);
    struct kvk_dequant_args q = KVK_INIT(struct kvk_dequant_args);
    assert_int_equal(kvk_store(aos, &s, NULL, NULL), KVK_OK);
    assert_int_equal(kvk_decode(aos, &d, NULL, NULL), KVK_OK);
    assert_int_equal(kvk_unified(aos, &u, NULL, NULL), KVK_OK);
    assert_int_equal(kvk_dequant(aos, &q, NULL, NULL), KVK_OK);
    assert_int_equal(fake->launches, 0);
}

/* ---- refusals ---- */

static void expect(kvk_status got, kvk_status want, const kvk_error *err, const char *text)
{
    if (got != want || err->status != want || !strstr(err->text, text))
        fail_msg("%s, expected %s and \"%s\": %s", kvk_status_name(got), kvk_status_name(want),
                 text, err->text);
    assert_int_equal(fake->launches, 0);
}

#define BAD(call, args, set, kernels, status, text)                                                \
    do {                                                                                           \
        kvk_error err_ = {0};                                                                      \
        struct call##_args a = args();                                                             \
        set;                                                                                       \
        expect(call(kernels, &a, NULL, &err_), status, &err_, text);                               \
        assert_int_equal(call(kernels, &a, NULL, NULL), status);                                   \
    } while (0)
#define BAD_STORE(set, status, text) BAD(kvk_store, store_args, set, aos, status, text)
#define BAD_SOA(set, status, text) BAD(kvk_store, store_args, set, soa, status, text)
#define BAD_DECODE(set, status, text) BAD(kvk_decode, decode_args, set, aos, status, text)
#define BAD_UNIFIED(set, status, text) BAD(kvk_unified, unified_args, set, aos, status, text)
#define BAD_DEQUANT(set, status, text) BAD(kvk_dequant, dequant_args, set, aos, status, text)

static void pools_are_checked(void **state)
{
    (void)state;
    BAD_STORE(a.pool.data = NULL, KVK_E_ARG, "pool.data");
    BAD_STORE(a.pool.data = at(8), KVK_E_ALIGN, "16");
    BAD_STORE(a.pool.pages = -1, KVK_E_SHAPE, "pool.pages is -1");
    BAD_STORE(a.pool.pages = INT64_MAX, KVK_E_SHAPE, "pool.pages");
    BAD_STORE(a.pool.page_stride = P * G * SLOT - 4, KVK_E_SHAPE,
              "page_stride is 6268 bytes, the least here is 6272");
    BAD_STORE(a.pool.page_stride = -P * G * SLOT, KVK_E_SHAPE, "page_stride");
    BAD_STORE(a.pool.page_stride = P * G * SLOT + 2, KVK_E_ALIGN, "multiple of 4");
    BAD_STORE(a.pool.page_stride = INT64_MAX - 3, KVK_E_SHAPE, "2^63");
    BAD_STORE(a.pool.position_stride = G * SLOT - 4, KVK_E_SHAPE, "position_stride");
    BAD_STORE(a.pool.position_stride = SLOT, KVK_E_SHAPE, "the least here");
    BAD_STORE(a.pool.head_stride = SLOT + 1, KVK_E_ALIGN, "head_stride");
    BAD_STORE(a.pool.head_stride = SLOT - 4, KVK_E_SHAPE, "head_stride");
    BAD_SOA(a.pool.position_stride = G * SLOT, KVK_E_SHAPE, "soa fixes");
    BAD_SOA(a.pool.page_stride = 6268, KVK_E_SHAPE, "page_stride");
}

static void other_pool_orders_are_accepted(void **state)
{
    (void)state;
    struct kvk_store_args a = store_args();
    a.pool.position_stride = SLOT; /* head-major */
    a.pool.head_stride = P * SLOT;
    assert_int_equal(kvk_store(aos, &a, NULL, NULL), KVK_OK);
    a.pool.head_stride = 10 * P * SLOT; /* heads outside pages */
    a.pool.page_stride = P * SLOT;
    assert_int_equal(kvk_store(aos, &a, NULL, NULL), KVK_OK);
    a = store_args();
    a.pool.page_stride = INT64_C(1) << 40; /* far apart */
    assert_int_equal(kvk_store(aos, &a, NULL, NULL), KVK_OK);
    a = store_args();
    a.pool.position_stride = 384; /* soa: what the layout says may be said */
    a.pool.head_stride = 192;
    a.pool.page_stride = 8192;
    assert_int_equal(kvk_store(soa, &a, NULL, NULL), KVK_OK);
}

static void store_arguments_are_checked(void **state)
{
    (void)state;
    BAD_STORE(a.size = 0, KVK_E_ARG, "KVK_INIT");
    BAD_STORE(a.rows = -1, KVK_E_SHAPE, "rows is -1");
    BAD_STORE(a.rows = INT64_MAX, KVK_E_SHAPE, "rows");
    BAD_STORE(a.rows = INT64_C(1) << 34, KVK_E_SHAPE, "CTAs");
    BAD_STORE(a.key.data = NULL, KVK_E_ARG, "key");
    BAD_STORE(a.value.data = at(1), KVK_E_ALIGN, "value");
    BAD_STORE(a.key.row_stride = -1, KVK_E_SHAPE, "key");
    BAD_STORE(a.key.head_stride = INT64_MAX, KVK_E_SHAPE, "key");
    BAD_STORE(a.slots = NULL, KVK_E_ARG, "slots");
    BAD_STORE((a.slots = at(4), a.slot_type = KVK_INT64), KVK_E_ALIGN, "slots");
    BAD_STORE(a.slot_type = (kvk_index)5, KVK_E_ARG, "slot_type");
    kvk_error err;
    assert_int_equal(kvk_store(NULL, NULL, NULL, &err), KVK_E_ARG);
    assert_int_equal(kvk_store(aos, NULL, NULL, &err), KVK_E_ARG);
}

static void attention_arguments_are_checked(void **state)
{
    (void)state;
    BAD_DECODE(a.query.data = NULL, KVK_E_ARG, "query");
    BAD_DECODE(a.out.head_stride = 64, KVK_E_SHAPE, "out");
    BAD_DECODE(a.out.row_stride = 64, KVK_E_SHAPE, "out");
    BAD_DECODE(a.block_table = NULL, KVK_E_ARG, "block_table");
    BAD_DECODE(a.table_stride = -1, KVK_E_SHAPE, "table_stride");
    BAD_DECODE(a.lengths = at(2), KVK_E_ALIGN, "lengths");
    BAD_DECODE(a.sequences = -1, KVK_E_SHAPE, "sequences");
    BAD_DECODE(a.sequences = INT32_MAX, KVK_E_SHAPE, "sequences");
    BAD_DECODE(a.query_tokens = -1, KVK_E_SHAPE, "query_tokens");
    BAD_DECODE(a.max_context = -1, KVK_E_SHAPE, "max_context");
    BAD_DECODE(a.window = -1, KVK_E_SHAPE, "window");
    BAD_DECODE(a.scale = NAN, KVK_E_ARG, "scale");
    BAD_DECODE(a.sinks = at(2), KVK_E_ALIGN, "sinks");
    BAD_DECODE(a.lse = at(1), KVK_E_ALIGN, "lse");
    BAD_DECODE(a.splits = 65, KVK_E_SHAPE, "splits");
    BAD_DECODE((a.splits = 4, a.workspace_bytes = 3 * H * 4 * 129 * 4 - 1), KVK_E_WORKSPACE,
               "49536");
    BAD_DECODE((a.splits = 4, a.workspace = NULL), KVK_E_ARG, "workspace");
    BAD_DECODE((a.splits = 4, a.workspace = at(8)), KVK_E_ALIGN, "workspace");
    BAD_UNIFIED(a.query_start = NULL, KVK_E_ARG, "query_start");
    BAD_UNIFIED(a.tokens = -1, KVK_E_SHAPE, "tokens");
    BAD_UNIFIED((a.tokens = INT32_MAX, a.sequences = INT32_MAX - 1), KVK_E_SHAPE, "CTAs");
}

static void dequant_arguments_are_checked(void **state)
{
    (void)state;
    BAD_DEQUANT((a.key.data = NULL, a.value.data = NULL), KVK_E_ARG, "both NULL");
    BAD_DEQUANT(a.out_start = NULL, KVK_E_ARG, "out_start");
    BAD_DEQUANT(a.first_token = at(1), KVK_E_ALIGN, "first_token");
    BAD_DEQUANT(a.rows = INT64_C(1) << 31, KVK_E_SHAPE, "rows");
    BAD_DEQUANT(a.rotate_back = 2, KVK_E_SHAPE, "rotate_back");
    BAD_DEQUANT(a.value.head_stride = 1, KVK_E_SHAPE, "value");
    struct kvk_dequant_args a = dequant_args();
    a.key.data = NULL;
    assert_int_equal(kvk_dequant(aos, &a, NULL, NULL), KVK_OK);
}

/* ---- workspace ---- */

static void promised_workspace_is_enough(void **state)
{
    (void)state;
    unsigned seed = 7;
    int split = 0;
    for (int round = 0; round < 3000; round++) {
        struct kvk_limits limits = KVK_INIT(struct kvk_limits);
        struct kvk_decode_args a = decode_args();
        seed = seed * 1664525u + 1013904223u;
        limits.sequences = 1 + (int64_t)(seed >> 8) % (1 << (seed >> 28));
        limits.query_tokens = 1 + (seed >> 4) % 16;
        limits.context = 1 + (int64_t)(seed >> 3) % 1000000;
        a.workspace_bytes = kvk_workspace_bytes(aos, &limits);
        a.sequences = 1 + (int64_t)(seed >> 11) % limits.sequences; /* any call within the limits */
        a.query_tokens = 1 + (seed >> 9) % limits.query_tokens;
        a.max_context = limits.context;
        kvk_error err;
        if (kvk_decode(aos, &a, NULL, &err) != KVK_OK)
            fail_msg("%s", err.text);
        split += strcmp(last(0)->function, "k_reduce") == 0;
    }
    assert_true(split > 300);
}

static void workspace_is_bounded(void **state)
{
    (void)state;
    struct kvk_limits limits = KVK_INIT(struct kvk_limits);
    assert_int_equal(kvk_workspace_bytes(aos, &limits), 0);
    limits.sequences = 1;
    size_t one = kvk_workspace_bytes(aos, &limits);
    assert_int_equal(one, (size_t)H * 64 * 129 * 4);
    limits.sequences = INT64_MAX;
    limits.query_tokens = INT64_MAX;
    limits.context = INT64_MAX;
    assert_true(kvk_workspace_bytes(aos, &limits) <= (size_t)64 << 20);
}

int main(int argc, char **argv)
{
    (void)argc;
    rt_with_fakes(argv);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(layout_of_aos),
        TEST(layout_of_soa),
        TEST(store_fills_its_parameters),
        TEST(short_decode_is_one_launch),
        TEST(long_decode_is_split_and_reduced),
        TEST(unified_and_dequant_grids),
        TEST(empty_calls_queue_nothing),
        TEST(pools_are_checked),
        TEST(other_pool_orders_are_accepted),
        TEST(store_arguments_are_checked),
        TEST(attention_arguments_are_checked),
        TEST(dequant_arguments_are_checked),
        TEST(promised_workspace_is_enough),
        TEST(workspace_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
