/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_ref.c - is the oracle right? Against the slot bytes and tables printed in the format
** contract. test_golden.c holds it against the case files.
*/
#include "ref.h"
#include "test_ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifndef TEST_ROOT
#define TEST_ROOT "."
#endif

static uint32_t crc32_of(const uint8_t *bytes, size_t n)
{
    uint32_t crc = 0xffffffff;

    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

static void example_rows(int d, float *key, float *value)
{
    for (int i = 0; i < d; i++) {
        key[i] = ref_f16_to(ref_f16_from((float)(1.5 * sin(0.37 * i + 0.1) + 0.25 * cos(1.7 * i))));
        value[i] = ref_f16_to(ref_f16_from((float)(2 * cos(0.21 * i) + 0.3 * sin(2.9 * i))));
    }
}

#define VALUES_4                                                                                   \
    "eeedcb996644221112235588badcfdfdedcb995634130212335597c9ebfdfdddbc8a4725130212426496c9ebedee" \
    "ceac7a47251211"                                                                               \
    "21427496c9dceedfcead7ade3498c0"
#define KEYS_3                                                                                     \
    "e5c88d0c888d24c9711ec76de3468ee7c689a3c89124c97124d97127c5601b376e23676ee34892a379721cbb711b" \
    "3772114a"

static const struct {
    const char *preset;
    int d;
    uint32_t crc;
    const char *hex;
} slots[] = {
    {"turboquant_k8v4", 128, 0x9318CC3E,
     "2d32363c3e3a373628b2b8b8bcbebab2b093363a3a3b3d392d21a4b8bcbbbabcb8a2282e393d3c393a3698b2b4b9b"
     "ebc"
     "b8b6b22837383a3d3c36312baebabababdbcb3a485323b3c3a3b3b31a2abb4bcbdbab9b9ac2e33373c3e3a363525b"
     "3b8"
     "b9bcbeb9b2af03363b3a3b3d392b1aa7b8bcbbbabbb89e2a30393d3c3939359e" VALUES_4},
    {"turboquant_4bit_nc", 128, 0x93917963,
     "8a87788738807097889878787c787876876788878f776884879578888899797888997a788f5838717779877787698"
     "b77"
     "87968888979b8e7878b9777876798778114a" VALUES_4},
    {"turboquant_k3v4_nc", 128, 0x40A13957, KEYS_3 VALUES_4},
    {"turboquant_3bit_nc", 128, 0xC2874133,
     KEYS_3 "bfdd929b9404412291adedfb764b6e4a10048936b2b5efdb2d3929419044da48d7be6dbbdda42408126923"
            "6bdff76b76373998"
            "c0"},
    {"ultraquant_4bit", 128, 0x5DD0E4B8,
     "01000000b10d0f10001000000300000900a001000709a00c001a001000210200001101000791a00c0001000010910"
     "200"
     "091a001120140690004200010a9200907f7e7f7e77777643bceeffffffffed0165777777654412b9dcedededddbb1"
     "952"
     "646565556604e9fdffffffefbe4b737677777757a5e0fdffffffefae4b747777776747957d7e7d7d"},
    {"turboquant_4bit_nc", 96, 0x4C595958,
     "888779876f74418277a87878897a7a77798978774e626095775988778b677986796777864281909a887578877b977"
     "687"
     "3b49eeedcb996644221112235588badcfdfdedcb995634130212335597c9ebfdfdddbc8a4725130212426496c9ebe"
     "dee"
     "ceacde3498c0"},
    {"turboquant_3bit_nc", 80, 0x9CE4F7FC,
     "24cb91df2665e4c68d9f08895cc76d578689e4ca9155868de4b68d520892c748bfdd929b9404412291adedfb764b6"
     "e4a"
     "10048936b2b5efdb2d3929419044373998c0"},
};

static void slot_bytes_equal_the_contract(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
        struct ref_format f;
        float key[REF_MAX_D], value[REF_MAX_D];
        uint8_t bytes[2048] = {0};

        ref_format_make(&f, ref_spec_find(slots[i].preset), REF_AOS, slots[i].d, slots[i].d, 1, 1);
        struct ref_pool pool = ref_pool_dense(&f, bytes, 1);
        example_rows(slots[i].d, key, value);
        ref_store(&f, &pool, 0, key, value);
        assert_int_equal(f.slot_bytes * 2, strlen(slots[i].hex));
        for (size_t b = 0; b < f.slot_bytes; b++) {
            char two[3] = {slots[i].hex[2 * b], slots[i].hex[2 * b + 1], 0};
            if (bytes[b] != strtoul(two, NULL, 16))
                fail_msg("%s d%d byte %zu: %02x, contract %s", slots[i].preset, slots[i].d, b,
                         bytes[b], two);
        }
        assert_int_equal(crc32_of(bytes, f.slot_bytes), slots[i].crc);
    }
}

static void soa_scalars_equal_the_contract(void **state)
{
    static const struct {
        const char *preset;
        int d;
        uint16_t scalar, also;
    } want[] = {{"turboquant_4bit_nc", 128, 0x4CB7, 0x4CB6},
                {"turboquant_k3v4_nc", 128, 0x4D04, 0x4D04},
                {"turboquant_4bit_nc", 96, 0x4AE6, 0x4AE6},
                {"turboquant_3bit_nc", 80, 0x49FD, 0x49FD}};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct ref_format f;
        float key[REF_MAX_D], value[REF_MAX_D];
        uint8_t bytes[2048] = {0};

        ref_format_make(&f, ref_spec_find(want[i].preset), REF_SOA, want[i].d, want[i].d, 1, 1);
        struct ref_pool pool = ref_pool_dense(&f, bytes, 1);
        example_rows(want[i].d, key, value);
        ref_store(&f, &pool, 0, key, value);
        uint16_t got = ref_get16(bytes + ref_place(&f, &pool, 0, 0).field[0]);
        if (got != want[i].scalar && got != want[i].also)
            fail_msg("%s d%d: %04x", want[i].preset, want[i].d, got);
    }
}

static void soa_places_equal_the_contract(void **state)
{
    struct ref_format f;

    (void)state;
    ref_format_make(&f, ref_spec_find("turboquant_4bit_nc"), REF_SOA, 128, 128, 2, 16);
    struct ref_pool pool = ref_pool_dense(&f, NULL, 4);
    struct ref_place at = ref_place(&f, &pool, 16 + 3, 1);
    assert_int_equal(f.page_bytes, 4288);
    assert_int_equal(at.key, 4288 + 3 * 256 + 128);
    assert_int_equal(at.value, 4288 + 3 * 256 + 192);
    assert_int_equal(at.field[0], 4288 + 4192 + 6);
    assert_int_equal(at.field[2], 4288 + 4256 + 6);
}

static void centroids_equal_the_contract(void **state)
{
    static const struct {
        int d, bits;
        uint32_t positive[8];
    } want[] = {
        {64, 2, {0x3D67B782, 0x3E413937}},
        {64, 3, {0x3CFADCFB, 0x3DC171FC, 0x3E2BED53, 0x3E899F54}},
        {128, 3, {0x3CB16317, 0x3D88C955, 0x3DF3243D, 0x3E42A09F}},
        {128,
         4,
         {0x3C39FBAE, 0x3D0C8559, 0x3D6DD0E1, 0x3DAA99F2, 0x3DE3682B, 0x3E126F17, 0x3E3B36E7,
          0x3E772CC4}},
        {256,
         4,
         {0x3C03828A, 0x3CC6B9FF, 0x3D282948, 0x3D71444A, 0x3DA0CD0C, 0x3DCF16C0, 0x3E046170,
          0x3E2EC76E}},
        {80,
         4,
         {0x3C6B408A, 0x3D31BF16, 0x3D966873, 0x3DD7CBA9, 0x3E0FD323, 0x3E3939D5, 0x3E6CCF45,
          0x3E9C53BD}},
        {112, 3, {0x3CBDA27F, 0x3D923B1A, 0x3E01F6F2, 0x3E5010C2}},
        {192,
         4,
         {0x3C17DAC6, 0x3CE5783B, 0x3D422D08, 0x3D8B4BA1, 0x3DB9AD4E, 0x3DEF2029, 0x3E18DC27,
          0x3E49D143}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        int half = 1 << (want[i].bits - 1);
        float c[16];

        ref_lloyd_max(want[i].d, want[i].bits, c);
        for (int k = 0; k < half; k++) {
            uint32_t bits;
            memcpy(&bits, &c[half + k], 4);
            if (bits != want[i].positive[k] || c[half - 1 - k] != -c[half + k])
                fail_msg("d%d %d bits, centroid %d: %08X", want[i].d, want[i].bits, half + k, bits);
        }
    }
}

static void small_floats_equal_the_contract(void **state)
{
    static const struct {
        float x;
        uint8_t byte;
    } e4m3[] = {{0, 0},       {-0.0f, 0x80}, {0x1p-10f, 0},    {0x1p-9f, 1},
                {0x1p-6f, 8}, {0.4f, 0x2D},  {1, 0x38},        {240, 0x77},
                {448, 0x7E},  {1e6f, 0x7E},  {-INFINITY, 0xFE}},
      e4b15[] = {{0x1p-17f, 1}, {0x1p-14f, 8}, {0.5f, 0x70}, {1, 0x78},
                 {-1, 0xF8},    {1.75f, 0x7E}, {100, 0x7E}};

    (void)state;
    for (size_t i = 0; i < sizeof e4m3 / sizeof *e4m3; i++)
        assert_int_equal(ref_e4m3_from(e4m3[i].x), e4m3[i].byte);
    for (size_t i = 0; i < sizeof e4b15 / sizeof *e4b15; i++)
        assert_int_equal(ref_e4b15_from(e4b15[i].x), e4b15[i].byte);
    for (int b = 0; b < 256; b++) {
        if ((b & 0x7f) < 0x7f)
            assert_int_equal(ref_e4m3_from(ref_e4m3_to((uint8_t)b)), b);
        if ((b & 0x7f) < 0x7c)
            assert_int_equal(ref_e5m2_from(ref_e5m2_to((uint8_t)b)), b);
        if ((b & 0x7f) < 0x7f)
            assert_int_equal(ref_e4b15_from(ref_e4b15_to((uint8_t)b)), b);
    }
    for (int h = 0; h < 65536; h++)
        if ((h & 0x7fff) <= 0x7c00) {
            assert_int_equal(ref_f16_from(ref_f16_to((uint16_t)h)), h);
            assert_int_equal(ref_bf16_from(ref_bf16_to((uint16_t)h)), h);
        }
    assert_int_equal(ref_bf16_from(-INFINITY), 0xff80);
}

/* The outliers of formats.md 8.4: v[i] = bf16(-1 + 5 i / 127), element 0 replaced. */
static void odd_values_equal_the_contract(void **state)
{
    static const struct {
        float first;
        uint16_t scale, zero;
        unsigned code_0, code_127;
    } want[] = {{-124928, 0x6C44, 0xFBFF, 0, 15},
                {-INFINITY, 0x6C44, 0xFBFF, 0, 15},
                {124928, 0x7011, 0xBBB0, 15, 0},
                {INFINITY, 0x6C44, 0xBBB0, 15, 0},
                {NAN, 0x354B, 0xBBB0, 0, 15}};
    const struct ref_codec *codec = &ref_spec_find("turboquant_k8v4")->value;
    float v[128];
    uint8_t codes[64];
    uint16_t fields[2];

    (void)state;
    for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
        for (int i = 0; i < 128; i++)
            v[i] = ref_bf16_to(ref_bf16_from((float)(-1 + 5.0 * i / 127)));
        v[0] = want[k].first;
        ref_encode(codec, NULL, REF_AOS, v, 128, codes, fields, NULL);
        assert_int_equal(fields[0], want[k].scale);
        assert_int_equal(fields[1], want[k].zero);
        assert_int_equal(ref_get_code(codes, 4, 0), want[k].code_0);
        assert_int_equal(ref_get_code(codes, 4, 127), want[k].code_127);
    }
    for (int i = 0; i < 128; i++)
        v[i] = NAN;
    ref_encode(codec, NULL, REF_AOS, v, 128, codes, fields, NULL);
    assert_int_equal(fields[0] | fields[1], 0);
    for (int i = 0; i < 128; i++)
        v[i] = 0.5f;
    ref_encode(codec, NULL, REF_AOS, v, 128, codes, fields, NULL);
    assert_int_equal(fields[0], 0);
    assert_int_equal(fields[1], 0x3800);
}

static const int sizes[] = {16,  32,  40,  64,  72,  80,  96,  112, 120,
                            128, 160, 192, 224, 256, 320, 512, 576};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* In fp32, as store computes them: what unit vectors become is orthonormal. */
static void rotations_are_orthonormal(void **state)
{
    static float rows[576][576];

    (void)state;
    for (size_t s = 0; s < SIZES; s++) {
        int d = sizes[s];
        for (int i = 0; i < d; i++) {
            memset(rows[i], 0, sizeof rows[i]);
            rows[i][i] = 1;
            ref_rotate_f32(rows[i], d);
        }
        for (int i = 0; i < d; i++)
            for (int j = 0; j <= i; j++) {
                double dot = 0;
                for (int e = 0; e < d; e++)
                    dot += (double)rows[i][e] * (double)rows[j][e];
                assert_true(fabs(dot - (i == j)) < 1e-6);
            }
    }
}

static void rotations_agree_and_are_their_own_inverse(void **state)
{
    (void)state;
    for (size_t s = 0; s < SIZES; s++) {
        float a[REF_MAX_D], b[REF_MAX_D];
        double exact[REF_MAX_D], twice[REF_MAX_D];
        int d = sizes[s];

        for (int i = 0; i < d; i++)
            a[i] = b[i] = (float)(exact[i] = (float)sin(i * i + 1.0));
        ref_rotate_f32(a, d);
        ref_rotate_stages(b, d);
        ref_rotate(exact, d);
        memcpy(twice, exact, sizeof twice);
        ref_rotate(twice, d);
        for (int i = 0; i < d; i++) {
            assert_true(fabs(a[i] - exact[i]) < 2e-6 && fabs(b[i] - exact[i]) < 2e-6);
            assert_true(fabs(twice[i] - (float)sin(i * i + 1.0)) < 1e-12);
        }
    }
}

static float normal(uint64_t *state)
{
    double u[2];

    for (int i = 0; i < 2; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        u[i] = ((double)(*state >> 11) + 0.5) / 9007199254740992.0;
    }
    return (float)(sqrt(-2 * log(u[0])) * cos(6.283185307179586 * u[1]));
}

/* Mean squared error of decoded N(0, 1) keys over their mean square; both in the rotated basis. */
static double key_error(const struct ref_spec *spec, int correction, int keys)
{
    enum { D = 128 };
    struct ref_spec s = *spec;
    struct ref_format f;
    uint64_t state = 1;
    double error = 0, norm = 0;

    s.key.correction = correction && s.key.correction;
    ref_format_make(&f, &s, REF_AOS, D, D, 1, 1);
    for (int k = 0; k < keys; k++) {
        float x[D];
        double exact[D], out[D];
        uint8_t codes[D];
        uint16_t field[1] = {0};

        for (int i = 0; i < D; i++)
            exact[i] = x[i] = normal(&state);
        ref_encode(&f.key, f.key_centroids, REF_AOS, x, D, codes, field, NULL);
        ref_decode(&f.key, f.key_centroids, REF_AOS, codes, field, D, out);
        ref_rotate(exact, D);
        for (int i = 0; i < D; i++) {
            error += (out[i] - exact[i]) * (out[i] - exact[i]);
            norm += exact[i] * exact[i];
        }
    }
    return error / norm;
}

static void codec_quality_equals_the_contract(void **state)
{
    static const struct {
        const char *preset;
        int correction;
        double want;
    } quality[] = {{"turboquant_4bit_nc", 1, 0.00920},
                   {"turboquant_3bit_nc", 1, 0.0339},
                   {"turboquant_4bit_nc", 0, 0.00934},
                   {"turboquant_3bit_nc", 0, 0.0340},
                   {"ultraquant_4bit", 1, 0.0178}};

    (void)state;
    for (size_t i = 0; i < sizeof quality / sizeof *quality; i++) {
        double got = key_error(ref_spec_find(quality[i].preset), quality[i].correction, 20000);
        if (fabs(got / quality[i].want - 1) > 0.01)
            fail_msg("%s: relative key error %.5f, expected %.5f", quality[i].preset, got,
                     quality[i].want);
    }
}

/* The rows of docs/spec.md that show one side of a slot, byte by byte. */
static void worked_bytes_of_the_page_are_those_of_the_encoder(void **state)
{
    enum { WORKED = 32 };
    static const struct {
        const char *text;
        struct ref_codec codec;
    } rows[] = {
        {"codebook { bits = 2, rotation = \"none\" }", {.kind = REF_CODEBOOK, .bits = 2}},
        {"codebook { bits = 3 }", {.kind = REF_CODEBOOK, .bits = 3, .rotated = 1, .correction = 1}},
        {"codebook { bits = 4 }", {.kind = REF_CODEBOOK, .bits = 4, .rotated = 1, .correction = 1}},
        {"affine { bits = 5 }", {.kind = REF_AFFINE, .bits = 5}},
        {"affine { bits = 8 }", {.kind = REF_AFFINE, .bits = 8}},
        {"float { format = \"e4m3\" }", {.kind = REF_FLOAT, .bits = 8, .format = REF_E4M3}},
        {"float { format = \"e4b15\" }", {.kind = REF_FLOAT, .bits = 8, .format = REF_E4B15}},
        {"float { format = \"e5m2\" }", {.kind = REF_FLOAT, .bits = 8, .format = REF_E5M2}},
        {"block_float { rule = \"ultraquant\" }",
         {.kind = REF_BLOCK, .bits = 4, .rule = REF_ULTRAQUANT, .group = 32}},
        {"block_float { rule = \"mxfp4\" }",
         {.kind = REF_BLOCK, .bits = 4, .rule = REF_MXFP4, .group = 32}},
        {"block_float { rule = \"nvfp4\" }",
         {.kind = REF_BLOCK, .bits = 4, .rule = REF_NVFP4, .group = 16}},
    };
    static char page[1 << 16];
    FILE *f = fopen(TEST_ROOT "/docs/spec.md", "r");
    float x[WORKED], centroids[16];

    (void)state;
    assert_non_null(f);
    page[fread(page, 1, sizeof page - 1, f)] = 0;
    fclose(f);
    for (int i = 0; i < WORKED; i++)
        x[i] = (float)i / 4 - 4;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const struct ref_codec *c = &rows[r].codec;
        uint8_t codes[2 * WORKED + 4];
        uint16_t fields[2];
        char line[320];
        size_t bytes = ref_code_bytes(c, WORKED), n;
        if (c->kind == REF_CODEBOOK)
            ref_lloyd_max(WORKED, c->bits, centroids);
        ref_encode(c, centroids, REF_AOS, x, WORKED, codes, fields, NULL);
        for (int i = 0; i < ref_field_count(c); i++, bytes += 2)
            ref_put16(codes + bytes, fields[i]);
        n = (size_t)snprintf(line, sizeof line, "| `%s` | `", rows[r].text);
        for (size_t i = 0; i < bytes; i++)
            n += (size_t)snprintf(line + n, sizeof line - n, "%02X", codes[i]);
        snprintf(line + n, sizeof line - n, "` |\n");
        if (!strstr(page, line))
            fail_msg("docs/spec.md has no line %s", line);
    }
}

/* Every bit of the code parts belongs to one bit of one code: nothing is wasted, nothing shared.
** Every 16-bit unit belongs to one token, so that tokens are stored without the others'; every 8-bit
** unit where 3-bit values have odd multiples of 64 dims. */
static void native_bits_are_a_permutation(void **state)
{
    static const int sizes[] = {64, 128, 192, 256, 320};
    (void)state;

    for (int s = 0; s < ref_spec_count(); s++)
        for (size_t n = 0; ref_spec_at(s)->native && n < sizeof sizes / sizeof *sizes; n++) {
            struct ref_format f;
            int d = sizes[n];
            ref_format_make(&f, ref_spec_at(s), REF_NATIVE, d, d, 1, 16);
            size_t bits = (size_t)(f.key.bits + f.value.bits) * (size_t)d * 16;
            uint8_t *owner = calloc(bits, 1);
            for (int side = 0; side < 2; side++) {
                int width = side ? f.value.bits : f.key.bits;
                for (int i = 0; i < 16 * d * width; i++) {
                    int token = i / (d * width), e = i / width % d;
                    size_t at = ref_native_bit(&f, side, token, e, i % width);
                    assert_in_range(at, 0, bits - 1);
                    assert_int_equal(owner[at], 0);
                    owner[at] = (uint8_t)(1 + token);
                }
            }
            int unit = d % 128 && f.value.bits == 3 ? 8 : 16;
            for (size_t at = 0; at < bits; at++)
                assert_int_equal(owner[at], owner[at / (size_t)unit * (size_t)unit]);
            free(owner);
        }
}

/* docs/layouts.md's worked example, 4 bits at head size 128: token 11 of head 1 of two, page of 32. */
static void native_places_equal_the_contract(void **state)
{
    struct ref_format f;
    (void)state;

    ref_format_make(&f, ref_spec_find("turboquant_4bit_nc"), REF_NATIVE, 128, 128, 2, 32);
    assert_int_equal(f.page_bytes, 2 * 2 * 2144);
    /* key element 77: lane 2, its 13th code: byte 6 of 16; [half 1][g 3][lane 2] */
    assert_int_equal(ref_native_bit(&f, 0, 11, 77, 0), 8 * ((11 * 4 + 2) * 16 + 6) + 4);
    /* value dim 77: row 4, dims 12 to 15 of it; lane 1, pair 1, odd token: word 3 of the second unit */
    assert_int_equal(ref_native_bit(&f, 1, 11, 77, 0),
                     8 * (1024 + 512 + (4 * 4 + 1) * 16 + 3 * 4 + 2) + 4);
    uint8_t pool[2 * 2 * 2144] = {0};
    struct ref_pool dense = ref_pool_dense(&f, pool, 1);
    struct ref_slot slot = {.field = {0x1234, 0x5678, 0x9ABC}};
    ref_slot_put(&f, &dense, 16 + 11, 1, &slot);
    size_t block = (1 * 2 + 1) * 2144;
    assert_int_equal(ref_get16(pool + block + 2048 + 3 * 4 + 2), 0x1234);
    assert_int_equal(ref_get16(pool + block + 2048 + 32 + 14), 0x5678);
    assert_int_equal(ref_get16(pool + block + 2048 + 64 + 14), 0x9ABC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_floats_equal_the_contract),
        cmocka_unit_test(centroids_equal_the_contract),
        cmocka_unit_test(rotations_are_orthonormal),
        cmocka_unit_test(rotations_agree_and_are_their_own_inverse),
        cmocka_unit_test(slot_bytes_equal_the_contract),
        cmocka_unit_test(soa_scalars_equal_the_contract),
        cmocka_unit_test(soa_places_equal_the_contract),
        cmocka_unit_test(native_bits_are_a_permutation),
        cmocka_unit_test(native_places_equal_the_contract),
        cmocka_unit_test(odd_values_equal_the_contract),
        cmocka_unit_test(codec_quality_equals_the_contract),
        cmocka_unit_test(worked_bytes_of_the_page_are_those_of_the_encoder),
    };
    int failed = cmocka_run_group_tests_name("ref against the contract", tests, NULL, NULL);

    return failed + test_golden_run(TEST_ROOT) ? 1 : 0;
}
