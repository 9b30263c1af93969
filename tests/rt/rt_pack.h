/* SPDX-License-Identifier: Apache-2.0 */
/*
** rt_pack.h - packs of kernels that the fake generator of rt.h makes. The writer is the command line's.
*/
#ifndef KVKILN_TESTS_RT_PACK_H
#define KVKILN_TESTS_RT_PACK_H

#include "rt.h"

#include "../../cli/pack_write.h"

/* Request of a kind ("store" ...) of rt_model's kernels for sm_90a. */
struct gen_request rt_request(const char *kind);

/* Adds a kernel of the fake generator, as a cubin or as PTX. */
void rt_pack_add(struct pack_writer *writer, const struct gen_request *request, int ptx);

/* All kinds of rt_model as cubins, and with `ptx` as PTX too; malloc'd. */
void *rt_pack(int ptx, size_t *size);

/* XXH3-128 as packs hold it. */
void rt_pack_sum(const void *bytes, size_t size, unsigned char out[PACK_SUM_BYTES]);

/* Whoever changed a pack's head sets its checksum right. */
void rt_pack_reseal(unsigned char *bytes);

#endif
