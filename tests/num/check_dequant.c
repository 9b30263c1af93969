/* SPDX-License-Identifier: Apache-2.0 */
/*
** check_dequant.c - pages back to rows: exact where decoding is exact, one ulp of the output type
** elsewhere.
*/
#include "contract.h"

#include <math.h>
#include <string.h>

enum { MAX_RANGES = NUM_MAX_SEQUENCES };

struct ranges {
    int sequences, spare;
    int32_t first[MAX_RANGES], start[MAX_RANGES + 1]; /* first token, first output row */
};

static int ulps(uint16_t a, uint16_t b)
{
    int x = a & 0x8000 ? -(a & 0x7fff) : a, y = b & 0x8000 ? -(b & 0x7fff) : b;
    return x > y ? x - y : y - x;
}

static uint16_t rounded(kvk_dtype dtype, double x)
{
    if (dtype == KVK_FLOAT16 && !isnan(x))
        x = fmax(-65504, fmin(65504, x));
    return num_bits(dtype, (float)x);
}

/* `slack`: error allowed besides `allowed` ulps, where a rotation adds up rounding errors of a
** whole vector. */
static void compare_vector(struct num_run *run, kvk_dtype dtype, const double *want,
                           const uint16_t *got, int d, int allowed, double slack, const char *what,
                           int row, int head)
{
    for (int i = 0; i < d; i++) {
        uint16_t expected = rounded(dtype, want[i]);
        double off = fabs((double)num_value(dtype, got[i]) - (double)num_value(dtype, expected));
        if (isnan(want[i]) && isnan(num_value(dtype, got[i])))
            continue;
        if (ulps(expected, got[i]) > allowed && !(off <= slack))
            num_differ(run, "%s: row %d head %d element %d is %.6g (%04x), expected %.6g (%04x)",
                       what, row, head, i, (double)num_value(dtype, got[i]), got[i],
                       (double)num_value(dtype, expected), expected);
    }
}

static void compare_ranges(struct num_run *run, const struct world *w, const struct ranges *g,
                           const uint16_t *key, const uint16_t *value, int rotate_back)
{
    kvk_dtype dtype = w->m.dequant_dtype;
    int d = w->m.d, dv = w->m.dv, heads = w->m.kv_heads, exact_key = w->f.key.kind != REF_CODEBOOK;
    int exact_value = w->f.value.kind != REF_CODEBOOK;
    double k[REF_MAX_D], v[REF_MAX_D];

    for (int s = 0; s < g->sequences; s++)
        for (int row = g->start[s]; row < g->start[s + 1]; row++)
            for (int h = 0; h < heads; h++) {
                size_t at = (size_t)row * (size_t)heads + (size_t)h;
                int back = rotate_back && w->f.key.rotated;
                int value_back = rotate_back && w->f.value.rotated;
                double norm = 0, value_norm = 0;
                ref_dequant(&w->f, &w->pool, world_slot(w, s, g->first[s] + row - g->start[s]), h,
                            k, v);
                for (int i = 0; i < d; i++)
                    norm += k[i] * k[i];
                for (int i = 0; i < dv; i++)
                    value_norm += v[i] * v[i];
                if (back)
                    ref_rotate(k, d);
                if (value_back)
                    ref_rotate(v, dv);
                compare_vector(run, dtype, k, key + at * (size_t)d, d, back || !exact_key,
                               back ? 1e-6 * sqrt(norm) : 0, "key", row, h);
                compare_vector(run, dtype, v, value + at * (size_t)dv, dv,
                               value_back || !exact_value, value_back ? 1e-6 * sqrt(value_norm) : 0,
                               "value", row, h);
            }
}

static void dequant_call(struct num_run *run, const struct world *w, const struct ranges *g,
                         int rotate_back, int strided, uint16_t **key, uint16_t **value)
{
    const kvk_kernels *kernels = num_prepare(run, &w->m, KVK_DEQUANT);
    struct kvk_dequant_args args = KVK_INIT(struct kvk_dequant_args);
    size_t used = (size_t)g->start[g->sequences], rows = used + (size_t)g->spare;
    size_t heads = (size_t)w->m.kv_heads, d = (size_t)w->m.d, dv = (size_t)w->m.dv;
    struct num_rows k = num_rows_put(run, w->m.dequant_dtype, NULL, rows, heads, d, strided);
    struct num_rows v = num_rows_put(run, w->m.dequant_dtype, NULL, rows, heads, dv, strided);
    kvk_error err = {0};
    int any = 0;

    for (int s = 0; s < g->sequences; s++)
        any |= g->first[s];
    args.pool = world_pool(run, w, w->pool.data);
    args.key = k.device;
    args.value = v.device;
    args.block_table = world_table(run, w, strided);
    args.table_type = strided ? KVK_INT64 : KVK_INT32;
    args.table_stride = w->table_stride;
    args.out_start = num_upload(run, g->start, (size_t)(g->sequences + 1) * sizeof *g->start);
    args.first_token =
        any ? num_upload(run, g->first, (size_t)g->sequences * sizeof *g->first) : NULL;
    args.sequences = g->sequences;
    args.rows = (int64_t)rows;
    args.rotate_back = rotate_back;
    if (!key)
        args.key = (struct kvk_rows){0};
    if (!value)
        args.value = (struct kvk_rows){0};
    num_ok(run, kvk_dequant(kernels, &args, NULL, &err), &err, "kvk_dequant");
    if (key)
        *key = num_rows_get(run, &k, used, "key");
    if (value)
        *value = num_rows_get(run, &v, used, "value");
}

void check_dequant_world(struct num_run *run, const struct world *w, int rotate_back)
{
    struct ranges g = {.sequences = w->sequences};
    uint16_t *key, *value;

    for (int s = 0; s < w->sequences; s++)
        g.start[s + 1] = g.start[s] + w->lengths[s];
    dequant_call(run, w, &g, rotate_back, 0, &key, &value);
    compare_ranges(run, w, &g, key, value, rotate_back);
}

/* Variants: 0 whole sequences, rotated keys stay; 1 ranges, rotated back, strided, spare rows,
** int64 table; 2 odd rows. */
void check_dequant(struct num_run *run, const struct num_case *c)
{
    static const int lengths[] = {37, 0, 1, 50};
    int v = c->variant;
    uint64_t seed = num_case_seed(run, c);
    struct world_options o = {.lengths = lengths,
                              .sequences = 4,
                              .data_seed = seed,
                              .page_seed = seed + 1,
                              .pool = v == 1 ? POOL_PADDED : POOL_DENSE,
                              .special = v == 2,
                              .poison = 0xFF};
    struct ranges g = {.sequences = 4, .spare = v == 1 ? 3 : 0};
    struct world w;
    uint16_t *key, *value, *alone;

    world_make(run, &w, &c->model, &o);
    for (int s = 0; s < 4; s++) {
        g.first[s] = v == 1 ? lengths[s] / 3 : 0;
        g.start[s + 1] = g.start[s] + lengths[s] - g.first[s] - (v == 1 && lengths[s] > 20 ? 5 : 0);
    }
    dequant_call(run, &w, &g, v == 1, v == 1, &key, &value);
    compare_ranges(run, &w, &g, key, value, v == 1);
    if (v == 0) {
        size_t pairs = (size_t)g.start[4] * (size_t)w.m.kv_heads;
        dequant_call(run, &w, &g, 0, 0, &alone, NULL);
        if (memcmp(alone, key, pairs * (size_t)w.m.d * 2))
            num_differ(run, "keys alone differ from keys with values");
        dequant_call(run, &w, &g, 0, 0, NULL, &alone);
        if (memcmp(alone, value, pairs * (size_t)w.m.dv * 2))
            num_differ(run, "values alone differ from values with keys");
    }
}

/* Codes of one side that change when what was decoded from them is encoded again. */
static long changed(struct num_run *run, const struct world *w, const struct ref_codec *codec,
                    const float *centroids, const uint16_t *decoded, int d, const uint8_t *codes)
{
    uint8_t again[REF_MAX_D * 2];
    uint16_t fields[REF_MAX_FIELDS];
    long differ = 0;

    ref_encode(codec, centroids, w->f.layout,
               world_floats(run, w->m.dequant_dtype, decoded, (size_t)d), d, again, fields, NULL);
    for (int i = 0; i < d; i++)
        differ += ref_get_code(again, codec->bits, i) != ref_get_code(codes, codec->bits, i);
    return differ;
}

/* Codes of decoded rows, returned to the original basis, are the codes they were decoded from. */
void prop_codes_survive(struct num_run *run, const struct num_case *c)
{
    static const int lengths[] = {24, 9};
    uint64_t seed = num_case_seed(run, c);
    struct world_options o = {.lengths = lengths,
                              .sequences = 2,
                              .data_seed = seed,
                              .page_seed = seed + 1,
                              .poison = 0xA5};
    struct ranges g = {.sequences = 2, .start = {0, 24, 33}};
    uint16_t *key, *value;
    struct world w;
    long differ = 0, n = 0;

    world_make(run, &w, &c->model, &o);
    dequant_call(run, &w, &g, 1, 0, &key, &value);
    for (int row = 0; row < 33; row++)
        for (int h = 0; h < w.m.kv_heads; h++, n += w.m.d + w.m.dv) {
            size_t at = (size_t)row * (size_t)w.m.kv_heads + (size_t)h;
            int s = row >= 24;
            struct ref_slot slot;
            ref_slot_get(&w.f, &w.pool, world_slot(&w, s, row - g.start[s]), h, &slot);
            differ += changed(run, &w, &w.f.key, w.f.key_centroids, key + at * (size_t)w.m.d, w.m.d,
                              slot.key);
            differ += changed(run, &w, &w.f.value, w.f.value_centroids, value + at * (size_t)w.m.dv,
                              w.m.dv, slot.value);
        }
    if ((double)differ > 1e-3 * (double)n)
        num_differ(run, "%ld of %ld codes changed", differ, n);
}
