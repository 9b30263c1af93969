/* SPDX-License-Identifier: Apache-2.0 */
/*
** check_copy.c - slots and pages moved: every part of a slot arrives, and no other byte changes.
*/
#include "world.h"

#include <string.h>

struct moves {
    int n;
    int64_t from[64], to[64];
};

static void expect_slot(const struct world *from, const struct world *to, int64_t a, int64_t b)
{
    const struct ref_format *f = &to->f;

    for (int h = 0; h < to->m.kv_heads; h++) {
        struct ref_slot slot;
        if (f->layout == REF_AOS) { /* with the byte that pads it */
            memcpy(to->pool.data + ref_place(f, &to->pool, b, h).key,
                   from->pool.data + ref_place(f, &from->pool, a, h).key, f->slot_bytes);
            continue;
        }
        ref_slot_get(f, &from->pool, a, h, &slot);
        ref_slot_put(f, &to->pool, b, h, &slot);
    }
}

/* What the pool must hold after the move of `tokens` slots, a page of them or one. Items outside
** either pool change nothing. */
static void expect_item(const struct world *from, const struct world *to, int64_t a, int64_t b,
                        int tokens)
{
    if (a < 0 || b < 0 || a >= from->pool.pages * from->m.page / tokens ||
        b >= to->pool.pages * to->m.page / tokens)
        return;
    for (int t = 0; t < tokens; t++)
        expect_slot(from, to, a * tokens + t, b * tokens + t);
}

static void *upload_numbers(struct num_run *run, const int64_t *numbers, int n, int wide)
{
    int32_t narrow[64];

    for (int i = 0; i < n; i++)
        narrow[i] = (int32_t)numbers[i];
    return wide ? num_upload(run, numbers, (size_t)n * sizeof *numbers)
                : num_upload(run, narrow, (size_t)n * sizeof *narrow);
}

/* Copies on the device and, in place, in the worlds' own memory; then compares all of `to`. */
static void copy_and_compare(struct num_run *run, const struct world *from, const struct world *to,
                             const struct moves *m, int pages, int wide)
{
    const kvk_kernels *kernels = num_prepare(run, &to->m, KVK_COPY);
    struct kvk_copy_args args = KVK_INIT(struct kvk_copy_args);
    uint8_t *got = num_host(run, to->pool_bytes);
    kvk_error err = {0};

    args.from = world_pool(run, from, from->pool.data);
    args.to = from == to ? args.from : world_pool(run, to, to->pool.data);
    args.from_index = upload_numbers(run, m->from, m->n, wide);
    args.to_index = upload_numbers(run, m->to, m->n, wide);
    args.index_type = wide ? KVK_INT64 : KVK_INT32;
    args.items = m->n;
    args.pages = pages;
    num_ok(run, kvk_copy(kernels, from == to ? NULL : kernels, &args, NULL, &err), &err,
           "kvk_copy");
    for (int i = 0; i < m->n; i++)
        expect_item(from, to, m->from[i], m->to[i], pages ? to->m.page : 1);
    num_download(run, got, args.to.data, to->pool_bytes);
    for (size_t i = 0; i < to->pool_bytes; i++)
        if (got[i] != to->pool.data[i])
            num_differ(run, "byte %zu of the pool is %02x, expected %02x", i, got[i],
                       to->pool.data[i]);
}

static void make_pool(struct num_run *run, struct world *w, const struct num_case *c,
                      const int *lengths, enum world_pool kind, int poison)
{
    uint64_t seed = num_case_seed(run, c) + (uint64_t)poison;
    struct world_options o = {.lengths = lengths,
                              .sequences = 3,
                              .data_seed = seed,
                              .page_seed = seed + 1,
                              .pool = kind,
                              .poison = poison};

    world_make(run, w, &c->model, &o);
}

/* Variants: 0 slots; 1 slots by int64, into a padded pool; 2 pages, out of a head-major pool by
** int32; 3 pages by int64. */
void check_copy(struct num_run *run, const struct num_case *c)
{
    static const enum world_pool from_kind[] = {POOL_DENSE, POOL_DENSE, POOL_HEAD_MAJOR,
                                                POOL_DENSE},
                                 to_kind[] = {POOL_DENSE, POOL_PADDED, POOL_DENSE, POOL_PADDED};
    int v = c->variant, pages = v >= 2, wide = v % 2, unit = pages ? 1 : c->model.page;
    const int long_ones[] = {4 * c->model.page + 5, 9, 1}, others[] = {2 * c->model.page, 3, 7};
    struct num_random r = num_random(num_case_seed(run, c), 31);
    struct world from, to;
    struct moves m = {0};
    int32_t sources[4096], targets[4096];

    make_pool(run, &from, c, long_ones, from_kind[v], 0x5A);
    make_pool(run, &to, c, others, to_kind[v], 0xC3);
    int nsources = (int)from.pool.pages * unit, ntargets = (int)to.pool.pages * unit;
    for (int i = 0; i < nsources; i++)
        sources[i] = i;
    for (int i = 0; i < ntargets; i++)
        targets[i] = i;
    num_shuffle(&r, sources, nsources);
    num_shuffle(&r, targets, ntargets);
    const int64_t bad[][2] = {{-1, targets[0]},
                              {nsources, targets[0]},
                              {sources[0], -1},
                              {sources[0], ntargets},
                              {sources[0], wide ? INT64_MAX : INT32_MAX},
                              {wide ? INT64_MIN : INT32_MIN, targets[0]},
                              {wide ? INT64_C(1) << 60 : INT32_MAX, targets[0]}};
    for (int i = 1; i < nsources && i < ntargets && m.n < 50; i++, m.n++) {
        m.from[m.n] = sources[i];
        m.to[m.n] = targets[i];
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++, m.n++) {
        m.from[m.n] = bad[i][0];
        m.to[m.n] = bad[i][1];
    }
    copy_and_compare(run, &from, &to, &m, pages, wide);
}

/* Accepted draft tokens move up inside their pool: token 7 to 3, token 9 to 4. */
void check_drafts(struct num_run *run, const struct num_case *c)
{
    static const int lengths[] = {11, 33, 10};
    struct moves m = {0};
    struct world w;

    make_pool(run, &w, c, lengths, POOL_DENSE, 0xFF);
    for (int s = 0; s < 3; s++) {
        m.from[m.n] = world_slot(&w, s, 7);
        m.to[m.n++] = world_slot(&w, s, 3);
        m.from[m.n] = world_slot(&w, s, 9);
        m.to[m.n++] = world_slot(&w, s, 4);
    }
    copy_and_compare(run, &w, &w, &m, 0, 0);
}
