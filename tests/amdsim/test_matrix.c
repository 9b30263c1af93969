/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_matrix.c - the simulator's matrix instructions: layouts as AMD documents them, scales, limits.
*/
#include "machine.h"

struct matrix_case {
    int gfx, m, k;
    const char *code;
    int a, b, d, type;
};

static int small(unsigned *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return (int)(*seed >> 28) - 8;
}

static uint32_t element(int type, int x)
{
    return type ? bfloat_bits((float)x) : half_bits((float)x);
}

/* Element k of row i of an operand: lane, and position in the lane. */
static void operand_at(const struct matrix_case *c, int i, int k, int *lane, int *at)
{
    int each = c->gfx == 1100 ? 16 : c->gfx > 1100 ? 8 : c->m * c->k / 64;
    *lane = i + c->m * (k / each);
    *at = k % each;
}

static void put_element(int reg, int lane, int at, uint32_t bits)
{
    uint32_t old = m.wave.vu[reg + at / 2][lane] ? 0 : m.wave.v[reg + at / 2][lane];
    set(reg + at / 2, lane, at % 2 ? (old & 0xffff) | bits << 16 : (old & 0xffff0000) | bits);
}

static void put_matrix(const struct matrix_case *c, int reg, int x[32][32])
{
    for (int i = 0; i < c->m; i++)
        for (int k = 0; k < c->k; k++) {
            int lane, at;
            operand_at(c, i, k, &lane, &at);
            put_element(reg, lane, at, element(c->type, x[i][k]));
            if (c->gfx == 1100)
                put_element(reg, lane + 16, at, element(c->type, x[i][k]));
        }
}

static float result_at(const struct matrix_case *c, int i, int j)
{
    int lane, at;
    if (c->gfx == 1100)
        lane = j + 16 * (i % 2), at = i / 2;
    else if (c->gfx > 1100)
        lane = j + 16 * (i / 8), at = i % 8;
    else if (c->m == 16)
        lane = j + 16 * (i / 4), at = i % 4;
    else
        lane = j + 32 * (i / 4 % 2), at = 4 * (i / 8) + i % 4;
    return as_float(get(c->d + at, lane));
}

static void matrix_layouts(void **state)
{
    static const struct matrix_case cases[] = {
        {942, 16, 16, "v_mfma_f32_16x16x16_f16 v[8:11], v[0:1], v[4:5], 0", 0, 4, 8, 0},
        {942, 16, 16, "v_mfma_f32_16x16x16_bf16 v[8:11], v[0:1], v[4:5], 0", 0, 4, 8, 1},
        {942, 32, 8, "v_mfma_f32_32x32x8_f16 v[8:23], v[0:1], v[4:5], 0", 0, 4, 8, 0},
        {942, 16, 16, "v_mfma_f32_16x16x16_f16 a[8:11], v[0:1], v[4:5], 0", 0, 4, 264, 0},
        {950, 16, 32, "v_mfma_f32_16x16x32_f16 v[8:11], v[0:3], v[4:7], 0", 0, 4, 8, 0},
        {950, 16, 32, "v_mfma_f32_16x16x32_bf16 v[0:3], v[0:3], v[4:7], 0", 0, 4, 0, 1},
        {950, 32, 16, "v_mfma_f32_32x32x16_bf16 v[8:23], v[0:3], v[4:7], 0", 0, 4, 8, 1},
        {1100, 16, 16, "v_wmma_f32_16x16x16_f16 v[16:23], v[0:7], v[8:15], 0", 0, 8, 16, 0},
        {1100, 16, 16, "v_wmma_f32_16x16x16_bf16 v[16:23], v[0:7], v[8:15], 0", 0, 8, 16, 1},
        {1201, 16, 16, "v_wmma_f32_16x16x16_f16 v[8:15], v[0:3], v[4:7], 0", 0, 4, 8, 0},
        {1201, 16, 16, "v_wmma_f32_16x16x16_bf16 v[8:15], v[0:3], v[4:7], 0", 0, 4, 8, 1},
    };
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        const struct matrix_case *c = &cases[n];
        unsigned seed = 7 + (unsigned)n;
        int a[32][32], b[32][32];
        for (int i = 0; i < 32; i++)
            for (int k = 0; k < 32; k++) {
                a[i][k] = small(&seed);
                b[i][k] = small(&seed);
            }
        start(c->gfx, c->code);
        put_matrix(c, c->a, a);
        put_matrix(c, c->b, b); /* b[j][k]: a column in a lane */
        RUNS();
        for (int i = 0; i < c->m; i++)
            for (int j = 0; j < c->m; j++) {
                int sum = 0;
                for (int k = 0; k < c->k; k++)
                    sum += a[i][k] * b[j][k];
                assert_int_equal((int)result_at(c, i, j), sum);
            }
        finish();
    }
}

/* Row i of A is the code 2 (1.0) with scale 2^i in block 1 and 0 elsewhere; B is 6 everywhere. */
static void scaled_matrix(void **state)
{
    (void)state;
    start(950,
          "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:7], v[8:11], 0, v12, v13 op_sel:[1,0,0] "
          "op_sel_hi:[0,1,0] cbsz:4 blgp:4");
    for (int reg = 4; reg < 8; reg++)
        for (int l = 0; l < 64; l++) {
            set(reg, l, l / 16 == 1 && reg == 5 ? 0x02000000 : 0); /* k = 32 + 8 + 6 */
            set(reg + 4, l, 0x77777777);
            set(12, l, (127u + (unsigned)l % 16) << 8 | 0xff);
            set(13, l, 126u << 16 | 0xff); /* a half */
        }
    RUNS();
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++)
            assert_true(as_float(get(i % 4, j + 16 * (i / 4))) == ldexp(3, i));
    finish();
}

/* Where AMD's examples put element k of row i: FP4 in runs of 32, FP8 in two runs of 16. */
static void put_small(int reg, bool fp4, int i, int k, uint32_t bits)
{
    int lane = fp4 ? i + 16 * (k / 32) : i + 16 * (k % 64 / 16);
    int at = fp4 ? k % 32 : k % 16 + 16 * (k / 64), width = fp4 ? 4 : 8, each = 32 / width;
    int word = reg + at / each;
    uint32_t old = m.wave.vu[word][lane] ? 0 : m.wave.v[word][lane];
    set(word, lane, old | bits << (width * (at % each)));
}

/* Rows of random codes with a scale of each 32, on both sides. */
static void check_small_products(const char *code, bool a_fp4, bool b_fp4)
{
    static double a[16][128], b[16][128];
    unsigned seed = 99;
    start(950, code);
    for (int reg = 4; reg < 20; reg++)
        set_all(reg, 0);
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < 16; i++)
            for (int k = 0; k < 128; k++) {
                bool fp4 = side ? b_fp4 : a_fp4;
                unsigned exponent = 120 + (unsigned)(5 * i + 3 * (k / 32) + side) % 9;
                uint32_t bits = (uint32_t)(small(&seed) + 8) * (fp4 ? 1 : 13) % 256;
                double x = small_value(fp4 ? &small_e2m1 : &small_e4m3, bits);
                (side ? b : a)[i][k] = ldexp(x, (int)exponent - 127);
                put_small(side ? 12 : 4, fp4, i, k, bits);
                set(20 + side, i + 16 * (k / 32), exponent);
            }
    RUNS();
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) {
            double sum = 0;
            for (int k = 0; k < 128; k++)
                sum += a[i][k] * b[j][k];
            assert_true(as_float(get(i % 4, j + 16 * (i / 4))) == (float)sum);
        }
    finish();
}

static void matrices_of_mixed_small_floats(void **state)
{
    (void)state;
    check_small_products("v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:7], v[12:19], 0, v20, v21 "
                         "op_sel_hi:[0,0,0] cbsz:4",
                         true, false);
    check_small_products("v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:15], 0, v20, v21 "
                         "op_sel_hi:[0,0,0] blgp:4",
                         false, true);
    check_small_products("v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], 0, v20, v21 "
                         "op_sel_hi:[0,0,0]",
                         false, false);
    check_small_products("v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:7], v[12:15], 0, v20, v21 "
                         "op_sel_hi:[0,0,0] cbsz:4 blgp:4",
                         true, true);
    start(950, "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:9], v[12:17], 0, v20, v21 "
               "op_sel_hi:[0,0,0] cbsz:2 blgp:2");
    STOPS("matrix elements of type 2");
    finish();
}

static void matrix_limits(void **state)
{
    (void)state;
    start(1100, "v_wmma_f32_16x16x16_f16 v[16:23], v[0:7], v[8:15], 0");
    for (int reg = 0; reg < 16; reg++)
        set_all(reg, 0);
    set(3, 20, 1);
    STOPS("hold different operands");
    finish();
    start(942, "v_mfma_f32_16x16x16_f16 v[8:11], v[0:1], v[4:5], 0");
    set_scalar(SGPR_EXEC, 1);
    STOPS("inactive lanes");
    finish();
    start(942, "v_mfma_f32_16x16x32_f16 v[8:11], v[0:3], v[4:7], 0");
    STOPS("only gfx950");
    finish();
    /* an unknown element of A makes its row unknown, and only that */
    start(942, "v_mfma_f32_16x16x16_f16 v[8:11], v[0:1], v[4:5], 0");
    for (int reg = 0; reg < 8; reg++)
        set_all(reg, 0);
    write_lane(&m.wave, 0, 5, 0, 0xffff); /* row 5 */
    RUNS();
    for (int l = 0; l < 64; l++)
        for (int r = 0; r < 4; r++)
            assert_int_equal(m.wave.vu[8 + r][l] != 0, 4 * (l / 16) + r == 5);
    finish();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrix_layouts),
        cmocka_unit_test(scaled_matrix),
        cmocka_unit_test(matrices_of_mixed_small_floats),
        cmocka_unit_test(matrix_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
