/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_arrive.h - which of the CTAs that share a sequence's rows comes last: it joins what all have left in memory.
**
** Each such group has a 64-bit word in the workspace: a tag and, in the low 16 bits, how many have arrived. Nobody has to prepare
** the word: a CTA that finds another tag when it begins puts the tag there, with no arrivals, and the last one leaves 0.
*/
#ifndef KVKILN_PART_ARRIVE_H
#define KVKILN_PART_ARRIVE_H

#include "../gen/kb.h"

/* Before the CTA's work, by one thread. */
void arrive_begin(struct kb *k, val word);
/* After it, by all threads: what the CTA has written is seen by those who come later. i1, equal in the CTA: this is the last of
** `count`, and sees what the others have written. */
val arrive_last(struct kb *k, val word, val count);

#endif
