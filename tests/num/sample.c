/* SPDX-License-Identifier: Apache-2.0 */
/*
** sample.c - shapes drawn at random over all that is supported.
**
** Everything about sample i of seed s follows from (s, i) alone, so that one of thousands repeats
** by itself. A refusal is a failure, of sizes that nobody promised a skip.
*/
#include "sample.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Products that a sample's attention may cost, and those of one in ten, which has few heads. */
#define SAMPLE_WORK 2e7
#define SAMPLE_MORE 1e9

#define PICK(r, list) ((list)[num_below(r, (int)(sizeof(list) / sizeof *(list)))])

static const int head_sizes[] = {16,  32,  40,  64,  72,  80,  96,  112, 120,
                                 128, 160, 192, 224, 256, 320, 512, 576};
static const int pairs[][2] = {{192, 128}, {576, 512}, {128, 64}, {64, 128},
                               {80, 128},  {128, 72},  {16, 256}, {320, 40}};
static const int gqas[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10,  11, 12,
                           13, 14, 15, 16, 24, 32, 48, 64, 71, 128, 4,  8};
static const int query_lengths[] = {1, 2, 3, 4, 5, 8, 16, 17, 127, 128, 129, 1000};
static const int decode_lengths[] = {1, 1, 1, 2, 3, 4, 5, 8, 16};
static const int page_sizes[] = {1, 8, 16, 16, 32, 48, 64, 128, 256, 1536};

/* --- the shape --- */

static int group(const struct ref_codec *c) { return c->kind == REF_BLOCK ? c->group : 8; }

static int fits(const struct num_model *m)
{
    return m->d % group(&m->spec->key) == 0 && m->dv % group(&m->spec->value) == 0;
}

static void draw_model(struct num_random *r, struct sample *s)
{
    struct num_model *m = &s->model;

    sample_spec(r, s);
    do {
        m->d = m->dv = PICK(r, head_sizes);
        if (num_below(r, 4) == 0) {
            int p = num_below(r, (int)(sizeof pairs / sizeof *pairs));
            m->d = pairs[p][0];
            m->dv = pairs[p][1];
        }
        if (num_below(r, 6) == 0) { /* beyond what is promised: may be refused, never wrong */
            m->d = 8 * (2 + num_below(r, num_below(r, 4) ? 40 : 127));
            m->dv = num_below(r, 2) ? m->d : 8 * (2 + num_below(r, 40));
            s->may_refuse = 1;
        }
    } while (!fits(m));
    m->gqa = s->many ? gqas[num_below(r, 8)] : PICK(r, gqas);
    m->page =
        num_below(r, 8) ? PICK(r, page_sizes) : 1 + num_below(r, num_below(r, 9) ? 100 : 4096);
    if (m->spec->native && m->d % 64 == 0 && m->dv % 64 == 0 && m->page % 16 == 0 &&
        num_below(r, 2))
        m->layout = REF_NATIVE;
    m->kv_heads = s->many || m->page > 256 || m->gqa > 16 ? 1 : 1 + num_below(r, 3);
    m->dtype = num_below(r, 2) ? KVK_FLOAT16 : KVK_BFLOAT16;
    m->dequant_dtype = num_below(r, 2) ? KVK_FLOAT16 : KVK_BFLOAT16;
}

/* Tokens that were there before the query's: around pages and tiles, or any number. */
static int draw_cached(struct num_random *r, int page)
{
    switch (num_below(r, 8)) {
    case 0: return 0;
    case 1: return page - num_below(r, 2);
    case 2: return page + 1;
    case 3: return 15 + num_below(r, 3);
    case 4: return 126 + num_below(r, 4);
    case 5: return num_below(r, 40);
    case 6: return num_below(r, 400);
    default: return num_below(r, 2500);
    }
}

/* One sequence of at most `most` (query, key) pairs. */
static void draw_sequence(struct num_random *r, struct sample *s, int i, int q_len, double most)
{
    int unified = s->kind == SAMPLE_UNIFIED, length;

    for (int tries = 0;; tries++) {
        if (unified)
            q_len = tries < 4 ? PICK(r, query_lengths) : 1 + num_below(r, 4);
        length = q_len + draw_cached(r, s->model.page) / (1 + tries);
        switch (num_below(r, 10)) {
        case 0: length = num_below(r, q_len + 1); break;
        case 1: length = q_len; break;
        default: break;
        }
        if ((double)q_len * length <= most || tries > 8)
            break;
    }
    if ((double)q_len * length > most)
        length = num_below(r, q_len + 20);
    s->q_len[i] = unified && num_below(r, 12) == 0 ? 0 : q_len;
    s->lengths[i] = num_below(r, 12) == 0 ? 0 : length;
}

static void draw_sequences(struct num_random *r, struct sample *s)
{
    const struct num_model *m = &s->model;
    double most =
        (s->many ? SAMPLE_MORE : SAMPLE_WORK) / ((double)m->gqa * m->kv_heads * (m->d + m->dv));
    int q_len = PICK(r, decode_lengths);

    s->sequences = 1 + num_below(r, num_below(r, 6) ? 6 : 16);
    for (int i = 0; i < s->sequences; i++) {
        draw_sequence(r, s, i, q_len, most);
        most -= (double)s->q_len[i] * s->lengths[i];
    }
}

static void draw_options(struct num_random *r, struct sample *s)
{
    static const int windows[] = {0, 0, 0, 1, 20, 128, 300};

    s->window = PICK(r, windows);
    s->sinks = num_below(r, 3) == 0;
    s->full = num_below(r, 5) == 0;
    s->table_64 = num_below(r, 3) == 0;
    s->no_lse = num_below(r, 5) == 0;
    s->scale = num_below(r, 4) ? 0 : num_below(r, 4) ? 0.11f : -0.06f;
    if (num_below(r, 5) == 0) {
        s->model.options |= KVK_SOFT_CAP;
        s->soft_cap = num_below(r, 2) ? 30 : 1.5f;
    }
    if (num_below(r, 5) == 0)
        s->model.options |= KVK_ALIBI;
    if (s->kind == SAMPLE_UNIFIED) {
        s->spare_rows = num_below(r, 3) ? 0 : 1 + num_below(r, 20);
        return;
    }
    s->batch_invariant = num_below(r, 4) == 0;
    if (s->batch_invariant || num_below(r, 2))
        return;
    /* splits of the caller's choice have 32 MiB of workspace, whatever the limits */
    double rows = (double)s->sequences * s->q_len[0] * s->model.gqa * s->model.kv_heads;
    int most = (int)((32 << 20) / (rows * 4 * (s->model.dv + 1)));
    int splits = 1 + num_below(r, 9);
    s->splits = most < 1 ? 0 : splits < most ? splits : most;
}

void sample_draw(uint64_t seed, int number, struct sample *s)
{
    static const enum sample_kind kinds[] = {SAMPLE_STORE,   SAMPLE_DECODE,  SAMPLE_UNIFIED,
                                             SAMPLE_COMPILE, SAMPLE_DEQUANT, SAMPLE_DECODE,
                                             SAMPLE_UNIFIED, SAMPLE_COPY,    SAMPLE_COMPILE,
                                             SAMPLE_DECODE,  SAMPLE_UNIFIED, SAMPLE_MERGE};
    struct num_random r = num_random(seed, 0x5A0000 + (uint64_t)number);

    memset(s, 0, sizeof *s);
    s->kind = kinds[number % 12];
    s->many = num_below(&r, 10) == 0;
    draw_model(&r, s);
    s->pool = (enum world_pool)num_below(&r, 3);
    s->strided = num_below(&r, 3) == 0;
    s->variant = (int)(num_next(&r) >> 40);
    if (s->kind < SAMPLE_DECODE)
        return;
    draw_sequences(&r, s);
    draw_options(&r, s);
}

/* --- the run --- */

static float *per_head(struct num_run *run, const struct sample *s, int slopes)
{
    struct num_random r = num_random(run->seed, slopes ? 21 : 22);
    int heads = s->model.gqa * s->model.kv_heads;
    float *x = num_host(run, (size_t)heads * sizeof *x);

    for (int i = 0; i < heads; i++)
        x[i] = slopes ? exp2f(-8.0f * (float)(i + 1) / (float)heads) : 2 * num_normal(&r);
    for (int i = 0; i < heads && !slopes; i += 5) /* none, much of a row, all of it */
        x[i] = i % 2 ? (i % 3 ? 8 : 60) : -INFINITY;
    return x;
}

static void attend(struct num_run *run, const struct sample *s, uint64_t seed)
{
    struct world_options o = {.lengths = s->lengths,
                              .sequences = s->sequences,
                              .data_seed = seed,
                              .page_seed = seed + 1,
                              .pool = s->pool,
                              .poison = 0xFF};
    struct world w;
    struct attention a = {.w = &w,
                          .unified = s->kind == SAMPLE_UNIFIED,
                          .spare_rows = s->spare_rows,
                          .scale = s->scale,
                          .window = s->window,
                          .splits = s->splits,
                          .strided = s->strided,
                          .no_lse = s->no_lse,
                          .full = s->full,
                          .table_64 = s->table_64,
                          .batch_invariant = s->batch_invariant,
                          .soft_cap = s->soft_cap};

    world_make(run, &w, &s->model, &o);
    memcpy(a.q_len, s->q_len, sizeof a.q_len);
    attention_rows(&a);
    attention_query(run, &a, seed + 2);
    a.sinks = s->sinks ? per_head(run, s, 0) : NULL;
    a.alibi = s->model.options & KVK_ALIBI ? per_head(run, s, 1) : NULL;
    attention_call(run, &a);
    attention_check(run, &a);
}

/* Lengths and options, which the case's name does not tell, behind the text of a failure. */
static void describe(const struct sample *s, char *text, size_t cap)
{
    size_t n = strlen(text);

    n += (size_t)snprintf(text + n, cap - n, " [");
    for (int i = 0; i < s->sequences && n < cap; i++)
        n += (size_t)snprintf(text + n, cap - n, "%d/%d ", s->q_len[i], s->lengths[i]);
    if (n < cap)
        snprintf(text + n, cap - n,
                 "heads %d window %d full %d splits %d invariant %d cap %g alibi %d sinks %d "
                 "int64 %d pool %d strided %d]",
                 s->model.kv_heads, s->window, s->full, s->splits, s->batch_invariant,
                 (double)s->soft_cap, (s->model.options & KVK_ALIBI) != 0, s->sinks, s->table_64,
                 (int)s->pool, s->strided);
}

static void run_kind(struct num_run *run, const struct sample *s, struct num_case *c)
{
    switch (s->kind) {
    case SAMPLE_STORE:
        c->variant = s->variant % 3;
        check_store(run, c);
        break;
    case SAMPLE_DEQUANT:
        c->variant = s->variant % 3;
        check_dequant(run, c);
        break;
    case SAMPLE_COPY: /* slots of small pages only */
        c->variant = s->model.page > 256 ? 2 + s->variant % 2 : s->variant % 4;
        check_copy(run, c);
        break;
    case SAMPLE_MERGE:
        c->variant = s->variant % 4;
        check_merge(run, c);
        break;
    case SAMPLE_COMPILE: sample_compile(run, s); break;
    default: attend(run, s, num_case_seed(run, c)); break;
    }
}

void sample_run(struct num_run *run, const struct num_case *c)
{
    jmp_buf *outer = run->leave, here;
    struct sample *s = num_host(run, sizeof *s);
    struct num_case fixed = *c;

    sample_draw(run->seed, c->variant, s);
    if (s->model.spec == &s->spec)
        spec_file_write(run->spec_folder, &s->spec);
    fixed.model = s->model;
    run->leave = &here;
    if (setjmp(here)) {
        describe(s, run->text, sizeof run->text);
        longjmp(*outer, 1);
    }
    run_kind(run, s, &fixed);
    run->leave = outer;
}

struct num_case *sample_cases(struct num_case *cases, size_t *count, uint64_t seed, int n, int core)
{
    static const char *const kinds[] = {"store",   "dequant", "copy",   "merge",
                                        "compile", "decode",  "unified"};
    struct sample s;

    cases = realloc(cases, (*count + (size_t)n) * sizeof *cases);
    if (!cases)
        abort();
    for (int i = 0; i < n; i++) {
        struct num_case *c = &cases[(*count)++];
        const struct num_model *m = &s.model;
        sample_draw(seed, i, &s);
        *c = (struct num_case){.body = sample_run, .variant = i, .full = i >= core};
        c->may_refuse = s.may_refuse;
        snprintf(c->name, sizeof c->name, "sample.%d/%s/%s.%s.d%dx%d.g%d.%s.p%d", i, kinds[s.kind],
                 m->spec->name, ref_layout_name(m->layout), m->d, m->dv, m->gqa,
                 m->dtype == KVK_FLOAT16 ? "fp16" : "bf16", m->page);
    }
    return cases;
}
