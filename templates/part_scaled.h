/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_scaled.h - scores straight from FP4 codes and their scales (OPERAND_SCALED).
*/
#ifndef KVKILN_PART_SCALED_H
#define KVKILN_PART_SCALED_H

#include "part_attend.h"
#include "part_rowvec.h"

/* r[subtile][e] = Q K^T of all subtiles. */
void attend_scaled_products(struct kb *k, const struct attend *a, val tile, const struct attend_codes *c, val *r);
/* This lane's part of a query row, rounded to e4m3, where the row's bytes for this lane begin. */
void attend_scaled_query(struct kb *k, const struct rowvec *v, val at);

#endif
