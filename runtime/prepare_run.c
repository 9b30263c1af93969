/* SPDX-License-Identifier: Apache-2.0 */
/*
** prepare_run.c - the kernels of one prepare: claimed, built, waited for.
**
** A prepare claims, under the context's mutex, every kernel that nobody has or makes; builds its
** claims without the mutex (from packs and cache one after the other, compiles side by side);
** publishes them; and only then waits for kernels that other threads claimed. Since nobody waits
** while it holds an unbuilt claim, two prepares cannot wait for each other.
**
** Cancelling gives claims that were not begun back. Who waited for one of them claims it itself:
** that is the next round.
*/
#include "prepare.h"

#include "error.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Half a report interval, so that reports are not late when a machine is busy. */
enum { CHOSEN_THREADS_MOST = 4, COMPILE_STACK_BYTES = 16 << 20, WAIT_MS = 50 };

static struct kernel *find_kernel(const kvk_context *ctx, const char *key)
{
    for (struct kernel *k = ctx->kernels; k; k = k->next)
        if (strcmp(k->key, key) == 0)
            return k;
    return NULL;
}

/* Finds or claims the kernel of a job; the context's mutex is held. */
static kvk_status claim(kvk_context *ctx, struct job *j)
{
    struct kernel *k = find_kernel(ctx, j->key);
    if (k) {
        k->waiters++;
        j->kernel = k;
        return KVK_OK;
    }
    k = calloc(1, sizeof *k);
    char *key = k ? strdup(j->key) : NULL;
    if (!key) {
        free(k);
        return ERR(&j->error, KVK_E_MEMORY, "no memory for a kernel");
    }
    k->key = key;
    k->next = ctx->kernels;
    ctx->kernels = k;
    j->kernel = k;
    j->mine = 1;
    return KVK_OK;
}

/* A claim is kept or, when it failed, taken out of the list: the next prepare tries again. */
static void publish(kvk_context *ctx, struct job *j)
{
    struct kernel *k = j->kernel;
    pthread_mutex_lock(&ctx->mutex);
    k->state = j->status ? KERNEL_FAILED : KERNEL_READY;
    if (j->status) {
        k->error = j->error;
        for (struct kernel **at = &ctx->kernels; *at; at = &(*at)->next)
            if (*at == k) {
                *at = k->next;
                break;
            }
        j->kernel = NULL;
    } else {
        j->ms = k->build_ms;
    }
    int orphan = j->status && !k->waiters;
    pthread_cond_broadcast(&ctx->changed);
    pthread_mutex_unlock(&ctx->mutex);
    if (orphan)
        kernel_free(ctx, k);
}

/* ---- progress ---- */

/* One call of the callback; `j` was finished, or NULL. */
static void report(struct prepare *p, const struct job *j)
{
    if (j)
        p->reported++;
    if (!p->ctx->progress || p->cancelled)
        return;
    struct kvk_progress progress = {.size = sizeof progress,
                                    .done = p->reported,
                                    .total = p->total,
                                    .kind = j ? j->request.kind : NULL,
                                    .ms = j ? j->ms : 0};
    if (j && !j->status)
        progress.origin = j->mine ? j->kernel->origin : "memory";
    if (p->ctx->progress(p->ctx->progress_data, &progress))
        p->cancelled = 1;
}

/* Waits for a signal; with a callback no longer than it may be kept without a report. */
static void wait_a_while(const kvk_context *ctx, pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    struct timespec until;
    if (!ctx->progress) {
        pthread_cond_wait(cond, mutex);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += WAIT_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(cond, mutex, &until);
}

/* ---- compiling ---- */

/* A claim that is not built because the caller gave up. */
static void give_back(struct prepare *p, struct job *j)
{
    j->status = ERR(&j->error, KVK_E_CANCELLED,
                    "the %s kernel for %s was not made: the progress callback asked to stop",
                    j->request.kind, j->request.target);
    j->done = 1;
    publish(p->ctx, j);
}

static void *work(void *data)
{
    struct prepare *p = data;
    for (;;) {
        pthread_mutex_lock(&p->mutex);
        int i = p->stop ? KIND_COUNT : p->next;
        while (i < KIND_COUNT && (!p->jobs[i].mine || p->jobs[i].done))
            i++;
        p->next = i + 1;
        pthread_mutex_unlock(&p->mutex);
        if (i >= KIND_COUNT)
            return NULL;
        struct job *j = &p->jobs[i];
        j->status = build_by_compiling(p->ctx, j->kernel, &j->request, &j->error);
        publish(p->ctx, j);
        pthread_mutex_lock(&p->mutex);
        j->done = 1;
        p->ended[p->nended++] = i;
        pthread_cond_signal(&p->changed);
        pthread_mutex_unlock(&p->mutex);
    }
}

/* Threads that take none of the program's signals: its handlers run where it expects them. Returns
** how many started. */
static int start_threads(pthread_t *threads, int n, struct prepare *p)
{
    sigset_t all, before;
    pthread_attr_t attr;
    int started = 0;
    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, COMPILE_STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < n && pthread_create(&threads[started], &attr, work, p) == 0)
        started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return started;
}

static int threads_wanted(const kvk_context *ctx, int misses)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int most = ctx->prepare_threads;
    if (!most)
        most = cores < 1 ? 1 : cores < CHOSEN_THREADS_MOST ? (int)cores : CHOSEN_THREADS_MOST;
    return misses < most ? misses : most;
}

/* Reports builds as they end, until `misses` have or the caller gives up. */
static void watch(struct prepare *p, int misses)
{
    int known = 0;
    pthread_mutex_lock(&p->mutex);
    while (known < misses && !p->cancelled) {
        int i = known < p->nended ? p->ended[known] : -1;
        if (i < 0) {
            wait_a_while(p->ctx, &p->changed, &p->mutex);
            i = known < p->nended ? p->ended[known] : -1;
        }
        known += i >= 0;
        pthread_mutex_unlock(&p->mutex);
        report(p, i >= 0 ? &p->jobs[i] : NULL);
        pthread_mutex_lock(&p->mutex);
    }
    p->stop = p->cancelled;
    pthread_mutex_unlock(&p->mutex);
}

/* Compiles run in threads of their own: side by side, and on stacks as deep as LLVM may need. */
static void compile_all(struct prepare *p)
{
    pthread_t threads[KIND_COUNT];
    int misses = 0;
    for (int i = 0; i < KIND_COUNT; i++)
        misses += p->jobs[i].mine && !p->jobs[i].done;
    if (!misses || p->cancelled)
        return;
    p->next = p->stop = p->nended = 0;
    int started = start_threads(threads, threads_wanted(p->ctx, misses), p);
    if (!started)
        work(p);
    watch(p, misses);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

/* ---- rounds ---- */

static void claim_all(struct prepare *p)
{
    pthread_mutex_lock(&p->ctx->mutex);
    for (int i = 0; i < KIND_COUNT; i++) {
        struct job *j = &p->jobs[i];
        if (!j->wanted || j->kernel || j->status)
            continue;
        j->status = claim(p->ctx, j);
        j->done = j->status != KVK_OK;
    }
    pthread_mutex_unlock(&p->ctx->mutex);
}

static void build_all(struct prepare *p)
{
    for (int i = 0; i < KIND_COUNT; i++) {
        struct job *j = &p->jobs[i];
        int found = 0;
        if (!j->mine || j->done || p->cancelled)
            continue;
        j->status = build_from_store(p->ctx, j->kernel, &j->request, &found, &j->error);
        j->done = found || j->status;
        if (!j->done)
            continue;
        publish(p->ctx, j);
        report(p, j);
    }
    compile_all(p);
    for (int i = 0; i < KIND_COUNT; i++)
        if (p->jobs[i].mine && !p->jobs[i].done)
            give_back(p, &p->jobs[i]);
}

/* Leaves a kernel of another prepare that is READY or FAILED, or is no longer waited for. */
static void leave(struct prepare *p, struct job *j, struct kernel *k)
{
    int ready = k->state == KERNEL_READY, building = k->state == KERNEL_BUILDING,
        last = --k->waiters == 0 && !ready && !building;
    if (k->state == KERNEL_FAILED && k->error.status != KVK_E_CANCELLED) {
        j->status = k->error.status;
        j->error = k->error;
    } else if (!ready && p->cancelled) {
        j->status = ERR(&j->error, KVK_E_CANCELLED,
                        "not waited for the %s kernel: the progress callback asked to stop",
                        j->request.kind);
    }
    if (!ready)
        j->kernel = NULL;
    pthread_mutex_unlock(&p->ctx->mutex);
    if (last)
        kernel_free(p->ctx, k);
}

/* 1 if the kernel was given back by who claimed it: to be claimed anew. */
static int await(struct prepare *p, struct job *j)
{
    struct kernel *k = j->kernel;
    double start = clock_ms();
    pthread_mutex_lock(&p->ctx->mutex);
    while (k->state == KERNEL_BUILDING && !p->cancelled) {
        wait_a_while(p->ctx, &p->ctx->changed, &p->ctx->mutex);
        if (k->state != KERNEL_BUILDING)
            break;
        pthread_mutex_unlock(&p->ctx->mutex);
        report(p, NULL);
        pthread_mutex_lock(&p->ctx->mutex);
    }
    leave(p, j, k);
    j->ms = clock_ms() - start;
    if (!j->kernel && !j->status)
        return 1;
    j->done = 1;
    report(p, j);
    return 0;
}

void prepare_run(struct prepare *p)
{
    pthread_condattr_t clock;
    int again;
    pthread_mutex_init(&p->mutex, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&p->changed, &clock);
    pthread_condattr_destroy(&clock);
    do {
        again = 0;
        claim_all(p);
        build_all(p);
        for (int i = 0; i < KIND_COUNT; i++) {
            struct job *j = &p->jobs[i];
            if (j->kernel && !j->mine && !j->done)
                again |= await(p, j);
        }
    } while (again);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->mutex);
}
