/* SPDX-License-Identifier: Apache-2.0 */
/* check_read.c - see check_read.h. */
#include "check_read.h"

#include "cli.h"
#include "oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CROSS_STEPS = 4 };
static const double cross_key_rate = 1e-5, cross_value_rate = 5e-4;

double check_output_limit(kvk_dtype dtype)
{
    return dtype == KVK_FLOAT16 ? 1e-3 : 6e-3;
}

static const struct tensor *unified_out(const struct sample *s)
{
    return s->unified_query ? safetensors_get(&s->st, "unified_out") : NULL;
}

unsigned check_output_kinds(const struct sample *s)
{
    unsigned kinds = (s->decode_query && s->decode_out) || unified_out(s) ? KVK_DECODE : 0;
    for (int i = 0; s->unified_query && i < s->st.ntensors; i++)
        if (!strncmp(s->st.tensors[i].name, "unified_out", 11)
            && sample_knows(s->st.tensors[i].name))
            kinds |= KVK_UNIFIED;
    return kinds;
}

unsigned check_dequant_kinds(const struct sample *s)
{
    return s->dequant_key || s->dequant_value ? KVK_DEQUANT : 0;
}

static enum number number_of(const struct tensor *tensor)
{
    return tensor->type == TENSOR_F16 ? NUMBER_F16 : NUMBER_BF16;
}

/* Elements of fp16: every difference beyond `steps` is a fault. */
static void compare_in_steps(struct comparison *c, const unsigned char *got,
                             const struct tensor *want, long steps)
{
    for (size_t i = 0; i < want->count; i++) {
        long apart = number_half_steps(number_u16(got + 2 * i), number_u16(want->data + 2 * i));
        if (compare_add(c, number_at(number_of(want), got, i),
                        number_at(number_of(want), want->data, i))
            && apart > steps)
            compare_bad(c, "element %zu is %g, expected %g", i, number_at(number_of(want), got, i),
                        number_at(number_of(want), want->data, i));
    }
    compare_steps(c, steps);
}

/* A cache of ours, not the file's: codes may differ at their rate and scalars by a rounding.
 * Elements within CROSS_STEPS count as equal, the others at the rate of the codes. */
static void compare_across(struct comparison *c, const unsigned char *got,
                           const struct tensor *want, double rate)
{
    for (size_t i = 0; i < want->count; i++) {
        double expected = number_at(number_of(want), want->data, i),
               value = number_at(number_of(want), got, i);
        int close = number_half_steps(number_u16(got + 2 * i), number_u16(want->data + 2 * i))
                    <= CROSS_STEPS;
        compare_add(c, close ? expected : value, expected);
    }
    compare_count(c, rate);
}

static void compare_dequant(struct comparison *c, const unsigned char *got,
                            const struct tensor *want, int rounded, int own, double rate)
{
    if (!own)
        compare_across(c, got, want, rate);
    else if (rounded)
        compare_in_steps(c, got, want, 1);
    else {
        for (size_t i = 0; i < want->count; i++)
            compare_add(c, number_at(number_of(want), got, i),
                        number_at(number_of(want), want->data, i));
        compare_exact(c);
    }
}

kvk_status check_dequant(struct run *run, const struct check_pool *ours, struct comparisons *all,
                         kvk_error *err)
{
    const struct sample *s = run->sample;
    int own = !ours && !s->converted;
    size_t bytes = (size_t)s->total * (size_t)s->kv_heads * (size_t)s->head_size * 2;
    unsigned char *key = cli_alloc(bytes, 1), *value = cli_alloc(bytes, 1);
    kvk_status status = run_dequant(run, key, value, err);
    if (!status && s->dequant_key)
        compare_dequant(compare_new(all, "dequant_key"), key, s->dequant_key,
                        s->slots.format->key == KEY_CODEBOOK, own, cross_key_rate);
    if (!status && s->dequant_value)
        compare_dequant(compare_new(all, "dequant_value"), value, s->dequant_value, 0, own,
                        cross_value_rate);
    free(key);
    free(value);
    return status;
}

/* One launch's output: rows of H x D, row r answers for row
 * pick[r] of `want` (NULL: r) under `mask`. */
struct answer {
    const struct tensor *want, *query; /* of the file */
    const char *name;
    const unsigned char *got;
    long rows;
    const long *pick, *sequence,
        *position; /* [rows]; sequence and position: of pick[r] in its cache */
    long window;
    int with_sinks;
};

/* Attention of one row and head over rows decoded from one cache. */
static void attend_row(const struct sample *s, const struct slots *slots, const unsigned char *pool,
                       const struct answer *a, long row, int head, double *out)
{
    size_t d = (size_t)s->head_size,
           at = ((size_t)a->pick[row] * (size_t)s->query_heads + (size_t)head) * d;
    double *query = cli_alloc(d, sizeof *query), sink = 0;
    struct oracle_mask mask = {.scale = s->scale, .window = a->window};
    struct oracle_rows rows;
    for (size_t i = 0; i < d; i++)
        query[i] = number_at(s->number, a->query->data, at + i);
    if (a->with_sinks) {
        sink = number_at(NUMBER_F32, s->sinks->data, (size_t)head);
        mask.sink = &sink;
    }
    oracle_decode(slots, pool, s->block_table + a->sequence[row] * s->table_stride,
                  a->position[row] + 1, head / (s->query_heads / s->kv_heads), &rows);
    oracle_attend(&rows, query, a->position[row], &mask, out);
    oracle_free(&rows);
    free(query);
}

/* got against the file, moved by (attention over our cache - attention over the file's). */
static void compare_answer(struct comparisons *all, const struct check_rule *rule,
                           const struct sample *s, const struct answer *a)
{
    char name[64];
    size_t heads = (size_t)s->query_heads, d = (size_t)s->head_size;
    double *ours = cli_alloc(d, sizeof *ours), *theirs = cli_alloc(d, sizeof *theirs);
    snprintf(name, sizeof name, "%s%s", a->name, rule->suffix);
    struct comparison *c = compare_new(all, name);
    for (long row = 0; row < a->rows; row++)
        for (size_t head = 0; head < heads; head++) {
            size_t from = ((size_t)row * heads + head) * d,
                   to = ((size_t)a->pick[row] * heads + head) * d;
            if (rule->ours) {
                attend_row(s, rule->ours->slots, rule->ours->bytes, a, row, (int)head, ours);
                attend_row(s, &s->slots, s->pool, a, row, (int)head, theirs);
            }
            for (size_t i = 0; i < d; i++)
                compare_add(c, number_at(s->number, a->got, from + i),
                            number_at(s->number, a->want->data, to + i) + ours[i] - theirs[i]);
            compare_row(c);
        }
    compare_l2(c, rule->limit);
    free(ours);
    free(theirs);
}

/* Room for the row tables of an answer. */
struct rows {
    long *pick, *sequence, *position;
    long count;
};

static struct rows rows_make(long most)
{
    size_t n = (size_t)most;
    return (struct rows){cli_alloc(n, sizeof(long)), cli_alloc(n, sizeof(long)),
                         cli_alloc(n, sizeof(long)), 0};
}

static void rows_free(struct rows *rows)
{
    free(rows->pick);
    free(rows->sequence);
    free(rows->position);
}

static void rows_add(struct rows *rows, long pick, long sequence, long position)
{
    rows->pick[rows->count] = pick;
    rows->sequence[rows->count] = sequence;
    rows->position[rows->count++] = position;
}

static void answer_rows(struct answer *answer, const struct rows *rows)
{
    answer->pick = rows->pick;
    answer->sequence = rows->sequence;
    answer->position = rows->position;
    answer->rows = rows->count;
}

static kvk_status check_decode(struct run *run, const struct check_rule *rule,
                               struct comparisons *all, kvk_error *err)
{
    const struct sample *s = run->sample;
    unsigned char *out = cli_alloc(s->decode_out->bytes, 1);
    struct run_attend attend = {.query = s->decode_query->data, .out = out, .rows = s->sequences};
    struct answer answer = {
        .want = s->decode_out, .query = s->decode_query, .name = "decode_out", .got = out};
    struct rows rows = rows_make(s->sequences);
    for (long i = 0; i < s->sequences; i++)
        rows_add(&rows, i, i, s->lengths[i] - 1);
    answer_rows(&answer, &rows);
    kvk_status status = run_decode(run, &attend, err);
    if (!status)
        compare_answer(all, rule, s, &answer);
    rows_free(&rows);
    free(out);
    return status;
}

/* The last query of each sequence's chunk is one that decode
 * can answer too. Sequences without queries get zeros. */
static kvk_status check_last_rows(struct run *run, const struct check_rule *rule,
                                  struct comparisons *all, kvk_error *err)
{
    const struct sample *s = run->sample;
    size_t row_bytes = (size_t)s->query_heads * (size_t)s->head_size * 2;
    unsigned char *query = cli_alloc((size_t)s->sequences, row_bytes),
                  *out = cli_alloc((size_t)s->sequences, row_bytes);
    struct rows rows = rows_make(s->sequences);
    const int32_t *start = s->query_start;
    for (long i = 0; i < s->sequences; i++)
        if (start[i + 1] > start[i])
            memcpy(query + (size_t)i * row_bytes,
                   s->unified_query->data + (size_t)(start[i + 1] - 1) * row_bytes, row_bytes);
    struct run_attend attend = {.query = query, .out = out, .rows = s->sequences};
    kvk_status status = run_decode(run, &attend, err);
    for (long i = 0; i < s->sequences; i++)
        if (start[i + 1] > start[i]) {
            memmove(out + (size_t)rows.count * row_bytes, out + (size_t)i * row_bytes, row_bytes);
            rows_add(&rows, start[i + 1] - 1, i, s->lengths[i] - 1);
        }
    struct answer answer = {.want = unified_out(s),
                            .query = s->unified_query,
                            .name = "unified_out.last_rows",
                            .got = out};
    answer_rows(&answer, &rows);
    if (!status)
        compare_answer(all, rule, s, &answer);
    rows_free(&rows);
    free(query);
    free(out);
    return status;
}

static kvk_status check_unified(struct run *run, const struct tensor *want,
                                const struct check_rule *rule, struct comparisons *all,
                                kvk_error *err)
{
    const struct sample *s = run->sample;
    long window = sample_window(want->name);
    unsigned char *out = cli_alloc(want->bytes, 1);
    struct answer answer = {.want = want,
                            .query = s->unified_query,
                            .name = want->name,
                            .got = out,
                            .window = window > 0 ? window : 0,
                            .with_sinks = !strcmp(want->name, "unified_out_sinks")};
    struct run_attend attend = {.query = s->unified_query->data,
                                .out = out,
                                .rows = s->tokens,
                                .window = answer.window,
                                .with_sinks = answer.with_sinks};
    struct rows rows =
        rows_make(s->tokens); /* rows at or past the last query_start belong to no sequence */
    for (long i = 0; i < s->sequences; i++)
        for (long row = s->query_start[i]; row < s->query_start[i + 1]; row++)
            rows_add(&rows, row, i, s->lengths[i] - (s->query_start[i + 1] - row));
    answer_rows(&answer, &rows);
    kvk_status status = run_unified(run, &attend, err);
    if (!status)
        compare_answer(all, rule, s, &answer);
    rows_free(&rows);
    free(out);
    return status;
}

kvk_status check_outputs(struct run *run, const struct check_rule *rule, struct comparisons *all,
                         kvk_error *err)
{
    const struct sample *s = run->sample;
    kvk_status status = KVK_OK;
    if (s->decode_query && s->decode_out)
        status = check_decode(run, rule, all, err);
    if (!status && unified_out(s))
        status = check_last_rows(run, rule, all, err);
    for (int i = 0; s->unified_query && !status && i < s->st.ntensors; i++) {
        const struct tensor *want = &s->st.tensors[i];
        int sinks = !strcmp(want->name, "unified_out_sinks");
        if (strcmp(want->name, "unified_out") && sample_window(want->name) < 0
            && !(sinks && s->sinks))
            continue;
        status = check_unified(run, want, rule, all, err);
    }
    return status;
}
