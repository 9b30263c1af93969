/* SPDX-License-Identifier: Apache-2.0 */
/*
** machine.h - one wave of a simulated GPU for the tests of the simulator: registers set, a few lines of disassembly run,
** registers read.
*/
#ifndef KVKILN_AMDSIM_MACHINE_H
#define KVKILN_AMDSIM_MACHINE_H

#include "access.h"
#include "number.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SHARED = 1024, GLOBAL = 64 };

static struct machine {
    struct sim sim;
    struct program program;
    struct memory memory;
    struct group group;
    struct wave wave;
    uint8_t shared[SHARED], unknown[SHARED], global[GLOBAL], known[GLOBAL];
} m;

/* Instructions, a line each, as the disassembler prints them. */
static inline char *listing(const char *code)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    unsigned address = 0;
    for (const char *at = code, *end; *at; at = *end ? end + 1 : end, address += 4) {
        end = strchrnul(at, '\n');
        fprintf(out, "\t%.*s // %012X: 00000000\n", (int)(end - at), at, address);
    }
    fprintf(out, "\ts_endpgm // %012X: 00000000\n", address);
    fclose(out);
    return text;
}

static inline void finish(void)
{
    program_free(&m.program);
    free(m.memory.ranges);
    m.memory = (struct memory){0};
}

/* A machine whose registers are unknown; all lanes are active. */
static inline void start(int gfx, const char *code)
{
    char error[300] = "";
    struct wave *w = &m.wave;
    memset(&m, 0, sizeof m);
    m.program.gfx = gfx;
    assert_int_equal(program_parse(&m.program, listing(code), error, sizeof error), 0);
    memory_add(&m.memory, (struct range){m.global, m.known, GLOBAL, false});
    m.sim.program = &m.program;
    m.sim.memory = &m.memory;
    m.group = (struct group){.shared = m.shared, .unknown = m.unknown, .bytes = SHARED};
    memset(m.unknown, 0xff, SHARED);
    w->sim = &m.sim;
    w->group = &m.group;
    w->lanes = gfx < 1000 ? 64 : 32;
    memset(w->vu, 0xff, sizeof w->vu);
    memset(w->partial, 1, sizeof w->partial);
    memset(w->su, 0xff, sizeof w->su);
    w->scc_unknown = true;
    for (int i = 0; i < 2; i++) {
        w->s[SGPR_EXEC + i] = w->lanes == 64 || !i ? ~0u : 0;
        w->su[SGPR_EXEC + i] = 0;
    }
}

static inline void set(int reg, int lane, uint32_t value) { write_lane(&m.wave, reg, lane, value, 0); }
static inline void set_all(int reg, uint32_t value)
{
    for (int l = 0; l < m.wave.lanes; l++)
        set(reg, l, value);
}
static inline void set_scalar(int reg, uint32_t value)
{
    m.wave.s[reg] = value;
    m.wave.su[reg] = 0;
}
static inline uint32_t get(int reg, int lane)
{
    assert_int_equal(m.wave.vu[reg][lane], 0);
    return m.wave.v[reg][lane];
}

/* "" or why it stopped. */
static inline const char *go(void)
{
    m.sim.error[0] = '\0';
    if (!setjmp(m.sim.fail))
        sim_run_wave(&m.wave);
    return m.sim.error;
}
#define RUNS() assert_string_equal(go(), "")
#define STOPS(text) assert_non_null(strstr(go(), text))

#endif
