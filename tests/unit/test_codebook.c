/* SPDX-License-Identifier: Apache-2.0 */
/*
** The solver against the tables of the byte format, bit for bit, and the rules between head sizes.
*/
#include "gen/codebook.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* Upper halves, as fp32 bits: centroids, then midpoints above 0. */
static const struct {
    int head_size, bits;
    uint32_t centroids[8], midpoints[7];
} tables[] = {
    {64, 2, {0x3D67B782, 0x3E413937}, {0x3DFB2718}},
    {64, 3, {0x3CFADCFB, 0x3DC171FC, 0x3E2BED53, 0x3E899F54}, {0x3D80149D, 0x3E065328, 0x3E5F95FE}},
    {64,
     4,
     {0x3C83828A, 0x3D46B9FF, 0x3DA82948, 0x3DF1444A, 0x3E20CD0C, 0x3E4F16C0, 0x3E846170,
      0x3EAEC76E},
     {0x3D043DA2, 0x3D85C324, 0x3DCCB6C9, 0x3E0CB798, 0x3E37F1E6, 0x3E6BECD0, 0x3E99946F}},
    {128, 2, {0x3D23D93A, 0x3E08A131}, {0x3DB19780}},
    {128,
     3,
     {0x3CB16317, 0x3D88C955, 0x3DF3243D, 0x3E42A09F},
     {0x3D35221B, 0x3DBDF6C9, 0x3E1E195F}},
    {128,
     4,
     {0x3C39FBAE, 0x3D0C8559, 0x3D6DD0E1, 0x3DAA99F2, 0x3DE3682B, 0x3E126F17, 0x3E3B36E7,
      0x3E772CC4},
     {0x3CBB0444, 0x3D3D2B1D, 0x3D90C131, 0x3DC7010E, 0x3E021196, 0x3E26D2FF, 0x3E5931D6}},
    {256, 2, {0x3CE7B782, 0x3DC13937}, {0x3D7B2718}},
    {256,
     3,
     {0x3C7ADCFB, 0x3D4171FC, 0x3DABED53, 0x3E099F54},
     {0x3D00149D, 0x3D865328, 0x3DDF95FE}},
    {256,
     4,
     {0x3C03828A, 0x3CC6B9FF, 0x3D282948, 0x3D71444A, 0x3DA0CD0C, 0x3DCF16C0, 0x3E046170,
      0x3E2EC76E},
     {0x3C843DA2, 0x3D05C324, 0x3D4CB6C9, 0x3D8CB798, 0x3DB7F1E6, 0x3DEBECD0, 0x3E19946F}},
    {80, 3, {0x3CE060FD, 0x3DAD05CF, 0x3E19C6B6, 0x3E762FB7}, {0x3D651E0E, 0x3DF0499E, 0x3E47FB36}},
    {80,
     4,
     {0x3C6B408A, 0x3D31BF16, 0x3D966873, 0x3DD7CBA9, 0x3E0FD323, 0x3E3939D5, 0x3E6CCF45,
      0x3E9C53BD},
     {0x3CEC8F38, 0x3D6F47FE, 0x3DB71A0E, 0x3DFBB8F8, 0x3E24867C, 0x3E53048D, 0x3E895DB0}},
    {96, 3, {0x3CCCD436, 0x3D9DF288, 0x3E0C60BA, 0x3E60BC84}, {0x3D512796, 0x3DDB59FE, 0x3E368E9F}},
    {96,
     4,
     {0x3C56C13B, 0x3D224272, 0x3D894D98, 0x3DC4FE54, 0x3E034B1F, 0x3E29165D, 0x3E582D38,
      0x3E8EB4DB},
     {0x3CD7F2C1, 0x3D5A6ED1, 0x3DA725F6, 0x3DE5CA49, 0x3E1630BE, 0x3E40A1CA, 0x3E7ACB77}},
    {112,
     3,
     {0x3CBDA27F, 0x3D923B1A, 0x3E01F6F2, 0x3E5010C2},
     {0x3D41A3BA, 0x3DCB147F, 0x3E2903DA}},
    {112,
     4,
     {0x3C46D306, 0x3D163920, 0x3D7E3C66, 0x3DB6616A, 0x3DF31BB4, 0x3E1C8B62, 0x3E482404,
      0x3E841EDB},
     {0x3CC7EDE2, 0x3D4A3AC3, 0x3D9ABFCE, 0x3DD4BE8F, 0x3E0B0C9E, 0x3E3257B3, 0x3E6830DD}},
    {192,
     3,
     {0x3C90D600, 0x3D5F5F10, 0x3DC68635, 0x3E1EE9A2},
     {0x3D13E508, 0x3D9B1ADE, 0x3E01165E}},
    {192,
     4,
     {0x3C17DAC6, 0x3CE5783B, 0x3D422D08, 0x3D8B4BA1, 0x3DB9AD4E, 0x3DEF2029, 0x3E18DC27,
      0x3E49D143},
     {0x3C98B2CF, 0x3D1A7493, 0x3D6C6225, 0x3DA27C78, 0x3DD466BC, 0x3E08361E, 0x3E3156B5}},
};

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void every_published_table_is_met_bit_for_bit(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        float c[16], m[15];
        int n = 1 << tables[t].bits, half = n / 2;
        codebook_lloyd_max(tables[t].head_size, tables[t].bits, c);
        codebook_midpoints(c, n, m);
        for (int i = 0; i < half; i++) {
            assert_int_equal(bits_of(c[half + i]), tables[t].centroids[i]);
            assert_int_equal(bits_of(c[half - 1 - i]), tables[t].centroids[i] ^ 0x80000000u);
        }
        assert_int_equal(bits_of(m[half - 1]), 0); /* +0 */
        for (int i = 0; i + 1 < half; i++) {
            assert_int_equal(bits_of(m[half + i]), tables[t].midpoints[i]);
            assert_int_equal(bits_of(m[half - 2 - i]), tables[t].midpoints[i] ^ 0x80000000u);
        }
    }
}

/* sigma halves when the head size is four times as large */
static void quadrupled_head_size_halves_the_table(void **state)
{
    static const int sizes[] = {16, 32, 64, 128, 256};
    (void)state;
    for (int bits = 2; bits <= 4; bits++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            float small[16], large[16];
            codebook_lloyd_max(sizes[s], bits, small);
            codebook_lloyd_max(4 * sizes[s], bits, large);
            for (int i = 0; i < 1 << bits; i++)
                assert_int_equal(bits_of(small[i] / 2), bits_of(large[i]));
        }
}

/* The iteration as the format describes it: all cells, both tails, no use of symmetry. */
static void plain_iteration(int head_size, int bits, double *c)
{
    int n = 1 << bits;
    double sigma = sqrt(1.0 / head_size), next[16], variance = 1.0 / head_size, largest = 1;
    for (int i = 0; i < n; i++)
        c[i] = -3.5 * sigma + 7 * sigma * (i + 0.5) / n;
    for (int pass = 0; pass < 200 && largest >= 1e-10; pass++) {
        largest = 0;
        for (int i = 0; i < n; i++) {
            double low = i ? (c[i - 1] + c[i]) / 2 : -10.5 * sigma;
            double high = i + 1 < n ? (c[i] + c[i + 1]) / 2 : 10.5 * sigma;
            double mass = 0, moment = 0, step = (high - low) / 200;
            for (int k = 0; k <= 200; k++) {
                double x = low + k * step, weight = k == 0 || k == 200 ? 0.5 : 1;
                double p = weight * exp(-x * x / (2 * variance)) /
                           sqrt(2 * 3.14159265358979323846 * variance);
                mass += p;
                moment += x * p;
            }
            next[i] = mass * step > 1e-15 ? moment / mass : c[i];
            largest = fmax(largest, fabs(next[i] - c[i]));
        }
        for (int i = 0; i < n && largest >= 1e-10; i++)
            c[i] = next[i];
    }
}

static void tables_agree_with_the_plain_iteration(void **state)
{
    static const int sizes[] = {40, 72, 120, 160, 224, 320, 576, 1024};
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int bits = 2; bits <= 4; bits++) {
            float c[16];
            double want[16];
            codebook_lloyd_max(sizes[s], bits, c);
            plain_iteration(sizes[s], bits, want);
            for (int i = 0; i < 1 << bits; i++)
                assert_int_equal(bits_of(c[i]), bits_of((float)want[i]));
        }
}

static void a_table_takes_milliseconds(void **state)
{
    struct timespec a, b;
    float c[16];
    double best = 1e9;
    (void)state;
    for (int i = 0; i < 5; i++) {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
        codebook_lloyd_max(128, 4, c);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
        double ms = (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) / 1e6;
        best = ms < best ? ms : best;
    }
    print_message("# 4-bit table: %.2f ms\n", best);
    assert_true(best < 50); /* sanitizers and slow machines; 2 ms is usual */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_published_table_is_met_bit_for_bit),
        cmocka_unit_test(quadrupled_head_size_halves_the_table),
        cmocka_unit_test(tables_agree_with_the_plain_iteration),
        cmocka_unit_test(a_table_takes_milliseconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
