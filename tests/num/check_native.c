/* SPDX-License-Identifier: Apache-2.0 */
/*
** check_native.c - the native layout against another one: the same rows, stored and read back.
*/
#include "contract.h"
#include "world.h"

#include <string.h>

static void read_back(struct num_run *run, const struct world *w, uint16_t *key, uint16_t *value)
{
    const kvk_kernels *kernels = num_prepare(run, &w->m, KVK_STORE | KVK_DEQUANT);
    struct kvk_dequant_args args = KVK_INIT(struct kvk_dequant_args);
    size_t rows = (size_t)w->first_row[w->sequences], heads = (size_t)w->m.kv_heads;
    size_t keys = rows * heads * (size_t)w->m.d * 2, values = rows * heads * (size_t)w->m.dv * 2;
    uint8_t *poison = num_host(run, w->pool_bytes);
    kvk_error err = {0};

    memset(poison, 0xA5, w->pool_bytes);
    struct kvk_pool pool = world_pool(run, w, poison);
    check_store_into(run, w, pool);
    args.pool = pool;
    args.key.data = num_device(run, keys);
    args.value.data = num_device(run, values);
    args.block_table = world_table(run, w, 0);
    args.table_type = KVK_INT32;
    args.table_stride = w->table_stride;
    args.out_start = num_upload(run, w->first_row, (size_t)(w->sequences + 1) * 4);
    args.sequences = w->sequences;
    args.rows = (int64_t)rows;
    num_ok(run, kvk_dequant(kernels, &args, NULL, &err), &err, "kvk_dequant");
    num_download(run, key, args.key.data, keys);
    num_download(run, value, args.value.data, values);
}

/* What kvk_layout says is where the oracle finds a block's parts. */
static void compare_layout(struct num_run *run, const struct world *w)
{
    const kvk_kernels *kernels = num_prepare(run, &w->m, KVK_STORE | KVK_DEQUANT);
    struct kvk_layout l = KVK_INIT(struct kvk_layout);
    size_t block = 16 * w->f.slot_bytes, heads = (size_t)w->m.kv_heads;
    size_t key = (size_t)(2 * w->m.d * w->f.key.bits), value = (size_t)(2 * w->m.dv);
    kvk_error err = {0};

    value *= (size_t)w->f.value.bits;
    num_ok(run, kvk_layout(kernels, &l, &err), &err, "kvk_layout");
    if (l.slot_bytes != w->f.slot_bytes || l.page_bytes != w->f.page_bytes ||
        l.head_stride != block || l.position_stride != heads * block || l.slot_alignment != 16)
        num_differ(run, "layout: slots of %zu, blocks of %zu, %zu apart", l.slot_bytes,
                   l.head_stride, l.position_stride);
    if (l.key_offset || l.value_offset != key || l.meta_offset != key + value ||
        l.key_bytes != key / 16 || l.value_bytes != value / 16)
        num_differ(run, "layout: values at %zu, fields at %zu of a block", l.value_offset,
                   l.meta_offset);
    for (size_t i = 0; i < (size_t)l.fields; i++)
        if (l.field_offset[i] != key + value + 32 * i)
            num_differ(run, "layout: field %zu at %zu of a block", i, l.field_offset[i]);
    if (!strstr(l.signature, ":native:"))
        num_differ(run, "signature %s", l.signature);
}

/* Codes and fields are alike in soa; aos corrects norms at read and has no soa where there are no fields. */
void prop_native_reads_alike(struct num_run *run, const struct num_case *c)
{
    static const int lengths[] = {37, 1, 20};
    uint64_t seed = num_case_seed(run, c);
    struct world_options o = {
        .lengths = lengths, .sequences = 3, .data_seed = seed, .page_seed = seed, .poison = 0xA5};
    struct num_model other = c->model;
    struct world a, b;

    other.layout = c->model.spec->soa ? REF_SOA : REF_AOS;
    world_make(run, &a, &c->model, &o);
    world_make(run, &b, &other, &o);
    compare_layout(run, &a);
    size_t rows = (size_t)(a.first_row[3] * a.m.kv_heads);
    uint16_t *key[2], *value[2];
    for (int i = 0; i < 2; i++) {
        key[i] = num_host(run, rows * (size_t)a.m.d * 2);
        value[i] = num_host(run, rows * (size_t)a.m.dv * 2);
        read_back(run, i ? &b : &a, key[i], value[i]);
    }
    if (memcmp(key[0], key[1], rows * (size_t)a.m.d * 2))
        num_differ(run, "keys stored as native and as %s differ", ref_layout_name(other.layout));
    if (memcmp(value[0], value[1], rows * (size_t)a.m.dv * 2))
        num_differ(run, "values stored as native and as %s differ", ref_layout_name(other.layout));
}
