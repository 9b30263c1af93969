/* SPDX-License-Identifier: Apache-2.0 */
/*
** host_cpu.h - what this processor is and can run.
*/
#ifndef KVKILN_HOST_CPU_H
#define KVKILN_HOST_CPU_H

#include "kvkiln.h"

#include <stddef.h>

/* Level of the x86-64 psABI that processor and operating system support: 1..4; 0 on other machines. */
int host_cpu_level(void);

/* Target name: "x86-64-v2", ..., "aarch64". */
const char *host_cpu_target(void);

/* Level that a target name asks for (2..4), 0 if it is none of the host's names. */
int host_cpu_target_level(const char *target);

/* Can code for `target` run on a machine of this level, which calls itself `here`? KVK_E_OBJECT: no host target at all. */
kvk_status host_cpu_check(const char *target, int level, const char *here, kvk_error *err);

/* The processor's own name, as far as it tells. */
void host_cpu_name(char *name, size_t cap);

/* Processors that this process may run on, at least 1. */
unsigned host_cpu_count(void);

#endif
