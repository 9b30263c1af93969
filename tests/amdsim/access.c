/* SPDX-License-Identifier: Apache-2.0 */
/*
** access.c - registers, and what is unknown of them.
*/
#include "access.h"

#include "number.h"

#include <string.h>

uint32_t constant_bits(const struct operand *o, int word, char type)
{
    if (o->kind == IS_INTEGER)
        return (uint32_t)((uint64_t)o->integer >> 32 * word);
    if (type == 'D')
        return (uint32_t)(double_bits(o->real) >> 32 * word);
    if (type == 'h' || type == 'p')
        return word ? 0 : half_of_double(o->real);
    return word ? 0 : float_bits((float)o->real);
}

static uint32_t part_bits(uint32_t x, int part, bool extend)
{
    switch (part) {
    case BYTE_0:
    case BYTE_1:
    case BYTE_2:
    case BYTE_3: x = x >> 8 * (part - BYTE_0) & 0xff; return extend ? (uint32_t)(int8_t)x : x;
    case WORD_0:
    case WORD_1: x = x >> 16 * (part - WORD_0) & 0xffff; return extend ? (uint32_t)(int16_t)x : x;
    default: return x;
    }
}

static bool scalar_word(struct wave *w, const struct operand *o, int word, char type,
                        uint32_t *value, uint32_t *unknown)
{
    *unknown = 0;
    switch (o->kind) {
    case IS_INTEGER:
    case IS_REAL: *value = constant_bits(o, word, type); return true;
    case IS_SCC:
        *value = w->scc;
        *unknown = w->scc_unknown ? 1 : 0;
        return true;
    case IS_SCALAR:
        *value = 0;
        if (o->reg == SGPR_NULL)
            return true;
        if (word >= o->words) /* a condition of a wave of 32 lanes */
            return true;
        *value = w->s[o->reg + word];
        *unknown = w->su[o->reg + word];
        return true;
    default: return false;
    }
}

bool read_lanes(struct wave *w, const struct operand *o, int word, char type, uint32_t *out,
                uint32_t *unknown)
{
    bool some = false;
    if (o->kind == IS_VECTOR) {
        if (word >= o->words)
            sim_fail(w->sim, "operand too narrow");
        memcpy(out, w->v[o->reg + word], sizeof *out * LANES);
        some = w->partial[o->reg + word];
        if (some && unknown)
            memcpy(unknown, w->vu[o->reg + word], sizeof *unknown * LANES);
    } else {
        uint32_t value, bits;
        if (!scalar_word(w, o, word, type, &value, &bits))
            sim_fail(w->sim, "operand without a value");
        some = bits != 0;
        for (int l = 0; l < LANES; l++)
            out[l] = value;
        for (int l = 0; some && unknown && l < LANES; l++)
            unknown[l] = bits;
    }
    if (o->part)
        for (int l = 0; l < LANES; l++) {
            out[l] = part_bits(out[l], o->part, o->flags & EXTEND);
            if (some && unknown)
                unknown[l] = part_bits(unknown[l], o->part, o->flags & EXTEND);
        }
    return some;
}

void write_lanes(struct wave *w, int reg, uint64_t lanes, const uint32_t *values,
                 const uint32_t *unknown)
{
    uint32_t *v = w->v[reg], *u = w->vu[reg], any = 0;
    EACH_LANE(w)
    {
        uint32_t on = lanes >> l & 1 ? ~0u : 0;
        v[l] = (v[l] & ~on) | (values[l] & on);
    }
    if (!unknown && !w->partial[reg])
        return;
    EACH_LANE(w)
    {
        if (lanes >> l & 1)
            u[l] = unknown ? unknown[l] : 0;
        any |= u[l];
    }
    w->partial[reg] = any != 0;
}

void write_lane(struct wave *w, int reg, int lane, uint32_t value, uint32_t unknown)
{
    w->v[reg][lane] = value;
    w->vu[reg][lane] = unknown; /* `partial` may stay set: it says "may" */
    w->partial[reg] |= unknown != 0;
}

uint64_t read_scalar(struct wave *w, const struct operand *o, char type, uint64_t *unknown)
{
    uint32_t low, high = 0, low_unknown, high_unknown = 0;
    bool wide = type == 'U' || type == 'D';
    if (!scalar_word(w, o, 0, type, &low, &low_unknown))
        sim_fail(w->sim, "operand without a value");
    if (wide)
        scalar_word(w, o, 1, type, &high, &high_unknown);
    *unknown = low_unknown | (uint64_t)high_unknown << 32;
    return low | (uint64_t)high << 32;
}

void write_scalar(struct wave *w, int reg, uint32_t value, uint32_t unknown)
{
    if (reg == SGPR_NULL)
        return;
    if (unknown && (reg == SGPR_EXEC || (reg == SGPR_EXEC + 1 && w->lanes == 64)))
        sim_fail(w->sim, "EXEC from an unknown value");
    w->s[reg] = value;
    w->su[reg] = unknown;
}

void write_mask(struct wave *w, const struct operand *o, uint64_t value, uint64_t unknown)
{
    if (o->kind != IS_SCALAR)
        sim_fail(w->sim, "a condition in no scalar register");
    write_scalar(w, o->reg, (uint32_t)value, (uint32_t)unknown);
    if (w->lanes == 64 && o->reg != SGPR_NULL)
        write_scalar(w, o->reg + 1, (uint32_t)(value >> 32), (uint32_t)(unknown >> 32));
}

uint32_t need_scalar(struct wave *w, const struct operand *o, const char *what)
{
    uint64_t unknown, value = read_scalar(w, o, 'u', &unknown);
    if (unknown)
        sim_fail(w->sim, "%s from an unknown value", what);
    return (uint32_t)value;
}

void need_lanes(struct wave *w, const struct operand *o, int word, uint32_t *out, const char *what)
{
    uint32_t unknown[LANES];
    uint64_t exec = exec_of(w);
    if (!read_lanes(w, o, word, 'u', out, unknown))
        return;
    EACH_LANE(w)
    if (exec >> l & 1 && unknown[l])
        sim_fail(w->sim, "lane %d: %s from an unknown value", l, what);
}
