/* SPDX-License-Identifier: Apache-2.0 */
/*
** plan_join.c - who joins the splits of a decode's rows.
*/
#include "plan_rules.h"

enum { CLUSTER_CTAS = 2 /* of more, an H200 holds 120 at once, not 132 (measured) */ };

void plan_neighbours(struct plan *p)
{
    unsigned flags = p->target->flags;
    bool joins = p->kind == KIND_DECODE && flags & TF_LAST_JOINS;
    /* part_join.c reads a mate's sums in the last pass only. (With a phase that LLVM knows it takes the mate's memory
    ** for the own one, and loads end in an access error.) */
    bool halves = p->images && plan_join_passes(p) > 1;
    p->neighbours = !joins ? 0 : flags & TF_CLUSTER && !halves ? CLUSTER_CTAS : 1;
    plan_because(
        p, "neighbours", "%s",
        p->neighbours > 1 ? "two splits meet in the shared memory of a cluster: no second launch"
        : halves
            ? "a row's sums go through shared memory in two halves, which two CTAs cannot share"
            : "the last CTA of a row's splits joins them where they are few");
}
