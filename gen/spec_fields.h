/* SPDX-License-Identifier: Apache-2.0 */
/*
** spec_fields.h - what the files of the spec module share: spec.def as a table, checks, and the evaluation of a file.
**
** spec.c finds and reads files, spec_lua.c evaluates them, spec_fields.c checks, spec_text.c writes and reads the
** canonical text. A check that fails writes "FIELD: VALUE: accepted ..." into `fault` and returns 0; whoever called it
** knows the place and puts it in front.
*/
#ifndef KVKILN_GEN_SPEC_FIELDS_H
#define KVKILN_GEN_SPEC_FIELDS_H

#include "spec.h"

enum field_type { FIELD_INT, FIELD_BOOL, FIELD_WORD, FIELD_CENTROIDS, FIELD_OPTION, FIELD_CONSTANT };
enum { FIELD_REQUIRED = -1, FIELD_BY_RULE = -2 }; /* fallbacks that are no value */
enum { SPEC_FAULT_MAX = 320, CODEC_KINDS = 4 };

#define FIELD_NO_MEMBER ((size_t)-1)

/* A codec under construction: `scale` is implied by the rule once the draft is complete. */
struct spec_draft {
    struct codec codec;
    int scale;
};

struct spec_field {
    enum codec_kind kind;
    const char *name;
    enum field_type type;
    size_t member; /* offset of an int (CONSTANT: of a float) in struct spec_draft, or FIELD_NO_MEMBER */
    int low, high, fallback;
    const char *words, *accepted, *meaning;
};

/* Field by index in the order of spec.def, NULL past the last. */
const struct spec_field *spec_field(int index);
int spec_field_get(const struct spec_field *field, const struct spec_draft *draft);
void spec_field_set(const struct spec_field *field, struct spec_draft *draft, int value);

/* Accepted text of a field of preset { ... }. */
const char *spec_preset_accepted(const char *name);

/* Lists of words "a|b|c": position of `text` or -1; word number `index` copied to `out`. */
int spec_word_index(const char *words, const char *text);
void spec_word_at(const char *words, int index, char *out, size_t cap);

#define SPEC_KIND_WORDS "codebook|affine|float|block_float"
#define SPEC_QUERY_WORDS "native|e4m3"

/* A codec with nothing but its kind; fields that follow from the rule are still open. */
void spec_draft_open(enum codec_kind kind, struct spec_draft *draft);
/* Fills in what follows from other fields, checks their combination. `where`: "key", "value" or the constructor. */
int spec_draft_close(const char *where, struct spec_draft *draft, char *fault);
/* A CONSTANT as spec_field_set takes it, its fp32 bits, into *bits; 0 if it is out of range. What the rule would take
** anyway becomes 0, so that equal specs have one text. */
int spec_constant(const struct spec_field *field, double number, int *bits);
/* One number of a centroid table: index 0.. */
int spec_centroid_add(const char *where, struct codec *codec, double number, char *fault);

int spec_check_name(const char *name, char *fault);
int spec_check_layouts(const struct spec *spec, char *fault);
/* A derived preset that names no layouts: native goes where its codecs have none. */
void spec_inherit_layouts(struct spec *spec);

/* Copies text for a message: printable ASCII, cut to cap. */
void spec_printable(const char *text, size_t bytes, char *out, size_t cap);

/* Where names are looked up and what evaluation may still cost: shared by a spec and the presets it derives from. */
struct spec_search {
    const char *dirs;
    int depth;                  /* how many presets stand on each other */
    long instructions;          /* left */
    long long wall_end, cpu_end; /* ns; evaluation stops when both have passed, so a busy machine stops nobody */
};

/* Finds, reads and evaluates; name is as in spec_load, or a bare preset name if depth > 0. */
kvk_status spec_find(const char *name, struct spec_search *search, struct spec *out, kvk_error *err);

/* Evaluates Lua source text. file: for messages; stem: the name unless the spec sets one. */
kvk_status spec_evaluate(const char *file, const char *stem, const char *source, size_t bytes,
                         struct spec_search *search, struct spec *out, kvk_error *err);

enum { SPEC_FILE_BYTES = 64 << 10, SPEC_MEMORY_BYTES = 16 << 20, SPEC_INSTRUCTIONS = 10000000, SPEC_TIME_MS = 250,
       SPEC_DEPTH = 8 };

#endif
