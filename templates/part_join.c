/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_join.c - the end of decode: the token warps' sums meet in shared memory and every thread joins
** and writes a few dims of a row.
**
** A pass holds, of each token warp, its rows of `columns` f32: all value dims, or the first, then the
** second half of every lane's run, so that the buffer is half as large. The warps' references and
** denominators lie behind them. Joining by rows in a loop, and not by registers, keeps the code short
** (it is a fifth of the kernel otherwise) and the stores of a warp next to each other.
**
** Two CTAs of a cluster that have splits of one sequence share its rows: each reads its own ones from
** the shared memory of both. What a sequence's further clusters have meets in the workspace, and the
** last of them goes through the same loop once more.
*/
#include "part_output.h"

#include "part_powers.h"
#include "part_splits.h"
#include "part_word_pairs.h"
#include "part_words.h"

struct join {
    const struct attend *a;
    const struct attend_join *to;
    val rows, facts;  /* shared: [token_warps][rows][columns], [token_warps][rows]{m, l} */
    int run, columns; /* dims of a lane's run, dims of a row, in a pass */
    int wide;         /* dims a thread takes at once */
    int pass;
    val phase; /* i32: OWN, then, by the last cluster, so many passes over partial results; NULL: OWN only */
    val single; /* i1: rows are finished after OWN */
    val other;  /* i64: bytes from the CTA's shared memory to its mate's; NULL: it has none */
};

enum { OWN, SPLITS, WARP = 32 };
enum { AHEAD = 2 /* most rows have few parts, and each more is much code */ };

static struct join begin(struct kb *k, const struct attend *a, const struct attend_join *to,
                         val buffers)
{
    const struct plan *p = a->plan;
    struct join j = {.a = a, .to = to, .rows = buffers};
    int passes = plan_join_passes(p);
    j.run = p->dims / passes;
    j.columns = p->geo.value_head_size / passes;
    int most = p->value_words ? words_unit(&p->slot.value) : 4; /* neighbours, of pairs too */
    j.wide = p->dims_overlap ? 1 : j.run % 4 == 0 && most >= 4 ? 4 : j.run % 2 == 0 ? 2 : 1;
    j.facts = kb_offseti(K, buffers, (long long)p->token_warps * p->rows * j.columns * 4);
    return j;
}

static val fact_at(struct kb *k, const struct join *j, val warp, val row)
{
    val place = kb_add(K, kb_muli(K, warp, j->a->plan->rows), row);
    return kb_offset(K, j->facts, kb_shli(K, place, 3));
}

/* First column of the lane's result column e. */
static val column(struct kb *k, const struct join *j, int e)
{
    const struct plan *p = j->a->plan;
    val y = kb_matrix(K)->result_y(K, e);
    if (plan_join_passes(p) == 1)
        return attend_first_dim(K, j->a, y);
    val base = kb_divi(K, j->a->dim_base, plan_join_passes(p));
    return kb_add(K, base, kb_muli(K, y, j->run));
}

static void put_row(struct kb *k, const struct join *j, const struct attend_sums *s, int row)
{
    const struct mma_shape *m = &j->a->shape;
    val first = kb_muli(K, j->to->index, j->a->plan->rows);
    val place = kb_add(K, first, kb_matrix(K)->x_row(K, row));
    val line = kb_offset(K, j->rows, kb_muli(K, place, j->columns * 4));
    for (int e = 0; e < m->ye; e++) {
        val at = kb_offset(K, line, kb_shli(K, column(K, j, e), 2));
        for (int d = 0; d < j->run; d += j->wide) {
            val x[4];
            for (int i = 0; i < j->wide; i++)
                x[i] = s->o[((j->pass * j->run + d + i) * m->lane_rows + row) * m->ye + e];
            val all = j->wide > 1 ? kb_vec(K, x, j->wide) : x[0];
            kb_store(K, all, kb_offseti(K, at, 4 * d), 4 * j->wide);
        }
    }
}

static void put(struct kb *k, const struct join *j, const struct attend_sums *s)
{
    for (int row = 0; row < j->a->shape.lane_rows; row++) {
        put_row(K, j, s, row);
        val at = fact_at(K, j, j->to->index, kb_matrix(K)->x_row(K, row));
        kb_store(K, s->m[row], at, 4); /* equal in all lanes that hold the row */
        kb_store(K, s->l[row], kb_offseti(K, at, 4), 4);
    }
}

/* Value dim of a column in a row. */
static val dim_of(struct kb *k, const struct join *j, val row, val at)
{
    const struct plan *p = j->a->plan;
    bool words = p->value_words || p->value_pairs, turns = powers_turns(p);
    if (j->run == p->dims && !words && !turns)
        return at;
    val y = kb_divi(K, at, j->run), first = kb_i32(K, j->pass);
    if (j->phase) { /* the last pass is followed by all of them */
        val is_own = kb_icmpi(K, KB_EQ, j->phase, OWN);
        first = kb_select(K, is_own, first, kb_addi(K, j->phase, -SPLITS));
    }
    val own = kb_sub(K, at, kb_muli(K, y, j->run));
    own = kb_add(K, own, kb_muli(K, first, j->run));
    if (turns)
        own = powers_dim(K, y, own);
    if (!words)
        return kb_add(K, kb_muli(K, y, j->a->dims), own);
    val member = kb_divi(K, row, p->rows);
    if (p->value_words && p->value_pairs)
        return word_pairs_dim(K, p, member, y, own);
    val turn = p->turned ? kb_i32(K, 0) : words_turn(K, &p->slot.value, member);
    return words_dim(K, p, turn, y, own);
}

/* What the warps left of a row, those of all mates. */
static struct splits_row own_parts(struct kb *k, const struct join *j, val row, val at)
{
    int row_bytes = j->columns * 4;
    struct splits_row own = {.wide = j->wide, .ahead = AHEAD};
    val line = kb_offset(K, j->rows, kb_muli(K, row, row_bytes));
    own.values = kb_offset(K, line, kb_shli(K, at, 2));
    own.facts = kb_offset(K, j->facts, kb_shli(K, row, 3));
    own.values_bytes = kb_muli(K, j->to->set, row_bytes);
    own.fact_bytes = kb_shli(K, j->to->set, 3);
    own.count = kb_shl(K, kb_i32(K, 1), j->to->groups_log);
    return own;
}

/* The same, or what clusters left. */
static struct splits_row parts_of(struct kb *k, const struct join *j, const struct attend_row *r,
                                  val row, val at, val dim)
{
    const struct mates *m = j->to->mates;
    int value_bytes = j->a->plan->geo.value_head_size * 4;
    struct splits_row own = own_parts(K, j, row, at);
    if (!j->phase)
        return own;
    val is_own = kb_icmpi(K, KB_EQ, j->phase, OWN);
    val a = kb_generic(K, own.values), b = kb_offset(K, r->partial, kb_shli(K, dim, 2));
    b = kb_generic(K, b);
    own.values = kb_select(K, is_own, a, b);
    a = kb_generic(K, own.facts);
    b = kb_generic(K, r->facts);
    own.facts = kb_select(K, is_own, a, b);
    own.values_bytes = kb_select(K, is_own, own.values_bytes, kb_i32(K, value_bytes));
    own.fact_bytes = kb_select(K, is_own, own.fact_bytes, kb_i32(K, 8));
    own.count = kb_select(K, is_own, kb_mul(K, own.count, m->count), m->parts);
    if (!j->other)
        return own;
    own.own = kb_select(K, is_own, m->own, kb_i32(K, 0));
    own.other = j->other;
    own.log = kb_select(K, is_own, j->to->groups_log, kb_i32(K, 31));
    return own;
}

/* For whoever joins the splits, or the clusters' parts. */
static void write_part(struct kb *k, const struct join *j, const struct attend_row *r,
                       const struct splits_sum *s, val dim)
{
    val part = j->to->mates ? j->to->mates->part : j->to->split;
    val all = j->wide > 1 ? kb_vec(K, s->x, j->wide) : s->x[0];
    val at = kb_offset(K, r->partial, kb_muli(K, part, j->a->plan->geo.value_head_size * 4));
    kb_store(K, all, kb_offset(K, at, kb_shli(K, dim, 2)), 4 * j->wide);
    struct kb_if first = kb_if(K, kb_icmpi(K, KB_EQ, dim, 0));
    val fact = kb_offset(K, r->facts, kb_shli(K, part, 3));
    kb_store(K, s->m, fact, 4);
    kb_store(K, s->l, kb_offseti(K, fact, 4), 4);
    kb_endif(K, &first);
}

static void write(struct kb *k, const struct join *j, val row, val at)
{
    struct attend_row r;
    j->to->find_row(K, j->to->data, row, &r);
    struct kb_if exists = kb_if(K, r.valid);
    val dim = dim_of(K, j, row, at), final = j->single;
    struct splits_row parts = parts_of(K, j, &r, row, at, dim);
    struct splits_sum s = splits_chain(K, &parts, kb_i32(K, 0), kb_i32(K, 1));
    if (j->phase)
        final = kb_or(K, final, kb_icmpi(K, KB_NE, j->phase, OWN));
    struct kb_if finished = kb_if(K, final);
    struct splits_target to = {.lse = r.lse, .head = r.head, .first = kb_icmpi(K, KB_EQ, dim, 0)};
    to.out = kb_offset(K, r.out, kb_shli(K, dim, 1));
    splits_write(K, &s, &to, j->wide);
    kb_else(K, &finished);
    write_part(K, j, &r, &s, dim);
    kb_endif(K, &finished);
    kb_endif(K, &exists);
}

/* The thread's i-th item of all mates'. They take warps' worth of items in turn. */
static val item(struct kb *k, const struct join *j, val i)
{
    const struct mates *m = j->to->mates;
    if (!m)
        return i;
    val lane = kb_remi(K, i, WARP), warp = kb_divi(K, i, WARP);
    val all = kb_add(K, kb_mul(K, warp, m->count), m->own);
    return kb_add(K, kb_muli(K, all, WARP), lane);
}

/* Place of an existing row in the buffers, where each KV head has as many as the plan. */
static val place(struct kb *k, const struct join *j, val row)
{
    val head = kb_udiv(K, row, j->to->exist);
    val own = kb_sub(K, row, kb_mul(K, head, j->to->exist));
    return kb_add(K, kb_muli(K, head, j->a->plan->rows), own);
}

static void write_rows(struct kb *k, const struct join *j)
{
    int columns = j->columns / j->wide;
    val i = kb_tid(K);
    struct kb_loop loop;
    kb_loop_begin(K, &loop, &i, 1);
    val it = item(K, j, i);
    kb_loop_while(K, &loop, kb_icmp(K, KB_SLT, it, kb_muli(K, j->to->rows, columns)));
    loop.rolled = true;
    val row = kb_divi(K, it, columns);
    val at = kb_sub(K, it, kb_muli(K, row, columns));
    val own = place(K, j, row);
    write(K, j, own, kb_muli(K, at, j->wide));
    i = kb_addi(K, i, j->a->plan->warps * kb_warp_size(K));
    kb_loop_end(K, &loop);
}

/* The mates' rows; then, by the last of the clusters that share them, all their parts. */
static void write_phases(struct kb *k, struct join *j)
{
    int phases = SPLITS + plan_join_passes(j->a->plan);
    j->phase = kb_i32(K, OWN);
    struct kb_loop loop;
    kb_loop_begin(K, &loop, &j->phase, 1);
    kb_loop_while(K, &loop, kb_icmpi(K, KB_SLT, j->phase, phases));
    loop.rolled = true;
    write_rows(K, j);
    val own = kb_icmpi(K, KB_EQ, j->phase, OWN), next = kb_addi(K, j->phase, 1);
    struct kb_if first = kb_if(K, own);
    kb_cluster_barrier(K); /* nobody reads the CTA's sums any more, and all parts are written */
    val over = kb_i32(K, phases);
    struct kb_if arrives = kb_if(K, kb_and(K, kb_not(K, j->single), j->to->arrives));
    val last = arrive_last(K, j->to->mates);
    val after = kb_select(K, last, next, over);
    kb_endif(K, &arrives);
    after = kb_merge(K, &arrives, after, over);
    kb_endif(K, &first);
    j->phase = kb_merge(K, &first, after, next);
    kb_loop_end(K, &loop);
}

static void barrier(struct kb *k, const struct attend_join *to)
{
    if (to->mates)
        kb_cluster_barrier(K);
    else
        kb_barrier(K);
}

void attend_join(struct kb *k, const struct attend *a, const struct attend_sums *s,
                 const struct attend_join *to, val buffers)
{
    struct join j = begin(K, a, to, buffers);
    int passes = plan_join_passes(a->plan);
    if (a->plan->neighbours > 1) {
        val own = kb_generic(K, buffers), rank = kb_sub(K, kb_i32(K, 1), to->rank);
        j.other = kb_distance(K, own, kb_neighbour(K, own, rank));
    }
    j.single = kb_icmpi(K, KB_EQ, to->mates ? to->mates->parts : to->count, 1);
    for (j.pass = 0; j.pass < passes; j.pass++) {
        if (j.pass)
            barrier(K, to);
        else
            kb_barrier(K); /* all warps have read what was in the buffers */
        put(K, &j, s);
        barrier(K, to);
        if (to->mates && j.pass == passes - 1)
            write_phases(K, &j);
        else
            write_rows(K, &j);
    }
}
