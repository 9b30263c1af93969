/* SPDX-License-Identifier: Apache-2.0 */
/*
** tune_ahead.c - kernels of plans that are about to be tried, made side by side: a compile keeps one
** core busy for as long as a plan is timed. The context keeps them, and bench_replan finds them
** there. What cannot be made is asked for again by bench_replan, whose error is the one that counts:
** here no error is looked at.
*/
#include "tune.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

enum { REPORT_SECONDS = 2 };

struct crew {
    const struct bench *b;
    const struct tune_plans *plans;
    int next, done; /* under the mutex */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
};

static void *work(void *data)
{
    struct crew *crew = data;
    pthread_mutex_lock(&crew->mutex);
    while (crew->next < crew->plans->count) {
        const char *plan = crew->plans->text[crew->next++];
        const kvk_kernels *kernels;
        kvk_error err;
        pthread_mutex_unlock(&crew->mutex);
        bench_prepare(crew->b, plan, &kernels, &err);
        pthread_mutex_lock(&crew->mutex);
        crew->done++;
        pthread_cond_signal(&crew->changed);
    }
    pthread_mutex_unlock(&crew->mutex);
    return NULL;
}

/* Says how far they are, now and then. */
static void watch(struct crew *crew)
{
    int total = crew->plans->count;
    pthread_mutex_lock(&crew->mutex);
    while (crew->done < total) {
        struct timespec until;
        int late = 0;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += REPORT_SECONDS;
        while (crew->done < total && !late)
            late = pthread_cond_timedwait(&crew->changed, &crew->mutex, &until) != 0;
        if (crew->done < total)
            cli_message("compiled %d of %d plans", crew->done, total);
    }
    pthread_mutex_unlock(&crew->mutex);
}

int tune_threads(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores > TUNE_THREADS_MOST ? TUNE_THREADS_MOST : (int)cores;
}

void tune_ahead(const struct bench *b, const struct tune_plans *plans, int threads)
{
    struct crew crew = {.b = b, .plans = plans};
    pthread_t crews[TUNE_THREADS_MOST];
    int started = 0;
    threads = threads < plans->count ? threads : plans->count;
    if (threads < 2) /* nothing is beside it: bench_replan may as well */
        return;
    cli_message("compiling %d plans, %d at a time", plans->count, threads);
    pthread_mutex_init(&crew.mutex, NULL);
    pthread_cond_init(&crew.changed, NULL);
    while (started < threads && started < TUNE_THREADS_MOST &&
           !pthread_create(&crews[started], NULL, work, &crew))
        started++;
    if (started)
        watch(&crew);
    for (int i = 0; i < started; i++)
        pthread_join(crews[i], NULL);
    pthread_cond_destroy(&crew.changed);
    pthread_mutex_destroy(&crew.mutex);
}
