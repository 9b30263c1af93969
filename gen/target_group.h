/* SPDX-License-Identifier: Apache-2.0 */
/*
** target_group.h - what a target supplies for kernels of groups of warps (kb_group.h).
*/
#ifndef KVKILN_GEN_TARGET_GROUP_H
#define KVKILN_GEN_TARGET_GROUP_H

#include "kb.h"

/* Entries but sync and arrive may be NULL: kb_group.c says what stands in. */
struct group_ops {
    void (*scores)(struct kb *k, int type, int size, val queries, val keys, val *s);
    void (*values)(struct kb *k, int type, int size, const val *p, int terms, val values, val *o);
    void (*wait)(struct kb *k, int pending, val *x, int n, const val *held, int m);
    void (*sync)(struct kb *k, val group);
    void (*registers)(struct kb *k, int n, bool more);
    void (*arrive)(struct kb *k, val bar);
    void (*copy)(struct kb *k, val to, val from, val valid);
    void (*copy_batch)(struct kb *k);
    void (*copy_wait)(struct kb *k, int pending);
};
extern const struct group_ops group_nvptx;

#endif
