/* SPDX-License-Identifier: Apache-2.0 */
/* quality_run.c - see quality_run.h. */
#include "quality_run.h"

#include "number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 16, CHUNK_ROWS = 1 << 14, KEPT = 6 };

/* A layer on the device, chunk by chunk: one sequence in pages in order. */
struct quality_run {
    kvk_context *ctx;
    const struct layer *layer;
    const kvk_kernels *kernels;
    kvk_dtype decoded; /* of rows that come back */
    long chunk;        /* rows at a time */
    struct kvk_pool pool;
    size_t key_row, value_row;                  /* bytes */
    void *key, *value, *slots, *table, *starts; /* device; rows of keys and values both ways */
    void *kept[KEPT];
    int nkept;
    unsigned char *back; /* host, the larger of the two sides */
};

double loss_relative(const struct loss *loss)
{
    return loss->squares > 0 ? loss->errors / loss->squares : NAN;
}

double loss_cosine(const struct loss *loss)
{
    return loss->nonzero ? loss->cosines / (double)loss->nonzero : NAN;
}

double loss_product(const struct loss *loss)
{
    return loss->nonzero ? loss->products / (double)loss->nonzero : NAN;
}

void loss_add(struct loss *sum, const struct loss *loss)
{
    sum->squares += loss->squares;
    sum->errors += loss->errors;
    sum->cosines += loss->cosines;
    sum->products += loss->products;
    sum->largest = fmax(sum->largest, loss->largest);
    sum->vectors += loss->vectors;
    sum->nonzero += loss->nonzero;
    sum->skipped += loss->skipped;
}

/* One vector of d elements. */
static void compare(const unsigned char *x, enum number x_type, const unsigned char *y,
                    enum number y_type, long d, struct loss *loss)
{
    double xx = 0, yy = 0, xy = 0, errors = 0, largest = 0;
    for (long i = 0; i < d; i++) {
        double a = number_at(x_type, x, (size_t)i), b = number_at(y_type, y, (size_t)i);
        xx += a * a;
        yy += b * b;
        xy += a * b;
        errors += (a - b) * (a - b);
        largest = fmax(largest, fabs(a - b));
    }
    if (!isfinite(xx)) {
        loss->skipped++;
        return;
    }
    loss->vectors++;
    loss->squares += xx;
    loss->errors += errors;
    loss->largest = fmax(loss->largest, largest);
    if (xx == 0)
        return;
    loss->nonzero++;
    loss->cosines += yy > 0 ? xy / sqrt(xx * yy) : 0;
    loss->products += xy / xx;
}

/*
** What comes back is rounded to 16 bits. fp16 keeps eight times as much as bf16 of numbers inside
** its range; a layer with larger elements, or tiny ones only, comes back as bf16.
*/
static kvk_dtype decoded_type(const struct layer *layer)
{
    enum number type = layer->dtype == KVK_FLOAT16 ? NUMBER_F16 : NUMBER_BF16;
    const unsigned char *sides[2] = {layer->key, layer->value};
    const long sizes[2] = {layer->key_size, layer->value_size};
    for (int s = 0; s < 2; s++) {
        size_t count = (size_t)(layer->rows * layer->heads * sizes[s]);
        double largest = 0;
        for (size_t i = 0; i < count; i++) {
            double x = fabs(number_at(type, sides[s], i));
            largest = isfinite(x) && x > largest ? x : largest;
        }
        if (largest > 16384 || largest < 0x1p-5)
            return KVK_BFLOAT16;
    }
    return KVK_FLOAT16;
}

static kvk_status keep(struct quality_run *run, size_t bytes, void **out, kvk_error *err)
{
    kvk_status status = kvk_alloc(run->ctx, bytes, out, err);
    if (!status)
        run->kept[run->nkept++] = *out;
    return status;
}

/* Slots 0, 1, 2, ... of pages 0, 1, 2, ... */
static kvk_status place_rows(struct quality_run *run, kvk_error *err)
{
    size_t rows = (size_t)run->chunk, pages = (size_t)run->pool.pages;
    int64_t *slots = cli_alloc(rows, sizeof *slots);
    int32_t *table = cli_alloc(pages, sizeof *table);
    for (size_t i = 0; i < rows; i++)
        slots[i] = (int64_t)i;
    for (size_t i = 0; i < pages; i++)
        table[i] = (int32_t)i;
    kvk_status status = keep(run, rows * sizeof *slots, &run->slots, err);
    if (!status)
        status = kvk_upload(run->ctx, run->slots, slots, rows * sizeof *slots, err);
    if (!status)
        status = keep(run, pages * sizeof *table, &run->table, err);
    if (!status)
        status = kvk_upload(run->ctx, run->table, table, pages * sizeof *table, err);
    free(slots);
    free(table);
    return status;
}

static kvk_status allocate(struct quality_run *run, size_t page_bytes, kvk_error *err)
{
    const struct layer *l = run->layer;
    run->chunk = l->rows < CHUNK_ROWS ? l->rows : CHUNK_ROWS;
    run->pool.pages = (run->chunk + PAGE - 1) / PAGE;
    run->key_row = (size_t)(l->heads * l->key_size) * 2;
    run->value_row = (size_t)(l->heads * l->value_size) * 2;
    size_t rows = (size_t)run->chunk;
    run->back = cli_alloc(rows, run->key_row > run->value_row ? run->key_row : run->value_row);
    kvk_status status = keep(run, (size_t)run->pool.pages * page_bytes, &run->pool.data, err);
    if (!status)
        status = keep(run, rows * run->key_row, &run->key, err);
    if (!status)
        status = keep(run, rows * run->value_row, &run->value, err);
    if (!status)
        status = keep(run, 2 * sizeof(int32_t), &run->starts, err);
    return status ? status : place_rows(run, err);
}

static kvk_status store_chunk(struct quality_run *run, long first, long rows, kvk_error *err)
{
    const struct layer *l = run->layer;
    struct kvk_store_args args = KVK_INIT(struct kvk_store_args);
    kvk_status status = kvk_upload(run->ctx, run->key, l->key + (size_t)first * run->key_row,
                                   (size_t)rows * run->key_row, err);
    if (!status)
        status = kvk_upload(run->ctx, run->value, l->value + (size_t)first * run->value_row,
                            (size_t)rows * run->value_row, err);
    args.pool = run->pool;
    args.key.data = run->key;
    args.value.data = run->value;
    args.slots = run->slots;
    args.slot_type = KVK_INT64;
    args.rows = rows;
    if (!status)
        status = kvk_store(run->kernels, &args, NULL, err);
    return status ? status : kvk_synchronize(run->ctx, err);
}

/* Decoded rows into run->key and run->value, over the ones that were stored. */
static kvk_status dequant_chunk(struct quality_run *run, long rows, kvk_error *err)
{
    struct kvk_dequant_args args = KVK_INIT(struct kvk_dequant_args);
    const int32_t starts[2] = {0, (int32_t)rows};
    kvk_status status = kvk_upload(run->ctx, run->starts, starts, sizeof starts, err);
    if (!status) /* NaN: an element that nobody writes is an error */
        status = kvk_fill(run->ctx, run->key, 0xFF, (size_t)rows * run->key_row, err);
    if (!status)
        status = kvk_fill(run->ctx, run->value, 0xFF, (size_t)rows * run->value_row, err);
    args.pool = run->pool;
    args.key.data = run->key;
    args.value.data = run->value;
    args.block_table = run->table;
    args.table_stride = run->pool.pages;
    args.out_start = run->starts;
    args.sequences = 1;
    args.rows = rows;
    args.rotate_back = 1;
    if (!status)
        status = kvk_dequant(run->kernels, &args, NULL, err);
    return status ? status : kvk_synchronize(run->ctx, err);
}

static kvk_status compare_side(struct quality_run *run, const void *decoded,
                               const unsigned char *rows, size_t vectors, long d, struct loss *loss,
                               kvk_error *err)
{
    enum number type = run->layer->dtype == KVK_FLOAT16 ? NUMBER_F16 : NUMBER_BF16;
    enum number back = run->decoded == KVK_FLOAT16 ? NUMBER_F16 : NUMBER_BF16;
    size_t bytes = (size_t)d * 2;
    kvk_status status = kvk_download(run->ctx, run->back, decoded, vectors * bytes, err);
    for (size_t i = 0; i < vectors && !status; i++)
        compare(rows + i * bytes, type, run->back + i * bytes, back, d, loss);
    return status;
}

static kvk_status measure(struct quality_run *run, struct quality *out, kvk_error *err)
{
    const struct layer *l = run->layer;
    kvk_status status = KVK_OK;
    for (long first = 0; first < l->rows && !status; first += run->chunk) {
        long rows = l->rows - first < run->chunk ? l->rows - first : run->chunk;
        size_t vectors = (size_t)(rows * l->heads);
        status = store_chunk(run, first, rows, err);
        if (!status)
            status = dequant_chunk(run, rows, err);
        if (!status)
            status = compare_side(run, run->key, l->key + (size_t)first * run->key_row, vectors,
                                  l->key_size, &out->key, err);
        if (!status)
            status = compare_side(run, run->value, l->value + (size_t)first * run->value_row,
                                  vectors, l->value_size, &out->value, err);
    }
    return status;
}

kvk_status quality_run(kvk_context *ctx, const struct layer *layer, const char *spec,
                       const char *layout, struct quality *out, kvk_error *err)
{
    struct kvk_model model = KVK_INIT(struct kvk_model);
    struct kvk_layout where = KVK_INIT(struct kvk_layout);
    struct quality_run run = {.ctx = ctx, .layer = layer, .decoded = decoded_type(layer)};
    memset(out, 0, sizeof *out);
    model.spec = spec;
    model.layout = layout;
    model.kv_heads = model.query_heads = (int)layer->heads;
    model.head_size = (int)layer->key_size;
    model.value_head_size = (int)layer->value_size;
    model.page_tokens = PAGE;
    model.dtype = layer->dtype;
    model.dequant_dtype = run.decoded;
    model.kinds = KVK_STORE | KVK_DEQUANT;
    kvk_status status = kvk_prepare(ctx, &model, &run.kernels, err);
    if (!status)
        status = kvk_layout(run.kernels, &where, err);
    if (!status)
        status = allocate(&run, where.page_bytes, err);
    if (!status)
        status = measure(&run, out, err);
    out->slot_bytes = where.slot_bytes;
    out->ratio = where.ratio;
    if (where.signature) /* "kvk1:aos:..." */
        memcpy(out->layout, where.signature + 5, 3);
    while (run.nkept)
        kvk_free(ctx, run.kept[--run.nkept]);
    free(run.back);
    return status;
}
