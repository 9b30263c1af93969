/* SPDX-License-Identifier: Apache-2.0 */
/* encode.c - see encode.h. Non-finite input: as the store's
 * rules say, limited to the fp16 range. */
#include "encode.h"

#include <math.h>

static double limit(double x)
{
    return fmin(fmax(x, -65504), 65504);
}

void encode_key(const struct slots *slots, const double *key, double *out)
{
    double square = 0;
    for (int d = 0; d < slots->head_size; d++) {
        out[d] = isnan(key[d]) ? 0 : limit(key[d]);
        square += out[d] * out[d];
    }
    for (int d = 0; d < slots->head_size; d++)
        out[d] /= sqrt(square) + 1e-8;
    slots_rotate(out, slots->head_size);
}

void encode_value(const struct slots *slots, const double *value, double *out)
{
    double low = INFINITY, high = -INFINITY, top = (1 << slots->format->value_bits) - 1;
    for (int d = 0; d < slots->head_size; d++) {
        if (isnan(value[d]))
            continue;
        double x = isinf(value[d]) ? limit(value[d]) : value[d];
        low = fmin(low, x);
        high = fmax(high, x);
    }
    if (low > high)
        low = high = 0;
    low = limit(low);
    double scale = (high - low) / top;
    if (!(scale > 1e-8))
        scale = 1e-8;
    if (scale >= 65520)
        scale = 65504;
    for (int d = 0; d < slots->head_size; d++)
        out[d] =
            isnan(value[d]) ? 0 : ((isinf(value[d]) ? limit(value[d]) : value[d]) - low) / scale;
}

static int neighbours(unsigned a, unsigned b)
{
    return a + 1 == b || b + 1 == a;
}

int encode_key_near(const struct slots *slots, double truth, unsigned a, unsigned b)
{
    return neighbours(a, b) && fabs(truth - slots->midpoints[a < b ? a : b]) <= 1e-6;
}

int encode_value_near(double truth, unsigned a, unsigned b)
{
    double edge = (a < b ? a : b) + 0.5;
    return neighbours(a, b) && fabs(truth - edge) <= 1e-6 * edge;
}
