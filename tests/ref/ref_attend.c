/* SPDX-License-Identifier: Apache-2.0 */
/*
** ref_attend.c - attention from its definition: all scores, their maximum, the sums.
*/
#include "ref.h"

#include <math.h>
#include <stdlib.h>

/* First and one past the last visible key of a query at `position`. */
static void visible(const struct ref_attention *a, int position, int *first, int *end)
{
    *end = a->full ? a->length : position + 1;
    *first = a->window > 0 && position + 1 > a->window ? position + 1 - a->window : 0;
}

/* Soft cap, then the slope. */
static double adjusted(const struct ref_attention *a, double score, int h, int distance)
{
    if (a->soft_cap > 0)
        score = a->soft_cap * tanh(score / a->soft_cap);
    return a->alibi ? score + (double)a->alibi[h] * distance : score;
}

static void attend_row(const struct ref_attention *a, int i, int h, double *score)
{
    size_t row = (size_t)i * (size_t)a->query_heads + (size_t)h, dk = (size_t)a->key_size,
           dv = (size_t)a->value_size;
    size_t heads = (size_t)a->heads, g = (size_t)(h / (a->query_heads / a->heads));
    const double *q = a->query + row * dk;
    double *out = a->out + row * dv, top = -INFINITY, sum = 0, denominator;
    int first, end, position = a->length - a->query_len + i;

    visible(a, position, &first, &end);
    for (size_t e = 0; e < dv; e++)
        out[e] = 0;
    if (a->lse)
        a->lse[row] = -INFINITY;
    if (end <= first)
        return;
    for (int t = first; t < end; t++) {
        double dot = 0;
        for (size_t e = 0; e < dk; e++)
            dot += q[e] * a->key[((size_t)t * heads + g) * dk + e];
        score[t] = adjusted(a, dot * a->scale, h, t - position);
        top = fmax(top, score[t]);
    }
    for (int t = first; t < end; t++) {
        double p = exp(score[t] - top);
        sum += p;
        for (size_t e = 0; e < dv; e++)
            out[e] += p * a->value[((size_t)t * heads + g) * dv + e];
    }
    denominator = a->sinks ? sum + exp((double)a->sinks[h] - top) : sum;
    for (size_t e = 0; e < dv; e++)
        out[e] /= denominator;
    if (a->lse)
        a->lse[row] = top + log(sum);
}

void ref_attend(const struct ref_attention *a)
{
    double *score = malloc((size_t)(a->length + 1) * sizeof *score);

    if (!score)
        abort();
    for (int i = 0; i < a->query_len; i++)
        for (int h = 0; h < a->query_heads; h++)
            attend_row(a, i, h, score);
    free(score);
}
