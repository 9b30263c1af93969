/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_limits.c - docs/limits.md held against the code: every refusal whose test is `limits` is
** provoked here and gives the listed message and status, and nothing that is provoked is unlisted.
** No preset is refused at a head size that is promised.
*/
#include "gen/name.h"
#include "gen/plan.h"
#include "runtime/gen_api.h"
#include "runtime/kvkiln.h"
#include "tests/page.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- the page --- */

static struct page page;

/* The refusal is listed; its row with the longest text counts as provoked. */
static void refused(kvk_status status, const kvk_error *err)
{
    if (status == KVK_OK)
        fail_msg("nothing was refused");
    if (!page_met(&page, status, err->text))
        fail_msg("not in docs/limits.md: %s: %s", kvk_status_name(status), err->text);
}

/* --- shapes and formats --- */

static struct spec spec_of(const char *name)
{
    struct spec spec;
    kvk_error err = {0};

    if (spec_load(name, NULL, &spec, &err))
        fail_msg("%s", err.text);
    return spec;
}

static const struct geometry plain = {LAYOUT_AOS, 128, 128, 4, 16, KVK_BFLOAT16, 0};

static void refuse_plan(const struct spec *spec, struct geometry geo, const char *target,
                        enum kind kind)
{
    static struct plan plan;
    kvk_error err = {0};

    refused(plan_make(spec, &geo, target_find(target), kind, &plan, &err), &err);
}

static void shapes(void **state)
{
    struct spec spec = spec_of("turboquant_4bit_nc"), wide = spec_of("fp16"),
                block = spec_of("ultraquant_4bit");
    struct geometry g;

    (void)state;
    g = plain, g.head_size = 100;
    refuse_plan(&spec, g, "x86-64-v3", KIND_STORE);
    g = plain, g.value_head_size = 2048;
    refuse_plan(&spec, g, "x86-64-v3", KIND_STORE);
    g = plain, g.head_size = 80;
    refuse_plan(&block, g, "x86-64-v3", KIND_DECODE);
    g = plain, g.gqa = 129;
    refuse_plan(&spec, g, "x86-64-v3", KIND_DECODE);
    g = plain, g.page_tokens = 0;
    refuse_plan(&spec, g, "x86-64-v3", KIND_DECODE);
    g = plain, g.layout = LAYOUT_SOA;
    refuse_plan(&wide, g, "x86-64-v3", KIND_DECODE);
    g = plain, g.dtype = KVK_FLOAT32;
    refuse_plan(&spec, g, "x86-64-v3", KIND_DECODE);
    g = plain, g.head_size = 264;
    refuse_plan(&spec, g, "sm_90a", KIND_STORE);
    g = plain, g.value_head_size = 264;
    refuse_plan(&spec, g, "sm_90a", KIND_DECODE);
    g = plain, g.head_size = 1024;
    refuse_plan(&wide, g, "gfx1100", KIND_DECODE);
    refuse_plan(&block, g, "gfx942", KIND_UNIFIED);
}

static void codecs(void **state)
{
    struct spec block = spec_of("ultraquant_4bit");
    struct spec wide = spec_of("fp16"), four = spec_of("turboquant_4bit_nc");
    struct geometry soa = plain, native = plain;
    struct slot slot;
    kvk_error err = {0};

    (void)state;
    soa.layout = LAYOUT_SOA;
    refused(slot_make(&block, &soa, &slot, &err), &err);
    native.layout = LAYOUT_NATIVE;
    refused(slot_make(&wide, &native, &slot, &err), &err);
    wide.key = four.key;
    refused(slot_make(&wide, &native, &slot, &err), &err);
    native.head_size = 96;
    refused(slot_make(&four, &native, &slot, &err), &err);
    native.head_size = 64, native.value_head_size = 32;
    refused(slot_make(&four, &native, &slot, &err), &err);
    native.value_head_size = 64, native.page_tokens = 24;
    refused(slot_make(&four, &native, &slot, &err), &err);
}

static void targets_and_artefacts(void **state)
{
    static const struct {
        const char *target;
        int emit;
    } wrong[] = {{"sm_999", GEN_EMIT_OBJECT},
                 {"x86-64-v3", GEN_EMIT_PTX},
                 {"sm_90a", GEN_EMIT_HSACO},
                 {"sm_90a", GEN_EMIT_RELOC}};
    const struct gen_api *api = kvk_generator();
    char *text = NULL;
    kvk_error err = {0};

    (void)state;
    assert_int_equal(api->spec_text("fp16", NULL, &text, &err), KVK_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct gen_artifacts out = {{0}, {0}};
        struct gen_request r = {.spec_text = text,
                                .kind = "store",
                                .layout = "aos",
                                .target = wrong[i].target,
                                .head_size = 64,
                                .gqa = 1,
                                .page_tokens = 16,
                                .dtype = KVK_BFLOAT16};
        refused(api->compile(&r, 1u << wrong[i].emit, &out, &err), &err);
        api->artifacts_free(&out);
    }
    free(text);
}

static const int sizes[] = {16,  32,  40,  64,  72,  80,  96,  112, 120,
                            128, 160, 192, 224, 256, 320, 512, 576};

/* Every preset, target, kind and layout at every promised head size. */
static void no_preset_is_refused(void **state)
{
    static struct plan plan;
    const char *name, *source, *target, *family;
    kvk_error err = {0};
    int made = 0;

    (void)state;
    for (int i = 0; spec_embedded(i, &name, &source); i++) {
        struct spec spec = spec_of(name);
        int group = spec.key.kind == CODEC_BLOCK_FLOAT ? spec.key.group : 8;
        for (int t = 0; kvk_generator()->target(t, &target, &family); t++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                for (int n = 0; n < KIND_COUNT * spec.nlayouts && sizes[s] % group == 0; n++) {
                    struct geometry g = plain;
                    g.head_size = g.value_head_size = sizes[s];
                    g.layout = spec.layouts[n / KIND_COUNT];
                    if (g.layout == LAYOUT_NATIVE && sizes[s] % 64)
                        continue;
                    if (plan_make(&spec, &g, target_find(target), n % KIND_COUNT, &plan, &err))
                        fail_msg("%s", err.text);
                    made++;
                }
    }
    assert_true(made > 10000);
}

/* Two CTAs of a cluster join rows whose sums are in shared memory all at once: by halves each would miss the other's
** first. */
static void pairs_join_at_once(void **state)
{
    static const int sizes[] = {64, 128, 256}, gqas[] = {1, 4, 8, 12, 16, 24};
    const char *name, *source;
    int pairs = 0, halves = 0;

    (void)state;
    for (int i = 0; spec_embedded(i, &name, &source); i++)
        for (int n = 0; n < 18; n++) {
            struct spec spec = spec_of(name);
            for (int l = 0; l < spec.nlayouts; l++) {
                struct geometry g = plain;
                struct plan plan;
                kvk_error err = {0};
                g.head_size = g.value_head_size = sizes[n % 3];
                g.gqa = gqas[n / 3];
                g.layout = spec.layouts[l];
                if (plan_make(&spec, &g, target_find("sm_90a"), KIND_DECODE, &plan, &err))
                    fail_msg("%s", err.text);
                bool by_halves = plan_join_passes(&plan) > 1;
                halves += plan.images && by_halves;
                pairs += plan.images && plan.neighbours > 1;
                assert_false(plan.images && by_halves && plan.neighbours > 1);
            }
        }
    assert_true(pairs > 100 && halves > 10);
}

/* A lane's sums and scores of a step are in arrays of the templates: no plan that is made has more,
** whatever fields are set from outside (a table, or tune, which tries them all). */
static void lanes_hold_what_plans_ask_for(void **state)
{
    static struct plan plan;
    static const char *const targets[] = {"sm_80", "sm_90a", "gfx942", "gfx1100", "x86-64-v3"};
    static const int sizes[] = {64, 128, 256, 512, 1024};
    const char *name, *source;
    int made = 0, refused_sets = 0;
    enum { SETS = 5 * 5 * 5 * 5 * 2 };

    (void)state;
    for (int i = 0; spec_embedded(i, &name, &source); i++)
        for (int n = 0; n < 3 * SETS; n++) { /* then subtiles alone, and by the rules */
            struct spec spec = spec_of(name);
            struct geometry g = plain;
            char set[64];
            kvk_error err = {0};
            g.head_size = g.value_head_size = sizes[n % 5];
            g.gqa = n % 3 ? 4 : 24;
            g.layout = spec.layouts[0];
            snprintf(set, sizeof set, "warps=%d,narrow=%d,subtiles=%d", 1 << n / 5 % 5, n / 25 % 5,
                     1 + n / 625 % 2);
            const char *part = n < SETS ? set : n < 2 * SETS ? strstr(set, "subtiles") : "";
            if (plan_make_set(&spec, &g, target_find(targets[n / 125 % 5]),
                              n % 2 ? KIND_DECODE : KIND_UNIFIED, part, NULL, &plan, &err)) {
                refused_sets++;
                continue;
            }
            made++;
            assert_in_range(plan_lane_sums(&plan), 0, PLAN_SUMS);
            assert_in_range(plan_lane_results(&plan), 0, PLAN_RESULTS); /* dense: 0 */
        }
    assert_true(made > 1000 && refused_sets > 1000);
}

static const struct codec codecs_there_are[] = {
    {.kind = CODEC_CODEBOOK, .bits = 4, .rotation = ROTATION_HADAMARD, .norm_correction = 1},
    {.kind = CODEC_CODEBOOK, .bits = 3, .norm_correction = 1},
    {.kind = CODEC_CODEBOOK, .bits = 2, .rotation = ROTATION_HADAMARD},
    {.kind = CODEC_AFFINE, .bits = 8},
    {.kind = CODEC_AFFINE, .bits = 3},
    {.kind = CODEC_FLOAT, .bits = 8, .format = FLOAT_E4M3},
    {.kind = CODEC_FLOAT, .bits = 16, .format = FLOAT_FP16},
    {.kind = CODEC_FLOAT, .bits = 16, .format = FLOAT_BF16},
    {.kind = CODEC_BLOCK_FLOAT, .bits = 4, .group = 32, .rotation = ROTATION_HADAMARD},
    {.kind = CODEC_BLOCK_FLOAT, .bits = 4, .group = 16, .rule = BLOCK_NVFP4},
    {.kind = CODEC_BLOCK_FLOAT, .bits = 4, .group = 32, .rule = BLOCK_MXFP4},
};
enum { CODECS = sizeof codecs_there_are / sizeof *codecs_there_are };

static int group_of(const struct codec *c) { return c->kind == CODEC_BLOCK_FLOAT ? c->group : 8; }

static bool has_fields(const struct codec *c)
{
    return c->kind == CODEC_CODEBOOK || c->kind == CODEC_AFFINE;
}

/* Any codec on either side, of every target, kind, layout that they have and promised head size. */
static void no_pair_of_codecs_is_refused(void **state)
{
    static struct plan plan;
    struct spec spec = spec_of("turboquant_4bit_nc");
    const char *target, *family;
    kvk_error err = {0};
    int made = 0;

    (void)state;
    for (int pair = 0; pair < CODECS * CODECS; pair++) {
        spec.key = codecs_there_are[pair / CODECS];
        spec.value = codecs_there_are[pair % CODECS];
        bool blocks = group_of(&spec.key) > 8 || group_of(&spec.value) > 8;
        spec.nlayouts = !blocks && (has_fields(&spec.key) || has_fields(&spec.value)) ? 2 : 1;
        for (int t = 0; kvk_generator()->target(t, &target, &family); t++)
            for (int n = 0; n < KIND_COUNT * spec.nlayouts * (int)(sizeof sizes / 4); n++) {
                struct geometry g = plain;
                g.head_size = g.value_head_size = sizes[n / KIND_COUNT / spec.nlayouts];
                g.layout = spec.layouts[n / KIND_COUNT % spec.nlayouts];
                if (g.head_size % group_of(&spec.key) || g.head_size % group_of(&spec.value))
                    continue;
                if (plan_make(&spec, &g, target_find(target), n % KIND_COUNT, &plan, &err))
                    fail_msg("pair %d: %s", pair, err.text);
                made++;
            }
    }
    assert_true(made > 100000);
}

/* The native layout of any pair that has it, at every promised head size that is a multiple of 64. */
static void no_native_pair_is_refused(void **state)
{
    static struct plan plan;
    struct spec spec = spec_of("turboquant_4bit_nc");
    const char *target, *family;
    kvk_error err = {0};
    int made = 0;

    (void)state;
    for (int pair = 0; pair < CODECS * CODECS; pair++) {
        spec.key = codecs_there_are[pair / CODECS];
        spec.value = codecs_there_are[pair % CODECS];
        if (native_codecs(&spec.key, &spec.value))
            continue;
        for (int t = 0; kvk_generator()->target(t, &target, &family); t++)
            for (int n = 0; n < KIND_COUNT * (int)(sizeof sizes / 4); n++) {
                struct geometry g = plain;
                g.head_size = g.value_head_size = sizes[n / KIND_COUNT];
                g.layout = LAYOUT_NATIVE;
                if (g.head_size % 64)
                    continue;
                if (plan_make(&spec, &g, target_find(target), n % KIND_COUNT, &plan, &err))
                    fail_msg("pair %d: %s", pair, err.text);
                made++;
            }
    }
    assert_true(made > 10000);
}

/* --- prepare and the calls, on the host --- */

static kvk_context *ctx;
static char memory[1 << 16] __attribute__((aligned(64)));

static struct kvk_model model_of(const char *spec)
{
    struct kvk_model m = KVK_INIT(struct kvk_model);

    m.spec = spec;
    m.kv_heads = 2;
    m.query_heads = 8;
    m.head_size = 64;
    return m;
}

static void refuse_model(struct kvk_model m)
{
    const kvk_kernels *kernels;
    kvk_error err = {0};

    refused(kvk_prepare(ctx, &m, &kernels, &err), &err);
}

static void models(void **state)
{
    struct kvk_model m;

    (void)state;
    m = model_of("turboquant_k8v4"), m.options = 1u << 17;
    refuse_model(m);
    m = model_of("turboquant_k8v4"), m.query_heads = 7;
    refuse_model(m);
    m = model_of("turboquant_k8v4"), m.kv_heads = 0;
    refuse_model(m);
}

static const kvk_kernels *kernels_of(const char *spec, const char *layout)
{
    struct kvk_model m = model_of(spec);
    const kvk_kernels *kernels = NULL;
    kvk_error err = {0};

    m.layout = layout;
    if (kvk_prepare(ctx, &m, &kernels, &err))
        fail_msg("%s", err.text);
    return kernels;
}

static struct kvk_decode_args decode_of(void)
{
    struct kvk_decode_args a = KVK_INIT(struct kvk_decode_args);

    a.pool = (struct kvk_pool){.data = memory, .pages = 1};
    a.query.data = a.out.data = memory;
    a.block_table = memory;
    a.table_stride = 1;
    a.lengths = (const int32_t *)memory;
    a.sequences = 1;
    a.max_context = 16;
    return a;
}

static void refuse_decode(const kvk_kernels *kernels, struct kvk_decode_args a)
{
    kvk_error err = {0};

    refused(kvk_decode(kernels, &a, NULL, &err), &err);
}

static void decodes(void **state)
{
    const kvk_kernels *k = kernels_of("turboquant_k8v4", "aos");
    struct kvk_decode_args a;

    (void)state;
    a = decode_of(), a.soft_cap = 30;
    refuse_decode(k, a);
    a = decode_of(), a.alibi = (const float *)memory;
    refuse_decode(k, a);
    a = decode_of(), a.window = -1;
    refuse_decode(k, a);
    a = decode_of(), a.splits = 2, a.batch_invariant = 1;
    refuse_decode(k, a);
    a = decode_of(), a.splits = 2;
    refuse_decode(k, a);
    a = decode_of(), a.sequences = INT32_MAX - 1, a.query_tokens = 16;
    refuse_decode(k, a);
    a = decode_of(), a.pool.head_stride = a.pool.position_stride = 16384;
    refuse_decode(k, a);
    a = decode_of(), a.pool.page_stride = INT64_MAX - 15, a.pool.pages = 4;
    refuse_decode(k, a);
    a = decode_of(), a.out.head_stride = 8;
    refuse_decode(k, a);
    a = decode_of(), a.pool.position_stride = 1 << 12;
    refuse_decode(kernels_of("turboquant_k8v4", "soa"), a);
}

static void others(void **state)
{
    const kvk_kernels *k = kernels_of("turboquant_k8v4", "aos");
    struct kvk_store_args store = KVK_INIT(struct kvk_store_args);
    struct {
        struct kvk_store_args args;
        int later; /* a field of some later version */
    } newer = {KVK_INIT(struct kvk_store_args), 1};
    kvk_error err = {0};

    (void)state;
    store.pool = (struct kvk_pool){.data = memory, .pages = 1};
    store.key.data = store.value.data = memory;
    store.slots = memory;
    store.rows = INT64_C(1) << 40;
    refused(kvk_store(k, &store, NULL, &err), &err);
    newer.args.size = sizeof newer;
    refused(kvk_store(k, &newer.args, NULL, &err), &err);
}

/* Last: every row of this test was met. */
static void all_listed_refusals_were_provoked(void **state)
{
    (void)state;
    const struct page_row *row = page_unmet(&page);
    if (row)
        fail_msg("not provoked: %s", row->message);
}

static int open_host(void **state)
{
    struct kvk_options options = KVK_INIT(struct kvk_options);
    kvk_error err = {0};

    kvk_register_generator(kvk_generator);
    options.device = "host";
    options.cache_dir = "";
    (void)state;
    if (page_read(&page, TEST_ROOT "/docs/limits.md", NULL, "| limits |") <= 40 ||
        kvk_open(&options, &ctx, &err)) {
        print_error("docs/limits.md cannot be read, or: %s\n", err.text);
        return -1;
    }
    return 0;
}

static int close_host(void **state)
{
    (void)state;
    kvk_close(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),
        cmocka_unit_test(codecs),
        cmocka_unit_test(targets_and_artefacts),
        cmocka_unit_test(no_preset_is_refused),
        cmocka_unit_test(pairs_join_at_once),
        cmocka_unit_test(lanes_hold_what_plans_ask_for),
        cmocka_unit_test(no_pair_of_codecs_is_refused),
        cmocka_unit_test(no_native_pair_is_refused),
        cmocka_unit_test(models),
        cmocka_unit_test(decodes),
        cmocka_unit_test(others),
        cmocka_unit_test(all_listed_refusals_were_provoked),
    };
    return cmocka_run_group_tests(tests, open_host, close_host);
}
