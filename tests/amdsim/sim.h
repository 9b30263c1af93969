/* SPDX-License-Identifier: Apache-2.0 */
/*
** sim.h - an interpreter of AMD machine code, for tests on machines without an AMD GPU.
**
** The program is what llvm-objdump prints of a code object: no decoder of our own, and an error of
** the encoder shows. Written after AMD's public instruction set manuals of CDNA3, CDNA4, RDNA3 and
** RDNA4. Functional only: no timing, no caches, no wait counters.
**
** Every bit of every register and of shared memory knows whether it was ever written ("unknown"
** bits are set in the shadows). Unknown bits may travel; where one decides an address, EXEC, a
** branch or what is written to global memory, the launch fails. So do accesses outside of what was
** allocated, and instructions that are not in ops.def.
*/
#ifndef KVKILN_AMDSIM_SIM_H
#define KVKILN_AMDSIM_SIM_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LANES = 64,
    VGPRS = 512, /* gfx9: 256 more are the accumulators a0..a255 */
    SGPRS = 128,
    OPERANDS = 6,
    SGPR_VCC = 106,
    SGPR_TTMP = 108,
    SGPR_NULL = 124,
    SGPR_M0 = 125,
    SGPR_EXEC = 126
};

enum operand_kind { IS_NONE, IS_VECTOR, IS_SCALAR, IS_INTEGER, IS_REAL, IS_SCC, IS_WORD };
enum { NEGATE = 1, ABSOLUTE = 2, EXTEND = 4 };           /* of an operand, of a selected part */
enum { WHOLE, BYTE_0, BYTE_1, BYTE_2, BYTE_3, WORD_0, WORD_1 }; /* SDWA's and true16's parts */

struct operand {
    uint8_t kind, words, part, flags;
    uint16_t reg;
    int64_t integer;
    double real;
};

enum dpp { DPP_NONE, DPP_QUAD, DPP_SHL, DPP_SHR, DPP_ROR, DPP_MIRROR, DPP_HALF, DPP_XMASK,
           DPP_SHARE, DPP_BCAST15, DPP_BCAST31, DPP_NEWBCAST };

struct op;
struct insn {
    const struct op *op;
    struct insn *second; /* of a dual issue */
    struct operand o[OPERANDS];
    int operands, offset, offset0, offset1, swizzle; /* swizzle: and | or << 5 | xor << 10, -1 none */
    uint32_t immediate;                              /* bitop3, cbsz and so on */
    uint8_t dpp, dpp_argument, row_mask, bank_mask, bound_ctrl;
    uint8_t op_sel, op_sel_hi, neg_lo, neg_hi, has_op_sel_hi;
    uint8_t sdwa, dst_part, dst_unused, clamp;
    uint64_t address, hits;
    int next; /* index of the branch's target */
    const char *text;
};

struct program {
    char *listing;
    struct insn *code;
    size_t count, cap;
    int gfx;   /* 942, 950, 1100, 1200, 1201 */
    uint64_t base; /* what the code's addresses are relative to */
    int vgprs; /* one more than the highest that is named */
};

struct group; /* a work-group */
struct wave {
    uint32_t v[VGPRS][LANES], vu[VGPRS][LANES]; /* values, unknown bits */
    uint8_t partial[VGPRS];                     /* 1: vu of the register may hold set bits */
    uint32_t s[SGPRS], su[SGPRS];
    bool scc, scc_unknown;
    bool done, waits, signalled;
    int lanes, number;
    size_t pc;
    struct sim *sim;
    struct group *group;
    uint8_t *scratch, *scratch_unknown;
};

struct group {
    uint8_t *shared, *unknown;
    size_t bytes, scratch_bytes; /* of shared memory; of a lane's private memory */
    unsigned id;
};

struct sim {
    struct program *program;
    const struct memory *memory;
    jmp_buf fail;
    char error[1024];
    const struct insn *at;
    bool jitter, backwards; /* approximations off by an ulp; waves in the opposite order */
    uint64_t executed;
};

/* What a vector instruction computes from: values of up to three sources, low and high words. */
struct vec {
    uint32_t s[3][LANES], h[3][LANES], d[LANES], dh[LANES];
    uint64_t mask, out; /* carry or condition in; carry, condition or comparison out */
    uint32_t immediate;
    int lanes;
    bool jitter;
};

struct scalar {
    uint64_t s[2], d;
    bool scc, keep; /* keep: SCC is left as it was */
};

enum rule {
    ANY,  /* one unknown bit of a lane makes its result unknown */
    BITS, /* moves bits: unknown are those that differ between unknown bits 0 and 1 */
    XOR   /* unknown are those that are unknown in a source */
};
enum op_form { FORM_VECTOR, FORM_SCALAR, FORM_SPECIAL };
struct op {
    const char *name, *signature; /* see ops.def */
    enum op_form form;
    enum rule rule;
    void (*vector)(struct vec *);
    void (*scalar)(struct scalar *);
    void (*special)(struct wave *, struct insn *, int);
    int argument;
};

_Noreturn void sim_fail(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
const struct op *sim_op(const char *name);

/* listing: text of `llvm-objdump -d`, owned by the program afterwards. 0, or -1 and a text. */
int program_parse(struct program *p, char *listing, char *error, size_t cap);
void program_free(struct program *p);
int program_find(const struct program *p, uint64_t address);

struct launch {
    uint64_t entry;
    unsigned grid, threads;
    size_t shared_bytes, scratch_bytes;
    const void *params;
    int user_sgprs, kernarg_at; /* kernarg_at: -1 none */
    bool group_id;
};
/* 0, or -1 with sim->error. */
int sim_launch(struct sim *sim, const struct launch *l);
void sim_run_wave(struct wave *w); /* to the next barrier or the end */
void vector_run(struct wave *w, struct insn *i);
void scalar_run(struct wave *w, struct insn *i);

#endif
