/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_shared_encode.c - codes of vectors that few lanes share.
**
** Quotients. With r = 1 / d and q = x r, both rounded, q + (x - q d) r, both fused, is x / d rounded
** for every x of 11 bits and every d (tests/unit/test_quotients.c), as long as x - q d is above 2^-149.
**
** Nearest thresholds. Halved, rotated elements of length sqrt(d) are about logistic: number k from the
** middle of the thresholds that a codebook has is where A tanh(x) is about k, off by less than half. So
** the nearest one is number round(A tanh(x)), and one comparison with it gives the code. Thresholds are
** those of the sums that the rotation's factor has not been multiplied to: the least float of which
** the product passes the midpoint.
*/
#include "part_shared.h"

#include "../gen/codebook.h"
#include "../gen/kb_encode.h"
#include "part_codebook.h"
#include "part_native.h"

#include <math.h>

enum { LANES = 32, FAR = 32 }; /* FAR: beyond all halved sums of up to 512 elements */

/* Sums of squares for which nothing is clamped, and that come from no numbers near zero. */
static const float least_square = 0x1p-60f, most_square = 65504.0f * 65504;

struct search {
    float threshold[LANES]; /* entry k % 32: number k from the middle one */
    float square[LANES];    /* of the centroid above it */
    float steepness;        /* A; 0: thresholds are not so */
};

/* The least x with float(2 x f) >= y. */
static float least_above(float y, float f)
{
    float x = y / (2 * f);
    while (2 * x * f >= y)
        x = nextafterf(x, -INFINITY);
    while (!(2 * x * f >= y))
        x = nextafterf(x, INFINITY);
    return x;
}

/* How far off A tanh(x) is at most. */
static double off(const float *threshold, int half, double a)
{
    double most = 0;
    for (int i = 1 - half; i < half; i++)
        most = fmax(most, fabs(a * tanh((double)threshold[i & (LANES - 1)]) - i));
    return most;
}

static void make_search(struct search *s, const float *centroids, int bits, float factor)
{
    float mid[SPEC_MAX_CENTROIDS];
    int half = 1 << (bits - 1);
    double best = 0.45;
    *s = (struct search){0};
    codebook_midpoints(centroids, 2 * half, mid);
    for (int i = 1 - half; i < half; i++)
        s->threshold[i & (LANES - 1)] = least_above(mid[i + half - 1], factor);
    s->threshold[half] = FAR;
    s->threshold[-half & (LANES - 1)] = -FAR;
    for (int i = -half; i < half; i++)
        s->square[i & (LANES - 1)] = centroids[i + half] * centroids[i + half];
    for (int i = 1; 2 * i < 20 * half + 9; i++) {
        double o = off(s->threshold, half, i / 10.0);
        if (o < best) {
            best = o;
            s->steepness = (float)i / 10;
        }
    }
}

static val table_lane(struct kb *k, const char *name, const float *entry)
{
    val table = kb_table(K, name, entry, LANES * sizeof *entry, 16);
    val at = kb_offset(K, table, kb_shli(K, kb_andi(K, kb_lane(K), LANES - 1), 2));
    return kb_load(K, KB_F32, at, 4);
}

/* Entry `index` mod 32 of a table that lanes hold. */
static val pick(struct kb *k, val table, val index)
{
    bool wraps = kb_plan(k)->shuffled; /* shuffles see to it themselves */
    return kb_shuffle(K, table, wraps ? index : kb_andi(K, index, LANES - 1));
}

/* Elements of a run. */
static void unpack(struct kb *k, const struct shared *s, int run, val *x)
{
    for (int i = 0; i < 8; i++) {
        val word = s->word[4 * run + i / 2];
        if (s->type == KB_BF16) {
            val bits = i % 2 ? kb_andi(K, word, 0xffff0000) : kb_shli(K, word, 16);
            x[i] = kb_bitcast(K, bits, KB_F32);
        } else {
            val half = kb_trunc(K, i % 2 ? kb_lshri(K, word, 16) : word, KB_I16);
            x[i] = kb_to_f32(K, kb_bitcast(K, half, KB_F16));
        }
    }
}

/* A run's codes, whole numbers plus `more` each and then minus `less` as bits, to a stream. */
static void pack(struct kb *k, struct shared *s, int run, unsigned less, int more, const val *code)
{
    bool native = kb_plan(k)->geo.layout == LAYOUT_NATIVE;
    int bits = s->side->codec.bits, width = native && bits < 4 ? 4 : bits;
    unsigned extra = 0;
    val sum = NULL;
    for (int i = 0; i < 8; i++) {
        val placed = kb_shli(K, code[i], width * i);
        sum = sum ? kb_add(K, sum, placed) : placed;
        extra += ((unsigned)more - less) << (width * i);
    }
    sum = kb_addi(K, sum, (int)extra);
    s->code[run][0] = kb_opaque(K, sum); /* one word, not what it consists of, waits to be stored */
}

static val square_sum(struct kb *k, const val *x)
{
    val squares[8];
    for (int i = 0; i < 8; i++)
        squares[i] = kb_fmul(K, x[i], x[i]);
    return rowvec_run_sum(k, squares);
}

/* Elements made finite, times 2^64: what is left of quotients is exact then, too. */
static val rare_square(struct kb *k, struct rowvec *v)
{
    val most = kb_f32(K, 65504), more = kb_f32(K, 0x1p64), sum[SHARED_EIGHTS];
    for (int j = 0; j < v->e / 8; j++) {
        val *x = v->x + 8 * j;
        for (int i = 0; i < 8; i++)
            x[i] = encode_sanitise(k, x[i], most);
        sum[j] = square_sum(k, x);
        for (int i = 0; i < 8; i++)
            x[i] = kb_fmul(K, x[i], more);
    }
    return rowvec_sum_runs(k, v, sum);
}

/* x / (2 (norm + 1e-8)); returns the norm. */
static val direction(struct kb *k, struct shared *s)
{
    struct rowvec *v = &s->v;
    val sum[SHARED_EIGHTS], one = kb_f32(K, 1);
    for (int j = 0; j < v->e / 8; j++) {
        unpack(k, s, j, v->x + 8 * j);
        sum[j] = square_sum(k, v->x + 8 * j);
    }
    struct rowvec rare = *v;
    val square = rowvec_sum_runs(k, v, sum);
    val long_enough = kb_fcmp(K, KB_OGE, square, kb_f32(K, (double)least_square));
    val short_enough = kb_fcmp(K, KB_OLT, square, kb_f32(K, (double)most_square));
    val usual = kb_and(K, long_enough, short_enough);
    struct kb_if odd = kb_if(K, shared_any(k, kb_not(K, usual)));
    val other = rare_square(k, &rare);
    kb_endif(K, &odd);
    val times = kb_merge(K, &odd, kb_f32(K, 0x1p64), one);
    square = kb_merge(K, &odd, other, square);
    for (int i = 0; i < v->e; i++)
        v->x[i] = kb_merge(K, &odd, rare.x[i], v->x[i]);
    val norm = kb_sqrt(K, square);
    val length = kb_fadd(K, norm, kb_f32_bits(K, 0x322BCC77));
    val divisor = kb_fmul(K, kb_fadd(K, length, length), times);
    val inverse = kb_fdiv(K, one, divisor);
    for (int i = 0; i < v->e; i++) {
        val q = kb_fmul(K, v->x[i], inverse), turned = kb_fneg(K, q);
        val rest = kb_fma(K, turned, divisor, v->x[i]);
        v->x[i] = kb_fma(K, rest, inverse, q);
    }
    return norm;
}

/* Numbers from the middle, -half .. half - 1, of a run, as the low bits of code[i]. */
static void find_codes(struct kb *k, const struct search *t, val thresholds, const val *x,
                       val *code)
{
    val steep = kb_f32(K, (double)t->steepness), middle = kb_f32(K, 12582912);
    for (int i = 0; i < 8; i++) {
        val about = kb_tanh(K, x[i]);
        val w = kb_fma(K, about, steep, middle);
        val nearest = pick(k, thresholds, kb_bitcast(K, w, KB_I32));
        val apart = kb_fsub(K, x[i], nearest);
        code[i] = kb_step(K, w, apart);
    }
}

/* Codes of the rotated vector; returns the length of the vector of chosen centroids. */
static val choose(struct kb *k, struct shared *s, const struct search *t)
{
    bool length = s->side->norm_at_store;
    val thresholds = table_lane(k, "thresholds", t->threshold), sum[SHARED_EIGHTS];
    val squares = length ? table_lane(k, "squares", t->square) : NULL;
    for (int j = 0; j < s->v.e / 8; j++) {
        val code[8], chosen[8];
        find_codes(k, t, thresholds, s->v.x + 8 * j, code);
        pack(k, s, j, 0x4b400000, 1 << (s->side->codec.bits - 1), code);
        for (int i = 0; length && i < 8; i++)
            chosen[i] = pick(k, squares, code[i]);
        if (length)
            sum[j] = rowvec_run_sum(k, chosen);
    }
    if (!length)
        return NULL;
    val square = rowvec_sum_runs(k, &s->v, sum);
    return kb_sqrt(K, kb_fadd(K, square, kb_f32(K, 1e-16)));
}

static void encode_directions(struct kb *k, struct shared *s)
{
    float centroids[SPEC_MAX_CENTROIDS];
    const struct side *side = s->side;
    struct search t;
    codebook_of_side(side, centroids);
    make_search(&t, centroids, side->codec.bits, rotate_factor_of(side->head_size));
    if (t.steepness == 0)
        kb_fail(K, "codebook of %d bits: its thresholds are not to be found by a tanh",
                side->codec.bits);
    val norm = direction(k, s);
    rotate_sums(k, &s->v);
    val length = choose(k, s, &t);
    if (length) {
        val inverse = kb_fdiv(K, kb_f32(K, 1), length);
        norm = kb_fmul(K, norm, inverse);
    }
    s->field[0] = kb_fmin(K, norm, kb_f32(K, 65504));
}

/* Over all words of the vector, both halves. */
static val extreme(struct kb *k, const struct shared *s, val (*join)(struct kb *, int, val, val))
{
    val t[ROWVEC_MAX / 2];
    int words = s->v.e / 2;
    for (int i = 0; i < words; i++)
        t[i] = s->word[i];
    for (int step = 1; step < words; step *= 2)
        for (int i = 0; i < words; i += 2 * step)
            t[i] = join(K, s->type, t[i], t[i + step]);
    for (int mask = 1; mask < s->v.lanes; mask *= 2) {
        val other = kb_shuffle_xor(K, t[0], mask);
        t[0] = join(K, s->type, t[0], other);
    }
    val halves = kb_byte_perm(K, t[0], t[0], 0x1032);
    val both = join(K, s->type, t[0], halves);
    val low = kb_trunc(K, both, KB_I16);
    return kb_to_f32(K, kb_bitcast(K, low, s->type));
}

/* Extremes of the elements that are numbers, infinities bounded; infinite if there are none. */
static void rare_extremes(struct kb *k, const struct shared *s, val *least, val *most)
{
    struct rowvec one = s->v;
    val low = kb_i32(K, 0x7f800000), infinity = kb_f32_bits(K, 0x7f800000);
    val lowest = kb_f32_bits(K, 0xff800000), high = lowest;
    for (int j = 0; j < s->v.e / 8; j++) {
        val x[8];
        unpack(k, s, j, x);
        for (int i = 0; i < 8; i++) {
            val number = kb_fcmp(K, KB_ORD, x[i], x[i]), finite = encode_bounded(k, x[i]);
            val down = kb_select(K, number, finite, infinity);
            val up = kb_select(K, number, finite, lowest);
            down = rowvec_sortable(k, kb_bitcast(K, down, KB_I32));
            low = kb_smin(K, low, down);
            high = kb_fmax(K, high, up);
        }
    }
    one.e = one.run = 1; /* of a lane are left */
    low = kb_bitcast(K, rowvec_sortable(k, low), KB_F32);
    *least = rowvec_min(k, &one, &low);
    *most = rowvec_max(k, &one, &high);
}

/* Elements that have the same codes and lie between the ends; one that is no number has code 0. */
static void within(struct kb *k, val *x, val z, val end)
{
    for (int i = 0; i < 8; i++) {
        val number = kb_fcmp(K, KB_ORD, x[i], x[i]);
        val some = kb_select(K, number, x[i], z);
        x[i] = kb_fmin(K, kb_fmax(K, some, z), end);
    }
}

static void code_run(struct kb *k, struct shared *s, int j, val odd, val inverse, val end)
{
    val x[8], rare[8], code[8], half = kb_f32(K, 0.5);
    unpack(k, s, j, x);
    for (int i = 0; i < 8; i++)
        rare[i] = x[i];
    struct kb_if some = kb_if(K, odd);
    within(k, rare, s->field[1], end);
    kb_endif(K, &some);
    for (int i = 0; i < 8; i++)
        x[i] = kb_merge(K, &some, rare[i], x[i]);
    for (int i = 0; i < 8; i++) {
        val above = kb_fsub(K, x[i], s->field[1]);
        val quotient = kb_fmul(K, above, inverse);
        code[i] = kb_whole(K, kb_fadd(K, quotient, half));
    }
    pack(k, s, j, 0x4b000000, 0, code);
}

static void encode_steps(struct kb *k, struct shared *s)
{
    int top = (1 << s->side->codec.bits) - 1;
    val least = extreme(k, s, kb_min_pair), most = extreme(k, s, kb_max_pair);
    val width = kb_fsub(K, most, least);
    val step = kb_fmul(K, width, kb_f32(K, (double)(1.0f / (float)top)));
    val held = kb_fcmp(K, KB_OLE, kb_fabs(K, least), kb_f32(K, 65504)); /* by its field, as it is */
    val usual = kb_and(K, held, kb_fcmp(K, KB_OLT, step, kb_f32(K, 65504)));
    val rare_step, rare_zero, rare_least, rare_most, odd = shared_any(k, kb_not(K, usual));
    struct kb_if some = kb_if(K, odd);
    rare_extremes(k, s, &rare_least, &rare_most);
    encode_range(k, rare_least, rare_most, top, &rare_step, &rare_zero);
    kb_else(K, &some);
    step = kb_fmax(K, step, kb_f32(K, (double)1e-8f));
    kb_endif(K, &some);
    s->field[0] = kb_merge(K, &some, rare_step, step);
    s->field[1] = kb_merge(K, &some, rare_zero, least);
    val inverse = kb_fdiv(K, kb_f32(K, 1), s->field[0]);
    val end = kb_fadd(K, s->field[1], kb_fmul(K, s->field[0], kb_f32(K, top)));
    for (int j = 0; j < s->v.e / 8; j++)
        code_run(k, s, j, odd, inverse, end);
}

/* NaN -> 0 where the word has one. */
static void bytes_of(struct kb *k, struct shared *s, int j, val odd)
{
    val x[8], rare[8], two[4];
    unpack(k, s, j, x);
    struct kb_if some = kb_if(K, odd);
    for (int i = 0; i < 8; i++) {
        val number = kb_fcmp(K, KB_ORD, x[i], x[i]);
        rare[i] = kb_select(K, number, x[i], kb_f32(K, 0));
    }
    kb_endif(K, &some);
    for (int i = 0; i < 8; i++)
        x[i] = kb_merge(K, &some, rare[i], x[i]);
    for (int i = 0; i < 4; i++) {
        val pair = kb_e4m3_pair(K, x[2 * i], x[2 * i + 1]);
        if (pair) {
            two[i] = kb_zext(K, pair, KB_I32);
            continue;
        }
        val lo = encode_e4m3(k, x[2 * i]), hi = encode_e4m3(k, x[2 * i + 1]);
        two[i] = kb_or(K, lo, kb_shli(K, hi, 8));
    }
    for (int i = 0; i < 2; i++)
        s->code[j][i] = kb_opaque(K, kb_or(K, two[2 * i], kb_shli(K, two[2 * i + 1], 16)));
}

static void encode_bytes(struct kb *k, struct shared *s)
{
    val most = s->word[0];
    for (int i = 1; i < s->v.e / 2; i++)
        most = kb_max_pair(K, s->type, most, s->word[i]);
    val halves = kb_byte_perm(K, most, most, 0x1032);
    most = kb_trunc(K, kb_max_pair(K, s->type, most, halves), KB_I16);
    val x = kb_to_f32(K, kb_bitcast(K, most, s->type));
    val odd = shared_any(k, kb_fcmp(K, KB_UNO, x, x));
    for (int j = 0; j < s->v.e / 8; j++)
        bytes_of(k, s, j, odd);
}

void shared_encode(struct kb *k, struct shared *s)
{
    switch (s->side->codec.kind) {
    case CODEC_CODEBOOK: encode_directions(k, s); break;
    case CODEC_AFFINE: encode_steps(k, s); break;
    default: encode_bytes(k, s);
    }
}
