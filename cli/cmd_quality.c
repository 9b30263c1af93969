/* SPDX-License-Identifier: Apache-2.0 */
/*
** cmd_quality.c - `kvkiln quality`: what formats lose on given rows, side by side.
*/
#include "device.h"
#include "options.h"
#include "quality_run.h"

#include "../runtime/embedded.h"

#include <argp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options {
    const char *device, *layout, *specs, *input;
    struct random_rows random; /* rows 0: a file */
    int json;
    const char **names;
    int nnames;
};

/* One spec over all layers. */
struct outcome {
    struct quality *layers, all;
    char error[640]; /* "" when it ran */
    enum cli_exit code;
};

static void measure(struct device *device, const struct options *o, const struct quality_data *data,
                    const char *spec, struct outcome *out)
{
    kvk_error err = {0};
    memset(out, 0, sizeof *out);
    out->layers = cli_alloc((size_t)data->nlayers, sizeof *out->layers);
    for (int i = 0; i < data->nlayers; i++) {
        struct quality *q = &out->layers[i];
        kvk_status status = quality_run(device->ctx, &data->layers[i], spec, o->layout, q, &err);
        if (status) {
            out->code = cli_exit_of(status);
            snprintf(out->error, sizeof out->error, "%s: %s", kvk_status_name(err.status),
                     err.text);
            cli_error(spec, &err);
            return;
        }
        loss_add(&out->all.key, &q->key);
        loss_add(&out->all.value, &q->value);
    }
}

/* --- the table --- */

/* Of the column of spec names. */
static int width_of(const struct options *o)
{
    size_t width = 4;
    for (int s = 0; s < o->nnames; s++)
        width = strlen(o->names[s]) > width ? strlen(o->names[s]) : width;
    return width < 60 ? (int)width : 60;
}

/* `layer` NULL: all of them, whose slots may differ in size. */
static void print_row(const char *layer, const char *spec, int width, const struct quality *q)
{
    char slot[16] = "";
    if (layer)
        snprintf(slot, sizeof slot, "%zu", q->slot_bytes);
    printf("%5s  %-*s %5s", layer ? layer : "all", width, spec, slot);
    const struct loss *sides[2] = {&q->key, &q->value};
    for (int s = 0; s < 2; s++)
        printf("  %10.3e %8.5f %8.5f %9.3g", loss_relative(sides[s]), loss_cosine(sides[s]),
               loss_product(sides[s]), sides[s]->largest);
    printf("\n");
}

static void print_data(const struct options *o, const struct quality_data *data)
{
    long rows = 0;
    for (int i = 0; i < data->nlayers; i++)
        rows += data->layers[i].rows;
    const struct layer *l = &data->layers[0];
    char sizes[48];
    snprintf(sizes, sizeof sizes, l->key_size == l->value_size ? "%ld" : "%ld/%ld", l->key_size,
             l->value_size);
    if (o->input)
        printf("%s: %d layer%s, %ld rows, %ld heads, head size %s, %s\n", o->input, data->nlayers,
               data->nlayers == 1 ? "" : "s", rows, l->heads, sizes, cli_dtype_name(l->dtype));
    else
        printf("%ld random keys and values, N(%g, %g), head size %s, %s, seed %ld\n", rows,
               o->random.mean, o->random.deviation, sizes, cli_dtype_name(l->dtype),
               o->random.seed);
    printf("%5s  %-*s %5s  %-38s  %s\n", "", width_of(o), "", "", "keys", "values");
    printf("%5s  %-*s %5s", "layer", width_of(o), "spec", "bytes");
    for (int s = 0; s < 2; s++)
        printf("  %10s %8s %8s %9s", "rel. MSE", "cosine", "<x,y>/xx", "max error");
    printf("\n");
}

static void print_table(const struct options *o, const struct quality_data *data,
                        const struct outcome *outcomes)
{
    long skipped = 0;
    print_data(o, data);
    for (int i = 0; i < data->nlayers; i++)
        for (int s = 0; s < o->nnames; s++) {
            char number[24] = "-";
            if (data->layers[i].number >= 0)
                snprintf(number, sizeof number, "%ld", data->layers[i].number);
            if (outcomes[s].code == CLI_OK)
                print_row(number, o->names[s], width_of(o), &outcomes[s].layers[i]);
        }
    for (int s = 0; s < o->nnames; s++) {
        if (outcomes[s].code == CLI_OK && data->nlayers > 1)
            print_row(NULL, o->names[s], width_of(o), &outcomes[s].all);
        long here = outcomes[s].all.key.skipped + outcomes[s].all.value.skipped;
        skipped = here > skipped ? here : skipped;
    }
    if (skipped)
        printf("%ld vectors with an infinity or a NaN were left out\n", skipped);
}

/* --- JSON --- */

static json_t *number_json(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *loss_json(const struct loss *loss)
{
    return json_pack("{s:I, s:I, s:o, s:o, s:o, s:o}", "vectors", (json_int_t)loss->vectors,
                     "skipped", (json_int_t)loss->skipped, "relative_mse",
                     number_json(loss_relative(loss)), "cosine", number_json(loss_cosine(loss)),
                     "product", number_json(loss_product(loss)), "max_error",
                     number_json(loss->largest));
}

static json_t *layer_json(const struct layer *layer, const struct quality *q)
{
    return json_pack("{s:o, s:I, s:I, s:I, s:I, s:s, s:s, s:I, s:f, s:o, s:o}", "layer",
                     layer->number < 0 ? json_null() : json_integer(layer->number), "rows",
                     (json_int_t)layer->rows, "heads", (json_int_t)layer->heads, "head_size",
                     (json_int_t)layer->key_size, "value_head_size", (json_int_t)layer->value_size,
                     "dtype", cli_dtype_name(layer->dtype), "layout", q->layout, "slot_bytes",
                     (json_int_t)q->slot_bytes, "ratio", q->ratio, "key", loss_json(&q->key),
                     "value", loss_json(&q->value));
}

static json_t *outcome_json(const char *spec, const struct quality_data *data,
                            const struct outcome *out)
{
    json_t *name = json_string(spec);
    json_t *object = json_pack("{s:o}", "spec", name ? name : json_string("?"));
    if (out->error[0]) {
        json_object_set_new(object, "error", json_string(out->error));
        return object;
    }
    json_t *layers = json_array();
    for (int i = 0; i < data->nlayers; i++)
        json_array_append_new(layers, layer_json(&data->layers[i], &out->layers[i]));
    json_object_set_new(object, "layers", layers);
    json_object_set_new(object, "key", loss_json(&out->all.key));
    json_object_set_new(object, "value", loss_json(&out->all.value));
    return object;
}

static void print_json(const struct device *device, const struct options *o,
                       const struct quality_data *data, const struct outcome *outcomes)
{
    json_t *specs = json_array(), *root = json_pack("{s:s}", "version", kvk_version());
    json_t *input = o->input ? json_string(o->input) : NULL;
    device_json(device, root);
    if (o->input)
        json_object_set_new(root, "input", input ? input : json_string("?"));
    else
        json_object_set_new(root, "random",
                            json_pack("{s:I, s:f, s:f, s:I}", "rows", (json_int_t)o->random.rows,
                                      "mean", o->random.mean, "deviation", o->random.deviation,
                                      "seed", (json_int_t)o->random.seed));
    for (int s = 0; s < o->nnames; s++)
        json_array_append_new(specs, outcome_json(o->names[s], data, &outcomes[s]));
    json_object_set_new(root, "specs", specs);
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    printf("\n");
    json_decref(root);
}

/* --- the command --- */

static enum cli_exit compare_specs(struct device *device, const struct options *o,
                                   const struct quality_data *data)
{
    enum cli_exit code = CLI_OK;
    struct outcome *outcomes = cli_alloc((size_t)o->nnames, sizeof *outcomes);
    for (int s = 0; s < o->nnames; s++) {
        measure(device, o, data, o->names[s], &outcomes[s]);
        code = cli_exit_worse(code, outcomes[s].code);
    }
    if (o->json)
        print_json(device, o, data, outcomes);
    else
        print_table(o, data, outcomes);
    for (int s = 0; s < o->nnames; s++)
        free(outcomes[s].layers);
    free(outcomes);
    return code;
}

/* No spec named: every preset. */
static void name_presets(struct options *o)
{
    const char *name, *text;
    if (o->nnames)
        return;
    while (embedded_spec_text(o->nnames, &name, &text))
        o->nnames++;
    o->names = cli_alloc((size_t)o->nnames, sizeof *o->names);
    for (int i = 0; i < o->nnames; i++)
        embedded_spec_text(i, &o->names[i], &text);
}

enum { OPT_GAUSSIAN = 256, OPT_HEAD, OPT_DTYPE, OPT_MEAN, OPT_DEVIATION, OPT_SEED };

static const struct argp_option argp_options[] = {
    {"input", 'i', "FILE", 0, "safetensors with key and value, or layers.<n>.key and .value", 0},
    {"gaussian", OPT_GAUSSIAN, "N", 0, "N random keys and values instead of a file", 0},
    {"head-size", OPT_HEAD, "N", 0, "of random rows (default 128)", 0},
    {"dtype", OPT_DTYPE, "T", 0, "of random rows: fp16 (default), bf16", 0},
    {"mean", OPT_MEAN, "X", 0, "of random elements (default 0)", 0},
    {"deviation", OPT_DEVIATION, "X", 0, "of random elements (default 1)", 0},
    {"seed", OPT_SEED, "N", 0, "of random rows (default 1)", 0},
    {"layout", 'l', "LAYOUT", 0, "aos, soa or native (default: each spec's first)", 0},
    {"device", 'd', "DEVICE", 0, "auto (default), host, cuda:0, hip:0", 0},
    {"specs", 's', "DIR", 0, "look for presets here first", 0},
    {"json", 'j', 0, 0, "results as JSON", 0},
    {0},
};

static void real(struct argp_state *state, const char *option, const char *arg, double low,
                 double *out)
{
    char *end;
    *out = strtod(arg, &end);
    if (end == arg || *end || !(*out >= low && *out <= 60000))
        argp_error(state, "--%s: '%s': accepted %g to 60000", option, arg, low);
}

static error_t parse_random(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    struct random_rows *r = &o->random;
    switch (key) {
    case OPT_GAUSSIAN: options_number(state, "gaussian", arg, 1, 1 << 22, &r->rows); return 0;
    case OPT_HEAD:
        options_number(state, "head-size", arg, OPTIONS_HEAD_LEAST, OPTIONS_HEAD_MOST,
                       &r->head_size);
        return 0;
    case OPT_SEED: options_number(state, "seed", arg, 0, 1 << 30, &r->seed); return 0;
    case OPT_MEAN: real(state, "mean", arg, -60000, &r->mean); return 0;
    case OPT_DEVIATION: real(state, "deviation", arg, 0, &r->deviation); return 0;
    case OPT_DTYPE: r->dtype = options_dtype(state, arg); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'i': o->input = arg; return 0;
    case 'l': o->layout = options_word(state, "layout", arg, OPTIONS_LAYOUTS); return 0;
    case 'd': o->device = arg; return 0;
    case 's': o->specs = arg; return 0;
    case 'j': o->json = 1; return 0;
    case ARGP_KEY_ARGS:
        o->names = (const char **)(state->argv + state->next);
        o->nnames = state->argc - state->next;
        return 0;
    case ARGP_KEY_END:
        if (!o->input == !o->random.rows)
            argp_error(state, "what to measure on: one of --input FILE and --gaussian N");
        return 0;
    default: return parse_random(key, arg, state);
    }
}

int cmd_quality(int argc, char **argv)
{
    static const struct argp argp = {
        argp_options,
        parse,
        "[SPEC...]",
        "What cache formats (all presets, if none is named) lose on keys and values: stores and "
        "dequantises them and prints, a layer and over all, squared error over squares, mean "
        "cosine, mean of <x,y>/<x,x> (1: scores are not biased), largest error.",
        device_children,
        0,
        0};
    struct options o = {
        .random = {.head_size = 128, .seed = 1, .dtype = KVK_FLOAT16, .deviation = 1}};
    struct quality_data data;
    struct device device;
    char reason[SAFETENSORS_ERROR];
    argp_parse(&argp, argc, argv, 0, 0, &o);
    if (o.input && !quality_data_open(o.input, &data, reason)) {
        cli_message("%s: %s", o.input, reason);
        return CLI_USAGE;
    }
    if (!o.input)
        quality_data_random(&o.random, &data);
    int named = o.nnames;
    kvk_status opened = device_open(o.device, o.specs, &device);
    enum cli_exit code = device_exit(opened);
    if (!opened) {
        if (!o.json)
            device_print(&device);
        name_presets(&o);
        code = compare_specs(&device, &o, &data);
        device_close(&device);
    }
    if (!named)
        free(o.names);
    quality_data_close(&data);
    return code;
}
