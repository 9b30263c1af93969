/* SPDX-License-Identifier: Apache-2.0 */
/*
** ref_rotate.c - the Hadamard rotation: block-diagonal with blocks of the largest power of two that
** divides d.
*/
#include "ref.h"

#include <math.h>

int ref_block_order(int d) { return d & -d; }

static void butterfly_f32(float *x, int d, int mask)
{
    for (int i = 0; i < d; i++) {
        if (i & mask)
            continue;
        float a = x[i], b = x[i + mask];
        x[i] = a + b;
        x[i + mask] = a - b;
    }
}

void ref_rotate_f32(float *x, int d)
{
    int p = ref_block_order(d);
    float scale = (float)(1 / sqrt((double)p));

    for (int mask = 1; mask < p; mask *= 2)
        butterfly_f32(x, d, mask);
    for (int i = 0; i < d; i++)
        x[i] *= scale;
}

void ref_rotate_stages(float *x, int d)
{
    for (int mask = 1; mask < ref_block_order(d); mask *= 2) {
        butterfly_f32(x, d, mask);
        for (int i = 0; i < d; i++)
            x[i] *= 0x1.6a09e6p-1f; /* 3F3504F3 */
    }
}

void ref_rotate(double *x, int d)
{
    int p = ref_block_order(d);

    for (int mask = 1; mask < p; mask *= 2)
        for (int i = 0; i < d; i++)
            if (!(i & mask)) {
                double a = x[i], b = x[i + mask];
                x[i] = a + b;
                x[i + mask] = a - b;
            }
    for (int i = 0; i < d; i++)
        x[i] /= sqrt((double)p);
}
