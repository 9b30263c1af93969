/* SPDX-License-Identifier: Apache-2.0 */
/* build_pack.h - the part of `kvkiln build` that makes a pack. */
#ifndef KVKILN_CLI_BUILD_PACK_H
#define KVKILN_CLI_BUILD_PACK_H

#include "jobs.h"
#include "pack_write.h"

enum { BUILD_CUBIN = 1, BUILD_PTX = 2 }; /* forms of kernels for NVIDIA targets */

/* "cubin,ptx" to its bits; 0 if a word is neither. */
unsigned build_pack_forms(const char *text);

/* Compiles one job in the forms asked for and adds the rows. NULL, or what is wrong, malloc'd. */
char *build_pack_job(struct pack_writer *writer, const struct gen_api *api, const struct job *job,
                     unsigned forms);

/* Adds the specs, writes the file and says on stdout (not with `json`) what is in it. */
char *build_pack_finish(struct pack_writer *writer, const struct jobs *jobs, const char *path,
                        int json);

#endif
