/* SPDX-License-Identifier: Apache-2.0 */
/*
** host_mma.h - the matrix product of a warp on the host.
*/
#ifndef KVKILN_HOST_MMA_H
#define KVKILN_HOST_MMA_H

/* c += a b for the fragments of 32 lanes, laid out as host_abi.h says. */
typedef void host_mma(const float *const *a, const float *const *b, float *const *c);

/* The fastest one for this processor. All sum in the same order; those with fused multiply-add round once. */
host_mma *host_mma_best(void);
host_mma *host_mma_plain(void);

#endif
