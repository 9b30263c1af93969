/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_rowvec.h - one vector of D elements held by one warp.
**
** A lane holds e elements in runs of `run`: x[i] is element (i / run * lanes + lane) * run + i % run. Where the warp holds one
** vector there is one run, element lane * e + i is in x[i]; e is the smallest power of two for which the vector
** fits the warp, and it divides every block of the rotation. Lanes at or beyond D / e are inactive: they load zeros and
** store nothing, but take part in shuffles. All lanes of the warp must reach these calls.
**
** Reductions and rotations have one order of operations on every target (formats.md section 8.5).
*/
#ifndef KVKILN_PART_ROWVEC_H
#define KVKILN_PART_ROWVEC_H

#include "../gen/plan.h"

enum { ROWVEC_MAX = 32 };

struct rowvec {
    int d, e, lanes, run; /* lanes that hold elements */
    val lane, active;     /* active: i1, NULL when all lanes are */
    val x[ROWVEC_MAX];    /* f32 */
};

/* An empty vector: x is not set. */
void rowvec_make(struct kb *k, struct rowvec *v, int d);

/* The same, held by `lanes` lanes (a power of two; d is a power of two, too): the warp holds several, one each `lanes` lanes, in
** runs of eight. All lanes are active. */
void rowvec_share(struct kb *k, struct rowvec *v, int d, int lanes);

/* The largest power of two that divides d: the order of a rotation block. */
int rowvec_order(int d);

/* row: pointer to element 0 of KB_F16 or KB_BF16 elements, aligned to one element. */
void rowvec_load(struct kb *k, struct rowvec *v, int type, val row);
/* The same in two steps: the lane's elements as they are, i32, to be taken once other loads are under way. */
void rowvec_fetch(struct kb *k, const struct rowvec *v, int type, val row, val *halves);
void rowvec_take(struct kb *k, struct rowvec *v, int type, const val *halves);
void rowvec_store(struct kb *k, const struct rowvec *v, int type, val row);
/* A shared vector's, which end at the largest number of fp16; by_16: the row is a multiple of 16 bytes. */
void rowvec_store_shared(struct kb *k, const struct rowvec *v, int type, val row, bool by_16);

/* Run the code between for active lanes only. */
struct rowvec_if { struct kb_if branch; int used; };
struct rowvec_if rowvec_if_active(struct kb *k, const struct rowvec *v);
void rowvec_endif(struct kb *k, struct rowvec_if *i);

/* Of x, which has v's shape; equal bits in all active lanes. The sum is the balanced tree over the element index. */
val rowvec_sum(struct kb *k, const struct rowvec *v, const val *x);
val rowvec_sum_squares(struct kb *k, const struct rowvec *v);
/* A shared vector's sum run by run: of one run; of all runs' sums, which it changes. */
val rowvec_run_sum(struct kb *k, const val *x);
val rowvec_sum_runs(struct kb *k, const struct rowvec *v, val *sum);
/* Bits of an f32 as integers in the order of the floats, -0 below +0. Its own inverse. */
val rowvec_sortable(struct kb *k, val bits);
val rowvec_min(struct kb *k, const struct rowvec *v, const val *x); /* no NaN in x; -0 is below +0 */
val rowvec_max(struct kb *k, const struct rowvec *v, const val *x); /* no NaN in x; a zero has either sign */
/* 2^-e and 2^e of the largest magnitude in v->x; 1 for a zero row. Known to active lanes. */
void rowvec_powers(struct kb *k, const struct rowvec *v, val *down, val *up);
/* Maximum over each aligned group of `group` elements (a power of two that divides D); out[j] is that of the lane's
** group j. Returns how many groups begin or lie in a lane: max(1, e / group). */
int rowvec_group_max(struct kb *k, const struct rowvec *v, const val *x, int group, val *out);
/* Sum over one such group: x are the n elements of it that the lane holds. The tree over the index in the group. */
val rowvec_group_sum(struct kb *k, const struct rowvec *v, const val *x, int group, int n);

/* part_rotate.c: Walsh-Hadamard over blocks of rowvec_order(d), its own inverse.
** The plain form multiplies once at the end; the staged one after each butterfly (formats.md section 10.3). */
void rotate(struct kb *k, struct rowvec *v);
void rotate_staged(struct kb *k, struct rowvec *v);
/* Its two parts, for those who have a product of their own to join the factor to. */
void rotate_sums(struct kb *k, struct rowvec *v);
val rotate_factor(struct kb *k, int d);
float rotate_factor_of(int d); /* fp32(1 / sqrt(rowvec_order(d))) */
/* The plain form, in less code: for what happens once a kernel. */
void rotate_once(struct kb *k, struct rowvec *v);
/* The plain form, multiplied first: nothing on the way is larger than what may come out. */
void rotate_scaled(struct kb *k, struct rowvec *v);

#endif
