/* SPDX-License-Identifier: Apache-2.0 */
/*
** cmd_check.c - `kvkiln check`: sample files against the kernels of one device.
**
** A file passes when it could be read and all its comparisons hold. Every file is tried, whatever
** happened to the others.
*/
#include "check_read.h"
#include "check_store.h"
#include "device.h"
#include "options.h"

#include <argp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options {
    const char *device, *layout, *specs;
    int json;
    char **files;
    int nfiles;
};

/* What became of one file. */
struct outcome {
    struct sample sample;
    struct comparisons all;
    char error[640]; /* "" when it ran */
    enum cli_exit code;
};

static const double unrounded_limit = 2.6e-2;

/* FNV-1a, by eight bytes. */
static uint64_t hash_of(const unsigned char *bytes, size_t n)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < n; i += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, n - i < 8 ? n - i : 8);
        hash = (hash ^ word) * 0x100000001b3;
        hash ^= hash >> 32;
    }
    return hash;
}

/* What the oracle reads in place of a pool, which it takes. */
static unsigned char *readable(const struct slots *slots, unsigned char *pool, long pages)
{
    if (!slots->native)
        return pool;
    unsigned char *out = cli_alloc((size_t)pages, slots->page_bytes);
    slots_from_native(slots, pool, (size_t)pages, out);
    free(pool);
    return out;
}

/* Stores the rows and compares what came of it; for another layout the pool is kept in *ours. */
static kvk_status store_and_compare(struct run *run, const char *layout, struct slots *slots,
                                    unsigned char **ours, struct comparisons *all, kvk_error *err)
{
    const struct sample *s = run->sample;
    kvk_status status = run_store(run, err);
    if (status)
        return status;
    unsigned char *pool = cli_alloc(run->pool_bytes, 1);
    status = run_pool_download(run, pool, err);
    all->stored = status ? 0 : hash_of(pool, run->pool_bytes);
    if (!status && !strcmp(layout, s->layout)) {
        pool = readable(&s->slots, pool, s->pages);
        check_store(s, pool, all);
    } else if (!status && slots_make(s->slots.format, layout, s->kv_heads, s->head_size,
                                     s->page_tokens, slots)) {
        pool = readable(slots, pool, s->pages);
        check_store_across(s, slots, pool, all);
        *ours = pool;
        return KVK_OK;
    }
    free(pool);
    return status;
}

/* Outputs of a cache whose reference rounds the query to FP8: the
 * derived spec does the same; the plain one is shown too. */
static kvk_status check_fp8_query(struct device *device, struct run *plain, const char *layout,
                                  struct comparisons *all, kvk_error *err)
{
    const struct sample *s = plain->sample;
    struct run rounded;
    unsigned char *pool = cli_alloc(plain->pool_bytes, 1);
    kvk_status status = run_open(&rounded, device->ctx, s, "ultraquant_4bit_e4m3q", layout,
                                 check_output_kinds(s), err);
    if (!status) {
        status = run_pool_download(plain, pool, err);
        if (!status)
            status = run_pool_upload(&rounded, pool, err);
        if (!status)
            status = check_outputs(
                &rounded, &(struct check_rule){"", check_output_limit(s->dtype), NULL}, all, err);
        run_close(&rounded);
    }
    free(pool);
    int first = all->count;
    if (!status)
        status = check_outputs(
            plain, &(struct check_rule){".unrounded_query", unrounded_limit, NULL}, all, err);
    for (int i = first; i < all->count; i++)
        all->items[i].informational = 1;
    return status;
}

static kvk_status check_sample(struct device *device, const struct sample *s, const char *layout,
                               struct comparisons *all, kvk_error *err)
{
    unsigned outputs = check_output_kinds(s), dequant = check_dequant_kinds(s);
    unsigned char *bytes = NULL;
    struct slots slots;
    struct run run;
    kvk_status status = run_open(&run, device->ctx, s, s->preset, layout,
                                 (s->key ? KVK_STORE : 0) | outputs | dequant, err);
    if (status)
        return status;
    if (s->key)
        status = store_and_compare(&run, layout, &slots, &bytes, all, err);
    if (!bytes && !status)
        status = run_pool_upload(&run, s->cache->data, err);
    struct check_pool ours = {&slots, bytes};
    struct check_rule rule = {"", check_output_limit(s->dtype), bytes ? &ours : NULL};
    if (dequant && !status)
        status = check_dequant(&run, rule.ours, all, err);
    if (outputs && !status)
        status = s->slots.format->key == KEY_E2M1 ? check_fp8_query(device, &run, layout, all, err)
                                                  : check_outputs(&run, &rule, all, err);
    run_close(&run);
    free(bytes);
    return status;
}

static void check_centroids(const struct sample *s, struct comparisons *all)
{
    double table[16];
    int bits = s->centroids->count == 16 ? 4 : s->centroids->count == 8 ? 3 : 0;
    struct comparison *c = compare_new(all, "centroids");
    if (!bits)
        compare_bad(c, "%zu entries, expected 8 or 16", s->centroids->count);
    else
        slots_centroids(s->head_size, bits, table);
    for (int i = 0; bits && i < 1 << bits; i++)
        compare_add(c, table[i], number_at(NUMBER_F32, s->centroids->data, (size_t)i));
    compare_exact(c);
}

static void check_file(struct device *device, const struct options *o, const char *path,
                       struct outcome *out)
{
    char reason[SAFETENSORS_ERROR];
    kvk_error err = {0};
    memset(out, 0, sizeof *out);
    if (!sample_open(path, &out->sample, reason)) {
        snprintf(out->error, sizeof out->error, "%s", reason);
        out->code = CLI_USAGE;
        return;
    }
    const struct sample *s = &out->sample;
    int own = !o->layout || !strcmp(o->layout, s->layout);
    if (!(s->key && own) && !check_output_kinds(s) && !check_dequant_kinds(s)) {
        snprintf(out->error, sizeof out->error, "nothing comparable in it");
        out->code = CLI_USAGE;
        return;
    }
    if (!own && !s->key) {
        snprintf(out->error, sizeof out->error,
                 "nothing to store in layout %s: no key, value and slot_mapping", o->layout);
        out->code = CLI_USAGE;
        return;
    }
    if (s->centroids)
        check_centroids(s, &out->all);
    kvk_status status = check_sample(device, s, own ? s->layout : o->layout, &out->all, &err);
    out->code = cli_exit_of(status);
    if (status)
        snprintf(out->error, sizeof out->error, "%s: %s", kvk_status_name(err.status), err.text);
    for (int i = 0; i < out->all.count; i++)
        if (!out->all.items[i].pass && out->code == CLI_OK)
            out->code = CLI_FAILED;
}

static void print_outcome(const char *path, const struct outcome *out)
{
    const struct sample *s = &out->sample;
    printf("%s", path);
    if (s->preset)
        printf(": %s %s, head size %d, %d/%d heads, page %d, %s", s->preset, s->layout,
               s->head_size, s->query_heads, s->kv_heads, s->page_tokens, cli_dtype_name(s->dtype));
    printf("\n");
    for (int i = 0; i < out->all.count; i++) {
        const struct comparison *c = &out->all.items[i];
        char limit[32];
        compare_limit_text(c, limit, sizeof limit);
        printf("  %-38s %8ld %7ld differ  max %9.3g  rel L2 %9.3g  limit %-11s %s%s%s\n", c->name,
               c->count, c->differ, c->max_diff, c->rel_l2, limit, c->pass ? "PASS" : "FAIL",
               c->pass || !c->note[0] ? "" : "  ", c->pass ? "" : c->note);
    }
    for (int i = 0; i < s->st.ntensors; i++)
        if (!sample_knows(s->st.tensors[i].name))
            printf("  %-38.38s not compared: unknown tensor\n", s->st.tensors[i].name);
    if (out->error[0])
        printf("  ERROR %s\n", out->error);
    fflush(stdout);
}

static json_t *outcome_json(const char *path, const struct outcome *out)
{
    const struct sample *s = &out->sample;
    json_t *tensors = json_array(), *skipped = json_array();
    for (int i = 0; i < out->all.count; i++)
        json_array_append_new(tensors, compare_json(&out->all.items[i]));
    for (int i = 0; i < s->st.ntensors; i++)
        if (!sample_knows(s->st.tensors[i].name))
            json_array_append_new(skipped, json_string(s->st.tensors[i].name));
    json_t *name = json_string(path);
    json_t *object = json_pack("{s:o, s:s?, s:b, s:o, s:o}", "file", name ? name : json_string("?"),
                               "preset", s->preset, "pass", out->code == CLI_OK, "tensors", tensors,
                               "not_compared", skipped);
    if (s->preset)
        json_object_set_new(object, "layout", json_string(s->layout));
    if (out->all.stored)
        json_object_set_new(object, "stored", json_sprintf("%016" PRIx64, out->all.stored));
    if (out->error[0])
        json_object_set_new(object, "error", json_string(out->error));
    return object;
}

static enum cli_exit check_all(struct device *device, const struct options *o)
{
    enum cli_exit code = CLI_OK;
    json_t *files = json_array();
    int passed = 0;
    struct outcome *out = cli_alloc(1, sizeof *out);
    for (int i = 0; i < o->nfiles; i++) {
        check_file(device, o, o->files[i], out);
        code = cli_exit_worse(code, out->code);
        passed += out->code == CLI_OK;
        if (o->json)
            json_array_append_new(files, outcome_json(o->files[i], out));
        else
            print_outcome(o->files[i], out);
        if (out->error[0])
            cli_message("%s: %s", o->files[i], out->error);
        sample_close(&out->sample);
    }
    if (o->json) {
        json_t *root = json_pack("{s:s, s:o, s:i, s:i}", "version", kvk_version(), "files", files,
                                 "passed", passed, "failed", o->nfiles - passed);
        device_json(device, root);
        json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
        printf("\n");
        json_decref(root);
    } else {
        printf("%d passed, %d failed\n", passed, o->nfiles - passed);
        json_decref(files);
    }
    free(out);
    return code;
}

enum { OPT_DEVICE = 'd', OPT_LAYOUT = 'l', OPT_JSON = 'j', OPT_SPECS = 's' };

static const struct argp_option argp_options[] = {
    {"device", OPT_DEVICE, "DEVICE", 0, "auto (default), host, cuda:0, hip:0", 0},
    {"layout", OPT_LAYOUT, "LAYOUT", 0,
     "aos, soa or native: store into this layout instead of the file's", 0},
    {"specs", OPT_SPECS, "DIR", 0, "look for presets here first", 0},
    {"json", OPT_JSON, 0, 0, "results as JSON", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case OPT_DEVICE: o->device = arg; return 0;
    case OPT_SPECS: o->specs = arg; return 0;
    case OPT_JSON: o->json = 1; return 0;
    case OPT_LAYOUT: o->layout = options_word(state, "layout", arg, OPTIONS_LAYOUTS); return 0;
    case ARGP_KEY_ARGS:
        o->files = state->argv + state->next;
        o->nfiles = state->argc - state->next;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "no file given"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int cmd_check(int argc, char **argv)
{
    static const struct argp argp = {argp_options,
                                     parse,
                                     "FILE.safetensors...",
                                     "Compares the kernels of a device with sample files: bytes "
                                     "stored from key and value, and what dequant, decode and "
                                     "unified read from the file's own cache.\v"
                                     "Exit status: 0 all compared and passed; 1 a comparison "
                                     "failed; 2 usage, an unreadable file or nothing comparable; "
                                     "3 the device is unusable.",
                                     device_children,
                                     0,
                                     0};
    struct options o = {0};
    struct device device;
    argp_parse(&argp, argc, argv, 0, 0, &o);
    kvk_status opened = device_open(o.device, o.specs, &device);
    if (opened)
        return device_exit(opened);
    if (!o.json)
        device_print(&device);
    enum cli_exit code = check_all(&device, &o);
    device_close(&device);
    return code;
}
