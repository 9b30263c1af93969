/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_reference.c - the running reference of the softmax, and the sums that follow it.
**
** Any reference m within reach of a row's largest score serves: exp2(u - m) must neither overflow 16
** bits nor all be subnormal. So, where a warp can vote (plan->lazy_reference), m only moves when some
** score passes it by HEADROOM, and a step costs one comparison a row instead of a maximum over lanes.
**
** Value codes that are not centred (plan->centre_tokens) make sums grow with their middle, and the matrix unit's
** accumulation truncates: the middle is taken off before that shows, in the same rare branch.
*/
#include "part_reference.h"

enum { HEADROOM = 8 }; /* weights times scales stay below 2^9 */

/* Before any score: below all of them, and finite where a masked score (-inf) less it must be -inf. */
static val no_score(struct kb *k, const struct attend *a)
{
    return kb_f32_bits(K, a->plan->lazy_reference ? 0xff7fffff : 0xff800000);
}

static int sums_of(const struct attend *a) { return a->dims * a->shape.lane_rows * a->shape.ye; }
static int row_of(const struct attend *a, int i) { return i / a->shape.ye % a->shape.lane_rows; }
static int middle_sums(const struct attend *a)
{
    return a->plan->centre_tokens ? a->shape.tiles * a->shape.lane_rows * a->shape.ye : 0;
}

static void clear_middle(struct kb *k, const struct attend *a, struct attend_sums *s)
{
    for (int i = 0; i < middle_sums(a); i++)
        s->middle[i] = kb_f32(K, 0);
}

void attend_clear(struct kb *k, const struct attend *a, struct attend_sums *s)
{
    for (int row = 0; row < a->shape.lane_rows; row++) {
        s->m[row] = no_score(K, a);
        s->l[row] = kb_f32(K, 0);
        s->z[row] = kb_f32(K, 0);
    }
    for (int i = 0; i < sums_of(a); i++)
        s->o[i] = kb_f32(K, 0);
    clear_middle(K, a, s);
}

static val lanes_most(struct kb *k, val most)
{
    int masks[4], n = kb_matrix(K)->reduce_masks(kb_target(K), masks);
    for (int i = 0; i < n; i++) {
        val other = kb_shuffle_xor(K, most, masks[i]);
        most = kb_fmaxnum(K, most, other);
    }
    return most;
}

void attend_gain_middle(struct kb *k, const struct attend *a, const val *x, struct attend_sums *s)
{
    if (!middle_sums(a))
        return;
    val y[8];
    for (int i = 0; i < a->shape.tiles * a->shape.ke / 2; i++)
        y[i] = kb_i32(K, attend_value_middle(a));
    kb_matrix(K)->mma(K, KB_F16, s->middle, x, y);
}

/* Sums less the middle's, which codes that stand at other bits have so many times, times the row's factor (NULL: 1). */
static void take_middle(struct kb *k, const struct attend *a, struct attend_sums *s,
                        const val *factor)
{
    int each = a->shape.lane_rows * a->shape.ye;
    val own[ATTEND_MASKS][ATTEND_ROWS] = {{NULL}};
    for (int i = 0; i < sums_of(a); i++) {
        int row = row_of(a, i), bit = attend_value_bit(a, i / each);
        val *x = &own[bit][row];
        if (!*x) {
            val power = kb_f32(K, factor ? -(1 << bit) : 1 << bit);
            *x = kb_fmul(K, s->middle[row * a->shape.ye], power);
            if (factor)
                *x = kb_fmul(K, *x, factor[row]);
        }
        s->o[i] = factor ? kb_fma(K, s->o[i], factor[row], *x) : kb_fsub(K, s->o[i], *x);
    }
    clear_middle(K, a, s);
}

void attend_centre(struct kb *k, const struct attend *a, struct attend_sums *s)
{
    if (middle_sums(a))
        take_middle(K, a, s, NULL);
}

/* The middle's sum is as much of an output wherever its codes stand: it joins what all of a row's dims have. */
void attend_close_middle(struct kb *k, const struct attend *a, struct attend_sums *s)
{
    for (int row = 0; middle_sums(a) && row < a->shape.lane_rows; row++) {
        val factor = kb_f32(K, -attend_value_factor(a, 0) * (1 << attend_value_bit(a, 0)));
        s->z[row] = kb_fma(K, s->middle[row * a->shape.ye], factor, s->z[row]);
    }
}

/* Sums, centred, under a reference that becomes m[row]. */
static void rescale(struct kb *k, const struct attend *a, struct attend_sums *s, const val *factor)
{
    for (int row = 0; row < a->shape.lane_rows; row++) {
        s->l[row] = kb_fmul(K, s->l[row], factor[row]);
        s->z[row] = kb_fmul(K, s->z[row], factor[row]);
    }
    if (middle_sums(a))
        take_middle(K, a, s, factor);
    else
        for (int i = 0; i < sums_of(a); i++)
            s->o[i] = kb_fmul(K, s->o[i], factor[row_of(a, i)]);
}

void attend_merge_sums(struct kb *k, const struct attend *a, const struct kb_if *taken,
                       struct attend_sums *s, const struct attend_sums *before)
{
    for (int row = 0; row < a->shape.lane_rows; row++) {
        s->m[row] = kb_merge(K, taken, s->m[row], before->m[row]);
        s->l[row] = kb_merge(K, taken, s->l[row], before->l[row]);
        s->z[row] = kb_merge(K, taken, s->z[row], before->z[row]);
    }
    for (int i = 0; i < sums_of(a); i++)
        s->o[i] = kb_merge(K, taken, s->o[i], before->o[i]);
    for (int i = 0; i < middle_sums(a); i++)
        s->middle[i] = kb_merge(K, taken, s->middle[i], before->middle[i]);
}

/* Once every centre_tokens of a warp's tokens, wherever its range begins. */
val attend_centring_due(struct kb *k, const struct attend *a, val start)
{
    const struct plan *p = a->plan;
    if (!middle_sums(a))
        return NULL;
    int steps = p->centre_tokens / (16 * p->subtiles);
    val bits = kb_muli(K, a->stride, steps - 1);
    return kb_icmpi(K, KB_EQ, kb_and(K, start, bits), 0);
}

val attend_is_above(struct kb *k, int row, val most, const struct attend_sums *s)
{
    return kb_fcmp(K, KB_OGT, most, kb_fadd(K, s->m[row], kb_f32(K, HEADROOM)));
}

void attend_move_reference(struct kb *k, const struct attend *a, const val *most,
                           struct attend_sums *s)
{
    val factor[ATTEND_ROWS];
    for (int row = 0; row < a->shape.lane_rows; row++) {
        val all = lanes_most(K, most[row]), m = s->m[row];
        s->m[row] = kb_fmaxnum(K, m, all);
        factor[row] = kb_exp2(K, kb_fsub(K, m, s->m[row]));
    }
    rescale(K, a, s, factor);
}

static val finite(struct kb *k, val m)
{
    val none = kb_fcmp(K, KB_OEQ, m, kb_f32_bits(K, 0xff800000));
    return kb_select(K, none, kb_f32(K, 0), m);
}

/* References are exact maxima; in most steps no row's moves, and the sums are left alone. */
void attend_reference(struct kb *k, const struct attend *a, const val *most, struct attend_sums *s,
                      val *reference)
{
    val old[ATTEND_ROWS], factor[ATTEND_ROWS], moved = NULL;
    for (int row = 0; row < a->shape.lane_rows; row++) {
        val all = lanes_most(K, most[row]);
        old[row] = s->m[row];
        s->m[row] = kb_fmaxnum(K, old[row], all);
        reference[row] = finite(K, s->m[row]);
        val higher = kb_fcmp(K, KB_OGT, s->m[row], old[row]);
        moved = moved ? kb_or(K, moved, higher) : higher;
    }
    struct attend_sums before = *s;
    struct kb_if any = kb_if(K, moved);
    for (int row = 0; row < a->shape.lane_rows; row++)
        factor[row] = kb_exp2(K, kb_fsub(K, old[row], reference[row]));
    rescale(K, a, s, factor);
    kb_endif(K, &any);
    attend_merge_sums(K, a, &any, s, &before);
    kb_warp_sync(K); /* the matrix unit wants the warp together again */
}

void attend_close_reference(struct kb *k, const struct attend *a, struct attend_sums *s)
{
    for (int row = 0; a->plan->lazy_reference && row < a->shape.lane_rows; row++) {
        val none = kb_fcmp(K, KB_OEQ, s->m[row], no_score(K, a));
        s->m[row] = kb_select(K, none, kb_f32_bits(K, 0xff800000), s->m[row]);
    }
}
