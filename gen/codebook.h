/* SPDX-License-Identifier: Apache-2.0 */
/*
** codebook.h - the centroids of a rotated key: quantiser for the density N(0, 1/D), fixed to the last bit.
*/
#ifndef KVKILN_GEN_CODEBOOK_H
#define KVKILN_GEN_CODEBOOK_H

/* 2^bits ascending centroids, exactly antisymmetric; bits 1..4. */
void codebook_lloyd_max(int head_size, int bits, float *centroids);

/* n - 1 decision values between n ascending centroids, in fp32: a value on one belongs to the upper cell. */
void codebook_midpoints(const float *centroids, int n, float *midpoints);

#endif
