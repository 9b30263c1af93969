/* SPDX-License-Identifier: Apache-2.0 */
/*
** cmd_doctor.c - `kvkiln doctor`: what this machine has, and what is missing for what.
**
** Devices are opened through the public API, so the answer is that of the library, with its reason.
*/
#include "cli.h"
#include "generator.h"
#include "paths.h"

#include "../runtime/assembler.h"
#include "../runtime/pack.h"

#include "build_id.h"

#include <argp.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_DEVICES = 64 };

/* Lines for people and JSON, side by side. */
struct doctor {
    int json;
    json_t *root, *devices, *missing;
};

static void line(const struct doctor *doctor, const char *what, const char *text)
{
    if (!doctor->json)
        printf("%-12s %s\n", what, text);
}

static void missing(struct doctor *doctor, const char *text)
{
    json_array_append_new(doctor->missing, json_string(text));
}

/* Opens one device; returns 0 when it is not there. */
static int show_device(struct doctor *doctor, const char *name, int first)
{
    kvk_error err = {0};
    kvk_context *ctx = NULL;
    struct kvk_options options = KVK_INIT(struct kvk_options);
    struct kvk_device_info info = KVK_INIT(struct kvk_device_info);
    options.device = name;
    options.cache_dir = "";
    options.packs = ""; /* shown by themselves */
    if (kvk_open(&options, &ctx, &err) || kvk_device(ctx, &info, &err)) {
        if (first) {
            const char *why = strstr(err.text, "cannot be used: "); /* the line names the device */
            char *text = cli_format("not usable: %s", why ? strchr(why, ':') + 2 : err.text);
            line(doctor, name, text);
            json_array_append_new(doctor->devices, json_pack("{s:s, s:b, s:s}", "device", name,
                                                             "usable", 0, "reason", err.text));
            free(text);
        }
        kvk_close(ctx);
        return 0;
    }
    char *text =
        cli_format("%s, target %s, %d %s, %.1f GiB", info.name, info.target, info.multiprocessors,
                   !strncmp(info.device, "host", 4) ? "CPUs" : "multiprocessors",
                   (double)info.memory_bytes / (1 << 30));
    line(doctor, info.device, text);
    json_array_append_new(doctor->devices,
                          json_pack("{s:s, s:b, s:s, s:s, s:i, s:I}", "device", info.device,
                                    "usable", 1, "name", info.name, "target", info.target,
                                    "multiprocessors", info.multiprocessors, "memory_bytes",
                                    (json_int_t)info.memory_bytes));
    free(text);
    kvk_close(ctx);
    return 1;
}

static int show_family(struct doctor *doctor, const char *family)
{
    int count = 0;
    char name[32];
    while (count < MOST_DEVICES) {
        snprintf(name, sizeof name, "%s:%d", family, count);
        if (!show_device(doctor, name, count == 0))
            break;
        count++;
    }
    return count;
}

static void show_devices(struct doctor *doctor)
{
    int cuda = show_family(doctor, "cuda"), hip = show_family(doctor, "hip"),
        host = show_device(doctor, "host", 1);
    if (!cuda)
        missing(doctor, "NVIDIA GPUs: a driver (libcuda.so.1) and a device");
    if (!hip)
        missing(doctor, "AMD GPUs: ROCm's runtime (libamdhip64.so) and a device");
    if (!host)
        missing(doctor, "running on the CPU: an x86-64 processor");
}

static void show_assembler(struct doctor *doctor)
{
    struct assembler assembler;
    int found = assembler_find(&assembler);
    char *text = found ? cli_format("%s (%s)", assembler.name, assembler.path)
                       : cli_format("none: PTX is left to the driver's compiler");
    line(doctor, "assembler", text);
    json_object_set_new(
        doctor->root, "assembler",
        found ? json_pack("{s:s, s:s}", "name", assembler.name, "path", assembler.path)
              : json_null());
    if (!found)
        missing(doctor,
                "cubins ahead of time (build --emit cubin): nvJitLink or ptxas of a CUDA toolkit");
    free(text);
}

/* The folder that the runtime uses, malloc'd; "" is memory only, NULL when there is none. */
static char *cache_dir(void)
{
    const char *set = getenv("KVKILN_CACHE_DIR"), *xdg = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    if (set)
        return cli_format("%s", set);
    if (xdg && *xdg)
        return cli_format("%s/kvkiln", xdg);
    return home && *home ? cli_format("%s/.cache/kvkiln", home) : NULL;
}

/* Writable, or creatable: the nearest folder that exists is writable. */
static int writable(const char *dir)
{
    char *path = cli_format("%s", dir);
    while (access(path, F_OK) && strrchr(path, '/') && strrchr(path, '/') != path)
        *strrchr(path, '/') = '\0';
    int good = !access(path, W_OK | X_OK);
    free(path);
    return good;
}

static void show_cache(struct doctor *doctor)
{
    char *dir = cache_dir();
    int usable = dir && *dir && writable(dir);
    char *text = !dir ? cli_format("none: neither KVKILN_CACHE_DIR, XDG_CACHE_HOME nor HOME is set")
                 : !*dir ? cli_format("memory only (KVKILN_CACHE_DIR is empty)")
                         : cli_format("%s%s", dir, usable ? "" : " (not writable)");
    line(doctor, "cache", text);
    json_object_set_new(doctor->root, "cache",
                        json_pack("{s:s?, s:b}", "path", dir, "writable", usable));
    if (!usable)
        missing(
            doctor,
            "keeping compiled kernels between runs: a writable cache folder (KVKILN_CACHE_DIR)");
    free(text);
    free(dir);
}

/* One line a pack that $KVKILN_PACKS names: would kvk_open take it? */
static void show_packs(struct doctor *doctor)
{
    json_t *packs = json_array();
    const char *list = getenv("KVKILN_PACKS");
    for (const char *at = list ? list : ""; *at; at += *at == ':') {
        size_t n = strcspn(at, ":");
        char *path = cli_format("%.*s", (int)n, at);
        struct pack pack = {0};
        kvk_error err = {0};
        at += n;
        if (!n) {
            free(path);
            continue;
        }
        kvk_status status = pack_map(path, &pack, &err);
        int usable = !status && !strcmp(pack.generator, KVK_BUILD_ID);
        char *text = status ? cli_format("not usable: %s", err.text)
                            : cli_format("%s, %u rows, %s%s", path, pack.rows,
                                         usable ? "" : "not usable: made by generator ",
                                         usable ? "of this build" : pack.generator);
        line(doctor, "pack", text);
        json_array_append_new(
            packs, json_pack("{s:s, s:b, s:s}", "path", path, "usable", usable, "text", text));
        pack_close(&pack);
        free(text);
        free(path);
    }
    json_object_set_new(doctor->root, "packs", packs);
}

static void show_generator(struct doctor *doctor)
{
    kvk_error err = {0};
    const struct gen_api *api = generator_get(&err);
    if (!api) {
        char *text = cli_format("not usable: %s", err.text);
        line(doctor, "generator", text);
        json_object_set_new(doctor->root, "generator",
                            json_pack("{s:b, s:s}", "usable", 0, "reason", err.text));
        missing(doctor, "compiling kernels that are not in the cache: libkvkiln-gen.so");
        free(text);
        return;
    }
    json_t *targets = json_array();
    const char *name, *family;
    char *list = cli_format("%s", "");
    for (int i = 0; api->target(i, &name, &family); i++) {
        char *longer = cli_format("%s%s%s", list, i ? " " : "", name);
        free(list);
        list = longer;
        json_array_append_new(targets, json_string(name));
    }
    line(doctor, "generator", api->build_id);
    line(doctor, "targets", list);
    json_object_set_new(
        doctor->root, "generator",
        json_pack("{s:b, s:s, s:o}", "usable", 1, "build_id", api->build_id, "targets", targets));
    free(list);
}

static void show_places(struct doctor *doctor)
{
    char *specs = paths_specs(NULL), *data = paths_data(NULL);
    line(doctor, "specs", *specs ? specs : "only the embedded ones");
    line(doctor, "samples", data ? data : "not found (demo --data DIR)");
    json_object_set_new(doctor->root, "specs", json_string(specs));
    json_object_set_new(doctor->root, "samples", data ? json_string(data) : json_null());
    if (!data)
        missing(doctor, "the demo: its sample cases (tests/data)");
    free(specs);
    free(data);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    (void)arg;
    if (key != 'j')
        return ARGP_ERR_UNKNOWN;
    ((struct doctor *)state->input)->json = 1;
    return 0;
}

int cmd_doctor(int argc, char **argv)
{
    static const struct argp_option option[] = {{"json", 'j', 0, 0, "results as JSON", 0}, {0}};
    static const struct argp argp = {
        option,
        parse,
        0,
        "Shows drivers, devices, assembler, cache and generator of this machine, "
        "and what is missing for what.",
        0,
        0,
        0};
    struct doctor doctor = {0};
    argp_parse(&argp, argc, argv, 0, 0, &doctor);
    doctor.root = json_pack("{s:s}", "version", kvk_version());
    doctor.devices = json_array();
    doctor.missing = json_array();
    line(&doctor, "kvkiln", kvk_version());
    show_devices(&doctor);
    show_assembler(&doctor);
    show_generator(&doctor);
    show_packs(&doctor);
    show_cache(&doctor);
    show_places(&doctor);
    for (size_t i = 0; i < json_array_size(doctor.missing); i++)
        line(&doctor, "missing", json_string_value(json_array_get(doctor.missing, i)));
    json_object_set_new(doctor.root, "devices", doctor.devices);
    json_object_set_new(doctor.root, "missing", doctor.missing);
    if (doctor.json) {
        json_dumpf(doctor.root, stdout, JSON_INDENT(2));
        printf("\n");
    }
    json_decref(doctor.root);
    return CLI_OK;
}
