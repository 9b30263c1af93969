/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - see device.h. */
#include "device.h"

#include "generator.h"
#include "paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void log_line(void *data, kvk_log_level level, const char *line)
{
    (void)data;
    cli_message("%s%s", level == KVK_LOG_WARNING ? "warning: " : "", line);
}

kvk_status device_open(const char *name, const char *specs, struct device *out)
{
    kvk_error err = {0};
    char *dirs = paths_specs(specs), *generator = generator_path();
    struct kvk_options options = KVK_INIT(struct kvk_options);
    options.device = name ? name : "auto";
    options.spec_dirs = dirs;
    options.generator = generator;
    options.log = log_line;
    memset(out, 0, sizeof *out);
    kvk_status status = kvk_open(&options, &out->ctx, &err);
    if (!status) {
        out->info = KVK_INIT(struct kvk_device_info);
        status = kvk_device(out->ctx, &out->info, &err);
    }
    if (status) {
        cli_message("device %s: %s: %s", options.device, kvk_status_name(err.status), err.text);
        kvk_close(out->ctx);
        out->ctx = NULL;
    }
    free(dirs);
    free(generator);
    return status;
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

int device_is_host(const struct device *device)
{
    return !strncmp(device->info.device, "host", 4);
}
