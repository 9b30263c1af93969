/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_rowvec.c - one vector of D elements held by one warp.
*/
#include "part_rowvec.h"

#include "part_finite.h"

enum { RUN = 8 };

int rowvec_order(int d) { return d & -d; }

void rowvec_make(struct kb *k, struct rowvec *v, int d)
{
    int warp = kb_warp_size(k);
    *v = (struct rowvec){.d = d, .e = 1};
    while (v->e * warp < d)
        v->e *= 2;
    if (v->e > rowvec_order(d) || v->e > ROWVEC_MAX) {
        kb_fail(K, "head size %d does not fit %d lanes in whole blocks of %d", d, warp,
                rowvec_order(d));
        v->e = 1;
    }
    v->lanes = d / v->e;
    v->run = v->e;
    v->lane = kb_lane(K);
    if (v->lanes < warp)
        v->active = kb_icmpi(K, KB_ULT, v->lane, v->lanes);
}

void rowvec_share(struct kb *k, struct rowvec *v, int d, int lanes)
{
    *v = (struct rowvec){.d = d, .e = d / lanes, .lanes = lanes, .run = RUN};
    if (rowvec_order(d) != d || v->e % RUN || v->e > ROWVEC_MAX)
        kb_fail(K, "head size %d: not for %d lanes", d, lanes);
    v->lane = kb_andi(K, kb_lane(K), lanes - 1);
}

/* Pointer to the lane's first 16-bit element; inactive lanes point to element 0. */
static val lane_pointer(struct kb *k, const struct rowvec *v, val row)
{
    val lane = v->lane;
    if (v->active) {
        val zero = kb_i32(K, 0);
        lane = kb_select(K, v->active, lane, zero);
    }
    val bytes = kb_muli(K, lane, 2 * v->e);
    return kb_offset(K, row, bytes);
}

void rowvec_fetch(struct kb *k, const struct rowvec *v, int type, val row, val *halves)
{
    val from = lane_pointer(k, v, row);
    for (int i = 0; i < v->e;
         i++) { /* whole words: halves of registers would be carried with what is beside them */
        val half = kb_load_once(K, type, kb_offseti(K, from, 2 * i), 2);
        halves[i] = kb_zext(K, kb_bitcast(K, half, KB_I16), KB_I32);
    }
}

void rowvec_take(struct kb *k, struct rowvec *v, int type, const val *halves)
{
    val zero = kb_f32(K, 0);
    for (int i = 0; i < v->e; i++) {
        val half = kb_bitcast(K, kb_trunc(K, halves[i], KB_I16), type);
        val x = kb_to_f32(K, half);
        v->x[i] = v->active ? kb_select(K, v->active, x, zero) : x;
    }
}

void rowvec_load(struct kb *k, struct rowvec *v, int type, val row)
{
    val halves[ROWVEC_MAX];
    rowvec_fetch(K, v, type, row, halves);
    rowvec_take(K, v, type, halves);
}

struct rowvec_if rowvec_if_active(struct kb *k, const struct rowvec *v)
{
    struct rowvec_if i = {.used = v->active != NULL};
    if (i.used)
        i.branch = kb_if(K, v->active);
    return i;
}

void rowvec_endif(struct kb *k, struct rowvec_if *i)
{
    if (i->used)
        kb_endif(K, &i->branch);
}

void rowvec_store(struct kb *k, const struct rowvec *v, int type, val row)
{
    val to = lane_pointer(k, v, row);
    struct rowvec_if only = rowvec_if_active(k, v);
    for (int i = 0; i < v->e; i++) {
        val half = kb_to_half(K, v->x[i], type);
        val at = kb_offseti(K, to, 2 * i);
        kb_store(K, half, at, 2);
    }
    rowvec_endif(k, &only);
}

void rowvec_store_shared(struct kb *k, const struct rowvec *v, int type, val row, bool by_16)
{
    val to = kb_offset(K, row, kb_shli(K, v->lane, 4));
    for (int i = 0; i < v->e; i += RUN) {
        val pairs[RUN / 2], at = kb_offseti(K, to, 2LL * v->lanes * i);
        for (int j = 0; j < RUN / 2; j++)
            pairs[j] = to_row_pair(K, v->x[i + 2 * j], v->x[i + 2 * j + 1], type);
        if (by_16)
            kb_store(K, kb_vec(K, pairs, RUN / 2), at, 16);
        for (int j = 0; j < RUN && !by_16; j++) {
            val half = kb_trunc(K, kb_lshri(K, pairs[j / 2], j % 2 * 16), KB_I16);
            kb_store(K, half, kb_offseti(K, at, 2LL * j), 2);
        }
    }
}

static void join_lanes(struct kb *k, val *t, int e, int run, int groups_of_lanes,
                       val (*join)(struct kb *, val, val))
{
    for (int mask = 1; mask < groups_of_lanes; mask *= 2)
        for (int i = 0; i < e; i += run) {
            val other = kb_shuffle_xor(K, t[i], mask);
            t[i] = join(K, t[i], other);
        }
}

/* The tree: neighbours inside a run first, then neighbouring lanes, then the runs. `join` must be
** commutative to the bit. */
static val reduce(struct kb *k, const struct rowvec *v, const val *x, int groups_of_lanes,
                  val (*join)(struct kb *, val, val))
{
    val t[ROWVEC_MAX];
    int run = v->run < v->e ? v->run : v->e;
    for (int i = 0; i < v->e; i++)
        t[i] = x[i];
    for (int step = 1; step < v->e; step *= 2) {
        if (step == run)
            join_lanes(k, t, v->e, run, groups_of_lanes, join);
        for (int i = 0; i < v->e; i += 2 * step)
            t[i] = join(K, t[i], t[i + step]);
    }
    if (run == v->e)
        join_lanes(k, t, run, run, groups_of_lanes, join);
    return t[0];
}

/* Inactive lanes count as `neutral`. */
static val reduce_all(struct kb *k, const struct rowvec *v, const val *x, val neutral,
                      val (*join)(struct kb *, val, val))
{
    val t[ROWVEC_MAX];
    for (int i = 0; i < v->e; i++)
        t[i] = v->active ? kb_select(K, v->active, x[i], neutral) : x[i];
    return reduce(k, v, t, v->lanes, join);
}

val rowvec_sum(struct kb *k, const struct rowvec *v, const val *x)
{
    val zero = kb_f32(K, 0);
    return reduce_all(k, v, x, zero, kb_fadd);
}

val rowvec_run_sum(struct kb *k, const val *x)
{
    val t[RUN];
    for (int i = 0; i < RUN; i++)
        t[i] = x[i];
    for (int step = 1; step < RUN; step *= 2)
        for (int i = 0; i < RUN; i += 2 * step)
            t[i] = kb_fadd(K, t[i], t[i + step]);
    return t[0];
}

val rowvec_sum_runs(struct kb *k, const struct rowvec *v, val *sum)
{
    int runs = v->e / v->run;
    join_lanes(k, sum, runs, 1, v->lanes, kb_fadd);
    for (int step = 1; step < runs; step *= 2)
        for (int i = 0; i < runs; i += 2 * step)
            sum[i] = kb_fadd(K, sum[i], sum[i + step]);
    return sum[0];
}

val rowvec_sum_squares(struct kb *k, const struct rowvec *v)
{
    val squares[ROWVEC_MAX];
    for (int i = 0; i < v->e; i++)
        squares[i] = kb_fmul(K, v->x[i], v->x[i]);
    return rowvec_sum(k, v, squares);
}

/* Turns the magnitude of negative ones. */
val rowvec_sortable(struct kb *k, val bits)
{
    val thirty_one = kb_i32(K, 31);
    val sign = kb_ashr(K, bits, thirty_one);
    val turn = kb_andi(K, sign, 0x7FFFFFFF);
    return kb_xor(K, bits, turn);
}

val rowvec_min(struct kb *k, const struct rowvec *v, const val *x)
{
    val t[ROWVEC_MAX], most = kb_i32(K, 0x7FFFFFFF);
    for (int i = 0; i < v->e; i++) {
        val bits = kb_bitcast(K, x[i], KB_I32);
        t[i] = rowvec_sortable(k, bits);
    }
    val least = reduce_all(k, v, t, most, kb_smin);
    val bits = rowvec_sortable(k, least);
    return kb_bitcast(K, bits, KB_F32);
}

val rowvec_max(struct kb *k, const struct rowvec *v, const val *x)
{
    val infinity = kb_f32_bits(K, 0xFF800000);
    return reduce_all(k, v, x, infinity, kb_fmax);
}

val rowvec_group_sum(struct kb *k, const struct rowvec *v, const val *x, int group, int n)
{
    struct rowvec part = *v;
    part.e = n;
    return reduce(k, &part, x, group / n, kb_fadd);
}

int rowvec_group_max(struct kb *k, const struct rowvec *v, const val *x, int group, val *out)
{
    struct rowvec part = *v;
    int groups = v->e > group ? v->e / group : 1;
    part.e = v->e / groups;
    for (int j = 0; j < groups; j++)
        out[j] = reduce(k, &part, x + j * part.e, group / part.e, kb_fmax);
    return groups;
}

void rowvec_powers(struct kb *k, const struct rowvec *v, val *down, val *up)
{
    val magnitudes[ROWVEC_MAX], most = NULL;
    for (int i = 0; i < v->e; i++) {
        magnitudes[i] = kb_fabs(K, v->x[i]);
        most = most ? kb_fmaxnum(K, most, magnitudes[i]) : magnitudes[i];
    }
    if (v->active ||
        v->lanes == kb_warp_size(k)) /* bits of positive numbers are ordered as they are */
        most = kb_warp_most(K, kb_bitcast(K, most, KB_I32));
    else
        most = kb_bitcast(K, rowvec_max(K, v, magnitudes), KB_I32);
    val field = kb_andi(K, most, 0x7f800000);
    field = kb_smin(K, field, kb_i32(K, 253ll << 23));
    val zero = kb_icmpi(K, KB_EQ, field, 0);
    field = kb_select(K, zero, kb_i32(K, 127ll << 23), field);
    *up = kb_bitcast(K, field, KB_F32);
    val inverse = kb_sub(K, kb_i32(K, 254ll << 23), field);
    *down = kb_bitcast(K, inverse, KB_F32);
}
