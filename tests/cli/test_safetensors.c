/* SPDX-License-Identifier: Apache-2.0 */
/* test_safetensors.c - the reader accepts what is well-formed
 * and refuses every other file with one line. */
#include "../../cli/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A file of this header and `data_bytes` zeros; `claim` is the
 * header length it claims (-1: the true one). */
static int parse(const char *header, long long claim, size_t data_bytes, struct safetensors *out,
                 char *error)
{
    size_t length = strlen(header), size = 8 + length + data_bytes;
    unsigned long long claimed = claim < 0 ? length : (unsigned long long)claim;
    unsigned char *bytes = calloc(size, 1);
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(claimed >> (8 * i));
    memcpy(bytes + 8, header, length);
    return safetensors_parse(bytes, size, out, error);
}

static void refused(const char *header, long long claim, size_t data_bytes, const char *expected)
{
    struct safetensors st;
    char error[SAFETENSORS_ERROR] = "";
    if (parse(header, claim, data_bytes, &st, error)) {
        safetensors_close(&st);
        fail_msg("accepted: %s", header);
    }
    if (!strstr(error, expected))
        fail_msg("'%s' does not say '%s'", error, expected);
    assert_null(strchr(error, '\n'));
}

static void well_formed_files_are_read(void **state)
{
    struct safetensors st;
    char error[SAFETENSORS_ERROR];
    (void)state;
    assert_true(parse("{\"__metadata__\":{\"preset\":\"p\"},\"a\":{\"dtype\":\"F16\",\"shape\":[2,"
                      "3],\"data_offsets\":[0,12]},"
                      "\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[12,13]},"
                      "\"none\":{\"dtype\":\"I64\",\"shape\":[0,5],\"data_offsets\":[12,12]}}   ",
                      -1, 13, &st, error));
    assert_int_equal(st.ntensors, 3);
    assert_int_equal(safetensors_get(&st, "a")->count, 6);
    assert_int_equal(safetensors_get(&st, "b")->bytes, 1);
    assert_int_equal(safetensors_get(&st, "none")->count, 0);
    assert_null(safetensors_get(&st, "c"));
    assert_string_equal(safetensors_text(&st, "preset"), "p");
    assert_null(safetensors_text(&st, "layout"));
    safetensors_close(&st);
    assert_true(parse("{}", -1, 0, &st, error));
    safetensors_close(&st);
}

static void damaged_headers_are_refused(void **state)
{
    (void)state;
    refused("{}", 3, 0, "truncated");
    refused("{}", 1ll << 40, 0, "refused");
    refused("{}", 0x7FFFFFFFFFFFFFFF, 0, "refused");
    refused("{\"a\":", -1, 0, "not valid JSON");
    refused("[]", -1, 0, "not a JSON object");
    refused("", -1, 0, "not valid JSON");
    refused("{\"__metadata__\":3}", -1, 0, "__metadata__");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"a\":{\"dtype\":"
            "\"U8\",\"shape\":[1],"
            "\"data_offsets\":[1,2]}}",
            -1, 2, "not valid JSON: duplicate");
    refused("{\"a\\u000ab\":3}", -1, 0, "no dtype");
}

static void damaged_tensors_are_refused(void **state)
{
    (void)state;
    refused("{\"a\":3}", -1, 0, "no dtype");
    refused("{\"a\":{\"dtype\":\"F12\",\"shape\":[1],\"data_offsets\":[0,1]}}", -1, 1,
            "unknown dtype");
    refused("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", -1, 1, "no shape");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}", -1, 1,
            "not a size");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1.5],\"data_offsets\":[0,1]}}", -1, 1,
            "not a size");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", -1,
            1, "dimensions");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}",
            -1, 0, "overflows");
    refused("{\"a\":{\"dtype\":\"F64\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}",
            -1, 0, "overflows");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", -1, 1,
            "not two numbers");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[\"0\",1]}}", -1, 1,
            "not two numbers");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", -1, 1, "outside");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[-1,0]}}", -1, 1, "outside");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,0]}}", -1, 1, "outside");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,9223372036854775807]}}", -1,
            1, "outside");
    refused("{\"a\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,1]}}", -1, 1, "make 2");
}

static void data_must_be_covered_once(void **state)
{
    (void)state;
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},\"b\":{\"dtype\":"
            "\"U8\",\"shape\":[2],"
            "\"data_offsets\":[2,4]}}",
            -1, 4, "overlaps");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},\"b\":{\"dtype\":"
            "\"U8\",\"shape\":[2],"
            "\"data_offsets\":[4,6]}}",
            -1, 6, "belong to no tensor");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}", -1, 4, "at the end");
}

static void short_files_are_refused(void **state)
{
    struct safetensors st;
    char error[SAFETENSORS_ERROR];
    (void)state;
    for (size_t size = 0; size < 8; size++)
        assert_false(safetensors_parse(calloc(8, 1), size, &st, error));
    assert_false(safetensors_open("/nowhere/at/all", &st, error));
    assert_false(safetensors_open("/", &st, error));
    assert_false(safetensors_open("/dev/null", &st, error));
}

/* Every prefix of a good file, and every byte of its header
 * changed, is refused or read, but nothing worse. */
static void mutations_never_crash(void **state)
{
    static const char header[] =
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[2,2],\"data_offsets\":[0,4]}}";
    size_t size = 8 + sizeof header - 1 + 4;
    struct safetensors st;
    char error[SAFETENSORS_ERROR];
    (void)state;
    for (size_t at = 0; at < size; at++)
        for (int change = 0; change < 256; change += change < 8 ? 1 : 17) {
            unsigned char *bytes = calloc(size, 1);
            assert_non_null(bytes);
            bytes[0] = sizeof header - 1;
            memcpy(bytes + 8, header, sizeof header - 1);
            bytes[at] = (unsigned char)(bytes[at] ^ change);
            if (safetensors_parse(bytes, change ? size : at, &st, error))
                safetensors_close(&st);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(well_formed_files_are_read),
        cmocka_unit_test(damaged_headers_are_refused),
        cmocka_unit_test(damaged_tensors_are_refused),
        cmocka_unit_test(data_must_be_covered_once),
        cmocka_unit_test(short_files_are_refused),
        cmocka_unit_test(mutations_never_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
