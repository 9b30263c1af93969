/* SPDX-License-Identifier: Apache-2.0 */
/* Models to kernels: sharing, threads, cache, all that a generator can do wrong. Clean under a thread sanitizer. */
#include "rt.h"

#include "../../runtime/key.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int setup(void **state)
{
    (void)state;
    rt_generator_reset();
    rt_fake("libcuda.so.1");
    return 0;
}

static const kvk_kernels *prepare(kvk_context *ctx, const struct kvk_model *model)
{
    const kvk_kernels *kernels;
    kvk_error err = {0};
    if (kvk_prepare(ctx, model, &kernels, &err) != KVK_OK)
        fail_msg("%s: %s", err.where, err.text);
    return kernels;
}

static const char *origin(const kvk_kernels *k, kvk_kind_bits kind)
{
    struct kvk_kernel_info info = KVK_INIT(struct kvk_kernel_info);
    assert_int_equal(kvk_kernel(k, kind, &info, NULL), KVK_OK);
    return info.origin;
}

static void expect_failure(kvk_context *ctx, struct kvk_model model, kvk_status status,
                           const char *text)
{
    const kvk_kernels *kernels;
    kvk_error err = {0};
    assert_int_equal(kvk_prepare(ctx, &model, &kernels, &err), status);
    assert_null(kernels);
    assert_int_equal(err.status, status);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" is not in \"%s\"", text, err.text);
    assert_int_equal(kvk_prepare(ctx, &model, &kernels, NULL), status);
}

/* ---- sharing ---- */

static void same_model_is_the_same_pointer(void **state)
{
    (void)state;
    kvk_context *ctx = rt_open(NULL);
    struct kvk_model model = rt_model(), explicit = rt_model();
    const kvk_kernels *k = prepare(ctx, &model);
    explicit.layout = "aos";
    explicit.value_head_size = 128;
    explicit.page_tokens = 16;
    explicit.dtype = explicit.dequant_dtype = KVK_BFLOAT16;
    explicit.kinds = KVK_ALL_KINDS;
    assert_ptr_equal(prepare(ctx, &model), k);
    assert_ptr_equal(prepare(ctx, &explicit), k);
    assert_int_equal(rt_generator.compiles, KIND_SERVING);
    kvk_close(ctx);
}

/* Other numbers of heads at one ratio: another model with the same kernels. */
static void kernels_are_shared_between_models(void **state)
{
    (void)state;
    kvk_context *ctx = rt_open(NULL);
    struct kvk_model model = rt_model(), wide = rt_model();
    const kvk_kernels *a = prepare(ctx, &model);
    wide.kv_heads = 8;
    wide.query_heads = 32;
    const kvk_kernels *b = prepare(ctx, &wide);
    assert_ptr_not_equal(a, b);
    assert_int_equal(rt_generator.compiles, KIND_SERVING);
    assert_string_equal(origin(a, KVK_DECODE), "compiled");
    assert_string_equal(origin(b, KVK_DECODE), "memory");
    kvk_close(ctx);
}

/* Options are of decode and unified only. */
static void options_make_two_kernels(void **state)
{
    (void)state;
    struct kvk_model model = rt_model();
    const kvk_kernels *plain, *capped;
    kvk_context *ctx = rt_open(NULL);
    assert_int_equal(kvk_prepare(ctx, &model, &plain, NULL), KVK_OK);
    model.options = KVK_SOFT_CAP;
    assert_int_equal(kvk_prepare(ctx, &model, &capped, NULL), KVK_OK);
    assert_ptr_not_equal(plain, capped);
    assert_int_equal(rt_generator.compiles, KIND_SERVING + 2);
    assert_string_equal(plain->pages.signature, capped->pages.signature);
    kvk_close(ctx);
}

static kvk_context *open_with_table(const char *folder, const char *rows)
{
    char path[300];
    struct kvk_options options = KVK_INIT(struct kvk_options);
    kvk_context *ctx;
    snprintf(path, sizeof path, "%s/tuned", folder);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/tuned/sm_90a.lua", folder);
    FILE *file = fopen(path, "w");
    fprintf(file, "return { %s }", rows);
    fclose(file);
    options.device = "cuda:0";
    options.cache_dir = "";
    options.spec_dirs = folder;
    assert_int_equal(kvk_open(&options, &ctx, NULL), KVK_OK);
    return ctx;
}

/* A tuned table, or the model's own plan, makes other kernels of decode and unified, each once. */
static void plans_make_kernels_of_their_own(void **state)
{
    (void)state;
    char *folder = rt_folder();
    kvk_context *ctx =
        open_with_table(folder, "{ kind = \"decode\", gqa = 4, plan = { warps = 8 } }");
    struct kvk_model model = rt_model();
    kvk_error err;
    const kvk_kernels *tabled = prepare(ctx, &model), *given;
    assert_string_equal(tabled->tuned[KIND_DECODE].plan, "warps=8");
    assert_string_equal(tabled->tuned[KIND_UNIFIED].plan, "");
    assert_ptr_equal(prepare(ctx, &model), tabled);
    assert_int_equal(rt_generator.compiles, KIND_SERVING);
    model.plan = "warps=8";
    given = prepare(ctx, &model); /* decode is the same kernel, unified is not */
    assert_ptr_not_equal(given, tabled);
    assert_ptr_equal(given->kernel[KIND_DECODE], tabled->kernel[KIND_DECODE]);
    assert_int_equal(rt_generator.compiles, KIND_SERVING + 1);
    model.plan = ""; /* rules alone: what unified had */
    given = prepare(ctx, &model);
    assert_ptr_equal(given->kernel[KIND_UNIFIED], tabled->kernel[KIND_UNIFIED]);
    assert_int_equal(rt_generator.compiles, KIND_SERVING + 2);
    model.plan = "warp=8";
    assert_int_equal(kvk_prepare(ctx, &model, &given, &err), KVK_E_ARG);
    assert_non_null(strstr(err.text, "warp=8"));
    model.plan = "warps=8";
    model.kinds = KVK_STORE;
    assert_int_equal(kvk_prepare(ctx, &model, &given, &err), KVK_E_ARG);
    kvk_close(ctx);
    rt_remove(folder);
}

static void a_broken_table_is_named(void **state)
{
    (void)state;
    char *folder = rt_folder();
    kvk_context *ctx = open_with_table(folder, "{ kind = \"decode\", plan = { stages = 8 } }");
    struct kvk_model model = rt_model();
    const kvk_kernels *k;
    kvk_error err;
    assert_int_equal(kvk_prepare(ctx, &model, &k, &err), KVK_E_SPEC);
    assert_non_null(strstr(err.text, "/tuned/sm_90a.lua:1: plan: stages"));
    model.kinds = KVK_STORE; /* has no plan in a table */
    assert_int_equal(kvk_prepare(ctx, &model, &k, &err), KVK_OK);
    kvk_close(ctx);
    rt_remove(folder);
}

static void dequant_has_a_dtype_of_its_own(void **state)
{
    (void)state;
    kvk_context *ctx = rt_open(NULL);
    struct kvk_model model = rt_model();
    prepare(ctx, &model);
    model.dequant_dtype = KVK_FLOAT16;
    const kvk_kernels *k = prepare(ctx, &model);
    assert_int_equal(rt_generator.compiles, KIND_SERVING + 1);
    assert_string_equal(origin(k, KVK_DEQUANT), "compiled");
    assert_string_equal(origin(k, KVK_STORE), "memory");
    kvk_close(ctx);
}

static void only_asked_kinds_are_made(void **state)
{
    (void)state;
    kvk_context *ctx = rt_open(NULL);
    struct kvk_model model = rt_model();
    struct kvk_kernel_info info = KVK_INIT(struct kvk_kernel_info);
    model.kinds = KVK_STORE;
    const kvk_kernels *k = prepare(ctx, &model);
    assert_int_equal(rt_generator.compiles, 1);
    assert_int_equal(kvk_kernel(k, KVK_DECODE, &info, NULL), KVK_E_ARG);
    assert_int_equal(kvk_kernel(k, KVK_ALL_KINDS, &info, NULL), KVK_E_ARG);
    assert_int_equal(kvk_kernel(k, KVK_STORE, &info, NULL), KVK_OK);
    assert_string_equal(info.name, "store_aos_sm_90a_d128_g4");
    assert_int_equal(info.registers, 96);
    assert_int_equal(info.threads, 128);
    assert_int_equal(info.shared_bytes, 2048 + 1024);
    assert_int_equal(info.resident_ctas, 4);
    assert_int_equal(kvk_workspace_bytes(k, NULL), 0);
    kvk_close(ctx);
}

/* ---- cache ---- */

static void second_context_finds_the_cache(void **state)
{
    (void)state;
    char *dir = rt_folder();
    struct kvk_model model = rt_model();
    kvk_context *ctx = rt_open(dir);
    prepare(ctx, &model);
    kvk_close(ctx);
    assert_int_equal(rt_count(dir, NULL), KIND_SERVING);
    ctx = rt_open(dir);
    const kvk_kernels *k = prepare(ctx, &model);
    assert_string_equal(origin(k, KVK_UNIFIED), "cache");
    assert_int_equal(rt_generator.compiles, KIND_SERVING);
    kvk_close(ctx);
    rt_remove(dir);
}

static void other_targets_do_not_collide(void **state)
{
    (void)state;
    char *dir = rt_folder();
    struct kvk_model model = rt_model();
    struct fake *fake = rt_fake("libcuda.so.1");
    kvk_context *first = rt_open(dir), *second;
    fake->major = 8;
    second = rt_open(dir);
    prepare(first, &model);
    const kvk_kernels *k = prepare(second, &model);
    assert_string_equal(origin(k, KVK_STORE), "compiled");
    assert_int_equal(rt_count(dir, NULL), 2 * KIND_SERVING);
    kvk_close(first);
    kvk_close(second);
    rt_remove(dir);
}

static void never_compiling_names_the_kernel(void **state)
{
    (void)state;
    char *dir = rt_folder();
    struct kvk_options options = KVK_INIT(struct kvk_options);
    struct kvk_model model = rt_model();
    kvk_context *ctx;
    options.device = "cuda:0";
    options.cache_dir = dir;
    options.compile = KVK_COMPILE_NEVER;
    assert_int_equal(kvk_open(&options, &ctx, NULL), KVK_OK);
    expect_failure(
        ctx, model, KVK_E_MISS,
        "store.turboquant_k8v4.aos.d128.g4.bf16.p16 for sm_90a is missing: sought in no pack, in "
        "cache /");
    assert_int_equal(rt_generator.compiles, 0);
    kvk_context *maker = rt_open(dir);
    prepare(maker, &model);
    kvk_close(maker);
    prepare(ctx, &model);
    kvk_close(ctx);
    rt_remove(dir);
}

/* Whole, under the right key, of no use: made anew. */
static void useless_entry_is_replaced(void **state)
{
    (void)state;
    char *dir = rt_folder();
    struct kvk_model model = rt_model();
    model.kinds = KVK_STORE;
    rt_generator.drop = "vectors";
    kvk_context *ctx = rt_open(dir);
    expect_failure(ctx, model, KVK_E_OBJECT, "vectors");
    kvk_close(ctx);
    rt_generator.drop = NULL;
    ctx = rt_open(dir);
    assert_string_equal(origin(prepare(ctx, &model), KVK_STORE), "compiled");
    kvk_close(ctx);
    rt_remove(dir);
}

/* ---- threads ---- */

enum { THREADS = 12 };

struct caller {
    kvk_context *ctx;
    struct kvk_model model;
    const kvk_kernels *kernels;
    kvk_status status;
};

static void *call(void *data)
{
    struct caller *c = data;
    kvk_error err;
    c->status = kvk_prepare(c->ctx, &c->model, &c->kernels, &err);
    return NULL;
}

static void run_callers(struct caller *callers)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call, &callers[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void duplicates_collapse(void **state)
{
    (void)state;
    char *dir = rt_folder();
    struct caller callers[THREADS];
    kvk_context *ctx = rt_open(dir);
    rt_generator.delay_ms = 30;
    for (int i = 0; i < THREADS; i++)
        callers[i] = (struct caller){.ctx = ctx, .model = rt_model()};
    run_callers(callers);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(callers[i].status, KVK_OK);
        assert_ptr_equal(callers[i].kernels, callers[0].kernels);
    }
    assert_int_equal(rt_generator.compiles, KIND_SERVING);
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
        assert_true(rt_generator.most_running > 1);
    kvk_close(ctx);
    rt_remove(dir);
}

/* Overlapping sets of kinds, some in the other order: nobody may wait for a thread that waits for him. */
static void overlapping_prepares_do_not_deadlock(void **state)
{
    (void)state;
    static const unsigned kinds[] = {KVK_STORE | KVK_DECODE,
                                     KVK_DECODE | KVK_UNIFIED,
                                     KVK_UNIFIED | KVK_DEQUANT,
                                     KVK_DEQUANT | KVK_STORE,
                                     KVK_ALL_KINDS,
                                     KVK_DECODE};
    struct caller callers[THREADS];
    kvk_context *ctx = rt_open(NULL);
    rt_generator.delay_ms = 5;
    for (int i = 0; i < THREADS; i++) {
        callers[i] = (struct caller){.ctx = ctx, .model = rt_model()};
        callers[i].model.kinds = kinds[i % 6];
        callers[i].model.page_tokens = i & 1 ? 16 : 32;
    }
    run_callers(callers);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(callers[i].status, KVK_OK);
    assert_true(rt_generator.compiles <= 2 * KIND_SERVING);
    kvk_close(ctx);
}

static void failure_reaches_every_waiter_and_is_tried_again(void **state)
{
    (void)state;
    struct caller callers[THREADS];
    kvk_context *ctx = rt_open(NULL);
    rt_generator.delay_ms = 10;
    rt_generator.fail = KVK_E_COMPILE;
    rt_generator.fail_kind = 'd'; /* decode, dequant */
    for (int i = 0; i < THREADS; i++)
        callers[i] = (struct caller){.ctx = ctx, .model = rt_model()};
    run_callers(callers);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(callers[i].status, KVK_E_COMPILE);
        assert_null(callers[i].kernels);
    }
    rt_generator.fail = KVK_OK;
    struct kvk_model model = rt_model();
    assert_string_equal(origin(prepare(ctx, &model), KVK_DECODE), "compiled");
    kvk_close(ctx);
}

/* ---- what a generator can do wrong ---- */

static void wrong_generators_are_refused(void **state)
{
    (void)state;
    kvk_context *ctx = rt_open(NULL);
    rt_generator.version = 99;
    expect_failure(ctx, rt_model(), KVK_E_GENERATOR, "interface version 99");
    rt_generator.version = 0;
    rt_generator.build_id = "other";
    expect_failure(ctx, rt_model(), KVK_E_GENERATOR, "build other");
    rt_generator.build_id = NULL;
    rt_generator.fail = KVK_E_UNSUPPORTED;
    expect_failure(ctx, rt_model(), KVK_E_UNSUPPORTED, "the fake generator fails");
    kvk_close(ctx);
}

static void missing_generator_says_what_is_missing(void **state)
{
    (void)state;
    struct kvk_options options = KVK_INIT(struct kvk_options);
    kvk_context *ctx;
    options.device = "cuda:0";
    options.cache_dir = "";
    options.generator = "/nowhere/libkvkiln-gen.so";
    assert_int_equal(kvk_open(&options, &ctx, NULL), KVK_OK);
    expect_failure(ctx, rt_model(), KVK_E_GENERATOR, "/nowhere/libkvkiln-gen.so");
    kvk_close(ctx);
}

static void manifests_must_be_whole(void **state)
{
    (void)state;
    static const char *const needed[] = {"kernel ",
                                         "abi ",
                                         "target ",
                                         "entry ",
                                         "rows",
                                         "vectors",
                                         "tile_tokens",
                                         "layout.name",
                                         "layout.slot_bytes",
                                         "layout.slot_alignment",
                                         "layout.key_offset",
                                         "layout.fields",
                                         "layout.field_offset.1",
                                         "layout.head_size",
                                         "layout.gqa",
                                         "signature"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        kvk_context *ctx = rt_open(NULL);
        rt_generator.drop = needed[i];
        expect_failure(ctx, rt_model(), KVK_E_OBJECT, "");
        kvk_close(ctx);
    }
    rt_generator.drop = NULL;
}

/* Launches multiply and divide by them: found by fuzzing cache entries. */
static void numbers_of_manifests_are_bounded(void **state)
{
    (void)state;
    static const char *const names[] = {"rows", "vectors", "tile_tokens"};
    static const char *const right[] = {"rows 16", "vectors 4", "tile_tokens 64"};
    static const char *const numbers[] = {"-1", "1048577", "9223372036854775807",
                                          "-9223372036854775808"};
    for (size_t i = 0; i < 3; i++)
        for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
            char line[64];
            kvk_context *ctx = rt_open(NULL);
            snprintf(line, sizeof line, "%s %s", names[i], numbers[n]);
            rt_generator.drop = right[i];
            rt_generator.extra = line;
            expect_failure(ctx, rt_model(), KVK_E_OBJECT, "accepted 0..1048576");
            kvk_close(ctx);
        }
}

/* A CTA's heads divide its step: else splits are counted in steps of no tokens. */
static void heads_of_images_divide_a_step(void **state)
{
    (void)state;
    static const struct {
        const char *extra, *said;
    } cases[] = {{RT_IMAGES("128", "0"), "image_heads is 128, no divisor of tile_tokens, 64"},
                 {RT_IMAGES("48", "0"), "image_heads is 48"},
                 {RT_IMAGES("-1", "0"), "accepted 0..1048576"},
                 {RT_IMAGES("8", "-1"), "accepted 0..1048576"},
                 {RT_IMAGES("8", "0") "\nimage_group 5", "image_group is 5, accepted 4, 8"},
                 {RT_IMAGES("8", "0") "\nturned -1", "turned"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvk_context *ctx = rt_open(NULL);
        rt_generator.extra = cases[i].extra;
        expect_failure(ctx, rt_model(), KVK_E_OBJECT, cases[i].said);
        kvk_close(ctx);
    }
}

/* Launches of a reduction count threads by eights: fewer divided by zero. */
static void threads_of_a_reduction_come_in_eights(void **state)
{
    (void)state;
    static const char *const lines[] = {"entry reduce k_reduce 4 0", "entry reduce k_reduce 7 0",
                                        "entry reduce k_reduce 12 0"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        kvk_context *ctx = rt_open(NULL);
        rt_generator.drop = "entry reduce k_reduce 64 0";
        rt_generator.extra = lines[i];
        expect_failure(ctx, rt_model(), KVK_E_OBJECT, "no multiple of 8");
        kvk_close(ctx);
    }
}

static void old_driver_gets_ptx(void **state)
{
    (void)state;
    struct fake *fake = rt_fake("libcuda.so.1");
    struct kvk_model model = rt_model();
    char *dir = rt_folder();
    kvk_context *ctx = rt_open(dir);
    if (ctx->assembler.kind == ASSEMBLER_NONE) {
        ctx->assembler.kind = ASSEMBLER_PTXAS; /* the fake generator assembles nothing */
        strcpy(ctx->assembler.name, "fake 1");
    }
    fake->refuse_cubin = 209;
    model.kinds = KVK_STORE;
    prepare(ctx, &model);
    assert_int_equal(rt_generator.compiles, 2);
    kvk_close(ctx);
    fake->refuse_ptx = 222;
    fake->version = 12040;
    ctx = rt_open(NULL);
    ctx->assembler.kind = ASSEMBLER_NONE;
    expect_failure(
        ctx, model, KVK_E_UNSUPPORTED,
        "PTX 9.0 needs a driver for CUDA 13.0 or later, the one present is for CUDA 12.4");
    kvk_close(ctx);
    rt_remove(dir);
}

/* ---- arguments ---- */

static void models_are_checked(void **state)
{
    (void)state;
    kvk_context *ctx = rt_open(NULL);
    struct kvk_model m = rt_model();
#define BAD(field, value, status, text)                                                            \
    m = rt_model();                                                                                \
    m.field = value;                                                                               \
    expect_failure(ctx, m, status, text)
    BAD(size, 0, KVK_E_ARG, "KVK_INIT");
    BAD(spec, NULL, KVK_E_ARG, "spec");
    BAD(spec, "turboquant_9bit", KVK_E_SPEC, "accepted turboquant_k8v4, ");
    BAD(layout, "nativ", KVK_E_SPEC, "aos soa native");
    BAD(layout, "ao", KVK_E_SPEC, "aos soa native");
    BAD(kv_heads, 0, KVK_E_SHAPE, "kv_heads is 0");
    BAD(kv_heads, -2, KVK_E_SHAPE, "kv_heads is -2");
    BAD(query_heads, 7, KVK_E_SHAPE, "multiple");
    BAD(head_size, 0, KVK_E_SHAPE, "head_size is 0");
    BAD(value_head_size, 2000, KVK_E_SHAPE, "value_head_size is 2000");
    BAD(page_tokens, -1, KVK_E_SHAPE, "page_tokens is -1");
    BAD(dtype, (kvk_dtype)7, KVK_E_ARG, "dtype is 7");
    BAD(dequant_dtype, (kvk_dtype)3, KVK_E_ARG, "dequant_dtype is 3");
    BAD(kinds, 128, KVK_E_ARG, "kinds");
    BAD(options, 4, KVK_E_UNSUPPORTED, "unknown bits 0x4");
    struct {
        struct kvk_model m;
        uint64_t unknown;
    } newer = {rt_model(), 0}; /* a caller of a later version */
    newer.m.size = sizeof newer;
    prepare(ctx, &newer.m);
    newer.unknown = 1;
    const kvk_kernels *k;
    assert_int_equal(kvk_prepare(ctx, &newer.m, &k, NULL), KVK_E_UNSUPPORTED);
    assert_int_equal(kvk_prepare(ctx, NULL, &k, NULL), KVK_E_ARG);
    kvk_close(ctx);
    kvk_close(NULL);
}

static void spec_files_go_through_the_generator(void **state)
{
    (void)state;
    char *dir = rt_folder(), *file = rt_path(dir, "turboquant_k8v4.lua");
    kvk_context *ctx = rt_open(NULL);
    struct kvk_model model = rt_model();
    struct kvk_layout layout = KVK_INIT(struct kvk_layout);
    model.kinds = KVK_STORE;
    prepare(ctx, &model);
    assert_int_equal(rt_generator.spec_texts, 0); /* embedded */
    model.spec = "./mine.lua";
    assert_int_equal(kvk_layout(prepare(ctx, &model), &layout, NULL), KVK_OK);
    assert_int_equal(rt_generator.spec_texts, 1);
    assert_non_null(strstr(layout.signature, ":soa:")); /* that spec's first layout */
    kvk_close(ctx);
    rt_write(file, "x", 1);
    struct kvk_options options = KVK_INIT(struct kvk_options);
    options.device = "cuda";
    options.cache_dir = "";
    char *dirs = malloc(strlen(dir) + 20);
    sprintf(dirs, "/nowhere:%s:", dir);
    options.spec_dirs = dirs;
    assert_int_equal(kvk_open(&options, &ctx, NULL), KVK_OK);
    model.spec = "turboquant_k8v4"; /* the file shadows the embedded preset */
    prepare(ctx, &model);
    assert_int_equal(rt_generator.spec_texts, 2);
    kvk_close(ctx);
    free(dirs);
    free(file);
    rt_remove(dir);
}

static void key_text_names_maker_assembler_and_kernel(void **state)
{
    (void)state;
    const struct gen_request r = {.spec_text = "spec\n",
                                  .kind = "store",
                                  .layout = "aos",
                                  .target = "sm_90a",
                                  .head_size = 128,
                                  .value_head_size = 128,
                                  .gqa = 4,
                                  .page_tokens = 16,
                                  .dtype = KVK_BFLOAT16,
                                  .assemble = 1};
    char *text = key_make(&r, "build", "ptxas 13"), small[20], head[80];
    int n = snprintf(head, sizeof head, "kvkiln %d abi %d\ngenerator build\nassembler ptxas 13\n",
                     KVK_OBJECT_VERSION, KVK_ABI_VERSION);
    assert_int_equal(strncmp(text, head, (size_t)n), 0);
    assert_non_null(strstr(text, "kind store\n"));
    assert_int_equal(key_text(&r, "build", "ptxas 13", small, sizeof small), strlen(text));
    assert_int_equal(strlen(small), sizeof small - 1);
    free(text);
}

int main(int argc, char **argv)
{
    (void)argc;
    rt_with_fakes(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(same_model_is_the_same_pointer, setup),
        cmocka_unit_test_setup(kernels_are_shared_between_models, setup),
        cmocka_unit_test_setup(dequant_has_a_dtype_of_its_own, setup),
        cmocka_unit_test_setup(options_make_two_kernels, setup),
        cmocka_unit_test_setup(plans_make_kernels_of_their_own, setup),
        cmocka_unit_test_setup(a_broken_table_is_named, setup),
        cmocka_unit_test_setup(only_asked_kinds_are_made, setup),
        cmocka_unit_test_setup(second_context_finds_the_cache, setup),
        cmocka_unit_test_setup(other_targets_do_not_collide, setup),
        cmocka_unit_test_setup(never_compiling_names_the_kernel, setup),
        cmocka_unit_test_setup(useless_entry_is_replaced, setup),
        cmocka_unit_test_setup(duplicates_collapse, setup),
        cmocka_unit_test_setup(overlapping_prepares_do_not_deadlock, setup),
        cmocka_unit_test_setup(failure_reaches_every_waiter_and_is_tried_again, setup),
        cmocka_unit_test_setup(wrong_generators_are_refused, setup),
        cmocka_unit_test_setup(missing_generator_says_what_is_missing, setup),
        cmocka_unit_test_setup(manifests_must_be_whole, setup),
        cmocka_unit_test_setup(heads_of_images_divide_a_step, setup),
        cmocka_unit_test_setup(threads_of_a_reduction_come_in_eights, setup),
        cmocka_unit_test_setup(numbers_of_manifests_are_bounded, setup),
        cmocka_unit_test_setup(old_driver_gets_ptx, setup),
        cmocka_unit_test_setup(models_are_checked, setup),
        cmocka_unit_test_setup(spec_files_go_through_the_generator, setup),
        cmocka_unit_test_setup(key_text_names_maker_assembler_and_kernel, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
