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

#include "program.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

_Noreturn void sim_fail(struct sim *sim, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

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
