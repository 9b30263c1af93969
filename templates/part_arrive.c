/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_arrive.c - counting CTAs.
*/
#include "part_arrive.h"

enum { COUNT_BITS = 16 };

/* What memory holds by chance is no such number. */
#define TAG INT64_C(0x5e91c6b3a74d)

void arrive_begin(struct kb *k, val word)
{
    val now = kb_atomic_get(K, word);
    val other = kb_icmp(K, KB_NE, kb_lshri(K, now, COUNT_BITS), kb_i64(K, TAG));
    struct kb_if first = kb_if(K, other);
    /* where this fails, another CTA of the group has done it */
    kb_atomic_replace(K, word, now, kb_i64(K, TAG << COUNT_BITS));
    kb_endif(K, &first);
}

val arrive_last(struct kb *k, val word, val count)
{
    val told = kb_shared(K, 4, 4);
    kb_barrier(K);
    struct kb_if one = kb_if(K, kb_icmpi(K, KB_EQ, kb_tid(K), 0));
    val before = kb_trunc(K, kb_atomic_add(K, word, kb_i64(K, 1)), KB_I32);
    val arrived = kb_addi(K, kb_andi(K, before, (1 << COUNT_BITS) - 1), 1);
    kb_store(K, arrived, told, 4);
    struct kb_if last = kb_if(K, kb_icmp(K, KB_EQ, arrived, count));
    kb_atomic_set(K, kb_i64(K, 0), word);
    kb_endif(K, &last);
    kb_endif(K, &one);
    kb_barrier(K);
    return kb_icmp(K, KB_EQ, kb_load(K, KB_I32, told, 4), count);
}
