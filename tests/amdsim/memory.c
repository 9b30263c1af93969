/* SPDX-License-Identifier: Apache-2.0 */
/*
** memory.c - what may be accessed: allocations, code object, parameters, shared memory.
*/
#include "access.h"

#include <stdlib.h>
#include <string.h>

/* The first range that ends behind the address. */
static size_t lower_bound(const struct memory *m, uint64_t address)
{
    size_t from = 0, to = m->count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if ((uintptr_t)m->ranges[middle].from + m->ranges[middle].bytes <= address)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

void memory_add(struct memory *m, struct range r)
{
    if (m->count == m->cap) {
        m->cap = m->cap ? 2 * m->cap : 64;
        m->ranges = realloc(m->ranges, m->cap * sizeof *m->ranges);
    }
    size_t at = lower_bound(m, (uintptr_t)r.from);
    memmove(&m->ranges[at + 1], &m->ranges[at], (m->count - at) * sizeof *m->ranges);
    m->ranges[at] = r;
    m->count++;
}

bool memory_remove(struct memory *m, const void *from, struct range *out)
{
    size_t at = lower_bound(m, (uintptr_t)from);
    if (at == m->count || m->ranges[at].from != from)
        return false;
    *out = m->ranges[at];
    memmove(&m->ranges[at], &m->ranges[at + 1], (--m->count - at) * sizeof *m->ranges);
    return true;
}

const struct range *memory_find(const struct memory *m, uint64_t address, size_t bytes)
{
    size_t at = lower_bound(m, address);
    if (at == m->count)
        return NULL;
    const struct range *r = &m->ranges[at];
    uintptr_t from = (uintptr_t)r->from;
    return address >= from && bytes <= r->bytes && address - from <= r->bytes - bytes ? r : NULL;
}

static const struct range *need(struct wave *w, uint64_t address, size_t bytes, const char *what)
{
    const struct range *r = memory_find(w->sim->memory, address, bytes);
    if (r)
        return r;
    size_t at = lower_bound(w->sim->memory, address);
    const struct range *next = at < w->sim->memory->count ? &w->sim->memory->ranges[at] : NULL;
    const struct range *before = at ? &w->sim->memory->ranges[at - 1] : NULL;
    sim_fail(w->sim,
             "%s of %zu bytes at %#llx, in no allocation; %lld bytes behind the end of one, %lld "
             "before another's beginning",
             what, bytes, (unsigned long long)address,
             before ? (long long)(address - (uintptr_t)before->from - before->bytes) : -1,
             next ? (long long)((uintptr_t)next->from - address) : -1);
}

void load_global(struct wave *w, uint64_t address, size_t bytes, uint8_t *out, uint8_t *unknown)
{
    const struct range *r = need(w, address, bytes, "load");
    size_t at = address - (uintptr_t)r->from;
    memcpy(out, r->from + at, bytes);
    for (size_t i = 0; i < bytes; i++)
        unknown[i] = r->known ? (uint8_t)~r->known[at + i] : 0;
}

void store_global(struct wave *w, uint64_t address, size_t bytes, const uint8_t *from)
{
    const struct range *r = need(w, address, bytes, "store");
    size_t at = address - (uintptr_t)r->from;
    if (r->read_only)
        sim_fail(w->sim, "store to read-only memory");
    memcpy(r->from + at, from, bytes);
    if (r->known)
        memset(r->known + at, 0xff, bytes);
}

static void check_shared(struct wave *w, uint32_t address, size_t bytes, const char *what)
{
    if (address > w->group->bytes || bytes > w->group->bytes - address)
        sim_fail(w->sim, "%s of LDS bytes %#x to %#x of %#zx", what, address,
                 address + (unsigned)bytes, w->group->bytes);
}

void load_shared(struct wave *w, uint32_t address, size_t bytes, uint8_t *out, uint8_t *unknown)
{
    check_shared(w, address, bytes, "load");
    memcpy(out, w->group->shared + address, bytes);
    memcpy(unknown, w->group->unknown + address, bytes);
}

void store_shared(struct wave *w, uint32_t address, size_t bytes, const uint8_t *from,
                  const uint8_t *unknown)
{
    check_shared(w, address, bytes, "store");
    memcpy(w->group->shared + address, from, bytes);
    memcpy(w->group->unknown + address, unknown, bytes);
}
