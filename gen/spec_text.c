/* SPDX-License-Identifier: Apache-2.0 */
/*
** spec_text.c - canonical text of a spec, both ways.
**
**     spec 1
**     name turboquant_3bit_nc
**     key codebook
**     key.bits 3
**     key.centroids lloyd_max          (or the bits of each fp32 number, eight hex digits each)
**     ...
**     layouts aos soa
**     query native
**
** Fields come in the order of spec.def; those with only one possible value are left out, and so are
** those that follow from the rule and encoder options that are not set. The reader accepts exactly
** what the writer writes: equal specs have one text; texts may be compared.
*/
#include "../runtime/error.h"
#include "spec_fields.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPEC_TEXT_VERSION = 1 };

struct writer {
    char *text;
    size_t cap, length;
};

__attribute__((format(printf, 2, 3))) static void put(struct writer *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t room = w->length < w->cap ? w->cap - w->length : 0;
    int n = vsnprintf(room ? w->text + w->length : NULL, room, format, args);
    va_end(args);
    w->length += n > 0 ? (size_t)n : 0;
}

static int is_written(const struct spec_field *field, enum codec_kind kind)
{
    return field->kind == kind && field->member != FIELD_NO_MEMBER &&
           field->member != offsetof(struct spec_draft, scale);
}

static void put_centroids(struct writer *w, const struct codec *codec)
{
    if (!codec->ncentroids)
        put(w, " lloyd_max");
    for (int i = 0; i < codec->ncentroids && i < SPEC_MAX_CENTROIDS; i++) {
        uint32_t bits;
        memcpy(&bits, &codec->centroids[i], sizeof bits);
        put(w, " %08x", (unsigned)bits);
    }
}

/* Not written while it is 0. */
static int is_optional(const struct spec_field *field)
{
    return field->type == FIELD_OPTION || field->type == FIELD_CONSTANT;
}

static void put_codec(struct writer *w, const char *side, const struct codec *codec)
{
    struct spec_draft draft = {*codec, 0};
    char word[32];
    const struct spec_field *field;
    spec_word_at(SPEC_KIND_WORDS, (int)codec->kind, word, sizeof word);
    put(w, "%s %s\n", side, word);
    for (int i = 0; (field = spec_field(i)); i++) {
        if (!is_written(field, codec->kind))
            continue;
        int value = spec_field_get(field, &draft);
        if (is_optional(field) && !value)
            continue;
        put(w, "%s.%s", side, field->name);
        if (field->type == FIELD_CENTROIDS) {
            put_centroids(w, codec);
        } else if (field->type == FIELD_WORD) {
            spec_word_at(field->words, value, word, sizeof word);
            put(w, " %s", word);
        } else if (field->type == FIELD_CONSTANT) {
            put(w, " %08x", (unsigned)value);
        } else {
            put(w, " %d", value);
        }
        put(w, "\n");
    }
}

size_t spec_to_text(const struct spec *spec, char *text, size_t cap)
{
    struct writer w = {text, cap, 0};
    char word[32];
    if (cap)
        *text = 0;
    put(&w, "spec %d\nname %s\n", SPEC_TEXT_VERSION, spec->name);
    put_codec(&w, "key", &spec->key);
    put_codec(&w, "value", &spec->value);
    put(&w, "layouts");
    for (int i = 0; i < spec->nlayouts && i < LAYOUT_COUNT; i++)
        put(&w, " %s", layout_name(spec->layouts[i]));
    spec_word_at(SPEC_QUERY_WORDS, (int)spec->query, word, sizeof word);
    put(&w, "\nquery %s\n", word);
    return w.length;
}

/* Reading: `field` and `value` hold the current line; the first fault is kept. */
struct reader {
    const char *next;
    int line, failed;
    char field[48], value[256];
    char fault[SPEC_FAULT_MAX];
};

static void refuse(struct reader *r, const char *accepted)
{
    char field[48], value[48];
    if (r->failed)
        return;
    r->failed = 1;
    spec_printable(r->field, strlen(r->field), field, sizeof field);
    spec_printable(r->value, strlen(r->value), value, sizeof value);
    snprintf(r->fault, sizeof r->fault, "%s: %s: accepted %s", *field ? field : "(end)",
             *value ? value : "\"\"", accepted);
}

/* Takes the next line; it must be about `field`. */
static const char *expect(struct reader *r, const char *field)
{
    if (r->failed)
        return "";
    size_t length = strcspn(r->next, "\n"), word = strcspn(r->next, " \n");
    snprintf(r->field, sizeof r->field, "%.*s", (int)(word < 47 ? word : 47), r->next);
    size_t rest = length > word ? length - word - 1 : 0;
    snprintf(r->value, sizeof r->value, "%.*s", (int)(rest < 255 ? rest : 255),
             r->next + word + (length > word));
    r->line++;
    if (strcmp(r->field, field) != 0) {
        char accepted[64];
        snprintf(accepted, sizeof accepted, "a line \"%s VALUE\" here", field);
        refuse(r, accepted);
    } else if (!r->next[length] || rest > 255) {
        refuse(r, "one line with an end");
    }
    r->next += length + (r->next[length] == '\n');
    return r->value;
}

static int read_int(struct reader *r, int low, int high, const char *accepted)
{
    int value = 0, digits = 0;
    const char *p = r->value;
    for (; *p >= '0' && *p <= '9' && digits < 4; p++, digits++)
        value = value * 10 + (*p - '0');
    if (!digits || *p || (digits > 1 && r->value[0] == '0') || value < low || value > high)
        refuse(r, accepted);
    return value;
}

static int read_word(struct reader *r, const char *words, const char *accepted)
{
    int index = spec_word_index(words, r->value);
    if (index < 0)
        refuse(r, accepted);
    return index < 0 ? 0 : index;
}

static void read_centroids(struct reader *r, const char *side, struct codec *codec)
{
    const char *p = r->value;
    if (!strcmp(p, "lloyd_max"))
        return;
    while (!r->failed) {
        uint32_t bits = 0;
        float number;
        if (strspn(p, "0123456789abcdef") != 8 || (p[8] && p[8] != ' ')) {
            refuse(r, "lloyd_max or numbers of eight hex digits");
            return;
        }
        bits = (uint32_t)strtoul(p, NULL, 16);
        memcpy(&number, &bits, sizeof number);
        if (!spec_centroid_add(side, codec, (double)number, r->fault))
            r->failed = 1;
        if (!p[8])
            return;
        p += 9;
    }
}

/* Eight hex digits of a constant that is not the usual one. */
static int read_constant(struct reader *r, const struct spec_field *field)
{
    const char *p = r->value;
    int bits = 0;
    float number = 0;
    if (strspn(p, "0123456789abcdef") == 8 && !p[8]) {
        uint32_t word = (uint32_t)strtoul(p, NULL, 16);
        memcpy(&number, &word, sizeof number);
    }
    if (!spec_constant(field, (double)number, &bits) || !bits)
        refuse(r, "a number of eight hex digits");
    return bits;
}

/* Is the next line about `field`? */
static int is_next(const struct reader *r, const char *field)
{
    size_t length = strlen(field);
    return !strncmp(r->next, field, length) && (r->next[length] == ' ' || r->next[length] == '\n');
}

static void read_field(struct reader *r, const char *side, const struct spec_field *field,
                       struct spec_draft *draft)
{
    switch (field->type) {
    case FIELD_CENTROIDS: read_centroids(r, side, &draft->codec); break;
    case FIELD_WORD:
        spec_field_set(field, draft, read_word(r, field->words, field->accepted));
        break;
    case FIELD_OPTION: spec_field_set(field, draft, read_int(r, 1, 1, "1")); break;
    case FIELD_CONSTANT: spec_field_set(field, draft, read_constant(r, field)); break;
    case FIELD_INT:
    case FIELD_BOOL:
        spec_field_set(field, draft, read_int(r, field->low, field->high, field->accepted));
        break;
    }
}

static void read_codec(struct reader *r, const char *side, struct codec *out)
{
    struct spec_draft draft;
    const struct spec_field *field;
    char name[48];
    expect(r, side);
    enum codec_kind kind =
        (enum codec_kind)read_word(r, SPEC_KIND_WORDS, "codebook, affine, float, block_float");
    spec_draft_open(kind, &draft);
    for (int i = 0; (field = spec_field(i)) && !r->failed; i++) {
        if (!is_written(field, kind))
            continue;
        snprintf(name, sizeof name, "%s.%s", side, field->name);
        if (is_optional(field) && !is_next(r, name))
            continue;
        expect(r, name);
        read_field(r, side, field, &draft);
    }
    if (!r->failed && !spec_draft_close(side, &draft, r->fault))
        r->failed = 1;
    *out = draft.codec;
}

static void read_layouts(struct reader *r, struct spec *spec)
{
    char word[8];
    const char *p = expect(r, "layouts");
    while (!r->failed) {
        size_t length = strcspn(p, " ");
        snprintf(word, sizeof word, "%.*s", (int)(length < 7 ? length : 7), p);
        int layout = length < sizeof word ? layout_from_name(word) : -1;
        if (layout < 0 || spec->nlayouts >= LAYOUT_COUNT) {
            refuse(r, spec_preset_accepted("layouts"));
            return;
        }
        spec->layouts[spec->nlayouts++] = (enum layout)layout;
        if (!p[length])
            return;
        p += length + 1;
    }
}

kvk_status spec_from_text(const char *text, struct spec *out, kvk_error *err)
{
    struct reader r = {text, 0, 0, "", "", ""};
    struct spec spec;
    memset(&spec, 0, sizeof spec);
    expect(&r, "spec");
    read_int(&r, SPEC_TEXT_VERSION, SPEC_TEXT_VERSION, "1");
    const char *name = expect(&r, "name");
    if (!r.failed && !spec_check_name(name, r.fault))
        r.failed = 1;
    if (!r.failed)
        snprintf(spec.name, sizeof spec.name, "%.*s", SPEC_NAME_MAX - 1, name);
    read_codec(&r, "key", &spec.key);
    read_codec(&r, "value", &spec.value);
    read_layouts(&r, &spec);
    if (!r.failed && !spec_check_layouts(&spec, r.fault))
        r.failed = 1;
    expect(&r, "query");
    spec.query = (enum query_format)read_word(&r, SPEC_QUERY_WORDS, spec_preset_accepted("query"));
    if (!r.failed && *r.next) {
        expect(&r, "end of text");
    }
    if (r.failed)
        return ERR(err, KVK_E_SPEC, "text:%d: %s", r.line, r.fault);
    *out = spec;
    return KVK_OK;
}
