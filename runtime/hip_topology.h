/* SPDX-License-Identifier: Apache-2.0 */
/*
** hip_topology.h - what the kernel driver says about AMD GPUs. hipDeviceProp_t changed its layout between releases of
** ROCm; these files did not.
*/
#ifndef KVKILN_HIP_TOPOLOGY_H
#define KVKILN_HIP_TOPOLOGY_H

struct hip_node {
    int gfx;             /* gfx_target_version: major * 10000 + minor * 100 + stepping */
    int compute_units;
    long long location;  /* domain << 16 | bus << 8 | device << 3 | function */
};

/* GPU nodes in the order of their numbers; returns how many were found, at most `cap`. */
int hip_topology(const char *folder, struct hip_node *nodes, int cap);

#endif
