/* SPDX-License-Identifier: Apache-2.0 */
/*
** encode.h - what an encoder would see just before it rounds to a code, in double precision: tells
** whether a code that is off by one is a rounding at a boundary or a fault.
*/
#ifndef KVKILN_CLI_ENCODE_H
#define KVKILN_CLI_ENCODE_H

#include "slots.h"

/* Codebook keys: the normalised, rotated key. */
void encode_key(const struct slots *slots, const double *key, double *out);

/* Affine values: (value - zero) / scale, both unrounded. */
void encode_value(const struct slots *slots, const double *value, double *out);

/* Is `truth` next to the boundary between the two neighbouring codes? (keys: within 1e-6 of the
 * midpoint; values: within 1e-6 relative of the half) */
int encode_key_near(const struct slots *slots, double truth, unsigned a, unsigned b);
int encode_value_near(double truth, unsigned a, unsigned b);

#endif
