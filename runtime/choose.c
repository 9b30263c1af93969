/* SPDX-License-Identifier: Apache-2.0 */
/*
** choose.c - which device a name stands for, and why.
*/
#include "context.h"

#include "error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The order of "auto". */
static const struct driver *const drivers[] = {&driver_cuda, &driver_hip, &driver_host};
enum { DRIVERS = sizeof drivers / sizeof *drivers };

static kvk_status open_one(kvk_context *ctx, const struct driver *driver, int index, kvk_error *err)
{
    kvk_status status = driver->open(index, &ctx->device, &ctx->info, err);
    if (status) {
        ctx->device = NULL;
        return status;
    }
    ctx->driver = driver;
    if (driver == &driver_host && index == 0)
        snprintf(ctx->device_name, sizeof ctx->device_name, "host");
    else
        snprintf(ctx->device_name, sizeof ctx->device_name, "%s:%d", driver->name, index);
    return KVK_OK;
}

/* As much of it as fits. */
static void append(char *text, size_t cap, const char *more)
{
    size_t used = strlen(text), n = strnlen(more, cap - used - 1);
    memcpy(text + used, more, n);
    text[used + n] = '\0';
}

/* First device of a driver that opens; what stood in the way is added to `why`. */
static int open_first(kvk_context *ctx, const struct driver *driver, char *why, size_t cap)
{
    kvk_error error;
    int devices = 0;
    kvk_status status = driver->count(&devices, &error);
    if (!status && devices <= 0)
        status = error_set(&error, KVK_E_DEVICE, __func__, "no devices");
    for (int i = 0; !status && i < devices; i++) {
        if (open_one(ctx, driver, i, &error) == KVK_OK)
            return 1;
    }
    append(why, cap, "; not ");
    append(why, cap, driver->name);
    append(why, cap, ": ");
    append(why, cap, error.text);
    return 0;
}

static kvk_status open_auto(kvk_context *ctx, kvk_error *err)
{
    char why[sizeof ctx->reason - 64] = "";
    for (int i = 0; i < DRIVERS; i++) {
        if (!open_first(ctx, drivers[i], why, sizeof why))
            continue;
        snprintf(ctx->reason, sizeof ctx->reason, "auto: the first usable %s device%s",
                 drivers[i]->name, why);
        return KVK_OK;
    }
    return ERR(err, KVK_E_DEVICE, "no usable device%s", why);
}

/* "cuda:1" -> driver and index; the index may be left out. host:1 and host:2 are for tests:
** driver_host.c. */
static int parse_name(const char *name, const struct driver **driver, int *index)
{
    size_t n = strcspn(name, ":");
    *index = 0;
    for (int i = 0; i < DRIVERS; i++) {
        if (strlen(drivers[i]->name) != n || strncmp(drivers[i]->name, name, n) != 0)
            continue;
        *driver = drivers[i];
        if (!name[n])
            return 1;
        char *end;
        long value = strtol(name + n + 1, &end, 10);
        *index = (int)value;
        return name[n + 1] >= '0' && name[n + 1] <= '9' && !*end && value <= 9999;
    }
    return 0;
}

kvk_status choose_device(kvk_context *ctx, const char *name, kvk_error *err)
{
    const struct driver *driver;
    kvk_error below = {0};
    int index, devices = 0;
    if (!name || strcmp(name, "auto") == 0)
        return open_auto(ctx, err);
    if (!parse_name(name, &driver, &index))
        return ERR(err, KVK_E_ARG,
                   "device \"%s\": accepted \"auto\", \"host\", \"cuda:N\", \"hip:N\"", name);
    kvk_status status = driver->count(&devices, &below);
    if (!status && index >= devices && driver != &driver_host) /* host:N is open's to judge */
        status =
            error_set(&below, KVK_E_DEVICE, __func__, "there %s %d %s device%s",
                      devices == 1 ? "is" : "are", devices, driver->name, devices == 1 ? "" : "s");
    if (!status)
        status = open_one(ctx, driver, index, &below);
    if (status)
        return error_driver(err, status == KVK_E_MEMORY ? status : KVK_E_DEVICE, below.driver,
                            below.where, "device %s cannot be used: %s", name, below.text);
    snprintf(ctx->reason, sizeof ctx->reason, "named by the caller");
    return KVK_OK;
}
