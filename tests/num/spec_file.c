/* SPDX-License-Identifier: Apache-2.0 */
/*
** spec_file.c - writes the Lua file of a spec that is no preset, as a user would, and hands out its
** path.
*/
#include "num.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void write_codec(FILE *f, const char *side, const struct ref_codec *c)
{
    static const char *const formats[] = {"e4m3", "e4b15", "e5m2", "fp16", "bf16"};
    static const char *const rules[] = {"ultraquant", "mxfp4", "nvfp4"};
    const char *rotation = c->rotated ? "hadamard" : "none";

    fprintf(f, "  %s = ", side);
    switch (c->kind) {
    case REF_CODEBOOK:
        fprintf(f, "codebook { bits = %d, rotation = \"%s\", norm_correction = %s%s },\n", c->bits,
                rotation, c->correction ? "true" : "false",
                c->unbiased ? ", unbiased_norm = true" : "");
        break;
    case REF_AFFINE:
        fprintf(f, "affine { bits = %d%s },\n", c->bits, c->stored ? ", stored_params = true" : "");
        break;
    case REF_FLOAT: fprintf(f, "float { format = \"%s\" },\n", formats[c->format]); break;
    case REF_BLOCK:
        fprintf(f, "block_float { rule = \"%s\", rotation = \"%s\"", rules[c->rule], rotation);
        if (c->constant > 0)
            fprintf(f, ", scale_constant = %.9g", (double)c->constant);
        fprintf(f, "%s },\n", c->search ? ", scale_search = true" : "");
        break;
    }
}

void spec_file_write(const char *folder, const struct ref_spec *spec)
{
    char path[512];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s.lua", folder, spec->name);
    f = fopen(path, "w");
    if (!f) {
        perror(path);
        exit(2);
    }
    fprintf(f, "return preset {\n");
    write_codec(f, "key", &spec->key);
    write_codec(f, "value", &spec->value);
    if (spec->query_e4m3)
        fprintf(f, "  query = \"e4m3\",\n");
    fprintf(f, "  layouts = { \"aos\"%s%s },\n}\n", spec->soa ? ", \"soa\"" : "",
            spec->native ? ", \"native\"" : "");
    fclose(f);
}

/* A folder of this process alone; freed by spec_folder_remove. */
char *spec_folder_make(void)
{
    const char *base = getenv("TMPDIR");
    char *folder = malloc(512);

    if (!folder)
        abort();
    snprintf(folder, 512, "%s/num-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(folder)) {
        perror(folder);
        exit(2);
    }
    for (const struct ref_spec *s = num_custom_specs(); s->name; s++)
        spec_file_write(folder, s);
    return folder;
}

void spec_folder_remove(char *folder)
{
    char path[1024];
    DIR *dir = opendir(folder);

    for (struct dirent *e; dir && (e = readdir(dir));) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        unlink(path); /* not . and .., which are folders */
    }
    if (dir)
        closedir(dir);
    rmdir(folder);
    free(folder);
}
