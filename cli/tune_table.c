/* SPDX-License-Identifier: Apache-2.0 */
/* tune_table.c - a tuned table as a file: read, merged, sorted and written. */
#include "paths.h"
#include "tune.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tune_row(const struct bench *b, const char *spec_text, struct tuned_row *out)
{
    const struct bench_shape *s = &b->shape;
    memset(out, 0, sizeof *out);
    snprintf(out->kind, sizeof out->kind, "%s", b->kind->name);
    snprintf(out->layout, sizeof out->layout, "%s", s->layout);
    snprintf(out->dtype, sizeof out->dtype, "%s", cli_dtype_name(s->dtype));
    tuned_codec(spec_text, "key", out->key, sizeof out->key);
    tuned_codec(spec_text, "value", out->value, sizeof out->value);
    out->head_size = (int)s->head_size;
    out->value_head_size = (int)s->value_head_size;
    out->gqa = (int)s->gqa;
    out->page = (int)s->page;
    tuned_plan_parse("", "", &out->plan, NULL);
}

/* A row that leaves a field out fits more: it must stand behind those that fit less. */
static int by_word(const char *a, const char *b)
{
    return !*a || !*b ? (!*a) - (!*b) : strcmp(a, b);
}

static int by_size(int a, int b) { return !a || !b ? (!a) - (!b) : (a > b) - (a < b); }

static int by_match(const void *one, const void *other)
{
    const struct tuned_row *a = one, *b = other;
    const int order[] = {by_word(a->kind, b->kind),
                         by_word(a->key, b->key),
                         by_word(a->value, b->value),
                         by_word(a->layout, b->layout),
                         by_size(a->head_size, b->head_size),
                         by_size(a->value_head_size, b->value_head_size),
                         by_size(a->gqa, b->gqa),
                         by_size(a->page, b->page),
                         by_word(a->dtype, b->dtype),
                         strcmp(a->options, b->options)}; /* "any" fits more than "" */
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (order[i])
            return order[i];
    return 0;
}

void tune_merge(struct tuned_table *table, const struct tuned_row *row)
{
    char text[TUNED_PLAN_BYTES];
    int kept = 0;
    for (int i = 0; i < table->count; i++)
        if (by_match(&table->rows[i], row))
            table->rows[kept++] = table->rows[i];
    table->count = kept;
    if (!tuned_plan_format(&row->plan, text, sizeof text))
        return;
    struct tuned_row *rows = cli_alloc((size_t)kept + 1, sizeof *rows);
    if (kept)
        memcpy(rows, table->rows, (size_t)kept * sizeof *rows);
    rows[kept] = *row;
    free(table->rows);
    table->rows = rows;
    table->count = kept + 1;
}

kvk_status tune_load(const char *path, struct tuned_table *out, kvk_error *err)
{
    FILE *file = fopen(path, "rb");
    memset(out, 0, sizeof *out);
    if (!file && (errno == ENOENT || errno == ENOTDIR))
        return KVK_OK;
    char *text = cli_alloc(TUNED_FILE_BYTES + 1, 1);
    size_t bytes = file ? fread(text, 1, TUNED_FILE_BYTES + 1, file) : 0;
    kvk_status status = KVK_E_SPEC;
    if (!file || ferror(file) || bytes > TUNED_FILE_BYTES)
        snprintf(err->text, sizeof err->text, "%s: cannot be read, or is longer than %d bytes",
                 path, TUNED_FILE_BYTES);
    else
        status = tuned_read(path, text, bytes, out, err);
    if (status)
        err->status = status;
    if (file)
        fclose(file);
    free(text);
    return status;
}

static void put_word(FILE *out, const char *name, const char *word)
{
    if (*word)
        fprintf(out, ", %s = \"%s\"", name, word);
}

static void put_size(FILE *out, const char *name, int size)
{
    if (size)
        fprintf(out, ", %s = %d", name, size);
}

static void put_row(FILE *out, const struct tuned_row *row)
{
    const char *between = "";
    fprintf(out, "  { kind = \"%s\"", row->kind);
    put_word(out, "key", row->key);
    put_word(out, "value", row->value);
    put_word(out, "layout", row->layout);
    put_size(out, "head_size", row->head_size);
    put_size(out, "value_head_size", row->value_head_size);
    put_size(out, "gqa", row->gqa);
    put_size(out, "page", row->page);
    put_word(out, "dtype", row->dtype);
    put_word(out, "options", row->options);
    fprintf(out, ",\n    plan = { ");
    for (int i = 0; i < PLAN_FIELDS; i++)
        if (row->plan.value[i] != TUNED_RULE) {
            fprintf(out, "%s%s = %d", between, tuned_field_name((enum plan_field)i),
                    row->plan.value[i]);
            between = ", ";
        }
    fprintf(out, " }");
    if (*row->note)
        fprintf(out, ",\n    note = \"%s\"", row->note);
    fprintf(out, " },\n");
}

static void put_table(FILE *out, const struct tuned_table *table)
{
    fprintf(out,
            "-- SPDX-License-Identifier: Apache-2.0\n"
            "-- Measured by kvkiln tune, which keeps rows but not comments; see docs/tuning.md.\n"
            "return {\n");
    for (int i = 0; i < table->count; i++)
        put_row(out, &table->rows[i]);
    fprintf(out, "}\n");
}

int tune_save(const char *path, struct tuned_table *table, char **error)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    int good = 0;
    if (table->count)
        qsort(table->rows, (size_t)table->count, sizeof *table->rows, by_match);
    if (!memory || (put_table(memory, table), fclose(memory)))
        *error = cli_format("%s: out of memory", path);
    else
        good = paths_write(path, text, bytes, error);
    free(text);
    return good;
}
