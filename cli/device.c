/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - see device.h. */
#include "device.h"

#include "generator.h"
#include "options.h"
#include "paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPT_PACK = 0x7001, OPT_COMPILE };

/* From the command line: one a process. */
static struct {
    const char *packs;
    kvk_compile compile;
    int overlap; /* kvk_options.overlap_launches */
} given;

static error_t parse(int key, char *arg, struct argp_state *state)
{
    switch (key) {
    case OPT_PACK: given.packs = arg; return 0;
    case OPT_COMPILE:
        options_word(state, "compile", arg, "auto, never");
        given.compile = !strcmp(arg, "never") ? KVK_COMPILE_NEVER : KVK_COMPILE_ON_MISS;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"pack", OPT_PACK, "FILE:...", 0, "packs to look in before the cache (default: $KVKILN_PACKS)",
     3},
    {"compile", OPT_COMPILE, "WHEN", 0,
     "auto (default): what is in no pack and not in the cache is compiled; never: it is an error",
     3},
    {0},
};
static const struct argp device_argp = {options, parse, 0, 0, 0, 0, 0};
const struct argp_child device_children[] = {{&device_argp, 0, 0, 0}, {0}};

static void log_line(void *data, kvk_log_level level, const char *line)
{
    (void)data;
    cli_message("%s%s", level == KVK_LOG_WARNING ? "warning: " : "", line);
}

void device_overlap(void)
{
    const char *text = getenv("KVKILN_OVERLAP");
    given.overlap = text && *text ? 0 : 1;
}

const char *device_launches(const struct device *device)
{
    const char *text = getenv("KVKILN_OVERLAP");
    int asked = given.overlap || (text && !strcmp(text, "1")),
        can = !strncmp(device->info.target, "sm_", 3) && strncmp(device->info.target, "sm_8", 4);
    return asked && can ? "overlapping" : "one by one";
}

/* auto, or DRIVER or DRIVER:N, N as the library takes it; whether there is one is the library's to say. */
static int well_formed(const char *name)
{
    char driver[8];
    size_t n = strcspn(name, ":"), digits = name[n] ? strspn(name + n + 1, "0123456789") : 0;
    if (n >= sizeof driver)
        return 0;
    memcpy(driver, name, n);
    driver[n] = '\0';
    if (!name[n])
        return options_has("auto, host, cuda, hip", driver);
    return options_has("host, cuda, hip", driver) && digits >= 1 && digits <= 4 &&
           !name[n + 1 + digits];
}

kvk_status device_open(const char *name, const char *specs, struct device *out)
{
    kvk_error err = {0};
    /* Spec files are read by the generator. Who may not compile wants none of it, unless he asks. */
    char *dirs =
        given.compile == KVK_COMPILE_NEVER && !specs ? cli_format("%s", "") : paths_specs(specs);
    char *generator = generator_path();
    struct kvk_options o = KVK_INIT(struct kvk_options);
    o.device = name ? name : "auto";
    o.spec_dirs = dirs;
    o.generator = generator;
    o.log = log_line;
    o.packs = given.packs;
    o.compile = given.compile;
    o.overlap_launches = given.overlap;
    memset(out, 0, sizeof *out);
    kvk_status status = KVK_E_ARG;
    if (well_formed(o.device))
        status = kvk_open(&o, &out->ctx, &err);
    else
        cli_message("--device: '%s': accepted auto, host, cuda:N, hip:N, N of 0 to 9999", o.device);
    if (!status) {
        out->info = KVK_INIT(struct kvk_device_info);
        status = kvk_device(out->ctx, &out->info, &err);
    }
    if (err.status) {
        int said = !strncmp(err.text, "device ", 7); /* which device, by the library */
        cli_message("%s%s%s%s: %s", said ? "" : "device ", said ? "" : o.device, said ? "" : ": ",
                    kvk_status_name(err.status), err.text);
    }
    if (status) {
        kvk_close(out->ctx);
        out->ctx = NULL;
    }
    free(dirs);
    free(generator);
    return status;
}

enum cli_exit device_exit(kvk_status status)
{
    return status == KVK_E_ARG || status == KVK_E_OBJECT || status == KVK_E_IO ? CLI_USAGE
                                                                               : CLI_DEVICE;
}

void device_close(struct device *device)
{
    kvk_close(device->ctx);
    device->ctx = NULL;
}

void device_print(const struct device *device)
{
    const struct kvk_device_info *info = &device->info;
    printf("device %s, %s, target %s: %s\n", info->device, info->name, info->target, info->reason);
    fflush(stdout);
}

void device_json(const struct device *device, json_t *object)
{
    json_object_set_new(object, "device", json_string(device->info.device));
    json_object_set_new(object, "device_name", json_string(device->info.name));
    json_object_set_new(object, "target", json_string(device->info.target));
    json_object_set_new(object, "device_reason", json_string(device->info.reason));
}

int device_is_host(const struct device *device) { return !strncmp(device->info.device, "host", 4); }
