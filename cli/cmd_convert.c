/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_convert.c - a sample file whose cache has another layout: kvk_convert over its stored slots. */
#include "cli.h"
#include "device.h"
#include "options.h"
#include "paths.h"
#include "sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options {
    const char *device, *specs, *layout, *out, *file;
};

/* What lies on the device: two pools, numbers of the slots. */
struct conversion {
    kvk_context *ctx;
    const struct sample *sample;
    const kvk_kernels *from, *to;
    void *pools[2], *slots;
    size_t bytes; /* of a pool */
};

static kvk_status prepare(const struct conversion *c, const char *layout, unsigned kinds,
                          const kvk_kernels **out, kvk_error *err)
{
    const struct sample *s = c->sample;
    struct kvk_model model = KVK_INIT(struct kvk_model);
    model.spec = s->preset;
    model.layout = layout;
    model.kv_heads = s->kv_heads;
    model.query_heads = s->query_heads;
    model.head_size = s->head_size;
    model.page_tokens = s->page_tokens;
    model.dtype = s->dtype;
    model.kinds = kinds;
    return kvk_prepare(c->ctx, &model, out, err);
}

/* Every slot that was stored or that a sequence has; the others keep their 0xA5. */
static int64_t *used_slots(const struct sample *s, long *n)
{
    int64_t *out = cli_alloc((size_t)(s->rows + s->total) + 1, sizeof *out);
    *n = 0;
    for (long i = 0; i < s->rows; i++)
        if (s->slot_mapping[i] >= 0)
            out[(*n)++] = s->slot_mapping[i];
    for (long i = 0; i < s->sequences; i++)
        for (long t = 0; t < s->lengths[i]; t++)
            out[(*n)++] =
                (int64_t)s->block_table[i * s->table_stride + t / s->page_tokens] * s->page_tokens +
                t % s->page_tokens;
    return out;
}

static kvk_status put(struct conversion *c, const int64_t *slots, long n, kvk_error *err)
{
    kvk_status status = KVK_OK;
    for (int i = 0; i < 2 && !status; i++)
        status = kvk_alloc(c->ctx, c->bytes, &c->pools[i], err);
    if (!status)
        status = kvk_alloc(c->ctx, (size_t)(n + 1) * sizeof *slots, &c->slots, err);
    if (!status)
        status = kvk_upload(c->ctx, c->pools[0], c->sample->cache->data, c->bytes, err);
    if (!status)
        status = kvk_fill(c->ctx, c->pools[1], 0xA5, c->bytes, err);
    return status ? status : kvk_upload(c->ctx, c->slots, slots, (size_t)n * sizeof *slots, err);
}

static kvk_status run(struct conversion *c, const char *layout, unsigned char *out, kvk_error *err)
{
    struct kvk_convert_args args = KVK_INIT(struct kvk_convert_args);
    long n;
    int64_t *slots = used_slots(c->sample, &n);
    kvk_status status = prepare(c, c->sample->layout, KVK_COPY, &c->from, err);
    if (!status)
        status = prepare(c, layout, KVK_CONVERT, &c->to, err);
    if (!status)
        status = put(c, slots, n, err);
    free(slots);
    args.from = (struct kvk_pool){.data = c->pools[0], .pages = c->sample->pages};
    args.to = (struct kvk_pool){.data = c->pools[1], .pages = c->sample->pages};
    args.from_index = args.to_index = c->slots;
    args.index_type = KVK_INT64;
    args.items = n;
    if (!status)
        status = kvk_convert(c->to, c->from, &args, NULL, err);
    if (!status)
        status = kvk_synchronize(c->ctx, err);
    if (!status)
        status = kvk_download(c->ctx, out, c->pools[1], c->bytes, err);
    kvk_free(c->ctx, c->slots);
    kvk_free(c->ctx, c->pools[0]);
    kvk_free(c->ctx, c->pools[1]);
    return status;
}

/* The file again, with other bytes in place of its cache: tensors keep their places, as a cache has
** the same size in every layout. */
static int write_file(const struct sample *s, const struct options *o, const unsigned char *cache)
{
    const struct safetensors *st = &s->st;
    size_t data = 0, before;
    char *error = NULL;
    json_t *meta = json_object_get(st->header, "__metadata__");
    json_object_set_new(meta, "converted_from", json_string(s->layout));
    for (int i = 0; i < st->ntensors; i++)
        if (st->tensors[i].offset + st->tensors[i].bytes > data)
            data = st->tensors[i].offset + st->tensors[i].bytes;
    json_object_set_new(meta, "layout", json_string(o->layout)); /* s->layout is gone */
    char *header = json_dumps(st->header, JSON_COMPACT);
    size_t length = (strlen(header) + 7) / 8 * 8;
    before = 8 + length;
    unsigned char *file = cli_alloc(before + data, 1);
    memset(file + 8, ' ', length);
    memcpy(file + 8, header, strlen(header));
    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)(length >> 8 * i);
    for (int i = 0; i < st->ntensors; i++)
        memcpy(file + before + st->tensors[i].offset,
               &st->tensors[i] == s->cache ? cache : st->tensors[i].data, st->tensors[i].bytes);
    int good = paths_write(o->out, file, before + data, &error);
    if (!good)
        cli_message("%s", error);
    free(error);
    free(header);
    free(file);
    return good;
}

static enum cli_exit convert(struct device *device, const struct sample *s, const struct options *o)
{
    struct conversion c = {.ctx = device->ctx, .sample = s, .bytes = s->cache->bytes};
    unsigned char *cache = cli_alloc(c.bytes, 1);
    char *from = cli_format("%s", s->layout);
    kvk_error err = {0};
    enum cli_exit code = CLI_OK;
    kvk_status status = run(&c, o->layout, cache, &err);
    if (status) {
        cli_error(s->path, &err);
        code = cli_exit_of(status) == CLI_DEVICE ? CLI_DEVICE : CLI_USAGE;
    } else if (!write_file(s, o, cache)) {
        code = CLI_USAGE;
    } else {
        printf("%s: %s, %s to %s\n", o->out, s->preset, from, o->layout);
    }
    free(from);
    free(cache);
    return code;
}

static const struct argp_option argp_options[] = {
    {"layout", 'l', "LAYOUT", 0, "aos, soa or native: of the new file's cache", 0},
    {"output", 'o', "FILE", 0, "where it is written", 0},
    {"device", 'd', "DEVICE", 0, "auto (default), host, cuda:0, hip:0", 0},
    {"specs", 's', "DIR", 0, "look for presets here first", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'd': o->device = arg; return 0;
    case 's': o->specs = arg; return 0;
    case 'o': o->out = arg; return 0;
    case 'l': o->layout = options_word(state, "layout", arg, OPTIONS_LAYOUTS); return 0;
    case ARGP_KEY_ARG:
        if (o->file)
            argp_error(state, "'%s': one file at a time", arg);
        o->file = arg;
        return 0;
    case ARGP_KEY_END:
        if (!o->file || !o->layout || !o->out)
            argp_error(state, "%s is missing",
                       !o->file     ? "the file"
                       : !o->layout ? "--layout"
                                    : "--output");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int cmd_convert(int argc, char **argv)
{
    static const struct argp argp = {
        argp_options,
        parse,
        "FILE.safetensors",
        "Writes a sample file again with its cache in another layout. Slots that it stores or "
        "reads "
        "are converted, all other bytes of the cache are 0xA5. Codes and fields arrive bit by bit; "
        "corrected norms are rounded a second time between aos and the others.\v"
        "Exit status: 0 written; 2 usage, an unreadable file, a layout that the format or shape "
        "does not have; 3 the device is unusable.",
        device_children,
        0,
        0};
    struct options o = {0};
    struct device device;
    struct sample sample;
    char error[SAFETENSORS_ERROR];
    argp_parse(&argp, argc, argv, 0, 0, &o);
    if (!sample_open(o.file, &sample, error)) {
        cli_message("%s: %s", o.file, error);
        return CLI_USAGE;
    }
    enum cli_exit code = CLI_USAGE;
    kvk_status opened = KVK_OK;
    if (!strcmp(sample.layout, o.layout))
        cli_message("%s: metadata 'layout': '%s': accepted another one than --layout", o.file,
                    sample.layout);
    else if (!paths_make_ready(o.out))
        code = CLI_USAGE;
    else if ((opened = device_open(o.device, o.specs, &device)))
        code = device_exit(opened);
    else {
        code = convert(&device, &sample, &o);
        device_close(&device);
    }
    sample_close(&sample);
    return code;
}
