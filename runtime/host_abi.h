/* SPDX-License-Identifier: Apache-2.0 */
/*
** host_abi.h - what a kernel compiled for the host sees of the runtime: the contract between gen/target_host.c, which
** emits loads at these offsets, and host_sched.c, which fills them.
**
** A kernel is the same SIMT code as on a GPU. Each GPU thread is a fiber that calls `entry(thread, params)` once; params
** points to the struct abi_* of the launch. Barriers, shuffles and matrix products are calls through `thread->calls`.
** Warps have 32 lanes; lane = tid % 32.
**
** Warp collectives (shuffle, warp_sync, mma) complete when every lane of the warp that has not returned has arrived at the
** same one. Warps progress independently. Calls preserve what the C ABI of the machine says they preserve; floating point
** control is at its default (round to nearest, subnormals kept).
*/
#ifndef KVKILN_HOST_ABI_H
#define KVKILN_HOST_ABI_H

#include <stddef.h>
#include <stdint.h>

enum {
    HOST_WARP = 32,
    HOST_MAX_THREADS = 1024,         /* a CTA */
    HOST_BARRIERS = 16,              /* named barriers a CTA, as on NVIDIA */
    HOST_STACK_BYTES = 64 * 1024,    /* a fiber; an inaccessible page lies below */
    HOST_STACK_RESERVED = 8 * 1024,  /* of it, for the runtime's own frames and the spread of stacks over cache sets */
    HOST_SHARED_ALIGN = 16           /* of the shared memory base: exactly this in the guard-end mode */
};

struct host_calls;

struct host_thread {
    uint32_t tid;  /* in the CTA */
    uint32_t cta;  /* index in the grid */
    void *shared;  /* the CTA's dynamic shared memory */
    const struct host_calls *calls;
};

/* Append only. */
struct host_calls {
    /* Waits until `count` threads have arrived at barrier `id`; 0 = every thread of the CTA that has not returned. */
    void (*barrier)(struct host_thread *t, uint32_t id, uint32_t count);
    /* Counts as arrived without waiting. */
    void (*barrier_arrive)(struct host_thread *t, uint32_t id, uint32_t count);
    void (*warp_sync)(struct host_thread *t);
    /* The value that lane (lane ^ mask), or `source`, passed; a lane that has returned, or is no lane: one's own value. */
    uint32_t (*shuffle_xor)(struct host_thread *t, uint32_t value, uint32_t mask);
    uint32_t (*shuffle_idx)(struct host_thread *t, uint32_t value, uint32_t source);
    /*
    ** C += A B for one 16x8x16 tile in the fragment layout of NVIDIA's m16n8k16, operands widened to float.
    ** With g = lane / 4, q = lane % 4:
    **     a[0..1] row g   k 2q..      a[2..3] row g+8 k 2q..      a[4..5] row g   k 2q+8..    a[6..7] row g+8 k 2q+8..
    **     b[0..1] k 2q.. column g     b[2..3] k 2q+8.. column g
    **     c[0..1] row g columns 2q..  c[2..3] row g+8 columns 2q..
    ** Products are summed in the order of k onto c. The pointers need the alignment of float. Full warps only.
    */
    void (*mma_16x8x16)(struct host_thread *t, const float *a, const float *b, float *c);
    /*
    ** mbarriers: 8 bytes of shared memory, 8-byte aligned. A phase completes after `count` arrivals; wait returns
    ** once the phase of this parity (0 for the first) has completed.
    */
    void (*mbarrier_init)(struct host_thread *t, uint64_t *bar, uint32_t count);
    void (*mbarrier_arrive)(struct host_thread *t, uint64_t *bar);
    void (*mbarrier_wait)(struct host_thread *t, uint64_t *bar, uint32_t parity);
};

typedef void host_entry(struct host_thread *thread, const void *params);

#define HOST_ABI_AT(type, member, offset) \
    _Static_assert(offsetof(struct type, member) == (offset), #type "." #member " moved: bump KVK_ABI_VERSION")
HOST_ABI_AT(host_thread, tid, 0);
HOST_ABI_AT(host_thread, cta, 4);
HOST_ABI_AT(host_thread, shared, 8);
HOST_ABI_AT(host_thread, calls, 16);
HOST_ABI_AT(host_calls, barrier, 0);
HOST_ABI_AT(host_calls, barrier_arrive, 8);
HOST_ABI_AT(host_calls, warp_sync, 16);
HOST_ABI_AT(host_calls, shuffle_xor, 24);
HOST_ABI_AT(host_calls, shuffle_idx, 32);
HOST_ABI_AT(host_calls, mma_16x8x16, 40);
HOST_ABI_AT(host_calls, mbarrier_init, 48);
HOST_ABI_AT(host_calls, mbarrier_arrive, 56);
HOST_ABI_AT(host_calls, mbarrier_wait, 64);
#undef HOST_ABI_AT

#endif
