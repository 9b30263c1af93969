/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_presets.c - `kvkiln presets`: each cache format with its sizes, out of its canonical text. */
#include "cli.h"
#include "generator.h"
#include "jobs.h"
#include "paths.h"

#include "../runtime/embedded.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_HEAD_SIZE = 128 };

struct options {
    const char *specs;
    char **names;
    int nnames, json;
};

/* One side of a slot: a word for people, bits an element, bytes at the shown head size. */
struct side {
    char coding[48];
    int bits, bytes;
};

static long number_of(const char *text, const char *side, const char *field, long fallback)
{
    char name[32], value[32];
    long number;
    snprintf(name, sizeof name, "%s.%s", side, field);
    return spec_text_get(text, name, value, sizeof value) && cli_number(value, 0, 1 << 20, &number)
               ? number
               : fallback;
}

static void word_of(const char *text, const char *side, const char *field, char *value, size_t cap)
{
    char name[32];
    snprintf(name, sizeof name, "%s.%s", side, field);
    if (!spec_text_get(text, name, value, cap))
        *value = '\0';
}

static void describe(const char *text, const char *name, struct side *out)
{
    char kind[32] = "", rule[32], format[32], rotation[32];
    const int d = SHOWN_HEAD_SIZE;
    spec_text_get(text, name, kind, sizeof kind);
    word_of(text, name, "rotation", rotation, sizeof rotation);
    word_of(text, name, "rule", rule, sizeof rule);
    word_of(text, name, "format", format, sizeof format);
    const char *rotated = !strcmp(rotation, "hadamard") ? "rotated " : "";
    if (!strcmp(kind, "float")) {
        out->bits = strstr(format, "16") ? 16 : 8;
        out->bytes = d * out->bits / 8;
        snprintf(out->coding, sizeof out->coding, "%s", format);
        return;
    }
    out->bits = (int)number_of(text, name, "bits", 4);
    out->bytes = (d * out->bits + 7) / 8;
    if (!strcmp(kind, "block_float")) {
        out->bytes += d / (int)number_of(text, name, "group", !strcmp(rule, "nvfp4") ? 16 : 32);
        snprintf(out->coding, sizeof out->coding, "%s%s", rotated, rule);
    } else {
        out->bytes += !strcmp(kind, "affine") ? 4 : 2;
        snprintf(out->coding, sizeof out->coding, "%s%s", rotated, kind);
    }
}

static int show(const struct gen_api *api, const char *name, const char *dirs, json_t *list)
{
    kvk_error err = {0};
    char *text = NULL, layouts[64] = "", query[32] = "";
    struct side key, value;
    if (api->spec_text(name, dirs, &text, &err)) {
        cli_error(name, &err);
        return 1;
    }
    describe(text, "key", &key);
    describe(text, "value", &value);
    spec_text_get(text, "layouts", layouts, sizeof layouts);
    spec_text_get(text, "query", query, sizeof query);
    int slot = key.bytes + value.bytes + (key.bytes + value.bytes) % 2;
    double ratio = 4.0 * SHOWN_HEAD_SIZE / slot;
    if (list)
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:i, s:s, s:i, s:i, s:f, s:s, s:s}", "name",
                                        name, "key", key.coding, "key_bits", key.bits, "value",
                                        value.coding, "value_bits", value.bits, "slot_bytes", slot,
                                        "ratio", ratio, "layouts", layouts, "query", query));
    else
        printf("%-23s %-18s %4d  %-11s %4d  %5d  %5.2f  %-14s  %s\n", name, key.coding, key.bits,
               value.coding, value.bits, slot, ratio, layouts, query);
    free(text);
    return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 's': o->specs = arg; return 0;
    case 'j': o->json = 1; return 0;
    case ARGP_KEY_ARGS:
        o->names = state->argv + state->next;
        o->nnames = state->argc - state->next;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int cmd_presets(int argc, char **argv)
{
    static const struct argp_option option[] = {
        {"specs", 's', "DIR", 0, "look for presets here first", 0},
        {"json", 'j', 0, 0, "results as JSON", 0},
        {0}};
    static const struct argp argp = {
        option,
        parse,
        "[SPEC...]",
        "Lists the cache formats that come with kvkiln, or the named specs: coding and bits of "
        "keys and values, bytes of a slot "
        "(one token of one KV head) at head size 128, ratio to 16-bit K and V, layouts, query.",
        0,
        0,
        0};
    struct options o = {0};
    kvk_error err = {0};
    argp_parse(&argp, argc, argv, 0, 0, &o);
    const struct gen_api *api = generator_get(&err);
    if (!api) {
        cli_error("generator", &err);
        return CLI_USAGE;
    }
    char *dirs = paths_specs(o.specs);
    json_t *list = o.json ? json_array() : NULL;
    int failed = 0;
    if (!list)
        printf("%-23s %-18s %4s  %-11s %4s  %5s  %5s  %-14s  %s\n", "preset", "keys", "bits",
               "values", "bits", "bytes", "ratio", "layouts", "query");
    const char *name, *text;
    for (int i = 0; !o.nnames && embedded_spec_text(i, &name, &text); i++)
        failed += show(api, name, dirs, list);
    for (int i = 0; i < o.nnames; i++)
        failed += show(api, o.names[i], dirs, list);
    if (list) {
        json_t *root = json_pack("{s:s, s:i, s:o}", "version", kvk_version(), "head_size",
                                 SHOWN_HEAD_SIZE, "presets", list);
        json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
        printf("\n");
        json_decref(root);
    }
    free(dirs);
    return failed ? CLI_USAGE : CLI_OK;
}
