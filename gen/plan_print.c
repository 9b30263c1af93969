/* SPDX-License-Identifier: Apache-2.0 */
/*
** plan_print.c - a plan for people: every field with its reason, and where it is from.
*/
#include "plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct text {
    char *at;
    size_t cap, length;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t room = t->length < t->cap ? t->cap - t->length : 0;
    int n = vsnprintf(room ? t->at + t->length : NULL, room, format, args);
    va_end(args);
    t->length += n > 0 ? (size_t)n : 0;
}

static const char *reason(const struct plan *p, const char *field)
{
    for (int i = 0; i < p->nwhy; i++)
        if (!strcmp(p->why[i].field, field))
            return p->why[i].text;
    return NULL;
}

static void put_field(struct text *t, const struct plan *p, const char *field, int value)
{
    const char *why = reason(p, field);
    enum plan_field at = tuned_field(field, strlen(field));
    if (at < PLAN_FIELDS && p->set.value[at] != TUNED_RULE) {
        put(t, "%s %d  # %s; by rule %d\n", field, value, p->set_source, p->rule.value[at]);
        return;
    }
    put(t, "%s %d%s%s\n", field, value, why ? "  # " : "", why ? why : "");
}

static void put_operand(struct text *t, const struct plan *p, const char *field,
                        enum plan_operand o)
{
    static const char *const names[] = {"f16", "bf16x2", "bf16", "fp4"};
    put(t, "%s %s  # %s\n", field, names[o], reason(p, field));
}

size_t plan_print(const struct plan *p, char *text, size_t cap)
{
    struct text t = {text, cap, 0};
    if (*p->left_out)
        put(&t, "left_out 1  # %s\n", p->left_out);
    put_field(&t, p, "warps", p->warps);
    put_field(&t, p, "threads", p->threads);
    if (p->kind == KIND_UNIFIED)
        put_field(&t, p, "dense", p->dense);
    if (p->dense) {
        put_field(&t, p, "rows", p->rows);
        put_field(&t, p, "tile_tokens", p->tile_tokens);
        put_field(&t, p, "dense_tiles", p->dense_tiles);
        put_field(&t, p, "chunk_tokens", p->chunk_tokens);
    } else if (p->kind == KIND_DECODE || p->kind == KIND_UNIFIED) {
        put_field(&t, p, "narrow", p->narrow);
        put_field(&t, p, "rows", p->rows);
        put_field(&t, p, "row_warps", p->row_warps);
        put_field(&t, p, "token_warps", p->token_warps);
        put_field(&t, p, "dim_warps", p->dim_warps);
        put_field(&t, p, "dims", p->dims);
        put_field(&t, p, "subtiles", p->subtiles);
        put_field(&t, p, "paged_subtiles", p->paged_subtiles);
        put_field(&t, p, "chunk_tokens", p->chunk_tokens);
        put_field(&t, p, "tile_tokens", p->tile_tokens);
        if (p->turn_rows)
            put_field(&t, p, "turn_rows", p->turn_rows);
        put_field(&t, p, "lazy_reference", p->lazy_reference);
        put_field(&t, p, "centre_tokens", p->centre_tokens);
        put_field(&t, p, "prefetch", p->prefetch);
        put_field(&t, p, "images", p->images);
        if (p->images) {
            put_field(&t, p, "image_padding", p->image_padding);
            put_field(&t, p, "image_group", p->image_group);
            if (p->geo.layout != LAYOUT_NATIVE)
                put_field(&t, p, "value_pairs", p->value_pairs);
            put_field(&t, p, "turned", p->turned);
            put_field(&t, p, "producer", p->producer);
            put_field(&t, p, "held_places", p->held_places);
            if (p->geo.layout == LAYOUT_AOS) {
                put_field(&t, p, "key_words", p->key_words);
                put_field(&t, p, "value_words", p->value_words);
                put_field(&t, p, "squares", p->squares);
            }
        }
        put_field(&t, p, "min_ctas", p->min_ctas);
        if (p->kind == KIND_DECODE)
            put_field(&t, p, "join_passes", plan_join_passes(p));
        if (p->neighbours)
            put_field(&t, p, "neighbours", p->neighbours);
        put_field(&t, p, "quick", p->quick);
        if (p->bulk)
            put_field(&t, p, "settle_branch", p->settle_branch);
        put_field(&t, p, "held_masks", p->held_masks);
        put_field(&t, p, "spread_tables", p->spread_tables);
        if (p->byte_tables)
            put_field(&t, p, "byte_tables", p->byte_tables);
        put_operand(&t, p, "key_operand", p->key_operand);
        put_operand(&t, p, "value_operand", p->value_operand);
    } else {
        put_field(&t, p, "vectors", p->vectors);
        if (p->pair_lanes) {
            put_field(&t, p, "pair_lanes", p->pair_lanes);
            put_field(&t, p, "pair_turns", p->pair_turns);
            put_field(&t, p, "min_ctas", p->min_ctas);
            put_field(&t, p, "shuffled", p->shuffled);
        }
    }
    return t.length;
}
