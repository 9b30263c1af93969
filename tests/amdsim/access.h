/* SPDX-License-Identifier: Apache-2.0 */
/*
** access.h - reading and writing registers; memory.
*/
#ifndef KVKILN_AMDSIM_ACCESS_H
#define KVKILN_AMDSIM_ACCESS_H

#include "sim.h"

#define EACH_LANE(w) for (int l = 0; l < (w)->lanes; l++)

static inline uint64_t exec_of(const struct wave *w)
{
    return w->lanes == 64 ? w->s[SGPR_EXEC] | (uint64_t)w->s[SGPR_EXEC + 1] << 32 : w->s[SGPR_EXEC];
}
static inline bool is_gfx9(const struct wave *w) { return w->sim->program->gfx < 1000; }

/* One 32-bit word of an operand in all lanes; type: a letter of ops.def. Returns whether any of the
** bits is unknown; `unknown`, which may be NULL, is filled only then. */
bool read_lanes(struct wave *w, const struct operand *o, int word, char type, uint32_t *out,
                uint32_t *unknown);
/* In the lanes given; unknown NULL: all known. */
void write_lanes(struct wave *w, int reg, uint64_t lanes, const uint32_t *values,
                 const uint32_t *unknown);
void write_lane(struct wave *w, int reg, int lane, uint32_t value, uint32_t unknown);

/* Up to 64 bits. */
uint64_t read_scalar(struct wave *w, const struct operand *o, char type, uint64_t *unknown);
void write_scalar(struct wave *w, int reg, uint32_t value, uint32_t unknown);
void write_mask(struct wave *w, const struct operand *o, uint64_t value, uint64_t unknown);
uint32_t constant_bits(const struct operand *o, int word, char type);

/* Reads one word that must be known: an address, a count. */
uint32_t need_scalar(struct wave *w, const struct operand *o, const char *what);
void need_lanes(struct wave *w, const struct operand *o, int word, uint32_t *out, const char *what);

/* ---- memory ---- */
struct range {
    uint8_t *from, *known; /* known: 0 where a byte was never written; NULL: all were */
    size_t bytes;
    bool read_only;
};
struct memory {
    struct range *ranges; /* sorted */
    size_t count, cap;
};
void memory_add(struct memory *m, struct range r);
bool memory_remove(struct memory *m, const void *from, struct range *out);
const struct range *memory_find(const struct memory *m, uint64_t address, size_t bytes);
/* These fail the launch where the bytes are not all in one range. */
void load_global(struct wave *w, uint64_t address, size_t bytes, uint8_t *out, uint8_t *unknown);
void store_global(struct wave *w, uint64_t address, size_t bytes, const uint8_t *from);
void load_shared(struct wave *w, uint32_t address, size_t bytes, uint8_t *out, uint8_t *unknown);
void store_shared(struct wave *w, uint32_t address, size_t bytes, const uint8_t *from,
                  const uint8_t *unknown);

#endif
