/* SPDX-License-Identifier: Apache-2.0 */
/*
** kb_atomic.c - 64-bit numbers in global memory that the CTAs of a launch change together.
*/
#include "kb_internal.h"

#include <string.h>

static unsigned scope(struct kb *k)
{
    const char *name = k->target->ops->device_scope;
    return LLVMGetSyncScopeID(k->ctx, name, strlen(name));
}

/* Nothing is emitted where an operand is missing; the error is kept. */
static bool missing(struct kb *k, val at, val x)
{
    if (at && x)
        return false;
    kb_fail(k, "an atomic operation: missing operand");
    return true;
}

/* Of its own: some targets' additions have no order, whatever is asked for. */
static void fence(struct kb *k)
{
    LLVMBuildFenceSyncScope(k->builder, LLVMAtomicOrderingAcquireRelease, scope(k), "");
}

void kb_atomic_fence(struct kb *k) { fence(k); }

val kb_atomic_get(struct kb *k, val at)
{
    val x = kb_load(k, KB_I64, at, 8);
    if (!at)
        return x;
    LLVMSetOrdering(x, LLVMAtomicOrderingMonotonic);
    LLVMSetAtomicSyncScopeID(x, scope(k));
    return x;
}

void kb_atomic_set(struct kb *k, val x, val at)
{
    if (missing(k, at, x))
        return;
    val store = LLVMBuildStore(k->builder, x, at);
    LLVMSetAlignment(store, 8);
    LLVMSetOrdering(store, LLVMAtomicOrderingMonotonic);
    LLVMSetAtomicSyncScopeID(store, scope(k));
}

val kb_atomic_add(struct kb *k, val at, val x)
{
    if (missing(k, at, x))
        return kb_i64(k, 0);
    fence(k);
    val before = LLVMBuildAtomicRMWSyncScope(k->builder, LLVMAtomicRMWBinOpAdd, at, x,
                                             LLVMAtomicOrderingMonotonic, scope(k));
    fence(k);
    return before;
}

void kb_atomic_replace(struct kb *k, val at, val before, val x)
{
    if (missing(k, at, x) || missing(k, before, x))
        return;
    LLVMBuildAtomicCmpXchgSyncScope(k->builder, at, before, x, LLVMAtomicOrderingMonotonic,
                                    LLVMAtomicOrderingMonotonic, scope(k));
}
