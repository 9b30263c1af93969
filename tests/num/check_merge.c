/* SPDX-License-Identifier: Apache-2.0 */
/*
** check_merge.c - two partial results into one: against double precision, and decode over two
** halves of a cache against decode over all of it.
*/
#include "world.h"

#include <math.h>
#include <string.h>

enum { ROWS = 13, CANARY = 0xFF };

/* A partial result: values as floats on the host, elements of one type on the device. */
struct part {
    kvk_dtype dtype;
    size_t row, head, elements; /* strides and size in elements */
    float *x, *lse;             /* [ROWS][H][Dv], [ROWS][H] */
    struct kvk_partial device;
};

static size_t element_bytes(kvk_dtype dtype) { return dtype == KVK_FLOAT32 ? 4 : 2; }

static void put(uint8_t *to, kvk_dtype dtype, float x)
{
    uint16_t half = dtype == KVK_FLOAT32 ? 0 : num_bits(dtype, x);

    if (dtype == KVK_FLOAT32)
        memcpy(to, &x, 4);
    else
        memcpy(to, &half, 2);
}

static float get(const uint8_t *from, kvk_dtype dtype)
{
    float x;
    uint16_t half;

    if (dtype == KVK_FLOAT32) {
        memcpy(&x, from, 4);
        return x;
    }
    memcpy(&half, from, 2);
    return num_value(dtype, half);
}

static struct part make_part(const struct num_model *m, kvk_dtype dtype, int strided)
{
    size_t heads = (size_t)(m->kv_heads * m->gqa), dv = (size_t)m->dv;
    struct part p = {.dtype = dtype, .head = dv + (strided ? 3 : 0)};

    p.row = p.head * heads + (strided ? 5 : 0);
    p.elements = p.row * ROWS;
    p.device.dtype = dtype;
    p.device.out.row_stride = strided ? (int64_t)p.row : 0;
    p.device.out.head_stride = strided ? (int64_t)p.head : 0;
    return p;
}

/* What a side's LSE is in row r: of all magnitudes, empty in some rows. */
static float some_lse(struct num_random *r, int row, int side)
{
    switch (row) {
    case 0: return side ? -INFINITY : 1.5f;
    case 1: return side ? 2.5f : -INFINITY;
    case 2: return -INFINITY;
    case 3: return side ? 1e4f : 1e4f - 1.25f;
    case 4: return side ? -1e4f : -1e4f + 0.5f;
    case 5: return side ? -3e4f : 3e4f;
    case 6: return 0;
    default: return 3 * num_normal(r);
    }
}

static void upload_part(struct num_run *run, struct part *p, const struct num_model *m,
                        struct num_random *r, int side)
{
    size_t heads = (size_t)(m->kv_heads * m->gqa), dv = (size_t)m->dv,
           size = element_bytes(p->dtype);
    uint8_t *bytes = num_host(run, p->elements * size);

    p->x = num_host(run, ROWS * heads * dv * sizeof *p->x);
    p->lse = num_host(run, ROWS * heads * sizeof *p->lse);
    memset(bytes, CANARY, p->elements * size);
    for (size_t v = 0; v < ROWS * heads; v++) {
        int row = (int)(v / heads);
        p->lse[v] = some_lse(r, row, side);
        for (size_t i = 0; i < dv; i++) {
            /* what is at a side without keys must not count, whatever it is */
            float x = isinf(p->lse[v]) ? NAN : num_normal(r);
            if (row == 7 && p->dtype == KVK_FLOAT32) /* more than fp16 holds */
                x *= 1e5f;
            uint8_t *at = bytes + ((v / heads) * p->row + (v % heads) * p->head + i) * size;
            put(at, p->dtype, x);
            p->x[v * dv + i] = get(at, p->dtype);
        }
    }
    p->device.out.data = num_upload(run, bytes, p->elements * size);
    p->device.lse = num_upload(run, p->lse, ROWS * heads * sizeof *p->lse);
}

static void call_merge(struct num_run *run, const struct num_model *m, const struct kvk_partial *a,
                       const struct kvk_partial *b, const struct kvk_partial *out, int64_t rows)
{
    struct kvk_merge_args args = KVK_INIT(struct kvk_merge_args);
    kvk_error err = {0};

    args.a = *a;
    args.b = *b;
    args.out = *out;
    args.rows = rows;
    num_ok(run, kvk_merge(num_prepare(run, m, KVK_MERGE), &args, NULL, &err), &err, "kvk_merge");
}

/* A row of the result against double precision; a row with one side only must be that side. */
static void check_pair(struct num_run *run, const struct part *a, const struct part *b, size_t v,
                       size_t dv, const float *got, float lse, kvk_dtype dtype)
{
    double la = (double)a->lse[v], lb = (double)b->lse[v], most = fmax(la, lb);
    double wa = isinf(la) ? 0 : exp(la - most), wb = isinf(lb) ? 0 : exp(lb - most);
    double want_lse = isinf(most) ? -INFINITY : most + log(wa + wb);
    /* fp32 arithmetic, then one rounding to half a step of the type */
    double unit = dtype == KVK_FLOAT32 ? 0 : dtype == KVK_FLOAT16 ? 0x1p-11 : 0x1p-8;
    double least = dtype == KVK_FLOAT16 ? 0x1p-25 : 0; /* of subnormals */

    for (size_t i = 0; i < dv; i++) {
        double x = wa > 0 ? wa * (double)a->x[v * dv + i] : 0;
        double y = wb > 0 ? wb * (double)b->x[v * dv + i] : 0;
        double want = wa + wb > 0 ? (x + y) / (wa + wb) : 0;
        double size = wa + wb > 0 ? (fabs(x) + fabs(y)) / (wa + wb) : 0;
        double inexact = 2e-6 * size;
        if (dtype == KVK_FLOAT16)
            want = fmin(fmax(want, -65504), 65504);
        if (!(fabs((double)got[i] - want) <= inexact + fmax(unit * (fabs(want) + inexact), least)))
            num_differ(run, "pair %zu element %zu is %.8g, expected %.8g (lse %g, %g)", v, i,
                       (double)got[i], want, la, lb);
    }
    if (isinf(want_lse) ? (double)lse != want_lse
                        : !(fabs((double)lse - want_lse) <= 2e-6 + 1e-7 * fabs(want_lse)))
        num_differ(run, "lse of pair %zu is %.8g, expected %.8g", v, (double)lse, want_lse);
}

static uint8_t *merged(struct num_run *run, const struct num_model *m, const struct part *a,
                       const struct part *b, struct part *out, float **lse)
{
    size_t n = out->elements * element_bytes(out->dtype);
    size_t pairs = (size_t)ROWS * (size_t)(m->kv_heads * m->gqa);
    uint8_t *bytes = num_host(run, n);

    call_merge(run, m, &a->device, &b->device, &out->device, ROWS);
    num_download(run, bytes, out->device.out.data, n);
    *lse = NULL;
    if (out->device.lse) {
        *lse = num_host(run, pairs * sizeof **lse);
        num_download(run, *lse, out->device.lse, pairs * sizeof **lse);
    }
    return bytes;
}

static void check_gaps(struct num_run *run, const struct part *out, const uint8_t *bytes,
                       const struct num_model *m)
{
    size_t size = element_bytes(out->dtype), heads = (size_t)(m->kv_heads * m->gqa);

    for (size_t e = 0; e < out->elements; e++) {
        size_t in_row = e % out->row, h = in_row / out->head;
        if (h < heads && in_row - h * out->head < (size_t)m->dv)
            continue;
        for (size_t i = 0; i < size; i++)
            if (bytes[e * size + i] != CANARY)
                num_differ(run, "element %zu between the rows is written", e);
    }
}

/*
** Variants: types of a, b, out: 0 f32, f32, model; 1 model, model, f32; 2 fp16, bf16, model; 3 model
** throughout. Odd ones strided. Each: apart, with the sides exchanged, and in place.
*/
void check_merge(struct num_run *run, const struct num_case *c)
{
    const struct num_model *m = &c->model;
    const kvk_dtype types[4][3] = {{KVK_FLOAT32, KVK_FLOAT32, m->dtype},
                                   {m->dtype, m->dtype, KVK_FLOAT32},
                                   {KVK_FLOAT16, KVK_BFLOAT16, m->dtype},
                                   {m->dtype, m->dtype, m->dtype}};
    int v = c->variant, strided = v % 2;
    size_t heads = (size_t)(m->kv_heads * m->gqa), dv = (size_t)m->dv;
    struct num_random r = num_random(num_case_seed(run, c), 21);
    struct part a = make_part(m, types[v][0], strided), b = make_part(m, types[v][1], 0);
    struct part out = make_part(m, types[v][2], strided);
    size_t size = element_bytes(out.dtype), n = out.elements * size;
    float *lse, *other_lse, *row = num_host(run, dv * sizeof *row);

    upload_part(run, &a, m, &r, 0);
    upload_part(run, &b, m, &r, 1);
    out.device.out.data = num_device(run, n);
    out.device.lse = num_device(run, ROWS * heads * sizeof *lse);
    uint8_t *bytes = merged(run, m, &a, &b, &out, &lse);
    for (size_t p = 0; p < ROWS * heads; p++) {
        size_t at = p / heads * out.row + p % heads * out.head;
        for (size_t i = 0; i < dv; i++)
            row[i] = get(bytes + (at + i) * size, out.dtype);
        check_pair(run, &a, &b, p, dv, row, lse[p], out.dtype);
    }
    check_gaps(run, &out, bytes, m);
    uint8_t *again = merged(run, m, &b, &a, &out, &other_lse);
    if (memcmp(bytes, again, n) || memcmp(lse, other_lse, ROWS * heads * sizeof *lse))
        num_differ(run, "the sides exchanged give other bits");
    if (a.dtype != out.dtype || a.elements != out.elements)
        return;
    again = merged(run, m, &a, &b, &a, &other_lse);
    if (memcmp(bytes, again, n) || memcmp(lse, other_lse, ROWS * heads * sizeof *lse))
        num_differ(run, "in place gives other bits");
}

/* --- decode in halves --- */

static struct attention decode_some(struct num_run *run, const struct world *w, uint64_t seed)
{
    struct attention a = {.w = w, .splits = 1};

    for (int s = 0; s < w->sequences; s++)
        a.q_len[s] = 1;
    attention_rows(&a);
    attention_query(run, &a, seed);
    return a;
}

static struct kvk_partial upload_result(struct num_run *run, const struct attention *a)
{
    size_t pairs = (size_t)a->start[a->w->sequences] * (size_t)(a->w->m.kv_heads * a->w->m.gqa);
    struct kvk_partial p = {0};

    p.out.data = num_upload(run, a->out, pairs * (size_t)a->w->m.dv * 2);
    p.lse = num_upload(run, a->lse, pairs * sizeof *a->lse);
    return p;
}

/* Decode over the first pages and over the others, merged in place, is decode over all. */
void prop_merged_halves(struct num_run *run, const struct num_case *c)
{
    const int page = c->model.page, lengths[] = {5 * page + 3, 2 * page, page - 1, 0};
    uint64_t seed = num_case_seed(run, c);
    struct world_options o = {
        .lengths = lengths, .sequences = 4, .data_seed = seed, .page_seed = 3, .poison = 0xFF};
    struct world whole, head, tail;

    world_make(run, &whole, &c->model, &o);
    head = tail = whole;
    tail.table = num_host(run, (size_t)(4 * whole.table_stride) * sizeof *tail.table);
    for (int s = 0; s < 4; s++) {
        int cut = lengths[s] < 2 * page ? lengths[s] : 2 * page; /* some have nothing beyond it */
        head.lengths[s] = cut;
        tail.lengths[s] = lengths[s] - cut;
        for (int i = 0; i + 2 < whole.table_stride; i++)
            tail.table[s * whole.table_stride + i] = whole.table[s * whole.table_stride + i + 2];
    }
    struct attention all = decode_some(run, &whole, seed), first = all, last = all;
    first.w = &head;
    last.w = &tail;
    attention_call(run, &all);
    attention_call(run, &first);
    attention_call(run, &last);
    struct kvk_partial a = upload_result(run, &first), b = upload_result(run, &last);
    size_t pairs = (size_t)(4 * c->model.kv_heads * c->model.gqa), dv = (size_t)c->model.dv;
    call_merge(run, &c->model, &a, &b, &a, 4);
    num_download(run, first.out, a.out.data, pairs * dv * 2);
    num_download(run, first.lse, a.lse, pairs * sizeof *first.lse);
    first.w = &whole;
    attention_check(run, &first);
}
