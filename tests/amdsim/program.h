/* SPDX-License-Identifier: Apache-2.0 */
/*
** program.h - instructions as they were read from a disassembly.
*/
#ifndef KVKILN_AMDSIM_PROGRAM_H
#define KVKILN_AMDSIM_PROGRAM_H

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
enum { NEGATE = 1, ABSOLUTE = 2, EXTEND = 4 }; /* of an operand, of a selected part */
enum { WHOLE, BYTE_0, BYTE_1, BYTE_2, BYTE_3, WORD_0, WORD_1 }; /* SDWA's and true16's parts */

struct operand {
    uint8_t kind, words, part, flags;
    uint16_t reg;
    int64_t integer;
    double real;
};

enum dpp {
    DPP_NONE,
    DPP_QUAD,
    DPP_SHL,
    DPP_SHR,
    DPP_ROR,
    DPP_MIRROR,
    DPP_HALF,
    DPP_XMASK,
    DPP_SHARE,
    DPP_BCAST15,
    DPP_BCAST31,
    DPP_NEWBCAST
};

struct op;
struct insn {
    const struct op *op;
    struct insn *second; /* of a dual issue */
    struct operand o[OPERANDS];
    int operands, offset, offset0, offset1,
        swizzle;        /* swizzle: and | or << 5 | xor << 10, -1 none */
    uint32_t immediate; /* bitop3, cbsz and so on */
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
    int gfx;       /* 942, 950, 1100, 1200, 1201 */
    uint64_t base; /* what the code's addresses are relative to */
    int vgprs;     /* one more than the highest that is named */
};

const struct op *sim_op(const char *name);

/* listing: text of `llvm-objdump -d`, owned by the program afterwards. 0, or -1 and a text. */
int program_parse(struct program *p, char *listing, char *error, size_t cap);
void program_free(struct program *p);
int program_find(const struct program *p, uint64_t address);

#endif
