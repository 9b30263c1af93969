/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_arrive.c - counting clusters of CTAs.
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
    /* where this fails, another cluster of the group has done it */
    kb_atomic_replace(K, word, now, kb_i64(K, TAG << COUNT_BITS));
    kb_endif(K, &first);
}

/* By one thread: the number into every mate's shared memory. */
static void tell(struct kb *k, const struct mates *m, val x, val to)
{
    val own = kb_generic(K, to), i = kb_i32(K, 0);
    struct kb_loop loop;
    kb_loop_begin(K, &loop, &i, 1);
    kb_loop_while(K, &loop, kb_icmp(K, KB_SLT, i, m->count));
    loop.rolled = true;
    kb_store(K, x, kb_neighbour(K, own, kb_add(K, m->first, i)), 4);
    i = kb_addi(K, i, 1);
    kb_loop_end(K, &loop);
}

val arrive_last(struct kb *k, const struct mates *m)
{
    val told = kb_shared(K, 4, 4), other = kb_or(K, kb_tid(K), m->own);
    struct kb_if one = kb_if(K, kb_icmpi(K, KB_EQ, other, 0));
    val before = kb_trunc(K, kb_atomic_add(K, m->word, kb_i64(K, 1)), KB_I32);
    val arrived = kb_addi(K, kb_andi(K, before, (1 << COUNT_BITS) - 1), 1);
    tell(K, m, arrived, told);
    struct kb_if last = kb_if(K, kb_icmp(K, KB_EQ, arrived, m->parts));
    kb_atomic_set(K, kb_i64(K, 0), m->word);
    kb_endif(K, &last);
    kb_endif(K, &one);
    kb_cluster_barrier(K);
    kb_atomic_fence(K);
    return kb_icmp(K, KB_EQ, kb_load(K, KB_I32, told, 4), m->parts);
}
