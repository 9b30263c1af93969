/* SPDX-License-Identifier: Apache-2.0 */
/*
** host_pool.c - see host_pool.h.
**
** One launch at a time. The launching thread publishes the grid under `lock`, wakes as many helpers
** as there are CTAs for, and takes part itself; each takes the next CTA by an atomic counter until
** none is left. The launch ends when every helper that was counted in has reported back, so that
** the grid may live on the caller's stack.
**
** Helpers block all signals but those that a fault in their own code raises: the process's handlers
** stay where they were.
*/
#include "host_pool.h"

#include "error.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Every fiber's stack is two mappings, of which a process may have 65530 by default. */
enum { MAX_STACKS = 16384 };

struct member {
    struct host_pool *pool;
    struct host_worker *worker;
    pthread_t thread;
    unsigned long seen; /* launches */
};

struct host_pool {
    pthread_mutex_t turn; /* held for a whole launch */
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t start, done;
    const struct host_grid *grid;
    unsigned long launches;
    unsigned wanted;  /* members below this number take part */
    unsigned running; /* helpers that have not reported back */
    int stop;
    kvk_status status;
    kvk_error error;
    atomic_uint next; /* CTA */
    unsigned nmembers,
        nthreads; /* members[0] is whoever launches; helpers 1..nthreads-1 are started */
    struct member members[];
};

static void keep_error(struct host_pool *pool, kvk_status status, const kvk_error *error)
{
    pthread_mutex_lock(&pool->lock);
    if (!pool->status) {
        pool->status = status;
        pool->error = *error;
    }
    pthread_mutex_unlock(&pool->lock);
}

/* Default rounding, all exceptions masked, subnormals kept: kernels must not depend on who launches
** them. */
static unsigned enter_float_control(void)
{
#if defined(__x86_64__)
    unsigned old = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(0x1f80);
    return old;
#else
    return 0;
#endif
}

static void leave_float_control(unsigned old)
{
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(old);
#else
    (void)old;
#endif
}

static void work(struct member *member, const struct host_grid *grid)
{
    struct host_pool *pool = member->pool;
    unsigned control = enter_float_control();
    kvk_error error;
    kvk_status status = host_worker_reserve(member->worker, grid, &error);
    for (;;) {
        unsigned cta = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (status || cta >= grid->ctas)
            break;
        status = host_worker_run(member->worker, grid, cta, &error);
    }
    if (status) {
        atomic_store_explicit(&pool->next, grid->ctas, memory_order_relaxed);
        keep_error(pool, status, &error);
    }
    leave_float_control(control);
}

static void *help(void *data)
{
    struct member *member = data;
    struct host_pool *pool = member->pool;
    unsigned index = (unsigned)(member - pool->members);
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (!pool->stop && (member->seen == pool->launches || index >= pool->wanted))
            pthread_cond_wait(&pool->start, &pool->lock);
        if (pool->stop)
            break;
        member->seen = pool->launches;
        const struct host_grid *grid = pool->grid;
        pthread_mutex_unlock(&pool->lock);
        work(member, grid);
        pthread_mutex_lock(&pool->lock);
        if (--pool->running == 0)
            pthread_cond_signal(&pool->done);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

kvk_status host_pool_open(struct host_pool **out, unsigned threads, kvk_error *err)
{
    struct host_pool *pool = calloc(1, sizeof *pool + threads * sizeof *pool->members);
    if (!pool)
        return ERR(err, KVK_E_MEMORY, "a pool of %u threads", threads);
    pthread_mutex_init(&pool->turn, NULL);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->start, NULL);
    pthread_cond_init(&pool->done, NULL);
    pool->nthreads = 1;
    for (unsigned i = 0; i < threads; i++) {
        pool->members[i].pool = pool;
        kvk_status status = host_worker_open(&pool->members[i].worker, err);
        if (status) {
            host_pool_close(pool);
            return status;
        }
        pool->nmembers++;
    }
    *out = pool;
    return KVK_OK;
}

void host_pool_close(struct host_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = 1;
    pthread_cond_broadcast(&pool->start);
    pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 1; i < pool->nthreads; i++)
        pthread_join(pool->members[i].thread, NULL);
    for (unsigned i = 0; i < pool->nmembers; i++)
        host_worker_close(pool->members[i].worker);
    pthread_mutex_destroy(&pool->turn);
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->start);
    pthread_cond_destroy(&pool->done);
    free(pool);
}

/* Starts helpers up to `wanted` members; fewer when the system refuses, which only costs speed. */
static void start_helpers(struct host_pool *pool, unsigned wanted)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t block, before;
    if (pool->nthreads >= wanted)
        return;
    sigfillset(&block);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        sigdelset(&block, own[i]);
    pthread_sigmask(SIG_BLOCK, &block, &before);
    while (pool->nthreads < wanted) {
        struct member *member = &pool->members[pool->nthreads];
        member->seen = pool->launches;
        if (pthread_create(&member->thread, NULL, help, member))
            break;
        pool->nthreads++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static unsigned members_for(const struct host_pool *pool, const struct host_grid *grid)
{
    unsigned n = pool->nmembers < grid->ctas ? pool->nmembers : grid->ctas;
    unsigned most = MAX_STACKS / (grid->threads ? grid->threads : 1);
    return n < most ? n : most;
}

kvk_status host_pool_run(struct host_pool *pool, const struct host_grid *grid, kvk_error *err)
{
    pthread_mutex_lock(&pool->turn);
    pthread_mutex_lock(&pool->lock);
    unsigned wanted = members_for(pool, grid);
    start_helpers(pool, wanted);
    if (wanted > pool->nthreads)
        wanted = pool->nthreads;
    pool->grid = grid;
    pool->status = KVK_OK;
    pool->wanted = wanted;
    pool->running = wanted - 1;
    pool->launches++;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    if (wanted > 1)
        pthread_cond_broadcast(&pool->start);
    pthread_mutex_unlock(&pool->lock);

    work(&pool->members[0], grid);

    pthread_mutex_lock(&pool->lock);
    while (pool->running)
        pthread_cond_wait(&pool->done, &pool->lock);
    kvk_status status = pool->status;
    if (status && err)
        *err = pool->error;
    pthread_mutex_unlock(&pool->lock);
    pthread_mutex_unlock(&pool->turn);
    return status;
}
