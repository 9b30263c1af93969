/* SPDX-License-Identifier: Apache-2.0 */
/* check_read.c - see check_read.h. */
#include "check_read.h"

#include "cli.h"

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
        if (!strncmp(s->st.tensors[i].name, "unified_out", 11) && sample_knows(s->st.tensors[i].name))
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
static void compare_in_steps(struct comparison *c, const unsigned char *got, const struct tensor *want, long steps)
{
    for (size_t i = 0; i < want->count; i++) {
        long apart = number_half_steps(number_u16(got + 2 * i), number_u16(want->data + 2 * i));
        if (compare_add(c, number_at(number_of(want), got, i), number_at(number_of(want), want->data, i)) && apart > steps)
            compare_bad(c, "element %zu is %g, expected %g", i, number_at(number_of(want), got, i),
                        number_at(number_of(want), want->data, i));
    }
    compare_steps(c, steps);
}

/* A cache of ours, not the file's: codes may differ at their rate and scalars by a rounding. Elements within CROSS_STEPS
 * count as equal, the others at the rate of the codes. */
static void compare_across(struct comparison *c, const unsigned char *got, const struct tensor *want, double rate)
{
    for (size_t i = 0; i < want->count; i++) {
        double expected = number_at(number_of(want), want->data, i), value = number_at(number_of(want), got, i);
        int close = number_half_steps(number_u16(got + 2 * i), number_u16(want->data + 2 * i)) <= CROSS_STEPS;
        compare_add(c, close ? expected : value, expected);
    }
    compare_count(c, rate);
}

static void compare_dequant(struct comparison *c, const unsigned char *got, const struct tensor *want, int rounded, int own,
                            double rate)
{
    if (!own)
        compare_across(c, got, want, rate);
    else if (rounded)
        compare_in_steps(c, got, want, 1);
    else {
        for (size_t i = 0; i < want->count; i++)
            compare_add(c, number_at(number_of(want), got, i), number_at(number_of(want), want->data, i));
        compare_exact(c);
    }
}

kvk_status check_dequant(struct run *run, int own, struct comparisons *all, kvk_error *err)
{
    const struct sample *s = run->sample;
    size_t bytes = (size_t)s->total * (size_t)s->kv_heads * (size_t)s->head_size * 2;
    unsigned char *key = cli_alloc(bytes, 1), *value = cli_alloc(bytes, 1);
    kvk_status status = run_dequant(run, key, value, err);
    if (!status && s->dequant_key)
        compare_dequant(compare_new(all, "dequant_key"), key, s->dequant_key, s->slots.format->key == KEY_CODEBOOK, own,
                        cross_key_rate);
    if (!status && s->dequant_value)
        compare_dequant(compare_new(all, "dequant_value"), value, s->dequant_value, 0, own, cross_value_rate);
    free(key);
    free(value);
    return status;
}

/* got: [rows][H][D]; row r of it against row pick[r] of `want` (NULL: r). */
static void compare_out(struct comparisons *all, const char *name, const char *suffix, const struct sample *s,
                        const unsigned char *got, const struct tensor *want, long rows, const long *pick, double limit)
{
    char full[64];
    snprintf(full, sizeof full, "%s%s", name, suffix);
    struct comparison *c = compare_new(all, full);
    size_t heads = (size_t)s->query_heads, d = (size_t)s->head_size;
    for (long row = 0; row < rows; row++)
        for (size_t head = 0; head < heads; head++) {
            size_t from = ((size_t)row * heads + head) * d, to = ((size_t)(pick ? pick[row] : row) * heads + head) * d;
            for (size_t i = 0; i < d; i++)
                compare_add(c, number_at(s->number, got, from + i), number_at(s->number, want->data, to + i));
            compare_row(c);
        }
    compare_l2(c, limit);
}

static kvk_status check_decode(struct run *run, const char *suffix, double limit, struct comparisons *all, kvk_error *err)
{
    const struct sample *s = run->sample;
    unsigned char *out = cli_alloc(s->decode_out->bytes, 1);
    struct run_attend attend = {.query = s->decode_query->data, .out = out, .rows = s->sequences};
    kvk_status status = run_decode(run, &attend, err);
    if (!status)
        compare_out(all, "decode_out", suffix, s, out, s->decode_out, s->sequences, NULL, limit);
    free(out);
    return status;
}

/* The last query of each sequence's chunk is one that decode can answer too. Sequences without queries get zeros. */
static kvk_status check_last_rows(struct run *run, const char *suffix, double limit, struct comparisons *all, kvk_error *err)
{
    const struct sample *s = run->sample;
    size_t row_bytes = (size_t)s->query_heads * (size_t)s->head_size * 2;
    unsigned char *query = cli_alloc((size_t)s->sequences, row_bytes), *out = cli_alloc((size_t)s->sequences, row_bytes);
    long *pick = cli_alloc((size_t)s->sequences, sizeof *pick), rows = 0;
    for (long i = 0; i < s->sequences; i++)
        if (s->query_start[i + 1] > s->query_start[i])
            memcpy(query + (size_t)i * row_bytes, s->unified_query->data + (size_t)(s->query_start[i + 1] - 1) * row_bytes,
                   row_bytes);
    struct run_attend attend = {.query = query, .out = out, .rows = s->sequences};
    kvk_status status = run_decode(run, &attend, err);
    for (long i = 0; i < s->sequences; i++)
        if (s->query_start[i + 1] > s->query_start[i]) {
            memmove(out + (size_t)rows * row_bytes, out + (size_t)i * row_bytes, row_bytes);
            pick[rows++] = s->query_start[i + 1] - 1;
        }
    if (!status)
        compare_out(all, "unified_out.last_rows", suffix, s, out, unified_out(s), rows, pick, limit);
    free(query);
    free(out);
    free(pick);
    return status;
}

static kvk_status check_unified(struct run *run, const struct tensor *want, const char *suffix, double limit,
                                struct comparisons *all, kvk_error *err)
{
    const struct sample *s = run->sample;
    long window = sample_window(want->name);
    unsigned char *out = cli_alloc(want->bytes, 1);
    struct run_attend attend = {.query = s->unified_query->data, .out = out, .rows = s->tokens,
                                .window = window > 0 ? window : 0, .with_sinks = !strcmp(want->name, "unified_out_sinks")};
    kvk_status status = run_unified(run, &attend, err);
    if (!status) /* rows at or past the last query_start belong to no sequence */
        compare_out(all, want->name, suffix, s, out, want, s->query_start[s->sequences], NULL, limit);
    free(out);
    return status;
}

kvk_status check_outputs(struct run *run, const char *suffix, double limit, struct comparisons *all, kvk_error *err)
{
    const struct sample *s = run->sample;
    kvk_status status = KVK_OK;
    if (s->decode_query && s->decode_out)
        status = check_decode(run, suffix, limit, all, err);
    if (!status && unified_out(s))
        status = check_last_rows(run, suffix, limit, all, err);
    for (int i = 0; s->unified_query && !status && i < s->st.ntensors; i++) {
        const struct tensor *want = &s->st.tensors[i];
        int sinks = !strcmp(want->name, "unified_out_sinks");
        if (strcmp(want->name, "unified_out") && sample_window(want->name) < 0 && !(sinks && s->sinks))
            continue;
        status = check_unified(run, want, suffix, limit, all, err);
    }
    return status;
}
