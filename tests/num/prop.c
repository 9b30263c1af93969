/* SPDX-License-Identifier: Apache-2.0 */
/*
** prop.c - properties: relations between results that hold without an oracle, and find index errors
** that a tolerance hides.
*/
#include "world.h"

#include <math.h>
#include <string.h>

static const int some_lengths[] = {53, 1, 34};
enum { SOME = 3 };

static void some_world(struct num_run *run, struct world *w, const struct num_model *m,
                       uint64_t data, uint64_t pages, int poison)
{
    struct world_options o = {.lengths = some_lengths,
                              .sequences = SOME,
                              .data_seed = data,
                              .page_seed = pages,
                              .poison = poison};

    world_make(run, w, m, &o);
}

static struct attention decode_of(const struct world *w, int q_len)
{
    struct attention a = {.w = w, .splits = 1};

    for (int s = 0; s < w->sequences; s++)
        a.q_len[s] = q_len;
    attention_rows(&a);
    return a;
}

static struct attention unified_of(const struct world *w)
{
    static const int q_len[SOME] = {6, 1, 34};
    struct attention a = {.w = w, .unified = 1};

    for (int s = 0; s < w->sequences; s++)
        a.q_len[s] = q_len[s];
    attention_rows(&a);
    return a;
}

static size_t elements(const struct attention *a)
{
    const struct num_model *m = &a->w->m;
    return (size_t)a->start[a->w->sequences] * (size_t)(m->kv_heads * m->gqa) * (size_t)m->dv;
}

static void same_bits(struct num_run *run, const struct attention *a, const struct attention *b)
{
    size_t n = elements(a);

    if (memcmp(a->out, b->out, n * 2))
        num_differ(run, "outputs differ");
    if (!a->no_lse && memcmp(a->lse, b->lse, n / (size_t)a->w->m.dv * sizeof *a->lse))
        num_differ(run, "lse differs");
}

/* Relative L2 distance of two outputs of one shape. */
static double distance(const struct attention *a, const uint16_t *x, const uint16_t *y)
{
    double error = 0, norm = 0;

    for (size_t i = 0; i < elements(a); i++) {
        double u = num_value(a->w->m.dtype, x[i]), v = num_value(a->w->m.dtype, y[i]);
        error += (u - v) * (u - v);
        norm += v * v;
    }
    return sqrt(error / norm);
}

static double rounding_limit(const struct attention *a)
{
    return a->w->m.dtype == KVK_FLOAT16 ? 1e-3 : 6e-3;
}

static void close_enough(struct num_run *run, const struct attention *a, const uint16_t *x,
                         const uint16_t *y)
{
    double d = distance(a, x, y);

    if (!(d <= rounding_limit(a)))
        num_differ(run, "outputs are %.3g apart, limit %.3g", d, rounding_limit(a));
}

/* Two worlds with the same rows on other pages, with other bytes in between: equal bits. */
static void same_on(struct num_run *run, const struct num_case *c, uint64_t pages, int poison)
{
    uint64_t seed = num_case_seed(run, c);
    struct world w, v;

    some_world(run, &w, &c->model, seed, 1, 0xFF);
    some_world(run, &v, &c->model, seed, pages, poison);
    for (int unified = 0; unified < 2; unified++) {
        struct attention a = unified ? unified_of(&w) : decode_of(&w, 2), b;
        attention_query(run, &a, seed);
        b = a;
        b.w = &v;
        attention_call(run, &a);
        attention_call(run, &b);
        same_bits(run, &a, &b);
    }
}

void prop_page_permutation(struct num_run *run, const struct num_case *c)
{
    same_on(run, c, 2, 0xFF);
}

void prop_unused_slots(struct num_run *run, const struct num_case *c)
{
    same_on(run, c, 1, 0x00);
    same_on(run, c, 1, 0x7F);
}

void prop_splits(struct num_run *run, const struct num_case *c)
{
    static const int splits[] = {2, 3, 5, 16, 17, 70}; /* all numbers of ways */
    uint64_t seed = num_case_seed(run, c);
    struct world w;
    struct attention one;

    some_world(run, &w, &c->model, seed, 1, 0xFF);
    one = decode_of(&w, 2);
    one.max_context = 400;
    attention_query(run, &one, seed);
    attention_call(run, &one);
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        struct attention many = one;
        many.splits = splits[i];
        attention_call(run, &many);
        close_enough(run, &one, many.out, one.out);
        for (size_t k = 0; k < elements(&one) / (size_t)c->model.dv; k++)
            if (one.lse[k] != many.lse[k] && !(fabsf(one.lse[k] - many.lse[k]) <= 1e-3f))
                num_differ(run, "lse %zu with %d splits is %g, with one %g", k, splits[i],
                           (double)many.lse[k], (double)one.lse[k]);
    }
}

static uint16_t *head_row(const struct world *w, uint16_t *rows, int row, int head)
{
    return rows + ((size_t)row * (size_t)w->m.kv_heads + (size_t)head) * (size_t)w->m.d;
}

/* The stored values of one token, as doubles. */
static void stored_value(const struct world *w, int sequence, int token, int head, double *value)
{
    ref_dequant(&w->f, &w->pool, world_slot(w, sequence, token), head, NULL, value);
}

static void output_is(struct num_run *run, const struct attention *a, int s, int h,
                      const double *want, double limit)
{
    const struct num_model *m = &a->w->m;
    const uint16_t *got =
        a->out + ((size_t)a->start[s] * (size_t)(m->kv_heads * m->gqa) + (size_t)h) * (size_t)m->dv;
    double error = 0, norm = 0;

    for (int i = 0; i < m->dv; i++) {
        double x = num_value(m->dtype, got[i]);
        error += (x - want[i]) * (x - want[i]);
        norm += want[i] * want[i];
    }
    if (!(sqrt(error) <= limit * sqrt(norm)))
        num_differ(run, "sequence %d head %d is off by %.3g", s, h, sqrt(error / norm));
}

/* Query = a large multiple of one key of its sequence: the output is that token's value. */
void prop_dominant_key(struct num_run *run, const struct num_case *c)
{
    uint64_t seed = num_case_seed(run, c);
    int d = c->model.d, gqa = c->model.gqa;
    double value[REF_MAX_D];
    struct world w;

    some_world(run, &w, &c->model, seed, 1, 0xFF);
    for (int unified = 0; unified < 2; unified++) {
        struct attention a = decode_of(&w, 1);
        a.unified = unified;
        attention_query(run, &a, seed);
        for (int s = 0; s < SOME; s++)
            for (int h = 0; h < w.m.kv_heads * gqa; h++) {
                const uint16_t *key =
                    head_row(&w, w.key, w.first_row[s] + (h * 7 + 3) % w.lengths[s], h / gqa);
                for (int i = 0; i < d; i++)
                    a.query[(size_t)(s * w.m.kv_heads * gqa + h) * (size_t)d + (size_t)i] =
                        num_bits(w.m.dtype, 20 * num_value(w.m.dtype, key[i]));
            }
        attention_call(run, &a);
        for (int s = 0; s < SOME; s++)
            for (int h = 0; h < w.m.kv_heads * gqa; h++) {
                stored_value(&w, s, (h * 7 + 3) % w.lengths[s], h / gqa, value);
                output_is(run, &a, s, h, value, 4 * rounding_limit(&a));
            }
    }
}

/* All keys of a sequence equal: the output is the mean of its values. */
void prop_equal_keys(struct num_run *run, const struct num_case *c)
{
    uint64_t seed = num_case_seed(run, c);
    int d = c->model.d;
    double mean[REF_MAX_D], value[REF_MAX_D];
    struct world w;

    some_world(run, &w, &c->model, seed, 1, 0xFF);
    for (int s = 0; s < SOME; s++)
        for (int t = 1; t < w.lengths[s]; t++)
            for (int h = 0; h < w.m.kv_heads; h++)
                memcpy(head_row(&w, w.key, w.first_row[s] + t, h),
                       head_row(&w, w.key, w.first_row[s], h), (size_t)d * 2);
    world_store(&w);
    for (int unified = 0; unified < 2; unified++) {
        struct attention a = decode_of(&w, 1);
        a.unified = unified;
        attention_query(run, &a, seed);
        attention_call(run, &a);
        for (int s = 0; s < SOME; s++)
            for (int h = 0; h < w.m.kv_heads * w.m.gqa; h++) {
                memset(mean, 0, sizeof mean);
                for (int t = 0; t < w.lengths[s]; t++) {
                    stored_value(&w, s, t, h / w.m.gqa, value);
                    for (int i = 0; i < c->model.dv; i++)
                        mean[i] += value[i] / w.lengths[s];
                }
                output_is(run, &a, s, h, mean, 4 * rounding_limit(&a));
            }
    }
}

/* Values doubled (exactly, in every codec): the output doubles, the LSE stays. */
void prop_linear_in_v(struct num_run *run, const struct num_case *c)
{
    uint64_t seed = num_case_seed(run, c);
    struct world w, v;

    some_world(run, &w, &c->model, seed, 1, 0xFF);
    some_world(run, &v, &c->model, seed, 1, 0xFF);
    for (size_t i = 0; i < (size_t)v.first_row[SOME] * (size_t)v.m.kv_heads * (size_t)v.m.dv; i++)
        v.value[i] = num_bits(v.m.dtype, 2 * num_value(v.m.dtype, v.value[i]));
    world_store(&v);
    for (int unified = 0; unified < 2; unified++) {
        struct attention a = unified ? unified_of(&w) : decode_of(&w, 2), b;
        attention_query(run, &a, seed);
        b = a;
        b.w = &v;
        attention_call(run, &a);
        attention_call(run, &b);
        for (size_t i = 0; i < elements(&a); i++)
            a.out[i] = num_bits(w.m.dtype, 2 * num_value(w.m.dtype, a.out[i]));
        close_enough(run, &a, b.out, a.out);
        for (size_t i = 0; i < elements(&a) / (size_t)w.m.dv; i++)
            if (a.lse[i] != b.lse[i] && !(fabsf(a.lse[i] - b.lse[i]) <= 1e-5f))
                num_differ(run, "%s: lse %zu is %.9g, with values doubled %.9g",
                           unified ? "unified" : "decode", i, (double)a.lse[i], (double)b.lse[i]);
    }
}

/* gqa = n and n times the KV heads with gqa = 1 are the same attention. */
void prop_gqa_repeats(struct num_run *run, const struct num_case *c)
{
    uint64_t seed = num_case_seed(run, c);
    struct num_model flat = c->model;
    struct world w, v;

    flat.gqa = 1;
    flat.kv_heads = c->model.kv_heads * c->model.gqa;
    some_world(run, &w, &c->model, seed, 1, 0xFF);
    some_world(run, &v, &flat, seed, 1, 0xFF);
    for (int row = 0; row < v.first_row[SOME]; row++)
        for (int h = 0; h < flat.kv_heads; h++) {
            memcpy(head_row(&v, v.key, row, h), head_row(&w, w.key, row, h / c->model.gqa),
                   (size_t)w.m.d * 2);
            memcpy(head_row(&v, v.value, row, h), head_row(&w, w.value, row, h / c->model.gqa),
                   (size_t)w.m.d * 2);
        }
    world_store(&v);
    for (int unified = 0; unified < 2; unified++) {
        struct attention a = unified ? unified_of(&w) : decode_of(&w, 2), b;
        attention_query(run, &a, seed);
        b = a;
        b.w = &v;
        attention_call(run, &a);
        attention_call(run, &b);
        close_enough(run, &a, a.out, b.out);
    }
}

/* Unified over any chunking gives what decode of the last rows gives. */
void prop_unified_is_decode(struct num_run *run, const struct num_case *c)
{
    uint64_t seed = num_case_seed(run, c);
    struct attention a, b;
    struct world w;

    some_world(run, &w, &c->model, seed, 1, 0xFF);
    a = decode_of(&w, 3);
    attention_query(run, &a, seed);
    b = a;
    b.unified = 1;
    attention_call(run, &a);
    attention_call(run, &b);
    close_enough(run, &a, b.out, a.out);
}

/* Each sequence of a batch alone gives the bits that it gives in the batch. */
void prop_rest_of_batch(struct num_run *run, const struct num_case *c)
{
    uint64_t seed = num_case_seed(run, c);
    size_t row_elements = (size_t)(c->model.kv_heads * c->model.gqa * c->model.d);
    struct world w;

    some_world(run, &w, &c->model, seed, 1, 0xFF);
    for (int unified = 0; unified < 2; unified++) {
        struct attention a = unified ? unified_of(&w) : decode_of(&w, 2);
        attention_query(run, &a, seed);
        attention_call(run, &a);
        for (int s = 0; s < SOME; s++) {
            struct world alone = w;
            struct attention b = a;
            alone.sequences = 1;
            alone.lengths[0] = w.lengths[s];
            alone.table = w.table + s * w.table_stride;
            b.w = &alone;
            b.q_len[0] = a.q_len[s];
            attention_rows(&b);
            b.query = a.query + (size_t)a.start[s] * row_elements;
            attention_call(run, &b);
            if (memcmp(b.out, a.out + (size_t)a.start[s] * row_elements,
                       (size_t)b.q_len[0] * row_elements * 2))
                num_differ(run, "%s: sequence %d alone differs from the same in a batch",
                           unified ? "unified" : "decode", s);
        }
    }
}
