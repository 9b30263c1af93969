/* SPDX-License-Identifier: Apache-2.0 */
/* tuned.c - which row of which table is for a request. */
#include "tuned.h"

#include "embedded.h"
#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Value of the line "SIDE.FIELD value" (FIELD "": "SIDE value"); 0 if there is none. */
static int side_line(const char *text, const char *side, const char *field, char *value, size_t cap)
{
    char name[40];
    size_t n = (size_t)snprintf(name, sizeof name, "\n%s%s%s ", side, *field ? "." : "", field);
    const char *line = text && n < sizeof name ? strstr(text, name) : NULL;
    if (line)
        snprintf(value, cap, "%.*s", (int)strcspn(line + n, "\n"), line + n);
    return line != NULL;
}

void tuned_codec(const char *spec_text, const char *side, char *word, size_t cap)
{
    char kind[16] = "", bits[16] = "";
    *word = '\0';
    if (!side_line(spec_text, side, "", kind, sizeof kind))
        return;
    if (side_line(spec_text, side, "bits", bits, sizeof bits))
        snprintf(word, cap, "%s%s", kind, bits);
    else if (!side_line(spec_text, side, "format", word, cap))
        side_line(spec_text, side, "rule", word, cap);
}

static int same_word(const char *wanted, const char *word)
{
    return !*wanted || !strcmp(wanted, word);
}

static int same_size(int wanted, int size) { return !wanted || wanted == size; }

static int row_matches(const struct tuned_row *row, const struct gen_request *r)
{
    char key[20], value[20];
    tuned_codec(r->spec_text, "key", key, sizeof key);
    tuned_codec(r->spec_text, "value", value, sizeof value);
    return same_word(row->kind, r->kind) && same_word(row->layout, r->layout) &&
           (!r->options || *row->options) && same_word(row->key, key) &&
           same_word(row->value, value) &&
           same_word(row->dtype, r->dtype == KVK_FLOAT16 ? "fp16" : "bf16") &&
           same_size(row->head_size, r->head_size) && same_size(row->gqa, r->gqa) &&
           same_size(row->value_head_size,
                     r->value_head_size ? r->value_head_size : r->head_size) &&
           same_size(row->page, r->page_tokens);
}

const struct tuned_row *tuned_match(const struct tuned_table *table, const struct gen_request *r)
{
    for (int i = 0; i < table->count; i++)
        if (row_matches(&table->rows[i], r))
            return &table->rows[i];
    return NULL;
}

/* The file's text, malloc'd; NULL with KVK_OK if there is no such file. */
static kvk_status read_file(const char *path, char **text, size_t *bytes, kvk_error *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    *text = NULL;
    *bytes = 0;
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return KVK_OK;
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size > TUNED_FILE_BYTES) {
        if (fd >= 0)
            close(fd);
        return ERR(err, KVK_E_SPEC,
                   "%s: file: accepted a regular, readable file of at most %d bytes", path,
                   TUNED_FILE_BYTES);
    }
    size_t size = (size_t)st.st_size;
    *text = malloc(size + 1);
    for (ssize_t n; *text && *bytes < size; *bytes += (size_t)n) {
        n = read(fd, *text + *bytes, size - *bytes);
        if (n < 0 && errno == EINTR)
            n = 0;
        else if (n <= 0)
            break;
    }
    close(fd);
    if (!*text)
        return ERR(err, KVK_E_MEMORY, "%s: no memory to read it", path);
    (*text)[*bytes] = '\0';
    return KVK_OK;
}

static kvk_status find_row(const char *file, const char *text, size_t bytes,
                           const struct gen_request *request, struct tuned *out, kvk_error *err)
{
    struct tuned_table table;
    kvk_status status = tuned_read(file, text, bytes, &table, err);
    if (status)
        return status;
    const struct tuned_row *row = tuned_match(&table, request);
    if (row) {
        tuned_plan_format(&row->plan, out->plan, sizeof out->plan);
        snprintf(out->source, sizeof out->source, "tuned/%.32s.lua:%d", request->target, row->line);
    }
    tuned_free(&table);
    return KVK_OK;
}

kvk_status tuned_lookup(const char *dirs, const struct gen_request *request, struct tuned *out,
                        kvk_error *err)
{
    char path[4096];
    memset(out, 0, sizeof *out);
    if (strcmp(request->kind, "decode") != 0 && strcmp(request->kind, "unified") != 0)
        return KVK_OK;
    for (const char *dir = dirs ? dirs : ""; *dir;) {
        size_t length = strcspn(dir, ":"), bytes;
        char *text = NULL;
        int n = snprintf(path, sizeof path, "%.*s/tuned/%s.lua", (int)length, dir, request->target);
        if (length && n < (int)sizeof path) {
            kvk_status status = read_file(path, &text, &bytes, err);
            if (!status && text)
                status = find_row(path, text, bytes, request, out, err);
            int found = text != NULL;
            free(text);
            if (status || found)
                return status;
        }
        dir += length + (dir[length] == ':');
    }
    const char *name, *text;
    for (int i = 0; embedded_tuned(i, &name, &text); i++) {
        snprintf(path, sizeof path, "tuned/%s.lua", name);
        if (!strcmp(name, request->target))
            return find_row(path, text, strlen(text), request, out, err);
    }
    return KVK_OK;
}
