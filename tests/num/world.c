/* SPDX-License-Identifier: Apache-2.0 */
/*
** world.c - sequences scattered over a pool whose other bytes are poison.
*/
#include "world.h"

#include <math.h>
#include <string.h>

static int pages_of(const struct world *w, int length)
{
    return (length + w->m.page - 1) / w->m.page;
}

/* Pages in random order; one page in four more than needed stays unused. */
static void deal_pages(struct num_run *run, struct world *w, uint64_t seed)
{
    struct num_random r = num_random(seed, 7);
    int needed = 0, next = 0, widest = 1;
    int32_t *pages;

    for (int s = 0; s < w->sequences; s++) {
        int n = pages_of(w, w->lengths[s]);
        needed += n;
        widest = n > widest ? n : widest;
    }
    w->pool.pages = needed + needed / 4 + 1;
    w->table_stride = widest + 1;
    w->table = num_host(run, (size_t)(w->sequences * w->table_stride + 1) * sizeof *w->table);
    pages = num_host(run, (size_t)w->pool.pages * sizeof *pages);
    for (int i = 0; i < w->pool.pages; i++)
        pages[i] = i;
    num_shuffle(&r, pages, (int)w->pool.pages);
    for (int s = 0; s < w->sequences; s++)
        for (int i = 0; i < w->table_stride; i++)
            w->table[s * w->table_stride + i] = i < pages_of(w, w->lengths[s]) ? pages[next++] : -1;
}

/* Strides of one of three kinds. Padding keeps every alignment a kernel may ask for. */
static void choose_strides(struct world *w, enum world_pool kind)
{
    int64_t slot = (int64_t)w->f.slot_bytes, heads = w->m.kv_heads, page = w->m.page;
    struct ref_pool dense = ref_pool_dense(&w->f, NULL, w->pool.pages);

    w->pool = dense;
    w->kind = kind;
    if (w->f.layout != REF_AOS) {
        if (kind != POOL_DENSE)
            w->pool.page_stride += 128;
    } else if (kind == POOL_HEAD_MAJOR) {
        w->pool.position_stride = slot;
        w->pool.head_stride = slot * page;
    } else if (kind == POOL_PADDED) {
        w->pool.head_stride = slot * 2;
        w->pool.position_stride = slot * 2 * heads + slot;
        w->pool.page_stride = w->pool.position_stride * page + slot * 3;
    }
    w->pool_bytes = (size_t)(w->pool.pages * w->pool.page_stride);
}

void world_make(struct num_run *run, struct world *w, const struct num_model *m,
                const struct world_options *o)
{
    struct num_random r = num_random(o->data_seed, 1);
    size_t rows, heads = (size_t)m->kv_heads, key_elements, value_elements;

    *w = (struct world){.m = *m, .sequences = o->sequences};
    for (int s = 0; s < o->sequences; s++) {
        w->lengths[s] = o->lengths[s];
        w->first_row[s + 1] = w->first_row[s] + o->lengths[s];
    }
    rows = (size_t)w->first_row[o->sequences];
    key_elements = rows * heads * (size_t)m->d;
    value_elements = rows * heads * (size_t)m->dv;
    ref_format_make(&w->f, m->spec, m->layout, m->d, m->dv, m->kv_heads, m->page);
    deal_pages(run, w, o->page_seed);
    choose_strides(w, o->pool);
    w->pool.data = num_host(run, w->pool_bytes);
    memset(w->pool.data, o->poison, w->pool_bytes);
    w->key = num_host(run, key_elements * 2);
    w->value = num_host(run, value_elements * 2);
    if (o->special) {
        num_fill_special(&r, m->dtype, w->key, rows * heads, m->d);
        num_fill_special(&r, m->dtype, w->value, rows * heads, m->dv);
    } else {
        num_fill_normal(&r, m->dtype, w->key, key_elements);
        num_fill_normal(&r, m->dtype, w->value, value_elements);
    }
    world_store(w);
}

int64_t world_slot(const struct world *w, int sequence, int token)
{
    int64_t page = w->table[sequence * w->table_stride + token / w->m.page];
    return page * w->m.page + token % w->m.page;
}

void world_store(struct world *w)
{
    size_t heads = (size_t)w->m.kv_heads, key_row = heads * (size_t)w->m.d,
           value_row = heads * (size_t)w->m.dv;
    float key[8 * REF_MAX_D], value[8 * REF_MAX_D];

    for (int s = 0; s < w->sequences; s++)
        for (int t = 0; t < w->lengths[s]; t++) {
            size_t row = (size_t)(w->first_row[s] + t);
            for (size_t i = 0; i < key_row; i++)
                key[i] = num_value(w->m.dtype, w->key[row * key_row + i]);
            for (size_t i = 0; i < value_row; i++)
                value[i] = num_value(w->m.dtype, w->value[row * value_row + i]);
            ref_store(&w->f, &w->pool, world_slot(w, s, t), key, value);
        }
}

/* Nibbles of key bytes swapped: the fault that a bit-order mistake would be. */
static void swap_nibbles(const struct world *w, uint8_t *bytes)
{
    for (int s = 0; s < w->sequences; s++)
        for (int t = 0; t < w->lengths[s]; t++)
            for (int h = 0; h < w->m.kv_heads; h++) {
                struct ref_pool pool = w->pool;
                struct ref_slot slot;
                pool.data = bytes;
                ref_slot_get(&w->f, &pool, world_slot(w, s, t), h, &slot);
                for (size_t i = 0; i < w->f.key_bytes; i++)
                    slot.key[i] = (uint8_t)(slot.key[i] << 4 | slot.key[i] >> 4);
                ref_slot_put(&w->f, &pool, world_slot(w, s, t), h, &slot);
            }
}

struct kvk_pool world_pool(struct num_run *run, const struct world *w, const uint8_t *bytes)
{
    struct kvk_pool pool = {.pages = w->pool.pages};
    uint8_t *copy = num_host(run, w->pool_bytes);

    memcpy(copy, bytes, w->pool_bytes);
    if (run->fault == FAULT_NIBBLES)
        swap_nibbles(w, copy);
    pool.data = num_upload(run, copy, w->pool_bytes);
    if (w->kind != POOL_DENSE)
        pool.page_stride = w->pool.page_stride;
    if (w->kind != POOL_DENSE && w->f.layout == REF_AOS) {
        pool.position_stride = w->pool.position_stride;
        pool.head_stride = w->pool.head_stride;
    }
    return pool;
}

void world_read(const struct world *w, int sequence, double *key, double *value)
{
    for (int t = 0; t < w->lengths[sequence]; t++)
        for (int h = 0; h < w->m.kv_heads; h++) {
            size_t at = (size_t)t * (size_t)w->m.kv_heads + (size_t)h;
            ref_dequant(&w->f, &w->pool, world_slot(w, sequence, t), h, key + at * (size_t)w->m.d,
                        value + at * (size_t)w->m.dv);
        }
}

/* corrected: lengths are those of what was rounded, too. */
static void round_side(const struct ref_codec *codec, const float *centroids, const uint8_t *codes,
                       int d, int corrected, double *x)
{
    double before = 0, after = 0;

    for (int i = 0; codec->kind == REF_CODEBOOK && i < d; i++) {
        float c = centroids[ref_get_code(codes, codec->bits, i)];
        double rounded = (double)ref_f16_to(ref_f16_from(c));
        before += (double)c * (double)c;
        after += rounded * rounded;
        if (c != 0)
            x[i] *= rounded / (double)c;
    }
    for (int i = 0; corrected && after > 0 && i < d; i++)
        x[i] *= sqrt(before / after);
}

void world_read_operands(const struct world *w, int sequence, double *key, double *value)
{
    world_read(w, sequence, key, value);
    for (int t = 0; t < w->lengths[sequence]; t++)
        for (int h = 0; h < w->m.kv_heads; h++) {
            size_t v = (size_t)t * (size_t)w->m.kv_heads + (size_t)h;
            struct ref_slot slot;
            ref_slot_get(&w->f, &w->pool, world_slot(w, sequence, t), h, &slot);
            round_side(&w->f.key, w->f.key_centroids, slot.key, w->m.d,
                       w->f.key.correction && w->f.layout == REF_AOS, key + v * (size_t)w->m.d);
            round_side(&w->f.value, w->f.value_centroids, slot.value, w->m.dv, 0,
                       value + v * (size_t)w->m.dv);
        }
}

/* How often each code is a stored key's. */
static void count_codes(const struct world *w, double *count)
{
    for (int s = 0; s < w->sequences; s++)
        for (int v = 0; v < w->lengths[s] * w->m.kv_heads; v++) {
            struct ref_slot slot;
            ref_slot_get(&w->f, &w->pool, world_slot(w, s, v / w->m.kv_heads), v % w->m.kv_heads,
                         &slot);
            for (int i = 0; i < w->m.d; i++)
                count[ref_get_code(slot.key, w->f.key.bits, i)]++;
        }
}

static double half(double x) { return (double)ref_f16_to(ref_f16_from((float)x)); }

double world_key_rounding(const struct world *w)
{
    double count[256] = {0}, changes = 0, squares = 0;

    if (w->f.key.kind != REF_CODEBOOK)
        return 0;
    count_codes(w, count);
    for (int i = 0; i < 1 << w->f.key.bits; i++) {
        double c = (double)w->f.key_centroids[i], change = half(c) - c;
        changes += count[i] * change * change;
        squares += count[i] * c * c;
    }
    return squares > 0 ? sqrt(changes / squares) : 0;
}

double world_squares_rounding(const struct world *w)
{
    double count[256] = {0}, most = 0, squares = 0, change[2] = {0};
    const int n = 1 << w->f.key.bits;

    count_codes(w, count);
    for (int i = 0; i < n; i++)
        most = fmax(most, fabs((double)w->f.key_centroids[i]));
    const int up = most > 0 ? ilogb(most) : 0;
    for (int i = 0; i < n * n; i++) {
        double a = half(ldexp((double)w->f.key_centroids[i % n], -up));
        double b = half(ldexp((double)w->f.key_centroids[i / n], -up));
        double often = count[i % n] * count[i / n], exact = a * a + b * b;
        change[0] += often * (half(half(a * a) + b * b) - exact);
        change[1] += often * (half(half(a * a) + half(b * b)) - exact);
        squares += often * exact;
    }
    return squares > 0 ? fmax(fabs(change[0]), fabs(change[1])) / squares / 2 : 0;
}

void *world_table(struct num_run *run, const struct world *w, int wide)
{
    size_t n = (size_t)(w->sequences * w->table_stride - 1);
    int64_t *entries = num_host(run, n * sizeof *entries);

    if (!wide)
        return num_upload(run, w->table, n * sizeof *w->table);
    for (size_t i = 0; i < n; i++) /* unused entries are far outside */
        entries[i] = w->table[i] < 0 ? INT64_MIN : w->table[i];
    return num_upload(run, entries, n * sizeof *entries);
}

float *world_floats(struct num_run *run, kvk_dtype dtype, const uint16_t *bits, size_t n)
{
    float *out = num_host(run, n * sizeof *out);

    for (size_t i = 0; i < n; i++)
        out[i] = num_value(dtype, bits[i]);
    return out;
}
