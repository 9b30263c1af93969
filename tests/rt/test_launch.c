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
static const kvk_kernels *aos, *soa, *optional; /* optional: with both options of attention */

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
    model.options = KVK_SOFT_CAP | KVK_ALIBI;
    assert_int_equal(kvk_prepare(ctx, &model, &optional, NULL), KVK_OK);
    assert_ptr_not_equal(optional, aos);
    model.options = 0;
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
    a.pool = (struct kvk_pool){.data = rt_at(0), .pages = 10};
    a.key.data = rt_at(2);
    a.value.data = rt_at(4);
    a.slots = rt_at(8);
    a.rows = 7;
    return a;
}

/* Called as the others are, whose names the macros below take. */
static struct kvk_decode_args decode_args(void) { return rt_decode_args(); }

static struct kvk_unified_args unified_args(void)
{
    struct kvk_unified_args a = KVK_INIT(struct kvk_unified_args);
    a.pool = (struct kvk_pool){.data = rt_at(0), .pages = 10};
    a.query.data = rt_at(16);
    a.out.data = rt_at(32);
    a.block_table = rt_at(48);
    a.table_stride = 4;
    a.lengths = rt_at(64);
    a.query_start = rt_at(80);
    a.sequences = 3;
    a.tokens = 39;
    return a;
}

static struct kvk_dequant_args dequant_args(void)
{
    struct kvk_dequant_args a = KVK_INIT(struct kvk_dequant_args);
    a.pool = (struct kvk_pool){.data = rt_at(0), .pages = 10};
    a.key.data = rt_at(16);
    a.value.data = rt_at(32);
    a.block_table = rt_at(48);
    a.table_stride = 4;
    a.out_start = rt_at(64);
    a.sequences = 3;
    a.rows = 100;
    return a;
}

static struct kvk_merge_args merge_args(void)
{
    struct kvk_merge_args a = KVK_INIT(struct kvk_merge_args);
    a.a = (struct kvk_partial){.out = {.data = rt_at(0)}, .lse = rt_at(64)};
    a.b =
        (struct kvk_partial){.out = {.data = rt_at(128)}, .lse = rt_at(192), .dtype = KVK_FLOAT32};
    a.out = (struct kvk_partial){.out = {.data = rt_at(256)}, .dtype = KVK_FLOAT16};
    a.rows = 9;
    return a;
}

static struct kvk_copy_args copy_args(void)
{
    struct kvk_copy_args a = KVK_INIT(struct kvk_copy_args);
    a.from = (struct kvk_pool){.data = rt_at(0), .pages = 10};
    a.to = (struct kvk_pool){.data = rt_at(4096), .pages = 20, .page_stride = 8192};
    a.from_index = rt_at(64);
    a.to_index = rt_at(128);
    a.items = 5;
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
    assert_int_equal(kvk_store(aos, &a, rt_at(1), NULL), KVK_OK);
    assert_int_equal(last(0)->bytes, sizeof p);
    assert_string_equal(last(0)->function, "k_store");
    assert_ptr_equal(last(0)->stream, rt_at(1));
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
    a.sinks = rt_at(128);
    a.lse = rt_at(256);
    assert_int_equal(kvk_decode(aos, &a, NULL, NULL), KVK_OK);
    assert_int_equal(fake->launches, 1);
    assert_int_equal(last(0)->grid, 3 * G);
    memcpy(&p, last(0)->params, sizeof p);
    assert_int_equal(p.splits, 1);
    assert_int_equal(p.query_tokens, 1);
    assert_int_equal(p.sinks, (uintptr_t)rt_at(128));
    assert_int_equal(p.lse, (uintptr_t)rt_at(256));
    assert_int_equal(p.query_row, H * D);
    assert_true(fabsf(p.scale - 1.0f / sqrtf(128.0f)) < 1e-9f);
}

static void long_decode_is_split_and_reduced(void **state)
{
    (void)state;
    struct kvk_decode_args a = decode_args();
    struct abi_decode p;
    struct abi_reduce r;
    a.sinks = rt_at(128);
    a.lse = rt_at(256);
    a.query_tokens = 5;      /* 20 rows a head: two tiles of 16 */
    a.max_context = 1 << 20; /* 132 SMs * 4 CTAs * 3 waves = 1584 CTAs over 12 */
    assert_int_equal(kvk_decode(aos, &a, NULL, NULL), KVK_OK);
    assert_int_equal(fake->launches, 2);
    memcpy(&p, last(1)->params, sizeof p);
    memcpy(&r, last(0)->params, sizeof r);
    assert_string_equal(last(0)->function, "k_reduce");
    assert_int_equal(p.spread, 396);
    assert_int_equal(p.least, 2);
    assert_int_equal(last(1)->grid, G * 2 * 396);
    assert_int_equal(p.sinks, (uintptr_t)rt_at(128)); /* for sequences of one split */
    assert_int_equal(p.lse, (uintptr_t)rt_at(256));
    assert_int_equal(r.sinks, (uintptr_t)rt_at(128));
    assert_int_equal(r.lse, (uintptr_t)rt_at(256));
    assert_int_equal(r.map, p.map);
    assert_int_equal(p.map, (uintptr_t)a.workspace + 396 * 5 * H * 130 * 4);
    assert_int_equal(r.rows, 3 * 5 * H);
    assert_int_equal(r.ways_log, 4); /* 16 eights of threads a row and 32 dims, 64 threads a CTA */
    assert_int_equal(last(0)->grid, 3 * 5 * H * (D / 32) * 16 / 8);
    assert_int_equal(last(0)->bytes, sizeof r);
    assert_int_equal(r.splits, 132);
    assert_int_equal(r.places, 396 * 5 * H);
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

static void options_and_wide_tables_reach_the_kernels(void **state)
{
    (void)state;
    struct kvk_decode_args d = decode_args();
    struct kvk_unified_args u = unified_args();
    struct kvk_dequant_args q = dequant_args();
    struct abi_decode p;
    struct abi_unified pu;
    struct abi_dequant pq;
    d.soft_cap = u.soft_cap = 30;
    d.alibi = u.alibi = rt_at(512);
    d.full = u.full = 1;
    d.table_type = u.table_type = q.table_type = KVK_INT64;
    assert_int_equal(kvk_decode(optional, &d, NULL, NULL), KVK_OK);
    memcpy(&p, last(0)->params, sizeof p);
    assert_true(p.soft_cap == 30 && p.alibi == (uintptr_t)rt_at(512) && p.full == 1);
    assert_true(p.table_64 == 1 && p.split_tokens == 0);
    assert_int_equal(kvk_unified(optional, &u, NULL, NULL), KVK_OK);
    memcpy(&pu, last(0)->params, sizeof pu);
    assert_true(pu.soft_cap == 30 && pu.alibi == (uintptr_t)rt_at(512) && pu.full == 1);
    assert_int_equal(pu.table_64, 1);
    assert_int_equal(kvk_dequant(aos, &q, NULL, NULL), KVK_OK);
    memcpy(&pq, last(0)->params, sizeof pq);
    assert_int_equal(pq.table_64, 1);
}

/* Splits of 2048 tokens, whatever the batch; always through reduce. */
static void batch_invariant_splits_are_fixed(void **state)
{
    (void)state;
    static const struct {
        int64_t sequences, context;
        int splits;
    } calls[] = {{1, 1, 2}, {900, 4096, 2}, {3, 4097, 3}, {1, 1000000, 489}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct kvk_decode_args a = decode_args();
        struct abi_decode p;
        a.batch_invariant = 1;
        a.sequences = calls[i].sequences;
        a.max_context = calls[i].context;
        a.workspace_bytes = (size_t)1 << 40;
        assert_int_equal(kvk_decode(aos, &a, NULL, NULL), KVK_OK);
        assert_string_equal(last(0)->function, "k_reduce");
        memcpy(&p, last(1)->params, sizeof p);
        assert_int_equal(p.split_tokens, 2048);
        assert_int_equal(p.splits, calls[i].splits);
        assert_int_equal(last(1)->grid, calls[i].sequences * G * calls[i].splits);
    }
}

static void merge_fills_its_parameters(void **state)
{
    (void)state;
    struct kvk_merge_args a = merge_args();
    struct abi_merge p;
    a.a.out.row_stride = 5000;
    assert_int_equal(kvk_merge(aos, &a, rt_at(1), NULL), KVK_OK);
    assert_string_equal(last(0)->function, "k_merge");
    assert_int_equal(last(0)->bytes, sizeof p);
    assert_int_equal(last(0)->grid, 9 * H / 4);
    memcpy(&p, last(0)->params, sizeof p);
    assert_true(p.a_type == 2 && p.b_type == 0 && p.out_type == 1); /* the model's is bf16 */
    assert_true(p.a_row == 5000 && p.b_row == H * D && p.out_head == D);
    assert_true(p.rows == 9 && p.query_heads == H && p.out_lse == 0);
    assert_int_equal(p.b_lse, (uintptr_t)rt_at(192));
}

static void copy_fills_its_parameters(void **state)
{
    (void)state;
    struct kvk_copy_args a = copy_args();
    struct abi_copy p;
    assert_int_equal(kvk_copy(aos, aos, &a, NULL, NULL), KVK_OK);
    assert_string_equal(last(0)->function, "k_copy");
    assert_int_equal(last(0)->bytes, sizeof p);
    assert_int_equal(last(0)->grid, (5 * G + 3) / 4);
    memcpy(&p, last(0)->params, sizeof p);
    assert_true(p.from_page_stride == P * G * SLOT && p.page_stride == 8192);
    assert_true(p.from_capacity == 10 * P && p.capacity == 20 * P);
    assert_true(p.items == 5 && p.kv_heads == G && !p.index_64 && !p.pages);
    a.pages = 1;
    a.index_type = KVK_INT64;
    assert_int_equal(kvk_copy(aos, optional, &a, NULL, NULL), KVK_OK); /* options change no byte */
    memcpy(&p, last(0)->params, sizeof p);
    assert_true(p.items == 5 * P && p.index_64 == 1 && p.pages == 1);
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
    struct kvk_merge_args m = KVK_INIT(struct kvk_merge_args);
    struct kvk_copy_args c = KVK_INIT(struct kvk_copy_args);
    assert_int_equal(kvk_dequant(aos, &q, NULL, NULL), KVK_OK);
    assert_int_equal(kvk_merge(aos, &m, NULL, NULL), KVK_OK);
    assert_int_equal(kvk_copy(aos, NULL, &c, NULL, NULL), KVK_OK);
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
    BAD_STORE(a.pool.data = rt_at(8), KVK_E_ALIGN, "16");
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
    BAD_STORE(a.rows = INT64_C(1) << 34, KVK_E_SHAPE, "more than a launch takes");
    BAD_STORE(a.key.data = NULL, KVK_E_ARG, "key");
    BAD_STORE(a.value.data = rt_at(1), KVK_E_ALIGN, "value");
    BAD_STORE(a.key.row_stride = -1, KVK_E_SHAPE, "key");
    BAD_STORE(a.key.head_stride = INT64_MAX, KVK_E_SHAPE, "key");
    BAD_STORE(a.slots = NULL, KVK_E_ARG, "slots");
    BAD_STORE((a.slots = rt_at(4), a.slot_type = KVK_INT64), KVK_E_ALIGN, "slots");
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
    BAD_DECODE(a.lengths = rt_at(2), KVK_E_ALIGN, "lengths");
    BAD_DECODE(a.sequences = -1, KVK_E_SHAPE, "sequences");
    BAD_DECODE(a.sequences = INT32_MAX, KVK_E_SHAPE, "sequences");
    BAD_DECODE(a.query_tokens = -1, KVK_E_SHAPE, "query_tokens");
    BAD_DECODE(a.max_context = -1, KVK_E_SHAPE, "max_context");
    BAD_DECODE(a.window = -1, KVK_E_SHAPE, "window");
    BAD_DECODE(a.scale = NAN, KVK_E_ARG, "scale");
    BAD_DECODE(a.sinks = rt_at(2), KVK_E_ALIGN, "sinks");
    BAD_DECODE(a.lse = rt_at(1), KVK_E_ALIGN, "lse");
    BAD_DECODE(a.splits = 257, KVK_E_SHAPE, "splits");
    BAD_DECODE((a.splits = 4, a.workspace_bytes = 3 * H * 4 * 130 * 4 - 1), KVK_E_WORKSPACE,
               "49920");
    BAD_DECODE((a.splits = 4, a.workspace = NULL), KVK_E_ARG, "workspace");
    BAD_DECODE((a.splits = 4, a.workspace = rt_at(8)), KVK_E_ALIGN, "workspace");
    BAD_UNIFIED(a.query_start = NULL, KVK_E_ARG, "query_start");
    BAD_UNIFIED(a.tokens = -1, KVK_E_SHAPE, "tokens");
    BAD_UNIFIED((a.tokens = INT32_MAX, a.sequences = INT32_MAX - 1), KVK_E_SHAPE, "CTAs");
}

static void dequant_arguments_are_checked(void **state)
{
    (void)state;
    BAD_DEQUANT((a.key.data = NULL, a.value.data = NULL), KVK_E_ARG, "both NULL");
    BAD_DEQUANT(a.out_start = NULL, KVK_E_ARG, "out_start");
    BAD_DEQUANT(a.first_token = rt_at(1), KVK_E_ALIGN, "first_token");
    BAD_DEQUANT(a.rows = INT64_C(1) << 31, KVK_E_SHAPE, "rows");
    BAD_DEQUANT(a.rotate_back = 2, KVK_E_SHAPE, "rotate_back");
    BAD_DEQUANT(a.value.head_stride = 1, KVK_E_SHAPE, "value");
    struct kvk_dequant_args a = dequant_args();
    a.key.data = NULL;
    assert_int_equal(kvk_dequant(aos, &a, NULL, NULL), KVK_OK);
}

#define BAD_OPTIONAL(set, status, text) BAD(kvk_decode, optional_args, set, optional, status, text)

static struct kvk_decode_args optional_args(void)
{
    struct kvk_decode_args a = decode_args();
    a.soft_cap = 50;
    a.alibi = rt_at(512);
    return a;
}

static void options_are_refused_by_name(void **state)
{
    (void)state;
    BAD_DECODE(a.soft_cap = 30, KVK_E_UNSUPPORTED, "without KVK_SOFT_CAP");
    BAD_DECODE(a.soft_cap = NAN, KVK_E_UNSUPPORTED, "KVK_SOFT_CAP");
    BAD_DECODE(a.alibi = rt_at(0), KVK_E_UNSUPPORTED, "without KVK_ALIBI");
    BAD_UNIFIED(a.soft_cap = 30, KVK_E_UNSUPPORTED, "KVK_SOFT_CAP");
    BAD_UNIFIED(a.alibi = rt_at(0), KVK_E_UNSUPPORTED, "KVK_ALIBI");
    BAD_OPTIONAL(a.soft_cap = 0, KVK_E_ARG, "soft_cap is 0");
    BAD_OPTIONAL(a.soft_cap = -1, KVK_E_ARG, "soft_cap is -1");
    BAD_OPTIONAL(a.soft_cap = INFINITY, KVK_E_ARG, "soft_cap");
    BAD_OPTIONAL(a.alibi = NULL, KVK_E_ARG, "alibi is NULL");
    BAD_OPTIONAL(a.alibi = rt_at(2), KVK_E_ALIGN, "alibi");
    BAD_DECODE(a.full = 2, KVK_E_SHAPE, "full is 2");
    BAD_UNIFIED(a.full = -1, KVK_E_SHAPE, "full is -1");
    BAD_DECODE(a.table_type = (kvk_index)2, KVK_E_ARG, "table_type is 2");
    BAD_DECODE((a.table_type = KVK_INT64, a.block_table = rt_at(4)), KVK_E_ALIGN, "block_table");
    BAD_DEQUANT(a.table_type = (kvk_index)7, KVK_E_ARG, "table_type is 7");
    BAD_DECODE(a.batch_invariant = 2, KVK_E_SHAPE, "batch_invariant is 2");
    BAD_DECODE((a.batch_invariant = 1, a.splits = 2), KVK_E_ARG, "batch_invariant");
    BAD_DECODE((a.batch_invariant = 1, a.workspace_bytes = 2 * 3 * H * 130 * 4 - 1),
               KVK_E_WORKSPACE, "24960");
    struct kvk_model model = rt_model();
    const kvk_kernels *none;
    kvk_error err = {0};
    model.options = 12;
    assert_int_equal(kvk_prepare(ctx, &model, &none, &err), KVK_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "0xc"));
    assert_non_null(strstr(err.text, "KVK_SOFT_CAP"));
}

#define BAD_MERGE(set, status, text) BAD(kvk_merge, merge_args, set, aos, status, text)

static void merge_arguments_are_checked(void **state)
{
    (void)state;
    BAD_MERGE(a.rows = -1, KVK_E_SHAPE, "rows is -1");
    BAD_MERGE(a.rows = INT64_C(1) << 40, KVK_E_SHAPE, "more than a launch takes");
    BAD_MERGE(a.a.out.data = NULL, KVK_E_ARG, "a.out");
    BAD_MERGE(a.b.out.data = rt_at(2), KVK_E_ALIGN, "b.out"); /* f32 */
    BAD_MERGE(a.out.out.data = rt_at(1), KVK_E_ALIGN, "out.out");
    BAD_MERGE(a.a.lse = NULL, KVK_E_ARG, "a.lse");
    BAD_MERGE(a.b.lse = rt_at(2), KVK_E_ALIGN, "b.lse");
    BAD_MERGE(a.out.lse = rt_at(2), KVK_E_ALIGN, "out.lse");
    BAD_MERGE(a.out.out.head_stride = 64, KVK_E_SHAPE, "out.out");
    BAD_MERGE(a.b.dtype = (kvk_dtype)4, KVK_E_ARG, "b: dtype is 4");
}

static void bad_copy(struct kvk_copy_args a, const kvk_kernels *from, kvk_status status,
                     const char *text)
{
    kvk_error err = {0};
    expect(kvk_copy(aos, from, &a, NULL, &err), status, &err, text);
    assert_int_equal(kvk_copy(aos, from, &a, NULL, NULL), status);
}

#define BAD_COPY_ARGS(set, status, text)                                                           \
    do {                                                                                           \
        struct kvk_copy_args a = copy_args();                                                      \
        set;                                                                                       \
        bad_copy(a, NULL, status, text);                                                           \
    } while (0)

static void copy_arguments_are_checked(void **state)
{
    (void)state;
    BAD_COPY_ARGS(a.items = -1, KVK_E_SHAPE, "items is -1");
    BAD_COPY_ARGS((a.items = UINT32_MAX, a.pages = 1), KVK_E_SHAPE, "more than a launch takes");
    BAD_COPY_ARGS(a.from.data = NULL, KVK_E_ARG, "pool.data");
    BAD_COPY_ARGS(a.to.page_stride = 6268, KVK_E_SHAPE, "page_stride");
    BAD_COPY_ARGS(a.from_index = NULL, KVK_E_ARG, "from_index");
    BAD_COPY_ARGS(a.to_index = rt_at(2), KVK_E_ALIGN, "to_index");
    BAD_COPY_ARGS(a.index_type = (kvk_index)3, KVK_E_ARG, "index_type is 3");
    BAD_COPY_ARGS((a.index_type = KVK_INT64, a.from_index = rt_at(4)), KVK_E_ALIGN, "from_index");
    BAD_COPY_ARGS(a.pages = 2, KVK_E_SHAPE, "pages is 2");
    bad_copy(copy_args(), soa, KVK_E_ARG, "kvk1:fake:soa:128:128:16");
    bad_copy(copy_args(), soa, KVK_E_ARG, "kvk1:fake:aos:128:128:16");
    struct kvk_model model = rt_model();
    const kvk_kernels *other;
    model.layout = "aos";
    model.kv_heads = 4;
    assert_int_equal(kvk_prepare(ctx, &model, &other, NULL), KVK_OK);
    bad_copy(copy_args(), other, KVK_E_ARG, "from has 4 KV heads, to has 2");
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
        limits.batch_invariant = a.batch_invariant = round % 4 == 3;
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
    assert_int_equal(one, (size_t)H * 256 * 130 * 4 + 16 + H * 8);
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
        TEST(options_and_wide_tables_reach_the_kernels),
        TEST(batch_invariant_splits_are_fixed),
        TEST(merge_fills_its_parameters),
        TEST(copy_fills_its_parameters),
        TEST(empty_calls_queue_nothing),
        TEST(pools_are_checked),
        TEST(other_pool_orders_are_accepted),
        TEST(store_arguments_are_checked),
        TEST(attention_arguments_are_checked),
        TEST(dequant_arguments_are_checked),
        TEST(options_are_refused_by_name),
        TEST(merge_arguments_are_checked),
        TEST(copy_arguments_are_checked),
        TEST(promised_workspace_is_enough),
        TEST(workspace_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
