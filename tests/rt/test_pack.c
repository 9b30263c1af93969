/* SPDX-License-Identifier: Apache-2.0 */
/* The pack reader: whole packs, and every way in which bytes can be something else. Runs on buffers of the exact size,
** so that AddressSanitizer sees a read behind them. */
#include "rt_pack.h"

#include "../../runtime/key.h"

#include "build_id.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

static int setup(void **state)
{
    (void)state;
    rt_generator_reset();
    return 0;
}

/* Two kernels and a spec: small enough to flip every bit. */
static unsigned char *small(size_t *size)
{
    struct pack_writer writer;
    struct gen_request store = rt_request("store"), decode = rt_request("decode");
    void *bytes;
    pack_writer_init(&writer, KVK_BUILD_ID);
    pack_writer_note(&writer, "assembler none at all");
    rt_pack_add(&writer, &store, 0);
    rt_pack_add(&writer, &decode, 1);
    assert_null(pack_writer_spec(&writer, "mine", "spec 1\nname mine\nlayouts aos\n"));
    assert_null(pack_writer_bytes(&writer, &bytes, size));
    pack_writer_free(&writer);
    return bytes;
}

static void *copy(const void *bytes, size_t size)
{
    void *exact = malloc(size ? size : 1);
    if (size)
        memcpy(exact, bytes, size);
    return exact;
}

/* Does every row of it come out whole? */
static int reads(const struct pack *pack)
{
    int whole = 1;
    for (uint32_t i = 0; i < pack->rows; i++) {
        void *data;
        size_t bytes;
        kvk_error err = {0};
        kvk_status status = pack_read(pack, i, &data, &bytes, &err);
        if (status) {
            assert_int_equal(status, KVK_E_OBJECT);
            assert_true(err.text[0] != '\0');
            whole = 0;
        }
        free(data);
    }
    return whole;
}

static void refused(const void *bytes, size_t size, const char *text)
{
    struct pack pack;
    kvk_error err = {0};
    void *exact = copy(bytes, size);
    assert_int_equal(pack_parse(exact, size, &pack, &err), KVK_E_OBJECT);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" is not in \"%s\"", text, err.text);
    assert_int_equal(pack.rows, 0);
    free(exact);
}

/* ---- whole packs ---- */

static void whole_pack_is_read(void **state)
{
    (void)state;
    size_t size, bytes;
    unsigned char *file = small(&size);
    struct pack pack;
    struct gen_request request = rt_request("store");
    struct object object;
    struct pack_row row;
    uint32_t index;
    void *data;
    assert_int_equal(pack_parse(file, size, &pack, NULL), KVK_OK);
    assert_int_equal(pack.rows, 3);
    assert_string_equal(pack.generator, KVK_BUILD_ID);
    assert_int_equal(pack.abi, KVK_ABI_VERSION);
    assert_non_null(strstr(pack.manifest, "\nassembler none at all\n"));
    assert_non_null(strstr(pack.manifest, "\ntarget sm_90a cubin 1\ntarget sm_90a ptx 1\n"));
    char *key = key_for_pack(&request, KVK_BUILD_ID, 0);
    assert_true(pack_find(&pack, key, &index));
    pack_row(&pack, index, &row);
    assert_string_equal(row.name, "store_aos_sm_90a_d128_g4");
    assert_string_equal(row.target, "sm_90a");
    assert_string_equal(row.signature, "kvk1:fake:aos:128:128:16");
    assert_int_equal(row.format, PACK_CUBIN);
    assert_int_equal(pack_read(&pack, index, &data, &bytes, NULL), KVK_OK);
    assert_int_equal(bytes, row.raw_bytes);
    assert_int_equal(object_parse(data, bytes, &object, NULL), KVK_OK);
    assert_string_equal(object.key, key);
    free(data);
    free(key);
    key = key_for_pack(&request, KVK_BUILD_ID, 1);
    assert_false(pack_find(&pack, key, &index));
    assert_false(pack_find(&pack, "", &index));
    assert_int_equal(pack_read(&pack, pack.rows, &data, &bytes, NULL), KVK_E_ARG);
    free(key);
    pack_close(&pack);
    free(file);
}

static void empty_pack_is_a_pack(void **state)
{
    (void)state;
    struct pack_writer writer;
    struct pack pack;
    void *bytes;
    size_t size;
    uint32_t index;
    pack_writer_init(&writer, "someone else");
    assert_null(pack_writer_bytes(&writer, &bytes, &size));
    void *exact = copy(bytes, size);
    assert_int_equal(pack_parse(exact, size, &pack, NULL), KVK_OK);
    assert_int_equal(pack.rows, 0);
    assert_false(pack_find(&pack, "x", &index));
    pack_writer_free(&writer);
    free(bytes);
    free(exact);
}

static void order_and_repetition_change_nothing(void **state)
{
    (void)state;
    struct pack_writer writer;
    size_t size, again;
    void *bytes;
    unsigned char *file = small(&size);
    struct gen_request store = rt_request("store"), decode = rt_request("decode");
    pack_writer_init(&writer, KVK_BUILD_ID);
    rt_pack_add(&writer, &decode, 1);
    assert_null(pack_writer_spec(&writer, "mine", "spec 1\nname mine\nlayouts aos\n"));
    rt_pack_add(&writer, &decode, 1);
    rt_pack_add(&writer, &store, 0);
    pack_writer_note(&writer, "assembler none at all");
    pack_writer_note(&writer, "assembler none at all");
    assert_null(pack_writer_bytes(&writer, &bytes, &again));
    assert_int_equal(size, again);
    assert_memory_equal(file, bytes, size);
    pack_writer_free(&writer);
    free(bytes);
    free(file);
}

static void two_kernels_of_one_key_are_refused(void **state)
{
    (void)state;
    struct pack_writer writer;
    struct gen_request store = rt_request("store");
    void *bytes;
    size_t size;
    pack_writer_init(&writer, KVK_BUILD_ID);
    rt_pack_add(&writer, &store, 0);
    rt_generator.extra = "plan.other 1";
    rt_pack_add(&writer, &store, 0);
    char *error = pack_writer_bytes(&writer, &bytes, &size);
    assert_non_null(strstr(error, "store_aos_sm_90a_d128_g4.sm_90a"));
    free(error);
    pack_writer_free(&writer);
}

/* ---- damage ---- */

static void every_truncation_is_refused(void **state)
{
    (void)state;
    size_t size;
    unsigned char *file = small(&size);
    for (size_t n = 0; n < size; n++)
        refused(file, n, "");
    unsigned char *longer = calloc(1, size + 1);
    memcpy(longer, file, size);
    refused(longer, size + 1, "there are");
    free(longer);
    free(file);
}

/* A flipped bit in the head is found by parsing; behind it by reading the row. Between two rows it changes nothing. */
static void every_flipped_bit_is_noticed(void **state)
{
    (void)state;
    size_t size, gaps = 0;
    unsigned char *file = small(&size);
    for (size_t bit = 0; bit < size * 8; bit++) {
        struct pack pack;
        unsigned char *bad = copy(file, size);
        bad[bit / 8] ^= (unsigned char)(1 << bit % 8);
        kvk_status status = pack_parse(bad, size, &pack, NULL);
        if (!status && reads(&pack)) {
            int inside = 0;
            for (uint32_t i = 0; i < pack.rows; i++) {
                struct pack_row row;
                pack_row(&pack, i, &row);
                inside |= bad + bit / 8 >= row.data && bad + bit / 8 < row.data + row.stored_bytes;
            }
            assert_false(inside);
            gaps++;
        }
        free(bad);
    }
    assert_true(gaps < PACK_ALIGNMENT * 8 * 3);
    free(file);
}

struct forgery {
    size_t at; /* in the header, or, with `row`, in the second row */
    int row, bytes;
    uint64_t value;
    const char *text;
};

/* The checksum is right, what it covers is not. */
static void forged_heads_are_refused(void **state)
{
    (void)state;
    static const struct forgery forgeries[] = {
        {0, 0, 1, 'X', "magic"},
        {PACK_AT_VERSION, 0, 4, 2, "pack version 2, this build reads 1"},
        {PACK_AT_VERSION + 4, 0, 4, 1, "not zero"},
        {PACK_AT_ABI + 4, 0, 4, 1, "not zero"},
        {PACK_AT_RESERVED + 5, 0, 1, 1, "not zero"},
        {PACK_AT_TOTAL, 0, 8, 1, "pack says 1 bytes"},
        {PACK_AT_ROWS, 0, 4, 2, "sections"},
        {PACK_AT_ROWS, 0, 4, 0xffffffff, "sections"},
        {PACK_AT_STRINGS, 0, 8, 0, "sections"},
        {PACK_AT_STRINGS + 8, 0, 8, UINT64_MAX, "sections"},
        {PACK_AT_MANIFEST, 0, 8, UINT64_MAX - 3, "sections"},
        {PACK_AT_MANIFEST + 8, 0, 8, UINT64_MAX - 7, "sections"},
        {PACK_AT_DATA, 0, 8, 192, "sections"},
        {PACK_ROW_KEY, 1, 8, 0, "out of order"},
        {PACK_ROW_FORMAT, 1, 4, 0, "has format 0"},
        {PACK_ROW_FORMAT, 1, 4, PACK_FORMATS, "accepted 1..5"},
        {PACK_ROW_NAME, 1, 4, 0xffffffff, "not valid"},
        {PACK_ROW_TARGET, 1, 4, 100000, "not valid"},
        {PACK_ROW_SIGNATURE, 1, 4, 100000, "not valid"},
        {PACK_ROW_NAME, 1, 4, 0, "a name that is none"}, /* "" of the spec's target */
        {PACK_ROW_DATA, 1, 8, 0, "outside"},
        {PACK_ROW_DATA, 1, 8, UINT64_MAX - 15, "outside"},
        {PACK_ROW_STORED, 1, 8, 0, "outside"},
        {PACK_ROW_STORED, 1, 8, UINT64_MAX, "outside"},
        {PACK_ROW_STORED, 1, 8, 1, "outside"},
        {PACK_ROW_RAW, 1, 8, 0, "accepted 1.."},
        {PACK_ROW_RAW, 1, 8, UINT64_MAX, "accepted 1.."},
        {PACK_ROW_ZERO, 1, 8, 1, "not valid"},
    };
    size_t size;
    unsigned char *file = small(&size);
    for (size_t i = 0; i < sizeof forgeries / sizeof *forgeries; i++) {
        const struct forgery *f = &forgeries[i];
        unsigned char *bad = copy(file, size);
        size_t at = f->at + (f->row ? PACK_HEADER_BYTES + PACK_ROW_BYTES : 0);
        for (int b = 0; b < f->bytes; b++)
            bad[at + (size_t)b] = (unsigned char)(f->value >> 8 * b);
        if (f->row || f->at < PACK_AT_DATA)
            rt_pack_reseal(bad);
        refused(bad, size, f->text);
        free(bad);
    }
    free(file);
}

/* The last frame does not reach the end of the file. */
static void frames_fill_the_file(void **state)
{
    (void)state;
    size_t size;
    unsigned char *file = small(&size);
    unsigned char *last = file + PACK_HEADER_BYTES + 2 * PACK_ROW_BYTES + PACK_ROW_STORED;
    *last -= 1; /* sizes of this test's frames do not end in 0 */
    assert_true(*last != 0xff);
    rt_pack_reseal(file);
    refused(file, size, "rows of the pack end at");
    free(file);
}

static void names_that_lead_elsewhere_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"../../../etc/x", ".hidden", "a/b", "a b",
                                        "a\nb",           "\xc3\xa4"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct pack_writer writer;
        void *bytes;
        size_t size;
        pack_writer_init(&writer, KVK_BUILD_ID);
        assert_null(pack_writer_spec(&writer, names[i], "text"));
        assert_null(pack_writer_bytes(&writer, &bytes, &size));
        refused(bytes, size, "a name that is none");
        pack_writer_free(&writer);
        free(bytes);
    }
}

/* Texts that do not end: last string, manifest, generator. */
static void texts_must_end(void **state)
{
    (void)state;
    size_t size;
    unsigned char *file = small(&size);
    struct pack pack;
    assert_int_equal(pack_parse(file, size, &pack, NULL), KVK_OK);
    size_t manifest = (size_t)((const unsigned char *)pack.manifest - file);
    const size_t ends[] = {manifest - 1, manifest + strlen(pack.manifest)};
    for (int i = 0; i < 2; i++) {
        unsigned char *bad = copy(file, size);
        bad[ends[i]] = 'x';
        rt_pack_reseal(bad);
        refused(bad, size, "does not end where it should");
        free(bad);
    }
    unsigned char *bad = copy(file, size);
    memset(bad + PACK_AT_GENERATOR, 'x', PACK_GENERATOR_CAP);
    rt_pack_reseal(bad);
    refused(bad, size, "does not end where it should");
    free(bad);
    free(file);
}

/* Frames whose own checksum is right: no zstd, another length, other contents. */
static void forged_frames_are_refused(void **state)
{
    (void)state;
    static const char text[] = "some text that is stored";
    char frame[256];
    struct pack pack;
    void *bytes, *data;
    size_t size, got;
    size_t stored = ZSTD_compress(frame, sizeof frame, text, sizeof text, 3);
    assert_false(ZSTD_isError(stored));
    for (int i = 0; i < 4; i++) {
        struct pack_writer writer;
        struct pack_row row = {.name = "x", .target = "", .signature = "", .format = PACK_SPEC};
        unsigned char key[16] = {1}, zero[16] = {0}, sums[2][16];
        unsigned char broken[256];
        memcpy(broken, frame, stored);
        if (i == 1)
            memset(broken, 'x', stored); /* no frame at all */
        if (i == 2)
            broken[stored - 1] ^= 0x55;
        row.data = broken;
        row.stored_bytes = i == 3 ? stored - 3 : stored;
        row.raw_bytes = i == 0 ? sizeof text - 1 : sizeof text;
        row.key = key;
        row.stored_sum = sums[0];
        row.raw_sum = i == 2 ? zero : sums[1];
        rt_pack_sum(broken, (size_t)row.stored_bytes, sums[0]);
        rt_pack_sum(text, sizeof text, sums[1]);
        pack_writer_init(&writer, KVK_BUILD_ID);
        pack_writer_row(&writer, &row);
        assert_null(pack_writer_bytes(&writer, &bytes, &size));
        assert_int_equal(pack_parse(bytes, size, &pack, NULL), KVK_OK);
        assert_int_equal(pack_read(&pack, 0, &data, &got, NULL), KVK_E_OBJECT);
        assert_null(data);
        pack_writer_free(&writer);
        free(bytes);
    }
}

/* ---- files ---- */

static void cannot_map(const char *path, kvk_status status, const char *text)
{
    struct pack pack;
    kvk_error err = {0};
    assert_int_equal(pack_map(path, &pack, &err), status);
    if (!strstr(err.text, path) || !strstr(err.text, text))
        fail_msg("\"%s\" does not name %s and \"%s\"", err.text, path, text);
    pack_close(&pack);
}

static void files_that_are_none(void **state)
{
    (void)state;
    char *dir = rt_folder(), *path = rt_path(dir, "x.kvkpack"), *pipe = rt_path(dir, "pipe");
    size_t size;
    struct pack pack;
    unsigned char *file = small(&size);
    cannot_map(path, KVK_E_IO, "No such file");
    cannot_map(dir, KVK_E_IO, "not a regular file");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    cannot_map(pipe, KVK_E_IO, "not a regular file");
    rt_write(path, "", 0);
    cannot_map(path, KVK_E_IO, "empty");
    rt_write(path, file, size - 1);
    cannot_map(path, KVK_E_OBJECT, "pack says");
    rt_write(path, file, size);
    assert_int_equal(pack_map(path, &pack, NULL), KVK_OK);
    assert_true(reads(&pack));
    unlink(path); /* what is mapped stays */
    assert_true(reads(&pack));
    pack_close(&pack);
    free(file);
    free(path);
    free(pipe);
    rt_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(whole_pack_is_read, setup),
        cmocka_unit_test_setup(empty_pack_is_a_pack, setup),
        cmocka_unit_test_setup(order_and_repetition_change_nothing, setup),
        cmocka_unit_test_setup(two_kernels_of_one_key_are_refused, setup),
        cmocka_unit_test_setup(every_truncation_is_refused, setup),
        cmocka_unit_test_setup(every_flipped_bit_is_noticed, setup),
        cmocka_unit_test_setup(forged_heads_are_refused, setup),
        cmocka_unit_test_setup(frames_fill_the_file, setup),
        cmocka_unit_test_setup(names_that_lead_elsewhere_are_refused, setup),
        cmocka_unit_test_setup(texts_must_end, setup),
        cmocka_unit_test_setup(forged_frames_are_refused, setup),
        cmocka_unit_test_setup(files_that_are_none, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
