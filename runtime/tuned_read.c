/* SPDX-License-Identifier: Apache-2.0 */
/*
** tuned_read.c - reads a tuned table. Lua's notation, but data only:
**
**     table  = "return" "{" { row "," } "}"
**     row    = "{" field { "," field } "}"
**     field  = NAME "=" ( STRING | INTEGER | "{" NAME "=" INTEGER { "," ... } "}" )
**
** Comments are `--` to the end of a line; strings are "..." on one line, without a backslash; a
** comma may stand at the end. There is nothing in it to evaluate, so nothing can run away, and every
** fault has a line.
*/
#include "tuned.h"

#include "error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum token { END, NAME, STRING, INTEGER, PUNCTUATION, WRONG };
enum { ROWS_MOST = 4096, SIZE_MOST = 65536, SHOWN = 39, NUMBER_MOST = 99999999 };

struct reader {
    const char *file, *at, *end;
    int line;
    enum token token; /* the current one */
    const char *text;
    size_t length;
    long number;
    kvk_error *err;
    kvk_status status; /* the first fault */
};

static int fault(struct reader *r, const char *field, const char *accepted)
{
    char value[SHOWN + 4];
    if (r->status)
        return 0;
    snprintf(value, sizeof value, "%.*s%s", (int)(r->length < SHOWN ? r->length : SHOWN), r->text,
             r->length > SHOWN ? "..." : "");
    for (char *p = value; *p; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
    r->status = ERR(r->err, KVK_E_SPEC, "%s:%d: %s: %s: accepted %s", r->file, r->line, field,
                    r->token == END ? "the end" : value, accepted);
    return 0;
}

static int is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static int is_digit(char c) { return c >= '0' && c <= '9'; }

static void skip_space(struct reader *r)
{
    while (r->at < r->end) {
        if (*r->at == '\n')
            r->line++;
        if (*r->at == ' ' || *r->at == '\t' || *r->at == '\r' || *r->at == '\n')
            r->at++;
        else if (r->end - r->at >= 2 && r->at[0] == '-' && r->at[1] == '-')
            while (r->at < r->end && *r->at != '\n')
                r->at++;
        else
            break;
    }
}

static enum token scan_string(struct reader *r)
{
    r->text = ++r->at;
    while (r->at < r->end && *r->at != '"' && *r->at != '\n' && *r->at != '\\')
        r->at++;
    r->length = (size_t)(r->at - r->text);
    if (r->at == r->end || *r->at != '"')
        return WRONG;
    r->at++;
    return STRING;
}

/* "1.5", "-1" or "0x10" is one token: a message shows it as it was written. "--" begins a comment. */
static int in_number(const struct reader *r)
{
    char c = *r->at;
    int comment = c == '-' && r->end - r->at >= 2 && r->at[1] == '-';
    return is_letter(c) || is_digit(c) || c == '.' || c == '+' || (c == '-' && !comment);
}

static enum token scan_number(struct reader *r)
{
    enum token token = INTEGER;
    r->number = 0;
    for (; r->at < r->end && in_number(r); r->at++) {
        if (!is_digit(*r->at))
            token = WRONG;
        else if (r->number < NUMBER_MOST) /* above it every number is out of range */
            r->number = r->number * 10 + (*r->at - '0');
    }
    r->length = (size_t)(r->at - r->text);
    return token;
}

static void advance(struct reader *r)
{
    skip_space(r);
    r->text = r->at;
    r->length = r->at < r->end; /* nothing may be read at the end, not even for a message */
    if (r->at == r->end) {
        r->token = END;
    } else if (*r->at == '"') {
        r->token = scan_string(r);
    } else if (is_digit(*r->at) || *r->at == '+' || *r->at == '-' || *r->at == '.') {
        r->token = scan_number(r);
    } else if (is_letter(*r->at)) {
        while (r->at < r->end && (is_letter(*r->at) || is_digit(*r->at)))
            r->at++;
        r->length = (size_t)(r->at - r->text);
        r->token = NAME;
    } else {
        r->token = strchr("{}=,", *r->at) && *r->at ? PUNCTUATION : WRONG;
        r->at++;
    }
}

static int is_mark(const struct reader *r, char mark)
{
    return r->token == PUNCTUATION && *r->text == mark;
}

static int expect(struct reader *r, char mark, const char *field)
{
    char accepted[] = {mark, '\0'};
    if (!is_mark(r, mark))
        return fault(r, field, accepted);
    advance(r);
    return 1;
}

/* Of every codec that a spec can have, as tuned_codec makes them from gen/spec.def. */
#define CODECS                                                                                     \
    "codebook2|codebook3|codebook4|affine2|affine3|affine4|affine5|affine6|affine7|affine8|"       \
    "e4m3|e4b15|e5m2|fp16|bf16|ultraquant|mxfp4|nvfp4"

/* Where `name` is kept in a row: a string of `cap` bytes, or an int. */
static const struct column {
    const char *name;
    size_t offset, cap; /* cap 0: a number */
    const char *words;  /* accepted words, "" = any */
} columns[] = {
#define WORD(name, words)                                                                          \
    {                                                                                              \
#name, offsetof(struct tuned_row, name), sizeof(((struct tuned_row *)0)->name), words      \
    }
#define SIZE(name)                                                                                 \
    {                                                                                              \
#name, offsetof(struct tuned_row, name), 0, ""                                             \
    }
    WORD(kind, "decode|unified"),
    WORD(layout, "aos|soa|native"),
    WORD(key, CODECS),
    WORD(value, CODECS),
    WORD(dtype, "bf16|fp16"),
    SIZE(head_size),
    SIZE(value_head_size),
    SIZE(gqa),
    SIZE(page),
    WORD(options, "any"),
    WORD(note, ""),
#undef WORD
#undef SIZE
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static const char keys[] =
    "kind, layout, key, value, dtype, head_size, value_head_size, gqa, page, options, plan, note";

static int is_word(const char *words, const char *text, size_t length)
{
    for (const char *w = words; *w;) {
        size_t n = strcspn(w, "|");
        if (n == length && !memcmp(w, text, n))
            return 1;
        w += n + (w[n] == '|');
    }
    return !*words;
}

static int read_column(struct reader *r, const struct column *c, struct tuned_row *row)
{
    char *at = (char *)row + c->offset, accepted[48];
    if (!c->cap) {
        snprintf(accepted, sizeof accepted, "1..%d", SIZE_MOST);
        if (r->token != INTEGER || r->number < 1 || r->number > SIZE_MOST)
            return fault(r, c->name, accepted);
        int number = (int)r->number;
        memcpy(at, &number, sizeof number);
    } else {
        snprintf(accepted, sizeof accepted, "a string of at most %zu bytes", c->cap - 1);
        if (r->token != STRING || r->length >= c->cap || !is_word(c->words, r->text, r->length))
            return fault(r, c->name, *c->words ? c->words : accepted);
        memcpy(at, r->text, r->length);
        at[r->length] = '\0';
    }
    advance(r);
    return 1;
}

static int read_plan(struct reader *r, struct tuned_row *row)
{
    char accepted[32];
    if (!expect(r, '{', "plan"))
        return 0;
    while (!is_mark(r, '}')) {
        enum plan_field field = r->token == NAME ? tuned_field(r->text, r->length) : PLAN_FIELDS;
        if (field == PLAN_FIELDS)
            return fault(r, "plan", "keys "
#define PLAN_FIELD(name, low, high, meaning) #name " "
#include "plan.def"
#undef PLAN_FIELD
            );
        if (row->plan.value[field] != TUNED_RULE)
            return fault(r, "plan", "each key once");
        advance(r);
        if (!expect(r, '=', tuned_field_name(field)))
            return 0;
        tuned_range(field, accepted, sizeof accepted);
        if (r->token != INTEGER || tuned_check_value("", field, r->number, NULL))
            return fault(r, tuned_field_name(field), accepted);
        row->plan.value[field] = (int)r->number;
        advance(r);
        if (!is_mark(r, '}') && !expect(r, ',', "plan"))
            return 0;
    }
    advance(r);
    return 1;
}

static int read_field(struct reader *r, struct tuned_row *row, unsigned *seen)
{
    int at = 0;
    int plan = r->token == NAME && r->length == 4 && !memcmp(r->text, "plan", 4);
    while (!plan && at < COLUMNS &&
           (r->token != NAME || strlen(columns[at].name) != r->length ||
            memcmp(columns[at].name, r->text, r->length) != 0))
        at++;
    at = plan ? COLUMNS : at;
    if (at == COLUMNS && !plan)
        return fault(r, "row", keys);
    if (*seen & 1u << at)
        return fault(r, "row", "each key once");
    *seen |= 1u << at;
    advance(r);
    if (!expect(r, '=', plan ? "plan" : columns[at].name))
        return 0;
    return plan ? read_plan(r, row) : read_column(r, &columns[at], row);
}

static int read_row(struct reader *r, struct tuned_row *row)
{
    unsigned seen = 0;
    memset(row, 0, sizeof *row);
    row->line = r->line;
    for (int i = 0; i < PLAN_FIELDS; i++)
        row->plan.value[i] = TUNED_RULE;
    if (!expect(r, '{', "table"))
        return 0;
    while (!is_mark(r, '}')) {
        if (!read_field(r, row, &seen))
            return 0;
        if (!is_mark(r, '}') && !expect(r, ',', "row"))
            return 0;
    }
    if (!(seen & 1u) || !(seen & 1u << COLUMNS)) {
        r->length = 0;
        return fault(r, seen & 1u ? "plan" : "kind", "a row with kind and plan");
    }
    advance(r);
    return 1;
}

static int add_row(struct reader *r, struct tuned_table *table)
{
    if (table->count == ROWS_MOST)
        return fault(r, "table", "at most 4096 rows");
    if ((table->count & (table->count - 1)) ==
        0) { /* 0 and powers of two: room for twice as many */
        size_t room = table->count ? 2 * (size_t)table->count : 1;
        struct tuned_row *rows = realloc(table->rows, room * sizeof *rows);
        if (!rows) {
            r->status = ERR(r->err, KVK_E_MEMORY, "%s: no memory to read it", r->file);
            return 0;
        }
        table->rows = rows;
    }
    return read_row(r, &table->rows[table->count++]);
}

kvk_status tuned_read(const char *file, const char *text, size_t bytes, struct tuned_table *out,
                      kvk_error *err)
{
    struct reader r = {.file = file, .at = text, .end = text + bytes, .line = 1, .err = err};
    memset(out, 0, sizeof *out);
    advance(&r);
    if (r.token != NAME || r.length != 6 || memcmp(r.text, "return", 6) != 0)
        fault(&r, "table", "return { rows }");
    else
        advance(&r);
    if (!r.status && expect(&r, '{', "table")) {
        while (!r.status && !is_mark(&r, '}'))
            if (add_row(&r, out) && !is_mark(&r, '}'))
                expect(&r, ',', "table");
        advance(&r);
        if (!r.status && r.token != END)
            fault(&r, "table", "nothing behind the table");
    }
    if (r.status)
        tuned_free(out);
    return r.status;
}

void tuned_free(struct tuned_table *table)
{
    free(table->rows);
    memset(table, 0, sizeof *table);
}
