/* SPDX-License-Identifier: Apache-2.0 */
/*
** host_sched.c - see host_sched.h.
**
** Every thread of a CTA is a fiber; one of them runs. A warp keeps the others as masks of lanes:
** `ready` may run, `arrived` wait at the collective `op`, `at_barrier[i]` at a named barrier,
** `at_mbarrier` at an mbarrier; together with the running lane and those that returned they are all
** lanes, so that these masks are each thread's wait state.
**
** A lane that must wait switches straight to a ready lane of its own warp, else of the next warp
** that has one; there is no central loop. The last lane to arrive at a collective carries it out
** for all, marks the others ready and goes on. When nothing is ready, either all threads have
** returned or they wait for each other: control goes back to host_worker_run, which tells which. A
** fault (misuse of a collective) goes back the same way; abandoned fibers hold nothing.
*/
#include "host_sched.h"

#include "error.h"
#include "host_mma.h"
#include "host_switch.h"
#include "host_wait.h"

#include <string.h>

/* Stacks a multiple of the page size apart share cache sets; lanes start at different offsets to
** spread over them. */
enum { STACK_SPREAD = 128 };

static struct host_fiber *fiber_of(struct host_thread *t) { return (struct host_fiber *)t; }

static uint32_t lane_bit(const struct host_fiber *f) { return 1u << f->lane; }

/* ---- who runs next ---- */

static struct host_warp *next_warp(struct host_cta *cta, const struct host_warp *now)
{
    uint32_t start = (uint32_t)(now - cta->warps);
    for (uint32_t i = 1; i <= cta->nwarps; i++) {
        uint32_t at = start + i < cta->nwarps ? start + i : start + i - cta->nwarps;
        if (cta->warps[at].ready)
            return &cta->warps[at];
    }
    return NULL;
}

static struct host_context *next_context(struct host_fiber *f)
{
    struct host_warp *w = f->warp;
    if (!w->ready && !(w = next_warp(f->cta, w)))
        return &f->cta->origin;
    uint32_t lane = (uint32_t)__builtin_ctz(w->ready);
    w->ready &= w->ready - 1;
    return &w->fibers[lane].context;
}

static void wait_here(struct host_fiber *f) { host_context_switch(&f->context, next_context(f)); }

/* Ends the CTA: control never comes back to this fiber. */
static void fault(struct host_fiber *f, const char *what)
{
    f->cta->fault = what;
    f->cta->fault_tid = f->abi.tid;
    host_context_finish(&f->context, &f->cta->origin);
}

/* ---- warp collectives ---- */

static void shuffle_all(struct host_warp *w)
{
    for (uint32_t lane = 0; lane < HOST_WARP; lane++)
        w->result[lane] = w->value[w->source[lane] & (HOST_WARP - 1)];
    if (w->arrived == UINT32_MAX)
        return;
    for (uint32_t lane = 0; lane < HOST_WARP; lane++)
        if (!(w->arrived >> (w->source[lane] & (HOST_WARP - 1)) & 1))
            w->result[lane] = w->value[lane];
}

/* All lanes are there: does the work and lets them go. */
static void complete(struct host_fiber *f, struct host_warp *w)
{
    if (w->op == HOST_AT_SHUFFLE)
        shuffle_all(w);
    else if (w->op == HOST_AT_MMA) {
        if (w->arrived != UINT32_MAX)
            fault(f, "mma in a warp of which lanes have returned");
        f->cta->mma(w->a, w->b, w->c);
    }
    w->ready |= w->arrived;
    w->arrived = 0;
}

static void collective(struct host_fiber *f, enum host_at op)
{
    struct host_warp *w = f->warp;
    if (!w->arrived)
        w->op = op;
    else if (w->op != op)
        fault(f, "lanes of one warp are at different collectives");
    w->arrived |= lane_bit(f);
    if (w->arrived != w->alive) {
        wait_here(f);
    } else {
        complete(f, w);
        w->ready &= ~lane_bit(f);
    }
}

static void warp_sync(struct host_thread *t) { collective(fiber_of(t), HOST_AT_SYNC); }

/* A lane's result stays until the next collective of the warp completes, which takes this lane. */
static uint32_t shuffle_idx(struct host_thread *t, uint32_t value, uint32_t source)
{
    struct host_fiber *f = fiber_of(t);
    struct host_warp *w = f->warp;
    w->value[f->lane] = value;
    w->source[f->lane] = source < HOST_WARP ? source : f->lane;
    collective(f, HOST_AT_SHUFFLE);
    return w->result[f->lane];
}

static uint32_t shuffle_xor(struct host_thread *t, uint32_t value, uint32_t mask)
{
    return shuffle_idx(t, value, fiber_of(t)->lane ^ mask);
}

static void mma_16x8x16(struct host_thread *t, const float *a, const float *b, float *c)
{
    struct host_fiber *f = fiber_of(t);
    struct host_warp *w = f->warp;
    w->a[f->lane] = a;
    w->b[f->lane] = b;
    w->c[f->lane] = c;
    collective(f, HOST_AT_MMA);
}

/* ---- named barriers ---- */

static void release(struct host_cta *cta, uint32_t id)
{
    cta->barriers[id].arrived = 0;
    for (uint32_t i = 0; i < cta->nwarps; i++) {
        cta->warps[i].ready |= cta->warps[i].at_barrier[id];
        cta->warps[i].at_barrier[id] = 0;
    }
}

static int is_full(const struct host_cta *cta, const struct host_barrier *b)
{
    return b->arrived >= (b->count ? b->count : cta->alive);
}

/* Counts one arrival; 1 when it was the last. */
static int arrive(struct host_fiber *f, uint32_t id, uint32_t count)
{
    if (id >= HOST_BARRIERS)
        fault(f, "a barrier number is past 15");
    struct host_barrier *b = &f->cta->barriers[id];
    if (!b->arrived)
        b->count = count;
    else if (b->count != count)
        fault(f, "threads pass different counts to one barrier");
    b->arrived++;
    return is_full(f->cta, b);
}

static void barrier(struct host_thread *t, uint32_t id, uint32_t count)
{
    struct host_fiber *f = fiber_of(t);
    if (arrive(f, id, count)) {
        release(f->cta, id);
    } else {
        f->warp->at_barrier[id] |= lane_bit(f);
        wait_here(f);
    }
}

static void barrier_arrive(struct host_thread *t, uint32_t id, uint32_t count)
{
    struct host_fiber *f = fiber_of(t);
    if (arrive(f, id, count))
        release(f->cta, id);
}

/* ---- mbarriers: bits 0..30 arrivals still missing, 31 parity of the running phase, 32..62
** arrivals a phase ---- */

enum { MBARRIER_PARITY = 31, MBARRIER_COUNT = 32 };

static void mbarrier_init(struct host_thread *t, uint64_t *bar, uint32_t count)
{
    if (!count || count >> 31)
        fault(fiber_of(t), "the count of an mbarrier is 0 or too large");
    *bar = (uint64_t)count << MBARRIER_COUNT | count;
}

static uint32_t mbarrier_parity(const uint64_t *bar)
{
    return (uint32_t)(*bar >> MBARRIER_PARITY) & 1;
}

/* Lets those go that wait for the phase that has just completed. */
static void mbarrier_wake(struct host_cta *cta, const uint64_t *bar)
{
    for (uint32_t i = 0; i < cta->nwarps; i++) {
        struct host_warp *w = &cta->warps[i];
        for (uint32_t left = w->at_mbarrier; left; left &= left - 1) {
            uint32_t lane = (uint32_t)__builtin_ctz(left);
            if (w->fibers[lane].mbarrier == bar && w->fibers[lane].parity != mbarrier_parity(bar)) {
                w->at_mbarrier &= ~(1u << lane);
                w->ready |= 1u << lane;
            }
        }
    }
}

static void mbarrier_arrive(struct host_thread *t, uint64_t *bar)
{
    uint64_t count = *bar >> MBARRIER_COUNT, parity = mbarrier_parity(bar);
    uint64_t missing = *bar & ((1u << MBARRIER_PARITY) - 1);
    if (!count || !missing)
        fault(fiber_of(t), "an mbarrier is used before mbarrier_init");
    int last = --missing == 0;
    if (last) {
        missing = count;
        parity ^= 1;
    }
    *bar = count << MBARRIER_COUNT | parity << MBARRIER_PARITY | missing;
    if (last)
        mbarrier_wake(fiber_of(t)->cta, bar);
}

static void mbarrier_wait(struct host_thread *t, uint64_t *bar, uint32_t parity)
{
    struct host_fiber *f = fiber_of(t);
    if (mbarrier_parity(bar) != (parity & 1))
        return;
    f->mbarrier = bar;
    f->parity = parity & 1;
    f->warp->at_mbarrier |= lane_bit(f);
    wait_here(f);
}

static const struct host_calls calls = {
    .barrier = barrier,
    .barrier_arrive = barrier_arrive,
    .warp_sync = warp_sync,
    .shuffle_xor = shuffle_xor,
    .shuffle_idx = shuffle_idx,
    .mma_16x8x16 = mma_16x8x16,
    .mbarrier_init = mbarrier_init,
    .mbarrier_arrive = mbarrier_arrive,
    .mbarrier_wait = mbarrier_wait,
};

/* ---- a fiber's life ---- */

static void fiber_main(void *data)
{
    struct host_fiber *f = data;
    struct host_cta *cta = f->cta;
    struct host_warp *w = f->warp;
    host_context_entered(&cta->origin);
    cta->entry(&f->abi, cta->params);
    w->alive &= ~lane_bit(f);
    cta->alive--;
    if (w->arrived && w->arrived == w->alive)
        complete(f, w);
    for (uint32_t id = 0; id < HOST_BARRIERS && cta->alive; id++)
        if (cta->barriers[id].arrived && is_full(cta, &cta->barriers[id]))
            release(cta, id);
    host_context_finish(&f->context, next_context(f));
}

static void start_cta(struct host_worker *worker, const struct host_grid *grid, uint32_t index)
{
    struct host_cta *cta = &worker->cta;
    memset(cta, 0, sizeof *cta);
    cta->entry = grid->entry;
    cta->params = grid->params;
    cta->mma = worker->mma;
    cta->nthreads = cta->alive = grid->threads;
    cta->nwarps = (grid->threads + HOST_WARP - 1) / HOST_WARP;
    cta->warps = worker->warps;
    for (uint32_t i = 0; i < cta->nwarps; i++) {
        uint32_t lanes = grid->threads - i * HOST_WARP;
        struct host_warp *w = &worker->warps[i];
        memset(w, 0, sizeof *w);
        w->alive = w->ready = lanes < HOST_WARP ? (1u << lanes) - 1 : UINT32_MAX;
        w->fibers = worker->fibers + i * HOST_WARP;
    }
    for (uint32_t tid = 0; tid < grid->threads; tid++) {
        struct host_fiber *f = &worker->fibers[tid];
        char *stack = (char *)worker->stacks + tid * worker->stack_step + worker->page;
        f->abi = (struct host_thread){
            .tid = tid, .cta = index, .shared = worker->shared, .calls = &calls};
        f->cta = cta;
        f->warp = &worker->warps[tid / HOST_WARP];
        f->lane = tid % HOST_WARP;
        host_context_make(&f->context, stack, HOST_STACK_BYTES - STACK_SPREAD * (size_t)f->lane,
                          fiber_main, f);
    }
}

kvk_status host_worker_run(struct host_worker *worker, const struct host_grid *grid, uint32_t cta,
                           kvk_error *err)
{
    struct host_warp *first = worker->warps;
    if (grid->poison && worker->shared)
        memset(worker->shared, 0xFF, grid->shared_bytes);
    start_cta(worker, grid, cta);
    first->ready &= ~1u;
    host_context_switch(&worker->cta.origin, &worker->fibers[0].context);
    if (!worker->cta.alive && !worker->cta.fault)
        return KVK_OK;
    char text[400];
    host_wait_describe(&worker->cta, text, sizeof text);
    if (worker->cta.fault)
        return ERR(err, KVK_E_INTERNAL, "CTA %u thread %u: %s;%s", cta, worker->cta.fault_tid,
                   worker->cta.fault, text);
    return ERR(err, KVK_E_INTERNAL, "CTA %u: deadlock:%s", cta, text);
}
