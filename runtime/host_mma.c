/* SPDX-License-Identifier: Apache-2.0 */
/*
** host_mma.c - see host_mma.h.
**
** The fragments are gathered into three row-major tiles, multiplied, and scattered back. A lane
** holds pairs of neighbours in k (a), rows (b) and columns (c), so a and c move 8 bytes at a time.
** The product is an outer product a column of A times a row of B, eight columns wide.
*/
#include "host_mma.h"

#include "host_abi.h"
#include "host_cpu.h"

#include <string.h>

struct tile {
    float a[16][16], b[16][8], c[16][8];
};

static inline void gather(struct tile *t, const float *const *a, const float *const *b,
                          float *const *c)
{
    for (int lane = 0; lane < HOST_WARP; lane++) {
        int g = lane / 4, q = lane % 4 * 2;
        memcpy(&t->a[g][q], a[lane], 8);
        memcpy(&t->a[g + 8][q], a[lane] + 2, 8);
        memcpy(&t->a[g][q + 8], a[lane] + 4, 8);
        memcpy(&t->a[g + 8][q + 8], a[lane] + 6, 8);
        t->b[q][g] = b[lane][0];
        t->b[q + 1][g] = b[lane][1];
        t->b[q + 8][g] = b[lane][2];
        t->b[q + 9][g] = b[lane][3];
        memcpy(&t->c[g][q], c[lane], 8);
        memcpy(&t->c[g + 8][q], c[lane] + 2, 8);
    }
}

static inline void scatter(const struct tile *t, float *const *c)
{
    for (int lane = 0; lane < HOST_WARP; lane++) {
        int g = lane / 4, q = lane % 4 * 2;
        memcpy(c[lane], &t->c[g][q], 8);
        memcpy(c[lane] + 2, &t->c[g + 8][q], 8);
    }
}

static void mma_plain(const float *const *a, const float *const *b, float *const *c)
{
    struct tile t;
    gather(&t, a, b, c);
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 16; k++)
            for (int j = 0; j < 8; j++)
                t.c[i][j] += t.a[i][k] * t.b[k][j];
    scatter(&t, c);
}

#if defined(__x86_64__)
#include <immintrin.h>

/* Eight rows at a time: eight independent chains of multiply-adds hide their latency; B is read
** twice. */
__attribute__((target("avx2,fma"))) static void mma_fma(const float *const *a,
                                                        const float *const *b, float *const *c)
{
    struct tile t;
    gather(&t, a, b, c);
    for (int i = 0; i < 16; i += 8) {
        __m256 row[8];
        for (int r = 0; r < 8; r++)
            row[r] = _mm256_loadu_ps(t.c[i + r]);
        for (int k = 0; k < 16; k++) {
            __m256 bk = _mm256_loadu_ps(t.b[k]);
            for (int r = 0; r < 8; r++)
                row[r] = _mm256_fmadd_ps(_mm256_broadcast_ss(&t.a[i + r][k]), bk, row[r]);
        }
        for (int r = 0; r < 8; r++)
            _mm256_storeu_ps(t.c[i + r], row[r]);
    }
    scatter(&t, c);
}
#endif

host_mma *host_mma_plain(void) { return mma_plain; }

host_mma *host_mma_best(void)
{
#if defined(__x86_64__)
    if (host_cpu_level() >= 3)
        return mma_fma;
#endif
    return mma_plain;
}
