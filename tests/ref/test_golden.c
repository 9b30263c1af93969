/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_golden.c - the oracle against caches and outputs that the reference implementation's own
** kernels made.
**
** Stores are compared field by field, with the closeness and the rate that the contract allows for
** each kind of field; outputs with twice the error that a double-precision reader was measured to
** have.
*/
#include "golden.h"
#include "ref.h"
#include "test_ref.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_FILES = 128, TOKENS_MAX = 256 };

struct file_case {
    struct golden *g;
    struct ref_format f;
    struct ref_pool pool; /* the file's own cache */
    struct golden_tensor key, value, slots, cache, table, lengths;
    int query_heads, is_bf16;
    double scale;
};

struct count {
    long n, differ, bad;
};

static void get(const struct golden *g, const char *name, struct golden_tensor *t)
{
    if (!golden_get(g, name, t))
        fail_msg("no tensor %s", name);
}

static void open_case(struct file_case *c, const char *path)
{
    struct golden *g = c->g = golden_open(path);
    int d, pages;

    if (!g)
        fail_msg("cannot read %s", path);
    d = golden_int(g, "head_size");
    const struct ref_spec *spec = ref_spec_find(golden_text(g, "preset"));
    assert_non_null(spec);
    ref_format_make(&c->f, spec, strcmp(golden_text(g, "layout"), "soa") ? REF_AOS : REF_SOA, d, d,
                    golden_int(g, "num_kv_heads"), golden_int(g, "block_size"));
    assert_int_equal(c->f.slot_bytes, golden_int(g, "slot_size"));
    get(g, "key", &c->key);
    get(g, "value", &c->value);
    get(g, "slot_mapping", &c->slots);
    get(g, "cache", &c->cache);
    get(g, "block_table", &c->table);
    get(g, "seq_lens", &c->lengths);
    pages = (int)c->cache.shape[0];
    c->pool = ref_pool_dense(&c->f, (uint8_t *)(uintptr_t)c->cache.data, pages);
    c->query_heads = golden_int(g, "num_query_heads");
    c->is_bf16 = !strcmp(golden_text(g, "dtype"), "bfloat16");
    c->scale = atof(golden_text(g, "softmax_scale"));
}

static int64_t slot_of(const struct file_case *c, int sequence, int token)
{
    size_t at = (size_t)sequence * c->table.shape[1] + (size_t)(token / c->f.page_tokens);
    return (int64_t)golden_at(&c->table, at) * c->f.page_tokens + token % c->f.page_tokens;
}

static int ulps16(uint16_t a, uint16_t b)
{
    int x = a & 0x8000 ? -(a & 0x7fff) : a, y = b & 0x8000 ? -(b & 0x7fff) : b;
    return abs(x - y);
}

/* --- store --- */

/* Is the element's own number within 1e-6 of the boundary between two neighbouring codes? */
static int near_boundary(const struct ref_codec *codec, const float *midpoints, float edge,
                         unsigned a, unsigned b)
{
    if (a + 1 != b && b + 1 != a)
        return 0;
    unsigned low = a < b ? a : b;
    if (codec->kind == REF_CODEBOOK)
        return fabsf(edge - midpoints[low]) <= 1e-6f;
    return fabsf(edge - ((float)low + 0.5f)) <= 1e-6f * ((float)low + 0.5f);
}

static void compare_side(const struct ref_codec *codec, const float *centroids, const uint8_t *mine,
                         const uint8_t *theirs, const float *edge, int d, struct count *count)
{
    float midpoints[15] = {0};

    if (codec->kind == REF_CODEBOOK)
        ref_midpoints(centroids, codec->bits, midpoints);
    if (codec->kind == REF_BLOCK || codec->kind == REF_FLOAT) {
        size_t n = ref_code_bytes(codec, d);
        count->n += (long)n;
        for (size_t i = 0; i < n; i++)
            count->bad += mine[i] != theirs[i];
        return;
    }
    for (int i = 0; i < d; i++) {
        unsigned a = ref_get_code(mine, codec->bits, i), b = ref_get_code(theirs, codec->bits, i);
        count->n++;
        count->differ += a != b;
        count->bad += a != b && !near_boundary(codec, midpoints, edge[i], a, b);
    }
}

static void rows_of(const struct golden_tensor *t, size_t row, size_t head, size_t heads, int d,
                    float *out)
{
    for (int i = 0; i < d; i++)
        out[i] = (float)golden_at(t, (row * heads + head) * (size_t)d + (size_t)i);
}

struct store_counts {
    struct count key, value, field[REF_MAX_FIELDS], untouched;
};

static void compare_slot(const struct file_case *c, int64_t slot, size_t row, int head,
                         uint8_t *touched, struct store_counts *n)
{
    const struct ref_format *f = &c->f;
    struct ref_place at = ref_place(f, &c->pool, slot, head);
    float x[REF_MAX_D], edge[REF_MAX_D];
    uint8_t codes[REF_MAX_D * 2];
    uint16_t fields[REF_MAX_FIELDS];

    rows_of(&c->key, row, (size_t)head, (size_t)f->heads, f->key_size, x);
    ref_encode(&f->key, f->key_centroids, f->layout, x, f->key_size, codes, fields, edge);
    compare_side(&f->key, f->key_centroids, codes, c->pool.data + at.key, edge, f->key_size,
                 &n->key);
    rows_of(&c->value, row, (size_t)head, (size_t)f->heads, f->value_size, x);
    ref_encode(&f->value, f->value_centroids, f->layout, x, f->value_size, codes,
               fields + f->key_fields, edge);
    compare_side(&f->value, f->value_centroids, codes, c->pool.data + at.value, edge, f->value_size,
                 &n->value);
    memset(touched + at.key, 1, f->key_bytes);
    memset(touched + at.value, 1, f->value_bytes);
    for (int i = 0; i < f->key_fields + f->value_fields; i++) {
        int ulps = ulps16(fields[i], ref_get16(c->pool.data + at.field[i]));
        n->field[i].n++;
        n->field[i].differ += ulps != 0;
        n->field[i].bad += ulps > 1;
        memset(touched + at.field[i], 1, 2);
    }
}

static void accept(const char *what, const struct count *count, double rate)
{
    double allowed = fmax(2, ceil((double)count->n * rate));

    if (count->differ)
        print_message("    %s: %ld of %ld differ\n", what, count->differ, count->n);
    if (count->bad || (double)count->differ > allowed)
        fail_msg("%s: %ld of %ld differ, %ld of them by too much", what, count->differ, count->n,
                 count->bad);
}

static void check_store(const struct file_case *c)
{
    struct store_counts n = {0};
    uint8_t *touched = calloc(1, c->cache.count);

    for (size_t row = 0; row < c->slots.count; row++) {
        int64_t slot = (int64_t)golden_at(&c->slots, row);
        for (int head = 0; slot >= 0 && head < c->f.heads; head++)
            compare_slot(c, slot, row, head, touched, &n);
    }
    for (size_t i = 0; i < c->cache.count; i++)
        n.untouched.bad += !touched[i] && c->cache.data[i] != 0xA5;
    free(touched);
    accept("untouched bytes", &n.untouched, 0);
    accept("key codes", &n.key, 1e-5);
    accept("value codes", &n.value, 5e-4);
    for (int i = 0; i < c->f.key_fields + c->f.value_fields; i++)
        accept(i < c->f.key_fields ? "key fields" : "value fields", &n.field[i], 2e-3);
}

/* --- dequant --- */

static void check_dequant_side(const struct file_case *c, const char *name, int is_key,
                               int ulps_allowed)
{
    struct golden_tensor want;
    size_t row = 0, d = (size_t)c->f.key_size, heads = (size_t)c->f.heads;
    double x[REF_MAX_D];
    long bad = 0;

    if (!golden_get(c->g, name, &want))
        return;
    for (int s = 0; s < (int)c->lengths.count; s++)
        for (int t = 0; t < (int)golden_at(&c->lengths, (size_t)s); t++, row++)
            for (size_t h = 0; h < heads; h++) {
                ref_dequant(&c->f, &c->pool, slot_of(c, s, t), (int)h, is_key ? x : NULL,
                            is_key ? NULL : x);
                for (size_t i = 0; i < d; i++) {
                    uint16_t theirs = ref_get16(want.data + 2 * ((row * heads + h) * d + i));
                    float v = (float)x[i];
                    uint16_t mine = strcmp(want.dtype, "F16") ? ref_bf16_from(v) : ref_f16_from(v);
                    bad += ulps16(mine, theirs) > ulps_allowed;
                }
            }
    if (bad)
        fail_msg("%s: %ld elements are off by more than %d ulp", name, bad, ulps_allowed);
}

/* --- attention --- */

enum query_rounding { QUERY_EXACT, QUERY_E4M3 };

static void read_query(const struct file_case *c, const struct golden_tensor *t, size_t first_row,
                       int rows, enum query_rounding rounding, double *out)
{
    int d = c->f.key_size;

    for (int r = 0; r < rows * c->query_heads; r++) {
        float q[REF_MAX_D];
        double *to = out + (size_t)r * (size_t)d;
        size_t from = (first_row * (size_t)c->query_heads + (size_t)r) * (size_t)d;
        for (int i = 0; i < d; i++)
            q[i] = (float)(to[i] = golden_at(t, from + (size_t)i));
        if (!c->f.key.rotated)
            continue;
        ref_rotate(to, d);
        if (rounding == QUERY_E4M3) {
            ref_rotate_stages(q, d);
            for (int i = 0; i < d; i++)
                to[i] = ref_e4m3_to(ref_e4m3_from(q[i]));
        }
    }
}

static void read_sequence(const struct file_case *c, int sequence, int length, double *key,
                          double *value)
{
    size_t d = (size_t)c->f.key_size, heads = (size_t)c->f.heads;

    for (int t = 0; t < length; t++)
        for (size_t h = 0; h < heads; h++)
            ref_dequant(&c->f, &c->pool, slot_of(c, sequence, t), (int)h,
                        key + ((size_t)t * heads + h) * d, value + ((size_t)t * heads + h) * d);
}

/* Relative L2 error of one output tensor against the double-precision reader. start: query rows of
** each sequence. */
static double output_error(const struct file_case *c, const struct golden_tensor *query,
                           const struct golden_tensor *out, const int *start, const float *sinks,
                           int window, enum query_rounding rounding)
{
    size_t d = (size_t)c->f.key_size, heads = (size_t)c->f.heads, row = (size_t)c->query_heads * d;
    double *q = malloc(64 * row * sizeof *q), *o = malloc(64 * row * sizeof *o);
    double *k = malloc(TOKENS_MAX * heads * d * sizeof *k),
           *v = malloc(TOKENS_MAX * heads * d * sizeof *v);
    double error = 0, norm = 0;

    for (int s = 0; s < (int)c->lengths.count; s++) {
        int rows = start[s + 1] - start[s], length = (int)golden_at(&c->lengths, (size_t)s);
        struct ref_attention a = {.query = q,
                                  .key = k,
                                  .value = v,
                                  .out = o,
                                  .query_len = rows,
                                  .length = length,
                                  .query_heads = c->query_heads,
                                  .heads = c->f.heads,
                                  .key_size = (int)d,
                                  .value_size = (int)d,
                                  .scale = c->scale,
                                  .window = window,
                                  .sinks = sinks};
        read_query(c, query, (size_t)start[s], rows, rounding, q);
        read_sequence(c, s, length, k, v);
        ref_attend(&a);
        for (size_t i = 0; i < (size_t)rows * row; i++) {
            double theirs = golden_at(out, (size_t)start[s] * row + i);
            error += (o[i] - theirs) * (o[i] - theirs);
            norm += theirs * theirs;
        }
    }
    free(q), free(o), free(k), free(v);
    return sqrt(error / norm);
}

static void check_output(const struct file_case *c, const char *query_name, const char *out_name,
                         int with_sinks, int window, double limit)
{
    struct golden_tensor query, out, starts, sinks;
    int start[4] = {0, 1, 2, 3};
    float sink[64];

    if (!golden_get(c->g, query_name, &query) || !golden_get(c->g, out_name, &out))
        return;
    if (!strcmp(query_name, "unified_query")) {
        get(c->g, "query_start_loc", &starts);
        for (int i = 0; i < 4; i++)
            start[i] = (int)golden_at(&starts, (size_t)i);
    }
    if (with_sinks) {
        get(c->g, "sinks", &sinks);
        for (size_t i = 0; i < sinks.count; i++)
            sink[i] = (float)golden_at(&sinks, i);
    }
    enum query_rounding rounding = c->f.key.kind == REF_BLOCK ? QUERY_E4M3 : QUERY_EXACT;
    double error = output_error(c, &query, &out, start, with_sinks ? sink : NULL, window, rounding);
    if (!(error <= 2 * limit))
        fail_msg("%s: relative error %.3g, limit %.3g", out_name, error, 2 * limit);
    if (rounding == QUERY_E4M3) {
        error = output_error(c, &query, &out, start, with_sinks ? sink : NULL, window, QUERY_EXACT);
        if (!(error > 1e-2 && error <= 2.6e-2))
            fail_msg("%s: relative error %.3g with the query unrounded", out_name, error);
    }
}

static void check_outputs(const struct file_case *c)
{
    int block = c->f.key.kind == REF_BLOCK, soa = c->f.layout == REF_SOA, b = c->is_bf16;

    check_output(c, "decode_query", "decode_out", 0, 0,
                 soa ? (b ? 2.2e-3 : 2.9e-4) : (b ? 1.9e-3 : 2.5e-4));
    check_output(c, "unified_query", "unified_out", 0, 0, block ? 2.1e-3 : b ? 3.1e-3 : 4.0e-4);
    check_output(c, "unified_query", "unified_out_sinks", 1, 0,
                 block ? 2.1e-3
                 : b   ? 3.8e-3
                       : 4.7e-4);
    check_output(c, "unified_query", "unified_out_window20", 0, 20, 2.1e-3);
}

static void oracle_agrees_with_golden_file(void **state)
{
    struct file_case c = {0};
    int exact_key;

    open_case(&c, *state);
    check_store(&c);
    exact_key = c.f.key.kind != REF_CODEBOOK;
    check_dequant_side(&c, "dequant_key", 1, exact_key ? 0 : 1);
    check_dequant_side(&c, "dequant_value", 0, 0);
    check_outputs(&c);
    golden_close(c.g);
}

static int ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct CMUnitTest *)a)->name, ((const struct CMUnitTest *)b)->name);
}

int test_golden_run(const char *source_folder)
{
    char folder[1024];
    struct CMUnitTest *tests = calloc(MAX_FILES, sizeof *tests);
    struct dirent *entry;
    DIR *dir;
    size_t n = 0;
    int failed;

    golden_folder(source_folder, folder, sizeof folder);
    dir = opendir(folder);
    while (dir && tests && n < MAX_FILES && (entry = readdir(dir))) {
        char *path;
        if (!ends_with(entry->d_name, ".safetensors") ||
            asprintf(&path, "%s/%s", folder, entry->d_name) < 0)
            continue;
        tests[n++] = (struct CMUnitTest){.name = path + strlen(folder) + 1,
                                         .test_func = oracle_agrees_with_golden_file,
                                         .initial_state = path};
    }
    if (dir)
        closedir(dir);
    if (n == 0) {
        fprintf(stderr, "no case files in %s\n", folder);
        return 1;
    }
    qsort(tests, n, sizeof *tests, by_name);
    failed = _cmocka_run_group_tests("ref against the case files", tests, n, NULL, NULL);
    for (size_t i = 0; i < n; i++)
        free(tests[i].initial_state);
    free(tests);
    return failed;
}
