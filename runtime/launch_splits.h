/* SPDX-License-Identifier: Apache-2.0 */
/*
** launch_splits.h - how a decode's cache is shared out: launch_splits.c.
*/
#ifndef KVKILN_LAUNCH_SPLITS_H
#define KVKILN_LAUNCH_SPLITS_H

#include "launch.h"

/* The numbers that decide a decode's grid. */
struct decode_shape {
    int64_t tokens, base, rows; /* query tokens; CTAs of one split of all sequences; query rows */
    int64_t slots, places;      /* parts of sequences, partial rows */
    int32_t splits, split_tokens;
    int32_t spread, least;      /* slots that sequences share by their lengths, or 0; steps of a split */
    int32_t joined;             /* 1: no reduction is launched, the last CTAs of a row's splits join them */
    int32_t pairs;              /* 1: CTAs of neighbouring slots are clusters */
    int32_t heads;              /* KV heads a CTA */
    int64_t grid_slots;         /* slots of whole clusters */
    int64_t behind;             /* bytes from the workspace to the map or the words of joined splits, or 0 */
    int32_t ways_log;           /* of its reduction */
    int64_t eights;             /* of threads that the reduction needs */
};

/* Checks the numbers, chooses the splits, and holds the workspace against them. */
kvk_status decode_measure(const kvk_kernels *k, const struct kvk_decode_args *a, struct decode_shape *d, const char *where,
                          kvk_error *err);

#endif
