/* SPDX-License-Identifier: Apache-2.0 */
#include "manifest.h"

#include "../runtime/object.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text {
    char *at;
    size_t cap, length;
};

__attribute__((format(printf, 2, 3))) static void line(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (t->length < t->cap) {
        int n = vsnprintf(t->at + t->length, t->cap - t->length, format, args);
        t->length += n > 0 ? (size_t)n : 0;
    }
    va_end(args);
}

void manifest_entry(struct manifest *m, const char *abi, const char *symbol, int threads,
                    size_t shared_bytes)
{
    if (m->n == MANIFEST_MAX_ENTRIES)
        return;
    struct manifest_entry *e = &m->entries[m->n++];
    snprintf(e->abi, sizeof e->abi, "%s", abi);
    snprintf(e->symbol, sizeof e->symbol, "%s", symbol);
    e->threads = threads;
    e->shared_bytes = shared_bytes;
}

static const char *format_text(const struct codec *c, char *text, size_t cap)
{
    static const char *const floats[] = {"e4m3", "e4b15", "e5m2", "fp16", "bf16"};
    static const char *const blocks[] = {"ultraquant", "mxfp4", "nvfp4"};
    const char *rotated = c->rotation == ROTATION_HADAMARD ? "-rotated" : "";
    switch (c->kind) {
    case CODEC_CODEBOOK:
        snprintf(text, cap, "codebook%d%s%s", c->bits, rotated, c->ncentroids ? "-table" : "");
        break;
    case CODEC_AFFINE: snprintf(text, cap, "affine%d", c->bits); break;
    case CODEC_FLOAT: snprintf(text, cap, "%s", floats[c->format]); break;
    case CODEC_BLOCK_FLOAT:
        snprintf(text, cap, "%s-g%d%s", blocks[c->rule], c->group, rotated);
        break;
    }
    return text;
}

/* Codebook entries are part of a page's meaning: a table of the user's own goes into the signature
** bit by bit. */
static void put_table(struct text *t, const struct codec *c)
{
    for (int i = 0; i < c->ncentroids; i++) {
        unsigned bits;
        memcpy(&bits, &c->centroids[i], sizeof bits);
        line(t, "%s%08x", i ? "," : ":table=", bits);
    }
}

/* What the 16-bit field of a codebook side means. */
static const char *norm_text(const struct side *side)
{
    if (side->codec.kind != CODEC_CODEBOOK)
        return "";
    return side->norm_at_read ? "-nc-read" : side->norm_at_store ? "-nc-store" : "-norm";
}

static void put_signature(struct text *t, const struct plan *p)
{
    char key[48], value[48];
    format_text(&p->spec.key, key, sizeof key);
    format_text(&p->spec.value, value, sizeof value);
    line(t, "signature kvk1:%s:k=%s%s:v=%s%s:d%dx%d:p%d:slot%d", layout_name(p->geo.layout), key,
         norm_text(&p->slot.key), value, norm_text(&p->slot.value), p->geo.head_size,
         p->geo.value_head_size, p->geo.page_tokens, p->slot.slot_bytes);
    put_table(t, &p->spec.key);
    put_table(t, &p->spec.value);
    line(t, "\n");
}

static void put_layout(struct text *t, const struct plan *p)
{
    const struct slot *s = &p->slot;
    const struct {
        const char *name;
        int value;
    } rows[] = {
        {"slot_bytes", s->slot_bytes},        {"slot_alignment", s->alignment},
        {"record_bytes", s->record_bytes},    {"key_offset", s->key.code_offset},
        {"key_bytes", s->key.code_bytes},     {"value_offset", s->value.code_offset},
        {"value_bytes", s->value.code_bytes}, {"fields", s->fields},
        {"head_size", p->geo.head_size},      {"value_head_size", p->geo.value_head_size},
        {"page_tokens", p->geo.page_tokens},  {"gqa", p->geo.gqa},
    };
    line(t, "layout.name %s\n", layout_name(p->geo.layout));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        line(t, "layout.%s %d\n", rows[i].name, rows[i].value);
    for (int i = 0; i < s->fields; i++) {
        const struct side *side = i < s->key.fields ? &s->key : &s->value;
        line(t, "layout.field_offset.%d %d\n", i,
             side->field_offset[i - (side == &s->value ? s->key.fields : 0)]);
    }
    put_signature(t, p);
}

/* "ptxas info : Compiling entry function 'SYMBOL'", "... N bytes spill stores, N bytes spill
** loads", "Used N registers", "... wgmma.mma_async instructions are serialized due to ..." */
static void put_report(struct text *t, const struct manifest *m, const char *report)
{
    const char *abi = "?";
    for (const char *p = report; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
        size_t n = strcspn(p, "\n");
        char row[512];
        snprintf(row, sizeof row, "%.*s", (int)(n < sizeof row - 1 ? n : sizeof row - 1), p);
        for (int i = 0; i < m->n; i++) {
            char quoted[MANIFEST_SYMBOL + 2];
            snprintf(quoted, sizeof quoted, "'%s'", m->entries[i].symbol);
            if (strstr(row, "Compiling entry function") && strstr(row, quoted))
                abi = m->entries[i].abi;
        }
        const char *spill = strstr(row, "bytes spill stores"), *used = strstr(row, "Used ");
        if (spill) {
            const char *q = spill;
            while (q > row && q[-1] != ',')
                q--;
            line(t, "spills %s %ld\n", abi, strtol(q, NULL, 10));
        }
        if (used)
            line(t, "registers %s %ld\n", abi, strtol(used + 5, NULL, 10));
        if (strstr(row, "are serialized"))
            line(t, "serialized 1\n");
    }
}

void manifest_finish(const struct manifest *m, const struct plan *p, const char *name,
                     const char *format, const char *report, char *text, size_t cap)
{
    struct text t = {text, cap, 0};
    line(&t, "kernel %s\nkind %s\ntarget %s\nformat %s\nabi %d\n", name, kind_name(p->kind),
         p->target->name, format, KVK_ABI_VERSION);
    for (int i = 0; i < m->n; i++) {
        const struct manifest_entry *e = &m->entries[i];
        line(&t, "entry %s %s %d %zu %zu\n", e->abi, e->symbol, e->threads, e->shared_bytes,
             e->offset);
    }
    if (p->rows)
        line(&t, "rows %d\ntile_tokens %d\n", p->rows, p->tile_tokens);
    if (p->image_heads)
        line(&t, "image_heads %d\nimage_padding %d\nimage_group %d\nturned %d\n", p->image_heads,
             p->image_padding, p->image_group, p->bulk && p->turned);
    line(&t, "vectors %d\n", p->vectors);
    if (p->neighbours)
        line(&t, "neighbours %d\n", p->neighbours);
    if (m->grid_wait)
        line(&t, "grid_wait 1\n");
    put_layout(&t, p);
    put_report(&t, m, report);
    char plan[4096];
    plan_print(p, plan, sizeof plan);
    for (char *row = plan, *end; *row; row = end) {
        end = row + strcspn(row, "\n");
        line(&t, "plan.%.*s\n", (int)(end - row), row);
        end += *end == '\n';
    }
}
