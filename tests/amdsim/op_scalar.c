/* SPDX-License-Identifier: Apache-2.0 */
/*
** op_scalar.c - instructions on scalar registers.
*/
#include "access.h"
#include "fn.h"

#include <math.h>
#include <string.h>

/* result, and SCC */
#define SOP(id, result, condition)                                                                 \
    void op_##id(struct scalar *x)                                                                 \
    {                                                                                              \
        uint64_t a = x->s[0], b = x->s[1], d;                                                      \
        uint32_t u = (uint32_t)a, v = (uint32_t)b;                                                 \
        bool in = x->scc;                                                                          \
        (void)u, (void)v, (void)in, (void)b;                                                       \
        x->d = d = (uint64_t)(result);                                                             \
        (void)d;                                                                                   \
        x->scc = (condition);                                                                      \
    }
/* result; SCC is left alone */
#define KEEP(id, result)                                                                           \
    void op_##id(struct scalar *x)                                                                 \
    {                                                                                              \
        uint64_t a = x->s[0], b = x->s[1];                                                         \
        uint32_t u = (uint32_t)a, v = (uint32_t)b;                                                 \
        (void)u, (void)v, (void)b;                                                                 \
        x->d = (uint64_t)(result);                                                                 \
        x->keep = true;                                                                            \
    }
#define NOT0 d != 0
#define I(u) ((int32_t)(u))

KEEP(s_mov, a)
KEEP(s_cselect, x->scc ? a : b)
SOP(s_not_b32, (uint32_t)~u, NOT0)
SOP(s_not_b64, ~a, NOT0)
SOP(s_and, a &b, NOT0)
SOP(s_or, a | b, NOT0)
SOP(s_xor, a ^ b, NOT0)
SOP(s_andn2, a & ~b, NOT0)
SOP(s_orn2_b32, u | (uint32_t)~v, NOT0)
SOP(s_orn2_b64, a | ~b, NOT0)
SOP(s_nor_b32, (uint32_t) ~(u | v), NOT0)
SOP(s_nor_b64, ~(a | b), NOT0)
SOP(s_lshl_b32, (uint32_t)(u << (v & 31)), NOT0)
SOP(s_lshl_b64, a << (v & 63), NOT0)
SOP(s_lshr_b32, u >> (v & 31), NOT0)
SOP(s_lshr_b64, a >> (v & 63), NOT0)
SOP(s_ashr_i32, (uint32_t)(I(u) >> (v & 31)), NOT0)
SOP(s_ashr_i64, (int64_t)a >> (v & 63), NOT0)
KEEP(s_bfm_b32, (uint32_t)(((1u << (u & 31)) - 1) << (v & 31)))
KEEP(s_pack_ll, (u & 0xffff) | (uint32_t)(v << 16))
KEEP(s_pack_lh, (u & 0xffff) | (v & 0xffff0000))
KEEP(s_pack_hh, u >> 16 | (v & 0xffff0000))
KEEP(s_sext_i16, (uint32_t)(int16_t)u)
KEEP(s_sext_i8, (uint32_t)(int8_t)u)
KEEP(s_bitset1, u | 1u << (v & 31))
KEEP(s_bitset0, u & ~(1u << (v & 31)))
SOP(s_add_u32, (uint32_t)(u + v), (a + b) >> 32 & 1)
SOP(s_sub_u32, (uint32_t)(u - v), v > u)
SOP(s_addc_u32, (uint32_t)(u + v + in), (a + b + in) >> 32 & 1)
SOP(s_subb_u32, (uint32_t)(u - v - in), b + in > a)
SOP(s_add_i32, (uint32_t)(u + v), (int64_t)I(u) + I(v) != I(u + v))
SOP(s_sub_i32, (uint32_t)(u - v), (int64_t)I(u) - I(v) != I(u - v))
KEEP(s_mul_i32, (uint32_t)(u *v))
KEEP(s_mul_hi_u32, a *b >> 32)
KEEP(s_mul_hi_i32, (uint32_t)((uint64_t)((int64_t)I(u) * I(v)) >> 32))
KEEP(s_mul_u64, a *b)
KEEP(s_add_nc_u64, a + b)
KEEP(s_sub_nc_u64, a - b)
SOP(s_lshl1_add, (uint32_t)((u << 1) + v), ((a << 1) + b) >> 32 != 0)
SOP(s_lshl2_add, (uint32_t)((u << 2) + v), ((a << 2) + b) >> 32 != 0)
SOP(s_lshl3_add, (uint32_t)((u << 3) + v), ((a << 3) + b) >> 32 != 0)
SOP(s_lshl4_add, (uint32_t)((u << 4) + v), ((a << 4) + b) >> 32 != 0)
SOP(s_min_i32, I(u) < I(v) ? u : v, I(u) < I(v))
SOP(s_max_i32, I(u) > I(v) ? u : v, I(u) > I(v))
SOP(s_min_u32, u < v ? u : v, u < v)
SOP(s_max_u32, u > v ? u : v, u > v)
SOP(s_abs_i32, (uint32_t)(I(u) < 0 ? 0 - u : u), NOT0)
SOP(s_bcnt1, __builtin_popcountll(a), NOT0)
KEEP(s_ff1_b32, (uint32_t)(u ? __builtin_ctz(u) : -1))
KEEP(s_ff1_b64, (uint32_t)(a ? __builtin_ctzll(a) : -1))
KEEP(s_flbit_b32, (uint32_t)(u ? __builtin_clz(u) : -1))
SOP(s_eq, 0, a == b)
SOP(s_lg, 0, a != b)
SOP(s_gt_i32, 0, I(u) > I(v))
SOP(s_ge_i32, 0, I(u) >= I(v))
SOP(s_lt_i32, 0, I(u) < I(v))
SOP(s_le_i32, 0, I(u) <= I(v))
SOP(s_gt_u32, 0, u > v)
SOP(s_ge_u32, 0, u >= v)
SOP(s_lt_u32, 0, u < v)
SOP(s_le_u32, 0, u <= v)
SOP(s_bitcmp0, 0, !(u >> (v & 31) & 1))
SOP(s_bitcmp1, 0, u >> (v & 31) & 1)
SOP(s_eq_f32, 0, as_float(u) == as_float(v))
SOP(s_lg_f32, 0, as_float(u) < as_float(v) || as_float(u) > as_float(v))
SOP(s_neq_f32, 0, !(as_float(u) == as_float(v)))
SOP(s_lt_f32, 0, as_float(u) < as_float(v))
SOP(s_le_f32, 0, as_float(u) <= as_float(v))
SOP(s_gt_f32, 0, as_float(u) > as_float(v))
SOP(s_ge_f32, 0, as_float(u) >= as_float(v))
SOP(s_nlt_f32, 0, !(as_float(u) < as_float(v)))
SOP(s_nle_f32, 0, !(as_float(u) <= as_float(v)))
SOP(s_ngt_f32, 0, !(as_float(u) > as_float(v)))
SOP(s_nge_f32, 0, !(as_float(u) >= as_float(v)))
SOP(s_o_f16, 0, !isnan(half_value(u & 0xffff)) && !isnan(half_value(v & 0xffff)))
SOP(s_u_f16, 0, isnan(half_value(u & 0xffff)) || isnan(half_value(v & 0xffff)))

static uint32_t reversed(uint32_t a)
{
    uint32_t r = 0;
    for (int i = 0; i < 32; i++)
        r |= (a >> i & 1) << (31 - i);
    return r;
}
KEEP(s_brev, reversed(u))

static uint32_t field(uint32_t a, uint32_t how)
{
    uint32_t from = how & 31, width = how >> 16 & 127;
    return !width ? 0 : width >= 32 ? a >> from : a >> from & ((1u << width) - 1);
}
static uint32_t signed_field(uint32_t a, uint32_t how)
{
    uint32_t width = how >> 16 & 127, x = field(a, how);
    return width && width < 32 && x >> (width - 1) ? x | ~((1u << width) - 1) : x;
}
SOP(s_bfe_u32, field(u, v), NOT0)
SOP(s_bfe_i32, signed_field(u, v), NOT0)

/* ---- running one ---- */

static uint64_t immediate(const struct operand *o) { return (uint32_t)(int16_t)o->integer; }

static uint64_t with_signs(const struct operand *o, uint64_t x)
{
    if (o->flags & ABSOLUTE)
        x &= 0x7fffffff;
    return o->flags & NEGATE ? x ^ 0x80000000 : x;
}

static int result_words(const struct op *op)
{
    return op->signature[0] == 'c' ? 0 : op->signature[0] == 'U' ? 2 : 1;
}

void scalar_run(struct wave *w, struct insn *i)
{
    const char *types = strchr(i->op->signature, ':') + 1;
    int words = result_words(i->op), at = words && types[0] != 'd';
    struct scalar zeros = {.scc = w->scc}, ones = {.scc = w->scc};
    uint64_t all = words == 2 ? ~(uint64_t)0 : 0xffffffff, mixed = 0, unknown;
    for (int k = 0; types[k]; k++) {
        const struct operand *o = &i->o[at++];
        uint64_t x = types[k] == 'k' ? immediate(o) : read_scalar(w, o, types[k], &unknown);
        if (types[k] == 'k')
            unknown = 0;
        if (types[k] == 'f')
            x = with_signs(o, x);
        zeros.s[k] = i->op->rule == BITS ? x & ~unknown : x;
        ones.s[k] = x | unknown;
        mixed |= unknown;
    }
    if (at != i->operands)
        sim_fail(w->sim, "%d operands, %d expected", i->operands, at);
    i->op->scalar(&zeros);
    bool reads_scc = i->op->scalar == op_s_cselect || i->op->scalar == op_s_addc_u32 ||
                     i->op->scalar == op_s_subb_u32;
    if (w->scc_unknown && reads_scc)
        sim_fail(w->sim, "SCC is unknown");
    unknown = mixed;
    bool scc_unknown = mixed != 0;
    if (mixed && i->op->rule == BITS) {
        i->op->scalar(&ones);
        unknown = zeros.d ^ ones.d;
        scc_unknown = words ? unknown && !zeros.d : zeros.scc != ones.scc;
    } else if (mixed && i->op->rule == ANY)
        unknown = all;
    if (words && i->o[0].kind != IS_SCALAR)
        sim_fail(w->sim, "result in no scalar register");
    for (int word = 0; word < words; word++)
        write_scalar(w, i->o[0].reg + word, (uint32_t)(zeros.d >> 32 * word),
                     (uint32_t)(unknown >> 32 * word));
    if (!zeros.keep) {
        w->scc = zeros.scc;
        w->scc_unknown = scc_unknown;
    }
}

/* ---- with EXEC, or the program counter ---- */

void op_saveexec(struct wave *w, struct insn *i, int how)
{
    uint64_t unknown, exec = exec_of(w),
                      x = read_scalar(w, &i->o[1], w->lanes == 64 ? 'U' : 'u', &unknown), d = 0;
    static const struct operand to_exec = {.kind = IS_SCALAR, .words = 2, .reg = SGPR_EXEC};
    switch (how) {
    case 0:
        d = x & exec;
        unknown &= exec;
        break;
    case 1: d = x | exec; break;
    case 2:
        d = x & ~exec;
        unknown &= ~exec;
        break;
    default: d = x ^ exec;
    }
    if ((strstr(i->op->name, "b64") != NULL) != (w->lanes == 64))
        sim_fail(w->sim, "EXEC of another width");
    write_mask(w, &i->o[0], exec, 0);
    write_mask(w, &to_exec, d, unknown);
    w->scc = d != 0;
    w->scc_unknown = false;
}

void op_s_fmac(struct wave *w, struct insn *i, int argument_)
{
    uint64_t u[3], a = read_scalar(w, &i->o[1], 'f', &u[0]),
                   b = read_scalar(w, &i->o[2], 'f', &u[1]);
    uint64_t c = read_scalar(w, &i->o[0], 'f', &u[2]);
    (void)argument_;
    write_scalar(
        w, i->o[0].reg,
        float_bits(fmaf(as_float((uint32_t)a), as_float((uint32_t)b), as_float((uint32_t)c))),
        u[0] | u[1] | u[2] ? ~0u : 0);
}

void op_getpc(struct wave *w, struct insn *i, int argument_)
{
    uint64_t next = w->sim->program->base + i->address + 4;
    (void)argument_;
    write_scalar(w, i->o[0].reg, (uint32_t)next, 0);
    write_scalar(w, i->o[0].reg + 1, (uint32_t)(next >> 32), 0);
}
