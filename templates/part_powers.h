/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_powers.h - E2M1 codes with power-of-two scales as f16 operands (plan->powers).
**
** A code's four bits, its sign at bit 15 and the others at 11 to 9, are an f16 number, normal or not: its value times
** 2^-14, exactly. Two of them are multiplied by a pair of factors, which brings in the scales and costs no more than that.
**
** Scales span 2^-126 to 2^127, f16 does not: a warp's operands are powers of two less than the numbers they stand for, by
** a reference (one for keys, one for values) that fits the scales seen so far. It moves, with the output sums, in a rare
** branch: when a scale is 2^5 and more above the largest of the first step, or 2^-26 below. What is more than 2^20
** smaller than that loses bits of its own: less than 2^-24 of the largest.
*/
#ifndef KVKILN_PART_POWERS_H
#define KVKILN_PART_POWERS_H

#include "part_attend.h"

/* Which token of an aos image a row of operands is (i32): of rows that are read together, tokens in different banks,
** where slots of eight heads lie an odd multiple of 64 bytes apart and 16 bytes follow every fourth. 8 rows on is the
** next token but one. */
val powers_token(struct kb *k, val row);
/* v->powers, once for the warp's view of images; no step's scales are known yet. */
void powers_begin(struct kb *k, struct attend *v, val group_pitch);
/* Are codes of images read by the following? They are aos. */
bool powers_by_rows(const struct attend *a);
void powers_keys(struct kb *k, const struct attend *a, int sub, struct attend_codes *c);
void powers_values(struct kb *k, const struct attend *a, int sub, struct attend_codes *c);
/* Do lanes 4 to 7 of a token's values hold the second half of their dims first? Else two lanes would meet in a bank. */
bool powers_turns(const struct plan *p);
/* The dim of dim `dim` (i32) of lane y's run then. */
val powers_dim(struct kb *k, val y, val dim);
void powers_clear(struct kb *k, struct attend_sums *s);
/* Reads the scales of a step: c->key_scale, value_scale become pairs of factors, v->row_scale fits the keys. */
void powers_load(struct kb *k, const struct attend *a, struct attend *v, val start, struct attend_codes *c,
                 struct attend_sums *s);
/* Until the factors of the values are there: something that depends on each of them. */
val powers_settle(struct kb *k, const struct attend *a, const struct attend_codes *c, val x);
/* Operands: as attend_key_operand's and attend_value_operand's pairs. */
val powers_key_pair(struct kb *k, const struct attend *a, const struct attend_codes *c, int sub, int tile, int pair);
val powers_value_pair(struct kb *k, const struct attend *a, const struct attend_codes *c, int sub, int pair, int dim);
/* An E2M1 code as f16 bits, times 2^-14. */
unsigned powers_bits(int code);
/* Output sums become what they stand for. */
void powers_close(struct kb *k, const struct attend *a, struct attend_sums *s);

#endif
