/* SPDX-License-Identifier: Apache-2.0 */
/*
** op_matrix.c - D = A B + C, rounded once.
**
** i: row of A and D, j: column of B and D, k: inner index, l: lane, e: element of a lane's operand.
**   MFMA, M x M x K, P = K M / 64 elements a lane
**     A, B        l = i + M (k / P), e = k % P
**     C, D        M = 16: l = j + 16 (i / 4), register i % 4
**                 M = 32: l = j + 32 (i / 4 % 2), register 4 (i / 8) + i % 4
**     with scales, K = 2048 / M, each operand FP8 (E4M3) or FP4 (E2M1) by cbsz (A) and blgp (B); the
**     scale of row i and of k / 32 is a byte, E8M0, of lane i + M (k / 32)
**       FP4       as above, P = 32
**       FP8       two runs of 16: l = i + M (k % (K / 2) / 16), e = k % 16 + 16 (k / (K / 2))
**   WMMA of gfx11, 16 x 16 x 16
**     A, B        l = i and i + 16, e = k; both halves of the wave hold the same
**     C, D        l = j + 16 (i % 2), register i / 2
**   WMMA of gfx12
**     A, B        l = i + 16 (k / 8), e = k % 8
**     C, D        l = j + 16 (i / 8), register i % 8
*/
#include "access.h"
#include "fn.h"

#include <math.h>
#include <string.h>

enum {
    SIZE = 32,
    DEPTH = 128,
    TYPE_BFLOAT = 1,
    TYPE_SCALED = 2, /* of an instruction: cbsz and blgp say what */
    TYPE_FP4 = 3,
    TYPE_FP8 = 4,
    WORDS_MOST = 8,
    BLOCK = 32,
    RUN = 16
};

struct place {
    int lane, at;
};

struct shape {
    int m, k, type;
    int generation; /* 9, 11, 12 */
};

struct product {
    double a[SIZE][DEPTH], b[SIZE][DEPTH], c[SIZE][SIZE];
    bool a_unknown[SIZE], b_unknown[SIZE], c_unknown[SIZE][SIZE];
};

static struct place operand_place(const struct shape *s, int i, int k)
{
    int each = s->generation == 9 ? s->k * s->m / 64 : s->generation == 11 ? 16 : 8;
    int half = s->k / 2;
    if (s->type == TYPE_FP8)
        return (struct place){i + s->m * (k % half / RUN), k % RUN + RUN * (k / half)};
    return (struct place){i + s->m * (k / each), k % each};
}

static struct place result_place(const struct shape *s, int i, int j)
{
    switch (s->generation) {
    case 9:
        if (s->m == 32)
            return (struct place){j + 32 * (i / 4 % 2), 4 * (i / 8) + i % 4};
        return (struct place){j + 16 * (i / 4), i % 4};
    case 11: return (struct place){j + 16 * (i % 2), i / 2};
    default: return (struct place){j + 16 * (i / 8), i % 8};
    }
}

static double element(const struct shape *s, uint32_t bits)
{
    switch (s->type) {
    case TYPE_FP4: return small_value(&small_e2m1, bits);
    case TYPE_FP8: return small_value(&small_e4m3, bits);
    case TYPE_BFLOAT: return bfloat_value(bits);
    default: return half_value(bits);
    }
}

static void read_operand(struct wave *w, const struct operand *o, const struct shape *s,
                         double out[SIZE][DEPTH], bool *unknown)
{
    uint32_t words[WORDS_MOST][LANES], bits[WORDS_MOST][LANES];
    int width = s->type == TYPE_FP4 ? 4 : s->type == TYPE_FP8 ? 8 : 16, each = 32 / width;
    uint32_t mask = (1u << width) - 1;
    if (o->words > WORDS_MOST || o->kind != IS_VECTOR)
        sim_fail(w->sim, "this operand of a matrix");
    for (int word = 0; word < o->words; word++)
        if (!read_lanes(w, o, word, 'u', words[word], bits[word]))
            memset(bits[word], 0, sizeof bits[word]);
    for (int word = 0; s->generation == 11 && word < o->words; word++)
        for (int l = 0; l < 16; l++)
            if (words[word][l] != words[word][l + 16] && !bits[word][l] && !bits[word][l + 16])
                sim_fail(w->sim, "lanes %d and %d hold different operands", l, l + 16);
    for (int i = 0; i < s->m; i++) {
        unknown[i] = false;
        for (int k = 0; k < s->k; k++) {
            struct place p = operand_place(s, i, k);
            int word = p.at / each, shift = width * (p.at % each);
            if (word >= o->words)
                sim_fail(w->sim, "operand of a matrix is too short");
            out[i][k] = element(s, words[word][p.lane] >> shift & mask);
            unknown[i] |= (bits[word][p.lane] >> shift & mask) != 0;
        }
    }
}

static void read_accumulator(struct wave *w, const struct operand *o, const struct shape *s,
                             struct product *p)
{
    uint32_t x[16][LANES], u[16][LANES];
    int words = s->m * s->m / w->lanes;
    for (int word = 0; word < words; word++)
        if (!read_lanes(w, o, o->kind == IS_VECTOR ? word : 0, 'f', x[word], u[word]))
            memset(u[word], 0, sizeof u[word]);
    for (int i = 0; i < s->m; i++)
        for (int j = 0; j < s->m; j++) {
            struct place at = result_place(s, i, j);
            p->c[i][j] = as_float(x[at.at][at.lane]);
            p->c_unknown[i][j] = u[at.at][at.lane] != 0;
        }
}

static void multiply(struct wave *w, const struct insn *in, const struct shape *s,
                     const struct product *p)
{
    if (in->o[0].words != s->m * s->m / w->lanes)
        sim_fail(w->sim, "result of a matrix has another size");
    for (int i = 0; i < s->m; i++)
        for (int j = 0; j < s->m; j++) {
            struct place at = result_place(s, i, j);
            double sum = p->c[i][j];
            for (int k = 0; k < s->k; k++)
                sum += p->a[i][k] * p->b[j][k];
            bool unknown = p->a_unknown[i] || p->b_unknown[j] || p->c_unknown[i][j];
            write_lane(w, in->o[0].reg + at.at, at.lane, float_bits((float)sum), unknown ? ~0u : 0);
        }
}

/* Multiplies by the scales of a register; select: which of its bytes. */
static void scale(struct wave *w, const struct operand *o, int select, const struct shape *s,
                  double x[SIZE][DEPTH], bool *unknown)
{
    uint32_t words[LANES], bits[LANES];
    if (!read_lanes(w, o, 0, 'u', words, bits))
        memset(bits, 0, sizeof bits);
    for (int i = 0; i < s->m; i++)
        for (int k = 0; k < s->k; k++) {
            int lane = i + s->m * (k / BLOCK);
            uint32_t exponent = words[lane] >> 8 * select & 0xff;
            x[i][k] *= exponent == 0xff ? NAN : ldexp(1, (int)exponent - 127);
            unknown[i] |= (bits[lane] >> 8 * select & 0xff) != 0;
        }
}

/* The shape with the type of one operand: that of the instruction, or by its field's value. */
static struct shape typed(struct wave *w, const struct shape *s, unsigned field)
{
    struct shape out = *s;
    if (s->type != TYPE_SCALED)
        return out;
    if (field != 0 && field != 4)
        sim_fail(w->sim, "matrix elements of type %u", field);
    out.type = field ? TYPE_FP4 : TYPE_FP8;
    return out;
}

static void run(struct wave *w, struct insn *i, const struct shape *s)
{
    struct product p;
    bool scaled = s->type == TYPE_SCALED;
    if (i->operands != (scaled ? 6 : 4) || (i->immediate && !scaled) || i->neg_lo || i->neg_hi)
        sim_fail(w->sim, "this form of a matrix instruction");
    const struct shape a = typed(w, s, i->immediate & 255), b = typed(w, s, i->immediate >> 8);
    if (exec_of(w) != (w->lanes == 64 ? ~(uint64_t)0 : 0xffffffff))
        sim_fail(w->sim, "matrix instruction with inactive lanes");
    read_operand(w, &i->o[1], &a, p.a, p.a_unknown);
    read_operand(w, &i->o[2], &b, p.b, p.b_unknown);
    for (int k = 0; scaled && k < 2; k++)
        scale(w, &i->o[4 + k], (i->op_sel >> k & 1) | (i->op_sel_hi >> k & 1) << 1, s,
              k ? p.b : p.a, k ? p.b_unknown : p.a_unknown);
    read_accumulator(w, &i->o[3], s, &p);
    for (int word = 0; word < i->o[0].words; word++)
        w->partial[i->o[0].reg + word] = 0; /* all lanes are written */
    multiply(w, i, s, &p);
}

void op_mfma(struct wave *w, struct insn *i, int argument)
{
    const struct shape s = {argument & 255, argument >> 8 & 255, argument >> 16, 9};
    if (s.k * s.m > 256 && w->sim->program->gfx != 950)
        sim_fail(w->sim, "only gfx950 has this shape");
    run(w, i, &s);
}

void op_wmma(struct wave *w, struct insn *i, int argument)
{
    const struct shape s = {argument & 255, argument >> 8 & 255, argument >> 16,
                            w->sim->program->gfx / 100};
    run(w, i, &s);
}
