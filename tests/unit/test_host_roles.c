/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_host_roles.c - the roles of the host target as compiled code: small kernels built, linked and run for each level
** that this processor supports. The entries borrow the parameters of `reduce`: partial is the input, out the output.
*/
#include "../../gen/kb_internal.h"

#include "../../gen/host_link.h"
#include "../../gen/lower.h"
#include "../../runtime/abi.h"
#include "../../runtime/host_cpu.h"
#include "../../runtime/host_pool.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

typedef void body(struct kb *k, val in, val out);

static const char *const levels[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4"};

static void check(kvk_status status, const kvk_error *err)
{
    if (status)
        fail_msg("%s: %s", err->where, err->text);
}

static void build(const char *target_name, body *emit, void **image, size_t *bytes, size_t *offset,
                  size_t *shared)
{
    static const struct plan plan;
    const char *const names[] = {"kernel"};
    const struct target *target = target_find(target_name);
    kvk_error err = {0};
    struct lower *l;
    struct kb k;
    assert_non_null(target);
    check(lower_open(target, "test", false, &l, &err), &err);
    kb_open(&k, lower_context(l), lower_module(l), target, &plan, &err);
    kb_entry_begin(&k, names[0], "reduce", 64);
    val in = kb_param(&k, "partial");
    emit(&k, in, kb_param(&k, "out"));
    kb_entry_end(&k);
    *shared = kb_shared_used(&k);
    check(k.status, &err);
    kb_close(&k);
    void *elf;
    size_t elf_bytes;
    check(lower_verify(l, &err), &err);
    check(lower_optimise(l, &err), &err);
    check(lower_emit(l, 1, &elf, &elf_bytes, &err), &err);
    lower_close(l);
    check(host_link(elf, elf_bytes, names, offset, 1, image, bytes, &err), &err);
    free(elf);
}

static void run(const char *target, body *emit, const void *in, void *out, uint32_t ctas,
                uint32_t threads)
{
    void *image;
    size_t bytes, offset, shared;
    build(target, emit, &image, &bytes, &offset, &shared);
    void *code = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(code, MAP_FAILED);
    memcpy(code, image, bytes);
    free(image);
    assert_int_equal(mprotect(code, bytes, PROT_READ | PROT_EXEC), 0);
    struct abi_reduce params = {.partial = (uintptr_t)in, .out = (uintptr_t)out};
    struct host_grid grid = {.params = &params,
                             .ctas = ctas,
                             .threads = threads,
                             .shared_bytes = shared,
                             .shared_at_end = 1};
    void *function = (char *)code + offset;
    memcpy(&grid.entry, &function, sizeof function);
    struct host_pool *pool;
    kvk_error err = {0};
    check(host_pool_open(&pool, 2, &err), &err);
    check(host_pool_run(pool, &grid, &err), &err);
    host_pool_close(pool);
    munmap(code, bytes);
}

static val thread_index(struct kb *k)
{
    val base = kb_muli(k, kb_cta(k), 64);
    return kb_add(k, base, kb_tid(k));
}

static void unary(struct kb *k, val in, val out, val (*role)(struct kb *, val))
{
    val at = kb_shli(k, thread_index(k), 2);
    val x = kb_load(k, KB_F32, kb_offset(k, in, at), 4);
    val y = role(k, x);
    kb_store(k, y, kb_offset(k, out, at), 4);
}

static void exp2_body(struct kb *k, val in, val out) { unary(k, in, out, kb_exp2); }
static void log2_body(struct kb *k, val in, val out) { unary(k, in, out, kb_log2); }
static void rsqrt_body(struct kb *k, val in, val out) { unary(k, in, out, kb_rsqrt); }
static void rcp_body(struct kb *k, val in, val out) { unary(k, in, out, kb_rcp); }

enum { CTAS = 500, COUNT = CTAS * 64 };

static void for_all_levels(void (*test)(const char *target))
{
    for (int i = 0; i < 3; i++)
        if (host_cpu_level() >= i + 2)
            test(levels[i]);
}

static void exp2_test(const char *target)
{
    static float x[COUNT], y[COUNT];
    for (int i = 0; i < COUNT; i++)
        x[i] = -130.0f + 260.0f * (float)i / COUNT;
    const float special[] = {-INFINITY, INFINITY, NAN,    0,     -0.0f,   1,          -1,  -126,
                             127,       128,      -1e30f, 1e30f, -1e-20f, 127.99999f, -200};
    memcpy(x, special, sizeof special);
    run(target, exp2_body, x, y, CTAS, 64);
    for (int i = 0; i < COUNT; i++) {
        double want = x[i] < -126 ? 0 : exp2((double)x[i]);
        if (isnan(x[i])   ? !isnan(y[i])
            : x[i] >= 128 ? y[i] != INFINITY
                          : !(fabs(y[i] - want) <= 2e-7 * want))
            fail_msg("%s: exp2(%a) = %a, not %a", target, (double)x[i], (double)y[i], want);
    }
    assert_true(y[3] == 1 && y[4] == 1 && y[5] == 2 && y[6] == 0.5f && y[7] == 0x1p-126f &&
                y[8] == 0x1p127f);
}

static void log2_test(const char *target)
{
    static float x[COUNT], y[COUNT];
    for (int i = 0; i < COUNT; i++)
        x[i] = exp2f(-1 + 31.0f * (float)i / COUNT);
    const float special[] = {0,    -0.0f, INFINITY,  NAN,       -1,          -INFINITY,      1, 2,
                             0.5f, 1024,  0x1p-126f, 0x1p-149f, 0x1.8p-140f, 0x1.fffffep127f};
    memcpy(x, special, sizeof special);
    run(target, log2_body, x, y, CTAS, 64);
    for (int i = 0; i < COUNT; i++) {
        double want = log2((double)x[i]);
        bool bad = isnan(want)   ? !isnan(y[i])
                   : isinf(want) ? y[i] != (float)want
                                 : !(fabs(y[i] - want) <= 1e-6 + 1.2e-7 * fabs(want));
        if (bad)
            fail_msg("%s: log2(%a) = %a, not %a", target, (double)x[i], (double)y[i], want);
    }
    assert_true(y[6] == 0 && y[7] == 1 && y[8] == -1 && y[9] == 10);
}

static void roots_test(const char *target)
{
    static float x[COUNT], y[2][COUNT];
    for (int i = 0; i < COUNT; i++)
        x[i] = exp2f(-100 + 200.0f * (float)i / COUNT);
    run(target, rsqrt_body, x, y[0], CTAS, 64);
    run(target, rcp_body, x, y[1], CTAS, 64);
    for (int i = 0; i < COUNT; i++) {
        assert_true(fabs(y[0][i] * sqrt((double)x[i]) - 1) < 2e-7);
        assert_true(fabs((double)y[1][i] * x[i] - 1) < 1e-7);
    }
}

/* ---- lanes and shared memory ---- */

/* out[i] = sum over the warp of in[], then times the value of thread (tid + 33) % 64 through shared memory. */
static void collectives_body(struct kb *k, val in, val out)
{
    val at = kb_shli(k, thread_index(k), 2);
    val x = kb_load(k, KB_F32, kb_offset(k, in, at), 4);
    val sum = x;
    for (int mask = 16; mask; mask /= 2) {
        val other = kb_shuffle_xor(k, sum, mask);
        sum = kb_fadd(k, sum, other);
    }
    val next = kb_andi(k, kb_addi(k, kb_lane(k), 5), 31);
    val moved = kb_shuffle(k, x, next);
    val shared = kb_shared(k, 64 * 4, 16);
    kb_store(k, moved, kb_offset(k, shared, kb_shli(k, kb_tid(k), 2)), 4);
    kb_barrier(k);
    val from = kb_andi(k, kb_addi(k, kb_tid(k), 33), 63);
    val y = kb_load(k, KB_F32, kb_offset(k, shared, kb_shli(k, from, 2)), 4);
    y = kb_fmul(k, y, kb_bitcast(k, kb_opaque(k, kb_bitcast(k, sum, KB_I32)), KB_F32));
    kb_warp_sync(k);
    kb_store(k, y, kb_offset(k, out, at), 4);
}

static void collectives_test(const char *target)
{
    float x[192], y[192];
    for (int i = 0; i < 192; i++)
        x[i] = (float)(i * 7 % 31);
    run(target, collectives_body, x, y, 3, 64);
    for (int i = 0; i < 192; i++) {
        float sum = 0;
        for (int j = 0; j < 32; j++)
            sum += x[(i & ~31) + j];
        int from = (i & ~63) + (i + 33) % 64;
        assert_true(y[i] == sum * x[(from & ~31) + (from + 5) % 32]);
    }
}

/* ---- matrix role: X 16x16 times Y 16x8 from and to memory by the role's own index functions ---- */

static val element(struct kb *k, val base, val row, val column, int columns)
{
    val at = kb_add(k, kb_muli(k, row, columns), column);
    return kb_offset(k, base, kb_shli(k, at, 2));
}

/* in: float x[16][16], y[16 k][8]; out: float r[16][8]. The k that (group, element) stand for: k_index. */
static void mma_body_of(struct kb *k, val in, val out, int type)
{
    const struct target_ops *ops = kb_target(k)->ops;
    const struct mma_shape *s = &kb_target(k)->mma;
    val x[16], y[8], acc[16];
    for (int row = 0; row < s->lane_rows; row++)
        for (int p = 0; p < s->ke / 2; p++) {
            val r = ops->matrix->x_row(k, row);
            val lo = kb_load(k, KB_F32, element(k, in, r, ops->matrix->k_index(k, 2 * p), 16), 4);
            val hi = kb_load(k, KB_F32, element(k, in, r, ops->matrix->k_index(k, 2 * p + 1), 16), 4);
            x[row * s->ke / 2 + p] = kb_pack_half(k, lo, hi, type);
        }
    val y_base = kb_offseti(k, in, 16 * 16 * 4), column = ops->matrix->y_index(k);
    for (int p = 0; p < s->ke / 2; p++) {
        val lo = kb_load(k, KB_F32, element(k, y_base, ops->matrix->k_index(k, 2 * p), column, 8), 4);
        val hi = kb_load(k, KB_F32, element(k, y_base, ops->matrix->k_index(k, 2 * p + 1), column, 8), 4);
        y[p] = kb_pack_half(k, lo, hi, type);
    }
    for (int i = 0; i < s->lane_rows * s->ye; i++)
        acc[i] = kb_f32(k, 1);
    ops->matrix->mma(k, type, acc, x, y);
    ops->matrix->mma(k, type, acc, x, y);
    for (int row = 0; row < s->lane_rows; row++)
        for (int e = 0; e < s->ye; e++) {
            val r = ops->matrix->x_row(k, row);
            kb_store(k, acc[row * s->ye + e], element(k, out, r, ops->matrix->result_y(k, e), 8), 4);
        }
}

static void mma_f16_body(struct kb *k, val in, val out) { mma_body_of(k, in, out, KB_F16); }
static void mma_bf16_body(struct kb *k, val in, val out) { mma_body_of(k, in, out, KB_BF16); }

static void mma_test(const char *target)
{
    for (int bf16 = 0; bf16 < 2; bf16++) {
        float in[16 * 16 + 16 * 8], out[16][8];
        for (int i = 0; i < 16 * 24; i++)
            in[i] = (float)(i * 37 % 101 - 50) / 8; /* exact in 8 bits */
        in[5] = 0x1p-24f;                           /* the smallest half */
        run(target, bf16 ? mma_bf16_body : mma_f16_body, in, out, 1, 32);
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 8; j++) {
                double want = 1;
                for (int t = 0; t < 16; t++)
                    want += 2.0 * in[i * 16 + t] * in[256 + t * 8 + j];
                if (fabs(out[i][j] - want) > 1e-3)
                    fail_msg("%s: r[%d][%d] = %g, not %g", target, i, j, (double)out[i][j], want);
            }
    }
}

/* ---- conversions ---- */

static void half_body(struct kb *k, val in, val out)
{
    val at = kb_shli(k, thread_index(k), 2);
    val x = kb_load(k, KB_F32, kb_offset(k, in, at), 4);
    val f16 = kb_zext(k, kb_bitcast(k, kb_to_half(k, x, KB_F16), KB_I16), KB_I32);
    val bf16 = kb_bitcast(k, kb_to_half(k, x, KB_BF16), KB_I16);
    val both = kb_or(k, f16, kb_shli(k, kb_zext(k, bf16, KB_I32), 16));
    kb_store(k, both, kb_offset(k, out, at), 4);
}

static void wide_body(struct kb *k, val in, val out)
{
    val index = thread_index(k);
    val h = kb_load(k, KB_F16, kb_offset(k, in, kb_shli(k, index, 1)), 2);
    kb_store(k, kb_to_f32(k, h), kb_offset(k, out, kb_shli(k, index, 2)), 4);
}

/* Arithmetic on pairs of half: in[i] = two halves, out[i] = (x * 256) - 1028. */
static void pair_body(struct kb *k, val in, val out)
{
    val at = kb_shli(k, thread_index(k), 2);
    val x = kb_load(k, KB_VEC(KB_F16, 2), kb_offset(k, in, at), 4);
    val y = kb_fmul(k, x, kb_f16x2(k, 0x5c005c00));
    y = kb_fsub(k, y, kb_f16x2(k, 0x64046404));
    kb_store(k, y, kb_offset(k, out, at), 4);
}

static void half_arithmetic_is_equal_at_all_levels(void **state)
{
    (void)state;
    static uint16_t x[65536], y[3][65536];
    for (uint32_t i = 0; i < 65536; i++)
        x[i] = (i & 0x7c00) == 0x7c00 && i & 0x3ff ? 0 : (uint16_t)i;
    for (int i = 0; i < 3 && i + 2 <= host_cpu_level(); i++) {
        run(levels[i], pair_body, x, y[i], 512, 64);
        assert_memory_equal(y[0], y[i], sizeof y[0]);
    }
    assert_int_equal(y[0][0x3c00], 0xe208); /* 256 - 1028 = -772 */
}

static void conversions_are_equal_at_all_levels(void **state)
{
    (void)state;
    static float x[COUNT], wide[3][65536];
    static uint32_t y[3][COUNT];
    static uint16_t halves[65536];
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t bits = i * 134217757u + (i & 15) * 0x1000; /* all exponents, many ties */
        memcpy(&x[i], &bits, 4);
        if (isnan(x[i]))
            x[i] = i & 1 ? 65519.996f : 0x1.ffdp-15f;
    }
    for (uint32_t i = 0; i < 65536; i++)
        halves[i] = (i & 0x7c00) == 0x7c00 && i & 0x3ff ? 0 : (uint16_t)i;
    for (int i = 0; i < 3 && i + 2 <= host_cpu_level(); i++) {
        run(levels[i], half_body, x, y[i], CTAS, 64);
        run(levels[i], wide_body, halves, wide[i], 1024, 64);
        assert_memory_equal(y[0], y[i], sizeof y[0]);
        assert_memory_equal(wide[0], wide[i], sizeof wide[0]);
    }
}

static void exp2_is_close(void **state)
{
    (void)state;
    for_all_levels(exp2_test);
}
static void log2_is_close(void **state)
{
    (void)state;
    for_all_levels(log2_test);
}
static void roots_are_close(void **state)
{
    (void)state;
    for_all_levels(roots_test);
}
static void shuffles_and_barriers(void **state)
{
    (void)state;
    for_all_levels(collectives_test);
}
static void matrix_products(void **state)
{
    (void)state;
    for_all_levels(mma_test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp2_is_close),
        cmocka_unit_test(log2_is_close),
        cmocka_unit_test(roots_are_close),
        cmocka_unit_test(shuffles_and_barriers),
        cmocka_unit_test(matrix_products),
        cmocka_unit_test(conversions_are_equal_at_all_levels),
        cmocka_unit_test(half_arithmetic_is_equal_at_all_levels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
