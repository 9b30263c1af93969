/* SPDX-License-Identifier: Apache-2.0 */
/*
** op_memory.c - loads and stores: shared, global, private, and of scalars.
**
** Arguments as in ops.def: bytes, and flags.
*/
#include "access.h"
#include "fn.h"

#include <string.h>

enum {
    BYTES = 255,
    TWO = 256,
    TWO_64 = 512,
    HALF_LOW = 1024,
    HALF_HIGH = 2048,
    SIGNED = 4096,
    MOST = 16
};

struct loaded {
    uint8_t value[MOST], unknown[MOST];
};

static uint32_t word_at(const uint8_t *from)
{
    return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

static void to_bytes(uint8_t *to, uint32_t word, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (uint8_t)(word >> 8 * i);
}

/* Fewer than four bytes: zeros or the sign above, or one half of the register. What happens to the
** other half depends on the memory protection of gfx9: it counts as unknown there. */
static void put_part(struct wave *w, int reg, int l, int how, const struct loaded *x)
{
    int bits = 8 * (how & BYTES);
    uint32_t value = word_at(x->value) & ((1u << bits) - 1),
             unknown = word_at(x->unknown) & ((1u << bits) - 1);
    if (how & SIGNED) {
        value = (uint32_t)((int32_t)(value << (32 - bits)) >> (32 - bits));
        unknown = (uint32_t)((int32_t)(unknown << (32 - bits)) >> (32 - bits));
    }
    if (how & (HALF_LOW | HALF_HIGH)) {
        int shift = how & HALF_HIGH ? 16 : 0;
        uint32_t other = ~(0xffffu << shift);
        value = (value & 0xffff) << shift | (w->v[reg][l] & other);
        unknown = (unknown & 0xffff) << shift | (is_gfx9(w) ? other : w->vu[reg][l] & other);
    }
    write_lane(w, reg, l, value, unknown);
}

static void put(struct wave *w, int reg, int l, int how, const struct loaded *x)
{
    int bytes = how & BYTES;
    if (bytes < 4)
        put_part(w, reg, l, how, x);
    for (int at = 0; at + 4 <= bytes; at += 4)
        write_lane(w, reg + at / 4, l, word_at(x->value + at), word_at(x->unknown + at));
}

static void take(struct wave *w, const struct operand *o, int l, int how, struct loaded *x)
{
    int bytes = how & BYTES, shift = how & HALF_HIGH || o->part == WORD_1 ? 16 : 0;
    if (o->kind != IS_VECTOR)
        sim_fail(w->sim, "data in no vector register");
    if (bytes < 4) {
        to_bytes(x->value, w->v[o->reg][l] >> shift, bytes);
        to_bytes(x->unknown, w->vu[o->reg][l] >> shift, bytes);
    }
    for (int at = 0; at + 4 <= bytes; at += 4) {
        to_bytes(x->value + at, w->v[o->reg + at / 4][l], 4);
        to_bytes(x->unknown + at, w->vu[o->reg + at / 4][l], 4);
    }
}

static void check_words(struct wave *w, const struct operand *o, int bytes)
{
    if (o->words != (bytes + 3) / 4)
        sim_fail(w->sim, "data of another size");
}

/* ---- shared ---- */

static int shared_offsets(const struct insn *i, int how, uint32_t offsets[2])
{
    uint32_t unit = (uint32_t)(how & BYTES) * (how & TWO_64 ? 64 : 1);
    if (!(how & (TWO | TWO_64))) {
        offsets[0] = (uint32_t)i->offset;
        return 1;
    }
    offsets[0] = (uint32_t)i->offset0 * unit;
    offsets[1] = (uint32_t)i->offset1 * unit;
    return 2;
}

void op_ds_load(struct wave *w, struct insn *i, int how)
{
    uint32_t address[LANES], offsets[2];
    int count = shared_offsets(i, how, offsets), bytes = how & BYTES;
    uint64_t exec = exec_of(w);
    check_words(w, &i->o[0], bytes * count);
    need_lanes(w, &i->o[1], 0, address, "LDS address");
    EACH_LANE(w)
    for (int n = 0; exec >> l & 1 && n < count; n++) {
        struct loaded x;
        load_shared(w, address[l] + offsets[n], (size_t)bytes, x.value, x.unknown);
        put(w, i->o[0].reg + n * bytes / 4, l, how, &x);
    }
}

void op_ds_store(struct wave *w, struct insn *i, int how)
{
    uint32_t address[LANES], offsets[2];
    int count = shared_offsets(i, how, offsets), bytes = how & BYTES;
    uint64_t exec = exec_of(w);
    need_lanes(w, &i->o[0], 0, address, "LDS address");
    for (int n = 0; n < count; n++)
        check_words(w, &i->o[1 + n], bytes);
    EACH_LANE(w)
    for (int n = 0; exec >> l & 1 && n < count; n++) {
        struct loaded x;
        take(w, &i->o[1 + n], l, how, &x);
        store_shared(w, address[l] + offsets[n], (size_t)bytes, x.value, x.unknown);
    }
}

/* ---- global ---- */

/* A 64-bit address in lanes, or a scalar base and an unsigned 32-bit offset in lanes. */
static void addresses(struct wave *w, struct insn *i, const struct operand *lanes,
                      const struct operand *base, uint64_t *out)
{
    uint32_t low[LANES], high[LANES] = {0};
    uint64_t from = (uint64_t)(int64_t)i->offset, unknown = 0;
    need_lanes(w, lanes, 0, low, "address");
    if (base->kind == IS_SCALAR)
        from += read_scalar(w, base, 'U', &unknown);
    else
        need_lanes(w, lanes, 1, high, "address");
    if (unknown)
        sim_fail(w->sim, "address from an unknown value");
    EACH_LANE(w) out[l] = from + (low[l] | (uint64_t)high[l] << 32);
}

void op_global_load(struct wave *w, struct insn *i, int how)
{
    uint64_t address[LANES], exec = exec_of(w);
    check_words(w, &i->o[0], how & BYTES);
    addresses(w, i, &i->o[1], &i->o[2], address);
    EACH_LANE(w)
    if (exec >> l & 1) {
        struct loaded x;
        load_global(w, address[l], (size_t)(how & BYTES), x.value, x.unknown);
        put(w, i->o[0].reg, l, how, &x);
    }
}

void op_global_store(struct wave *w, struct insn *i, int how)
{
    uint64_t address[LANES], exec = exec_of(w);
    check_words(w, &i->o[1], how & BYTES);
    addresses(w, i, &i->o[0], &i->o[2], address);
    EACH_LANE(w)
    if (exec >> l & 1) {
        struct loaded x;
        take(w, &i->o[1], l, how, &x);
        for (int at = 0; at < (how & BYTES); at++)
            if (x.unknown[at])
                sim_fail(w->sim, "lane %d stores an unknown value", l);
        store_global(w, address[l], (size_t)(how & BYTES), x.value);
    }
}

/* ---- private: the offset of a lane's own bytes ---- */

static void private_offsets(struct wave *w, struct insn *i, const struct operand *lanes,
                            const struct operand *base, int bytes, uint32_t *out)
{
    uint32_t from = (uint32_t)i->offset;
    memset(out, 0, sizeof *out * LANES);
    if (lanes->kind == IS_VECTOR)
        need_lanes(w, lanes, 0, out, "private address");
    if (base->kind == IS_SCALAR)
        from += need_scalar(w, base, "private address");
    EACH_LANE(w)
    {
        out[l] += from;
        if (exec_of(w) >> l & 1 &&
            (out[l] > w->group->scratch_bytes || w->group->scratch_bytes - out[l] < (size_t)bytes))
            sim_fail(w->sim, "lane %d: private bytes %u to %u of %zu", l, out[l],
                     out[l] + (unsigned)bytes, w->group->scratch_bytes);
    }
}

void op_scratch_load(struct wave *w, struct insn *i, int bytes)
{
    uint32_t at[LANES];
    uint64_t exec = exec_of(w);
    private_offsets(w, i, &i->o[1], &i->o[2], bytes, at);
    EACH_LANE(w)
    if (exec >> l & 1) {
        struct loaded x;
        size_t from = (size_t)l * w->group->scratch_bytes + at[l];
        memcpy(x.value, w->scratch + from, (size_t)bytes);
        memcpy(x.unknown, w->scratch_unknown + from, (size_t)bytes);
        put(w, i->o[0].reg, l, bytes, &x);
    }
}

void op_scratch_store(struct wave *w, struct insn *i, int bytes)
{
    uint32_t at[LANES];
    uint64_t exec = exec_of(w);
    private_offsets(w, i, &i->o[0], &i->o[2], bytes, at);
    EACH_LANE(w)
    if (exec >> l & 1) {
        struct loaded x;
        size_t to = (size_t)l * w->group->scratch_bytes + at[l];
        take(w, &i->o[1], l, bytes, &x);
        memcpy(w->scratch + to, x.value, (size_t)bytes);
        memcpy(w->scratch_unknown + to, x.unknown, (size_t)bytes);
    }
}

/* ---- scalars ---- */

static uint64_t scalar_address(struct wave *w, struct insn *i)
{
    uint64_t unknown, base = read_scalar(w, &i->o[1], 'U', &unknown);
    if (unknown)
        sim_fail(w->sim, "address from an unknown value");
    if (i->operands < 3)
        sim_fail(w->sim, "operands are missing");
    int64_t offset =
        i->o[2].kind == IS_INTEGER ? i->o[2].integer : (int64_t)need_scalar(w, &i->o[2], "address");
    return base + (uint64_t)(offset + i->offset);
}

void op_s_load(struct wave *w, struct insn *i, int words)
{
    uint64_t address = scalar_address(w, i);
    if (address & 3)
        sim_fail(w->sim, "scalar load from %#llx, not a multiple of 4",
                 (unsigned long long)address);
    for (int word = 0; word < words; word++) {
        struct loaded x;
        load_global(w, address + 4 * (uint64_t)word, 4, x.value, x.unknown);
        write_scalar(w, i->o[0].reg + word, word_at(x.value), word_at(x.unknown));
    }
}

void op_s_load_part(struct wave *w, struct insn *i, int bytes)
{
    struct loaded x = {{0}, {0}};
    int n = bytes < 0 ? -bytes : bytes;
    load_global(w, scalar_address(w, i), (size_t)n, x.value, x.unknown);
    uint32_t value = word_at(x.value);
    if (bytes < 0)
        value = (uint32_t)((int32_t)(value << (32 - 8 * n)) >> (32 - 8 * n));
    write_scalar(w, i->o[0].reg, value, word_at(x.unknown));
}
