/* SPDX-License-Identifier: Apache-2.0 */
/* bench_shape.c - the shape of a bench: defaults and the text of contexts. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 1 << 26, MOST_SEQUENCES = 65536 };

/* A number at *text, moved behind it; 0 if there is none in range. */
static int take(const char **text, long most, long *out)
{
    char *end;
    long value = strtol(*text, &end, 10);
    if (end == *text || **text < '0' || **text > '9' || value < 1 || value > most)
        return 0;
    *text = end;
    *out = value;
    return 1;
}

int bench_shape_context(struct bench_shape *shape, const char *text, long batch)
{
    int ragged = strchr(text, 'x') != NULL;
    shape->ngroups = 0;
    while (shape->ngroups < BENCH_GROUPS) {
        struct bench_group *g = &shape->groups[shape->ngroups++];
        g->count = batch;
        if (ragged && (!take(&text, MOST_SEQUENCES, &g->count) || *text++ != 'x'))
            return 0;
        if (!take(&text, MOST_TOKENS, &g->tokens))
            return 0;
        if (!*text)
            return !ragged || !batch;
        if (!ragged || *text++ != '+')
            return 0;
    }
    return 0;
}

static long or_else(long value, long otherwise) { return value ? value : otherwise; }

void bench_shape_fill(struct bench_shape *s, const struct bench_kind *kind, int host)
{
    int store = kind == &bench_store, unified = kind == &bench_unified || kind == &bench_tiled;
    s->preset = s->preset ? s->preset : "turboquant_4bit_nc";
    s->layout = s->layout ? s->layout : "aos";
    s->dtype = s->dtype ? s->dtype : KVK_BFLOAT16;
    s->head_size = or_else(s->head_size, 128);
    s->value_head_size = or_else(s->value_head_size, s->head_size);
    s->gqa = or_else(s->gqa, 4);
    s->kv_heads = or_else(s->kv_heads, 8);
    s->page = or_else(s->page, 16);
    s->seed = s->seed ? s->seed : 1;
    if (!s->ngroups) {
        long most = store ? 65536 : 32768;
        s->ngroups = 1;
        s->groups[0].tokens = host ? (unified ? 512 : 4096) : most;
    }
    for (int i = 0; i < s->ngroups; i++)
        s->groups[i].count = or_else(s->groups[i].count, host || store || unified ? 1 : 16);
    long first = s->groups[0].tokens;
    s->query_tokens = or_else(s->query_tokens, store ? first : !unified ? 1 : host ? 64 : 2048);
    if (unified && s->query_tokens > first)
        s->query_tokens = first;
}

void bench_shape_text(const struct bench_shape *s, char *text, size_t cap)
{
    size_t used = 0;
    *text = '\0';
    for (int i = 0; i < s->ngroups && used < cap; i++) {
        int n = snprintf(text + used, cap - used, "%s%ldx%ld", i ? "+" : "", s->groups[i].count,
                         s->groups[i].tokens);
        used += n > 0 ? (size_t)n : 0;
    }
}

const struct bench_kind *bench_kind_find(const char *name)
{
    static const struct bench_kind *const kinds[] = {&bench_decode, &bench_store, &bench_dequant,
                                                     &bench_unified, &bench_tiled};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i]->name, name))
            return kinds[i];
    return NULL;
}
