/* SPDX-License-Identifier: Apache-2.0 */
/*
** vector.c - vector instructions: sources with their modifiers, one function of ops.def on all
** lanes, the result under EXEC.
*/
#include "access.h"

#include "number.h"

#include <string.h>

struct job {
    struct vec x;
    uint32_t us[3][LANES], uh[3][LANES]; /* unknown bits of the sources */
    uint64_t mask_unknown, lanes;
    bool known;
    int sources;
    /* the result */
    uint32_t ud[LANES], udh[LANES];
    uint64_t out_unknown;
};

/* ---- sources ---- */

static void signs(uint32_t *x, unsigned flags, uint32_t sign)
{
    for (int l = 0; flags & ABSOLUTE && l < LANES; l++)
        x[l] &= ~sign;
    for (int l = 0; flags & NEGATE && l < LANES; l++)
        x[l] ^= sign;
}

static void source_halves(struct insn *i, int k, char type, uint32_t *x)
{
    bool low_from_high = i->op_sel >> k & 1,
         high_from_high = !i->has_op_sel_hi || i->op_sel_hi >> k & 1;
    for (int l = 0; l < LANES; l++)
        x[l] = (x[l] >> 16 * low_from_high & 0xffff) | (x[l] >> 16 * high_from_high & 0xffff) << 16;
    if (type == 'p' && i->neg_lo >> k & 1)
        signs(x, NEGATE, 0x8000);
    if (type == 'p' && i->neg_hi >> k & 1)
        signs(x, NEGATE, 0x80000000);
}

static void source_half(struct insn *i, int k, const struct operand *o, uint32_t *x)
{
    int shift = !o->part && o->kind != IS_REAL && i->op_sel >> k & 1 ? 16 : 0;
    for (int l = 0; l < LANES; l++)
        x[l] = x[l] >> shift & 0xffff;
}

/* v_fma_mix: a float, or one half of the word as a half */
static void source_mixed(struct insn *i, int k, uint32_t *x)
{
    int shift = i->op_sel >> k & 1 ? 16 : 0;
    for (int l = 0; i->op_sel_hi >> k & 1 && l < LANES; l++)
        x[l] = float_bits(half_value(x[l] >> shift & 0xffff));
}

static bool source_pair(struct wave *w, struct insn *i, struct job *j, int k,
                        const struct operand *o)
{
    int low = i->op_sel >> k & 1, high = !i->has_op_sel_hi || i->op_sel_hi >> k & 1;
    if (o->kind == IS_INTEGER || o->kind == IS_REAL)
        low = high = 0;
    bool some = read_lanes(w, o, low, 'f', j->x.s[k], j->us[k]);
    bool more = read_lanes(w, o, high, 'f', j->x.h[k], j->uh[k]);
    if (some && !more)
        memset(j->uh[k], 0, sizeof j->uh[k]);
    if (more && !some)
        memset(j->us[k], 0, sizeof j->us[k]);
    if (i->neg_lo >> k & 1)
        signs(j->x.s[k], NEGATE, 0x80000000);
    if (i->neg_hi >> k & 1)
        signs(j->x.h[k], NEGATE, 0x80000000);
    return some || more;
}

static bool source_wide(struct wave *w, struct job *j, int k, const struct operand *o, char type)
{
    bool some = read_lanes(w, o, 0, type, j->x.s[k], j->us[k]);
    bool more = read_lanes(w, o, 1, type, j->x.h[k], j->uh[k]);
    if (some && !more)
        memset(j->uh[k], 0, sizeof j->uh[k]);
    if (more && !some)
        memset(j->us[k], 0, sizeof j->us[k]);
    return some || more;
}

/* One source of a type of ops.def; true if some of its bits are unknown. */
static bool source(struct wave *w, struct insn *i, struct job *j, int k, const struct operand *o,
                   char type)
{
    uint32_t *x = j->x.s[k], *u = j->us[k];
    if (type == 'P')
        return source_pair(w, i, j, k, o);
    if (type == 'U' || type == 'D')
        return source_wide(w, j, k, o, type);
    bool some = read_lanes(w, o, 0, type == 'x' ? 'f' : type, x, u);
    switch (type) {
    case 'p':
    case 'q':
        source_halves(i, k, type, x);
        if (some)
            source_halves(i, k, 'q', u);
        break;
    case 'h':
    case 'w':
        source_half(i, k, o, x);
        if (some)
            source_half(i, k, o, u);
        if (type == 'h')
            signs(x, o->flags, 0x8000);
        break;
    case 'x':
        source_mixed(i, k, x);
        signs(x, o->flags, 0x80000000);
        break;
    case 'f': signs(x, o->flags, 0x80000000); break;
    default:
        if (o->flags & (NEGATE | ABSOLUTE))
            sim_fail(w->sim, "sign modifier of an integer");
    }
    return some;
}

static bool source_mask(struct wave *w, struct job *j, const struct operand *o)
{
    static const struct operand vcc = {.kind = IS_SCALAR, .words = 2, .reg = SGPR_VCC};
    j->x.mask = read_scalar(w, o ? o : &vcc, 'U', &j->mask_unknown);
    return j->mask_unknown != 0;
}

/* ---- DPP: the lane that a lane reads, -1 none ---- */

static int dpp_lane(const struct insn *i, int l)
{
    int row = l & ~15, at = l & 15, n = i->dpp_argument;
    switch (i->dpp) {
    case DPP_QUAD: return (l & ~3) | (n >> 2 * (l & 3) & 3);
    case DPP_SHL: return at + n < 16 ? l + n : -1;
    case DPP_SHR: return at >= n ? l - n : -1;
    case DPP_ROR: return row | ((at - n) & 15);
    case DPP_MIRROR: return row | (15 - at);
    case DPP_HALF: return (l & ~7) | (7 - (l & 7));
    case DPP_XMASK: return row | (at ^ n);
    case DPP_SHARE:
    case DPP_NEWBCAST: return row | n;
    case DPP_BCAST15: return l >= 16 ? row - 1 : -1;
    case DPP_BCAST31: return l >= 32 ? 31 : -1;
    default: return l;
    }
}

static void permute(struct wave *w, struct insn *i, struct job *j, bool some)
{
    uint32_t x[LANES], u[LANES];
    uint64_t exec = exec_of(w);
    memcpy(x, j->x.s[0], sizeof x);
    if (some)
        memcpy(u, j->us[0], sizeof u);
    EACH_LANE(w)
    {
        int from = dpp_lane(i, l);
        bool valid = from >= 0 && exec >> from & 1;
        if (!(i->row_mask >> (l >> 4) & 1) || !(i->bank_mask >> (l >> 2 & 3) & 1) ||
            (!valid && !i->bound_ctrl))
            j->lanes &= ~((uint64_t)1 << l);
        j->x.s[0][l] = valid ? x[from] : 0;
        if (some)
            j->us[0][l] = valid ? u[from] : 0;
    }
}

static bool is_mask(char type) { return type == 'm' || type == 'v'; }

static void gather(struct wave *w, struct insn *i, struct job *j)
{
    const char *t = strchr(i->op->signature, ':') + 1;
    int at = i->op->signature[0] == 'X' ? 0 : 1 + (i->op->signature[1] == 'k');
    bool some[3] = {false, false, false}, any = false;
    j->sources = 0;
    for (; *t; t++) {
        if (is_mask(*t)) {
            const struct operand *o = *t == 'm' && at < i->operands ? &i->o[at++] : NULL;
            any |= source_mask(w, j, o);
            continue;
        }
        int k = j->sources++;
        if (*t == 'd') /* the destination's old value */
            some[k] = source(w, i, j, k, &i->o[0], 'f');
        else {
            if (at >= i->operands)
                sim_fail(w->sim, "operands are missing");
            some[k] = source(w, i, j, k, &i->o[at++], *t);
        }
        if (k == 0 && i->dpp)
            permute(w, i, j, some[0]);
        any |= some[k];
    }
    if (at != i->operands)
        sim_fail(w->sim, "%d operands, %d expected", i->operands, at);
    j->known = !any;
    for (int k = 0; any && k < 3; k++)
        if (!some[k]) {
            memset(j->us[k], 0, sizeof j->us[k]);
            memset(j->uh[k], 0, sizeof j->uh[k]);
        }
    t = strchr(i->op->signature, ':') + 1;
    for (int k = 0; any && k < j->sources; k++) {
        char type = t[k];
        if (type != 'U' && type != 'D' && type != 'P')
            memset(j->uh[k], 0, sizeof j->uh[k]);
    }
}

/* ---- what is unknown of the result ---- */

static void unknown_of_any(struct insn *i, struct job *j)
{
    char type = i->op->signature[0];
    bool halves = type == 'p' || type == 'q', pair = type == 'P', wide = type == 'U';
    j->out_unknown = j->mask_unknown;
    for (int l = 0; l < LANES; l++) {
        uint32_t u = 0, h = 0;
        for (int k = 0; k < j->sources; k++) {
            u |= j->us[k][l];
            h |= j->uh[k][l];
        }
        if (j->mask_unknown >> l & 1)
            u |= 1;
        if (halves)
            u = (u & 0xffff ? 0xffff : 0) | (u >> 16 ? 0xffff0000 : 0);
        else if (wide) /* sums and products: nothing comes down from the high words */
            h |= u;
        else if (!pair)
            u = h = u | h;
        j->ud[l] = halves || !u ? u : ~0u;
        j->udh[l] = h ? ~0u : 0;
        j->out_unknown |= (uint64_t)(u || h) << l;
    }
}

static void unknown_of_bits(struct insn *i, struct job *j)
{
    struct vec ones = j->x;
    for (int k = 0; k < j->sources; k++)
        for (int l = 0; l < LANES; l++) {
            ones.s[k][l] |= j->us[k][l];
            ones.h[k][l] |= j->uh[k][l];
            j->x.s[k][l] &= ~j->us[k][l];
            j->x.h[k][l] &= ~j->uh[k][l];
        }
    ones.mask |= j->mask_unknown;
    j->x.mask &= ~j->mask_unknown;
    i->op->vector(&ones);
    i->op->vector(&j->x);
    for (int l = 0; l < LANES; l++) {
        j->ud[l] = ones.d[l] ^ j->x.d[l];
        j->udh[l] = ones.dh[l] ^ j->x.dh[l];
    }
    j->out_unknown = ones.out ^ j->x.out;
}

static void unknown_of_xor(struct job *j)
{
    for (int l = 0; l < LANES; l++) {
        j->ud[l] = j->us[0][l] | j->us[1][l] | j->us[2][l];
        j->udh[l] = j->uh[0][l] | j->uh[1][l] | j->uh[2][l];
    }
}

static void compute(struct wave *w, struct insn *i, struct job *j)
{
    j->x.lanes = w->lanes;
    j->x.immediate = i->immediate;
    j->x.jitter = w->sim->jitter;
    j->x.mask = j->x.out = j->mask_unknown = j->out_unknown = 0;
    j->lanes = exec_of(w);
    gather(w, i, j);
    if (j->known) {
        i->op->vector(&j->x);
        return;
    }
    if (i->op->rule == BITS) {
        memset(j->x.dh, 0, sizeof j->x.dh);
        unknown_of_bits(i, j);
        return;
    }
    i->op->vector(&j->x);
    if (i->op->rule == ANY)
        unknown_of_any(i, j);
    else
        unknown_of_xor(j);
}

/* ---- the result ---- */

static void write_half(struct wave *w, struct insn *i, struct job *j, char type)
{
    bool high =
        type == 'i' || i->o[0].part == WORD_1 || (!i->o[0].part && i->op_sel >> j->sources & 1);
    bool keeps = high || type == 'i' || type == 'l' || !is_gfx9(w);
    const uint32_t *old = w->v[i->o[0].reg], *old_unknown = w->vu[i->o[0].reg];
    uint32_t value[LANES], unknown[LANES];
    if (type == 'i' || type == 'l')
        high = type == 'i';
    EACH_LANE(w)
    {
        uint32_t kept = keeps ? old[l] : 0, kept_unknown = keeps ? old_unknown[l] : 0;
        uint32_t u = j->known ? 0 : j->ud[l] & 0xffff, hole = high ? 0xffff : 0xffff0000;
        value[l] = (kept & hole) | (j->x.d[l] & 0xffff) << 16 * high;
        unknown[l] = (kept_unknown & hole) | u << 16 * high;
    }
    write_lanes(w, i->o[0].reg, j->lanes, value, unknown);
}

/* SDWA's choice of the destination's part: the rest is zero, the sign, or kept. */
static void place_part(struct wave *w, struct insn *i, struct job *j)
{
    int bits = i->dst_part >= WORD_0 ? 16 : 8;
    int shift = i->dst_part >= WORD_0 ? 16 * (i->dst_part - WORD_0) : 8 * (i->dst_part - BYTE_0);
    uint32_t field = ((1u << bits) - 1) << shift;
    const uint32_t *old = w->v[i->o[0].reg], *old_unknown = w->vu[i->o[0].reg];
    if (i->dst_unused == 'S')
        sim_fail(w->sim, "sign into the unused part");
    EACH_LANE(w)
    {
        bool keep = i->dst_unused == 'K';
        j->x.d[l] = (j->x.d[l] << shift & field) | (keep ? old[l] & ~field : 0);
        j->ud[l] =
            ((j->known ? 0 : j->ud[l]) << shift & field) | (keep ? old_unknown[l] & ~field : 0);
    }
    j->known = false;
}

static void clamp(struct wave *w, struct insn *i, struct job *j)
{
    if (i->op->signature[0] != 'f')
        sim_fail(w->sim, "clamp of this type");
    EACH_LANE(w)
    {
        float x = as_float(j->x.d[l]);
        j->x.d[l] = !(x > 0) ? 0 : x > 1 ? float_bits(1) : j->x.d[l];
    }
}

static void commit(struct wave *w, struct insn *i, struct job *j)
{
    char type = i->op->signature[0];
    uint64_t exec = exec_of(w);
    if (type == 'c' || type == 'X') {
        static const struct operand to_exec = {.kind = IS_SCALAR, .words = 2, .reg = SGPR_EXEC};
        write_mask(w, type == 'X' ? &to_exec : &i->o[0], j->x.out & exec,
                   j->known ? 0 : j->out_unknown & exec);
        return;
    }
    if (i->o[0].kind != IS_VECTOR)
        sim_fail(w->sim, "result in no vector register");
    if (i->op->signature[1] == 'k')
        write_mask(w, &i->o[1], j->x.out & exec, j->known ? 0 : j->out_unknown & exec);
    if (i->clamp)
        clamp(w, i, j);
    if (i->sdwa && i->dst_part)
        place_part(w, i, j);
    if (type == 'h' || type == 'w' || type == 'l' || type == 'i') {
        write_half(w, i, j, type);
        return;
    }
    write_lanes(w, i->o[0].reg, j->lanes, j->x.d, j->known ? NULL : j->ud);
    if (type == 'U' || type == 'D' || type == 'P')
        write_lanes(w, i->o[0].reg + 1, j->lanes, j->x.dh, j->known ? NULL : j->udh);
}

void vector_run(struct wave *w, struct insn *i)
{
    struct job job, second;
    compute(w, i, &job);
    if (i->second) { /* both read before either writes */
        compute(w, i->second, &second);
        commit(w, i->second, &second);
    }
    commit(w, i, &job);
}
