/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_unrotate.c - output rows of rotated values back to the values' basis. Attention is linear in
** V, so one rotation of a row's sums replaces one of every value read; what splits leave for the
** reduction, and what callers merge, is rotated back already.
**
** A row's dims lie in many lanes, and in several warps where these share it; the blocks of a
** rotation that is no power of two end anywhere among them. So rows go through shared memory: as
** they lie in the lanes to rows of numbers, each rotated by one warp, and back.
*/
#include "part_unrotate.h"

#include "part_rowvec.h"

static int sum_index(const struct attend *a, int d, int row, int e)
{
    return (d * a->shape.lane_rows + row) * a->shape.ye + e;
}

static void sync(struct kb *k, const struct unrotate *u)
{
    if (u->members > 1)
        kb_barrier(K);
    else
        kb_warp_sync(K);
}

/* Whether the lane's i-th row is one of those from `first` on; its place among them. */
static val takes_part(struct kb *k, const struct attend *a, int i, val first, val *place)
{
    val row = kb_matrix(K)->x_row(K, i);
    *place = kb_sub(K, row, first);
    return kb_icmpi(K, KB_ULT, *place, a->plan->turn_rows);
}

/* Address of the lane's dims of result column e in row `place`. */
static val dims_at(struct kb *k, const struct attend *a, const struct unrotate *u, val place, int e)
{
    val row = kb_offset(K, u->buffer, kb_muli(K, place, plan_turn_pitch(a->plan) * 4));
    val dim = attend_first_dim(K, a, kb_matrix(K)->result_y(K, e));
    return kb_offset(K, row, kb_shli(K, dim, 2));
}

/* Floats at a time: rows begin at multiples of 16 bytes. */
static int at_once(const struct attend *a)
{
    return a->dims % 4 == 0 && a->plan->dims_overlap == 0 ? 4 : 1;
}

static void put_rows(struct kb *k, const struct attend *a, const struct unrotate *u, val first,
                     const struct attend_sums *s)
{
    int n = at_once(a);
    for (int i = 0; i < a->shape.lane_rows; i++) {
        val place, held = takes_part(K, a, i, first, &place);
        struct kb_if holds = kb_if(K, held);
        for (int e = 0; e < a->shape.ye; e++) {
            val at = dims_at(K, a, u, place, e);
            for (int d = 0; d < a->dims; d += n) {
                val x[4];
                for (int j = 0; j < n; j++)
                    x[j] = s->o[sum_index(a, d + j, i, e)];
                val all = n == 4 ? kb_vec(K, x, 4) : x[0];
                kb_store(K, all, kb_offseti(K, at, 4 * d), 4 * n);
            }
        }
        kb_endif(K, &holds);
    }
}

static void get_rows(struct kb *k, const struct attend *a, const struct unrotate *u, val first,
                     struct attend_sums *s)
{
    int n = at_once(a);
    for (int i = 0; i < a->shape.lane_rows; i++) {
        struct attend_sums before = *s;
        val place, held = takes_part(K, a, i, first, &place);
        struct kb_if holds = kb_if(K, held);
        for (int e = 0; e < a->shape.ye; e++) {
            val at = dims_at(K, a, u, place, e);
            for (int d = 0; d < a->dims; d += n) {
                int type = n == 4 ? KB_VEC(KB_F32, 4) : KB_F32;
                val all = kb_load(K, type, kb_offseti(K, at, 4 * d), 4 * n);
                for (int j = 0; j < n; j++)
                    s->o[sum_index(a, d + j, i, e)] = n == 4 ? kb_extract(K, all, j) : all;
            }
        }
        kb_endif(K, &holds);
        for (int j = 0; j < a->dims * a->shape.ye; j++) {
            int at = sum_index(a, j / a->shape.ye, i, j % a->shape.ye);
            s->o[at] = kb_merge(K, &holds, s->o[at], before.o[at]);
        }
    }
}

/* The lane's elements of a row; `at` is a multiple of their size, or of 16 bytes. */
static void load_row(struct kb *k, struct rowvec *v, val at)
{
    int n = v->e < 4 ? v->e : 4, type = n == 1 ? KB_F32 : KB_VEC(KB_F32, n);
    for (int i = 0; i < v->e; i += n) {
        val all = kb_load(K, type, kb_offseti(K, at, 4 * i), 4 * n);
        for (int j = 0; j < n; j++) {
            val x = n == 1 ? all : kb_extract(K, all, j);
            v->x[i + j] = v->active ? kb_select(K, v->active, x, kb_f32(K, 0)) : x;
        }
    }
}

static void store_row(struct kb *k, const struct rowvec *v, val at)
{
    int n = v->e < 4 ? v->e : 4;
    struct rowvec_if active = rowvec_if_active(K, v);
    for (int i = 0; i < v->e; i += n) {
        val all = n == 1 ? v->x[i] : kb_vec(K, v->x + i, n);
        kb_store(K, all, kb_offseti(K, at, 4 * i), 4 * n);
    }
    rowvec_endif(K, &active);
}

static void rotate_rows(struct kb *k, const struct attend *a, const struct unrotate *u, val first)
{
    val most = kb_smin(K, kb_sub(K, u->rows, first), kb_i32(K, a->plan->turn_rows));
    val row = u->member;
    struct kb_loop rows;
    kb_loop_begin(K, &rows, &row, 1);
    kb_loop_while(K, &rows, kb_icmp(K, KB_SLT, row, most));
    struct rowvec v;
    rowvec_make(K, &v, a->plan->geo.value_head_size);
    val lane = v.active ? kb_select(K, v.active, v.lane, kb_i32(K, 0)) : v.lane;
    val at = kb_offset(K, u->buffer, kb_muli(K, row, plan_turn_pitch(a->plan) * 4));
    at = kb_offset(K, at, kb_muli(K, lane, 4 * v.e));
    load_row(K, &v, at);
    rotate_scaled(K, &v);
    store_row(K, &v, at);
    row = kb_addi(K, row, u->members);
    kb_loop_end(K, &rows);
}

/* Rows first, first + 1, ... first + turn_rows - 1 of the tile. */
static void turn(struct kb *k, const struct attend *a, const struct unrotate *u, val first,
                 struct attend_sums *s)
{
    sync(K, u); /* the buffer's last use is over */
    put_rows(K, a, u, first, s);
    sync(K, u);
    rotate_rows(K, a, u, first);
    sync(K, u);
    get_rows(K, a, u, first, s);
}

void attend_unrotate(struct kb *k, const struct attend *a, const struct unrotate *u,
                     struct attend_sums *s)
{
    struct {
        val first;
        struct attend_sums sums;
    } state = {kb_i32(K, 0), *s};
    struct kb_loop parts;
    if (a->plan->turn_rows == 16) {
        turn(K, a, u, state.first, s);
        return;
    }
    kb_loop_begin(K, &parts, (val *)&state, sizeof state / sizeof(val));
    kb_loop_while(K, &parts, kb_icmpi(K, KB_SLT, state.first, 16));
    turn(K, a, u, state.first, &state.sums);
    state.first = kb_addi(K, state.first, a->plan->turn_rows);
    kb_loop_end(K, &parts);
    *s = state.sums;
}
