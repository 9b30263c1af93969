/* SPDX-License-Identifier: Apache-2.0 */
/*
** data.c - inputs.
*/
#include "num.h"

#include <math.h>

/* splitmix64 (Steele, Lea, Flood 2014). */
uint64_t num_next(struct num_random *r)
{
    uint64_t z = r->state += 0x9E3779B97F4A7C15;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

struct num_random num_random(uint64_t seed, uint64_t stream)
{
    struct num_random r = {seed ^ stream * 0xD1342543DE82EF95};

    num_next(&r);
    return r;
}

/* Does not depend on the place in the list, so that a case repeats alone. */
uint64_t num_case_seed(const struct num_run *run, const struct num_case *c)
{
    uint64_t hash = 0xcbf29ce484222325 ^ run->seed;

    for (const char *p = c->name; *p; p++)
        hash = (hash ^ (uint8_t)*p) * 0x100000001b3;
    return hash;
}

int num_below(struct num_random *r, int n) { return (int)(num_next(r) % (uint64_t)n); }

float num_normal(struct num_random *r)
{
    double u = ((double)(num_next(r) >> 11) + 0.5) / 9007199254740992.0;
    double v = (double)(num_next(r) >> 11) / 9007199254740992.0;

    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

void num_shuffle(struct num_random *r, int32_t *x, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int j = num_below(r, i + 1);
        int32_t t = x[i];
        x[i] = x[j];
        x[j] = t;
    }
}

uint16_t num_bits(kvk_dtype dtype, float x)
{
    return dtype == KVK_FLOAT16 ? ref_f16_from(x) : ref_bf16_from(x);
}

float num_value(kvk_dtype dtype, uint16_t bits)
{
    return dtype == KVK_FLOAT16 ? ref_f16_to(bits) : ref_bf16_to(bits);
}

void num_fill_normal(struct num_random *r, kvk_dtype dtype, uint16_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = num_bits(dtype, num_normal(r));
}

static float special(struct num_random *r, kvk_dtype dtype, int kind, int i, int at)
{
    float x = num_normal(r), top = dtype == KVK_FLOAT16 ? 65504 : 0x1.fep127f;

    switch (kind) {
    case 0: return 0;
    case 1: return 0.5f;
    case 2: return x * 1e-6f;
    case 3: return x * 1e4f;
    case 4: return i == at ? 300 * x : x;
    case 5: return i == at ? INFINITY : x;
    case 6: return i == at ? -INFINITY : x;
    case 7: return i == at ? NAN : x;
    case 8: return NAN;
    case 9: return x < 0 ? -top : top;
    case 10: return i == at ? 1 : 0;
    case 11: return (float)(100 + 0.01 * x);
    case 12: return i == at ? top : x;
    case 13: return x < 0 ? -0x1p-24f : 0x1p-24f;
    case 14: return i % 2 ? 2.5f : 0.25f * (float)(1 + i % 7);
    default: return 448 + 16 * x;
    }
}

void num_fill_special(struct num_random *r, kvk_dtype dtype, uint16_t *out, size_t vectors, int d)
{
    for (size_t v = 0; v < vectors; v++) {
        int kind = (int)(v % 16), at = num_below(r, d);
        for (int i = 0; i < d; i++)
            out[v * (size_t)d + (size_t)i] = num_bits(dtype, special(r, dtype, kind, i, at));
    }
}
