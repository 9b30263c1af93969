/* SPDX-License-Identifier: Apache-2.0 */
#include "hip_topology.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { NODES_MOST = 256, GAP_MOST = 8 };

/* 1 if the file is there; a node without gfx_target_version is a processor. */
static int read_node(const char *folder, int number, struct hip_node *out)
{
    char path[PATH_MAX], name[64];
    long long value, simds = 0, simds_per_cu = 0, domain = 0, location = 0;
    memset(out, 0, sizeof *out);
    if (snprintf(path, sizeof path, "%s/%d/properties", folder, number) >= (int)sizeof path)
        return 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    while (fscanf(file, "%63s %lld", name, &value) == 2) {
        if (strcmp(name, "gfx_target_version") == 0)
            out->gfx = (int)value;
        else if (strcmp(name, "simd_count") == 0)
            simds = value;
        else if (strcmp(name, "simd_per_cu") == 0)
            simds_per_cu = value;
        else if (strcmp(name, "domain") == 0)
            domain = value;
        else if (strcmp(name, "location_id") == 0)
            location = value;
    }
    fclose(file);
    out->compute_units = simds_per_cu > 0 ? (int)(simds / simds_per_cu) : 0;
    out->location = domain << 16 | (location & 0xffff);
    return 1;
}

int hip_topology(const char *folder, struct hip_node *nodes, int cap)
{
    int found = 0, missing = 0;
    /* In a container the files of other users' GPUs may be unreadable: a gap is not the end. */
    for (int i = 0; i < NODES_MOST && found < cap && missing < GAP_MOST; i++) {
        if (!read_node(folder, i, &nodes[found])) {
            missing++;
            continue;
        }
        missing = 0;
        found += nodes[found].gfx > 0;
    }
    return found;
}
