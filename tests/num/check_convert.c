/* SPDX-License-Identifier: Apache-2.0 */
/*
** check_convert.c - slots of one layout become slots of another: every part arrives, and no other
** byte changes.
*/
#include "world.h"

#include <string.h>

enum { MOST = 64, OUTSIDE = 4 };

struct moves {
    int n;
    int64_t from[MOST], to[MOST];
};

static void expect_slot(const struct world *from, const struct world *to, int64_t a, int64_t b)
{
    const struct ref_format *f = &to->f;
    enum ref_layout source = from->f.layout;

    for (int h = 0; h < to->m.kv_heads; h++) {
        struct ref_slot s;
        uint16_t *value = s.field + f->key_fields;
        ref_slot_get(&from->f, &from->pool, a, h, &s);
        if (f->key_fields)
            s.field[0] = ref_convert_scalar(&f->key, f->key_centroids, source, f->layout, s.key,
                                            s.field[0], f->key_size);
        if (f->value_fields)
            value[0] = ref_convert_scalar(&f->value, f->value_centroids, source, f->layout, s.value,
                                          value[0], f->value_size);
        ref_slot_put(f, &to->pool, b, h, &s);
    }
}

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
    int32_t narrow[MOST];

    for (int i = 0; i < n; i++)
        narrow[i] = (int32_t)numbers[i];
    return wide ? num_upload(run, numbers, (size_t)n * sizeof *numbers)
                : num_upload(run, narrow, (size_t)n * sizeof *narrow);
}

static void convert_and_compare(struct num_run *run, const struct world *from,
                                const struct world *to, const struct moves *m, int pages, int wide)
{
    const kvk_kernels *kernels = num_prepare(run, &to->m, KVK_CONVERT);
    const kvk_kernels *source = num_prepare(run, &from->m, KVK_CONVERT);
    struct kvk_convert_args args = KVK_INIT(struct kvk_convert_args);
    uint8_t *got = num_host(run, to->pool_bytes);
    kvk_error err = {0};

    args.from = world_pool(run, from, from->pool.data);
    args.to = world_pool(run, to, to->pool.data);
    args.from_index = upload_numbers(run, m->from, m->n, wide);
    args.to_index = upload_numbers(run, m->to, m->n, wide);
    args.index_type = wide ? KVK_INT64 : KVK_INT32;
    args.items = m->n;
    args.pages = pages;
    num_ok(run, kvk_convert(kernels, source, &args, NULL, &err), &err, "kvk_convert");
    for (int i = 0; i < m->n; i++)
        expect_item(from, to, m->from[i], m->to[i], pages ? to->m.page : 1);
    num_download(run, got, args.to.data, to->pool_bytes);
    for (size_t i = 0; i < to->pool_bytes; i++)
        if (got[i] != to->pool.data[i])
            num_differ(run, "byte %zu of the pool is %02x, expected %02x", i, got[i],
                       to->pool.data[i]);
}

/* A shuffle of all slots or pages of two pools, and numbers outside of them. */
static void draw(struct num_random *r, struct moves *m, int sources, int targets)
{
    int32_t a[4096], b[4096];
    const int64_t outside[OUTSIDE][2] = {{-1, 0}, {0, -1}, {sources, 0}, {0, targets}};

    for (int i = 0; i < sources; i++)
        a[i] = i;
    for (int i = 0; i < targets; i++)
        b[i] = i;
    num_shuffle(r, a, sources);
    num_shuffle(r, b, targets);
    for (m->n = 0; m->n < sources && m->n < targets - 1 && m->n < MOST - OUTSIDE; m->n++) {
        m->from[m->n] = a[m->n];
        m->to[m->n] = b[m->n];
    }
    for (int i = 0; i < OUTSIDE; i++, m->n++) {
        m->from[m->n] = outside[i][0];
        m->to[m->n] = outside[i][1];
    }
}

/* Variants: 0 slots; 1 slots by int64, into a padded pool; 2 pages, out of a padded pool; 3 pages by
** int64. Every byte of the source is a pattern that a kernel may meet. */
static void check(struct num_run *run, const struct num_case *c, enum ref_layout layout)
{
    int v = c->variant, pages = v >= 2, unit = pages ? 1 : c->model.page;
    const int lengths[] = {2 * c->model.page + 5, 9, 1}, none[] = {c->model.page, 3, 7};
    uint64_t seed = num_case_seed(run, c);
    struct world_options o = {.lengths = lengths,
                              .sequences = 3,
                              .data_seed = seed,
                              .page_seed = seed + 1,
                              .pool = v == 2 ? POOL_PADDED : POOL_DENSE,
                              .special = v % 2,
                              .poison = 0x5A};
    struct num_random r = num_random(seed, 37);
    struct num_model source = c->model;
    struct world from, to;
    struct moves m;

    source.layout = layout;
    world_make(run, &from, &source, &o);
    o.pool = v == 1 ? POOL_PADDED : POOL_DENSE;
    o.poison = 0xA5;
    o.lengths = none;
    world_make(run, &to, &c->model, &o);
    draw(&r, &m, (int)from.pool.pages * unit, (int)to.pool.pages * unit);
    convert_and_compare(run, &from, &to, &m, pages, v % 2);
}

void check_convert_aos(struct num_run *run, const struct num_case *c) { check(run, c, REF_AOS); }

void check_convert_soa(struct num_run *run, const struct num_case *c) { check(run, c, REF_SOA); }

void check_convert_native(struct num_run *run, const struct num_case *c)
{
    check(run, c, REF_NATIVE);
}
