/* SPDX-License-Identifier: Apache-2.0 */
/* Packs in use: before the cache and the compiler, refused where they do not belong, passed over where damaged. */
#include "faults.h"
#include "rt_pack.h"

#include "../../runtime/key.h"

#include "build_id.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A folder with a pack in it, and what the log said. */
struct place {
    char *dir, *file;
};

static int setup(void **state)
{
    struct place *place = calloc(1, sizeof *place);
    size_t size;
    rt_log.warnings = 0;
    rt_generator_reset();
    rt_fake("libcuda.so.1");
    unsetenv("KVKILN_PACKS");
    place->dir = rt_folder();
    place->file = rt_path(place->dir, "some.kvkpack");
    void *bytes = rt_pack(0, &size);
    rt_write(place->file, bytes, size);
    free(bytes);
    *state = place;
    return 0;
}

static int teardown(void **state)
{
    struct place *place = *state;
    unsetenv("KVKILN_PACKS");
    rt_remove(place->dir);
    free(place->file);
    free(place);
    return 0;
}

static struct kvk_options options_of(struct place *place)
{
    struct kvk_options o = KVK_INIT(struct kvk_options);
    o.device = "cuda:0";
    o.cache_dir = "";
    o.packs = place->file;
    o.compile = KVK_COMPILE_NEVER;
    o.log = rt_log_line;
    return o;
}

static kvk_context *open_with(const struct kvk_options *o)
{
    kvk_context *ctx;
    kvk_error err = {0};
    if (kvk_open(o, &ctx, &err))
        fail_msg("%s: %s", err.where, err.text);
    return ctx;
}

static void cannot_open(const struct kvk_options *o, kvk_status status, const char *text)
{
    kvk_context *ctx;
    kvk_error err = {0};
    assert_int_equal(kvk_open(o, &ctx, &err), status);
    assert_null(ctx);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" is not in \"%s\"", text, err.text);
}

static const char *origin_of(kvk_context *ctx, const struct kvk_model *model, kvk_kind_bits kind)
{
    const kvk_kernels *k;
    kvk_error err = {0};
    struct kvk_kernel_info info = KVK_INIT(struct kvk_kernel_info);
    if (kvk_prepare(ctx, model, &k, &err))
        fail_msg("%s: %s", err.where, err.text);
    assert_int_equal(kvk_kernel(k, kind, &info, NULL), KVK_OK);
    return info.origin;
}

static void cannot_prepare(kvk_context *ctx, const struct kvk_model *model, kvk_status status,
                           const char *text)
{
    const kvk_kernels *k;
    kvk_error err = {0};
    assert_int_equal(kvk_prepare(ctx, model, &k, &err), status);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" is not in \"%s\"", text, err.text);
}

/* ---- look-up ---- */

static void pack_comes_before_cache_and_compiler(void **state)
{
    struct place *place = *state;
    struct kvk_options o = options_of(place);
    struct kvk_model model = rt_model();
    char *cache = rt_folder();
    kvk_context *maker = rt_open(cache);
    assert_string_equal(origin_of(maker, &model, KVK_DECODE), "compiled");
    kvk_close(maker);
    o.cache_dir = cache;
    o.compile = KVK_COMPILE_ON_MISS;
    kvk_context *ctx = open_with(&o);
    for (int kind = KVK_STORE; kind <= KVK_COPY; kind *= 2)
        assert_string_equal(origin_of(ctx, &model, (kvk_kind_bits)kind), "pack");
    assert_int_equal(rt_generator.compiles, KIND_SERVING);
    assert_int_equal(rt_log.warnings, 0);
    model.page_tokens = 32; /* in no pack */
    assert_string_equal(origin_of(ctx, &model, KVK_DECODE), "compiled");
    kvk_close(ctx);
    o.packs = "";
    ctx = open_with(&o);
    assert_string_equal(origin_of(ctx, &model, KVK_DECODE), "cache");
    kvk_close(ctx);
    rt_remove(cache);
}

/* Nothing but the pack: no cache, no generator, no assembler. */
static void pack_alone_is_enough(void **state)
{
    struct place *place = *state;
    struct kvk_options o = options_of(place);
    struct kvk_model model = rt_model();
    o.generator = "/nowhere/libkvkiln-gen.so";
    for (int assembler = 0; assembler < 2; assembler++) {
        kvk_context *ctx = open_with(&o);
        if (!assembler) {
            ctx->assembler.kind = ASSEMBLER_NONE;
            strcpy(ctx->assembler.name, "none");
        }
        assert_string_equal(origin_of(ctx, &model, KVK_UNIFIED), "pack");
        kvk_close(ctx);
    }
    assert_int_equal(rt_generator.compiles, 0);
    assert_int_equal(rt_generator.spec_texts, 0);
}

static void pack_in_memory_is_enough(void **state)
{
    struct place *place = *state;
    struct kvk_options o = options_of(place);
    struct kvk_model model = rt_model();
    size_t size;
    void *bytes = rt_pack(0, &size);
    struct kvk_pack_memory packs[] = {{"first", bytes, size}};
    o.packs = "";
    o.memory_packs = packs;
    o.memory_pack_count = 1;
    kvk_context *ctx = open_with(&o);
    assert_string_equal(origin_of(ctx, &model, KVK_STORE), "pack");
    kvk_close(ctx);
    packs[0].bytes--;
    cannot_open(&o, KVK_E_OBJECT, "pack first: pack says");
    packs[0].data = NULL;
    cannot_open(&o, KVK_E_ARG, "pack first: data is NULL");
    o.memory_packs = NULL;
    cannot_open(&o, KVK_E_ARG, "memory_packs is NULL");
    free(bytes);
}

static void packs_of_the_environment(void **state)
{
    struct place *place = *state;
    struct kvk_options o = options_of(place);
    struct kvk_model model = rt_model();
    char *list;
    assert_true(asprintf(&list, ":%s::%s:", place->file, place->file) > 0);
    setenv("KVKILN_PACKS", list, 1);
    o.packs = NULL;
    kvk_context *ctx = open_with(&o);
    assert_int_equal(ctx->packs.count, 2);
    assert_string_equal(origin_of(ctx, &model, KVK_STORE), "pack");
    kvk_close(ctx);
    o.packs = "";
    ctx = open_with(&o);
    cannot_prepare(ctx, &model, KVK_E_MISS, "sought in no pack, and there is no cache folder");
    kvk_close(ctx);
    free(list);
}

static void miss_names_kernel_and_places(void **state)
{
    struct place *place = *state;
    struct kvk_options o = options_of(place);
    struct kvk_model model = rt_model();
    char text[256];
    model.page_tokens = 32;
    kvk_context *ctx = open_with(&o);
    snprintf(text, sizeof text,
             "store.turboquant_k8v4.aos.d128.g4.bf16.p32 for sm_90a is missing: sought in pack %s, "
             "and there is no cache folder; compiling is not allowed",
             place->file);
    cannot_prepare(ctx, &model, KVK_E_MISS, text);
    kvk_close(ctx);
    rt_fake("libcuda.so.1")->major = 8;
    o.cache_dir = place->dir;
    ctx = open_with(&o);
    model.page_tokens = 16;
    snprintf(text, sizeof text, "%s (which is for sm_90a), in cache %s; compiling", place->file,
             place->dir);
    cannot_prepare(ctx, &model, KVK_E_MISS, text);
    kvk_close(ctx);
    assert_int_equal(rt_generator.compiles, 0);
}

static void miss_says_what_a_pack_is_for(void **state)
{
    static const char *const targets[] = {"sm_80", "gfx942", "sm_90a", "sm_120a"};
    struct place *place = *state;
    struct kvk_options o = options_of(place);
    struct kvk_model model = rt_model();
    model.page_tokens = 32;
    for (int count = 1; count <= 4; count++) {
        struct pack_writer writer;
        void *bytes;
        size_t size;
        char text[256];
        pack_writer_init(&writer, KVK_BUILD_ID);
        for (int i = 0; i < count; i++) {
            struct gen_request request = rt_request("store");
            request.target = targets[i];
            rt_pack_add(&writer, &request, 0);
        }
        assert_null(pack_writer_bytes(&writer, &bytes, &size));
        rt_write(place->file, bytes, size);
        kvk_context *ctx = open_with(&o);
        snprintf(text, sizeof text, "%s%s, and", place->file,
                 count == 1   ? " (which is for sm_80)"
                 : count == 2 ? " (which is for other targets)"
                              : "");
        cannot_prepare(ctx, &model, KVK_E_MISS, text);
        kvk_close(ctx);
        pack_writer_free(&writer);
        free(bytes);
    }
}

/* Kernels with plans of a table of the machine that made the pack are found where there is no table; those with a plan
** of the caller's only by who gives the same. */
static void plans_of_tables_are_no_part_of_the_key(void **state)
{
    struct place *place = *state;
    struct kvk_options o = options_of(place);
    struct kvk_model model = rt_model();
    struct gen_request request = rt_request("decode"), merge = rt_request("merge");
    struct pack_writer writer;
    void *bytes;
    size_t size;
    model.kinds = KVK_DECODE; /* and merge, which joins its splits */
    for (int own = 0; own < 2; own++) {
        request.plan = "warps=8";
        request.plan_source = own ? NULL : "some table";
        pack_writer_init(&writer, KVK_BUILD_ID);
        rt_pack_add(&writer, &request, 0);
        rt_pack_add(&writer, &merge, 0);
        assert_null(pack_writer_bytes(&writer, &bytes, &size));
        rt_write(place->file, bytes, size);
        kvk_context *ctx = open_with(&o);
        model.plan = own ? "warps=8" : NULL;
        assert_string_equal(origin_of(ctx, &model, KVK_DECODE), "pack");
        model.plan = own ? NULL : "warps=8";
        cannot_prepare(ctx, &model, KVK_E_MISS, "decode.turboquant_k8v4");
        kvk_close(ctx);
        pack_writer_free(&writer);
        free(bytes);
    }
}

static void spec_of_a_pack_is_known_by_name(void **state)
{
    struct place *place = *state;
    struct kvk_options o = options_of(place);
    struct kvk_model model = rt_model();
    struct pack_writer writer;
    struct gen_request request = rt_request("store");
    void *bytes;
    size_t size;
    request.spec_text = "spec 1\nname mine\nlayouts aos\n";
    pack_writer_init(&writer, KVK_BUILD_ID);
    rt_pack_add(&writer, &request, 0);
    assert_null(pack_writer_spec(&writer, "mine", request.spec_text));
    assert_null(pack_writer_bytes(&writer, &bytes, &size));
    rt_write(place->file, bytes, size);
    pack_writer_free(&writer);
    free(bytes);
    model.spec = "mine";
    model.kinds = KVK_STORE;
    kvk_context *ctx = open_with(&o);
    assert_string_equal(origin_of(ctx, &model, KVK_STORE), "pack");
    model.spec = "thine";
    cannot_prepare(ctx, &model, KVK_E_SPEC, "no preset \"thine\"");
    kvk_close(ctx);
    assert_int_equal(rt_generator.spec_texts, 0);
}

/* ---- drivers that are older than the code ---- */

static void old_driver_takes_ptx_of_the_pack(void **state)
{
    struct place *place = *state;
    struct kvk_options o = options_of(place);
    struct kvk_model model = rt_model();
    size_t size;
    void *bytes = rt_pack(1, &size);
    rt_fake("libcuda.so.1")->refuse_cubin = 209;
    kvk_context *ctx = open_with(&o);
    cannot_prepare(ctx, &model, KVK_E_UNSUPPORTED, "nor does PTX help: store.turboquant_k8v4");
    kvk_close(ctx);
    rt_write(place->file, bytes, size);
    ctx = open_with(&o);
    assert_string_equal(origin_of(ctx, &model, KVK_DECODE), "pack");
    assert_non_null(strstr(rt_log.last, "using PTX instead"));
    kvk_close(ctx);
    assert_int_equal(rt_generator.compiles, 0);
    free(bytes);
}

/* ---- packs that do not belong ---- */

static void head_of(struct place *place, size_t at, const char *text, size_t n)
{
    size_t size;
    unsigned char *bytes = rt_read(place->file, &size);
    memcpy(bytes + at, text, n);
    rt_pack_reseal(bytes);
    rt_write(place->file, bytes, size);
    free(bytes);
}

static void other_builds_are_refused(void **state)
{
    struct place *place = *state;
    struct kvk_options o = options_of(place);
    head_of(place, PACK_AT_GENERATOR, "0123 llvm 9\0", 12);
    cannot_open(&o, KVK_E_OBJECT,
                "was made by generator 0123 llvm 9, this runtime belongs to " KVK_BUILD_ID);
    head_of(place, PACK_AT_ABI, "\143\0\0\0", 4);
    cannot_open(&o, KVK_E_OBJECT, "argument layout 99, this runtime needs");
}

static void missing_and_damaged_packs_are_refused(void **state)
{
    struct place *place = *state;
    struct kvk_options o = options_of(place);
    size_t size;
    char *bytes = rt_read(place->file, &size);
    rt_write(place->file, bytes, size / 2);
    cannot_open(&o, KVK_E_OBJECT, place->file);
    o.packs = "/nowhere/x.kvkpack";
    cannot_open(&o, KVK_E_IO, "pack /nowhere/x.kvkpack: No such file");
    free(bytes);
}

/* ---- damage behind the head ---- */

static void spoil_frames(struct place *place)
{
    size_t size;
    unsigned char *bytes = rt_read(place->file, &size);
    struct pack pack;
    assert_int_equal(pack_parse(bytes, size, &pack, NULL), KVK_OK);
    for (uint32_t i = 0; i < pack.rows; i++) {
        struct pack_row row;
        pack_row(&pack, i, &row);
        bytes[row.data - bytes + (ptrdiff_t)row.stored_bytes / 2] ^= 4;
    }
    rt_write(place->file, bytes, size);
    free(bytes);
}

static void damaged_kernels_are_passed_over(void **state)
{
    struct place *place = *state;
    struct kvk_options o = options_of(place);
    struct kvk_model model = rt_model();
    spoil_frames(place);
    kvk_context *ctx = open_with(&o);
    cannot_prepare(ctx, &model, KVK_E_MISS, place->file);
    assert_int_equal(rt_log.warnings, 1);
    assert_non_null(strstr(rt_log.last, "is damaged"));
    kvk_close(ctx);
    o.compile = KVK_COMPILE_ON_MISS;
    ctx = open_with(&o);
    assert_string_equal(origin_of(ctx, &model, KVK_DECODE), "compiled");
    assert_int_equal(rt_log.warnings, 2);
    kvk_close(ctx);
}

/* Whole, under the right key, of no use. */
static void useless_kernels_are_passed_over(void **state)
{
    struct place *place = *state;
    struct kvk_options o = options_of(place);
    struct kvk_model model = rt_model();
    size_t size;
    rt_generator.drop = "vectors";
    void *bytes = rt_pack(0, &size);
    rt_write(place->file, bytes, size);
    rt_generator.drop = NULL;
    kvk_context *ctx = open_with(&o);
    cannot_prepare(ctx, &model, KVK_E_OBJECT, "vectors");
    kvk_close(ctx);
    o.compile = KVK_COMPILE_ON_MISS;
    ctx = open_with(&o);
    assert_string_equal(origin_of(ctx, &model, KVK_STORE), "compiled");
    assert_string_equal(origin_of(ctx, &model, KVK_DECODE), "pack");
    kvk_close(ctx);
    free(bytes);
}

/* As if two keys had one hash: the key inside decides. */
static void kernel_of_another_key_is_a_miss(void **state)
{
    struct place *place = *state;
    struct kvk_options o = options_of(place);
    struct kvk_model model = rt_model();
    struct pack pack, stored;
    struct pack_writer writer;
    struct pack_row row, other;
    size_t size, bytes;
    uint32_t at;
    void *file;
    struct gen_request request = rt_request("store"), wide = rt_request("store");
    char *key = key_for_pack(&request, KVK_BUILD_ID, 0);
    void *whole = rt_pack(0, &size);
    assert_int_equal(pack_parse(whole, size, &pack, NULL), KVK_OK);
    assert_true(pack_find(&pack, key, &at));
    pack_row(&pack, at, &row);
    pack_writer_init(&writer, KVK_BUILD_ID);
    wide.page_tokens = 32;
    rt_pack_add(&writer, &wide, 0);
    assert_null(pack_writer_bytes(&writer, &file, &bytes));
    assert_int_equal(pack_parse(file, bytes, &stored, NULL), KVK_OK);
    pack_row(&stored, 0, &other);
    memcpy((void *)(uintptr_t)other.key, row.key, PACK_SUM_BYTES);
    rt_pack_reseal(file);
    rt_write(place->file, file, bytes);
    kvk_context *ctx = open_with(&o);
    model.kinds = KVK_STORE;
    cannot_prepare(ctx, &model, KVK_E_MISS, "store.turboquant_k8v4.aos.d128.g4.bf16.p16");
    kvk_close(ctx);
    pack_writer_free(&writer);
    free(file);
    free(whole);
    free(key);
}

/* ---- libc says no ---- */

/* One life of a context with this pack, and with a spec that only the pack knows. */
static kvk_status life(const struct kvk_options *o, kvk_error *err)
{
    kvk_context *ctx = NULL;
    const kvk_kernels *k;
    struct kvk_model model = rt_model();
    kvk_status status = kvk_open(o, &ctx, err);
    model.spec = "mine";
    model.kinds = KVK_STORE;
    if (!status)
        status = kvk_prepare(ctx, &model, &k, err);
    kvk_close(ctx);
    return status;
}

/* Want of memory is called that, not a miss or damage, and opening names the file. */
static void every_call_may_fail(void **state)
{
    struct place *place = *state;
    struct kvk_options o = options_of(place);
    struct gen_request request = rt_request("store");
    struct pack_writer writer;
    void *bytes;
    size_t size;
    int n = 0, failed = 0;
    request.spec_text = "spec 1\nname mine\nlayouts aos\n";
    pack_writer_init(&writer, KVK_BUILD_ID);
    rt_pack_add(&writer, &request, 0);
    assert_null(pack_writer_spec(&writer, "mine", request.spec_text));
    assert_null(pack_writer_bytes(&writer, &bytes, &size));
    rt_write(place->file, bytes, size);
    pack_writer_free(&writer);
    free(bytes);
    do {
        kvk_error err = {0};
        faults_arm(FAULT_MEMORY | FAULT_FILES, ++n, EIO);
        kvk_status status = life(&o, &err);
        int missed = faults.failures;
        faults_disarm();
        if (status && status != KVK_E_MEMORY && status != KVK_E_IO)
            fail_msg("call %d, %s: %d \"%s\"", n, faults.failed, (int)status, err.text);
        assert_int_equal(status, err.status);
        assert_int_equal(rt_log.warnings, 0);
        failed += status != KVK_OK;
        if (!missed)
            break;
    } while (n < 1000);
    assert_true(failed >= 10 && n < 1000);
}

/* ---- options ---- */

static void older_options_are_accepted(void **state)
{
    struct place *place = *state;
    struct kvk_options o = options_of(place);
    struct kvk_model model = rt_model();
    o.size = offsetof(struct kvk_options, packs); /* what follows is not looked at */
    o.packs = "/nowhere";
    kvk_context *ctx = open_with(&o);
    cannot_prepare(ctx, &model, KVK_E_MISS, "sought in no pack");
    kvk_close(ctx);
    o.size--;
    cannot_open(&o, KVK_E_ARG, "KVK_INIT");
    o = options_of(place);
    o.prepare_threads = 65;
    cannot_open(&o, KVK_E_ARG, "prepare_threads is 65, accepted 0..64");
    o.prepare_threads = -1;
    cannot_open(&o, KVK_E_ARG, "prepare_threads is -1");
}

/* ---- threads ---- */

enum { THREADS = 8 };

static void *prepare_some(void *data)
{
    kvk_context *ctx = data;
    struct kvk_model model = rt_model();
    const kvk_kernels *k;
    kvk_status status = KVK_OK;
    for (int i = 1; i <= KVK_ALL_KINDS && !status; i++) {
        model.kinds = (unsigned)i;
        status = kvk_prepare(ctx, &model, &k, NULL);
    }
    return status ? data : NULL;
}

static void threads_share_a_pack(void **state)
{
    struct place *place = *state;
    struct kvk_options o = options_of(place);
    pthread_t threads[THREADS];
    kvk_context *ctx = open_with(&o);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, prepare_some, ctx), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    kvk_close(ctx);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
    (void)argc;
    rt_with_fakes(argv);
    const struct CMUnitTest tests[] = {
        TEST(pack_comes_before_cache_and_compiler),
        TEST(pack_alone_is_enough),
        TEST(pack_in_memory_is_enough),
        TEST(packs_of_the_environment),
        TEST(miss_names_kernel_and_places),
        TEST(miss_says_what_a_pack_is_for),
        TEST(plans_of_tables_are_no_part_of_the_key),
        TEST(spec_of_a_pack_is_known_by_name),
        TEST(old_driver_takes_ptx_of_the_pack),
        TEST(other_builds_are_refused),
        TEST(missing_and_damaged_packs_are_refused),
        TEST(damaged_kernels_are_passed_over),
        TEST(useless_kernels_are_passed_over),
        TEST(kernel_of_another_key_is_a_miss),
        TEST(every_call_may_fail),
        TEST(older_options_are_accepted),
        TEST(threads_share_a_pack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
