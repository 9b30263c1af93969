/* SPDX-License-Identifier: Apache-2.0 */
/*
** contract.c - what a call promises whatever it is given: named for the claims.
*/
#include "contract.h"

#include <math.h>
#include <string.h>

static size_t out_row(const struct num_model *m)
{
    return (size_t)(m->kv_heads * m->gqa) * (size_t)m->dv;
}

static size_t query_row(const struct num_model *m)
{
    return (size_t)(m->kv_heads * m->gqa) * (size_t)m->d;
}

static void make(struct num_run *run, struct world *w, const struct num_case *c, const int *lengths,
                 int sequences)
{
    uint64_t seed = num_case_seed(run, c);
    struct world_options o = {.lengths = lengths,
                              .sequences = sequences,
                              .data_seed = seed,
                              .page_seed = seed,
                              .poison = 0xFF};

    world_make(run, w, &c->model, &o);
}

/* --- workspace --- */

enum { CANARY = 0x5B, CANARY_BYTES = 4096 };

/* A buffer of `bytes` with a canary behind it. */
static void *guarded(struct num_run *run, size_t bytes)
{
    uint8_t *host = num_host(run, bytes + CANARY_BYTES);

    memset(host, 0xFF, bytes);
    memset(host + bytes, CANARY, CANARY_BYTES);
    return num_upload(run, host, bytes + CANARY_BYTES);
}

static void check_canary(struct num_run *run, const void *workspace, size_t bytes)
{
    uint8_t *host = num_host(run, bytes + CANARY_BYTES);

    num_download(run, host, workspace, bytes + CANARY_BYTES);
    for (size_t i = 0; i < CANARY_BYTES; i++)
        if (host[bytes + i] != CANARY)
            num_differ(run, "byte %zu behind a workspace of %zu bytes is written", i, bytes);
}

/* One call with exactly `bytes` of workspace; too few must be refused with nothing written. */
static void call_with(struct num_run *run, struct attention *a, const kvk_kernels *kernels,
                      size_t bytes, int enough)
{
    struct attention_buffers b;
    kvk_error err = {0};

    attention_upload(run, a, kernels, &b);
    struct kvk_decode_args args = attention_decode_args(run, a, &b);
    args.workspace = guarded(run, bytes);
    args.workspace_bytes = bytes;
    kvk_status status = kvk_decode(kernels, &args, NULL, &err);
    if (enough) {
        num_ok(run, status, &err, "kvk_decode");
        attention_fetch(run, a, &b);
    } else {
        if (status != KVK_E_WORKSPACE)
            num_differ(run, "%zu bytes, %d splits: %s, expected KVK_E_WORKSPACE", bytes, a->splits,
                       kvk_status_name(status));
        num_rows_get(run, &b.out, 0, "out of a refused call");
    }
    check_canary(run, args.workspace, bytes);
}

/* Random batches: what is promised is enough, one byte less than needed is refused. */
void contract_workspace(struct num_run *run, const struct num_case *c)
{
    const kvk_kernels *kernels = num_prepare(run, &c->model, KVK_DECODE);
    struct num_random r = num_random(num_case_seed(run, c), 31);

    for (int round = 0; round < 6; round++) {
        int lengths[4], sequences = 1 + num_below(&r, 4), tokens = 1 + num_below(&r, 4);
        struct kvk_limits limits = KVK_INIT(struct kvk_limits);
        struct world w;
        for (int s = 0; s < sequences; s++)
            lengths[s] = num_below(&r, 300);
        make(run, &w, c, lengths, sequences);
        struct attention a = {.w = &w, .max_context = 300, .batch_invariant = round % 3 == 2};
        for (int s = 0; s < sequences; s++)
            a.q_len[s] = tokens;
        attention_rows(&a);
        attention_query(run, &a, 5);
        limits.sequences = sequences;
        limits.query_tokens = tokens;
        limits.context = 300;
        limits.batch_invariant = a.batch_invariant;
        call_with(run, &a, kernels, kvk_workspace_bytes(kernels, &limits), 1);
        attention_check(run, &a);
        if (a.batch_invariant)
            continue;
        a.splits = 2 + num_below(&r, 6);
        size_t need = (size_t)a.start[sequences] * (size_t)(w.m.kv_heads * w.m.gqa) *
                      (size_t)a.splits * (size_t)(w.m.dv + 2) * 4;
        call_with(run, &a, kernels, need, 1);
        attention_check(run, &a);
        call_with(run, &a, kernels, need - 1, 0);
        call_with(run, &a, kernels, 0, 0);
    }
}

/* The formula: monotonic, the same for any context unless calls are batch-invariant. */
void contract_workspace_formula(struct num_run *run, const struct num_case *c)
{
    const kvk_kernels *kernels = num_prepare(run, &c->model, KVK_DECODE | KVK_UNIFIED);
    const kvk_kernels *unified = num_prepare(run, &c->model, KVK_UNIFIED);
    struct num_random r = num_random(num_case_seed(run, c), 32);

    for (int round = 0; round < 200; round++) {
        struct kvk_limits limits = KVK_INIT(struct kvk_limits), more;
        limits.sequences = 1 + num_below(&r, 4096);
        limits.query_tokens = 1 + num_below(&r, 16);
        limits.tokens = 1 + num_below(&r, 1 << 20);
        limits.context = 1 + num_below(&r, 1 << 20);
        size_t bytes = kvk_workspace_bytes(kernels, &limits);
        more = limits;
        more.context = INT64_C(1) << 30;
        if (kvk_workspace_bytes(kernels, &more) != bytes)
            num_differ(run, "the workspace depends on the context");
        more.sequences += 1 + num_below(&r, 100);
        if (kvk_workspace_bytes(kernels, &more) < bytes)
            num_differ(run, "more sequences need less workspace");
        if (kvk_workspace_bytes(unified, &limits) != 0)
            num_differ(run, "unified asks for a workspace");
    }
}

/* --- per request --- */

/* The mixed batch of one unified call, each sequence the bits that it gives alone. */
void contract_mixed_batch(struct num_run *run, const struct num_case *c)
{
    static const int lengths[] = {1000, 500, 37, 8192, 0}, q_len[] = {1000, 100, 1, 4, 1};
    enum { SEQUENCES = 5 };
    struct world w;

    make(run, &w, c, lengths, SEQUENCES);
    struct attention a = {.w = &w, .unified = 1, .spare_rows = 3};
    memcpy(a.q_len, q_len, sizeof q_len);
    attention_rows(&a);
    attention_query(run, &a, 5);
    attention_call(run, &a);
    attention_check(run, &a);
    for (int s = 0; s < SEQUENCES; s++) {
        struct world alone = w;
        struct attention b = a;
        alone.sequences = 1;
        alone.lengths[0] = lengths[s];
        alone.table = w.table + s * w.table_stride;
        b.w = &alone;
        b.q_len[0] = q_len[s];
        b.spare_rows = 0;
        attention_rows(&b);
        b.query = a.query + (size_t)a.start[s] * query_row(&w.m);
        attention_call(run, &b);
        if (memcmp(b.out, a.out + (size_t)a.start[s] * out_row(&w.m),
                   (size_t)q_len[s] * out_row(&w.m) * 2))
            num_differ(run, "sequence %d of the mixed batch differs from the same alone", s);
    }
}

/* --- large scores and windows --- */

/* Window 128 around its own size: first tiles wholly masked, rows without a visible key. */
void contract_windows(struct num_run *run, const struct num_case *c)
{
    static const int lengths[] = {127, 128, 129, 1000}, more[] = {4, 128, 129, 300};
    struct world w;

    make(run, &w, c, lengths, 4);
    for (int unified = 0; unified < 2; unified++)
        for (int sinks = 0; sinks < 2; sinks++) {
            struct attention a = {.w = &w, .unified = unified, .window = 128};
            for (int s = 0; s < 4; s++)
                a.q_len[s] = unified ? more[s] : 4;
            a.splits = unified ? 0 : 1 + 4 * sinks;
            attention_rows(&a);
            attention_query(run, &a, 5);
            if (sinks) {
                float *logits = num_host(run, out_row(&w.m) * sizeof *logits);
                for (size_t h = 0; h < out_row(&w.m) / (size_t)w.m.dv; h++)
                    logits[h] = (float)h - 2;
                a.sinks = logits;
            }
            attention_call(run, &a);
            attention_check(run, &a);
        }
}

/* Every key of a sequence is its first one, so that any score of any size gives the mean. */
static void repeat_key(struct world *w)
{
    size_t row = (size_t)(w->m.kv_heads * w->m.d);

    for (int s = 0; s < w->sequences; s++)
        for (int t = 1; t < w->lengths[s]; t++)
            memcpy(w->key + (size_t)(w->first_row[s] + t) * row,
                   w->key + (size_t)w->first_row[s] * row, row * 2);
    world_store(w);
}

/* Query = factor * the first key of its sequence and head. */
static void query_of_key(const struct world *w, struct attention *a, float factor)
{
    size_t d = (size_t)w->m.d, heads = query_row(&w->m) / d;

    for (int s = 0; s < w->sequences; s++)
        for (int row = a->start[s]; row < a->start[s + 1]; row++)
            for (size_t h = 0; h < heads; h++)
                for (size_t i = 0; i < d; i++) {
                    size_t group = h / (size_t)w->m.gqa;
                    uint16_t bits =
                        w->key[((size_t)w->first_row[s] * (size_t)w->m.kv_heads + group) * d + i];
                    a->query[((size_t)row * heads + h) * d + i] =
                        num_bits(w->m.dtype, factor * num_value(w->m.dtype, bits));
                }
}

/* Scores of +1e4 and -1e4: the mean of the visible values, with and without splits. */
void contract_large_scores(struct num_run *run, const struct num_case *c)
{
    static const int lengths[] = {129, 300};
    static const float factors[] = {1000, -1000};
    struct world w;

    make(run, &w, c, lengths, 2);
    repeat_key(&w);
    for (int i = 0; i < 8; i++) {
        struct attention a = {.w = &w, .unified = i & 1, .window = i & 2 ? 128 : 0, .extreme = 1};
        a.splits = i & 1 ? 0 : 1 + (i & 2);
        for (int s = 0; s < 2; s++)
            a.q_len[s] = a.unified ? 40 : 3;
        attention_rows(&a);
        attention_query(run, &a, 5);
        query_of_key(&w, &a, factors[i >> 2]);
        attention_call(run, &a);
        attention_check(run, &a);
    }
}

/* --- values --- */

/*
** Zeros, constants, tiny and large norms (of keys 1e-7 and 1e5; fp16 holds no output that small and
** no row that large), one outlier channel, the largest numbers.
*/
static float value_of(struct num_random *r, kvk_dtype dtype, int kind, int i, int d, int key)
{
    float x = num_normal(r), top = dtype == KVK_FLOAT16 ? 65504 : 0x1.fep127f;
    float tiny = key || dtype == KVK_BFLOAT16 ? 1e-7f : 1e-2f;

    switch (kind) {
    case 0: return 0;
    case 1: return 0.75f;
    case 2: return x * tiny / sqrtf((float)d);
    case 3: return x * (dtype == KVK_FLOAT16 ? 3e3f : 1e5f) / sqrtf((float)d);
    case 4: return i == 3 ? 200 * x : x;
    default: return i % 5 == 0 ? (x < 0 ? -top : top) : x;
    }
}

/* One sequence by itself: its error must not hide in another's norm. */
static void check_alone(struct num_run *run, const struct world *w, int unified, int s)
{
    struct world one = *w;
    struct attention a = {.w = &one, .unified = unified, .q_len = {2}, .extreme = s > 2};

    one.sequences = 1;
    one.first_row[0] = w->first_row[s];
    one.lengths[0] = w->lengths[s];
    one.table = w->table + s * w->table_stride;
    attention_rows(&a);
    attention_query(run, &a, 5);
    attention_call(run, &a);
    attention_check(run, &a);
}

/* A sequence of each kind; the oracle decides, and all that it finds finite must be right. */
void contract_values(struct num_run *run, const struct num_case *c)
{
    static const int lengths[] = {40, 40, 40, 40, 40, 40};
    struct num_random r = num_random(num_case_seed(run, c), 33);
    int d = c->model.d, dv = c->model.dv, heads = c->model.kv_heads;
    struct world w;

    make(run, &w, c, lengths, 6);
    for (int s = 0; s < 6; s++)
        for (int v = w.first_row[s] * heads; v < w.first_row[s + 1] * heads; v++) {
            for (int i = 0; i < d; i++)
                w.key[v * d + i] = num_bits(w.m.dtype, value_of(&r, w.m.dtype, s, i, d, 1));
            for (int i = 0; i < dv; i++)
                w.value[v * dv + i] = num_bits(w.m.dtype, value_of(&r, w.m.dtype, s, i, dv, 0));
        }
    world_store(&w);
    for (int unified = 0; unified < 2; unified++)
        for (int s = 0; s < 6; s++)
            check_alone(run, &w, unified, s);
}

/* One token of Inf, NaN or the largest number in one sequence: no other sequence changes a bit, be
** it stored by the kernel's own encoder. */
void contract_poisoned_token(struct num_run *run, const struct num_case *c)
{
    static const int lengths[] = {44, 61, 20};
    static const uint16_t half[] = {0x7C00, 0xFC00, 0x7E00, 0x7BFF},
                          bfloat[] = {0x7F80, 0xFF80, 0x7FC0, 0x7F7F};
    size_t key_row = (size_t)(c->model.kv_heads * c->model.d),
           value_row = (size_t)(c->model.kv_heads * c->model.dv);
    struct world good, bad;

    make(run, &good, c, lengths, 3);
    for (int kind = 0; kind < 4; kind++) {
        uint16_t poison = c->model.dtype == KVK_FLOAT16 ? half[kind] : bfloat[kind];
        make(run, &bad, c, lengths, 3);
        for (size_t i = 0; i < key_row; i++)
            bad.key[(size_t)(bad.first_row[1] + 7) * key_row + i] = poison;
        for (size_t i = 0; i < value_row; i++)
            bad.value[(size_t)(bad.first_row[1] + 7) * value_row + i] = poison;
        world_store(&bad);
        check_store_world(run, &bad, 7);
        for (int unified = 0; unified < 2; unified++) {
            struct attention a = {.w = &good, .unified = unified, .splits = unified ? 0 : 2}, b;
            for (int s = 0; s < 3; s++)
                a.q_len[s] = unified ? 3 + 9 * s : 2;
            attention_rows(&a);
            attention_query(run, &a, 5);
            b = a;
            b.w = &bad;
            attention_call(run, &a);
            attention_call(run, &b);
            size_t first = (size_t)a.start[1] * out_row(&c->model),
                   second = (size_t)a.start[2] * out_row(&c->model),
                   end = (size_t)a.start[3] * out_row(&c->model);
            if (memcmp(a.out, b.out, first * 2) ||
                memcmp(a.out + second, b.out + second, (end - second) * 2))
                num_differ(run, "%s: a token of %04x changes another sequence",
                           unified ? "unified" : "decode", poison);
        }
    }
}

/* --- nothing is ignored --- */

static void expect(struct num_run *run, kvk_status got, kvk_status want, const kvk_error *err,
                   const char *word)
{
    if (got != want || !strstr(err->text, word))
        num_differ(run, "%s: %s \"%s\", expected %s that names it", word, kvk_status_name(got),
                   got ? err->text : "", kvk_status_name(want));
}

/* Options that the kernels were not made for are refused by name, before anything is queued. */
void contract_no_silent_fallback(struct num_run *run, const struct num_case *c)
{
    static const int lengths[] = {20};
    const kvk_kernels *kernels = num_prepare(run, &c->model, KVK_DECODE | KVK_UNIFIED);
    struct kvk_kernel_info info = KVK_INIT(struct kvk_kernel_info);
    struct attention a = {.q_len = {1}};
    struct attention_buffers b;
    kvk_error err = {0};
    struct world w;

    make(run, &w, c, lengths, 1);
    a.w = &w;
    attention_rows(&a);
    attention_query(run, &a, 5);
    attention_upload(run, &a, kernels, &b);
    struct kvk_decode_args decode = attention_decode_args(run, &a, &b), d = decode;
    struct kvk_unified_args unified = attention_unified_args(run, &a, &b), u = unified;
    float *slopes = num_device(run, out_row(&w.m) * sizeof *slopes);
    d.soft_cap = u.soft_cap = 30;
    expect(run, kvk_decode(kernels, &d, NULL, &err), KVK_E_UNSUPPORTED, &err, "soft_cap");
    expect(run, kvk_unified(kernels, &u, NULL, &err), KVK_E_UNSUPPORTED, &err, "soft_cap");
    d = decode;
    u = unified;
    d.alibi = u.alibi = slopes;
    expect(run, kvk_decode(kernels, &d, NULL, &err), KVK_E_UNSUPPORTED, &err, "alibi");
    expect(run, kvk_unified(kernels, &u, NULL, &err), KVK_E_UNSUPPORTED, &err, "alibi");
    d = decode;
    d.splits = -1;
    expect(run, kvk_decode(kernels, &d, NULL, &err), KVK_E_SHAPE, &err, "splits");
    d = decode;
    d.table_type = (kvk_index)7;
    expect(run, kvk_decode(kernels, &d, NULL, &err), KVK_E_ARG, &err, "table_type");
    num_rows_get(run, &b.out, 0, "out of refused calls");
    for (int i = 0; i < 2; i++) {
        num_ok(run, kvk_kernel(kernels, i ? KVK_UNIFIED : KVK_DECODE, &info, &err), &err,
               "kvk_kernel");
        if (!strstr(info.manifest, ref_layout_name(w.m.layout)) || !strstr(info.manifest, "target"))
            num_differ(run, "the manifest of %s tells no layout or target", info.name);
    }
}
