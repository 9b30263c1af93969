/* SPDX-License-Identifier: Apache-2.0 */
/*
** Quotients by a common divisor in three operations (templates/part_shared_encode.c) against IEEE
** division. All 2^23 mantissas of divisors were tried once for both formats; here some of them.
*/
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { APART = 1021 };

static int wrong(float x, float d)
{
    float r = 1 / d, q = x * r;
    float rest = fmaf(-q, d, x);
    return fmaf(rest, r, q) != x / d;
}

static void of_mantissas(int bits)
{
    int n = 1 << bits, misses = 0;
    for (uint32_t m = 0; m < 1u << 23; m += APART) {
        uint32_t pattern = 0x3f800000 | m;
        float d;
        memcpy(&d, &pattern, sizeof d);
        for (int i = 0; i < n; i++)
            misses += wrong(1 + (float)i / (float)n, d);
    }
    assert_int_equal(misses, 0);
}

static void quotients_of_bf16_are_rounded_once(void **state)
{
    (void)state;
    of_mantissas(7);
}

static void quotients_of_fp16_are_rounded_once(void **state)
{
    (void)state;
    of_mantissas(10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quotients_of_bf16_are_rounded_once),
        cmocka_unit_test(quotients_of_fp16_are_rounded_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
