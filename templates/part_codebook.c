/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_codebook.c - a side's centroids and look-ups in them.
*/
#include "part_codebook.h"

#include "../gen/codebook.h"

#include <string.h>

void codebook_of_side(const struct side *side, float centroids[SPEC_MAX_CENTROIDS])
{
    if (side->codec.ncentroids)
        memcpy(centroids, side->codec.centroids, SPEC_MAX_CENTROIDS * sizeof *centroids);
    else
        codebook_lloyd_max(side->head_size, side->codec.bits, centroids);
}

val codebook_pick(struct kb *k, const float *table, int bits, val code)
{
    val t[SPEC_MAX_CENTROIDS];
    for (int i = 0; i < 1 << bits; i++)
        t[i] = kb_f32(K, table[i]);
    for (int b = 0; b < bits; b++) {
        val bit = kb_andi(K, code, 1 << b);
        val set = kb_icmpi(K, KB_NE, bit, 0);
        for (int i = 0; i < 1 << (bits - b - 1); i++)
            t[i] = kb_select(K, set, t[2 * i + 1], t[2 * i]);
    }
    return t[0];
}

val codebook_lanes(struct kb *k, const float *table, int bits)
{
    val lane = kb_lane(K);
    val entry = kb_andi(K, lane, (1 << bits) - 1);
    return codebook_pick(k, table, bits, entry);
}
