/* SPDX-License-Identifier: Apache-2.0 */
/* The object parser against every kind of damage, and the manifest reader. Run it under a sanitizer as well. */
#include "rt.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static void *sealed(size_t *bytes)
{
    static const char key[] = "kvkiln 1 abi 1\nkind store\n";
    static const char manifest[] = "kernel one\nabi 1\nrows 16\nentry decode a 128 4096\nentry "
                                   "reduce b 64 0\nempty \nbad 12x\n";
    static const unsigned char code[] = {1, 2, 3, 0, 255, 254};
    struct object parts = {.key = key,
                           .key_bytes = sizeof key - 1,
                           .manifest = manifest,
                           .manifest_bytes = sizeof manifest - 1,
                           .code = code,
                           .code_bytes = sizeof code};
    void *out;
    assert_int_equal(object_seal(&parts, &out, bytes, NULL), KVK_OK);
    return out;
}

/* In a buffer of exactly its size, so that a sanitizer sees a read beyond. */
static kvk_status parse_copy(const void *bytes, size_t size, kvk_error *err)
{
    struct object o;
    void *copy = malloc(size ? size : 1);
    memcpy(copy, bytes, size);
    kvk_status status = object_parse(copy, size, &o, err);
    free(copy);
    return status;
}

static void sealed_parts_come_back(void **state)
{
    (void)state;
    size_t bytes;
    struct object o;
    void *data = sealed(&bytes);
    assert_int_equal(object_parse(data, bytes, &o, NULL), KVK_OK);
    assert_string_equal(o.key, "kvkiln 1 abi 1\nkind store\n");
    assert_int_equal(o.code_bytes, 6);
    assert_int_equal(((const unsigned char *)o.code)[4], 255);
    assert_int_equal((size_t)((const char *)o.code - (const char *)data) % 64, 0);
    free(data);
}

static void sealing_is_deterministic(void **state)
{
    (void)state;
    size_t a_bytes, b_bytes;
    void *a = sealed(&a_bytes), *b = sealed(&b_bytes);
    assert_int_equal(a_bytes, b_bytes);
    assert_memory_equal(a, b, a_bytes);
    free(a);
    free(b);
}

static void empty_parts_are_allowed(void **state)
{
    (void)state;
    struct object parts = {0}, o;
    void *data;
    size_t bytes;
    assert_int_equal(object_seal(&parts, &data, &bytes, NULL), KVK_OK);
    assert_int_equal(object_parse(data, bytes, &o, NULL), KVK_OK);
    assert_string_equal(o.manifest, "");
    free(data);
}

static void every_truncation_is_noticed(void **state)
{
    (void)state;
    size_t bytes;
    void *data = sealed(&bytes);
    kvk_error err;
    for (size_t n = 0; n < bytes; n++) {
        assert_int_equal(parse_copy(data, n, &err), KVK_E_OBJECT);
        assert_true(err.text[0] != '\0');
    }
    free(data);
}

static void every_flipped_bit_is_noticed(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *data = sealed(&bytes);
    for (size_t i = 0; i < 8 * bytes; i++) {
        data[i / 8] ^= (unsigned char)(1u << i % 8);
        assert_int_equal(parse_copy(data, bytes, NULL), KVK_E_OBJECT);
        data[i / 8] ^= (unsigned char)(1u << i % 8);
    }
    assert_int_equal(parse_copy(data, bytes, NULL), KVK_OK);
    free(data);
}

static void appended_bytes_are_noticed(void **state)
{
    (void)state;
    size_t bytes;
    char *data = sealed(&bytes), *longer = calloc(1, bytes + 64);
    memcpy(longer, data, bytes);
    for (size_t n = 1; n <= 64; n++)
        assert_int_equal(parse_copy(longer, bytes + n, NULL), KVK_E_OBJECT);
    free(data);
    free(longer);
}

/* Lies with a right checksum: sizes that reach outside, wrap, or overlap; texts that hold a NUL. */
static void consistent_lies_are_refused(void **state)
{
    (void)state;
    static const uint64_t lies[] = {
        0, 1, 63, 64, 1000, UINT32_MAX, UINT64_MAX, UINT64_MAX - 63, UINT64_MAX - 130, INT64_MAX};
    size_t bytes;
    unsigned char *data = sealed(&bytes), *copy = malloc(bytes);
    for (size_t part = 0; part < 3; part++)
        for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
            memcpy(copy, data, bytes);
            memcpy(copy + 32 + 8 * part, &lies[i], 8);
            XXH128_canonical_t sum;
            XXH128_canonicalFromHash(&sum, XXH3_128bits(copy + 32, bytes - 32));
            memcpy(copy + 16, sum.digest, 16);
            assert_int_equal(parse_copy(copy, bytes, NULL), KVK_E_OBJECT);
        }
    struct object nul = {.key = "a\0b", .key_bytes = 3, .manifest = "m", .manifest_bytes = 1}, o;
    void *out;
    size_t out_bytes;
    assert_int_equal(object_seal(&nul, &out, &out_bytes, NULL), KVK_OK);
    assert_int_equal(object_parse(out, out_bytes, &o, NULL), KVK_E_OBJECT);
    free(out);
    free(copy);
    free(data);
}

static void random_bytes_are_refused(void **state)
{
    (void)state;
    unsigned char bytes[300];
    unsigned seed = 1;
    for (int round = 0; round < 2000; round++) {
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (unsigned char)((seed = seed * 1664525u + 1013904223u) >> 24);
        assert_int_equal(parse_copy(bytes, (size_t)round % sizeof bytes, NULL), KVK_E_OBJECT);
    }
}

static void manifest_lines_are_found(void **state)
{
    (void)state;
    size_t bytes;
    struct object o;
    char value[32], small[4];
    long long n;
    void *data = sealed(&bytes);
    assert_int_equal(object_parse(data, bytes, &o, NULL), KVK_OK);
    assert_true(object_get(&o, "entry reduce", value, sizeof value));
    assert_string_equal(value, "b 64 0");
    assert_true(object_get(&o, "entry", value, sizeof value));
    assert_string_equal(value, "decode a 128 4096");
    assert_true(object_get(&o, "entry", small, sizeof small));
    assert_string_equal(small, "dec");
    assert_true(object_get(&o, "empty", value, sizeof value));
    assert_string_equal(value, "");
    assert_false(object_get(&o, "row", value, sizeof value));
    assert_false(object_get(&o, "missing", value, sizeof value));
    assert_true(object_get_int(&o, "rows", &n));
    assert_int_equal(n, 16);
    assert_false(object_get_int(&o, "bad", &n));
    assert_false(object_get_int(&o, "empty", &n));
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sealed_parts_come_back),
        cmocka_unit_test(sealing_is_deterministic),
        cmocka_unit_test(empty_parts_are_allowed),
        cmocka_unit_test(every_truncation_is_noticed),
        cmocka_unit_test(every_flipped_bit_is_noticed),
        cmocka_unit_test(appended_bytes_are_noticed),
        cmocka_unit_test(consistent_lies_are_refused),
        cmocka_unit_test(random_bytes_are_refused),
        cmocka_unit_test(manifest_lines_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
