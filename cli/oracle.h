/* SPDX-License-Identifier: Apache-2.0 */
/*
** oracle.h - attention in double precision over decoded rows: slow, plain, what the kernels are
** held against.
*/
#ifndef KVKILN_CLI_ORACLE_H
#define KVKILN_CLI_ORACLE_H

#include "slots.h"

#include <stdint.h>

/* Rows of one sequence and one KV head, [tokens][head_size].
 * `rotated` says whether keys are in the rotated basis. */
struct oracle_rows {
    int head_size, rotated;
    long tokens;
    double *key, *value;
    int value_head_size; /* 0 = head_size */
};

struct oracle_mask {
    double scale;
    long window;        /* key visible iff 0 <= position - key < window; 0 = no window */
    const double *sink; /* logit, or NULL */
};

/* Decodes tokens 0 .. tokens-1 of a sequence whose pages are table[]. Free with oracle_free. */
void oracle_decode(const struct slots *slots, const unsigned char *pool, const int32_t *table,
                   long tokens, int head, struct oracle_rows *out);
void oracle_free(struct oracle_rows *rows);

/* out[value_head_size] = attention of the (unrotated) query at `position`; returns the natural
 * log-sum-exp of the visible keys. No visible key: zeros and -inf. */
double oracle_attend(const struct oracle_rows *rows, const double *query, long position,
                     const struct oracle_mask *mask, double *out);

#endif
