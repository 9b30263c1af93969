/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_oracle.c - the command line's byte formats and attention against known slots and the sample
** files: what `check` trusts.
*/
#include "../../cli/check_store.h"
#include "../../cli/encode.h"
#include "../../cli/oracle.h"
#include "../../cli/sample.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { D = 128 };

/* One slot of each preset for the inputs of known_input, head size 128, aos. */
static const struct {
    const char *preset, *hex;
    double key[4]; /* first decoded elements, rotated basis; NaN: not known */
} known[] = {
    {"turboquant_k8v4",
     "2d32363c3e3a373628b2b8b8bcbebab2b093363a3a3b3d392d21a4b8bcbbbabcb8a2282e393d3c393a3698b2b4b9b"
     "ebc"
     "b8b6b22837383a3d3c36312baebabababdbcb3a485323b3c3a3b3b31a2abb4bcbdbab9b9ac2e33373c3e3a363525b"
     "3b8"
     "b9bcbeb9b2af03363b3a3b3d392b1aa7b8bcbbbabbb89e2a30393d3c3939359eeeedcb996644221112235588badcf"
     "dfd"
     "edcb995634130212335597c9ebfdfdddbc8a4725130212426496c9ebedeeceac7a4725121121427496c9dceedfcea"
     "d7a"
     "de3498c0",
     {NAN, NAN, NAN, NAN}},
    {"turboquant_4bit_nc",
     "8a87788738807097889878787c787876876788878f776884879578888899797888997a788f5838717779877787698"
     "b77"
     "87968888979b8e7878b9777876798778114aeeedcb996644221112235588badcfdfdedcb995634130212335597c9e"
     "bfd"
     "fdddbc8a4725130212426496c9ebedeeceac7a4725121121427496c9dceedfcead7ade3498c0",
     {1.0942189, 0.2139325, -0.2139325, 0.2139325}},
    {"turboquant_k3v4_nc",
     "e5c88d0c888d24c9711ec76de3468ee7c689a3c89124c97124d97127c5601b376e23676ee34892a379721cbb711b3"
     "772"
     "114aeeedcb996644221112235588badcfdfdedcb995634130212335597c9ebfdfdddbc8a4725130212426496c9ebe"
     "dee"
     "ceac7a4725121121427496c9dceedfcead7ade3498c0",
     {1.3394080, 0.4342420, -0.4342420, 0.4342420}},
    {"turboquant_3bit_nc",
     "e5c88d0c888d24c9711ec76de3468ee7c689a3c89124c97124d97127c5601b376e23676ee34892a379721cbb711b3"
     "772"
     "114abfdd929b9404412291adedfb764b6e4a10048936b2b5efdb2d3929419044da48d7be6dbbdda424081269236bd"
     "ff7"
     "6b76373998c0",
     {1.3394080, 0.4342420, -0.4342420, 0.4342420}},
    {"ultraquant_4bit",
     "01000000b10d0f10001000000300000900a001000709a00c001a001000210200001101000791a00c0001000010910"
     "200"
     "091a001120140690004200010a9200907f7e7f7e77777643bceeffffffffed0165777777654412b9dcedededddbb1"
     "952"
     "646565556604e9fdffffffefbe4b737677777757a5e0fdffffffefae4b747777776747957d7e7d7d",
     {NAN, NAN, NAN, NAN}},
};

static size_t from_hex(const char *hex, unsigned char *bytes)
{
    size_t count = strlen(hex) / 2;
    for (size_t i = 0; i < count; i++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        bytes[i] = (unsigned char)byte;
    }
    return count;
}

static void known_input(double *key, double *value)
{
    for (int i = 0; i < D; i++) {
        key[i] = number_from_half(number_to_half(1.5 * sin(0.37 * i + 0.1) + 0.25 * cos(1.7 * i)));
        value[i] = number_from_half(number_to_half(2 * cos(0.21 * i) + 0.3 * sin(2.9 * i)));
    }
}

/* Relative L2 */
static double distance(const double *got, const double *want)
{
    double square = 0, reference = 0;
    for (int i = 0; i < D; i++) {
        square += (got[i] - want[i]) * (got[i] - want[i]);
        reference += want[i] * want[i];
    }
    return sqrt(square / reference);
}

static void known_slots_decode(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        unsigned char bytes[512];
        double key[D], value[D], want_key[D], want_value[D];
        struct slots slots;
        assert_true(slots_make(slots_format(known[k].preset), "aos", 1, D, 16, &slots));
        assert_int_equal(from_hex(known[k].hex, bytes), slots.slot_bytes);
        slots_key(&slots, bytes, 0, 0, key);
        slots_value(&slots, bytes, 0, 0, value);
        for (int i = 0; i < 4 && !isnan(known[k].key[i]); i++)
            assert_true(fabs(key[i] - known[k].key[i]) < 1e-6);
        known_input(want_key, want_value);
        if (slots_rotated(slots.format))
            slots_rotate(key, D);
        /* these keys are far from Gaussian, so 3 and 4 bits say little about them */
        assert_true(distance(key, want_key) < (slots.format->key == KEY_FP8 ? 0.04 : 0.6));
        assert_true(distance(value, want_value) < 0.2);
    }
}

/* Codes of the known slots are where the pre-rounding values say. */
static void truth_agrees_with_codes(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        unsigned char bytes[512];
        double key[D], value[D], truth[D];
        struct slots slots;
        assert_true(slots_make(slots_format(known[k].preset), "aos", 1, D, 16, &slots));
        from_hex(known[k].hex, bytes);
        known_input(key, value);
        if (slots.format->key == KEY_CODEBOOK)
            encode_key(&slots, key, truth);
        for (int i = 0; i < D && slots.format->key == KEY_CODEBOOK; i++) {
            unsigned code = slots_code(bytes, slots.format->key_bits, i),
                     top = (1u << slots.format->key_bits) - 1;
            assert_true(code == 0 || truth[i] >= slots.midpoints[code - 1]);
            assert_true(code == top || truth[i] < slots.midpoints[code]);
        }
        encode_value(&slots, value, truth);
        for (int i = 0; i < D && slots.format->value == VALUE_AFFINE; i++) {
            unsigned code =
                slots_code(bytes + slots_at(&slots, 0, 0).value, slots.format->value_bits, i);
            assert_true(fabs(truth[i] - code) <= 0.5 + 1e-6);
        }
    }
}

static void centroids_have_the_known_bits(void **state)
{
    static const unsigned bits128[] = {0x3CB16317, 0x3D88C955, 0x3DF3243D, 0x3E42A09F};
    static const unsigned bits80[] = {0x3C6B408A, 0x3D31BF16, 0x3D966873, 0x3DD7CBA9,
                                      0x3E0FD323, 0x3E3939D5, 0x3E6CCF45, 0x3E9C53BD};
    double table[16];
    (void)state;
    slots_centroids(128, 3, table);
    for (int i = 0; i < 4; i++) {
        unsigned char bytes[4] = {bits128[i] & 255, bits128[i] >> 8 & 255, bits128[i] >> 16 & 255,
                                  bits128[i] >> 24 & 255};
        assert_true(table[4 + i] == number_at(NUMBER_F32, bytes, 0) &&
                    table[3 - i] == -table[4 + i]);
    }
    slots_centroids(80, 4, table);
    for (int i = 0; i < 8; i++) {
        unsigned char bytes[4] = {bits80[i] & 255, bits80[i] >> 8 & 255, bits80[i] >> 16 & 255,
                                  bits80[i] >> 24 & 255};
        assert_true(table[8 + i] == number_at(NUMBER_F32, bytes, 0));
    }
}

static void rotation_is_its_own_inverse(void **state)
{
    static const int sizes[] = {64, 80, 96, 128, 192, 256};
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        double row[256], square = 0;
        for (int i = 0; i < sizes[s]; i++)
            row[i] = sin(i + 1);
        slots_rotate(row, sizes[s]);
        for (int i = 0; i < sizes[s]; i++)
            square += row[i] * row[i] - sin(i + 1) * sin(i + 1);
        assert_true(fabs(square) < 1e-10);
        slots_rotate(row, sizes[s]);
        for (int i = 0; i < sizes[s]; i++)
            assert_true(fabs(row[i] - sin(i + 1)) < 1e-12);
    }
}

static void small_floats_survive_the_way_there_and_back(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 65536; i++) {
        if ((i & 0x7C00) != 0x7C00)
            assert_int_equal(number_to_half(number_from_half((uint16_t)i)), i);
        if ((i & 0x7F80) != 0x7F80)
            assert_int_equal(number_to_bf16(number_from_bf16((uint16_t)i)), i);
        if (i < 256 && (i & 0x7F) != 0x7F)
            assert_int_equal(number_to_e4m3(number_from_e4m3((uint8_t)i)), i);
    }
    assert_int_equal(number_to_half(65519.99), 0x7BFF);
    assert_int_equal(number_to_half(65520), 0x7C00);
    assert_int_equal(number_to_e4m3(1e6), 0x7E);
    assert_int_equal(number_to_e4m3(-INFINITY), 0xFE);
    assert_int_equal(number_to_e4m3(ldexp(1, -10)), 0);
    assert_int_equal(number_to_e4m3(0.4), 0x2D);
    assert_int_equal(number_half_steps(0x8000, 0), 0);
    assert_int_equal(number_half_steps(0x8001, 1), 2);
    assert_true(number_half_steps(0x7E00, 0) > 65536);
}

static void attention_with_no_visible_key_is_zero(void **state)
{
    double row[8] = {1}, out[8] = {3};
    struct oracle_rows rows = {.head_size = 8, .key = row, .value = row};
    struct oracle_mask mask = {.scale = 1};
    (void)state;
    assert_true(oracle_attend(&rows, row, 0, &mask, out) == -INFINITY && out[0] == 0);
    rows.tokens = 1;
    assert_true(oracle_attend(&rows, row, 0, &mask, out) == 1 && out[0] == 1);
    double sink = 1;
    mask.sink = &sink;
    assert_true(fabs(oracle_attend(&rows, row, 0, &mask, out) - 1) < 1e-15 &&
                fabs(out[0] - 0.5) < 1e-15);
}

/* ---- whole files ---- */

static double relative(const struct sample *s, const struct tensor *want, const double *got)
{
    double square = 0, reference = 0;
    for (size_t i = 0; i < want->count; i++) {
        double x = number_at(s->number, want->data, i);
        square += (got[i] - x) * (got[i] - x);
        reference += x * x;
    }
    return sqrt(square / reference);
}

static void round_query(const struct sample *s, double *query)
{
    if (s->slots.format->key != KEY_E2M1)
        return;
    slots_rotate(query, s->head_size);
    for (int i = 0; i < s->head_size; i++)
        query[i] = number_from_e4m3(number_to_e4m3(query[i]));
    slots_rotate(query, s->head_size);
}

/* Every row of `query` of sequence i, which starts at row start[i] (NULL: i), by the oracle. */
static double attend_all(const struct sample *s, const struct tensor *query,
                         const struct tensor *want, const int32_t *start, long window,
                         int with_sinks)
{
    long h_count = s->query_heads, d = s->head_size, gqa = h_count / s->kv_heads;
    double *got = calloc(want->count, sizeof *got), row[512], sink = 0;
    assert_non_null(got);
    for (long i = 0; i < s->sequences; i++)
        for (int g = 0; g < s->kv_heads; g++) {
            struct oracle_rows rows;
            oracle_decode(&s->slots, s->cache->data, s->block_table + i * s->table_stride,
                          s->lengths[i], g, &rows);
            long first = start ? start[i] : i, last = start ? start[i + 1] : i + 1;
            for (long r = first; r < last; r++)
                for (long h = g * gqa; h < (g + 1) * gqa; h++) {
                    struct oracle_mask mask = {
                        .scale = s->scale, .window = window, .sink = with_sinks ? &sink : NULL};
                    for (long j = 0; j < d; j++)
                        row[j] =
                            number_at(s->number, query->data, (size_t)((r * h_count + h) * d + j));
                    if (with_sinks)
                        sink = number_at(NUMBER_F32, s->sinks->data, (size_t)h);
                    round_query(s, row);
                    oracle_attend(&rows, row, s->lengths[i] - (last - r), &mask,
                                  got + (r * h_count + h) * d);
                }
            oracle_free(&rows);
        }
    double error = relative(s, want, got);
    free(got);
    return error;
}

static void check_dequantised(const struct sample *s)
{
    double row[512];
    size_t at = 0, d = (size_t)s->head_size;
    for (long i = 0; s->dequant_key && s->dequant_value && i < s->sequences; i++)
        for (long t = 0; t < s->lengths[i]; t++)
            for (int g = 0; g < s->kv_heads; g++, at += d) {
                long page = s->block_table[i * s->table_stride + t / s->page_tokens];
                long slot = page * s->page_tokens + t % s->page_tokens;
                int half = s->dequant_key->type == TENSOR_F16;
                slots_value(&s->slots, s->cache->data, slot, g, row);
                for (size_t j = 0; j < d; j++)
                    assert_int_equal(half ? number_to_half(row[j]) & 0x7FFF
                                          : number_to_bf16(row[j]) & 0x7FFF,
                                     number_u16(s->dequant_value->data + 2 * (at + j)) & 0x7FFF);
                slots_key(&s->slots, s->cache->data, slot, g, row);
                for (size_t j = 0; j < d && half; j++)
                    assert_true(
                        number_half_steps(number_to_half(row[j]),
                                          number_u16(s->dequant_key->data + 2 * (at + j))) <= 1);
            }
}

static void check_one(const char *path)
{
    struct sample s;
    char error[SAFETENSORS_ERROR];
    if (!sample_open(path, &s, error))
        fail_msg("%s: %s", path, error);
    double limit = s.dtype == KVK_FLOAT16 ? 1e-3 : 6e-3, worst = 0;
    check_dequantised(&s);
    if (s.decode_out)
        worst = fmax(worst, attend_all(&s, s.decode_query, s.decode_out, NULL, 0, 0));
    for (int i = 0; s.unified_query && i < s.st.ntensors; i++) {
        const char *name = s.st.tensors[i].name;
        long window = sample_window(name);
        if (!strncmp(name, "unified_out", 11))
            worst = fmax(worst,
                         attend_all(&s, s.unified_query, &s.st.tensors[i], s.query_start,
                                    window > 0 ? window : 0, !strcmp(name, "unified_out_sinks")));
    }
    if (!(worst <= limit))
        fail_msg("%s: relative L2 %g", path, worst);
    /* a cache against itself: nothing differs, and untouched bytes are found */
    struct comparisons all = {0};
    check_store(&s, s.cache->data, &all);
    for (int i = 0; i < all.count; i++)
        assert_true(all.items[i].pass && all.items[i].differ == 0 && all.items[i].count > 0);
    sample_close(&s);
}

static void sample_files_agree_with_the_oracle(void **state)
{
    const char *dir = getenv("KVKILN_GOLDEN") ? getenv("KVKILN_GOLDEN") : TEST_ROOT "/tests/data";
    DIR *folder = opendir(dir);
    struct dirent *entry;
    int count = 0;
    (void)state;
    assert_non_null(folder);
    while ((entry = readdir(folder))) {
        char path[1024];
        if (!strstr(entry->d_name, ".safetensors"))
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        check_one(path);
        count++;
    }
    closedir(folder);
    assert_true(count >= 10);
}

/* One bit of each field of one slot changed is found under that field's name. */
static void changed_bits_are_found(void **state)
{
    static const char path[] =
        TEST_ROOT "/tests/data/turboquant_4bit_nc.aos.d128.g4.bfloat16.safetensors";
    struct sample s;
    char error[SAFETENSORS_ERROR];
    (void)state;
    assert_true(sample_open(path, &s, error));
    struct place at = slots_at(&s.slots, s.slot_mapping[40], 1);
    const size_t offsets[] = {at.key + 3, at.value + 3, at.scalar + 1, at.scale + 1, at.zero + 1};
    const char *names[] = {"cache.key_codes", "cache.value_codes", "cache.k_norm", "cache.v_scale",
                           "cache.v_zero"};
    unsigned char *pool = malloc(s.cache->bytes);
    assert_non_null(pool);
    for (int i = 0; i < 5; i++) {
        struct comparisons all = {0};
        memcpy(pool, s.cache->data, s.cache->bytes);
        pool[offsets[i]] ^= 1;
        check_store(&s, pool, &all);
        for (int j = 0; j < all.count; j++)
            assert_int_equal(all.items[j].pass, strcmp(all.items[j].name, names[i]) != 0);
    }
    free(pool);
    sample_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_slots_decode),
        cmocka_unit_test(truth_agrees_with_codes),
        cmocka_unit_test(centroids_have_the_known_bits),
        cmocka_unit_test(rotation_is_its_own_inverse),
        cmocka_unit_test(small_floats_survive_the_way_there_and_back),
        cmocka_unit_test(attention_with_no_visible_key_is_zero),
        cmocka_unit_test(sample_files_agree_with_the_oracle),
        cmocka_unit_test(changed_bits_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
