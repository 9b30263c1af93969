/* SPDX-License-Identifier: Apache-2.0 */
/*
** expect.c - what a call of attention must give, by two answers of the oracle.
**
** Exact: double precision over the stored codes. Of random data the relative L2 error of the whole
** output is at most 1e-3 (fp16), 2.5e-3 (bf16, decode), 4e-3 (bf16, unified), and an LSE is within
** 2e-3, times scale * sqrt(D) where that is above 1.
**
** Of operands: the same over what matrix units are given, which is 16 bits wide: codebook entries
** rounded to fp16 (lengths that are corrected at read are theirs); the query, rotated where keys are
** and scaled by a power of two to below 2, rounded to fp16, or to two bf16 terms beside bf16 keys
** and, where a kernel does not take them as fp16 (decode by images does), block codecs. This is
** nearly all that a kernel loses: its output is then right to the rounding of
** itself and of its weights, its LSE to fp32 arithmetic, whatever the data are. (Each of the two
** roundings is a relative 2^-11 at most, about 2e-4 in the mean; of a score's D products they add up
** to 2.8e-4 * scale * sqrt(D) of deviation: where the exact limit comes from, as 7 deviations. Tables
** of few entries may round worse than the mean, all of 2-bit keys at head size 576 by 4.3e-4: the
** limit then grows with it.)
*/
#include "world.h"

#include <float.h>
#include <math.h>

struct answer {
    double *out, *lse;
    double *room;  /* by how much fp32 arithmetic may miss an LSE; of operands */
    int two_terms; /* of operands: queries are two bf16 terms, not fp16 */
};

static int query_heads(const struct attention *a) { return a->w->m.kv_heads * a->w->m.gqa; }

static size_t all_rows(const struct attention *a)
{
    return (size_t)a->start[a->w->sequences] * (size_t)query_heads(a);
}

/* --- operands --- */

static int has_two_terms(const struct ref_codec *key)
{
    return key->kind == REF_BLOCK || (key->kind == REF_FLOAT && key->format == REF_BF16);
}

static double round_half(double x) { return (double)ref_f16_to(ref_f16_from((float)x)); }

static double round_terms(double x)
{
    double upper = (double)ref_bf16_to(ref_bf16_from((float)x));
    return upper + (double)ref_bf16_to(ref_bf16_from((float)(x - upper)));
}

/* Rounds a query to its operands. A rotation in fp32 decides some ties otherwise: returned is the
** sum of what that moves elements by. */
static double round_query(const struct ref_codec *key, int two_terms, double *query, size_t d)
{
    const double doubt = 0x1p-21;
    double most = 0, moved = 0;

    for (size_t i = 0; i < d; i++)
        most = fmax(most, fabs(query[i]));
    if (most == 0)
        return 0;
    const int up = ilogb(most);
    for (size_t i = 0; i < d; i++) {
        double x = ldexp(query[i], -up), r = two_terms ? round_terms(x) : round_half(x);
        double step = ldexp(1, (int)fmax(x == 0 ? -14 : ilogb(x), -14) - 10);
        if (key->rotated && !two_terms && fabs(fabs(x - r) - step / 2) < doubt)
            moved += ldexp(step, up);
        query[i] = ldexp(r, up);
    }
    return moved;
}

/* A query that is e4m3 before all else; the same of a rotation's ties. */
static double round_e4m3(const struct ref_codec *key, double *query, size_t d)
{
    double moved = 0;

    for (size_t i = 0; i < d; i++) {
        double x = query[i], r = (double)ref_e4m3_to(ref_e4m3_from((float)x));
        double step = ldexp(1, (int)fmax(x == 0 ? -6 : ilogb(x), -6) - 3);
        if (key->rotated && fabs(fabs(x - r) - step / 2) < 0x1p-18 * step)
            moved += step;
        query[i] = r;
    }
    return moved;
}

static double length_of(const double *x, size_t d)
{
    double squares = 0;

    for (size_t i = 0; i < d; i++)
        squares += x[i] * x[i];
    return sqrt(squares);
}

/* --- answers; rows in fp16 end at its largest number --- */

/* Largest of the keys: length, and magnitude of an element. */
struct largest {
    double length, element;
};

static struct largest largest_of(const double *key, size_t vectors, size_t d)
{
    struct largest l = {0, 0};

    for (size_t v = 0; v < vectors; v++) {
        l.length = fmax(l.length, length_of(key + v * d, d));
        for (size_t i = 0; i < d; i++)
            l.element = fmax(l.element, fabs(key[v * d + i]));
    }
    return l;
}

static double scale_of(const struct attention *a)
{
    return a->scale != 0 ? (double)a->scale : 1 / sqrt(a->w->m.d);
}

/* What arithmetic loses of a product of lengths, relative. Of lengths that are corrected at read some squares may be
** added by twos in fp16, each of two roundings 2^-11 at most: half of that is the length's. D / 2 sums of 64 elements
** and more even out to about 2^-15, and a score is a part of the product; but for what they have in common. */
static double arithmetic(const struct world *w)
{
    if (w->f.key.kind != REF_CODEBOOK || !w->f.key.correction || w->f.layout != REF_AOS)
        return 0x1p-20;
    return 0x1p-16 + world_squares_rounding(w);
}

/* Queries of sequence s as its keys want them, and the room of their LSEs but for their own size. */
static void make_queries(const struct attention *a, int s, const struct largest *keys,
                         int two_terms, double *query, double *room)
{
    const struct world *w = a->w;
    const size_t d = (size_t)w->m.d, heads = (size_t)query_heads(a);
    const double scale = fabs(scale_of(a)), lost = room ? arithmetic(w) : 0;

    for (size_t v = 0; v < (size_t)a->q_len[s] * heads; v++) {
        double *q = query + v * d;
        for (size_t i = 0; i < d; i++)
            q[i] = num_value(w->m.dtype, a->query[((size_t)a->start[s] * heads + v) * d + i]);
        if (w->f.key.rotated)
            ref_rotate(q, (int)d);
        double moved = w->m.spec->query_e4m3 ? round_e4m3(&w->f.key, q, d) : 0;
        if (!room)
            continue;
        moved += round_query(&w->f.key, two_terms, q, d);
        room[v] = 2e-6 + scale * (lost * length_of(q, d) * keys->length + moved * keys->element);
    }
}

static void answer_sequence(struct num_run *run, const struct attention *a, int s,
                            const struct answer *answer)
{
    const struct world *w = a->w;
    const size_t d = (size_t)w->m.d, dv = (size_t)w->m.dv, heads = (size_t)query_heads(a);
    const size_t vectors = (size_t)(w->lengths[s] * w->m.kv_heads);
    const size_t first = (size_t)a->start[s] * heads;
    double *key = num_host(run, vectors * d * sizeof *key);
    double *value = num_host(run, vectors * dv * sizeof *value);
    double *query = num_host(run, (size_t)a->q_len[s] * heads * d * sizeof *query);
    struct ref_attention r = {.query = query,
                              .key = key,
                              .value = value,
                              .out = answer->out + first * dv,
                              .lse = answer->lse + first,
                              .query_len = a->q_len[s],
                              .length = w->lengths[s],
                              .query_heads = (int)heads,
                              .heads = w->m.kv_heads,
                              .key_size = w->m.d,
                              .value_size = w->m.dv,
                              .scale = scale_of(a),
                              .window = a->window,
                              .sinks = a->sinks,
                              .full = a->full,
                              .soft_cap = (double)a->soft_cap,
                              .alibi = a->alibi};

    (answer->room ? world_read_operands : world_read)(w, s, key, value);
    for (size_t v = 0; w->f.value.rotated && v < vectors; v++)
        ref_rotate(value + v * dv, (int)dv);
    const struct largest keys = largest_of(key, vectors, d);
    make_queries(a, s, &keys, answer->two_terms, query, answer->room ? answer->room + first : NULL);
    ref_attend(&r);
    for (size_t i = 0; w->m.dtype == KVK_FLOAT16 && i < (size_t)a->q_len[s] * heads * dv; i++)
        r.out[i] = fmin(fmax(r.out[i], -65504), 65504);
}

static struct answer answer_of(struct num_run *run, const struct attention *a, int of_operands,
                               int two_terms)
{
    const size_t rows = all_rows(a);
    struct answer answer = {num_host(run, rows * (size_t)a->w->m.dv * sizeof(double)),
                            num_host(run, rows * sizeof(double)), NULL, two_terms};

    answer.room = of_operands ? num_host(run, rows * sizeof(double)) : NULL;
    for (int s = 0; s < a->w->sequences; s++)
        answer_sequence(run, a, s, &answer);
    return answer;
}

/* --- comparisons --- */

static void check_lse(struct num_run *run, const struct attention *a, const struct answer *want,
                      double limit)
{
    for (size_t i = 0; i < all_rows(a); i++) {
        double got = (double)a->lse[i], x = want->lse[i];
        double room = want->room ? want->room[i] + 0x1p-21 * fabs(x) : limit;
        if (isfinite(x) && !want->room)
            run->lse_error = fmax(run->lse_error, fabs(got - x));
        if (isinf(x) ? got != x : !(fabs(got - x) <= room))
            num_differ(run, "lse: row %zu head %zu is %.9g, expected %.9g%s, limit %.3g",
                       i / (size_t)query_heads(a), i % (size_t)query_heads(a), got, x,
                       want->room ? " by its operands" : "", room);
    }
}

/* Squares of one row's errors and of what was expected. `least`: what an element may be off whatever
** its size. */
static void check_row(struct num_run *run, const struct attention *a, const double *want,
                      size_t row, double limit, double least, double sums[2])
{
    const size_t heads = (size_t)query_heads(a), d = (size_t)a->w->m.dv;
    const uint16_t *got = a->out + row * d;
    double error = 0, norm = 0, worst_error = -1;
    size_t worst = 0;

    for (size_t i = 0; i < d; i++) {
        double x = num_value(a->w->m.dtype, got[i]), e = fabs(x - want[i]);
        error += e * e;
        norm += want[i] * want[i];
        if (!(e <= worst_error)) {
            worst_error = e;
            worst = i;
        }
    }
    if (!(sqrt(error) <= limit * sqrt(norm) + least * sqrt((double)d)))
        num_differ(
            run,
            "out: row %zu head %zu is off by %.3g (relative L2, limit %.3g); element %zu is %.6g, "
            "expected %.6g",
            row / heads, row % heads, sqrt(error / norm), limit, worst,
            (double)num_value(a->w->m.dtype, got[worst]), want[worst]);
    sums[0] += error;
    sums[1] += norm;
}

static double check_out(struct num_run *run, const struct attention *a, const struct answer *want,
                        double limit, double row_limit)
{
    const size_t d = (size_t)a->w->m.dv, rows = all_rows(a);
    const double least = a->w->m.dtype == KVK_FLOAT16 ? 0x1p-25 : 0; /* half a subnormal step */
    double sums[2] = {0, 0};

    for (size_t row = 0; row < rows; row++)
        check_row(run, a, want->out + row * d, row, row_limit, least, sums);
    if (!(sqrt(sums[0]) <= limit * sqrt(sums[1]) + least * sqrt((double)(rows * d))))
        num_differ(run, "out: relative L2 error %.3g, limit %.3g", sqrt(sums[0] / sums[1]), limit);
    return sums[1] > 0 ? sqrt(sums[0] / sums[1]) : 0;
}

static void check_exact(struct num_run *run, const struct attention *a)
{
    const struct answer exact = answer_of(run, a, 0, 0);
    const int half = a->w->m.dtype == KVK_FLOAT16;
    const double limit = half ? 1e-3 : a->unified ? 4e-3 : 2.5e-3;
    const double rounding = hypot(2e-4, world_key_rounding(a->w)) / 2.8e-4;
    const double lse = 2e-3 * fmax(1, fabs((double)a->scale) * sqrt(a->w->m.d)) * fmax(1, rounding);

    run->error = fmax(run->error, check_out(run, a, &exact, limit, 4 * limit));
    if (!a->no_lse)
        check_lse(run, a, &exact, a->lse_limit > 0 ? a->lse_limit : lse);
}

static int lse_fits(const struct attention *a, const struct answer *want, size_t i)
{
    double got = (double)a->lse[i], x = want->lse[i];
    return isinf(x) ? got == x : fabs(got - x) <= want->room[i] + 0x1p-21 * fabs(x);
}

/* Relative L2 distance from the answer. */
static double out_error(const struct attention *a, const struct answer *want)
{
    double error = 0, norm = 0;

    for (size_t i = 0; i < all_rows(a) * (size_t)a->w->m.dv; i++) {
        double e = num_value(a->w->m.dtype, a->out[i]) - want->out[i];
        error += e * e;
        norm += want->out[i] * want->out[i];
    }
    return norm > 0 ? sqrt(error / norm) : 0;
}

/* Keys of block codecs meet queries of either kind, all of a call's the same. */
static struct answer operands_of(struct num_run *run, const struct attention *a)
{
    const struct ref_codec *key = &a->w->f.key;
    const struct answer two = answer_of(run, a, 1, has_two_terms(key));
    size_t fit = 0;

    if (key->kind != REF_BLOCK || a->unified || a->w->m.spec->query_e4m3)
        return two;
    while (!a->no_lse && fit < all_rows(a) && lse_fits(a, &two, fit))
        fit++;
    if (fit == all_rows(a))
        return two;
    const struct answer half = answer_of(run, a, 1, 0);
    return a->no_lse && out_error(a, &two) < out_error(a, &half) ? two : half;
}

static void check_operands(struct num_run *run, const struct attention *a)
{
    const struct answer operands = operands_of(run, a);
    const double limit = a->w->m.dtype == KVK_FLOAT16 ? 4e-4 : 2.4e-3;

    check_out(run, a, &operands, limit, 2 * limit);
    if (!a->no_lse)
        check_lse(run, a, &operands, 0);
}

void attention_check(struct num_run *run, const struct attention *a)
{
    if (!a->extreme)
        check_exact(run, a);
    if (a->lse_limit == 0)
        check_operands(run, a);
}
