/* SPDX-License-Identifier: Apache-2.0 */
/*
** prop_values.c - properties of values and addresses at their extremes.
*/
#include "world.h"

#include <math.h>
#include <string.h>

static const int lengths[] = {44, 61};
enum { SEQUENCES = 2 };

static void make(struct num_run *run, struct world *w, const struct num_case *c)
{
    uint64_t seed = num_case_seed(run, c);
    struct world_options o = {.lengths = lengths,
                              .sequences = SEQUENCES,
                              .data_seed = seed,
                              .page_seed = seed,
                              .poison = 0xFF};

    world_make(run, w, &c->model, &o);
}

static struct attention attention_of(const struct world *w, int unified)
{
    struct attention a = {.w = w, .unified = unified, .splits = 1};

    for (int s = 0; s < w->sequences; s++)
        a.q_len[s] = unified ? 5 + 4 * s : 2;
    attention_rows(&a);
    return a;
}

/* Every byte of the second sequence's slots 0xFF: NaN fields, NaN keys. The first sequence must
** not change a bit. */
void prop_bad_sequence(struct num_run *run, const struct num_case *c)
{
    size_t row_bytes = (size_t)(c->model.kv_heads * c->model.gqa * c->model.dv) * 2;
    struct world good, bad;

    make(run, &good, c);
    make(run, &bad, c);
    memset(bad.pool.data, 0xFF, bad.pool_bytes);
    bad.sequences = 1;
    world_store(&bad);
    bad.sequences = SEQUENCES;
    for (int unified = 0; unified < 2; unified++) {
        struct attention a = attention_of(&good, unified), b;
        attention_query(run, &a, 5);
        b = a;
        b.w = &bad;
        attention_call(run, &a);
        attention_call(run, &b);
        if (memcmp(a.out, b.out, (size_t)a.start[1] * row_bytes))
            num_differ(run, "%s: NaN in another sequence changes a result",
                       unified ? "unified" : "decode");
    }
}

/* A query of NaN: its rows may be anything, all others keep their bits. */
void prop_bad_query(struct num_run *run, const struct num_case *c)
{
    size_t heads = (size_t)(c->model.kv_heads * c->model.gqa), row = heads * (size_t)c->model.d;
    struct world w;

    make(run, &w, c);
    for (int unified = 0; unified < 2; unified++) {
        struct attention a = attention_of(&w, unified), b;
        size_t head = heads * (size_t)c->model.dv, rows = (size_t)a.start[SEQUENCES];
        attention_query(run, &a, 5);
        b = a;
        b.query = num_host(run, rows * row * 2);
        memcpy(b.query, a.query, rows * row * 2);
        for (size_t i = 0; i < row; i++) /* the first query token */
            b.query[i] = 0x7FFF;
        attention_call(run, &a);
        attention_call(run, &b);
        if (memcmp(a.out + head, b.out + head, (rows - 1) * head * 2))
            num_differ(run, "%s: a NaN query changes another row", unified ? "unified" : "decode");
    }
}

/*
** Equal keys and a query a thousand times their negative: every score is near -1e4, whole tiles lie
** outside the window, and the output is still the mean of the visible values. A maximum that starts
** at zero would give NaN or zeros.
*/
void prop_far_below_zero(struct num_run *run, const struct num_case *c)
{
    enum { WINDOW = 20 };
    size_t d = (size_t)c->model.d, key_row = (size_t)c->model.kv_heads * d;
    int gqa = c->model.gqa;
    struct world w;

    make(run, &w, c);
    for (int s = 0; s < SEQUENCES; s++)
        for (int t = 1; t < w.lengths[s]; t++)
            memcpy(w.key + (size_t)(w.first_row[s] + t) * key_row,
                   w.key + (size_t)w.first_row[s] * key_row, key_row * 2);
    world_store(&w);
    for (int unified = 0; unified < 2; unified++) {
        struct attention a = attention_of(&w, unified);
        attention_query(run, &a, 5);
        for (int s = 0; s < SEQUENCES; s++)
            for (int r = a.start[s]; r < a.start[s + 1]; r++)
                for (int h = 0; h < w.m.kv_heads * gqa; h++)
                    for (size_t i = 0; i < d; i++)
                        a.query[((size_t)r * (size_t)(w.m.kv_heads * gqa) + (size_t)h) * d + i] =
                            num_bits(w.m.dtype,
                                     -1000 * num_value(w.m.dtype,
                                                       w.key[(size_t)w.first_row[s] * key_row +
                                                             (size_t)(h / gqa) * d + i]));
        a.window = WINDOW;
        a.extreme = 1;
        attention_call(run, &a);
        attention_check(run, &a);
    }
}

/* Rows of tokens from `first` to before `end`, times a power of two. */
static void scale_tokens(struct world *w, int first, int end, int key_power, int value_power)
{
    size_t key = (size_t)(w->m.kv_heads * w->m.d), value = (size_t)(w->m.kv_heads * w->m.dv);

    for (int s = 0; s < w->sequences; s++)
        for (int t = first; t < end && t < w->lengths[s]; t++) {
            uint16_t *k = w->key + (size_t)(w->first_row[s] + t) * key;
            uint16_t *v = w->value + (size_t)(w->first_row[s] + t) * value;
            for (size_t i = 0; i < key; i++)
                k[i] = num_bits(w->m.dtype, ldexpf(num_value(w->m.dtype, k[i]), key_power));
            for (size_t i = 0; i < value; i++)
                v[i] = num_bits(w->m.dtype, ldexpf(num_value(w->m.dtype, v[i]), value_power));
        }
}

/*
** Scales of later tokens are far above those before, or below, or both in turn: kernels that keep
** operands near a reference must move it, in the middle of a warp's range, and must not take what
** is small for nothing.
*/
void prop_growing_scales(struct num_run *run, const struct num_case *c)
{
    static const int many[] = {1500, 70};
    uint64_t seed = num_case_seed(run, c);
    struct world_options o = {.lengths = many,
                              .sequences = SEQUENCES,
                              .data_seed = seed,
                              .page_seed = seed,
                              .poison = 0xFF};
    struct world w;

    world_make(run, &w, &c->model, &o);
    scale_tokens(&w, 0, 600, -9, -9);
    scale_tokens(&w, 20, 25, -4, -4);
    scale_tokens(&w, 900, 1100, -40, 5);
    scale_tokens(&w, 1200, 1500, 1, -40);
    world_store(&w);
    struct attention a = attention_of(&w, 0);
    attention_query(run, &a, 5);
    a.extreme = 1;
    attention_call(run, &a);
    attention_check(run, &a);
}

/*
** Values of +-65504, all alike: with a scale in fp16 some decode to 65536, and so is their mean.
** One split is written by decode itself, three by the reduction.
*/
void prop_largest_values(struct num_run *run, const struct num_case *c)
{
    size_t dv = (size_t)c->model.dv, heads = (size_t)(c->model.kv_heads * c->model.gqa);
    struct world w;

    make(run, &w, c);
    for (size_t i = 0; i < (size_t)(w.first_row[SEQUENCES] * c->model.kv_heads) * dv; i++)
        w.value[i] = num_bits(w.m.dtype, i % 2 ? 65504 : -65504);
    world_store(&w);
    for (int way = 0; way < 3; way++) {
        struct attention a = attention_of(&w, way == 2);
        a.splits = way == 2 ? 0 : 1 + 2 * way;
        attention_query(run, &a, 5);
        attention_call(run, &a);
        for (size_t i = 0; i < (size_t)a.start[SEQUENCES] * heads * dv; i++)
            if (fabsf(num_value(w.m.dtype, a.out[i])) != 65504)
                num_differ(run, "way %d: out[%zu] is %g", way, i,
                           (double)num_value(w.m.dtype, a.out[i]));
        attention_check(run, &a);
    }
}

/* Three pages 2.5 GiB apart: the same bits as in a dense pool. */
void prop_far_pages(struct num_run *run, const struct num_case *c)
{
    static const int few[] = {29, 11};
    const int64_t far = 5LL << 29;
    struct world_options o = {
        .lengths = few, .sequences = 2, .data_seed = 3, .page_seed = 3, .poison = 0};
    struct world w;

    world_make(run, &w, &c->model, &o);
    size_t bytes = (size_t)(w.pool.pages - 1) * (size_t)far + (size_t)w.pool.page_stride;
    uint8_t *memory = num_device_untouched(run, bytes);
    for (int64_t p = 0; p < w.pool.pages; p++)
        num_place_page(run, memory, bytes,
                       &(struct page_at){w.pool.data + p * w.pool.page_stride, (size_t)(p * far),
                                         (size_t)w.pool.page_stride});
    struct kvk_pool pool = {.data = memory, .pages = w.pool.pages, .page_stride = far};
    if (w.f.layout == REF_AOS) {
        pool.position_stride = w.pool.position_stride;
        pool.head_stride = w.pool.head_stride;
    }
    for (int unified = 0; unified < 2; unified++) {
        struct attention a = attention_of(&w, unified), b;
        attention_query(run, &a, 5);
        b = a;
        b.pool = &pool;
        attention_call(run, &a);
        attention_call(run, &b);
        size_t row_bytes = (size_t)(w.m.kv_heads * w.m.gqa * w.m.dv) * 2;
        if (memcmp(a.out, b.out, (size_t)a.start[SEQUENCES] * row_bytes))
            num_differ(run, "%s: pages far apart give other results",
                       unified ? "unified" : "decode");
    }
    store_far(run, &w, pool, memory);
}
