/* SPDX-License-Identifier: Apache-2.0 */
/*
** kb_kernel.h - the builder's second half: control flow, the kernel's indices, and the roles that a target fills. Part of
** kb.h; templates include that.
*/
#ifndef KVKILN_GEN_KB_KERNEL_H
#define KVKILN_GEN_KB_KERNEL_H

#include "kb.h"

/* ---- control flow ---- */
struct kb_if { void *then_end, *else_end, *join; };
struct kb_if kb_if(struct kb *k, val cond);
void kb_else(struct kb *k, struct kb_if *i);
void kb_endif(struct kb *k, struct kb_if *i);
/* after kb_endif; without kb_else: from before */
val kb_merge(struct kb *k, const struct kb_if *i, val from_then, val from_else);

/* state[0..n): values the loop carries (NULL entries are skipped). begin rebinds them to phis in place, end to final values. */
struct kb_loop { void *head, *body, *exit; val *state, *phi; int n; bool rolled; }; /* rolled: never unrolled; set after begin */
void kb_loop_begin(struct kb *k, struct kb_loop *loop, val *state, int n);
void kb_loop_while(struct kb *k, struct kb_loop *loop, val cond); /* leave when false */
void kb_loop_end(struct kb *k, struct kb_loop *loop);
void kb_return_if(struct kb *k, val cond); /* CTA-uniform or warp-uniform condition only */

/* ---- kernel ---- */
val kb_param(struct kb *k, const char *name); /* of the entry being built, from abi.def */
val kb_tid(struct kb *k);   /* i32 thread in CTA */
val kb_lane(struct kb *k);  /* i32 */
val kb_warp(struct kb *k);  /* i32 warp in CTA, known uniform */
val kb_cta(struct kb *k);   /* i32 */
int kb_warp_size(struct kb *k);
val kb_uniform(struct kb *k, val x); /* promise: i32 (or a pointer to shared memory) equal in all lanes of the warp */
val kb_opaque(struct kb *k, val x);  /* the same i32, unknown to the optimiser: keeps loads inside a loop */
val kb_held(struct kb *k, val x);    /* the same i32 or pointer to shared memory, in a register from here on: not made again */

/* ---- roles ---- */
/* The i32 at base + offset (i32) in shared memory that is not written any more: of tables. */
val kb_table_word(struct kb *k, val base, val offset);
/* bits shift .. shift + 31 of the 64 in hi:lo, shift < 32 */
val kb_funnel(struct kb *k, val lo, val hi, val shift);
val kb_bit_select(struct kb *k, unsigned mask, val x, val y); /* i32: bits of x where the mask has ones, else of y */
val kb_mask_merge(struct kb *k, val x, unsigned mask, unsigned bits); /* i32: (x & mask) | bits */
/* two e4m3fn (or e5m2) bytes, i16 -> i32 f16 pair; NULL where the target has no such conversion */
val kb_fp8_pair(struct kb *k, bool e5m2, val bytes);
/* By all threads, before the kernel touches global memory: what the kernels before it on its stream wrote may then be read, and
** what they read written. false: the target has no launches that overlap, and nothing was emitted. */
bool kb_grid_wait(struct kb *k);
/* From here on kb_barrier is one of the CTA's first `threads` threads alone, in a branch that only they take; 0: of all again. */
void kb_team(struct kb *k, int threads);
void kb_barrier(struct kb *k);   /* CTA: memory of the CTA is ordered */
/* Of the CTAs of a cluster, which the launch makes of neighbours in the grid; elsewhere each CTA is one by itself.
** By all threads that are still there. Then a generic pointer to the same place in the shared memory of the CTA of that rank,
** which must be there until a further barrier. */
void kb_cluster_barrier(struct kb *k);
val kb_neighbour(struct kb *k, val generic, val rank);
void kb_warp_sync(struct kb *k); /* warp: shared memory written before is visible after */
val kb_shuffle_xor(struct kb *k, val x, int mask); /* i32 or f32; all lanes take part */
val kb_shuffle(struct kb *k, val x, val lane);     /* i32 or f32 from `lane` */
/* The bulk copy engine, where plan->bulk; called by single lanes, but for the wait. bar: an mbarrier of 8 bytes in shared memory,
** initialised for so many arrivals a phase before a CTA barrier. A phase takes one expect, of all its bytes, and their copies. */
void kb_bulk_init(struct kb *k, val bar, val arrivals);
void kb_bulk_expect(struct kb *k, val bar, val bytes);
void kb_bulk_copy(struct kb *k, val to, val from, val bytes, val bar); /* shared, global; multiples of 16 */
/* By one thread: a box of the tensor that the launch's map describes, whose first element is at `at` (i32, the
** dimension of neighbouring bytes first), to shared memory at a multiple of 1024; begin: its map will be needed soon. */
void kb_tensor_begin(struct kb *k);
void kb_tensor_copy(struct kb *k, val to, const val at[KB_TENSOR_DIMS], val bar);
void kb_bulk_wait(struct kb *k, val bar, val phase); /* until the phase of that parity (i32) has ended; by all lanes */
/* Goes on when x (i32) is there: what it was loaded from may then be overwritten by bulk copies. */
void kb_bulk_settle(struct kb *k, val x);
/* i64 in global memory that CTAs of a launch change together. add gives the number before; it orders all memory: what this
** thread, and before a barrier its CTA, has written is seen by those whose add comes later. The others order nothing. */
val kb_atomic_get(struct kb *k, val at);
void kb_atomic_set(struct kb *k, val x, val at);
void kb_atomic_fence(struct kb *k); /* orders this thread's memory for all CTAs */
val kb_atomic_add(struct kb *k, val at, val x);
void kb_atomic_replace(struct kb *k, val at, val before, val x); /* by x, if it is `before` */
val kb_elect(struct kb *k); /* i1: true in one lane of a converged warp */
val kb_warp_sum(struct kb *k, val x);  /* i32, of all lanes, equal in the warp; */
val kb_warp_most(struct kb *k, val x); /* the largest, unsigned */
val kb_any(struct kb *k, val cond); /* i1, equal in the warp: true in some lane; all lanes take part */
val kb_exp2(struct kb *k, val x); /* f32; relative error < 4e-7; -inf -> 0 */
val kb_log2(struct kb *k, val x); /* f32, x >= 0; 0 -> -inf; absolute error < 1e-6 for x in [1/2, 2^30] */
val kb_rsqrt(struct kb *k, val x);/* f32, approximate: relative error < 4e-7 */
val kb_rcp(struct kb *k, val x);  /* f32, approximate: relative error < 4e-7 */

#endif
