/* SPDX-License-Identifier: Apache-2.0 */
/*
** ref_codebook.c - Lloyd-Max by fixed-point iteration over trapezoid sums, all in double.
**
** The number of passes (200 at most) and the discarded last step are part of the format: 4-bit
** tables never converge, and true Lloyd-Max values would give other bytes.
*/
#include "ref.h"

#include <math.h>

enum { STEPS = 200, PASSES = 200 };

static double density(double x, double variance)
{
    return exp(-x * x / (2 * variance)) / sqrt(2 * 3.14159265358979323846 * variance);
}

/* Mean of the density over [lo, hi], or `keep` where there is no mass. */
static double cell_mean(double lo, double hi, double variance, double keep)
{
    double h = (hi - lo) / STEPS;
    double mass = 0.5 * (density(lo, variance) + density(hi, variance));
    double moment = 0.5 * (lo * density(lo, variance) + hi * density(hi, variance));

    for (int i = 1; i < STEPS; i++) {
        double x = lo + i * h, p = density(x, variance);
        mass += p;
        moment += x * p;
    }
    mass *= h;
    moment *= h;
    return mass <= 1e-15 ? keep : moment / mass;
}

void ref_lloyd_max(int d, int bits, float *centroids)
{
    int n = 1 << bits;
    double variance = 1.0 / d, sigma = sqrt(variance), c[16], next[16];

    for (int i = 0; i < n; i++)
        c[i] = -3.5 * sigma + 7 * sigma * (i + 0.5) / n;
    for (int pass = 0; pass < PASSES; pass++) {
        double change = 0;

        for (int i = 0; i < n; i++) {
            double lo = i == 0 ? -10.5 * sigma : (c[i - 1] + c[i]) / 2;
            double hi = i == n - 1 ? 10.5 * sigma : (c[i] + c[i + 1]) / 2;
            next[i] = cell_mean(lo, hi, variance, c[i]);
            change = fmax(change, fabs(next[i] - c[i]));
        }
        if (change < 1e-10)
            break;
        for (int i = 0; i < n; i++)
            c[i] = next[i];
    }
    for (int i = 0; i < n; i++)
        centroids[i] = (float)c[i];
}

void ref_midpoints(const float *centroids, int bits, float *midpoints)
{
    for (int i = 0; i < (1 << bits) - 1; i++) {
        float sum = centroids[i] + centroids[i + 1];
        midpoints[i] = sum * 0.5f;
    }
}
