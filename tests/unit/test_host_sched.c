/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_host_sched.c - fibers, warp collectives, barriers and the pool of the host target, with C functions as kernels.
*/
#include "../../runtime/host_mma.h"
#include "../../runtime/host_pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static kvk_status run_on(host_entry *entry, void *params, uint32_t ctas, uint32_t threads,
                         size_t shared, unsigned pool_size, kvk_error *err)
{
    struct host_pool *pool;
    assert_int_equal(host_pool_open(&pool, pool_size, err), KVK_OK);
    struct host_grid grid = {.entry = entry,
                             .params = params,
                             .ctas = ctas,
                             .threads = threads,
                             .shared_bytes = shared,
                             .shared_at_end = 1,
                             .poison = 1};
    kvk_status status = host_pool_run(pool, &grid, err);
    host_pool_close(pool);
    return status;
}

static void run(host_entry *entry, void *params, uint32_t ctas, uint32_t threads, size_t shared)
{
    kvk_error err = {0};
    if (run_on(entry, params, ctas, threads, shared, 3, &err))
        fail_msg("%s", err.text);
}

static uint32_t hash(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

/* ---- barriers ---- */

struct sum_params {
    uint32_t threads, *out;
};

static void sum_kernel(struct host_thread *t, const void *params)
{
    const struct sum_params *p = params;
    uint32_t *shared = t->shared;
    shared[t->tid] = hash(t->cta * 1024 + t->tid);
    for (uint32_t step = 1; step < p->threads; step *= 2) {
        t->calls->barrier(t, 0, 0);
        uint32_t mine = shared[t->tid],
                 other = t->tid + step < p->threads ? shared[t->tid + step] : 0;
        t->calls->barrier(t, 1, p->threads);
        shared[t->tid] = mine + other;
    }
    if (!t->tid)
        p->out[t->cta] = shared[0];
}

static void barriers_order_shared_memory(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 31, 32, 33, 64, 100, 128, 256, 1024};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        uint32_t out[40] = {0};
        struct sum_params p = {sizes[s], out};
        run(sum_kernel, &p, 40, sizes[s], sizes[s] * 4);
        for (uint32_t cta = 0; cta < 40; cta++) {
            uint32_t want = 0;
            for (uint32_t i = 0; i < sizes[s]; i++)
                want += hash(cta * 1024 + i);
            assert_int_equal(out[cta], want);
        }
    }
}

static void count_kernel(struct host_thread *t, const void *params)
{
    uint8_t *seen = *(uint8_t *const *)params;
    t->calls->barrier(t, 0, 0);
    if (!t->tid)
        seen[t->cta]++;
}

static void every_cta_runs_once(void **state)
{
    (void)state;
    uint32_t ctas = 20000;
    uint8_t *seen = calloc(ctas, 1);
    run(count_kernel, &seen, ctas, 32, 0);
    for (uint32_t i = 0; i < ctas; i++)
        assert_int_equal(seen[i], 1);
    free(seen);
}

/* ---- warp collectives ---- */

struct flag {
    int bad;
};

/* Warps take different paths: warp w does w+1 rounds, odd ones with sync in between, even ones without. */
static void divergent_kernel(struct host_thread *t, const void *params)
{
    struct flag *flag = (struct flag *)(uintptr_t)params;
    uint32_t lane = t->tid % 32, warp = t->tid / 32;
    for (uint32_t round = 0; round <= warp; round++)
        for (uint32_t mask = 0; mask < 32; mask++) {
            uint32_t value = hash(t->tid * 64 + mask + round);
            uint32_t got = t->calls->shuffle_xor(t, value, mask);
            if (got != hash((warp * 32 + (lane ^ mask)) * 64 + mask + round))
                flag->bad = 1;
            if (warp & 1)
                t->calls->warp_sync(t);
            uint32_t source = hash(lane + mask) % 32;
            if (t->calls->shuffle_idx(t, value, source) !=
                hash((warp * 32 + source) * 64 + mask + round))
                flag->bad = 2;
        }
    t->calls->barrier(t, 0, 0);
}

static void shuffles_work_for_all_masks_in_divergent_warps(void **state)
{
    (void)state;
    struct flag flag = {0};
    run(divergent_kernel, &flag, 3, 1024, 0);
    assert_int_equal(flag.bad, 0);
}

/* Lanes 20.. return early; the others go on without them. */
static void leaving_kernel(struct host_thread *t, const void *params)
{
    struct flag *flag = (struct flag *)(uintptr_t)params;
    uint32_t lane = t->tid % 32;
    if (lane >= 20)
        return;
    uint32_t want = (lane ^ 16) < 20 ? lane ^ 16 : lane;
    for (int i = 0; i < 5; i++)
        if (t->calls->shuffle_xor(t, lane, 16) != want)
            flag->bad = 1;
    t->calls->barrier(t, 0, 0);
}

static void lanes_that_returned_are_left_out(void **state)
{
    (void)state;
    struct flag flag = {0};
    run(leaving_kernel, &flag, 2, 96, 0);
    assert_int_equal(flag.bad, 0);
}

/* ---- warp specialisation ---- */

enum { ROUNDS = 50 };

struct handover {
    uint32_t sum[32];
};

/* Warp 0 fills two buffers in turn, warp 1 empties them; barriers 1, 2: full, 3, 4: empty. The last warp stays out. */
static void named_kernel(struct host_thread *t, const void *params)
{
    struct handover *out = (struct handover *)(uintptr_t)params;
    uint32_t *buffer = t->shared, lane = t->tid % 32, warp = t->tid / 32;
    if (warp == 0)
        for (uint32_t i = 0; i < ROUNDS; i++) {
            if (i >= 2)
                t->calls->barrier(t, 3 + i % 2, 64);
            buffer[i % 2 * 32 + lane] = i * 100 + lane;
            t->calls->barrier_arrive(t, 1 + i % 2, 64);
        }
    if (warp == 1)
        for (uint32_t i = 0; i < ROUNDS; i++) {
            t->calls->barrier(t, 1 + i % 2, 64);
            out->sum[lane] += buffer[i % 2 * 32 + (lane ^ 1)];
            if (i + 2 < ROUNDS)
                t->calls->barrier_arrive(t, 3 + i % 2, 64);
        }
}

/* The same with mbarriers: [0..1] full, [2..3] empty. */
static void mbarrier_kernel(struct host_thread *t, const void *params)
{
    struct handover *out = (struct handover *)(uintptr_t)params;
    uint64_t *bars = t->shared;
    uint32_t *buffer = (uint32_t *)(bars + 4), lane = t->tid % 32, warp = t->tid / 32;
    if (!t->tid)
        for (int i = 0; i < 4; i++)
            t->calls->mbarrier_init(t, bars + i, 32);
    t->calls->barrier(t, 0, 0);
    for (uint32_t i = 0; i < ROUNDS && warp < 2; i++) {
        uint64_t *full = bars + i % 2, *empty = bars + 2 + i % 2;
        if (warp == 0) {
            if (i >= 2)
                t->calls->mbarrier_wait(t, empty, (i / 2 - 1) & 1);
            buffer[i % 2 * 32 + lane] = i * 100 + lane;
            t->calls->mbarrier_arrive(t, full);
        } else {
            t->calls->mbarrier_wait(t, full, i / 2 & 1);
            out->sum[lane] += buffer[i % 2 * 32 + (lane ^ 1)];
            t->calls->mbarrier_arrive(t, empty);
        }
    }
}

static void check_handover(host_entry *kernel)
{
    struct handover out = {{0}};
    run(kernel, &out, 1, 96, 4 * 8 + 64 * 4);
    for (uint32_t lane = 0; lane < 32; lane++)
        assert_int_equal(out.sum[lane], ROUNDS * (ROUNDS - 1) / 2 * 100 + ROUNDS * (lane ^ 1));
}

static void producer_and_consumer_warps_over_named_barriers(void **state)
{
    (void)state;
    check_handover(named_kernel);
}

static void producer_and_consumer_warps_over_mbarriers(void **state)
{
    (void)state;
    check_handover(mbarrier_kernel);
}

/* ---- what cannot go on is reported ---- */

static void crossed_kernel(struct host_thread *t, const void *params)
{
    (void)params;
    if (t->tid / 32 == 1)
        t->calls->barrier(t, 2, 64);
    else if (t->tid == 3)
        t->calls->barrier(t, 5, 0);
    else
        t->calls->shuffle_xor(t, 1, 1);
}

static void mixed_kernel(struct host_thread *t, const void *params)
{
    (void)params;
    if (t->tid & 1)
        t->calls->warp_sync(t);
    else
        t->calls->shuffle_xor(t, 1, 1);
}

static void never_kernel(struct host_thread *t, const void *params)
{
    (void)params;
    uint64_t *bar = t->shared;
    if (!t->tid)
        t->calls->mbarrier_init(t, bar, 65);
    t->calls->barrier(t, 0, 0);
    t->calls->mbarrier_arrive(t, bar);
    t->calls->mbarrier_wait(t, bar, 0);
}

static void counts_kernel(struct host_thread *t, const void *params)
{
    (void)params;
    t->calls->barrier(t, 0, t->tid / 32 ? 64 : 32 * 3);
}

static void number_kernel(struct host_thread *t, const void *params)
{
    (void)params;
    t->calls->barrier(t, 16, 0);
}

static void blank_kernel(struct host_thread *t, const void *params)
{
    (void)params;
    uint64_t *bar = t->shared;
    *bar = 0;
    t->calls->mbarrier_arrive(t, bar);
}

static void short_mma_kernel(struct host_thread *t, const void *params)
{
    (void)params;
    float a[8] = {0}, b[4] = {0}, c[4] = {0};
    if (t->tid != 7)
        t->calls->mma_16x8x16(t, a, b, c);
}

static void expect_fault(host_entry *kernel, const char *part1, const char *part2)
{
    kvk_error err = {0};
    assert_int_equal(run_on(kernel, NULL, 9, 64, 64, 2, &err), KVK_E_INTERNAL);
    if (!strstr(err.text, part1) || !strstr(err.text, part2))
        fail_msg("%s", err.text);
}

static void deadlocks_and_misuse_are_reported(void **state)
{
    (void)state;
    expect_fault(crossed_kernel,
                 "deadlock: warp 0: 31 at shuffle, 1 at barrier 5 (1 of all there), 32 alive;",
                 "warp 1: 32 at barrier 2 (32 of 64 there), 32 alive;");
    expect_fault(mixed_kernel, "lanes of one warp are at different collectives", "thread ");
    expect_fault(never_kernel, "deadlock", "32 at mbarrier");
    expect_fault(counts_kernel, "different counts", "barrier 0 (32 of 96 there)");
    expect_fault(number_kernel, "past 15", "CTA ");
    expect_fault(blank_kernel, "before mbarrier_init", "CTA ");
    expect_fault(short_mma_kernel, "mma in a warp of which lanes have returned", "CTA ");
}

static void a_pool_works_after_a_fault(void **state)
{
    (void)state;
    kvk_error err = {0};
    struct host_pool *pool;
    assert_int_equal(host_pool_open(&pool, 2, &err), KVK_OK);
    uint8_t seen[100] = {0}, *params = seen;
    for (int i = 0; i < 20; i++) {
        struct host_grid bad = {.entry = crossed_kernel, .ctas = 5, .threads = 64};
        assert_int_equal(host_pool_run(pool, &bad, &err), KVK_E_INTERNAL);
        struct host_grid good = {.entry = count_kernel,
                                 .params = &params,
                                 .ctas = 100,
                                 .threads = 96,
                                 .shared_bytes = 1000};
        assert_int_equal(host_pool_run(pool, &good, &err), KVK_OK);
    }
    for (int i = 0; i < 100; i++)
        assert_int_equal(seen[i], 20);
    struct host_grid wide = {.entry = count_kernel, .params = &params, .ctas = 1, .threads = 1025};
    assert_int_equal(host_pool_run(pool, &wide, &err), KVK_E_SHAPE);
    host_pool_close(pool);
}

/* ---- matrix product ---- */

struct product {
    float a[16][16], b[16][8], c[16][8];
};

static void mma_kernel(struct host_thread *t, const void *params)
{
    struct product *p = (struct product *)(uintptr_t)params + t->tid / 32;
    uint32_t g = t->tid % 32 / 4, q = t->tid % 4 * 2;
    float a[8], b[4], c[4];
    for (uint32_t i = 0; i < 8; i++)
        a[i] = p->a[g + i / 2 % 2 * 8][q + i % 2 + i / 4 * 8];
    for (uint32_t i = 0; i < 4; i++)
        b[i] = p->b[q + i % 2 + i / 2 * 8][g];
    for (uint32_t i = 0; i < 4; i++)
        c[i] = p->c[g + i / 2 * 8][q + i % 2];
    t->calls->mma_16x8x16(t, a, b, c);
    for (uint32_t i = 0; i < 4; i++)
        p->c[g + i / 2 * 8][q + i % 2] = c[i];
}

static void mma_equals_three_loops(void **state)
{
    (void)state;
    static struct product p[4], want[4];
    for (uint32_t i = 0; i < sizeof p / 4; i++)
        ((float *)p)[i] = (float)(int)(hash(i) % 33) - 16; /* exact in any order */
    memcpy(want, p, sizeof p);
    for (int w = 0; w < 4; w++)
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 8; j++)
                for (int k = 0; k < 16; k++)
                    want[w].c[i][j] += want[w].a[i][k] * want[w].b[k][j];
    run(mma_kernel, p, 1, 128, 0);
    assert_memory_equal(p, want, sizeof p);
}

static void both_mma_variants_agree(void **state)
{
    (void)state;
    float a[32][8], b[32][4], c[2][32][4];
    const float *pa[32], *pb[32];
    float *pc[2][32];
    for (int lane = 0; lane < 32; lane++) {
        for (int i = 0; i < 8; i++)
            a[lane][i] = (float)(int)(hash((uint32_t)(lane * 8 + i)) % 200) - 100;
        for (int i = 0; i < 4; i++) {
            b[lane][i] = (float)(int)(hash((uint32_t)(lane * 4 + i) + 1000) % 200) - 100;
            c[0][lane][i] = c[1][lane][i] = (float)(lane - i);
        }
        pa[lane] = a[lane], pb[lane] = b[lane];
        pc[0][lane] = c[0][lane], pc[1][lane] = c[1][lane];
    }
    host_mma_plain()(pa, pb, pc[0]);
    host_mma_best()(pa, pb, pc[1]);
    assert_memory_equal(c[0], c[1], sizeof c[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(barriers_order_shared_memory),
        cmocka_unit_test(every_cta_runs_once),
        cmocka_unit_test(shuffles_work_for_all_masks_in_divergent_warps),
        cmocka_unit_test(lanes_that_returned_are_left_out),
        cmocka_unit_test(producer_and_consumer_warps_over_named_barriers),
        cmocka_unit_test(producer_and_consumer_warps_over_mbarriers),
        cmocka_unit_test(deadlocks_and_misuse_are_reported),
        cmocka_unit_test(a_pool_works_after_a_fault),
        cmocka_unit_test(mma_equals_three_loops),
        cmocka_unit_test(both_mma_variants_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
