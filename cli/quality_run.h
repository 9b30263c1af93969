/* SPDX-License-Identifier: Apache-2.0 */
/*
** quality_run.h - what a codec loses on a layer: store, dequant, and sums over the differences.
*/
#ifndef KVKILN_CLI_QUALITY_RUN_H
#define KVKILN_CLI_QUALITY_RUN_H

#include "quality_data.h"

/* Sums over the vectors x of one side and what they decode to, y. Sums of several layers add up. */
struct loss {
    double squares, errors; /* of x and x - y */
    double cosines,
        products;   /* of <x, y> / |x||y| and <x, y> / <x, x> over vectors that are not 0 */
    double largest; /* |x - y| of one element */
    long vectors, nonzero;
    long skipped; /* vectors with an infinity or a NaN: in none of the others */
};

struct quality {
    struct loss key, value;
    size_t slot_bytes;
    double ratio; /* bytes of 16-bit keys and values over slot bytes */
    char layout[8];
};

/* What is reported of a loss. NaN where no vector says anything. */
double loss_relative(const struct loss *loss); /* squared error over squares */
double loss_cosine(const struct loss *loss);
double loss_product(const struct loss *loss);
void loss_add(struct loss *sum, const struct loss *loss);

/* layout NULL: the spec's first. */
kvk_status quality_run(kvk_context *ctx, const struct layer *layer, const char *spec,
                       const char *layout, struct quality *out, kvk_error *err);

#endif
