/* SPDX-License-Identifier: Apache-2.0 */
/*
** fake_state.h - what the two fake driver libraries share: their state, the call that fails, and what was made. Included
** once by each, after `static int entered(void)`: has the calling thread made the device current that it works on?
*/
#ifndef KVKILN_TESTS_RT_FAKE_STATE_H
#define KVKILN_TESTS_RT_FAKE_STATE_H

#include "fake.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static struct fake state = FAKE_BEGINNING;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* What was made stays reachable here until it is freed: a driver that could not free is no leak of the program. */
static void *kept[4096];

static void *keep(size_t bytes)
{
    void *memory = malloc(bytes);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        void *empty = NULL;
        if (__atomic_compare_exchange_n(&kept[i], &empty, memory, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST))
            break;
    }
    return memory;
}

static void drop(void *memory)
{
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        void *it = memory;
        if (__atomic_compare_exchange_n(&kept[i], &it, NULL, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            break;
    }
    free(memory);
}

static int fails(int call)
{
    if ((state.fail_at && call == state.fail_at) || (state.fail_from && call >= state.fail_from))
        return 1;
    if (!state.chance)
        return 0;
    state.random = state.random * 6364136223846793005u + 1442695040888963407u;
    return state.random >> 48 < state.chance;
}

/* Counts a call; 0, or the code with which it is to fail. */
static int step(const char *name, int needs_device)
{
    int code = 0;
    pthread_mutex_lock(&mutex);
    state.calls++;
    state.unentered += needs_device && !entered();
    if (fails(state.calls)) {
        state.failed = state.fail_from && state.failed ? state.failed : name;
        code = state.fail_code ? state.fail_code : 999;
    }
    pthread_mutex_unlock(&mutex);
    return code;
}

static void live(int by)
{
    pthread_mutex_lock(&mutex);
    state.live += by;
    pthread_mutex_unlock(&mutex);
}

static int make(void **out)
{
    *out = keep(1);
    live(1);
    return 0;
}

static void destroy(void *thing)
{
    drop(thing);
    live(-1);
}

/* shape: CTAs, threads, shared memory; map: what follows the parameters, if anything. */
static void remember_launch(const char *function, const unsigned shape[3], void *stream, const void *params, size_t bytes,
                            const void *map)
{
    pthread_mutex_lock(&mutex);
    struct fake_launch *l = &state.launch[state.launches++ % FAKE_LAUNCHES];
    *l = (struct fake_launch){.grid = shape[0], .threads = shape[1], .shared = shape[2], .stream = stream, .bytes = bytes,
                              .listed = map != NULL, .map_at = (uintptr_t)map};
    snprintf(l->function, sizeof l->function, "%s", function);
    state.queued++;
    memcpy(l->params, params, bytes < FAKE_PARAMS ? bytes : FAKE_PARAMS);
    if (map)
        memcpy(l->map, map, sizeof l->map);
    pthread_mutex_unlock(&mutex);
}

static void settle(int going) /* all that was queued is done; or, `going`, a module is unloaded */
{
    pthread_mutex_lock(&mutex);
    state.torn += going && state.queued > 0;
    state.queued = going ? state.queued : 0;
    pthread_mutex_unlock(&mutex);
}
#define STEP(needs)                                                                                \
    do {                                                                                           \
        int code_ = step(__func__, needs);                                                         \
        if (code_)                                                                                 \
            return code_;                                                                          \
    } while (0)

#define CALL(name, ...)                                                                            \
    EXPORT int name(__VA_ARGS__);                                                                  \
    int name(__VA_ARGS__)

#pragma GCC diagnostic ignored "-Wunused-parameter"

/* Calls that make `thing`, free it, or do something to a thing that nobody looks into. */
#define MAKES(name, ...)                                                                           \
    CALL(name, __VA_ARGS__)                                                                        \
    {                                                                                              \
        STEP(1);                                                                                   \
        return make(thing);                                                                        \
    }
#define FREES(name)                                                                                \
    CALL(name, void *thing)                                                                        \
    {                                                                                              \
        destroy(thing);                                                                            \
        STEP(1);                                                                                   \
        return 0;                                                                                  \
    }
#define PASSES(name, ...)                                                                          \
    CALL(name, __VA_ARGS__)                                                                        \
    {                                                                                              \
        STEP(1);                                                                                   \
        return 0;                                                                                  \
    }

#endif
