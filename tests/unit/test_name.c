/* SPDX-License-Identifier: Apache-2.0 */
/*
** Kernel names and request texts.
*/
#include "gen/manifest.h"
#include "gen/name.h"
#include "gen/plan.h"
#include "runtime/gen_api.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct geometry plain = {LAYOUT_AOS, 128, 128, 4, 16, KVK_BFLOAT16, 0};

static void a_name_says_what_the_kernel_is_for(void **state)
{
    char name[NAME_MAX_BYTES];
    struct geometry g = plain;
    (void)state;
    size_t length = name_format("decode", "turboquant_4bit_nc", &g, name, sizeof name);
    assert_int_equal(length, strlen(name));
    assert_string_equal(name, "decode.turboquant_4bit_nc.aos.d128.g4.bf16.p16");
    g = (struct geometry){LAYOUT_SOA, 192, 128, 1, 64, KVK_FLOAT16, 0};
    name_format("store", "mine", &g, name, sizeof name);
    assert_string_equal(name, "store.mine.soa.d192x128.g1.f16.p64");
}

static void names_come_back_as_they_went(void **state)
{
    static const char *const kinds[] = {"store", "decode", "unified", "dequant"};
    static const int sizes[] = {16, 64, 80, 128, 256, 1024};
    (void)state;
    for (int i = 0; i < 4 * 6 * 6 * 2 * 2; i++) {
        struct geometry g = {(enum layout)(i & 1), sizes[i / 16 % 6],
                             sizes[i / 96 % 6],    1 + i % 128,
                             1 + i * 7 % 4096,     i & 2 ? KVK_FLOAT16 : KVK_BFLOAT16,
                             (unsigned)i % 4};
        char name[NAME_MAX_BYTES];
        struct kernel_name back;
        const char *kind = kinds[i / 4 % 4];
        assert_true(name_format(kind, "ultraquant_4bit", &g, name, sizeof name) < sizeof name);
        assert_int_equal(name_parse(name, &back, NULL), KVK_OK);
        assert_string_equal(back.kind, kind);
        assert_string_equal(back.spec, "ultraquant_4bit");
        assert_int_equal(back.geometry.layout, g.layout);
        assert_int_equal(back.geometry.head_size, g.head_size);
        assert_int_equal(back.geometry.value_head_size, g.value_head_size);
        assert_int_equal(back.geometry.gqa, g.gqa);
        assert_int_equal(back.geometry.page_tokens, g.page_tokens);
        assert_int_equal(back.geometry.dtype, g.dtype);
        assert_int_equal(back.geometry.options, g.options);
    }
}

/* The runtime's messages call a kernel what the generator calls it. */
static void requests_have_the_same_names(void **state)
{
    static const char *const kinds[] = {"store", "decode", "unified", "dequant", "merge", "copy"};
    (void)state;
    for (int i = 0; i < 6 * 2 * 2 * 2 * 4; i++) {
        struct geometry g = {(enum layout)(i & 1),
                             128,
                             i & 2 ? 128 : 64,
                             1 + i,
                             16 + i,
                             i & 4 ? KVK_FLOAT16 : KVK_BFLOAT16,
                             (unsigned)i / 8 % 4};
        const char *kind = kinds[i / 32 % 6];
        struct gen_request r = {.spec_text = "spec 1\nname mine_too\nlayouts aos soa\n",
                                .kind = kind,
                                .layout = layout_name(g.layout),
                                .target = "sm_90a",
                                .head_size = g.head_size,
                                .value_head_size = g.value_head_size,
                                .gqa = g.gqa,
                                .page_tokens = g.page_tokens,
                                .dtype = g.dtype,
                                .options = g.options};
        char expected[NAME_MAX_BYTES], name[NAME_MAX_BYTES];
        name_format(kind, "mine_too", &g, expected, sizeof expected);
        assert_int_equal(gen_request_name(&r, name, sizeof name), strlen(expected));
        assert_string_equal(name, expected);
        r.spec_text = NULL;
        assert_true(gen_request_name(&r, name, sizeof name) > 0);
    }
}

static void what_is_no_name_is_refused(void **state)
{
    static const char *const bad[] = {
        "",
        ".",
        "decode",
        "decode.",
        "decode.x",
        "decode.x.aos",
        "decode.x.aos.d128",
        "decode.x.aos.d128.g4",
        "decode.x.aos.d128.g4.bf16",
        "decode.x.aos.d128.g4.bf16.p",
        "decode.x.aos.d128.g4.bf16.p16.",
        "decode.x.aos.d128.g4.bf16.p16.sm_90a",
        "decode.x.aos.d128.g4.bf16.p16 ",
        " decode.x.aos.d128.g4.bf16.p16",
        "decode.x.aos.d0128.g4.bf16.p16",
        "decode.x.aos.d128.g04.bf16.p16",
        "decode.x.aos.d128.g4.bf16.p016",
        "decode.x.aos.d128x128.g4.bf16.p16",
        "decode.x.aos.d128x.g4.bf16.p16",
        "decode.x.aos.d128x64x32.g4.bf16.p16",
        "decode.x.aos.d-1.g4.bf16.p16",
        "decode.x.aos.d0.g4.bf16.p16",
        "decode.x.aos.d128.g0.bf16.p16",
        "decode.x.aos.d99999.g4.bf16.p16",
        "decode.x.aos.d128.g4.fp16.p16",
        "decode.x.aos.d128.g4.BF16.p16",
        "decode.x.planar.d128.g4.bf16.p16",
        "decode.X.aos.d128.g4.bf16.p16",
        "decode..aos.d128.g4.bf16.p16",
        "reduce.x.aos.d128.g4.bf16.p16",
        "decodedecode.x.aos.d128.g4.bf16.p16",
        "decode.x.aos.d128.g4x.bf16.p16",
        "decode.x.aos.g4.d128.bf16.p16",
        "decode.x.aos.d+128.g4.bf16.p16",
        ("decode.xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.aos.d128.g4."
         "bf16.p16"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct kernel_name out;
        kvk_error err;
        if (name_parse(bad[i], &out, &err) == KVK_OK)
            fail_msg("\"%s\" was taken for a name", bad[i]);
        assert_int_equal(err.status, KVK_E_ARG);
    }
}

static void what_fits_no_name_is_not_formatted(void **state)
{
    char name[NAME_MAX_BYTES];
    struct geometry g = plain;
    (void)state;
    assert_int_equal(name_format("reduce", "x", &g, name, sizeof name), 0);
    assert_int_equal(name_format("decode", "a.b", &g, name, sizeof name), 0);
    assert_int_equal(name_format("decode", "", &g, name, sizeof name), 0);
    g.dtype = KVK_DTYPE_DEFAULT;
    assert_int_equal(name_format("decode", "x", &g, name, sizeof name), 0);
    g = plain;
    g.head_size = 0;
    assert_int_equal(name_format("decode", "x", &g, name, sizeof name), 0);
    assert_string_equal(name, "");
    assert_int_equal(name_format("decode", "x", &plain, name, 4),
                     strlen("decode.x.aos.d128.g4.bf16.p16"));
    assert_string_equal(name, "dec");
}

static void file_names_append_target_and_extension(void **state)
{
    char file[NAME_MAX_BYTES];
    (void)state;
    name_file("decode.x.aos.d128.g4.bf16.p16", "sm_90a", "ptx", file, sizeof file);
    assert_string_equal(file, "decode.x.aos.d128.g4.bf16.p16.sm_90a.ptx");
}

static void request_text_holds_what_makes_the_kernel(void **state)
{
    struct gen_request r = {.spec_text = "spec 1\nname x\n",
                            .kind = "decode",
                            .layout = "aos",
                            .target = "sm_90a",
                            .head_size = 128,
                            .gqa = 4,
                            .page_tokens = 16,
                            .assemble = 1};
    char text[512], other[512];
    (void)state;
    size_t length = gen_request_text(&r, text, sizeof text);
    assert_int_equal(length, strlen(text));
    assert_string_equal(
        text, "kind decode\nlayout aos\ntarget sm_90a\nhead_size 128\nvalue_head_size 128\ngqa 4\n"
              "page_tokens 16\ndtype bf16\noptions 0\nassemble 1\nspec 1\nname x\n");
    r.value_head_size = 128, r.dtype = KVK_BFLOAT16;
    gen_request_text(&r, other, sizeof other);
    assert_string_equal(text, other); /* defaults spelled out make no other kernel */
    r.target = "gfx942", r.assemble = 0;
    gen_request_text(&r, text, sizeof text);
    r.assemble = 1;
    gen_request_text(&r, other, sizeof other);
    assert_string_equal(text, other);
    assert_int_equal(gen_request_text(&r, other, 5), strlen(text));
    assert_string_equal(other, "kind");
}

/* The signature line of the pages of a spec. */
static void signature_of(const struct spec *spec, char *line, size_t cap)
{
    static struct plan plan;
    static char text[8192];
    struct manifest m = {0};
    kvk_error err = {0};
    assert_int_equal(plan_make(spec, &plain, target_find("x86-64-v3"), KIND_STORE, &plan, &err),
                     KVK_OK);
    manifest_finish(&m, &plan, "n", "object", NULL, text, sizeof text);
    const char *at = strstr(text, "\nsignature ");
    assert_non_null(at);
    snprintf(line, cap, "%.*s", (int)strcspn(at + 1, "\n"), at + 1);
}

/* Rotation, width, what the norm field means: on either side each makes other pages. */
static void pages_that_mean_different_things_have_different_signatures(void **state)
{
    static const struct codec codebooks[] = {
        {.kind = CODEC_CODEBOOK, .bits = 4, .rotation = ROTATION_HADAMARD, .norm_correction = 1},
        {.kind = CODEC_CODEBOOK, .bits = 4, .rotation = ROTATION_HADAMARD},
        {.kind = CODEC_CODEBOOK, .bits = 4, .norm_correction = 1},
        {.kind = CODEC_CODEBOOK, .bits = 3, .norm_correction = 1}};
    char lines[16][256];
    (void)state;
    for (int i = 0; i < 16; i++) {
        struct spec spec = {.name = "n", .key = codebooks[i / 4], .value = codebooks[i % 4]};
        spec.nlayouts = 1;
        signature_of(&spec, lines[i], sizeof lines[i]);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(lines[i], lines[j]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_that_mean_different_things_have_different_signatures),
        cmocka_unit_test(a_name_says_what_the_kernel_is_for),
        cmocka_unit_test(names_come_back_as_they_went),
        cmocka_unit_test(requests_have_the_same_names),
        cmocka_unit_test(what_is_no_name_is_refused),
        cmocka_unit_test(what_fits_no_name_is_not_formatted),
        cmocka_unit_test(file_names_append_target_and_extension),
        cmocka_unit_test(request_text_holds_what_makes_the_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
