/* SPDX-License-Identifier: Apache-2.0 */
/* Tuned tables: what is read, what is refused with which place, which row decides; a plan is part of
** the key. */
#include "gen/plan.h"
#include "gen/target.h"
#include "runtime/tuned.h"

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

static const char SPEC[] =
    "spec 1\nname x\nkey codebook\nkey.bits 4\nkey.centroids lloyd_max\nkey.rotation hadamard\n"
    "key.norm_correction 1\nvalue affine\nvalue.bits 4\nlayouts aos soa\nquery native\n";

static struct gen_request request(void)
{
    return (struct gen_request){.spec_text = SPEC,
                                .kind = "decode",
                                .layout = "soa",
                                .target = "sm_90a",
                                .head_size = 128,
                                .gqa = 4,
                                .page_tokens = 16,
                                .dtype = KVK_BFLOAT16};
}

static void rejects(const char *text, const char *message)
{
    struct tuned_table table;
    kvk_error err = {0};
    assert_int_equal(tuned_read("t.lua", text, strlen(text), &table, &err), KVK_E_SPEC);
    if (strcmp(err.text, message))
        fail_msg("%s: \"%s\", expected \"%s\"", text, err.text, message);
    assert_int_equal(table.count, 0);
}

#define KEYS "kind, layout, key, value, dtype, head_size, value_head_size, gqa, page, options, plan, note"

static void what_is_no_table_is_refused_with_its_line(void **state)
{
    (void)state;
    rejects("", "t.lua:1: table: the end: accepted return { rows }");
    rejects("-- only a comment", "t.lua:1: table: the end: accepted return { rows }");
    rejects("os.exit()", "t.lua:1: table: os: accepted return { rows }");
    rejects("return 5", "t.lua:1: table: 5: accepted {");
    rejects("return {\n  {", "t.lua:2: row: the end: accepted " KEYS);
    rejects("return {\n\n { kind = \"decode\", warp = 3 } }", "t.lua:3: row: warp: accepted " KEYS);
    rejects("return {\n { kind = \"decode\", plan = { warp = 3 } } }",
            "t.lua:2: plan: warp: accepted keys narrow warps subtiles prefetch images producer "
            "min_ctas spread_tables "
            "quick dense ");
    rejects("return {\n { kind = \"decode\",\n plan = { warps = 32 } } }",
            "t.lua:3: warps: 32: accepted 1..16");
    rejects("return { { kind = \"decode\", plan = { warps = -1 } } }",
            "t.lua:1: warps: -1: accepted 1..16");
    rejects("return { { kind = \"decode\", plan = { warps = 1.5 } } }",
            "t.lua:1: warps: 1.5: accepted 1..16");
    rejects("return { { kind = \"decode\", plan = { warps = 4, warps = 8 } } }",
            "t.lua:1: plan: warps: accepted each key once");
    rejects("return { { kind = \"store\", plan = {} } }",
            "t.lua:1: kind: store: accepted decode|unified");
    rejects("return { { kind = \"decode\", layout = \"x\", plan = {} } }",
            "t.lua:1: layout: x: accepted aos|soa|native");
    rejects("return { { kind = \"decode\", gqa = 0, plan = {} } }",
            "t.lua:1: gqa: 0: accepted 1..65536");
    rejects("return { { kind = \"decode\", gqa = 4, gqa = 4, plan = {} } }",
            "t.lua:1: row: gqa: accepted each key once");
    rejects("return { { kind = \"decode\" } }",
            "t.lua:1: plan: : accepted a row with kind and plan");
    rejects("return { { plan = {} } }", "t.lua:1: kind: : accepted a row with kind and plan");
    rejects("return { { kind = \"dec\\097\", plan = {} } }",
            "t.lua:1: kind: dec: accepted decode|unified");
    rejects("return { } x", "t.lua:1: table: x: accepted nothing behind the table");
    rejects("return { { kind = \"decode\", plan = {} } { } }", "t.lua:1: table: {: accepted ,");
    rejects("return { { kind = \"decode\" plan = {} } }", "t.lua:1: row: plan: accepted ,");
    rejects("return { { kind = decode, plan = {} } }",
            "t.lua:1: kind: decode: accepted decode|unified");
    rejects("return { { kind = \"decode\", options = \"none\", plan = {} } }",
            "t.lua:1: options: none: accepted any");
    rejects("return { { kind = \"decode\", plan = {}, note = [[x]] } }",
            "t.lua:1: note: [: accepted a string of at most 127 bytes");
}

/* Whatever stands where a number belongs is in the message as it was written, bounded in length. */
static void numbers_are_shown_as_written(void **state)
{
    static const struct {
        const char *written, *shown;
    } cases[] = {
        {"1.5", "1.5"},
        {"-1", "-1"},
        {"+4", "+4"},
        {".5", ".5"},
        {"1e-3", "1e-3"},
        {"0x10", "0x10"},
        {"4x", "4x"},
        {"70000--comment\n", "70000"},
        {"99999999999", "99999999999"},
        {"18446744073709551620", "18446744073709551620"},
        {"123456789012345678901234567890123456789", "123456789012345678901234567890123456789"},
        {"1234567890123456789012345678901234567890.5",
         "123456789012345678901234567890123456789..."}};
    char text[160], message[160];
    struct tuned_plan plan;
    kvk_error err;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "return { { kind = \"decode\", gqa = %s, plan = {} } }",
                 cases[i].written);
        snprintf(message, sizeof message, "t.lua:1: gqa: %s: accepted 1..65536", cases[i].shown);
        rejects(text, message);
        snprintf(text, sizeof text, "return { { kind = \"decode\", plan = { min_ctas = %s } } }",
                 cases[i].written);
        snprintf(message, sizeof message, "t.lua:1: min_ctas: %s: accepted 0..8", cases[i].shown);
        rejects(text, message);
    }
    assert_int_equal(tuned_plan_parse("--plan", "warps=99999999999999999999", &plan, &err),
                     KVK_E_ARG);
    assert_string_equal(err.text, "--plan: warps: 99999999999999999999: accepted 1..16");
}

enum { WORDS_BYTES = 512 };

static void add_word(char *words, const char *kind, const char *of, int first, int last)
{
    for (int bits = first; bits <= last; bits++) {
        size_t used = strlen(words);
        snprintf(words + used, WORDS_BYTES - used, "%s%s%d", used ? "|" : "", kind, bits);
    }
    for (size_t n; *of; of += n + (of[n] == '|')) {
        size_t used = strlen(words);
        n = strcspn(of, "|");
        snprintf(words + used, WORDS_BYTES - used, "|%.*s", (int)n, of);
    }
}

/* All codecs of gen/spec.def, by the words of tables: what a codec has one of says which it is. */
static void all_codecs(char *words)
{
    *words = '\0';
#define FIELD(kind, name, type, member, low, high, fallback, text, accepted, meaning)              \
    if (!strcmp(#name, "bits"))                                                                    \
        add_word(words, !strcmp(#kind, "CODEBOOK") ? "codebook" : "affine", "", low, high);        \
    else if (!strcmp(#name, "format") || !strcmp(#name, "rule"))                                   \
        add_word(words, "", text, 1, 0);
#include "gen/spec.def"
}

/* A row with this word in one field, and what is said of it. */
static int takes(const char *field, const char *word, kvk_error *err)
{
    struct tuned_table table;
    char text[WORDS_BYTES];
    int kind = !strcmp(field, "kind");
    snprintf(text, sizeof text, "return {\n{ %s%s = \"%s\", plan = { warps = 4 } } }",
             kind ? "" : "kind = \"decode\", ", field, word);
    kvk_status status = tuned_read("t.lua", text, strlen(text), &table, err);
    tuned_free(&table);
    return status == KVK_OK;
}

/* Each field of words takes those that a request can have, and says which they are of every other. */
static void every_word_of_a_row_is_one_of_its_field(void **state)
{
    static const char *const wrong[] = {"frob",           "",     "DECODE", "codebook5", "affine",
                                        "decode|unified", "e4m3 "};
    char codecs[WORDS_BYTES], message[WORDS_BYTES], word[40];
    all_codecs(codecs);
    const struct {
        const char *field, *words;
    } cases[] = {{"kind", "decode|unified"},
                 {"layout", "aos|soa|native"},
                 {"key", codecs},
                 {"value", codecs},
                 {"dtype", "bf16|fp16"}};
    kvk_error err;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *field = cases[i].field;
        for (const char *w = cases[i].words; *w; w += strcspn(w, "|"), w += *w == '|') {
            snprintf(word, sizeof word, "%.*s", (int)strcspn(w, "|"), w);
            if (!takes(field, word, &err))
                fail_msg("%s", err.text);
        }
        for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
            if (takes(field, wrong[n], &err))
                fail_msg("%s = \"%s\" is accepted", field, wrong[n]);
            snprintf(message, sizeof message, "t.lua:2: %s: %s: accepted %s", field, wrong[n],
                     cases[i].words);
            assert_string_equal(err.text, message);
        }
    }
}

static void every_prefix_of_a_table_is_refused(void **state)
{
    static const char text[] = "return {\n  { kind = \"decode\", key = \"e4m3\", gqa = 8, plan = { "
                               "warps = 8, min_ctas = 2, }, },\n}";
    struct tuned_table table;
    kvk_error err;
    (void)state;
    for (size_t n = 0; n < sizeof text - 1; n++) {
        char *copy = malloc(n ? n : 1); /* exactly as long: an overrun shows under a sanitizer */
        memcpy(copy, text, n);
        assert_int_equal(tuned_read("t.lua", copy, n, &table, &err), KVK_E_SPEC);
        free(copy);
    }
    assert_int_equal(tuned_read("t.lua", text, sizeof text - 1, &table, &err), KVK_OK);
    assert_int_equal(table.count, 1);
    assert_int_equal(table.rows[0].line, 2);
    assert_int_equal(table.rows[0].plan.value[PLAN_min_ctas], 2);
    assert_int_equal(table.rows[0].plan.value[PLAN_prefetch], TUNED_RULE);
    tuned_free(&table);
}

static void the_first_row_that_fits_decides(void **state)
{
    static const char text[] =
        "return {\n"
        "{ kind = \"unified\", plan = { warps = 1 } },\n"
        "{ kind = \"decode\", layout = \"aos\", plan = { warps = 1 } },\n"
        "{ kind = \"decode\", key = \"codebook3\", plan = { warps = 1 } },\n"
        "{ kind = \"decode\", value = \"e4m3\", plan = { warps = 1 } },\n"
        "{ kind = \"decode\", head_size = 64, plan = { warps = 1 } },\n"
        "{ kind = \"decode\", value_head_size = 64, plan = { warps = 1 } },\n"
        "{ kind = \"decode\", gqa = 8, plan = { warps = 1 } },\n"
        "{ kind = \"decode\", page = 32, plan = { warps = 1 } },\n"
        "{ kind = \"decode\", dtype = \"fp16\", plan = { warps = 1 } },\n"
        "{ kind = \"decode\", layout = \"soa\", key = \"codebook4\", value = \"affine4\", "
        "head_size = 128, value_head_size = 128, "
        "gqa = 4, page = 16, dtype = \"bf16\", plan = { warps = 8 } },\n"
        "{ kind = \"decode\", plan = { warps = 2 } },\n}";
    struct gen_request r = request();
    struct tuned_table table;
    (void)state;
    assert_int_equal(tuned_read("t.lua", text, sizeof text - 1, &table, NULL), KVK_OK);
    assert_int_equal(tuned_match(&table, &r)->line, 11);
    r.gqa = 16;
    assert_int_equal(tuned_match(&table, &r)->line, 12);
    r.kind = "unified";
    assert_int_equal(tuned_match(&table, &r)->line, 2);
    table.count = 0;
    assert_null(tuned_match(&table, &r));
    tuned_free(&table);
}

/* What a row says was measured without options, unless it says otherwise. */
static void rows_are_for_kernels_without_options(void **state)
{
    static const char text[] =
        "return {\n"
        "{ kind = \"decode\", plan = { warps = 8 } },\n"
        "{ kind = \"decode\", gqa = 8, options = \"any\", plan = { warps = 4 } },\n"
        "{ kind = \"unified\", options = \"any\", plan = { warps = 2 } },\n}";
    struct gen_request r = request();
    struct tuned_table table;
    (void)state;
    assert_int_equal(tuned_read("t.lua", text, sizeof text - 1, &table, NULL), KVK_OK);
    assert_int_equal(tuned_match(&table, &r)->line, 2);
    r.gqa = 8;
    assert_int_equal(tuned_match(&table, &r)->line, 2);
    r.kind = "unified";
    assert_int_equal(tuned_match(&table, &r)->line, 4);
    for (unsigned options = 1; options <= KVK_ALL_OPTIONS; options++) {
        r = request();
        r.options = options;
        assert_null(tuned_match(&table, &r));
        r.gqa = 8;
        assert_int_equal(tuned_match(&table, &r)->line, 3);
        r.kind = "unified";
        assert_int_equal(tuned_match(&table, &r)->line, 4);
    }
    tuned_free(&table);
}

static void codecs_have_words(void **state)
{
    static const struct {
        const char *text, *word;
    } cases[] = {{"name x\nkey codebook\nkey.bits 3\nvalue affine\n", "codebook3"},
                 {"name x\nkey affine\nkey.bits 8\n", "affine8"},
                 {"name x\nkey float\nkey.format e4m3\n", "e4m3"},
                 {"name x\nkey block_float\nkey.rule ultraquant\n", "ultraquant"},
                 {"name x\nvalue affine\n", ""},
                 {"", ""}};
    char word[20];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tuned_codec(cases[i].text, "key", word, sizeof word);
        assert_string_equal(word, cases[i].word);
    }
}

static void plans_have_one_text(void **state)
{
    struct tuned_plan plan;
    char text[TUNED_PLAN_BYTES];
    kvk_error err;
    (void)state;
    assert_int_equal(tuned_plan_parse("--plan", "min_ctas=2,warps=8", &plan, &err), KVK_OK);
    assert_int_equal(tuned_plan_format(&plan, text, sizeof text), strlen("warps=8,min_ctas=2"));
    assert_string_equal(text, "warps=8,min_ctas=2");
    static const char *const wrong[] = {"warps", "warps=", "warps=8x", "warps=17", "warps=8,",
                                        "=8",    "warp=8", "warps=-1", ","};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (i != 4 && tuned_plan_parse("--plan", wrong[i], &plan, &err) != KVK_E_ARG)
            fail_msg("%s is accepted", wrong[i]);
    assert_int_equal(tuned_plan_parse("--plan", "warps=17", &plan, &err), KVK_E_ARG);
    assert_string_equal(err.text, "--plan: warps: 17: accepted 1..16");
}

static void a_plan_is_part_of_the_key(void **state)
{
    struct gen_request r = request();
    char text[600], other[600];
    (void)state;
    gen_request_text(&r, text, sizeof text);
    r.plan = "";
    gen_request_text(&r, other, sizeof other);
    assert_string_equal(text, other);
    r.plan = "warps=8";
    gen_request_text(&r, other, sizeof other);
    assert_non_null(strstr(other, "\nplan warps=8\nspec 1\n"));
    r.plan_source = "tuned/sm_90a.lua:3";
    gen_request_text(&r, text, sizeof text);
    assert_string_equal(text, other);
}

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void tables_are_found_in_the_order_of_presets(void **state)
{
    char dir[] = "/tmp/kvk-tuned.XXXXXX", path[100], dirs[100];
    struct gen_request r = request();
    struct tuned found;
    kvk_error err;
    (void)state;
    assert_non_null(mkdtemp(dir));
    for (const char *sub = "ab"; *sub; sub++) {
        snprintf(path, sizeof path, "%s/%c", dir, *sub), mkdir(path, 0777);
        snprintf(path, sizeof path, "%s/%c/tuned", dir, *sub), mkdir(path, 0777);
        snprintf(path, sizeof path, "%s/%c/tuned/sm_90a.lua", dir, *sub);
        put(path, *sub == 'a' ? "return {\n{ kind = \"decode\", gqa = 4, plan = { warps = 8 } } }"
                              : "return { { kind = \"decode\", plan = { warps = 2 } } }");
    }
    snprintf(dirs, sizeof dirs, "/nowhere::%s/a:%s/b", dir, dir);
    assert_int_equal(tuned_lookup(dirs, &r, &found, &err), KVK_OK);
    assert_string_equal(found.plan, "warps=8");
    assert_string_equal(found.source, "tuned/sm_90a.lua:2");
    r.gqa = 8; /* the first table decides as a whole */
    assert_int_equal(tuned_lookup(dirs, &r, &found, &err), KVK_OK);
    assert_string_equal(found.plan, "");
    r.kind = "store";
    assert_int_equal(tuned_lookup(dirs, &r, &found, &err), KVK_OK);
    assert_string_equal(found.plan, "");
    r.kind = "decode";
    put(path, "return { nonsense }");
    snprintf(dirs, sizeof dirs, "%s/b", dir);
    assert_int_equal(tuned_lookup(dirs, &r, &found, &err), KVK_E_SPEC);
    assert_non_null(strstr(err.text, "/b/tuned/sm_90a.lua:1: table: nonsense"));
    snprintf(path, sizeof path, "rm -rf %s", dir);
    assert_int_equal(system(path), 0);
}

static kvk_status plan_with(const char *kind, const char *values, const char *source,
                            const char *target, struct plan *plan, kvk_error *err)
{
    struct spec spec;
    struct geometry geo = {.layout = LAYOUT_SOA,
                           .head_size = 128,
                           .value_head_size = 128,
                           .gqa = 4,
                           .page_tokens = 16,
                           .dtype = KVK_BFLOAT16};
    assert_int_equal(spec_load("turboquant_4bit_nc", NULL, &spec, err), KVK_OK);
    return plan_make_set(&spec, &geo, target_find(target), (enum kind)kind_from_name(kind), values,
                         source, plan, err);
}

static void a_plan_says_where_its_values_are_from(void **state)
{
    struct plan plan;
    char text[4096];
    kvk_error err;
    (void)state;
    assert_int_equal(plan_with("decode", "warps=8", "tuned/sm_90a.lua:7", "sm_90a", &plan, &err),
                     KVK_OK);
    assert_int_equal(plan.warps, 8);
    assert_int_equal(plan.threads, 256 + 32); /* a producer beside eight warps */
    assert_int_equal(plan.token_warps, 8);
    plan_print(&plan, text, sizeof text);
    assert_non_null(strstr(text, "warps 8  # tuned/sm_90a.lua:7; by rule 16\n"));
    assert_null(strstr(text, "left_out"));
}

/* The rule is about warps of a multiprocessor, whatever a CTA has. */
static void the_register_limit_follows_the_warps(void **state)
{
    static const struct {
        const char *values;
        int min_ctas;
    } cases[] = {{"", 0},
                 {"images=0", 3},
                 {"images=0,warps=2", 6},
                 {"images=0,warps=8", 0},
                 {"warps=8,min_ctas=2", 2}};
    struct plan plan;
    kvk_error err;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(plan_with("decode", cases[i].values, NULL, "sm_90a", &plan, &err), KVK_OK);
        assert_int_equal(plan.min_ctas, cases[i].min_ctas);
    }
}

static void values_that_do_not_suit_are_refused_or_left_out(void **state)
{
    static const struct {
        const char *kind, *values, *target, *said;
    } cases[] = {{"decode", "warps=3", "sm_90a", "warps 3"},
                 {"decode", "min_ctas=2", "gfx942", "min_ctas 2"},
                 {"decode", "min_ctas=2", "x86-64-v3", "min_ctas 2"},
                 {"decode", "quick=1", "x86-64-v3", "quick 1"},
                 {"decode", "subtiles=1", "gfx950", "subtiles 1"},
                 {"store", "warps=8", "sm_90a", "warps 8"}};
    struct plan plan, ruled;
    char text[4096], line[600];
    kvk_error err;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(
            plan_with(cases[i].kind, cases[i].values, NULL, cases[i].target, &plan, &err),
            KVK_E_ARG);
        assert_non_null(strstr(err.text, cases[i].said));
        snprintf(line, sizeof line, "left_out 1  # t:1: %s\n", err.text); /* all of it */
        assert_int_equal(
            plan_with(cases[i].kind, cases[i].values, "t:1", cases[i].target, &plan, &err), KVK_OK);
        assert_int_equal(plan_with(cases[i].kind, NULL, NULL, cases[i].target, &ruled, &err),
                         KVK_OK);
        assert_int_equal(plan.warps, ruled.warps);
        assert_int_equal(plan.min_ctas, ruled.min_ctas);
        plan_print(&plan, text, sizeof text);
        assert_non_null(strstr(text, line));
    }
}

/* What a table of images was put to on simulated AMD GPUs: wrong sums, or reads past the ring. */
static void no_number_of_images_is_for_amd(void **state)
{
    static const char *const specs[] = {"turboquant_4bit_nc", "turboquant_k8v4",
                                        "turboquant_3bit_nc", "fp16"};
    char values[16], said[64];
    struct plan plan;
    kvk_error err;
    int asked = 0;
    (void)state;
    for (int t = 0; target_at(t); t++)
        for (int layout = 0; layout < LAYOUT_COUNT; layout++)
            for (int i = 0; i < 4 * 8; i++) {
                const struct target *target = target_at(t);
                struct geometry geo = {.layout = (enum layout)layout,
                                       .head_size = 128,
                                       .value_head_size = 128,
                                       .gqa = 4,
                                       .page_tokens = 16,
                                       .dtype = KVK_BFLOAT16};
                struct spec spec;
                if (target->family != FAMILY_AMDGCN)
                    continue;
                assert_int_equal(spec_load(specs[i / 8], NULL, &spec, &err), KVK_OK);
                snprintf(values, sizeof values, "images=%d", i % 8 + 1);
                snprintf(said, sizeof said, "plan: images %d: decode for %s takes 0", i % 8 + 1,
                         target->name);
                if (plan_make(&spec, &geo, target, KIND_DECODE, &plan,
                              &err)) /* a layout that it has not */
                    continue;
                assert_int_equal(plan.images, 0);
                assert_int_equal(
                    plan_make_set(&spec, &geo, target, KIND_DECODE, values, NULL, &plan, &err),
                    KVK_E_ARG);
                assert_memory_equal(err.text, said, strlen(said));
                assert_int_equal(
                    plan_make_set(&spec, &geo, target, KIND_DECODE, values, "t:1", &plan, &err),
                    KVK_OK);
                assert_int_equal(plan.images, 0);
                assert_non_null(strstr(plan.left_out, said));
                asked++;
            }
    assert_true(asked >= 5 * (3 * 3 + 1) * 8);
}

/* A reason that fills its room was cut, and one that found no place is missing. */
static void no_reason_is_cut(void **state)
{
    static const char *const specs[] = {
        "turboquant_4bit_nc", "turboquant_k8v4", "turboquant_3bit_nc",
        "ultraquant_4bit",    "nvfp4",           "fp16"};
    struct plan plan;
    struct spec spec;
    kvk_error err;
    (void)state;
    for (int t = 0; target_at(t); t++)
        for (int i = 0; i < 6 * LAYOUT_COUNT * KIND_COUNT; i++) {
            struct geometry geo = {.layout = (enum layout)(i / 6 % LAYOUT_COUNT),
                                   .head_size = 128,
                                   .value_head_size = 128,
                                   .gqa = 4,
                                   .page_tokens = 16,
                                   .dtype = KVK_BFLOAT16};
            assert_int_equal(spec_load(specs[i % 6], NULL, &spec, &err), KVK_OK);
            if (plan_make(&spec, &geo, target_at(t), (enum kind)(i / 6 / LAYOUT_COUNT), &plan,
                          &err))
                continue;
            assert_true(plan_print(&plan, NULL, 0) <
                        4096 - sizeof plan.left_out); /* as callers have room */
            assert_true(plan.nwhy < (int)(sizeof plan.why / sizeof *plan.why));
            for (int w = 0; w < plan.nwhy; w++)
                if (strlen(plan.why[w].text) >= sizeof plan.why[w].text - 1)
                    fail_msg("%s: %s", plan.why[w].field, plan.why[w].text);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_table_is_refused_with_its_line),
        cmocka_unit_test(numbers_are_shown_as_written),
        cmocka_unit_test(every_word_of_a_row_is_one_of_its_field),
        cmocka_unit_test(every_prefix_of_a_table_is_refused),
        cmocka_unit_test(the_first_row_that_fits_decides),
        cmocka_unit_test(rows_are_for_kernels_without_options),
        cmocka_unit_test(codecs_have_words),
        cmocka_unit_test(plans_have_one_text),
        cmocka_unit_test(a_plan_is_part_of_the_key),
        cmocka_unit_test(tables_are_found_in_the_order_of_presets),
        cmocka_unit_test(a_plan_says_where_its_values_are_from),
        cmocka_unit_test(the_register_limit_follows_the_warps),
        cmocka_unit_test(values_that_do_not_suit_are_refused_or_left_out),
        cmocka_unit_test(no_number_of_images_is_for_amd),
        cmocka_unit_test(no_reason_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
