/* SPDX-License-Identifier: Apache-2.0 */
/*
** tuned.h - tuned tables: measured values of plan fields, as data.
**
** A table is a file TARGET.lua in the folder `tuned` of a spec directory, or embedded from specs/tuned during the build. It is
** one `return { row, row, ... }` of constants in Lua's notation, read without Lua (tuned_read.c says what is accepted):
**
**     { kind = "decode", layout = "soa", key = "codebook4", value = "affine4", head_size = 128, gqa = 4,
**       plan = { warps = 4, min_ctas = 3 }, note = "..." },
**
** The first row whose fields all equal a request's decides; a field that a row leaves out equals everything, but for `options`:
** a row is for kernels without options (soft cap, ALiBi), which are what tune measures, unless it says options = "any". Part of
** both libraries and of the command line: nothing here needs the generator.
*/
#ifndef KVKILN_TUNED_H
#define KVKILN_TUNED_H

#include "gen_api.h"

enum plan_field {
#define PLAN_FIELD(name, low, high, meaning) PLAN_##name,
#include "plan.def"
#undef PLAN_FIELD
    PLAN_FIELDS
};

enum { TUNED_RULE = -1, TUNED_PLAN_BYTES = 128, TUNED_SOURCE_BYTES = 64, TUNED_FILE_BYTES = 256 << 10 };

/* Values of plan fields; TUNED_RULE: the rule decides. */
struct tuned_plan {
    int value[PLAN_FIELDS];
};

/* What a row matches ("" and 0: everything; options "": kernels without), and what it sets. */
struct tuned_row {
    char kind[12], layout[12], key[20], value[20], dtype[8], options[8];
    int head_size, value_head_size, gqa, page;
    struct tuned_plan plan;
    char note[128];
    int line;
};

struct tuned_table {
    struct tuned_row *rows;
    int count;
};

/* A request's plan as text, "" if rules alone decide, and where it is from: "tuned/sm_90a.lua:12". */
struct tuned {
    char plan[TUNED_PLAN_BYTES], source[TUNED_SOURCE_BYTES];
};

const char *tuned_field_name(enum plan_field field);

/* "warps=8,min_ctas=3", in any order, to values; KVK_E_ARG naming `what`, the field and what is accepted. */
kvk_status tuned_plan_parse(const char *what, const char *text, struct tuned_plan *out, kvk_error *err);
/* The canonical text: the order of plan.def. Returns the length. */
size_t tuned_plan_format(const struct tuned_plan *plan, char *text, size_t cap);
/* KVK_OK or the error that `where` (a place, without a colon at its end) holds a value outside the field's range. */
kvk_status tuned_check_value(const char *where, enum plan_field field, long value, kvk_error *err);
/* "1..16": what the field takes. */
void tuned_range(enum plan_field field, char *text, size_t cap);
/* The field of that name, or PLAN_FIELDS. */
enum plan_field tuned_field(const char *name, size_t length);

/* The word for a side ("key" or "value") of a spec's canonical text: "codebook4", "affine4", "e4m3", "ultraquant"; "" if the
** text has no such side. */
void tuned_codec(const char *spec_text, const char *side, char *word, size_t cap);

/* Reads a table; `file` is for messages: "FILE:LINE: FIELD: VALUE: accepted ...", KVK_E_SPEC. */
kvk_status tuned_read(const char *file, const char *text, size_t bytes, struct tuned_table *out, kvk_error *err);
void tuned_free(struct tuned_table *table);
const struct tuned_row *tuned_match(const struct tuned_table *table, const struct gen_request *request);

/* The table of the request's target in the first of `dirs` (colon-separated, may be NULL) that has one, else the embedded one.
** Only decode and unified have tuned plans. */
kvk_status tuned_lookup(const char *dirs, const struct gen_request *request, struct tuned *out, kvk_error *err);

#endif
