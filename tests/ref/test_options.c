/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_options.c - the encoder's options in the oracle, against the numbers of the format contract
** (sections 12.1 to 12.3 and 13.2). Rows are fp32 here, as in the contract's tables.
*/
#include "ref.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { D = 128 };

static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*state >> 11) + 0.5) / 9007199254740992.0;
}

static void normal_row(uint64_t *state, double mean, double deviation, float *row)
{
    for (int i = 0; i < D; i++) {
        double radius = sqrt(-2 * log(uniform(state)));
        row[i] = (float)(mean + deviation * radius * cos(6.283185307179586 * uniform(state)));
    }
}

/* --- 12.1 --- */

static void unbiased_norms_equal_the_contract(void **state)
{
    static const struct {
        int bits;
        enum ref_layout layout;
        uint16_t plain, unbiased;
    } want[] = {{4, REF_AOS, 0x4A11, 0x4AA8},
                {4, REF_SOA, 0x4CB7, 0x4D2B},
                {3, REF_AOS, 0x4A11, 0x4B2F},
                {3, REF_SOA, 0x4D04, 0x4DF0}};
    float key[D], centroids[16];

    (void)state;
    for (int i = 0; i < D; i++)
        key[i] = ref_f16_to(ref_f16_from((float)(1.5 * sin(0.37 * i + 0.1) + 0.25 * cos(1.7 * i))));
    for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
        struct ref_codec codec = {
            .kind = REF_CODEBOOK, .bits = want[k].bits, .rotated = 1, .correction = 1};
        uint8_t codes[2][D];
        uint16_t field[2];

        ref_lloyd_max(D, codec.bits, centroids);
        ref_encode(&codec, centroids, want[k].layout, key, D, codes[0], &field[0], NULL);
        codec.unbiased = 1;
        ref_encode(&codec, centroids, want[k].layout, key, D, codes[1], &field[1], NULL);
        assert_int_equal(field[0], want[k].plain);
        assert_int_equal(field[1], want[k].unbiased);
        assert_memory_equal(codes[0], codes[1], (size_t)(D * codec.bits / 8));
    }
}

/* With and without the correction, in both layouts: <k, decoded k> = <k, k> but for the rounding
** of the field. */
static void unbiased_norms_are_unbiased(void **state)
{
    uint64_t random = 1;
    float x[D], centroids[16];
    double exact[D], out[D];

    (void)state;
    for (int round = 0; round < 400; round++) {
        struct ref_codec codec = {.kind = REF_CODEBOOK,
                                  .bits = 2 + round % 3,
                                  .rotated = 1,
                                  .correction = round / 3 % 2,
                                  .unbiased = 1};
        enum ref_layout layout = round / 6 % 2 ? REF_SOA : REF_AOS;
        uint8_t codes[D];
        uint16_t field;
        double product = 0, square = 0;

        ref_lloyd_max(D, codec.bits, centroids);
        normal_row(&random, 0, round % 2 ? 1 : 100, x);
        ref_encode(&codec, centroids, layout, x, D, codes, &field, NULL);
        ref_decode(&codec, centroids, layout, codes, &field, D, out);
        for (int i = 0; i < D; i++)
            exact[i] = x[i];
        ref_rotate(exact, D);
        for (int i = 0; i < D; i++) {
            product += exact[i] * out[i];
            square += exact[i] * exact[i];
        }
        assert_true(fabs(product / square - 1) < 0x1p-11 + 1e-5);
    }
}

static void a_zero_key_stays_zero(void **state)
{
    const struct ref_codec codec = {
        .kind = REF_CODEBOOK, .bits = 4, .rotated = 1, .correction = 1, .unbiased = 1};
    float x[D] = {0}, centroids[16];
    uint8_t codes[D];
    uint16_t field = 0xFFFF;

    (void)state;
    ref_lloyd_max(D, 4, centroids);
    for (int layout = REF_AOS; layout <= REF_SOA; layout++) {
        ref_encode(&codec, centroids, (enum ref_layout)layout, x, D, codes, &field, NULL);
        assert_int_equal(field, 0);
    }
}

/* --- 12.2, 12.3 --- */

/* Squared error over squares; of rows that are not rotated. */
static double loss(const struct ref_codec *codec, double mean, double deviation, int rows)
{
    uint64_t random = 1;
    double errors = 0, squares = 0;

    for (int r = 0; r < rows; r++) {
        float x[D];
        double out[D];
        uint8_t codes[D];
        uint16_t fields[2];

        normal_row(&random, mean, deviation, x);
        ref_encode(codec, NULL, REF_AOS, x, D, codes, fields, NULL);
        ref_decode(codec, NULL, REF_AOS, codes, fields, D, out);
        for (int i = 0; i < D; i++) {
            errors += (out[i] - x[i]) * (out[i] - x[i]);
            squares += (double)x[i] * x[i];
        }
    }
    return errors / squares;
}

static void stored_parameters_gain_what_the_contract_says(void **state)
{
    static const struct {
        double mean, deviation, gain[2]; /* 4 bits, 3 bits */
    } want[] = {
        {0, 1, {1, 1}}, {100, 1, {0.97, 0.99}}, {20, 0.05, {0.56, 0.85}}, {1000, 1, {0.33, 0.69}}};

    (void)state;
    for (size_t k = 0; k < sizeof want / sizeof *want; k++)
        for (int bits = 4; bits >= 3; bits--) {
            struct ref_codec codec = {.kind = REF_AFFINE, .bits = bits};
            double plain = loss(&codec, want[k].mean, want[k].deviation, 4000);
            codec.stored = 1;
            double gain = loss(&codec, want[k].mean, want[k].deviation, 4000) / plain;
            if (fabs(gain - want[k].gain[4 - bits]) > 0.006)
                fail_msg("N(%g, %g), %d bits: %.4f, expected %.2f", want[k].mean, want[k].deviation,
                         bits, gain, want[k].gain[4 - bits]);
        }
}

static void choices_of_scale_gain_what_the_contract_says(void **state)
{
    static const struct {
        float constant;
        int search;
        double want;
    } choices[] = {{0, 0, 0.0178},     {0.156f, 0, 0.0178}, {1.0f / 6, 0, 0.0148},
                   {0.18f, 0, 0.0130}, {0.20f, 0, 0.0125},  {0.21f, 0, 0.0126},
                   {0.25f, 0, 0.0139}, {0, 1, 0.0124}};

    (void)state;
    for (size_t k = 0; k < sizeof choices / sizeof *choices; k++) {
        const struct ref_codec codec = {.kind = REF_BLOCK,
                                        .bits = 4,
                                        .rule = REF_ULTRAQUANT,
                                        .group = 32,
                                        .constant = choices[k].constant,
                                        .search = choices[k].search};
        double got = loss(&codec, 0, 1, 20000);
        if (fabs(got / choices[k].want - 1) > 0.01)
            fail_msg("constant %g, search %d: %.5f, expected %.4f", (double)choices[k].constant,
                     choices[k].search, got, choices[k].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unbiased_norms_equal_the_contract),
        cmocka_unit_test(unbiased_norms_are_unbiased),
        cmocka_unit_test(a_zero_key_stays_zero),
        cmocka_unit_test(stored_parameters_gain_what_the_contract_says),
        cmocka_unit_test(choices_of_scale_gain_what_the_contract_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
