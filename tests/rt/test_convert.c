/* SPDX-License-Identifier: Apache-2.0 */
/* kvk_convert: what it checks and what it hands to the driver; the kind is asked for by name only. */
#include "rt.h"

#include "../../runtime/abi.h"

#include <string.h>

enum { G = 2, P = 16, SLOT = 196, RECORD = 192 };

static struct fake *fake;
static kvk_context *ctx;
static const kvk_kernels *aos, *soa; /* with KVK_CONVERT */

static void *at(uintptr_t offset) { return (void *)(uintptr_t)(0x10000 + offset); }

static const kvk_kernels *prepare(struct kvk_model model, const char *layout)
{
    const kvk_kernels *out = NULL;
    kvk_error err;
    model.layout = layout;
    if (kvk_prepare(ctx, &model, &out, &err) != KVK_OK)
        fail_msg("%s", err.text);
    return out;
}

static int setup(void **state)
{
    (void)state;
    struct kvk_model model = rt_model();
    rt_generator_reset();
    fake = rt_fake("libcuda.so.1");
    ctx = rt_open(NULL);
    model.kinds = KVK_STORE | KVK_CONVERT;
    aos = prepare(model, "aos");
    soa = prepare(model, "soa");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    kvk_close(ctx);
    return 0;
}

static struct kvk_convert_args args(void)
{
    struct kvk_convert_args a = KVK_INIT(struct kvk_convert_args);
    a.from = (struct kvk_pool){.data = at(0), .pages = 10};
    a.to = (struct kvk_pool){.data = at(4096), .pages = 20, .page_stride = 8192};
    a.from_index = at(64);
    a.to_index = at(128);
    a.items = 5;
    return a;
}

static void parameters_say_where_both_layouts_lie(void **state)
{
    (void)state;
    struct kvk_convert_args a = args();
    struct abi_convert p;
    for (int to_aos = 0; to_aos < 2; to_aos++) {
        const kvk_kernels *to = to_aos ? aos : soa, *from = to_aos ? soa : aos;
        assert_int_equal(kvk_convert(to, from, &a, NULL, NULL), KVK_OK);
        const struct fake_launch *last = &fake->launch[(fake->launches - 1) % FAKE_LAUNCHES];
        assert_string_equal(last->function, "k_convert");
        assert_int_equal(last->bytes, sizeof p);
        assert_int_equal(last->grid, (5 * G + 3) / 4);
        memcpy(&p, last->params, sizeof p);
        assert_int_equal(p.from_layout, to_aos ? 1 : 0);
        assert_int_equal(p.from_head_stride, to_aos ? RECORD : SLOT);
        assert_int_equal(p.head_stride, to_aos ? SLOT : RECORD);
        assert_true(p.from_page_stride == P * G * SLOT && p.page_stride == 8192);
        assert_true(p.from_capacity == 10 * P && p.capacity == 20 * P);
        assert_true(p.items == 5 && p.kv_heads == G && !p.index_64 && !p.pages);
    }
    a.pages = 1;
    a.index_type = KVK_INT64;
    assert_int_equal(kvk_convert(aos, soa, &a, NULL, NULL), KVK_OK);
    memcpy(&p, fake->launch[(fake->launches - 1) % FAKE_LAUNCHES].params, sizeof p);
    assert_true(p.items == 5 * P && p.index_64 == 1 && p.pages == 1);
}

static void bad(struct kvk_convert_args a, const kvk_kernels *to, const kvk_kernels *from,
                kvk_status status, const char *text)
{
    kvk_error err = {0};
    kvk_status got = kvk_convert(to, from, &a, NULL, &err);
    if (got != status || err.status != status || !strstr(err.text, text))
        fail_msg("%s, expected %s and \"%s\": %s", kvk_status_name(got), kvk_status_name(status),
                 text, err.text);
    assert_int_equal(kvk_convert(to, from, &a, NULL, NULL), status);
    assert_int_equal(fake->launches, 0);
}

#define BAD(set, status, text)                                                                     \
    do {                                                                                           \
        struct kvk_convert_args a = args();                                                        \
        set;                                                                                       \
        bad(a, soa, aos, status, text);                                                            \
    } while (0)

static void arguments_are_checked(void **state)
{
    (void)state;
    BAD(a.size = 0, KVK_E_ARG, "KVK_INIT");
    BAD(a.items = -1, KVK_E_SHAPE, "items is -1");
    BAD((a.items = UINT32_MAX, a.pages = 1), KVK_E_SHAPE, "more than a launch takes");
    BAD(a.from.data = NULL, KVK_E_ARG, "pool.data");
    BAD(a.to.page_stride = 6268, KVK_E_SHAPE, "page_stride");
    BAD(a.to.head_stride = SLOT, KVK_E_SHAPE, "layout soa fixes");
    BAD(a.from_index = NULL, KVK_E_ARG, "from_index");
    BAD(a.to_index = at(2), KVK_E_ALIGN, "to_index");
    BAD(a.index_type = (kvk_index)3, KVK_E_ARG, "index_type is 3");
    BAD(a.pages = 2, KVK_E_SHAPE, "pages is 2");
    bad(args(), soa, NULL, KVK_E_ARG, "from_kernels is NULL");
    bad(args(), NULL, aos, KVK_E_ARG, "kernels is NULL");
    bad(args(), aos, aos, KVK_E_ARG, "both pools have layout aos: kvk_copy");
}

static void pools_that_differ_in_more_than_layout_are_refused(void **state)
{
    (void)state;
    struct kvk_model model = rt_model();
    model.kv_heads = 4;
    bad(args(), soa, prepare(model, "aos"), KVK_E_ARG, "from has 4 KV heads, to has 2");
    model = rt_model();
    model.page_tokens = 32;
    bad(args(), soa, prepare(model, "aos"), KVK_E_ARG, "kvk1:fake:aos:128:128:32");
    model = rt_model();
    rt_generator.signature =
        "kvk1:aos:k=codebook4-nc-read:v=codebook3-nc-read:d128x128:p16:slot134";
    model.head_size = 64;
    model.kinds = KVK_CONVERT;
    const kvk_kernels *read = prepare(model, "aos");
    rt_generator.signature = "kvk1:soa:k=codebook4-nc-store:v=codebook3-norm:d128x128:p16:slot134";
    const kvk_kernels *plain = prepare(model, "soa");
    bad(args(), plain, read, KVK_E_ARG, "v=codebook3-norm");
}

static void the_kind_is_asked_for_by_name(void **state)
{
    (void)state;
    struct kvk_model model = rt_model();
    struct kvk_kernel_info info = KVK_INIT(struct kvk_kernel_info);
    const kvk_kernels *all = prepare(model, "aos");
    assert_int_equal(kvk_kernel(all, KVK_CONVERT, &info, NULL), KVK_E_ARG);
    assert_int_equal(kvk_kernel(all, KVK_COPY, &info, NULL), KVK_OK);
    bad(args(), all, soa, KVK_E_ARG, "without this kind");
    assert_int_equal(kvk_kernel(soa, KVK_CONVERT, &info, NULL), KVK_OK);
    assert_non_null(strstr(info.name, "convert"));
    model.kinds = 128;
    kvk_error err = {0};
    assert_int_equal(kvk_prepare(ctx, &model, &all, &err), KVK_E_ARG);
    assert_non_null(strstr(err.text, "0x7f"));
}

int main(int argc, char **argv)
{
    (void)argc;
    rt_with_fakes(argv);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(parameters_say_where_both_layouts_lie),
        TEST(arguments_are_checked),
        TEST(pools_that_differ_in_more_than_layout_are_refused),
        TEST(the_kind_is_asked_for_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
