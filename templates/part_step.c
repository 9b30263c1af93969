/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_step.c - one step: scores, mask, running maximum, weights, output sums.
*/
#include "part_query.h"
#include "part_reference.h"
#include "part_scaled.h"
#include "part_squares.h"

#include <string.h>

enum {
    LEAST_LOG_SCALE = -25
}; /* below the smallest fp16, so that a scale of 0 does not pull the reference down */

/* Facts of one token, four f32 in shared memory. */
enum { FACT_KEY, FACT_LOG_SCALE, FACT_SCALE, FACT_ZERO, FACTS };

struct token_facts {
    val f[FACTS], key_zero;
};

static int tokens_of(const struct attend *a) { return 16 * a->plan->subtiles; }
static bool has_facts(const struct attend *a) { return a->plan->slot.fields > 0; }

/* floor(log2 |s|) from the exponent field, at least LEAST_LOG_SCALE. */
static val log_scale(struct kb *k, val s)
{
    val bits = kb_andi(K, kb_lshri(K, kb_bitcast(K, s, KB_I32), 23), 255);
    val e = kb_smax(K, kb_addi(K, bits, -127), kb_i32(K, LEAST_LOG_SCALE));
    return kb_sitofp(K, e);
}

/* Field i of a side of the lane's own token, made finite. */
static val field(struct kb *k, const struct attend *a, const struct attend_codes *c, bool value,
                 int i)
{
    int first = value ? a->plan->slot.key.fields : 0;
    return slot_finite_field(K, c->field[first + i]);
}

/* Stored value fields of a token that does not exist may be anything: replaced by selection. */
static void value_facts(struct kb *k, const struct attend *a, const struct attend_codes *c,
                        val token, val exists, val *fact)
{
    const struct side *side = &a->plan->slot.value;
    val none = kb_f32(K, 0);
    val s = field(K, a, c, true, 0);
    if (side->norm_at_read)
        s = kb_fmul(K, s, attend_inverse_length(K, a, token));
    s = kb_select(K, exists, s, none);
    fact[FACT_LOG_SCALE] = log_scale(K, s);
    fact[FACT_SCALE] = s;
    if (side->codec.kind != CODEC_AFFINE)
        return;
    val z = kb_select(K, exists, field(K, a, c, true, 1), none);
    val middle = kb_f32(K, 1 << (side->codec.bits - 1));
    fact[FACT_ZERO] = kb_fma(K, s, middle, z);
}

static val extra_at(struct kb *k, const struct attend *a, val token)
{
    val at = kb_offset(K, a->scratch, kb_shli(K, token, 2));
    return kb_offseti(K, at, tokens_of(a) * FACTS * 4);
}

/* Each lane prepares the facts of token lane % tokens; lanes beyond repeat them. */
static void put_facts(struct kb *k, const struct attend *a, val start, const struct attend_codes *c)
{
    const struct slot *slot = &a->plan->slot;
    int tokens = tokens_of(a);
    val place = kb_andi(K, kb_lane(K), tokens - 1), key_zero = NULL;
    val token = a->own_token ? a->own_token : place;
    val exists = kb_icmp(K, KB_SLT, kb_add(K, start, token), a->length);
    val fact[FACTS] = {kb_f32(K, 1), kb_f32(K, 0), kb_f32(K, 1), kb_f32(K, 0)};
    if (slot->key.fields)
        fact[FACT_KEY] = field(K, a, c, false, 0);
    if (slot->key.codec.kind == CODEC_AFFINE) {
        val middle = kb_f32(K, 1 << (slot->key.codec.bits - 1));
        key_zero = kb_fma(K, fact[FACT_KEY], middle, field(K, a, c, false, 1));
    }
    if (slot->value.fields)
        value_facts(K, a, c, token, exists, fact);
    kb_warp_sync(K); /* the step before has read its facts */
    val all = kb_vec(K, fact, FACTS);
    val to = a->facts_to ? a->facts_to : kb_offset(K, a->scratch, kb_shli(K, place, 4));
    kb_store(K, all, to, 16);
    if (key_zero)
        kb_store(K, key_zero, extra_at(K, a, place), 4);
}

/* Rows `first` after a row below 8 belong to so many tokens after that row's. */
static int row_tokens(const struct attend *a, int first)
{
    return a->image ? first / 16 * 16 + first % 16 / 8 * a->tokens_8 : first;
}

/* Token of the step that element e of result tile `first` / y_tile is for. */
static val result_token(struct kb *k, const struct attend *a, int first, int e)
{
    val row = a->image ? a->result_token[e] : kb_matrix(K)->result_y(K, e);
    return kb_addi(K, row, row_tokens(a, first));
}

/* Sums of squares of centroids lie where affine keys have their zero. */
static void put_squares(struct kb *k, const struct attend *a, val squares, int first)
{
    int masks[4], n = kb_matrix(K)->group_masks(kb_target(K), masks);
    for (int i = 0; i < n; i++) {
        val other = kb_shuffle_xor(K, squares, masks[i]);
        squares = kb_fadd(K, squares, other);
    }
    val token = a->y_token ? kb_addi(K, a->y_token, row_tokens(a, first)) : kb_addi(K, a->y, first);
    kb_store(K, squares, extra_at(K, a, token), 4);
}

static void get_facts(struct kb *k, const struct attend *a, int first, int e, struct token_facts *t)
{
    val token = result_token(K, a, first, e);
    val at = kb_offset(K, a->scratch, kb_shli(K, token, 4));
    if (a->facts_from) /* of the first, where a lane has one of each tile */
        at = kb_offseti(K, a->facts_from, 16LL * (a->plan->turned ? first : row_tokens(a, first)));
    val v = kb_load(K, KB_VEC(KB_F32, FACTS), at, 16);
    for (int i = 0; i < FACTS; i++)
        t->f[i] = kb_extract(K, v, i);
    if (a->plan->slot.key.codec.kind == CODEC_AFFINE)
        t->key_zero = kb_load(K, KB_F32, extra_at(K, a, token), 4);
    if (!a->plan->slot.key.norm_at_read || a->plan->squares)
        return;
    val squares = kb_load(K, KB_F32, extra_at(K, a, token), 4);
    val inverse = kb_rsqrt(K, kb_fadd(K, squares, kb_f32(K, 1e-16)));
    t->f[FACT_KEY] = kb_fmul(K, t->f[FACT_KEY], inverse);
}

int attend_result(const struct attend *a, int tile, int row, int e)
{
    return (tile * a->shape.lane_rows + row) * a->shape.ye + e;
}

static int operand_type(enum plan_operand o) { return o == OPERAND_F16 ? KB_F16 : KB_BF16; }

/* Squares of a Y tile's centroids: pairs in f16, one after the other, */
static void gain_squares(struct kb *k, const struct attend *a, const val *y, val *pairs)
{
    for (int i = 0; i < a->shape.tiles * a->shape.ke / 2; i++) {
        val x = kb_bitcast(K, y[i], KB_VEC(KB_F16, 2));
        pairs[i] = pairs[i] ? kb_fma(K, x, x, pairs[i]) : kb_fmul(K, x, x);
    }
}

/* and soon, before rounding shows, the matrix unit's sums: products with a query of ones. Lanes are joined by that,
** and the results for each token lie where its scores do. */
static void join_squares(struct kb *k, const struct attend *a, val *pairs, val *sums)
{
    const struct mma_shape *m = &a->shape;
    val x[16], y[8];
    for (int i = 0; i < 16; i++)
        x[i] = kb_i32(K, 0x3c003c00);
    for (int i = 0; i < m->tiles * m->ke / 2; i++) {
        y[i] = kb_bitcast(K, pairs[i], KB_I32);
        pairs[i] = NULL;
    }
    kb_matrix(K)->mma(K, KB_F16, sums, x, y);
}

/* Can a key be nothing but zeros? Else its length is far above what is added against that (plan_squares_possible). */
static bool has_zero(const struct codec *c)
{
    for (int i = 0; i < c->ncentroids; i++)
        if (c->centroids[i] == 0)
            return true;
    return false;
}

/* Of a result's key, of the step's [tile][e]. */
static void inverse_lengths(struct kb *k, const struct attend *a, const val *sums, val *inverse)
{
    int each = a->shape.lane_rows * a->shape.ye;
    for (int i = 0; i < a->plan->subtiles * a->y_tiles; i++)
        for (int e = 0; e < a->shape.ye; e++) {
            val squares = sums[i * each + e];
            if (has_zero(&a->plan->slot.key.codec))
                squares = kb_fadd(K, squares, kb_f32(K, 1e-16));
            inverse[i * a->shape.ye + e] = kb_rsqrt(K, squares);
        }
}

enum { SQUARES = 2 }; /* pairs that are added in f16 */

/* r = Q K^T for all subtiles: one pass over D, the query's operands are read once. plan->squares: inverse[tile][e],
** 1 / length of a result's key. */
static void products(struct kb *k, const struct attend *a, const struct attend_codes *c, val *r,
                     val *inverse)
{
    const struct plan *p = a->plan;
    int n = p->subtiles * a->y_tiles, each = a->shape.lane_rows * a->shape.ye,
        type = operand_type(p->key_operand);
    val squares[ATTEND_SUBTILES * 2] = {NULL}, pairs[ATTEND_SUBTILES * 2][16] = {{NULL}},
                                  sums[PLAN_RESULTS];
    for (int i = 0; i < n * each; i++)
        r[i] = sums[i] = kb_f32(K, 0);
    val again = kb_opaque(
        K,
        kb_i32(K,
               0)); /* else the operands of all steps would be kept in registers across the loop */
    val tile = kb_offset(K, a->query, again);
    if (p->key_operand == OPERAND_SCALED) {
        attend_scaled_products(K, a, tile, c, r);
        return;
    }
    val both[2][16];
    for (int s = 0; s * a->shape.ke < a->key_run; s++) {
        val *x = both[s % 2], low[16], y[8];
        if (!p->swizzled)
            attend_query_operand(K, a, tile, s, 0, x);
        else if (s % 2 == 0)
            attend_query_operands(K, a, tile, s, (val *const[]){both[0], both[1]});
        if (p->key_operand == OPERAND_BF16_SPLIT)
            attend_query_operand(K, a, tile, s, 1, low);
        for (int i = 0; i < n; i += a->shape.tiles) {
            for (int t = 0; t < a->shape.tiles; t++)
                attend_key_operand(K, a, c, i / a->y_tiles, i % a->y_tiles + t, s,
                                   y + t * a->shape.ke / 2, &squares[i + t]);
            kb_matrix(K)->mma(K, type, r + i * each, x, y);
            if (p->key_operand == OPERAND_BF16_SPLIT)
                kb_matrix(K)->mma(K, type, r + i * each, low, y);
            if (p->squares)
                gain_squares(K, a, y, pairs[i]);
            if (p->squares && (s % SQUARES == SQUARES - 1 || (s + 1) * a->shape.ke >= a->key_run))
                join_squares(K, a, pairs[i], sums + i * each);
        }
    }
    if (p->squares)
        inverse_lengths(K, a, sums, inverse);
    else if (p->slot.key.norm_at_read)
        for (int i = 0; i < n; i++)
            put_squares(K, a, squares[i], i * a->shape.y_tile);
}

/* soft_cap * tanh(t / soft_cap), in log2 units throughout: tanh x = 1 - 2 / (e^2x + 1). */
static val cap_score(struct kb *k, const struct attend *a, val t)
{
    val x = kb_fmul(K, t, kb_rcp(K, a->soft_cap));
    val power = kb_exp2(K, kb_fmul(K, x, kb_f32(K, 2 * 1.4426950408889634)));
    val inverse = kb_rcp(K, kb_fadd(K, power, kb_f32(K, 1)));
    val tanh = kb_fma(K, inverse, kb_f32(K, -2), kb_f32(K, 1));
    return kb_fmul(K, tanh, a->soft_cap);
}

/* Scales of 8 bits of exponent: half a last bit of a score may be a power of two that overflows. */
static bool any_size(const struct codec *c)
{
    return c->kind == CODEC_BLOCK_FLOAT && c->rule != BLOCK_NVFP4;
}

/* Do scores wait for their row's scale? It joins what is added to or taken from them then, so it must not be 0, which
** it may become under powers, and what was rounded to be the reference meets what was not: equal scores no longer weigh
** exactly 1. So only where an instruction a score counts. */
static bool scale_later(const struct attend *a)
{
    const struct plan *p = a->plan;
    bool plain = !(p->geo.options & (KVK_SOFT_CAP | KVK_ALIBI));
    return p->images && p->lazy_reference && plain && !p->powers && !any_size(&p->slot.key.codec);
}

/* A product to a score in log2 units. */
static val score(struct kb *k, const struct attend *a, val product, const struct token_facts *t,
                 int row, val key)
{
    val x = product;
    if (a->plan->slot.key.fields)
        x = kb_fmul(K, x, t->f[FACT_KEY]);
    if (a->plan->slot.key.codec.kind == CODEC_AFFINE)
        x = kb_fma(K, t->key_zero, a->row_sum[row], x);
    if (scale_later(a))
        return x;
    x = kb_fmul(K, x, a->row_scale[row]);
    if (a->plan->geo.options & KVK_SOFT_CAP)
        x = cap_score(K, a, x);
    if (a->plan->geo.options & KVK_ALIBI) {
        val distance = kb_sitofp(K, kb_sub(K, key, a->position[row]));
        x = kb_fma(K, distance, a->slope[row], x);
    }
    return x;
}

/* A score, its row's scale included, plus y. */
static val score_and(struct kb *k, const struct attend *a, val x, int row, val y)
{
    return scale_later(a) ? kb_fma(K, x, a->row_scale[row], y) : kb_fadd(K, x, y);
}

/* -inf where the row does not see the key; before its scale is known to be negative, inf. */
static val masked(struct kb *k, const struct attend *a, val x, val key, int row)
{
    val not_early = kb_icmp(K, KB_SGE, key, a->first[row]);
    val not_late = kb_icmp(K, KB_SLE, key, a->last[row]);
    val visible = kb_and(K, not_early, not_late), none = kb_f32_bits(K, 0xff800000);
    if (scale_later(a)) {
        val negative = kb_fcmp(K, KB_OLT, a->row_scale[row], kb_f32(K, 0));
        none = kb_select(K, negative, kb_f32_bits(K, 0x7f800000), none);
    }
    return kb_select(K, visible, x, none);
}

/* The largest of the lane's own scores of a row, each with the log of its token's value scale. */
static val lane_most(struct kb *k, const struct attend *a, const val *r, int row,
                     const struct token_facts *facts)
{
    bool fields = a->plan->slot.value.fields;
    val most = NULL;
    for (int i = 0; i < a->plan->subtiles * a->y_tiles; i++)
        for (int e = 0; e < a->shape.ye; e++) {
            val log = fields ? facts[i * a->shape.ye + e].f[FACT_LOG_SCALE] : kb_f32(K, 0);
            val x = r[attend_result(a, i, row, e)];
            if (fields || scale_later(a))
                x = score_and(K, a, x, row, log);
            most = most ? kb_fmaxnum(K, most, x) : x;
        }
    return most;
}

void attend_seen_by_all(struct kb *k, const struct attend *a, val *from, val *to)
{
    *from = a->first[0];
    *to = a->last[0];
    for (int row = 1; row < a->shape.lane_rows; row++) {
        *from = kb_smax(K, *from, a->first[row]);
        *to = kb_smin(K, *to, a->last[row]);
    }
}

/* Does some row not see some of a step's keys? */
static val is_cut(struct kb *k, const struct attend *a, val start)
{
    val from = a->all_first, to = a->all_last;
    if (!from)
        attend_seen_by_all(K, a, &from, &to);
    val early = kb_icmp(K, KB_SLT, start, from);
    val late = kb_icmp(K, KB_SGT, kb_addi(K, start, tokens_of(a) - 1), to);
    return kb_or(K, early, late);
}

/* Masks a step's scores, where that is needed for some lane. */
static void mask_step(struct kb *k, const struct attend *a, val start, val cut, val *r)
{
    int rows = a->shape.lane_rows, n = a->plan->subtiles * a->y_tiles * rows * a->shape.ye;
    val before[PLAN_RESULTS];
    memcpy(before, r, sizeof *r * (size_t)n);
    struct kb_if any = kb_if(K, kb_any(K, cut));
    for (int i = 0; i < a->plan->subtiles * a->y_tiles; i++)
        for (int e = 0; e < a->shape.ye; e++) {
            val key = kb_add(K, start, result_token(K, a, i * a->shape.y_tile, e));
            for (int row = 0; row < rows; row++) {
                int at = attend_result(a, i, row, e);
                r[at] = masked(K, a, r[at], key, row);
            }
        }
    kb_endif(K, &any);
    for (int i = 0; i < n; i++)
        r[i] = kb_merge(K, &any, r[i], before[i]);
}

/* Is a row worked on in a branch? */
static bool is_optional(const struct attend *a, int row)
{
    return a->second && 2 * row >= a->shape.lane_rows;
}

static void row_scores(struct kb *k, const struct attend *a, val start, val *r, int row,
                       const struct token_facts *facts)
{
    for (int i = 0; i < a->plan->subtiles * a->y_tiles; i++)
        for (int e = 0; e < a->shape.ye; e++) {
            int at = attend_result(a, i, row, e);
            val key = kb_add(K, start, result_token(K, a, i * a->shape.y_tile, e));
            val x = score(K, a, r[at], &facts[i * a->shape.ye + e], row, key);
            r[at] = a->plan->lazy_reference ? x : masked(K, a, x, key, row);
        }
}

/* All of a row's results of a step: those of a branch, or `other` where it was not taken. */
static void merge_row(struct kb *k, const struct attend *a, const struct kb_if *taken, val *r,
                      int row, const val *other)
{
    for (int i = 0; i < a->plan->subtiles * a->y_tiles; i++)
        for (int e = 0; e < a->shape.ye; e++) {
            int at = attend_result(a, i, row, e);
            val x = other ? other[at] : kb_f32(K, 0);
            r[at] = kb_merge(K, taken, r[at], x);
        }
}

/* Facts of each result's token. */
static void all_facts(struct kb *k, const struct attend *a, const val *inverse,
                      struct token_facts *facts)
{
    for (int i = 0; has_facts(a) && i < a->plan->subtiles * a->y_tiles; i++)
        for (int e = 0; e < a->shape.ye; e++) {
            struct token_facts *t = &facts[i * a->shape.ye + e];
            get_facts(K, a, i * a->shape.y_tile, e, t);
            if (a->plan->squares)
                t->f[FACT_KEY] = kb_fmul(K, t->f[FACT_KEY], inverse[i * a->shape.ye + e]);
        }
}

/* Products to scores; rows that do not exist keep theirs, which count for nothing. Comes back: does a lane have a score
** that its row's reference does not reach? */
static val lazy_scores(struct kb *k, const struct attend *a, val start, val *r,
                       const struct token_facts *facts, const struct attend_sums *s)
{
    val products[PLAN_RESULTS], needed = NULL;
    int rows = a->shape.lane_rows;
    memcpy(products, r, sizeof *r * (size_t)attend_result(a, a->plan->subtiles * a->y_tiles, 0, 0));
    for (int row = 0; row < rows; row++) {
        bool optional = is_optional(a, row);
        struct kb_if exists = {0};
        if (optional)
            exists = kb_if(K, a->second);
        row_scores(K, a, start, r, row, facts);
        val above = attend_is_above(K, row, lane_most(K, a, r, row, facts), s);
        if (optional) {
            kb_endif(K, &exists);
            merge_row(K, a, &exists, r, row, products);
            above = kb_merge(K, &exists, above, kb_i1(K, false));
        }
        needed = needed ? kb_or(K, needed, above) : above;
    }
    return needed;
}

/* What few steps need, all in one branch: masks, other references, sums without their middle. */
static void lazy(struct kb *k, const struct attend *a, val start, val *r,
                 const struct token_facts *facts, struct attend_sums *s, val *reference)
{
    int rows = a->shape.lane_rows, n = a->plan->subtiles * a->y_tiles * rows * a->shape.ye;
    val kept[PLAN_RESULTS], most[ATTEND_ROWS], cut = is_cut(K, a, start);
    val needed = kb_or(K, lazy_scores(K, a, start, r, facts, s), cut);
    val due = attend_centring_due(K, a, start);
    if (due)
        needed = kb_or(K, needed, due);
    memcpy(kept, r, sizeof *r * (size_t)n);
    struct attend_sums before = *s;
    struct kb_if rare = kb_if(K, kb_any(K, needed));
    mask_step(K, a, start, cut, r);
    for (int row = 0; row < rows; row++)
        most[row] = lane_most(K, a, r, row, facts);
    attend_move_reference(K, a, most, s);
    kb_endif(K, &rare);
    for (int i = 0; i < n; i++)
        r[i] = kb_merge(K, &rare, r[i], kept[i]);
    attend_merge_sums(K, a, &rare, s, &before);
    for (int row = 0; row < rows; row++)
        reference[row] = s->m[row];
}

/* Products to masked scores, and what to subtract from them: never infinite where a key is visible. */
static void scores(struct kb *k, const struct attend *a, val start, val *r,
                   const struct token_facts *facts, struct attend_sums *s, val *reference)
{
    if (a->plan->lazy_reference) {
        lazy(K, a, start, r, facts, s, reference);
        return;
    }
    val most[ATTEND_ROWS];
    for (int row = 0; row < a->shape.lane_rows; row++) {
        row_scores(K, a, start, r, row, facts);
        most[row] = lane_most(K, a, r, row, facts);
    }
    attend_reference(K, a, most, s, reference);
}

static void row_weights(struct kb *k, const struct attend *a, val *r, int row, val reference,
                        const struct token_facts *facts, struct attend_sums *s)
{
    for (int i = 0; i < a->plan->subtiles * a->y_tiles; i++)
        for (int e = 0; e < a->shape.ye; e++) {
            int at = attend_result(a, i, row, e);
            const struct token_facts *t = &facts[i * a->shape.ye + e];
            val p = kb_exp2(K, score_and(K, a, r[at], row, kb_fneg(K, reference)));
            s->l[row] = kb_fadd(K, s->l[row], p);
            r[at] = p;
            if (a->plan->slot.value.fields)
                r[at] = kb_fmul(K, p, t->f[FACT_SCALE]);
            if (a->plan->slot.value.codec.kind == CODEC_AFFINE)
                s->z[row] = kb_fma(K, p, t->f[FACT_ZERO], s->z[row]);
        }
}

/* Scores to weights, under the rows' references: r becomes p * scale, l and z gain p and p * zero. */
static void weights(struct kb *k, const struct attend *a, val *r, const val *reference,
                    const struct token_facts *facts, struct attend_sums *s)
{
    for (int row = 0; row < a->shape.lane_rows; row++) {
        bool optional = is_optional(a, row);
        struct kb_if exists = {0};
        val l = s->l[row], z = s->z[row];
        if (optional)
            exists = kb_if(K, a->second);
        row_weights(K, a, r, row, reference[row], facts, s);
        if (!optional)
            continue;
        kb_endif(K, &exists);
        merge_row(K, a, &exists, r, row, NULL);
        s->l[row] = kb_merge(K, &exists, s->l[row], l);
        s->z[row] = kb_merge(K, &exists, s->z[row], z);
    }
}

/* X operand of one product's weights; `low` gets the second bf16 term. */
static void weight_operand(struct kb *k, const struct attend *a, const val *r, val *x, val *low)
{
    int type = operand_type(a->plan->value_operand),
        n = a->y_tiles * a->shape.lane_rows * a->shape.ye * a->shape.k_tiles;
    kb_matrix(K)->x_from_result(K, type, r, x);
    if (a->plan->value_operand != OPERAND_BF16_SPLIT)
        return;
    val rest[32];
    for (int i = 0; i < n; i++) {
        val upper = kb_to_f32(K, kb_to_half(K, r[i], type));
        rest[i] = kb_fsub(K, r[i], upper);
    }
    kb_matrix(K)->x_from_result(K, type, rest, low);
}

static void outputs(struct kb *k, const struct attend *a, val start, const struct attend_codes *c,
                    const val *r, struct attend_sums *s)
{
    const struct plan *p = a->plan;
    int type = operand_type(p->value_operand), each = a->shape.lane_rows * a->shape.ye;
    int tiles = a->shape.k_tiles; /* subtiles that meet in one product */
    for (int n = 0; n < p->subtiles / tiles; n++) {
        val x[16], low[16], y[8], valid[ATTEND_TOKENS] = {NULL};
        weight_operand(K, a, r + attend_result(a, n * tiles * a->y_tiles, 0, 0), x, low);
        for (int e = 0; e < a->shape.ke; e++) {
            val row = a->image ? a->k_token[e] : kb_matrix(K)->k_index(K, e);
            val index = kb_addi(K, row, row_tokens(a, 16 * tiles * n));
            val token = kb_add(K, start, index);
            valid[e] = kb_icmp(K, KB_SLT, token, a->length);
        }
        attend_gain_middle(K, a, x, s);
        for (int d = 0; d < a->dims; d += a->shape.tiles) {
            for (int t = 0; t < a->shape.tiles; t++)
                attend_value_operand(K, a, c, n, d + t, valid, y + t * a->shape.ke / 2);
            kb_matrix(K)->mma(K, type, s->o + d * each, x, y);
            if (p->value_operand == OPERAND_BF16_SPLIT)
                kb_matrix(K)->mma(K, type, s->o + d * each, low, y);
        }
    }
}

void attend_step(struct kb *k, const struct attend *a, val start, const struct attend_codes *c,
                 struct attend_sums *s)
{
    val r[PLAN_RESULTS], reference[ATTEND_ROWS], inverse[ATTEND_SUBTILES * 2 * 8];
    struct token_facts facts[ATTEND_SUBTILES * 2 * 8];
    if (a->plan->slot.value.norm_at_read)
        attend_value_squares(K, a, c);
    if (has_facts(a))
        put_facts(K, a, start, c);
    products(K, a, c, r, inverse);
    if (a->after_keys)
        a->after_keys(K, a->after_data, r);
    bool met = a->plan->bulk && !a->plan->settle_branch; /* in settle() */
    if ((has_facts(a) || a->after_keys) && !met)
        kb_warp_sync(K);
    all_facts(K, a, inverse, facts);
    scores(K, a, start, r, facts, s, reference);
    weights(K, a, r, reference, facts, s);
    outputs(K, a, start, c, r, s);
}
