/* SPDX-License-Identifier: Apache-2.0 */
/*
** kb_flow.c - structured control flow. Blocks are only ever made here, so every function the
** builder emits is a tree of ifs and loops. A loop tests at its head: its state has one phi a
** value, and its values after the loop are those phis.
*/
#include "kb_internal.h"

#include <stdlib.h>

static LLVMBasicBlockRef new_block(struct kb *k, const char *name)
{
    return LLVMAppendBasicBlockInContext(k->ctx, k->function, name);
}
static LLVMBasicBlockRef here(struct kb *k) { return LLVMGetInsertBlock(k->builder); }

struct kb_if kb_if(struct kb *k, val cond)
{
    if (!cond) {
        kb_fail(k, "kb_if: missing condition");
        cond = kb_i1(k, 0);
    }
    LLVMBasicBlockRef then = new_block(k, "then"), join = new_block(k, "join");
    struct kb_if i = {.join = join, .else_end = here(k)};
    LLVMBuildCondBr(k->builder, cond, then, join);
    LLVMPositionBuilderAtEnd(k->builder, then);
    return i;
}

void kb_else(struct kb *k, struct kb_if *i)
{
    /* the branch made by kb_if went to the join: point it to a new block instead */
    LLVMBasicBlockRef otherwise = new_block(k, "else");
    LLVMSetSuccessor(LLVMGetBasicBlockTerminator(i->else_end), 1, otherwise);
    i->then_end = here(k);
    LLVMBuildBr(k->builder, i->join);
    LLVMPositionBuilderAtEnd(k->builder, otherwise);
    i->else_end = NULL;
}

void kb_endif(struct kb *k, struct kb_if *i)
{
    if (i->then_end)
        i->else_end = here(k);
    else
        i->then_end = here(k);
    LLVMBuildBr(k->builder, i->join);
    LLVMPositionBuilderAtEnd(k->builder, i->join);
}

val kb_merge(struct kb *k, const struct kb_if *i, val from_then, val from_else)
{
    if (!from_then || !from_else || LLVMTypeOf(from_then) != LLVMTypeOf(from_else)) {
        kb_fail(k, "kb_merge: values are missing or of different types");
        return kb_i32(k, 0);
    }
    val phi = LLVMBuildPhi(k->builder, LLVMTypeOf(from_then), "");
    LLVMAddIncoming(phi, (val[]){from_then, from_else},
                    (LLVMBasicBlockRef[]){i->then_end, i->else_end}, 2);
    return phi;
}

void kb_loop_begin(struct kb *k, struct kb_loop *loop, val *state, int n)
{
    LLVMBasicBlockRef before = here(k);
    loop->head = new_block(k, "loop");
    loop->body = new_block(k, "body");
    loop->exit = new_block(k, "done");
    loop->state = state;
    loop->n = n;
    loop->rolled = false;
    loop->phi = calloc((size_t)n, sizeof *loop->phi);
    LLVMBuildBr(k->builder, loop->head);
    LLVMPositionBuilderAtEnd(k->builder, loop->head);
    if (!loop->phi) {
        kb_fail(k, "out of memory");
        return;
    }
    for (int i = 0; i < n; i++)
        if (state[i]) {
            loop->phi[i] = LLVMBuildPhi(k->builder, LLVMTypeOf(state[i]), "");
            LLVMAddIncoming(loop->phi[i], &state[i], &before, 1);
            state[i] = loop->phi[i];
        }
}

void kb_loop_while(struct kb *k, struct kb_loop *loop, val cond)
{
    LLVMBuildCondBr(k->builder, cond ? cond : kb_i1(k, 0), loop->body, loop->exit);
    LLVMPositionBuilderAtEnd(k->builder, loop->body);
}

/* What the PTX printer looks for. (A loop's identity proper would name itself as its first part.) */
static void forbid_unrolling(struct kb *k, val branch)
{
    static const char property[] = "llvm.loop.unroll.disable";
    LLVMMetadataRef text = LLVMMDStringInContext2(k->ctx, property, sizeof property - 1);
    LLVMMetadataRef empty = LLVMMDNodeInContext2(k->ctx, NULL, 0);
    LLVMMetadataRef parts[2] = {empty, LLVMMDNodeInContext2(k->ctx, &text, 1)};
    LLVMMetadataRef node = LLVMMDNodeInContext2(k->ctx, parts, 2);
    LLVMSetMetadata(branch, LLVMGetMDKindIDInContext(k->ctx, "llvm.loop", 9),
                    LLVMMetadataAsValue(k->ctx, node));
}

void kb_loop_end(struct kb *k, struct kb_loop *loop)
{
    LLVMBasicBlockRef last = here(k);
    val branch = LLVMBuildBr(k->builder, loop->head);
    if (loop->rolled)
        forbid_unrolling(k, branch);
    for (int i = 0; loop->phi && i < loop->n; i++)
        if (loop->phi[i]) {
            if (LLVMTypeOf(loop->phi[i]) != LLVMTypeOf(loop->state[i]))
                kb_fail(k, "loop value %d changes its type", i);
            else
                LLVMAddIncoming(loop->phi[i], &loop->state[i], &last, 1);
            loop->state[i] = loop->phi[i];
        }
    free(loop->phi);
    loop->phi = NULL;
    LLVMPositionBuilderAtEnd(k->builder, loop->exit);
}

void kb_return_if(struct kb *k, val cond)
{
    LLVMBasicBlockRef leave = new_block(k, "leave"), stay = new_block(k, "stay");
    LLVMBuildCondBr(k->builder, cond ? cond : kb_i1(k, 0), leave, stay);
    LLVMPositionBuilderAtEnd(k->builder, leave);
    LLVMBuildRetVoid(k->builder);
    LLVMPositionBuilderAtEnd(k->builder, stay);
}

/* A block of its own: loads that LLVM takes for those of constants stay behind it. */
bool kb_grid_wait(struct kb *k)
{
    if (!(k->target->flags & TF_GRID_WAIT))
        return false;
    k->target->ops->grid_wait(k);
    k->waited = true;
    LLVMBasicBlockRef after = new_block(k, "begin");
    LLVMBuildBr(k->builder, after);
    LLVMPositionBuilderAtEnd(k->builder, after);
    return true;
}
