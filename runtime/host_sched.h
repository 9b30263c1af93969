/* SPDX-License-Identifier: Apache-2.0 */
/*
** host_sched.h - runs the CTAs of a kernel on one OS thread: fibers, warp collectives, named barriers, mbarriers.
*/
#ifndef KVKILN_HOST_SCHED_H
#define KVKILN_HOST_SCHED_H

#include "host_abi.h"
#include "kvkiln.h"

struct host_grid {
    host_entry *entry;
    const void *params;
    uint32_t ctas, threads; /* threads: a CTA, 1..HOST_MAX_THREADS */
    size_t shared_bytes;
    int shared_at_end;      /* shared memory ends at an inaccessible page (otherwise it begins after one) */
    int poison;             /* shared memory is filled with 0xFF before each CTA: a read of what was not written shows */
};

/* Stacks and states of one OS thread; used by one thread at a time, kept from launch to launch. */
struct host_worker;

kvk_status host_worker_open(struct host_worker **out, kvk_error *err);
void host_worker_close(struct host_worker *worker);

/* Makes sure that CTAs of this grid can run: stacks, states and shared memory. */
kvk_status host_worker_reserve(struct host_worker *worker, const struct host_grid *grid, kvk_error *err);

/*
** Runs one CTA from start to end. KVK_E_INTERNAL when its threads cannot go on (what each warp waits for is in the text) or
** misuse a collective; the other threads of that CTA are abandoned where they are.
*/
kvk_status host_worker_run(struct host_worker *worker, const struct host_grid *grid, uint32_t cta, kvk_error *err);

/* Memory between two inaccessible pages; `at_end` says to which of them it is flush (at the end: 16-byte aligned). */
void *host_guarded_map(size_t bytes, int at_end);
void host_guarded_unmap(void *memory);

#endif
