/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_arrive.h - which of the clusters of CTAs that share a sequence's rows comes last: it joins what all have left in memory.
**
** Each such group has a 64-bit word in the workspace: a tag and, in the low 16 bits, how many have arrived. Nobody has to prepare
** the word: a cluster that finds another tag when it begins puts the tag there, with no arrivals, and the last one leaves 0.
*/
#ifndef KVKILN_PART_ARRIVE_H
#define KVKILN_PART_ARRIVE_H

#include "../gen/kb.h"

/* The CTAs of a cluster that have splits of one sequence, neighbours by rank, and the clusters that have. i32 */
struct mates {
    val first, count, own; /* the first's rank; how many; which of them this CTA is */
    val part, parts;       /* which of the sequence's clusters, of how many */
    val word;              /* where these count themselves */
};

/* Before the work, by one thread of the mates. */
void arrive_begin(struct kb *k, val word);
/* After it and a barrier of the cluster, by all threads: what the mates have written is seen by those who come later. i1, equal in
** all mates: they are the last, and see what the others have written. */
val arrive_last(struct kb *k, const struct mates *m);

#endif
