/* SPDX-License-Identifier: Apache-2.0 */
/* pack_tools.c - see pack_tools.h. */
#include "pack_tools.h"

#include "cli.h"
#include "pack_elf.h"
#include "pack_write.h"
#include "paths.h"

#include "../runtime/object.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_rows(const struct pack_row *x, const struct pack_row *y)
{
    int order = strcmp(x->name, y->name);
    order = order ? order : strcmp(x->target, y->target);
    return order ? order : (int)x->format - (int)y->format;
}

static int by_name(const void *a, const void *b, void *pack)
{
    struct pack_row x, y;
    pack_row(pack, *(const uint32_t *)a, &x);
    pack_row(pack, *(const uint32_t *)b, &y);
    return compare_rows(&x, &y);
}

uint32_t *pack_sorted(const struct pack *pack)
{
    uint32_t *order = cli_alloc(pack->rows, sizeof *order);
    for (uint32_t i = 0; i < pack->rows; i++)
        order[i] = i;
    qsort_r(order, pack->rows, sizeof *order, by_name, (void *)(uintptr_t)pack);
    return order;
}

/* ---- verify ---- */

static void fault(const struct open_pack *open, json_t *faults, int *count, const char *text)
{
    cli_message("%s: %s", open->file, text);
    if (faults)
        json_array_append_new(faults, json_string(text));
    ++*count;
}

static int line_is(const struct object *object, const char *name, const char *value)
{
    char text[PACK_NAME_CAP];
    return object_get(object, name, text, sizeof text) && !strcmp(text, value);
}

/* What is wrong with a row, malloc'd, or NULL. */
static char *check_row(const struct pack *pack, uint32_t index)
{
    struct pack_row row;
    struct object object;
    kvk_error err = {0};
    void *bytes;
    size_t size;
    uint32_t found;
    char *wrong = NULL, key[512];
    pack_row(pack, index, &row);
    if (pack_read(pack, index, &bytes, &size, &err))
        return cli_format("%s", err.text);
    if (row.format == PACK_SPEC) {
        pack_spec_key(row.name, key, sizeof key);
        if (!pack_find(pack, key, &found) || found != index)
            wrong = cli_format("spec %s is not under its own key", row.name);
    } else if (object_parse(bytes, size, &object, &err)) {
        wrong = cli_format("%s.%s: %s", row.name, row.target, err.text);
    } else if (!pack_find(pack, object.key, &found) || found != index) {
        wrong = cli_format("%s.%s is not under its own key", row.name, row.target);
    } else if (!line_is(&object, "kernel", row.name) || !line_is(&object, "target", row.target) ||
               !line_is(&object, "format", pack_format_name(row.format)) ||
               !line_is(&object, "signature", row.signature)) {
        wrong = cli_format("%s.%s: the index and its manifest differ", row.name, row.target);
    }
    free(bytes);
    return wrong;
}

/* Bytes between the frames are zero. */
static int gaps_are_clean(const struct pack *pack)
{
    const unsigned char *end = NULL;
    for (uint32_t i = 0; i < pack->rows; i++) {
        struct pack_row row;
        pack_row(pack, i, &row);
        for (; end && end < row.data; end++)
            if (*end)
                return 0;
        end = row.data + row.stored_bytes;
    }
    return 1;
}

int pack_verify(const struct open_pack *open, json_t *faults)
{
    int count = 0;
    for (uint32_t i = 0; i < open->pack.rows; i++) {
        char *wrong = check_row(&open->pack, i);
        if (wrong)
            fault(open, faults, &count, wrong);
        free(wrong);
    }
    if (!gaps_are_clean(&open->pack))
        fault(open, faults, &count, "bytes between two kernels are not zero");
    return count;
}

/* ---- diff ---- */

struct difference {
    json_t *out;
    int count;
};

static void differ(struct difference *d, char mark, const struct pack_row *row, const char *what)
{
    const char *kind = mark == '-' ? "only_first" : mark == '+' ? "only_second" : "changed";
    d->count++;
    if (d->out)
        json_array_append_new(d->out, json_pack("{s:s, s:s, s:s, s:s, s:s}", "kind", kind, "name",
                                                row->name, "target", row->target, "format",
                                                pack_format_name(row->format), "what", what));
    else
        printf("%c %s%s%s %s%s%s\n", mark, row->name, *row->target ? "." : "", row->target,
               pack_format_name(row->format), *what ? ": " : "", what);
}

static int same_part(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    return a_bytes == b_bytes && !memcmp(a, b, a_bytes);
}

/* Two rows of one name. The key of another generator alone is said once, of the packs. */
static void compare_contents(struct difference *d, const struct open_pack *a, uint32_t i,
                             const struct open_pack *b, uint32_t j)
{
    struct pack_row x, y;
    struct object p, q;
    void *first = NULL, *second = NULL;
    size_t first_bytes, second_bytes;
    kvk_error err = {0};
    char what[160] = "";
    pack_row(&a->pack, i, &x);
    pack_row(&b->pack, j, &y);
    if (!memcmp(x.raw_sum, y.raw_sum, PACK_SUM_BYTES))
        return;
    if (pack_read(&a->pack, i, &first, &first_bytes, &err) ||
        pack_read(&b->pack, j, &second, &second_bytes, &err) ||
        (x.format != PACK_SPEC && (object_parse(first, first_bytes, &p, &err) ||
                                   object_parse(second, second_bytes, &q, &err))))
        snprintf(what, sizeof what, "%.150s", err.text);
    else if (x.format == PACK_SPEC)
        snprintf(what, sizeof what, "text");
    else {
        if (!same_part(p.code, p.code_bytes, q.code, q.code_bytes))
            snprintf(what, sizeof what, "code, %zu and %zu bytes", p.code_bytes, q.code_bytes);
        if (!same_part(p.manifest, p.manifest_bytes, q.manifest, q.manifest_bytes))
            strcat(what, *what ? "; manifest" : "manifest");
    }
    if (*what)
        differ(d, '!', &x, what);
    free(first);
    free(second);
}

static void compare_heads(struct difference *d, const struct pack *a, const struct pack *b)
{
    if (!strcmp(a->generator, b->generator) && a->abi == b->abi && a->object == b->object)
        return;
    d->count++;
    if (d->out)
        json_array_append_new(d->out, json_pack("{s:s, s:s, s:s}", "kind", "generator", "first",
                                                a->generator, "second", b->generator));
    else
        printf("! generator %s, argument layout %u; and %s, %u\n", a->generator, a->abi,
               b->generator, b->abi);
}

int pack_diff(const struct open_pack *a, const struct open_pack *b, json_t *out)
{
    struct difference d = {.out = out};
    uint32_t *left = pack_sorted(&a->pack), *right = pack_sorted(&b->pack), i = 0, j = 0;
    compare_heads(&d, &a->pack, &b->pack);
    while (i < a->pack.rows || j < b->pack.rows) {
        struct pack_row x, y;
        int order = i == a->pack.rows ? 1 : j == b->pack.rows ? -1 : 0;
        if (order <= 0)
            pack_row(&a->pack, left[i], &x);
        if (order >= 0)
            pack_row(&b->pack, right[j], &y);
        if (!order)
            order = compare_rows(&x, &y);
        if (order < 0)
            differ(&d, '-', &x, "");
        else if (order > 0)
            differ(&d, '+', &y, "");
        else
            compare_contents(&d, a, left[i], b, right[j]);
        i += order <= 0;
        j += order >= 0;
    }
    free(left);
    free(right);
    return d.count != 0;
}

/* ---- merge ---- */

/* Lines about tools stay, counts are made anew. */
static void keep_notes(struct pack_writer *writer, const char *manifest)
{
    for (const char *line = manifest; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (!strncmp(line, "assembler ", 10) || !strncmp(line, "zstd ", 5)) {
            char *note = cli_format("%.*s", (int)strcspn(line, "\n"), line);
            pack_writer_note(writer, note);
            free(note);
        }
}

int pack_merge(const struct open_pack *packs, int count, const char *out)
{
    struct pack_writer writer;
    const struct pack *first = &packs[0].pack;
    char *error = NULL;
    void *bytes = NULL;
    size_t size;
    pack_writer_init(&writer, first->generator);
    writer.object = first->object;
    writer.abi = first->abi;
    for (int p = 0; p < count && !error; p++) {
        const struct pack *pack = &packs[p].pack;
        if (strcmp(pack->generator, first->generator) || pack->abi != first->abi ||
            pack->object != first->object) {
            cli_message("%s is of generator %s, %s of %s: packs of one generator can be merged",
                        packs[0].file, first->generator, packs[p].file, pack->generator);
            pack_writer_free(&writer);
            return CLI_USAGE;
        }
        keep_notes(&writer, pack->manifest);
        for (uint32_t i = 0; i < pack->rows; i++) {
            struct pack_row row;
            pack_row(pack, i, &row);
            pack_writer_row(&writer, &row);
        }
    }
    error = pack_writer_bytes(&writer, &bytes, &size);
    if (!error && paths_write(out, bytes, size, &error))
        printf("%s: %zu rows, %zu bytes\n", out, writer.count, size);
    if (error)
        cli_message("%s", error);
    int code = error ? CLI_FAILED : CLI_OK;
    free(error);
    free(bytes);
    pack_writer_free(&writer);
    return code;
}

/* ---- extract ---- */

static char *file_name(const struct pack_row *row, const struct pack_extract *how)
{
    static const char *const code[] = {
        [PACK_CUBIN] = "cubin", [PACK_PTX] = "ptx", [PACK_HSACO] = "hsaco", [PACK_HOST] = "host"};
    if (row->format == PACK_SPEC)
        return cli_format("%s/%s.spec", how->dir, row->name);
    return cli_format("%s/%s.%s.%s%s", how->dir, row->name, row->target,
                      how->code || row->format == PACK_PTX ? code[row->format] : "",
                      how->code                 ? ""
                      : row->format == PACK_PTX ? ".object"
                                                : "object");
}

static char *extract_row(const struct pack *pack, uint32_t index, const struct pack_row *row,
                         const struct pack_extract *how)
{
    struct object object;
    kvk_error err = {0};
    void *bytes;
    size_t size;
    char *error = NULL;
    if (pack_read(pack, index, &bytes, &size, &err))
        return cli_format("%s", err.text);
    const void *data = bytes;
    if (how->code && row->format != PACK_SPEC) {
        if (object_parse(bytes, size, &object, &err))
            error = cli_format("%s.%s: %s", row->name, row->target, err.text);
        else
            data = object.code, size = object.code_bytes;
    }
    char *path = file_name(row, how);
    if (!error && paths_write(path, data, size, &error))
        printf("%s\n", path);
    free(path);
    free(bytes);
    return error;
}

int pack_extract(const struct open_pack *open, const struct pack_extract *how)
{
    int failed = 0, files = 0;
    uint32_t *order = pack_sorted(&open->pack);
    for (uint32_t i = 0; i < open->pack.rows; i++) {
        struct pack_row row;
        pack_row(&open->pack, order[i], &row);
        if ((how->target && strcmp(row.target, how->target)) ||
            (how->name && fnmatch(how->name, row.name, 0)))
            continue;
        char *error = extract_row(&open->pack, order[i], &row, how);
        if (error)
            cli_message("%s: %s", open->file, error);
        failed += error != NULL;
        files++;
        free(error);
    }
    free(order);
    if (!files)
        cli_message("%s: no kernel matches", open->file);
    return failed || !files ? CLI_FAILED : CLI_OK;
}

/* ---- object file ---- */

int pack_object_file(const struct open_pack *open, const char *out, const char *symbol, int machine)
{
    const char *base = strrchr(open->file, '/');
    char *error = NULL, *name;
    size_t size;
    base = base ? base + 1 : open->file;
    size_t length = strlen(base), suffix = strlen(".kvkpack");
    if (length > suffix && !strcmp(base + length - suffix, ".kvkpack"))
        length -= suffix;
    name = symbol ? cli_format("%s", symbol) : cli_format("kvk_pack_%.*s", (int)length, base);
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c))
            *c = '_';
    void *bytes = pack_elf(open->pack.bytes, open->pack.size, name, machine, &size);
    if (paths_write(out, bytes, size, &error))
        printf("%s: %s, %s_size\n", out, name, name);
    if (error)
        cli_message("%s", error);
    int code = error ? CLI_FAILED : CLI_OK;
    free(error);
    free(name);
    free(bytes);
    return code;
}
