/* SPDX-License-Identifier: Apache-2.0 */
/*
** name.c - kernel names. The reader takes the parts apart leniently, writes the name again and
** compares: what does not come back the same (leading zeros, a repeated value head size, text
** behind the end) is no name.
*/
#include "name.h"

#include "../runtime/error.h"

#include <stdio.h>
#include <string.h>

static const char *const kinds[] = {"store", "decode", "unified", "dequant",
                                    "merge", "copy",   "convert"};

/* Parts that follow the page, in this order. */
static const struct {
    const char *text;
    unsigned bit;
} options[] = {{".cap", KVK_SOFT_CAP}, {".alibi", KVK_ALIBI}};

enum { NOPTIONS = sizeof options / sizeof *options };

static int is_kind(const char *kind)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kind, kinds[i]))
            return 1;
    return 0;
}

static int is_spec_name(const char *name)
{
    size_t length = strlen(name);
    return length && length < SPEC_NAME_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == length;
}

/* Sizes of at most four digits, so that every name fits NAME_MAX_BYTES. */
static int is_size(int value) { return value >= 1 && value <= 9999; }

size_t name_format(const char *kind, const char *spec_name, const struct geometry *geometry,
                   char *name, size_t cap)
{
    const struct geometry *g = geometry;
    char value_head[16] = "";
    const char *suffix[NOPTIONS];
    for (int i = 0; i < NOPTIONS; i++)
        suffix[i] = g->options & options[i].bit ? options[i].text : "";
    if (cap)
        *name = 0;
    if (!is_kind(kind) || !is_spec_name(spec_name) || (unsigned)g->layout >= LAYOUT_COUNT ||
        !is_size(g->head_size) || !is_size(g->value_head_size) || !is_size(g->gqa) ||
        !is_size(g->page_tokens) || (g->dtype != KVK_FLOAT16 && g->dtype != KVK_BFLOAT16))
        return 0;
    if (g->value_head_size != g->head_size)
        snprintf(value_head, sizeof value_head, "x%d", g->value_head_size);
    int n =
        snprintf(name, cap, "%s.%s.%s.d%d%s.g%d.%s.p%d%s%s", kind, spec_name,
                 layout_name(g->layout), g->head_size, value_head, g->gqa,
                 g->dtype == KVK_FLOAT16 ? "f16" : "bf16", g->page_tokens, suffix[0], suffix[1]);
    return n > 0 ? (size_t)n : 0;
}

/* Copies up to the next '.' and steps over it; 0 if it does not fit. */
static int take_part(const char **p, char *part, size_t cap)
{
    size_t length = strcspn(*p, ".");
    if (length >= cap)
        return 0;
    memcpy(part, *p, length);
    part[length] = 0;
    *p += length + ((*p)[length] == '.');
    return 1;
}

/* Number behind a letter; -1 if there is none. Steps over it. */
static int take_number(const char **p, char letter)
{
    int value = 0, digits = 0;
    if (**p != letter)
        return -1;
    for (++*p; **p >= '0' && **p <= '9' && digits < 4; ++*p, digits++)
        value = value * 10 + (**p - '0');
    return digits ? value : -1;
}

/* Number of a whole part; -1 if something else stands there. */
static int part_number(const char **p, char letter)
{
    char part[16];
    const char *q = part;
    if (!take_part(p, part, sizeof part))
        return -1;
    int value = take_number(&q, letter);
    return *q ? -1 : value;
}

static const char *parse_sizes(const char *p, struct geometry *g)
{
    char part[16];
    const char *q = part;
    if (!take_part(&p, part, sizeof part) || (g->head_size = take_number(&q, 'd')) < 0)
        return "head size: accepted d128 or d192x128";
    g->value_head_size = *q ? take_number(&q, 'x') : g->head_size;
    if (g->value_head_size < 0 || *q)
        return "value head size: accepted d192x128";
    if ((g->gqa = part_number(&p, 'g')) < 0)
        return "gqa: accepted g4";
    if (!take_part(&p, part, sizeof part) ||
        (strcmp(part, "f16") != 0 && strcmp(part, "bf16") != 0))
        return "dtype: accepted f16, bf16";
    g->dtype = *part == 'f' ? KVK_FLOAT16 : KVK_BFLOAT16;
    if ((g->page_tokens = part_number(&p, 'p')) < 0)
        return "page: accepted p16";
    return NULL;
}

static const char *parse(const char *name, struct kernel_name *out)
{
    char layout[8], again[NAME_MAX_BYTES];
    const char *p = name;
    if (!take_part(&p, out->kind, sizeof out->kind) || !is_kind(out->kind))
        return "kind: accepted store, decode, unified, dequant, merge, copy";
    if (!take_part(&p, out->spec, sizeof out->spec) || !is_spec_name(out->spec))
        return "spec: accepted 1..63 characters of [a-z0-9_]";
    if (!take_part(&p, layout, sizeof layout) || layout_from_name(layout) < 0)
        return "layout: accepted aos, soa, native";
    out->geometry.layout = (enum layout)layout_from_name(layout);
    for (int i = 0; i < NOPTIONS; i++)
        if (strstr(p, options[i].text))
            out->geometry.options |= options[i].bit;
    const char *fault = parse_sizes(p, &out->geometry);
    if (fault)
        return fault;
    if (!name_format(out->kind, out->spec, &out->geometry, again, sizeof again) ||
        strcmp(again, name) != 0)
        return "not in canonical form: accepted what kvkiln itself writes";
    return NULL;
}

kvk_status name_parse(const char *name, struct kernel_name *out, kvk_error *err)
{
    struct kernel_name parsed;
    memset(&parsed, 0, sizeof parsed);
    const char *fault = parse(name, &parsed);
    if (fault)
        return ERR(err, KVK_E_ARG, "kernel name: %.180s: %s", name, fault);
    *out = parsed;
    return KVK_OK;
}

size_t name_file(const char *name, const char *target, const char *extension, char *file,
                 size_t cap)
{
    int n = snprintf(file, cap, "%s.%s.%s", name, target, extension);
    return n > 0 ? (size_t)n : 0;
}
