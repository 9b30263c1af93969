/* SPDX-License-Identifier: Apache-2.0 */
/*
** check_attend.c - decode and unified against double-precision attention over the same bytes.
*/
#include "world.h"

static float *make_sinks(struct num_run *run, const struct num_model *m, uint64_t seed)
{
    struct num_random r = num_random(seed, 5);
    int heads = m->gqa * m->kv_heads;
    float *sinks = num_host(run, (size_t)heads * sizeof *sinks);

    for (int i = 0; i < heads; i++)
        sinks[i] = 2 * num_normal(&r);
    return sinks;
}

/*
** Variants: 0 one query token, one split; 1 three tokens (more than one sequence has), three
** splits, sinks, window, strided rows and pool; 2 one token, splits chosen, own scale, no LSE; 3
** (full) four tokens, seven splits, head-major.
*/
void check_decode(struct num_run *run, const struct num_case *c)
{
    static const struct {
        int lengths[5], sequences, q_len, splits, window;
        enum world_pool pool;
        int strided, sinks, no_lse;
        float scale;
        int64_t max_context;
    } variant[] = {
        {{45, 0, 1, 128, 17}, 5, 1, 1, 0, POOL_DENSE, 0, 0, 0, 0, 0},
        {{70, 2, 0, 33}, 4, 3, 3, 21, POOL_PADDED, 1, 1, 0, 0, 0},
        {{1, 203, 16}, 3, 1, 0, 0, POOL_DENSE, 0, 0, 1, 0.11f, 4096},
        {{130, 4, 257}, 3, 4, 7, 0, POOL_HEAD_MAJOR, 0, 1, 0, 0, 1000},
    };
    int v = c->variant;
    uint64_t seed = num_case_seed(run, c);
    struct world_options o = {.lengths = variant[v].lengths,
                              .sequences = variant[v].sequences,
                              .data_seed = seed,
                              .page_seed = seed + 1,
                              .pool = variant[v].pool,
                              .poison = 0xFF};
    struct world w;
    struct attention a = {.w = &w,
                          .splits = variant[v].splits,
                          .window = variant[v].window,
                          .strided = variant[v].strided,
                          .scale = variant[v].scale,
                          .no_lse = variant[v].no_lse,
                          .max_context = variant[v].max_context};

    world_make(run, &w, &c->model, &o);
    for (int s = 0; s < w.sequences; s++)
        a.q_len[s] = variant[v].q_len;
    attention_rows(&a);
    attention_query(run, &a, seed + 2);
    if (variant[v].sinks)
        a.sinks = make_sinks(run, &c->model, seed);
    attention_call(run, &a);
    attention_check(run, &a);
}

/* Other kernels than host's: pages come to shared memory in bulk. */
void check_decode_by_images(struct num_run *run, const struct num_case *c)
{
    num_gpus_only(run, "hosts and simulated GPUs have no bulk copies");
    check_decode(run, c);
}

/* So many sequences that a launch gives each two CTAs, which join theirs in the shared memory of a cluster: a CTA
** takes all KV heads of a sequence. Lengths of two steps and more. */
void check_decode_by_pairs(struct num_run *run, const struct num_case *c)
{
    struct kvk_device_info info = KVK_INIT(struct kvk_device_info);
    kvk_error err = {0};
    uint64_t seed = num_case_seed(run, c);
    struct num_random r = num_random(seed, 9);
    int lengths[NUM_MAX_SEQUENCES];
    struct world w;
    struct attention a = {.w = &w};
    int sequences;

    num_gpus_only(run, "hosts and simulated GPUs have no clusters");
    num_ok(run, kvk_device(run->ctx, &info, &err), &err, "kvk_device");
    sequences = info.multiprocessors * 2 / 5;
    if (sequences < 1 || sequences > NUM_MAX_SEQUENCES)
        num_fail(run, "no case for %d multiprocessors", info.multiprocessors);
    for (int s = 0; s < sequences; s++)
        lengths[s] = s % 11 == 3 ? s % 2 : 280 + num_below(&r, 300);
    world_make(run, &w, &c->model,
               &(struct world_options){.lengths = lengths,
                                       .sequences = sequences,
                                       .data_seed = seed,
                                       .page_seed = seed + 1,
                                       .poison = 0xFF});
    for (int s = 0; s < sequences; s++)
        a.q_len[s] = 1;
    attention_rows(&a);
    attention_query(run, &a, seed + 2);
    attention_call(run, &a);
    attention_check(run, &a);
}

/*
** Variants: 0 a fresh prefill, a continuation, a decode row, an empty sequence; 1 the same kinds
** with sinks, window, strides, spare rows and more query tokens than cached ones; 2 decode rows
** only, own scale, no LSE; 3 (full) longer.
*/
void check_unified(struct num_run *run, const struct num_case *c)
{
    static const struct {
        int lengths[6], q_len[6], sequences, window, spare;
        enum world_pool pool;
        int strided, sinks, no_lse;
        float scale;
    } variant[] = {
        {{19, 40, 33, 0, 1, 70}, {19, 7, 1, 0, 1, 1}, 6, 0, 0, POOL_DENSE, 0, 0, 0, 0},
        {{2, 37, 50, 5, 64}, {4, 5, 1, 0, 9}, 5, 20, 3, POOL_PADDED, 1, 1, 0, 0},
        {{1, 90, 0, 48, 16}, {1, 1, 1, 1, 1}, 5, 0, 1, POOL_DENSE, 0, 0, 1, 0.11f},
        {{130, 257, 100, 0}, {130, 33, 17, 0}, 4, 0, 0, POOL_HEAD_MAJOR, 0, 1, 0, 0},
    };
    int v = c->variant;
    uint64_t seed = num_case_seed(run, c);
    struct world_options o = {.lengths = variant[v].lengths,
                              .sequences = variant[v].sequences,
                              .data_seed = seed,
                              .page_seed = seed + 1,
                              .pool = variant[v].pool,
                              .poison = 0xFF};
    struct world w;
    struct attention a = {.w = &w,
                          .unified = 1,
                          .window = variant[v].window,
                          .spare_rows = variant[v].spare,
                          .strided = variant[v].strided,
                          .scale = variant[v].scale,
                          .no_lse = variant[v].no_lse};

    world_make(run, &w, &c->model, &o);
    for (int s = 0; s < w.sequences; s++)
        a.q_len[s] = variant[v].q_len[s];
    attention_rows(&a);
    attention_query(run, &a, seed + 2);
    if (variant[v].sinks)
        a.sinks = make_sinks(run, &c->model, seed);
    attention_call(run, &a);
    attention_check(run, &a);
}
