/* SPDX-License-Identifier: Apache-2.0 */
/*
** host_wait.c - puts into words what the threads of a CTA wait for.
*/
#include "host_wait.h"

#include <stdarg.h>
#include <stdio.h>

struct text {
    char *at;
    size_t left;
};

__attribute__((format(printf, 2, 3))) static void say(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->at, t->left, format, args);
    va_end(args);
    size_t used = n < 0 ? 0 : (size_t)n < t->left ? (size_t)n : t->left - 1;
    t->at += used;
    t->left -= used;
}

static int count(uint32_t mask) { return __builtin_popcount(mask); }

static void warp(struct text *t, const struct host_cta *cta, uint32_t index)
{
    static const char *const names[] = {"warp_sync", "shuffle", "mma"};
    const struct host_warp *w = &cta->warps[index];
    if (!w->alive)
        return;
    say(t, " warp %u:", index);
    if (w->arrived)
        say(t, " %d at %s,", count(w->arrived), names[w->op]);
    for (int id = 0; id < HOST_BARRIERS; id++)
        if (w->at_barrier[id] && cta->barriers[id].count)
            say(t, " %d at barrier %d (%u of %u there),", count(w->at_barrier[id]), id,
                cta->barriers[id].arrived, cta->barriers[id].count);
        else if (w->at_barrier[id])
            say(t, " %d at barrier %d (%u of all there),", count(w->at_barrier[id]), id,
                cta->barriers[id].arrived);
    if (w->at_mbarrier)
        say(t, " %d at mbarrier,", count(w->at_mbarrier));
    if (w->ready)
        say(t, " %d ready,", count(w->ready));
    say(t, " %d alive;", count(w->alive));
}

void host_wait_describe(const struct host_cta *cta, char *text, size_t cap)
{
    struct text t = {text, cap};
    text[0] = 0;
    for (uint32_t i = 0; i < cta->nwarps; i++)
        warp(&t, cta, i);
}
