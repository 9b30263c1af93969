/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_join.c - the end of decode: the token warps' sums meet in shared memory and every thread joins
** and writes a few dims of a row.
**
** A pass holds, of each token warp, its rows of `columns` f32: all value dims, or the first, then the
** second half of every lane's run, so that the buffer is half as large. The warps' references and
** denominators lie behind them. Joining by rows in a loop, and not by registers, keeps the code short
** (it is a fifth of the kernel otherwise) and the stores of a warp next to each other.
*/
#include "part_output.h"

#include "part_finite.h"
#include "part_words.h"

struct join {
    const struct attend *a;
    const struct attend_join *to;
    val rows, facts;  /* shared: [token_warps][rows][columns], [token_warps][rows]{m, l} */
    int run, columns; /* dims of a lane's run, dims of a row, in a pass */
    int wide;         /* dims a thread takes at once */
    int first;        /* of the run, in this pass */
};

static struct join begin(struct kb *k, const struct attend *a, const struct attend_join *to,
                         val buffers)
{
    const struct plan *p = a->plan;
    struct join j = {.a = a, .to = to, .rows = buffers};
    int passes = plan_join_passes(p);
    j.run = p->dims / passes;
    j.columns = p->geo.value_head_size / passes;
    int most = p->value_words ? words_unit(&p->slot.value) : 4; /* neighbours */
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
                x[i] = s->o[((j->first + d + i) * m->lane_rows + row) * m->ye + e];
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

struct joined {
    val m, l, none; /* reference, denominator, no key was seen */
    val x[4];
};

/* The same for as many sets of rows as a launch has groups: a loop that keeps the sums under the
** highest reference so far. */
static struct joined gather_groups(struct kb *k, const struct join *j, val row, val first_column)
{
    struct {
        val i, place, m, l, x[4];
    } c = {.i = kb_i32(K, 0), .place = row, .m = kb_f32_bits(K, 0xff800000)};
    int type = j->wide > 1 ? KB_VEC(KB_F32, j->wide) : KB_F32;
    c.l = kb_f32(K, 0);
    for (int i = 0; i < j->wide; i++)
        c.x[i] = c.l;
    struct kb_loop loop;
    kb_loop_begin(K, &loop, (val *)&c, sizeof c / sizeof(val));
    kb_loop_while(K, &loop, kb_icmp(K, KB_SLT, c.i, j->to->groups));
    val facts = kb_offset(K, j->facts, kb_shli(K, c.place, 3)), m = kb_load(K, KB_F32, facts, 4);
    val l = kb_load(K, KB_F32, kb_offseti(K, facts, 4), 4);
    val line = kb_offset(K, j->rows, kb_muli(K, c.place, j->columns * 4));
    val v = kb_load(K, type, kb_offset(K, line, kb_shli(K, first_column, 2)), 4 * j->wide);
    val before = c.m;
    c.m = kb_fmaxnum(K, before, m);
    val none = kb_fcmp(K, KB_OEQ, c.m, kb_f32_bits(K, 0xff800000));
    val safe = kb_select(K, none, kb_f32(K, 0), c.m);
    val old = kb_exp2(K, kb_fsub(K, before, safe)), own = kb_exp2(K, kb_fsub(K, m, safe));
    c.l = kb_fma(K, l, own, kb_fmul(K, c.l, old));
    for (int i = 0; i < j->wide; i++) {
        val x = j->wide > 1 ? kb_extract(K, v, i) : v;
        c.x[i] = kb_fma(K, x, own, kb_fmul(K, c.x[i], old));
    }
    c.i = kb_addi(K, c.i, 1);
    c.place = kb_add(K, c.place, j->to->rows);
    kb_loop_end(K, &loop);
    struct joined all = {.m = c.m, .l = c.l};
    all.none = kb_fcmp(K, KB_OEQ, c.m, kb_f32_bits(K, 0xff800000));
    for (int i = 0; i < j->wide; i++)
        all.x[i] = c.x[i];
    return all;
}

static struct joined gather(struct kb *k, const struct join *j, val row, val first_column)
{
    int warps = j->a->plan->token_warps;
    struct joined all = {.m = kb_f32_bits(K, 0xff800000), .l = kb_f32(K, 0)};
    if (j->to->groups)
        return gather_groups(K, j, row, first_column);
    val m[16], l[16];
    for (int w = 0; w < warps; w++) {
        val at = fact_at(K, j, kb_i32(K, w), row);
        m[w] = kb_load(K, KB_F32, at, 4);
        l[w] = kb_load(K, KB_F32, kb_offseti(K, at, 4), 4);
        all.m = kb_fmaxnum(K, all.m, m[w]);
    }
    for (int i = 0; i < j->wide; i++)
        all.x[i] = kb_f32(K, 0);
    all.none = kb_fcmp(K, KB_OEQ, all.m, kb_f32_bits(K, 0xff800000));
    val safe = kb_select(K, all.none, kb_f32(K, 0), all.m);
    val line = kb_offset(K, j->rows, kb_muli(K, row, j->columns * 4));
    line = kb_offset(K, line, kb_shli(K, first_column, 2));
    for (int w = 0; w < warps; w++) {
        int type = j->wide > 1 ? KB_VEC(KB_F32, j->wide) : KB_F32;
        val factor = kb_exp2(K, kb_fsub(K, m[w], safe));
        val at = kb_offseti(K, line, (long long)w * j->a->plan->rows * j->columns * 4);
        val v = kb_load(K, type, at, 4 * j->wide);
        all.l = kb_fma(K, l[w], factor, all.l);
        for (int i = 0; i < j->wide; i++) {
            val x = j->wide > 1 ? kb_extract(K, v, i) : v;
            all.x[i] = kb_fma(K, x, factor, all.x[i]);
        }
    }
    return all;
}

/* Value dim of a column of this pass in a row. */
static val dim_of(struct kb *k, const struct join *j, val row, val at)
{
    const struct plan *p = j->a->plan;
    if (p->value_words) {
        val turn = words_turn(K, &p->slot.value, kb_divi(K, row, p->rows));
        val lane = kb_divi(K, at, j->run), own = kb_sub(K, at, kb_muli(K, lane, j->run));
        return words_dim(K, p, turn, lane, kb_addi(K, own, j->first));
    }
    if (j->run == j->a->plan->dims)
        return at;
    val y = kb_divi(K, at, j->run);
    val rest = kb_sub(K, at, kb_muli(K, y, j->run));
    return kb_addi(K, kb_add(K, kb_muli(K, y, j->a->dims), rest), j->first);
}

static void write_final(struct kb *k, const struct join *j, val at, const val *x)
{
    int type = j->a->plan->geo.dtype == KVK_FLOAT16 ? KB_F16 : KB_BF16;
    for (int i = 0; i < j->wide; i++) {
        val half = to_row(K, x[i], type);
        kb_store(K, half, kb_offseti(K, at, 2 * i), 2);
    }
}

/* The row's LSE, by the thread of its first dim. */
static void write_lse(struct kb *k, const struct join *j, const struct attend_row *r,
                      const struct joined *s, val dim)
{
    val base = kb_param(K, "lse");
    val given = kb_not(K, kb_is_null(K, base));
    val first = kb_icmpi(K, KB_EQ, dim, 0);
    val wanted = kb_select(K, j->to->single, given, kb_i1(K, true));
    struct kb_if writes = kb_if(K, kb_and(K, first, wanted));
    val lse = kb_fadd(K, s->m, kb_log2(K, s->l));
    lse = kb_select(K, s->none, kb_f32_bits(K, 0xff800000), lse);
    val natural = kb_fmul(K, lse, kb_f32(K, 0.6931471805599453));
    struct kb_if single = kb_if(K, j->to->single);
    kb_store(K, natural, r->lse, 4);
    kb_else(K, &single);
    kb_store(K, lse, r->partial_lse, 4);
    kb_endif(K, &single);
    kb_endif(K, &writes);
}

static void write(struct kb *k, const struct join *j, val row, val at)
{
    struct attend_row r;
    j->to->find_row(K, j->to->data, row, &r);
    struct kb_if exists = kb_if(K, r.valid);
    struct joined s = gather(K, j, row, at);
    val dim = dim_of(K, j, row, at);
    val sink = attend_sink(K, r.head); /* counts once: where the row is finished */
    val weight = kb_exp2(K, kb_fsub(K, sink, kb_select(K, s.none, sink, s.m)));
    weight = kb_select(K, j->to->single, weight, kb_f32(K, 0));
    val factor = kb_rcp(K, kb_fadd(K, s.l, weight));
    factor = kb_select(K, s.none, kb_f32(K, 0), factor);
    for (int i = 0; i < j->wide; i++)
        s.x[i] = kb_fmul(K, s.x[i], factor);
    struct kb_if single = kb_if(K, j->to->single);
    write_final(K, j, kb_offset(K, r.out, kb_shli(K, dim, 1)), s.x);
    kb_else(K, &single);
    val all = j->wide > 1 ? kb_vec(K, s.x, j->wide) : s.x[0];
    kb_store(K, all, kb_offset(K, r.partial, kb_shli(K, dim, 2)), 4 * j->wide);
    kb_endif(K, &single);
    write_lse(K, j, &r, &s, dim);
    kb_endif(K, &exists);
}

static void write_rows(struct kb *k, const struct join *j)
{
    int columns = j->columns / j->wide;
    val i = kb_tid(K);
    struct kb_loop loop;
    kb_loop_begin(K, &loop, &i, 1);
    kb_loop_while(K, &loop, kb_icmp(K, KB_SLT, i, kb_muli(K, j->to->rows, columns)));
    val row = kb_divi(K, i, columns);
    val at = kb_sub(K, i, kb_muli(K, row, columns));
    write(K, j, row, kb_muli(K, at, j->wide));
    i = kb_addi(K, i, j->a->plan->warps * kb_warp_size(K));
    kb_loop_end(K, &loop);
}

void attend_join(struct kb *k, const struct attend *a, const struct attend_sums *s,
                 const struct attend_join *to, val buffers)
{
    struct join j = begin(K, a, to, buffers);
    for (int pass = 0; pass < plan_join_passes(a->plan); pass++) {
        j.first = pass * j.run;
        kb_barrier(K); /* all have read what was in the buffers */
        put(K, &j, s);
        kb_barrier(K);
        write_rows(K, &j);
    }
}
