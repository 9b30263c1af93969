/* SPDX-License-Identifier: Apache-2.0 */
/*
** Specs that are accepted: presets, derived presets, where they are found, canonical text both ways, geometry.
** What must be rejected is in tests/fails (test_fails.c).
*/
#include "gen/spec.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char root[64]; /* a folder of our own */

static const char *in_root(const char *name)
{
    static char path[4][256];
    static int turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", root, name);
    return p;
}

static const char *write_file(const char *name, const char *text)
{
    const char *path = in_root(name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    return path;
}

static struct spec load(const char *name, const char *dirs)
{
    struct spec spec;
    kvk_error err;
    if (spec_load(name, dirs, &spec, &err) != KVK_OK)
        fail_msg("%s", err.text);
    return spec;
}

static void fails_with(const char *name, const char *dirs, const char *part)
{
    struct spec spec;
    kvk_error err;
    assert_int_equal(spec_load(name, dirs, &spec, &err), KVK_E_SPEC);
    if (!strstr(err.text, part))
        fail_msg("\"%s\" is not in: %s", part, err.text);
    assert_null(strchr(err.text, '\n'));
}

static struct spec load_source(const char *source)
{
    return load(write_file("case.lua", source), NULL);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/kvkiln-spec-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state)
{
    static const char *const names[] = {
        "case.lua", "mine.lua",   "pipe.lua",  "a/x.lua",
        "b/x.lua",  "b/loop.lua", "b/bad.lua", "b/turboquant_k8v4.lua"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(in_root(names[i]));
    rmdir(in_root("a"));
    rmdir(in_root("b"));
    rmdir(in_root("dir.lua"));
    return rmdir(root);
}

static void presets_are_what_their_names_say(void **state)
{
    (void)state;
    struct spec s = load("turboquant_k8v4", NULL);
    assert_string_equal(s.name, "turboquant_k8v4");
    assert_int_equal(s.key.kind, CODEC_FLOAT);
    assert_int_equal(s.key.format, FLOAT_E4M3);
    assert_int_equal(s.key.bits, 8);
    assert_int_equal(s.value.kind, CODEC_AFFINE);
    assert_int_equal(s.value.bits, 4);
    assert_int_equal(s.nlayouts, 3);
    static const struct {
        const char *name;
        int key, value;
    } mse[] = {
        {"turboquant_4bit_nc", 4, 4}, {"turboquant_k3v4_nc", 3, 4}, {"turboquant_3bit_nc", 3, 3}};
    for (int i = 0; i < 3; i++) {
        s = load(mse[i].name, "");
        assert_int_equal(s.key.kind, CODEC_CODEBOOK);
        assert_int_equal(s.key.bits, mse[i].key);
        assert_int_equal(s.key.rotation, ROTATION_HADAMARD);
        assert_int_equal(s.key.ncentroids, 0);
        assert_true(s.key.norm_correction);
        assert_int_equal(s.value.bits, mse[i].value);
        assert_int_equal(s.layouts[0], LAYOUT_AOS);
        assert_int_equal(s.layouts[1], LAYOUT_SOA);
        assert_int_equal(s.layouts[2], LAYOUT_NATIVE);
    }
    s = load("ultraquant_4bit", NULL);
    assert_int_equal(s.key.kind, CODEC_BLOCK_FLOAT);
    assert_int_equal(s.key.rule, BLOCK_ULTRAQUANT);
    assert_int_equal(s.key.group, 32);
    assert_int_equal(s.key.bits, 4);
    assert_int_equal(s.key.rotation, ROTATION_HADAMARD);
    assert_int_equal(s.value.rotation, ROTATION_NONE);
    assert_int_equal(s.nlayouts, 2);
    assert_int_equal(s.layouts[1], LAYOUT_NATIVE);
    assert_int_equal(s.query, QUERY_NATIVE);
}

static void plain_presets_are_alike_on_both_sides(void **state)
{
    static const struct {
        const char *name;
        enum codec_kind kind;
        int bits, group;
    } plain[] = {{"fp16", CODEC_FLOAT, 16, 0},
                 {"bf16", CODEC_FLOAT, 16, 0},
                 {"fp8_e4m3", CODEC_FLOAT, 8, 0},
                 {"nvfp4", CODEC_BLOCK_FLOAT, 4, 16},
                 {"mxfp4", CODEC_BLOCK_FLOAT, 4, 32}};
    (void)state;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        struct spec s = load(plain[i].name, NULL);
        assert_int_equal(s.key.kind, plain[i].kind);
        assert_int_equal(s.key.bits, plain[i].bits);
        assert_int_equal(s.key.group, plain[i].group);
        assert_int_equal(s.key.rotation, ROTATION_NONE);
        assert_memory_equal(&s.key, &s.value, sizeof s.key);
        assert_int_equal(s.nlayouts, 1);
        assert_int_equal(s.layouts[0], LAYOUT_AOS);
    }
}

static void preset_files_equal_the_embedded_copies(void **state)
{
    const char *name, *source;
    int count = 0;
    (void)state;
    for (; spec_embedded(count, &name, &source); count++) {
        char a[2048], b[2048], path[1024];
        struct spec embedded = load(name, NULL);
        snprintf(path, sizeof path, "%s/specs/%s.lua", TEST_ROOT, name);
        struct spec file = load(path, NULL);
        spec_to_text(&embedded, a, sizeof a);
        spec_to_text(&file, b, sizeof b);
        assert_string_equal(a, b);
    }
    assert_true(count >= 11);
    assert_int_equal(spec_embedded(-1, &name, &source), 0);
    assert_int_equal(spec_embedded(1000, &name, &source), 0);
}

static void a_derived_preset_changes_what_it_names(void **state)
{
    (void)state;
    const char *path =
        write_file("mine.lua", "return preset \"turboquant_4bit_nc\" { value = { bits = 3 } }\n");
    struct spec base = load("turboquant_4bit_nc", NULL), s = load(path, NULL);
    assert_string_equal(s.name, "mine");
    assert_int_equal(s.value.bits, 3);
    assert_memory_equal(&s.key, &base.key, sizeof s.key);
    assert_int_equal(s.nlayouts, 3);
    s = load_source("return preset \"turboquant_4bit_nc\" {"
                    "  key = float { format = \"fp16\" }, layouts = { \"soa\" } }");
    assert_int_equal(s.key.kind, CODEC_FLOAT);
    assert_int_equal(s.key.bits, 16);
    assert_int_equal(s.nlayouts, 1);
    assert_int_equal(s.layouts[0], LAYOUT_SOA);
    s = load_source("return preset \"ultraquant_4bit\" {"
                    "  key = { rule = \"nvfp4\" }, query = \"e4m3\", name = \"nv\" }");
    assert_int_equal(s.key.group, 16);
    assert_int_equal(s.key.rotation, ROTATION_HADAMARD);
    assert_int_equal(s.value.group, 32);
    assert_int_equal(s.query, QUERY_E4M3);
    assert_string_equal(s.name, "nv");
    s = load_source("return preset \"turboquant_k8v4\"");
    assert_string_equal(s.name, "case");
}

static void a_file_may_compute(void **state)
{
    (void)state;
    struct spec s = load_source(
        "local c = {}\n"
        "for i = 1, 8 do c[i] = math.sin(i / 8) - 0.56 end\n"
        "table.sort(c)\n"
        "local function codes(bits) return codebook { bits = bits, centroids = c } end\n"
        "assert(not pcall(codes, 4) and (\"x\"):rep(3) == \"xxx\")\n"
        "return preset { key = codes(3.0), value = affine { bits = #c } }\n");
    assert_int_equal(s.key.ncentroids, 8);
    assert_true(s.key.centroids[7] > 0.28f && s.key.centroids[7] < 0.282f);
    assert_int_equal(s.value.bits, 8);
    assert_int_equal(s.nlayouts, 1);
    s = load_source("\xef\xbb\xbfreturn preset \"turboquant_k8v4\"\r\n");
    assert_int_equal(s.key.kind, CODEC_FLOAT);
}

static void names_are_searched_in_order(void **state)
{
    char dirs[256];
    (void)state;
    mkdir(in_root("a"), 0700);
    mkdir(in_root("b"), 0700);
    write_file("a/x.lua", "return preset \"turboquant_k8v4\" {}\n");
    write_file("b/x.lua", "return preset \"turboquant_4bit_nc\" {}\n");
    write_file("b/turboquant_k8v4.lua",
               "return preset { key = affine { bits = 8 }, value = affine { bits = 8 } }\n");
    snprintf(dirs, sizeof dirs, "::%s/missing:%s/b:%s/a:", root, root, root);
    assert_int_equal(load("x", dirs).key.kind, CODEC_CODEBOOK);
    snprintf(dirs, sizeof dirs, "%s/a:%s/b", root, root);
    assert_int_equal(load("x", dirs).key.kind,
                     CODEC_AFFINE); /* its base is found in b, before the embedded one */
    assert_int_equal(load("turboquant_k8v4", dirs).value.bits, 8);
    assert_int_equal(load("turboquant_k8v4", NULL).value.bits, 4);
    fails_with("y", dirs, "y.lua in ");
    fails_with("y", dirs, root);
    fails_with("turboquant_5bit", NULL, "turboquant_3bit_nc");
    write_file("b/loop.lua", "return preset \"loop\" {}\n");
    fails_with("loop", dirs, "at most 8 presets");
    write_file("b/bad.lua", "return preset {\nkey = affine { bits = 77 } }\n");
    fails_with(write_file("case.lua", "return preset \"bad\" {}"), dirs,
               "/b/bad.lua:2: affine.bits: 77: accepted 2..8");
}

static void only_regular_files_are_read(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(in_root("pipe.lua"), 0600), 0);
    assert_int_equal(mkdir(in_root("dir.lua"), 0700), 0);
    fails_with(in_root("pipe.lua"), NULL, "pipe.lua: file: not a regular file: accepted");
    fails_with(in_root("dir.lua"), NULL, "dir.lua: file: a directory: accepted");
    fails_with(in_root("none.lua"), NULL, "none.lua: file: no such file: accepted");
    fails_with("/dev/zero", NULL, "/dev/zero: file: not a regular file: accepted");
    fails_with("/proc/self/pagemap", NULL, "pagemap: file");
    fails_with("", NULL, "accepted a name");
    fails_with("A b", NULL, "accepted a name");
    fails_with("x.lua/y", NULL, "x.lua/y: file");
    struct spec spec;
    assert_int_equal(spec_load(NULL, NULL, &spec, NULL), KVK_E_ARG);
    char *longer = malloc(100000);
    assert_non_null(longer);
    memset(longer, 'x', 99999);
    longer[99999] = 0;
    fails_with(longer, NULL, "accepted a name");
    fails_with("x", longer, "x.lua in xxx");
    longer[0] = '/';
    fails_with(longer, NULL, "file: cannot be opened");
    free(longer);
}

static void text_comes_back_as_the_same_spec(void **state)
{
    static const char *const sources[] = {
        "return preset \"turboquant_4bit_nc\"",
        "return preset \"ultraquant_4bit\" { value = { rule = \"nvfp4\" } }",
        ("return preset { key = codebook { bits = 2, centroids = { -1, -0.0, 0.1, 1 }, rotation = "
         "\"none\", "
         "norm_correction = false }, value = float { format = \"bf16\" }, layouts = { \"soa\", "
         "\"aos\" } }"),
        "return preset { key = float { format = \"e5m2\" }, value = affine { bits = 7 }, query = "
        "\"e4m3\" }",
        "return preset \"turboquant_3bit_nc\" { key = { unbiased_norm = true }, value = { "
        "stored_params "
        "= true } }",
        "return preset \"ultraquant_4bit\" { key = { scale_constant = 0.2 }, value = { "
        "scale_search = "
        "true, scale_constant = 0.1 } }"};
    (void)state;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        char text[2048], again[2048], cut[32];
        struct spec spec = load_source(sources[i]), back;
        kvk_error err;
        size_t length = spec_to_text(&spec, text, sizeof text);
        assert_int_equal(length, strlen(text));
        if (spec_from_text(text, &back, &err) != KVK_OK)
            fail_msg("%s", err.text);
        assert_memory_equal(&back.key, &spec.key, sizeof spec.key);
        assert_memory_equal(&back.value, &spec.value, sizeof spec.value);
        spec_to_text(&back, again, sizeof again);
        assert_string_equal(text, again);
        assert_int_equal(spec_to_text(&spec, cut, sizeof cut), length);
        assert_int_equal(strlen(cut), sizeof cut - 1);
        for (size_t n = 0; n < length; n++) { /* no proper beginning of it is one */
            memcpy(again, text, n);
            again[n] = 0;
            assert_int_equal(spec_from_text(again, &back, NULL), KVK_E_SPEC);
        }
    }
}

/* Options of the encoder show in the text when they are set, and only then. */
static void encoder_options_are_part_of_the_text(void **state)
{
    char plain[2048], text[2048], usual[2048];
    struct spec s = load("ultraquant_4bit", NULL);
    (void)state;
    spec_to_text(&s, plain, sizeof plain);
    s = load_source("return preset \"ultraquant_4bit\" { name = \"ultraquant_4bit\", key = { "
                    "scale_constant = 0.2, scale_search = true } }");
    assert_true(s.key.scale_constant == 0.2f);
    assert_int_equal(s.key.scale_search, 1);
    assert_true(s.value.scale_constant == 0);
    spec_to_text(&s, text, sizeof text);
    assert_non_null(strstr(text, "\nkey.scale_constant 3e4ccccd\nkey.scale_search 1\nvalue "));
    s = load_source("return preset \"ultraquant_4bit\" { name = \"ultraquant_4bit\", key = { "
                    "scale_constant = 0.156, scale_search = false } }");
    spec_to_text(&s, usual, sizeof usual);
    assert_string_equal(usual, plain);
    s = load_source("return preset \"turboquant_4bit_nc\" { key = { unbiased_norm = true }, "
                    "value = { stored_params = true } }");
    spec_to_text(&s, text, sizeof text);
    assert_non_null(strstr(text, "\nkey.norm_correction 1\nkey.unbiased_norm 1\nvalue "));
    assert_non_null(strstr(text, "\nvalue.bits 4\nvalue.stored_params 1\nlayouts "));
}

static void options_that_nobody_wrote_are_refused(void **state)
{
    static const struct {
        const char *line, *message;
    } lines[] = {
        {"key.scale_constant 3e1fbe77", "text:7: key.scale_constant: 3e1fbe77: accepted a number"},
        {"key.scale_constant 0", "text:7: key.scale_constant: 0: accepted a number"},
        {"key.scale_constant 00000000", "text:7: key.scale_constant: 00000000: accepted a number"},
        {"key.scale_constant 7fc00000", "text:7: key.scale_constant: 7fc00000: accepted a number"},
        {"key.scale_constant 3f19999a", "text:7: key.scale_constant: 3f19999a: accepted a number"},
        {"key.scale_search 0", "text:7: key.scale_search: 0: accepted 1"},
        {"key.scale_search 1\nkey.scale_constant 3e4ccccd",
         "text:8: key.scale_constant: 3e4ccccd: accepted a line \"value VALUE\" here"},
        {"key.unbiased_norm 1",
         "text:7: key.unbiased_norm: 1: accepted a line \"value VALUE\" here"},
    };
    char text[2048], edited[4096];
    struct spec spec = load("ultraquant_4bit", NULL), back;
    (void)state;
    spec_to_text(&spec, text, sizeof text);
    char *value = strstr(text, "value ");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        kvk_error err = {0};
        snprintf(edited, sizeof edited, "%.*s%s\n%s", (int)(value - text), text, lines[i].line,
                 value);
        assert_int_equal(spec_from_text(edited, &back, &err), KVK_E_SPEC);
        if (!strstr(err.text, lines[i].message))
            fail_msg("\"%s\" is not in: %s", lines[i].message, err.text);
    }
}

/* native is not defined for every codec: a preset that changes its base's keeps the layouts that its own have. */
static void inherited_layouts_are_those_the_codecs_have(void **state)
{
    (void)state;
    struct spec s = load_source("return preset \"turboquant_4bit_nc\" { value = { bits = 5 } }");
    assert_int_equal(s.nlayouts, 2);
    assert_int_equal(s.layouts[1], LAYOUT_SOA);
    assert_int_equal(s.layouts[2], LAYOUT_AOS);
    s = load_source("return preset \"turboquant_4bit_nc\" { value = { bits = 2 } }");
    assert_int_equal(s.nlayouts, 3);
    assert_int_equal(s.layouts[2], LAYOUT_NATIVE);
}

static void texts_that_nobody_wrote_are_refused(void **state)
{
    static const struct {
        const char *from, *to, *message;
    } edits[] = {
        {"spec 1", "spec 2", "text:1: spec: 2: accepted 1"},
        {"bits 4", "bits 04", "text:4: key.bits: 04: accepted 2..4"},
        {"bits 4", "bits 5", "text:4: key.bits: 5: accepted 2..4"},
        {"bits 4", "bits +4", "key.bits: +4"},
        {"hadamard", "Hadamard", "text:6: key.rotation: Hadamard: accepted none, hadamard"},
        {"lloyd_max", "3f800000", "key.centroids: 1 numbers: accepted 16"},
        {"lloyd_max", "7fc00000", "key.centroids[1]: nan"},
        {"key codebook\n", "", "text:3: key.bits: 4: accepted a line \"key VALUE\" here"},
        {"aos soa native", "aos soa aos", "layouts: aos twice"},
        {"aos soa", "aos  soa", "layouts: aos  soa native: accepted"},
        {"query native\n", "query native", "accepted one line with an end"},
        {"query native\n", "query native\nmore 1\n", "text:12: more: 1: accepted a line"},
        {"name turboquant_4bit_nc", "name ", "name: \"\": accepted"}};
    char text[2048], edited[2048];
    struct spec spec = load("turboquant_4bit_nc", NULL), back;
    (void)state;
    spec_to_text(&spec, text, sizeof text);
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        kvk_error err;
        const char *at = strstr(text, edits[i].from);
        assert_non_null(at);
        snprintf(edited, sizeof edited, "%.*s%s%s", (int)(at - text), text, edits[i].to,
                 at + strlen(edits[i].from));
        assert_int_equal(spec_from_text(edited, &back, &err), KVK_E_SPEC);
        if (!strstr(err.text, edits[i].message))
            fail_msg("\"%s\" is not in: %s", edits[i].message, err.text);
    }
}

static void geometry_is_checked_field_by_field(void **state)
{
    static const struct {
        const char *spec;
        struct geometry g;
        kvk_status status;
        const char *message;
    } cases[] = {
#define GEO(layout, d, dv, gqa, page, dtype) {LAYOUT_##layout, d, dv, gqa, page, dtype, 0}
        {"turboquant_4bit_nc", GEO(SOA, 128, 64, 128, 4096, KVK_FLOAT16), KVK_OK, ""},
        {"turboquant_k8v4", GEO(AOS, 16, 1024, 1, 1, KVK_BFLOAT16), KVK_OK, ""},
        {"ultraquant_4bit", GEO(AOS, 96, 96, 4, 16, KVK_BFLOAT16), KVK_OK, ""},
        {"ultraquant_4bit", GEO(SOA, 128, 128, 4, 16, KVK_BFLOAT16), KVK_E_ARG,
         "layout: soa: accepted aos, native (of ultraquant_4bit)"},
        {"ultraquant_4bit", GEO(AOS, 80, 128, 4, 16, KVK_BFLOAT16), KVK_E_SHAPE,
         "head_size: 80: accepted 16..1024, a multiple of 32"},
        {"ultraquant_4bit", GEO(AOS, 64, 80, 4, 16, KVK_BFLOAT16), KVK_E_SHAPE,
         "value_head_size: 80: accepted 16..1024, a multiple of 32"},
        {"turboquant_k8v4", GEO(AOS, 8, 8, 4, 16, KVK_BFLOAT16), KVK_E_SHAPE,
         "head_size: 8: accepted 16..1024, a multiple of 8"},
        {"turboquant_k8v4", GEO(AOS, 1032, 64, 4, 16, KVK_BFLOAT16), KVK_E_SHAPE,
         "head_size: 1032"},
        {"turboquant_k8v4", GEO(AOS, 100, 64, 4, 16, KVK_BFLOAT16), KVK_E_SHAPE, "head_size: 100"},
        {"turboquant_k8v4", GEO(AOS, 64, 0, 4, 16, KVK_BFLOAT16), KVK_E_SHAPE,
         "value_head_size: 0"},
        {"turboquant_k8v4", GEO(AOS, 64, 64, 0, 16, KVK_BFLOAT16), KVK_E_SHAPE,
         "gqa: 0: accepted 1..128"},
        {"turboquant_k8v4", GEO(AOS, 64, 64, 129, 16, KVK_BFLOAT16), KVK_E_SHAPE,
         "gqa: 129: accepted 1..128"},
        {"turboquant_k8v4", GEO(AOS, 64, 64, 1, 4097, KVK_BFLOAT16), KVK_E_SHAPE,
         "page_tokens: 4097: accepted 1..4096"},
        {"turboquant_k8v4", GEO(AOS, 64, 64, 1, 16, KVK_DTYPE_DEFAULT), KVK_E_ARG,
         "dtype: 0: accepted fp16, bf16"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct spec spec = load(cases[i].spec, NULL);
        kvk_error err = {0};
        assert_int_equal(spec_check_geometry(&spec, &cases[i].g, &err), cases[i].status);
        if (!strstr(err.text, cases[i].message))
            fail_msg("\"%s\" is not in: %s", cases[i].message, err.text);
    }
}

static void layouts_have_names(void **state)
{
    (void)state;
    assert_string_equal(layout_name(LAYOUT_SOA), "soa");
    assert_int_equal(layout_from_name("aos"), LAYOUT_AOS);
    assert_int_equal(layout_from_name("AOS"), -1);
    assert_int_equal(layout_from_name(NULL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_are_what_their_names_say),
        cmocka_unit_test(preset_files_equal_the_embedded_copies),
        cmocka_unit_test(plain_presets_are_alike_on_both_sides),
        cmocka_unit_test(a_derived_preset_changes_what_it_names),
        cmocka_unit_test(a_file_may_compute),
        cmocka_unit_test(names_are_searched_in_order),
        cmocka_unit_test(only_regular_files_are_read),
        cmocka_unit_test(text_comes_back_as_the_same_spec),
        cmocka_unit_test(encoder_options_are_part_of_the_text),
        cmocka_unit_test(options_that_nobody_wrote_are_refused),
        cmocka_unit_test(texts_that_nobody_wrote_are_refused),
        cmocka_unit_test(inherited_layouts_are_those_the_codecs_have),
        cmocka_unit_test(geometry_is_checked_field_by_field),
        cmocka_unit_test(layouts_have_names),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
