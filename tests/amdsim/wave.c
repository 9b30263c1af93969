/* SPDX-License-Identifier: Apache-2.0 */
/*
** wave.c - flow of control, waves of a work-group, launches.
**
** The waves of a group run one after the other from barrier to barrier, in either order: what needs
** a barrier and has none goes wrong in one of them.
*/
#include "access.h"
#include "fn.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAVES_MOST = 32 };
#define STEPS_MOST 4000000000ull

_Noreturn void sim_fail(struct sim *sim, const char *format, ...)
{
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    snprintf(sim->error, sizeof sim->error, "%s, at %#llx: %s", what,
             sim->at ? (unsigned long long)sim->at->address : 0,
             sim->at ? sim->at->text : "the start");
    longjmp(sim->fail, 1);
}

/* ---- flow ---- */

static void jump(struct wave *w, const struct insn *i) { w->pc = (size_t)i->next; }

void op_branch(struct wave *w, struct insn *i, int argument_)
{
    (void)argument_;
    jump(w, i);
}

void op_branch_scc(struct wave *w, struct insn *i, int value)
{
    if (w->scc_unknown)
        sim_fail(w->sim, "branch on an unknown value");
    if (w->scc == value)
        jump(w, i);
}

void op_branch_mask(struct wave *w, struct insn *i, int how)
{
    const struct operand o = {
        .kind = IS_SCALAR, .words = (uint8_t)(w->lanes / 32), .reg = (uint16_t)(how & 255)};
    uint64_t unknown, mask = read_scalar(w, &o, 'U', &unknown);
    if (unknown && !(mask & ~unknown)) /* known set bits decide */
        sim_fail(w->sim, "branch on an unknown value");
    if ((mask != 0) == (how >> 8))
        jump(w, i);
}

void op_endpgm(struct wave *w, struct insn *i, int argument_)
{
    (void)i, (void)argument_;
    w->done = true;
}

/* gfx12 has two halves: 1 signal, 2 wait */
void op_barrier(struct wave *w, struct insn *i, int half)
{
    (void)i;
    if (half == 1 ? w->signalled : half == 2 && !w->signalled)
        sim_fail(w->sim, "barrier signals and waits are out of order");
    w->signalled = half == 1;
    w->waits = half != 1;
}

void op_nothing(struct wave *w, struct insn *i, int argument_)
{
    (void)w, (void)i, (void)argument_;
}

void sim_run_wave(struct wave *w)
{
    struct sim *sim = w->sim;
    w->waits = false;
    while (!w->done && !w->waits) {
        if (w->pc >= sim->program->count)
            sim_fail(sim, "past the end of the code");
        struct insn *i = &sim->program->code[w->pc++];
        sim->at = i;
        i->hits++;
        if (++sim->executed > STEPS_MOST)
            sim_fail(sim, "too many instructions: an endless loop?");
        switch (i->op->form) {
        case FORM_VECTOR: vector_run(w, i); break;
        case FORM_SCALAR: scalar_run(w, i); break;
        default: i->op->special(w, i, i->op->argument);
        }
    }
}

/* ---- launches ---- */

static void set_known(struct wave *w, int reg, uint32_t value)
{
    w->s[reg] = value;
    w->su[reg] = 0;
}

static void start_wave(struct sim *sim, const struct launch *l, struct group *g, struct wave *w,
                       int number)
{
    int lanes = sim->program->gfx < 1000 ? 64 : 32, first = number * lanes;
    size_t registers = (size_t)(sim->program->vgprs ? sim->program->vgprs : 1);
    uint64_t exec = ~(uint64_t)0 >> (64 - lanes);
    if ((unsigned)(first + lanes) > l->threads)
        exec = ((uint64_t)1 << (l->threads - (unsigned)first)) - 1;
    memset(w->v, 0xdb, registers * sizeof *w->v);
    memset(w->vu, 0xff, registers * sizeof *w->vu);
    memset(w->partial, 1, sizeof w->partial);
    memset(w->s, 0xdb, sizeof w->s);
    memset(w->su, 0xff, sizeof w->su);
    w->lanes = lanes;
    w->number = number;
    w->sim = sim;
    w->group = g;
    w->scc_unknown = true;
    w->done = w->waits = w->signalled = false;
    w->pc = (size_t)program_find(sim->program, l->entry);
    if (l->kernarg_at >= 0) {
        set_known(w, l->kernarg_at, (uint32_t)(uintptr_t)l->params);
        set_known(w, l->kernarg_at + 1, (uint32_t)((uint64_t)(uintptr_t)l->params >> 32));
    }
    if (l->group_id)
        set_known(w, sim->program->gfx >= 1200 ? SGPR_TTMP + 9 : l->user_sgprs, g->id);
    set_known(w, SGPR_EXEC, (uint32_t)exec);
    set_known(w, SGPR_EXEC + 1, (uint32_t)(exec >> 32));
    for (int k = 0; k < lanes; k++)
        write_lane(w, 0, k, (uint32_t)(first + k), 0);
    w->partial[0] = 0;
    if (w->scratch_unknown)
        memset(w->scratch_unknown, 0xff, (size_t)lanes * l->scratch_bytes);
}

static void run_group(struct sim *sim, struct wave *waves, int count)
{
    for (int live = 1; live;) {
        live = 0;
        for (int k = 0; k < count; k++) {
            struct wave *w = &waves[sim->backwards ? count - 1 - k : k];
            if (!w->done)
                sim_run_wave(w);
            live += !w->done;
        }
    }
}

struct room {
    struct group group;
    struct wave *waves;
    int count;
};

static int make_room(struct room *r, const struct sim *sim, const struct launch *l)
{
    unsigned lanes = sim->program->gfx < 1000 ? 64 : 32;
    r->count = (int)((l->threads + lanes - 1) / lanes);
    r->waves = calloc((size_t)r->count, sizeof *r->waves);
    r->group.bytes = l->shared_bytes;
    r->group.scratch_bytes = l->scratch_bytes;
    r->group.shared = malloc(l->shared_bytes + 1);
    r->group.unknown = malloc(l->shared_bytes + 1);
    bool made = r->waves && r->group.shared && r->group.unknown;
    for (int k = 0; made && l->scratch_bytes && k < r->count; k++) {
        r->waves[k].scratch = malloc(lanes * l->scratch_bytes);
        r->waves[k].scratch_unknown = malloc(lanes * l->scratch_bytes);
        made = r->waves[k].scratch && r->waves[k].scratch_unknown;
    }
    return made ? 0 : -1;
}

static void free_room(struct room *r)
{
    for (int k = 0; r->waves && k < r->count; k++) {
        free(r->waves[k].scratch);
        free(r->waves[k].scratch_unknown);
    }
    free(r->waves);
    free(r->group.shared);
    free(r->group.unknown);
}

int sim_launch(struct sim *sim, const struct launch *l)
{
    struct room room = {.count = 0};
    volatile int status = -1;
    sim->at = NULL;
    sim->executed = 0;
    if (program_find(sim->program, l->entry) < 0 || !l->threads || l->threads > WAVES_MOST * 32 ||
        make_room(&room, sim, l))
        snprintf(sim->error, sizeof sim->error, "no code at the entry, %u threads, or no memory",
                 l->threads);
    else if (!setjmp(sim->fail)) {
        for (unsigned id = 0; id < l->grid; id++) {
            room.group.id = sim->backwards ? l->grid - 1 - id : id;
            memset(room.group.shared, 0xdb, l->shared_bytes);
            memset(room.group.unknown, 0xff, l->shared_bytes);
            for (int k = 0; k < room.count; k++)
                start_wave(sim, l, &room.group, &room.waves[k], k);
            run_group(sim, room.waves, room.count);
        }
        status = 0;
    }
    free_room(&room);
    return status;
}
