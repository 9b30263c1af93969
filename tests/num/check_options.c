/* SPDX-License-Identifier: Apache-2.0 */
/*
** check_options.c - full attention, soft cap, ALiBi, 64-bit tables, every number of query tokens and
** fixed splits, against the oracle and against each other.
*/
#include "world.h"

#include <math.h>
#include <string.h>

static int query_heads(const struct num_model *m) { return m->gqa * m->kv_heads; }

/* Slopes as models have them, and one that favours far keys. */
static float *make_slopes(struct num_run *run, const struct num_model *m)
{
    int heads = query_heads(m);
    float *slopes = num_host(run, (size_t)heads * sizeof *slopes);

    for (int h = 0; h < heads; h++)
        slopes[h] = exp2f(-8.0f * (float)(h + 1) / (float)heads);
    slopes[heads - 1] = -0.01f;
    return slopes;
}

static float *make_sinks(struct num_run *run, const struct num_model *m)
{
    float *sinks = num_host(run, (size_t)query_heads(m) * sizeof *sinks);

    for (int h = 0; h < query_heads(m); h++)
        sinks[h] = 0.25f * (float)(h % 9 - 4);
    return sinks;
}

/*
** Variant: 2 * row of the table, + 1 for unified. The model's options say what the kernels have; the
** call then uses it. Scores are large enough for the cap to bend them.
*/
void check_options(struct num_run *run, const struct num_case *c)
{
    static const struct {
        int full, window, sinks, table_64, strided, splits;
    } call[] = {
        {0, 0, 0, 0, 0, 1},
        {1, 0, 0, 1, 0, 3},
        {1, 19, 1, 1, 1, 2},
        {0, 23, 1, 0, 1, 4},
    };
    static const int lengths[] = {70, 3, 0, 41, 128}, chunk[] = {21, 5, 1, 1, 9};
    int v = c->variant / 2, unified = c->variant % 2;
    uint64_t seed = num_case_seed(run, c);
    struct world_options o = {.lengths = lengths,
                              .sequences = 5,
                              .data_seed = seed,
                              .page_seed = seed + 1,
                              .pool = call[v].strided ? POOL_PADDED : POOL_DENSE,
                              .poison = 0xFF};
    struct world w;
    struct attention a = {.w = &w,
                          .unified = unified,
                          .full = call[v].full,
                          .window = call[v].window,
                          .table_64 = call[v].table_64,
                          .strided = call[v].strided,
                          .splits = unified ? 0 : call[v].splits,
                          .scale = c->model.options & KVK_SOFT_CAP ? 0.3f : 0};

    world_make(run, &w, &c->model, &o);
    for (int s = 0; s < w.sequences; s++)
        a.q_len[s] = unified ? chunk[s] : 4;
    attention_rows(&a);
    attention_query(run, &a, seed + 2);
    a.sinks = call[v].sinks ? make_sinks(run, &c->model) : NULL;
    a.soft_cap = c->model.options & KVK_SOFT_CAP ? 1.75f : 0;
    a.alibi = c->model.options & KVK_ALIBI ? make_slopes(run, &c->model) : NULL;
    attention_call(run, &a);
    attention_check(run, &a);
}

/* 1 to 16 query tokens a sequence; sequences shorter than that have rows before their first token. */
void check_query_tokens(struct num_run *run, const struct num_case *c)
{
    uint64_t seed = num_case_seed(run, c);

    for (int q = 1; q <= 16; q++) {
        int lengths[] = {20, q - 1, 0, 1, 45 + q};
        struct world_options o = {.lengths = lengths,
                                  .sequences = 5,
                                  .data_seed = seed + (uint64_t)q,
                                  .page_seed = seed + 1,
                                  .poison = 0xFF};
        struct world w;
        struct attention a = {
            .w = &w, .splits = 1 + q % 3, .window = q % 4 == 3 ? 7 : 0, .full = q % 5 == 4};

        world_make(run, &w, &c->model, &o);
        for (int s = 0; s < w.sequences; s++)
            a.q_len[s] = q;
        attention_rows(&a);
        attention_query(run, &a, seed + 2);
        attention_call(run, &a);
        attention_check(run, &a);
    }
}

/* One unified call of chunks of all lengths that are promised, fresh and continued in turn. */
void check_query_lengths(struct num_run *run, const struct num_case *c)
{
    static const int chunk[] = {1, 2, 3, 4, 5, 8, 16, 17, 127, 128, 129, 1000};
    enum { CHUNKS = sizeof chunk / sizeof *chunk };
    uint64_t seed = num_case_seed(run, c);
    struct num_model m = c->model;
    int lengths[CHUNKS];
    struct world w;
    struct attention a = {.w = &w, .unified = 1};

    m.kv_heads = 1;
    for (int i = 0; i < CHUNKS; i++) {
        a.q_len[i] = chunk[i];
        lengths[i] = chunk[i] + (i % 2 ? 7 * i : 0);
    }
    struct world_options o = {.lengths = lengths,
                              .sequences = CHUNKS,
                              .data_seed = seed,
                              .page_seed = seed + 1,
                              .poison = 0xFF};
    world_make(run, &w, &m, &o);
    attention_rows(&a);
    attention_query(run, &a, seed + 2);
    attention_call(run, &a);
    attention_check(run, &a);
}

/* Sequence s of w alone, with another bound on the context. */
static void alone_equals(struct num_run *run, const struct attention *batch, int s,
                         int64_t max_context)
{
    const struct world *w = batch->w;
    struct world alone = *w;
    struct attention b = *batch;
    size_t heads = (size_t)query_heads(&w->m), first = (size_t)batch->start[s];
    size_t rows = (size_t)batch->q_len[s] * heads;

    alone.sequences = 1;
    alone.lengths[0] = w->lengths[s];
    alone.table = w->table + s * w->table_stride;
    b.w = &alone;
    b.q_len[0] = batch->q_len[s];
    b.max_context = max_context;
    attention_rows(&b);
    b.query = batch->query + first * heads * (size_t)w->m.d;
    attention_call(run, &b);
    if (memcmp(b.out, batch->out + first * heads * (size_t)w->m.dv, rows * (size_t)w->m.dv * 2))
        num_differ(run, "out: sequence %d of %d tokens, bound %lld, differs from that in a batch",
                   s, alone.lengths[0], (long long)max_context);
    if (memcmp(b.lse, batch->lse + first * heads, rows * sizeof *b.lse))
        num_differ(run, "lse: sequence %d of %d tokens, bound %lld, differs from that in a batch",
                   s, alone.lengths[0], (long long)max_context);
}

/* The bits of a row are those of its sequence alone, whatever the others are and the bound says. */
void prop_batch_invariant(struct num_run *run, const struct num_case *c)
{
    static const int lengths[] = {2300, 700, 2048, 4200};
    uint64_t seed = num_case_seed(run, c);
    struct attention batch[2];
    struct world w[2];
    size_t row = (size_t)(query_heads(&c->model) * c->model.dv);
    struct world_options o = {.lengths = lengths,
                              .sequences = 4,
                              .data_seed = seed,
                              .page_seed = seed + 1,
                              .poison = 0xFF};

    world_make(run, &w[1], &c->model, &o);
    w[0] = w[1];
    w[0].lengths[1] = 5;
    w[0].lengths[2] = 0;
    for (int i = 0; i < 2; i++) {
        batch[i] = (struct attention){.w = &w[i], .batch_invariant = 1};
        for (int s = 0; s < 4; s++)
            batch[i].q_len[s] = 2;
        attention_rows(&batch[i]);
        attention_query(run, &batch[i], seed + 2);
        batch[i].sinks = make_sinks(run, &c->model);
        attention_call(run, &batch[i]);
    }
    attention_check(run, &batch[0]);
    for (int s = 0; s < 4; s++) {
        alone_equals(run, &batch[1], s, lengths[s]);
        alone_equals(run, &batch[1], s, 100000);
    }
    if (memcmp(batch[0].out, batch[1].out, 2 * row * 2)) /* the same first sequence */
        num_differ(run, "sequence 0 differs beside neighbours of other lengths");
}
