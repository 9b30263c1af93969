/* SPDX-License-Identifier: Apache-2.0 */
/* build_pack.c - see build_pack.h. */
#include "build_pack.h"

#include "cli.h"
#include "paths.h"

#include "../runtime/assembler.h"
#include "../runtime/key.h"
#include "../runtime/object.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

unsigned build_pack_forms(const char *text)
{
    unsigned forms = 0;
    for (;;) {
        size_t n = strcspn(text, ",");
        if (n == 5 && !strncmp(text, "cubin", n))
            forms |= BUILD_CUBIN;
        else if (n == 3 && !strncmp(text, "ptx", n))
            forms |= BUILD_PTX;
        else
            return 0;
        if (!text[n])
            return forms;
        text += n + 1;
    }
}

/* Did an assembler make it? The generator leaves PTX where there is none. */
static char *check_form(const struct gen_artifacts *made, int ptx)
{
    struct object object;
    char format[16] = "";
    kvk_error err = {0};
    if (object_parse(made->data[GEN_EMIT_OBJECT], made->bytes[GEN_EMIT_OBJECT], &object, &err))
        return cli_format("%s", err.text);
    object_get(&object, "format", format, sizeof format);
    if (!ptx && !strcmp(format, "ptx"))
        return cli_format("no assembler: a pack of cubins needs nvJitLink or ptxas (see kvkiln "
                          "doctor), or --pack-format ptx");
    return NULL;
}

static char *add_form(struct pack_writer *writer, const struct gen_api *api, const struct job *job,
                      int ptx)
{
    struct gen_request request = job->request;
    struct gen_artifacts made = {0};
    kvk_error err = {0};
    char *error = NULL;
    request.assemble = !ptx;
    if (api->compile(&request, 1u << GEN_EMIT_OBJECT, &made, &err))
        error = cli_format("%s: %s", kvk_status_name(err.status), err.text);
    if (!error)
        error = check_form(&made, ptx);
    char *key = error ? NULL : key_for_pack(&request, api->build_id, ptx);
    if (!error && !key)
        error = cli_format("out of memory");
    if (!error)
        error = pack_writer_object(writer, key, made.data[GEN_EMIT_OBJECT],
                                   made.bytes[GEN_EMIT_OBJECT]);
    free(key);
    api->artifacts_free(&made);
    return error;
}

char *build_pack_job(struct pack_writer *writer, const struct gen_api *api, const struct job *job,
                     unsigned forms)
{
    char *error = NULL;
    if (strcmp(job->family, "nvptx"))
        return add_form(writer, api, job, 0);
    if (forms & BUILD_CUBIN)
        error = add_form(writer, api, job, 0);
    if (!error && forms & BUILD_PTX)
        error = add_form(writer, api, job, 1);
    return error;
}

static char *add_specs(struct pack_writer *writer, const struct jobs *jobs)
{
    for (int i = 0; i < jobs->ntexts; i++) {
        char name[128];
        if (!jobs->texts[i] || !spec_text_get(jobs->texts[i], "name", name, sizeof name))
            continue;
        char *error = pack_writer_spec(writer, name, jobs->texts[i]);
        if (error)
            return error;
    }
    return NULL;
}

static void add_notes(struct pack_writer *writer)
{
    struct assembler assembler;
    char *zstd = cli_format("zstd %s", ZSTD_versionString());
    pack_writer_note(writer, zstd);
    free(zstd);
    for (size_t i = 0; i < writer->count; i++)
        if (writer->items[i].format == PACK_CUBIN && assembler_find(&assembler)) {
            char *line = cli_format("assembler %s", assembler.name);
            pack_writer_note(writer, line);
            free(line);
            return;
        }
}

char *build_pack_finish(struct pack_writer *writer, const struct jobs *jobs, const char *path,
                        int json)
{
    void *bytes = NULL;
    size_t size = 0, raw = 0;
    char *error = add_specs(writer, jobs);
    if (error)
        return error;
    add_notes(writer);
    for (size_t i = 0; i < writer->count; i++)
        raw += writer->items[i].raw_bytes;
    error = pack_writer_bytes(writer, &bytes, &size);
    if (!error)
        paths_write(path, bytes, size, &error);
    free(bytes);
    if (!error && !json)
        printf("%s: %zu rows, %zu bytes (%zu before compression)\n", path, writer->count, size,
               raw);
    return error;
}
