/* SPDX-License-Identifier: Apache-2.0 */
/* device.h - opening the device that a command runs on, and saying which it is. */
#ifndef KVKILN_CLI_DEVICE_H
#define KVKILN_CLI_DEVICE_H

#include "cli.h"

#include <argp.h>
#include <jansson.h>

struct device {
    kvk_context *ctx;
    struct kvk_device_info info;
};

/* --pack and --compile of the commands that open a device, for their struct argp: device_open
 * obeys them. */
extern const struct argp_child device_children[];

/* Before device_open: CUDA launches overlap (kvk_options.overlap_launches) unless $KVKILN_OVERLAP
 * says otherwise. */
void device_overlap(void);
/* "overlapping", where they may, or "one by one". */
const char *device_launches(const struct device *device);

/* Opens `name` (NULL = auto) with the spec folders of
 * paths_specs(specs). On an error a message is on stderr. */
kvk_status device_open(const char *name, const char *specs, struct device *out);

/* What to end with when it failed: a pack that cannot be used, or a name that is none, is no fault of the device. */
enum cli_exit device_exit(kvk_status status);
void device_close(struct device *device);

/* "device cuda:0, NVIDIA H200, target sm_90a: first usable CUDA device" on stdout. */
void device_print(const struct device *device);

/* Sets "device", "device_name", "target" and "device_reason". */
void device_json(const struct device *device, json_t *object);

int device_is_host(const struct device *device);

#endif
