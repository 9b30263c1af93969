/* SPDX-License-Identifier: Apache-2.0 */
/*
** spec_fields.c - spec.def as a table, and the checks that need more than one field.
**
** Enumerations are read and written as ints through the table; C lets their type differ, hence the
** assertions.
*/
#include "spec_fields.h"

#include "native.h"

#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(enum rotation) == sizeof(int), "enums are kept as ints");
_Static_assert(sizeof(enum float_format) == sizeof(int), "enums are kept as ints");
_Static_assert(sizeof(enum block_rule) == sizeof(int), "enums are kept as ints");

enum { SCALE_UE8M0, SCALE_E4M3 };

#define REQUIRED FIELD_REQUIRED
#define BY_RULE FIELD_BY_RULE
#define NONE nothing
struct with_nothing { /* lets offsetof take NONE */
    struct codec codec;
    int scale;
    int nothing;
};
_Static_assert(offsetof(struct with_nothing, scale) == offsetof(struct spec_draft, scale),
               "same shape");
#define OFFSET(member)                                                                             \
    (offsetof(struct with_nothing, member) == offsetof(struct with_nothing, nothing)               \
         ? FIELD_NO_MEMBER                                                                         \
         : offsetof(struct with_nothing, member))

static const struct spec_field fields[] = {
#define FIELD(kind, name, type, member, low, high, fallback, words, accepted, meaning)             \
    {CODEC_##kind, #name,    FIELD_##type, OFFSET(member), low,                                    \
     high,         fallback, words,        accepted,       meaning},
#include "spec.def"
};

static const struct {
    const char *name, *accepted;
} preset_fields[] = {
#define PRESET(name, accepted, meaning) {#name, accepted},
#include "spec.def"
};

enum {
    FIELDS = sizeof fields / sizeof *fields,
    PRESET_FIELDS = sizeof preset_fields / sizeof *preset_fields
};

const struct spec_field *spec_field(int index)
{
    return index >= 0 && index < FIELDS ? &fields[index] : NULL;
}

int spec_field_get(const struct spec_field *field, const struct spec_draft *draft)
{
    int value = 0;
    if (field->member != FIELD_NO_MEMBER)
        memcpy(&value, (const char *)draft + field->member, sizeof value);
    return value;
}

void spec_field_set(const struct spec_field *field, struct spec_draft *draft, int value)
{
    if (field->member != FIELD_NO_MEMBER)
        memcpy((char *)draft + field->member, &value, sizeof value);
}

const char *spec_preset_accepted(const char *name)
{
    for (int i = 0; i < PRESET_FIELDS; i++)
        if (!strcmp(preset_fields[i].name, name))
            return preset_fields[i].accepted;
    return "";
}

int spec_word_index(const char *words, const char *text)
{
    size_t length = strlen(text);
    for (int index = 0;; index++) {
        size_t word = strcspn(words, "|");
        if (word == length && !memcmp(words, text, length))
            return index;
        if (!words[word])
            return -1;
        words += word + 1;
    }
}

void spec_word_at(const char *words, int index, char *out, size_t cap)
{
    for (; index > 0 && *words; index--) {
        words += strcspn(words, "|");
        words += *words == '|';
    }
    snprintf(out, cap, "%.*s", (int)strcspn(words, "|"), words);
}

void spec_draft_open(enum codec_kind kind, struct spec_draft *draft)
{
    memset(draft, 0, sizeof *draft);
    draft->codec.kind = kind;
    draft->codec.group = draft->scale = FIELD_BY_RULE;
}

static int centroids_close(const char *where, const struct codec *codec, char *fault)
{
    int n = codec->ncentroids, want = 1 << codec->bits;
    if (n && n != want) {
        snprintf(fault, SPEC_FAULT_MAX,
                 "%s.centroids: %d numbers: accepted %d ascending numbers for bits = %d", where, n,
                 want, codec->bits);
        return 0;
    }
    return 1;
}

static int block_close(const char *where, struct spec_draft *draft, char *fault)
{
    static const struct {
        const char *name, *scale_name;
        int scale, group;
    } rules[] = {{"ultraquant", "ue8m0", SCALE_UE8M0, 32},
                 {"mxfp4", "ue8m0", SCALE_UE8M0, 32},
                 {"nvfp4", "e4m3", SCALE_E4M3, 16}};
    int rule = (int)draft->codec.rule;
    if (draft->scale != FIELD_BY_RULE && draft->scale != rules[rule].scale) {
        snprintf(fault, SPEC_FAULT_MAX, "%s.scale: %s: accepted %s for rule = %s", where,
                 draft->scale == SCALE_E4M3 ? "e4m3" : "ue8m0", rules[rule].scale_name,
                 rules[rule].name);
        return 0;
    }
    if (draft->codec.group != FIELD_BY_RULE && draft->codec.group != rules[rule].group) {
        snprintf(fault, SPEC_FAULT_MAX, "%s.group: %d: accepted %d for rule = %s", where,
                 draft->codec.group, rules[rule].group, rules[rule].name);
        return 0;
    }
    draft->codec.group = rules[rule].group;
    draft->codec.bits = 4;
    if (rule == BLOCK_ULTRAQUANT ||
        (!draft->codec.scale_search && draft->codec.scale_constant == 0))
        return 1;
    if (draft->codec.scale_search)
        snprintf(fault, SPEC_FAULT_MAX, "%s.scale_search: true: accepted false for rule = %s",
                 where, rules[rule].name);
    else
        snprintf(fault, SPEC_FAULT_MAX, "%s.scale_constant: %.6g: accepted none for rule = %s",
                 where, (double)draft->codec.scale_constant, rules[rule].name);
    return 0;
}

int spec_constant(const struct spec_field *field, double number, int *bits)
{
    static const float usual = 0.156f;
    float rounded = (float)number;
    if (!(number * 1000 >= field->low && number * 1000 <= field->high))
        return 0;
    if (rounded == usual)
        rounded = 0;
    memcpy(bits, &rounded, sizeof rounded);
    return 1;
}

int spec_draft_close(const char *where, struct spec_draft *draft, char *fault)
{
    struct codec *codec = &draft->codec;
    int ok = 1;
    if (codec->kind == CODEC_BLOCK_FLOAT)
        ok = block_close(where, draft, fault);
    else
        codec->group = 0;
    if (codec->kind == CODEC_CODEBOOK)
        ok = centroids_close(where, codec, fault);
    if (codec->kind == CODEC_FLOAT)
        codec->bits = codec->format == FLOAT_FP16 || codec->format == FLOAT_BF16 ? 16 : 8;
    draft->scale = 0;
    return ok;
}

int spec_centroid_add(const char *where, struct codec *codec, double number, char *fault)
{
    int n = codec->ncentroids;
    if (n >= SPEC_MAX_CENTROIDS) {
        snprintf(fault, SPEC_FAULT_MAX,
                 "%s.centroids: more than %d numbers: accepted 2^bits ascending numbers", where,
                 SPEC_MAX_CENTROIDS);
        return 0;
    }
    if (number != number) {
        snprintf(fault, SPEC_FAULT_MAX, "%s.centroids[%d]: nan: accepted -1..1", where, n + 1);
        return 0;
    }
    if (number < -1 || number > 1) { /* elements of a vector of length one lie inside */
        snprintf(fault, SPEC_FAULT_MAX, "%s.centroids[%d]: %.9g: accepted -1..1", where, n + 1,
                 number);
        return 0;
    }
    float rounded = (float)number + 0.0f; /* -0 becomes +0: one text for equal tables */
    if (n && !(rounded > codec->centroids[n - 1])) {
        snprintf(fault, SPEC_FAULT_MAX,
                 "%s.centroids[%d]: %.9g: accepted a number above %.9g (ascending in fp32)", where,
                 n + 1, number, (double)codec->centroids[n - 1]);
        return 0;
    }
    codec->centroids[codec->ncentroids++] = rounded;
    return 1;
}

int spec_check_name(const char *name, char *fault)
{
    size_t length = strlen(name);
    if (length && length < SPEC_NAME_MAX &&
        strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == length)
        return 1;
    char shown[48];
    spec_printable(name, length, shown, sizeof shown);
    snprintf(fault, SPEC_FAULT_MAX, "name: \"%s\": accepted %s", shown,
             spec_preset_accepted("name"));
    return 0;
}

/* Sides that keep 16-bit fields beside their codes; soa is only defined where there are some. */
static int has_fields(const struct codec *codec)
{
    return codec->kind == CODEC_CODEBOOK || codec->kind == CODEC_AFFINE;
}

int spec_check_layouts(const struct spec *spec, char *fault)
{
    int seen[LAYOUT_COUNT] = {0};
    if (spec->nlayouts < 1) {
        snprintf(fault, SPEC_FAULT_MAX, "layouts: empty: accepted %s",
                 spec_preset_accepted("layouts"));
        return 0;
    }
    for (int i = 0; i < spec->nlayouts; i++) {
        enum layout layout = spec->layouts[i];
        if (seen[layout]++) {
            snprintf(fault, SPEC_FAULT_MAX, "layouts: %s twice: accepted each layout once",
                     layout_name(layout));
            return 0;
        }
        int block = spec->key.kind == CODEC_BLOCK_FLOAT || spec->value.kind == CODEC_BLOCK_FLOAT;
        if (layout == LAYOUT_SOA &&
            (block || (!has_fields(&spec->key) && !has_fields(&spec->value)))) {
            snprintf(fault, SPEC_FAULT_MAX,
                     "layouts: soa: accepted aos (soa is not defined for %s)",
                     block ? "block_float codecs" : "float codecs on both sides");
            return 0;
        }
        const char *takes = native_codecs(&spec->key, &spec->value);
        if (layout == LAYOUT_NATIVE && takes) {
            snprintf(fault, SPEC_FAULT_MAX, "layouts: native: accepted %s (native takes %s)",
                     block ? "aos" : "aos, soa", takes);
            return 0;
        }
    }
    return 1;
}

void spec_inherit_layouts(struct spec *spec)
{
    int kept = 0;
    for (int i = 0; i < spec->nlayouts; i++)
        if (spec->nlayouts == 1 || spec->layouts[i] != LAYOUT_NATIVE ||
            !native_codecs(&spec->key, &spec->value))
            spec->layouts[kept++] = spec->layouts[i];
    for (int i = kept; i < spec->nlayouts; i++)
        spec->layouts[i] =
            LAYOUT_AOS; /* as unused entries are: equal specs are equal in every byte */
    spec->nlayouts = kept;
}

void spec_printable(const char *text, size_t bytes, char *out, size_t cap)
{
    size_t n = bytes < cap - 1 ? bytes : cap - 1;
    for (size_t i = 0; i < n; i++)
        out[i] = text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?';
    out[n] = 0;
    if (n < bytes && n > 3)
        memcpy(out + n - 3, "...", 3);
}
