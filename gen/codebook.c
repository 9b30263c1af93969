/* SPDX-License-Identifier: Apache-2.0 */
/*
** codebook.c - Lloyd's iteration with a fixed number of samples and passes.
**
** The tables are part of the byte format, so the iteration is too: 200 trapezoid steps a cell, at
** most 200 passes, a last pass that is thrown away when it moved nothing by 1e-10. Four bits do not
** converge in 200 passes; the centroids are where the last pass left them, not the optimum. (Lloyd
** 1982, doi:10.1109/TIT.1982.1056489; Max 1960.)
**
** The density is even, so only the upper half is solved; its lowest cell begins at 0. The full
** iteration rounds its two halves differently by 1e-16, far below what could move an fp32 result.
*/
#include "codebook.h"

#include <math.h>

enum { STEPS = 200, PASSES = 200, MAX_HALF = 8 };

static const double PI = 3.14159265358979323846;

struct density {
    double scale, spread; /* pdf(x) = exp(-x^2 / spread) / scale */
};

static double pdf(const struct density *d, double x) { return exp(-x * x / d->spread) / d->scale; }

/* Mean of the density over [low, high], or `keep` where there is next to nothing. */
static double cell_mean(const struct density *d, double low, double high, double keep)
{
    double step = (high - low) / STEPS;
    double p_low = pdf(d, low), p_high = pdf(d, high);
    double mass = (p_low + p_high) / 2, moment = (low * p_low + high * p_high) / 2;
    for (int i = 1; i < STEPS; i++) {
        double x = low + i * step, p = pdf(d, x);
        mass += p;
        moment += x * p;
    }
    mass *= step;
    moment *= step;
    return mass > 1e-15 ? moment / mass : keep;
}

/* One pass: next[] from c[], the upper half. Returns the largest change. */
static double improve(const struct density *d, const double *c, double *next, int half,
                      double sigma)
{
    double largest = 0;
    for (int i = 0; i < half; i++) {
        double low = i ? (c[i - 1] + c[i]) / 2 : 0;
        double high = i + 1 < half ? (c[i] + c[i + 1]) / 2 : 10.5 * sigma;
        next[i] = cell_mean(d, low, high, c[i]);
        largest = fmax(largest, fabs(next[i] - c[i]));
    }
    return largest;
}

void codebook_lloyd_max(int head_size, int bits, float *centroids)
{
    int levels = 1 << bits, half = levels / 2;
    double sigma = sqrt(1.0 / head_size), c[MAX_HALF], next[MAX_HALF];
    struct density d = {sqrt(2 * PI / head_size), 2.0 / head_size};
    for (int i = 0; i < half; i++)
        c[i] = -3.5 * sigma + 7 * sigma * (half + i + 0.5) / levels;
    for (int pass = 0; pass < PASSES; pass++) {
        if (improve(&d, c, next, half, sigma) < 1e-10)
            break;
        for (int i = 0; i < half; i++)
            c[i] = next[i];
    }
    for (int i = 0; i < half; i++) {
        centroids[half + i] = (float)c[i];
        centroids[half - 1 - i] = -(float)c[i];
    }
}

void codebook_midpoints(const float *centroids, int n, float *midpoints)
{
    for (int i = 0; i + 1 < n; i++) {
        float sum = centroids[i] + centroids[i + 1];
        midpoints[i] = sum * 0.5f;
    }
}
