/* SPDX-License-Identifier: Apache-2.0 */
/*
** op_lane.c - values from other lanes.
*/
#include "access.h"
#include "fn.h"

#include <string.h>

struct lanes {
    uint32_t value[LANES], unknown[LANES];
};

static void fetch(struct wave *w, const struct operand *o, struct lanes *out)
{
    if (!read_lanes(w, o, 0, 'u', out->value, out->unknown))
        memset(out->unknown, 0, sizeof out->unknown);
}

/* Lane 0 where no lane is active. */
void op_readfirstlane(struct wave *w, struct insn *i, int argument_)
{
    struct lanes x;
    uint64_t exec = exec_of(w);
    int l = exec ? __builtin_ctzll(exec) : 0;
    (void)argument_;
    fetch(w, &i->o[1], &x);
    write_scalar(w, i->o[0].reg, x.value[l], x.unknown[l]);
}

void op_readlane(struct wave *w, struct insn *i, int argument_)
{
    struct lanes x;
    uint32_t l = need_scalar(w, &i->o[2], "lane number") & (uint32_t)(w->lanes - 1);
    (void)argument_;
    fetch(w, &i->o[1], &x);
    write_scalar(w, i->o[0].reg, x.value[l], x.unknown[l]);
}

void op_writelane(struct wave *w, struct insn *i, int argument_)
{
    uint64_t unknown, value = read_scalar(w, &i->o[1], 'u', &unknown);
    uint32_t l = need_scalar(w, &i->o[2], "lane number") & (uint32_t)(w->lanes - 1);
    (void)argument_;
    write_lane(w, i->o[0].reg, (int)l, (uint32_t)value, (uint32_t)unknown);
}

/* A lane takes from its row of 16, or from the other row of its pair, the lane that its nibble
** names. An inactive source gives 0 with bound_ctrl, else leaves the lane alone. */
void op_permlane16(struct wave *w, struct insn *i, int exchange)
{
    struct lanes x, d;
    uint64_t exec = exec_of(w), lanes = exec;
    uint64_t select = need_scalar(w, &i->o[2], "lane numbers") |
                      (uint64_t)need_scalar(w, &i->o[3], "lane numbers") << 32;
    bool inactive = i->op_sel & 1, zero = i->op_sel & 2; /* op_sel: FI, BOUND_CTRL */
    fetch(w, &i->o[1], &x);
    EACH_LANE(w)
    {
        int from = ((l & ~15) ^ exchange) | (int)(select >> 4 * (l & 15) & 15);
        bool valid = inactive || exec >> from & 1;
        if (!valid && !zero)
            lanes &= ~((uint64_t)1 << l);
        d.value[l] = valid ? x.value[from] : 0;
        d.unknown[l] = valid ? x.unknown[from] : 0;
    }
    write_lanes(w, i->o[0].reg, lanes, d.value, d.unknown);
}

/* gfx950: odd rows (or the upper half) of the first against even rows (the lower half) of the
** second. */
void op_permlane_swap(struct wave *w, struct insn *i, int span)
{
    struct lanes a, b, x, y;
    fetch(w, &i->o[0], &a);
    fetch(w, &i->o[1], &b);
    x = a;
    y = b;
    EACH_LANE(w)
    if (l & span) {
        x.value[l] = b.value[l - span];
        x.unknown[l] = b.unknown[l - span];
        y.value[l - span] = a.value[l];
        y.unknown[l - span] = a.unknown[l];
    }
    write_lanes(w, i->o[0].reg, exec_of(w), x.value, x.unknown);
    write_lanes(w, i->o[1].reg, exec_of(w), y.value, y.unknown);
}

/* Inactive lanes give 0. */
void op_bpermute(struct wave *w, struct insn *i, int argument_)
{
    struct lanes x, d;
    uint32_t address[LANES];
    uint64_t exec = exec_of(w);
    (void)argument_;
    need_lanes(w, &i->o[1], 0, address, "lane number");
    fetch(w, &i->o[2], &x);
    EACH_LANE(w)
    {
        uint32_t from = (address[l] + (uint32_t)i->offset) / 4 % (uint32_t)w->lanes;
        d.value[l] = exec >> from & 1 ? x.value[from] : 0;
        d.unknown[l] = exec >> from & 1 ? x.unknown[from] : 0;
    }
    write_lanes(w, i->o[0].reg, exec, d.value, d.unknown);
}

void op_permute(struct wave *w, struct insn *i, int argument_)
{
    struct lanes x, d = {{0}, {0}};
    uint32_t address[LANES];
    uint64_t exec = exec_of(w);
    (void)argument_;
    need_lanes(w, &i->o[1], 0, address, "lane number");
    fetch(w, &i->o[2], &x);
    EACH_LANE(w)
    if (exec >> l & 1) {
        uint32_t to = (address[l] + (uint32_t)i->offset) / 4 % (uint32_t)w->lanes;
        d.value[to] = x.value[l];
        d.unknown[to] = x.unknown[l];
    }
    write_lanes(w, i->o[0].reg, exec, d.value, d.unknown);
}

void op_swizzle(struct wave *w, struct insn *i, int argument_)
{
    struct lanes x, d;
    uint64_t exec = exec_of(w);
    int and = i->swizzle & 31, or = i->swizzle >> 5 & 31, xor = i->swizzle >> 10 & 31;
    (void)argument_;
    if (i->swizzle < 0)
        sim_fail(w->sim, "this mode of ds_swizzle");
    fetch(w, &i->o[1], &x);
    EACH_LANE(w)
    {
        int from = (l & 32) | ((((l & and) | or) ^ xor) & 31);
        d.value[l] = exec >> from & 1 ? x.value[from] : 0;
        d.unknown[l] = exec >> from & 1 ? x.unknown[from] : 0;
    }
    write_lanes(w, i->o[0].reg, exec, d.value, d.unknown);
}
