/* SPDX-License-Identifier: Apache-2.0 */
/* oracle.c - see oracle.h. Two passes: the maximum first, then the sums. */
#include "oracle.h"

#include "cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void oracle_decode(const struct slots *slots, const unsigned char *pool, const int32_t *table,
                   long tokens, int head, struct oracle_rows *out)
{
    size_t d = (size_t)slots->head_size;
    out->head_size = slots->head_size;
    out->value_head_size = 0;
    out->rotated = slots_rotated(slots->format);
    out->tokens = tokens;
    out->key = cli_alloc((size_t)tokens * d, sizeof(double));
    out->value = cli_alloc((size_t)tokens * d, sizeof(double));
    for (long t = 0; t < tokens; t++) {
        long slot =
            (long)table[t / slots->page_tokens] * slots->page_tokens + t % slots->page_tokens;
        slots_key(slots, pool, slot, head, out->key + (size_t)t * d);
        slots_value(slots, pool, slot, head, out->value + (size_t)t * d);
    }
}

void oracle_free(struct oracle_rows *rows)
{
    free(rows->key);
    free(rows->value);
    rows->key = rows->value = NULL;
}

static double dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

double oracle_attend(const struct oracle_rows *rows, const double *query, long position,
                     const struct oracle_mask *mask, double *out)
{
    int d = rows->head_size, dv = rows->value_head_size ? rows->value_head_size : d;
    long last = position < rows->tokens ? position : rows->tokens - 1;
    long first = mask->window && position - mask->window + 1 > 0 ? position - mask->window + 1 : 0;
    memset(out, 0, (size_t)dv * sizeof *out);
    if (first > last)
        return -INFINITY;
    double *q = cli_alloc((size_t)d, sizeof *q),
           *score = cli_alloc((size_t)(last - first + 1), sizeof *score);
    double top = -INFINITY, sum = 0;
    memcpy(q, query, (size_t)d * sizeof *q);
    if (rows->rotated)
        slots_rotate(q, d);
    for (long t = first; t <= last; t++) {
        score[t - first] = mask->scale * dot(q, rows->key + (size_t)t * (size_t)d, d);
        top = fmax(top, score[t - first]);
    }
    double limit = mask->sink ? fmax(top, *mask->sink) : top;
    for (long t = first; t <= last; t++) {
        double p = exp(score[t - first] - limit);
        sum += p;
        for (int i = 0; i < dv; i++)
            out[i] += p * rows->value[(size_t)t * (size_t)dv + (size_t)i];
    }
    double total = sum + (mask->sink ? exp(*mask->sink - limit) : 0);
    for (int i = 0; i < dv; i++)
        out[i] /= total;
    free(q);
    free(score);
    return limit + log(sum);
}
