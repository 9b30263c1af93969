/* SPDX-License-Identifier: Apache-2.0 */
/*
** host_worker.c - the memory of one OS thread that runs CTAs: stacks with inaccessible pages
** between them, fiber states, shared memory; and memory between inaccessible pages in general.
**
** Everything is kept from launch to launch and only grows. Stacks are reserved whole and filled in
** by the kernel as they are touched.
*/
#include "error.h"
#include "host_sched.h"
#include "host_wait.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static size_t round_up(size_t x, size_t to) { return (x + to - 1) / to * to; }

static void *reserve(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* The first page of a mapping holds its size and is inaccessible as well, except while it is looked
** up. */
void *host_guarded_map(size_t bytes, int at_end)
{
    size_t page = page_bytes(), used = round_up(bytes ? bytes : 1, HOST_SHARED_ALIGN);
    if (used < bytes || used > SIZE_MAX / 2)
        return NULL;
    size_t data = round_up(used, page), total = data + 2 * page;
    char *base = reserve(total);
    if (!base)
        return NULL;
    if (mprotect(base, page + data, PROT_READ | PROT_WRITE)) {
        munmap(base, total);
        return NULL;
    }
    memcpy(base, &total, sizeof total);
    if (mprotect(base, page, PROT_NONE)) {
        munmap(base, total);
        return NULL;
    }
    return base + page + (at_end ? data - used : 0);
}

void host_guarded_unmap(void *memory)
{
    if (!memory)
        return;
    size_t page = page_bytes(), total;
    char *base = (char *)((uintptr_t)memory & ~(uintptr_t)(page - 1)) - page;
    if (mprotect(base, page, PROT_READ))
        return;
    memcpy(&total, base, sizeof total);
    munmap(base, total);
}

kvk_status host_worker_open(struct host_worker **out, kvk_error *err)
{
    struct host_worker *worker = calloc(1, sizeof *worker);
    if (!worker)
        return ERR(err, KVK_E_MEMORY, "%zu bytes for a worker", sizeof *worker);
    worker->page = page_bytes();
    worker->stack_step = worker->page + round_up(HOST_STACK_BYTES, worker->page);
    worker->mma = host_mma_best();
    *out = worker;
    return KVK_OK;
}

static void drop_stacks(struct host_worker *worker)
{
    if (worker->stacks)
        munmap(worker->stacks, worker->stacks_bytes);
    for (uint32_t i = 0; i < worker->nfibers; i++)
        host_context_drop(&worker->fibers[i].context);
    free(worker->fibers);
    worker->stacks = NULL;
    worker->fibers = NULL;
    worker->nfibers = 0;
}

void host_worker_close(struct host_worker *worker)
{
    if (!worker)
        return;
    drop_stacks(worker);
    host_guarded_unmap(worker->shared);
    free(worker);
}

static kvk_status reserve_stacks(struct host_worker *worker, uint32_t threads, kvk_error *err)
{
    drop_stacks(worker);
    worker->stacks_bytes = threads * worker->stack_step;
    worker->fibers = calloc(threads, sizeof *worker->fibers);
    worker->stacks = reserve(worker->stacks_bytes);
    if (!worker->fibers || !worker->stacks)
        return ERR(err, KVK_E_MEMORY, "%zu bytes for the stacks of %u threads",
                   worker->stacks_bytes, threads);
    for (uint32_t i = 0; i < threads; i++)
        if (mprotect((char *)worker->stacks + i * worker->stack_step + worker->page,
                     worker->stack_step - worker->page, PROT_READ | PROT_WRITE))
            return ERR(err, KVK_E_MEMORY, "the stack of thread %u of %u: too many mappings", i,
                       threads);
    worker->nfibers = threads;
    return KVK_OK;
}

kvk_status host_worker_reserve(struct host_worker *worker, const struct host_grid *grid,
                               kvk_error *err)
{
    if (grid->threads < 1 || grid->threads > HOST_MAX_THREADS)
        return ERR(err, KVK_E_SHAPE, "threads: %u, 1 to %d accepted", grid->threads,
                   HOST_MAX_THREADS);
    if (grid->threads > worker->nfibers) {
        kvk_status status = reserve_stacks(worker, grid->threads, err);
        if (status)
            return status;
    }
    /* In the modes for tests the size is exact, so that the end is where the kernel's own end is.
    ** */
    if (grid->shared_bytes > worker->shared_bytes || grid->shared_at_end != worker->shared_at_end ||
        (grid->poison && grid->shared_bytes != worker->shared_bytes)) {
        host_guarded_unmap(worker->shared);
        worker->shared_bytes = 0;
        worker->shared = host_guarded_map(grid->shared_bytes, grid->shared_at_end);
        if (!worker->shared)
            return ERR(err, KVK_E_MEMORY, "%zu bytes of shared memory", grid->shared_bytes);
        worker->shared_bytes = grid->shared_bytes;
        worker->shared_at_end = grid->shared_at_end;
    }
    return KVK_OK;
}
