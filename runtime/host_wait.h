/* SPDX-License-Identifier: Apache-2.0 */
/*
** host_wait.h - the state of a running CTA: shared by the scheduler (host_sched.c), the keeper of its memory
** (host_worker.c) and the one that puts a deadlock into words (host_wait.c).
*/
#ifndef KVKILN_HOST_WAIT_H
#define KVKILN_HOST_WAIT_H

#include "host_abi.h"
#include "host_mma.h"
#include "host_switch.h"

enum { HOST_MAX_WARPS = HOST_MAX_THREADS / HOST_WARP };

/* What the lanes in `arrived` of a warp wait at. */
enum host_at { HOST_AT_SYNC, HOST_AT_SHUFFLE, HOST_AT_MMA };

struct host_fiber {
    struct host_thread abi; /* first: generated code holds a pointer to it */
    struct host_context context;
    struct host_cta *cta;
    struct host_warp *warp;
    uint32_t lane;
    uint32_t parity; /* waited for at `mbarrier` */
    const uint64_t *mbarrier;
};

/* Masks of lanes. Each living lane is the running one or in exactly one of ready, arrived, at_barrier[i], at_mbarrier. */
struct host_warp {
    uint32_t alive; /* have not returned */
    uint32_t ready, arrived, at_mbarrier;
    uint32_t at_barrier[HOST_BARRIERS];
    enum host_at op;
    uint32_t value[HOST_WARP], source[HOST_WARP], result[HOST_WARP];
    const float *a[HOST_WARP], *b[HOST_WARP];
    float *c[HOST_WARP];
    struct host_fiber *fibers;
};

struct host_barrier {
    uint32_t arrived, count; /* count: 0 = all threads that have not returned */
};

struct host_cta {
    struct host_context origin; /* the OS thread's own flow */
    host_entry *entry;
    const void *params;
    host_mma *mma;
    uint32_t nthreads, nwarps, alive;
    struct host_warp *warps;
    struct host_barrier barriers[HOST_BARRIERS];
    const char *fault; /* static text, NULL = none */
    uint32_t fault_tid;
};

struct host_worker {
    struct host_cta cta;
    struct host_warp warps[HOST_MAX_WARPS];
    struct host_fiber *fibers;
    uint32_t nfibers;
    void *stacks; /* [nfibers][inaccessible page, HOST_STACK_BYTES] */
    size_t stacks_bytes, stack_step, page;
    void *shared;
    size_t shared_bytes;
    int shared_at_end;
    host_mma *mma;
};

/* "warp 0: 31 lanes at shuffle, 1 at barrier 2 (64 of 128 there); ...", cut to fit. */
void host_wait_describe(const struct host_cta *cta, char *text, size_t cap);

#endif
