/* SPDX-License-Identifier: Apache-2.0 */
/*
** kb_mem.c - memory, the entry point, and the roles that a target fills.
*/
#include "kb_internal.h"

#include "abi_table.h"

#include <stdio.h>
#include <string.h>

/* ---- memory ---- */

val kb_offset(struct kb *k, val pointer, val bytes)
{
    if (!pointer || !bytes) {
        kb_fail(k, "kb_offset: missing operand");
        return pointer;
    }
    int space = kb_type_of(k, pointer);
    if (kb_type_of(k, bytes) == KB_I32 && space != KB_SHARED)
        bytes = kb_sext(k, bytes, KB_I64);
    return LLVMBuildGEP2(k->builder, kb_llvm_type(k, KB_I8), pointer, &bytes, 1, "");
}

val kb_offseti(struct kb *k, val pointer, long long bytes)
{
    if (!bytes)
        return pointer;
    return kb_offset(k, pointer,
                     kb_type_of(k, pointer) == KB_SHARED ? kb_i32(k, bytes) : kb_i64(k, bytes));
}

val kb_load(struct kb *k, int type, val pointer, int align)
{
    if (!pointer) {
        kb_fail(k, "kb_load: missing pointer");
        return kb_const(k, type, 0);
    }
    val x = LLVMBuildLoad2(k->builder, kb_llvm_type(k, type), pointer, "");
    LLVMSetAlignment(x, (unsigned)align);
    return x;
}

val kb_load_once(struct kb *k, int type, val pointer, int align)
{
    val x = kb_load(k, type, pointer, align);
    if (LLVMIsALoadInst(x)) {
        LLVMMetadataRef empty = LLVMMDNodeInContext2(k->ctx, NULL, 0);
        LLVMSetMetadata(x, LLVMGetMDKindIDInContext(k->ctx, "invariant.load", 14),
                        LLVMMetadataAsValue(k->ctx, empty));
    }
    return x;
}

void kb_store(struct kb *k, val x, val pointer, int align)
{
    if (!x || !pointer) {
        kb_fail(k, "kb_store: missing operand");
        return;
    }
    LLVMSetAlignment(LLVMBuildStore(k->builder, x, pointer), (unsigned)align);
}

val kb_address(struct kb *k, val pointer)
{
    int type = kb_type_of(k, pointer) == KB_SHARED ? KB_I32 : KB_I64;
    return LLVMBuildPtrToInt(k->builder, pointer, kb_llvm_type(k, type), "");
}

val kb_address_bits(struct kb *k, val pointer, int mask)
{
    val all = LLVMBuildPtrToInt(k->builder, pointer, kb_llvm_type(k, KB_I32), "");
    return kb_andi(k, all, mask);
}

val kb_generic(struct kb *k, val pointer)
{
    return LLVMBuildAddrSpaceCast(k->builder, pointer, LLVMPointerTypeInContext(k->ctx, 0), "");
}

val kb_table_word(struct kb *k, val base, val offset)
{
    if (k->target->ops->table_word)
        return k->target->ops->table_word(k, kb_address(k, base), offset);
    return kb_load(k, KB_I32, kb_offset(k, base, offset), 4);
}

val kb_distance(struct kb *k, val from, val to)
{
    LLVMTypeRef type = kb_llvm_type(k, KB_I64);
    val a = LLVMBuildPtrToInt(k->builder, from, type, "");
    val b = LLVMBuildPtrToInt(k->builder, to, type, "");
    return kb_sub(k, b, a);
}

val kb_is_null(struct kb *k, val pointer) { return LLVMBuildIsNull(k->builder, pointer, ""); }

val kb_shared(struct kb *k, size_t bytes, int align)
{
    size_t at = (k->shared_used + (size_t)align - 1) / (size_t)align * (size_t)align;
    k->shared_used = at + bytes;
    if (k->shared_used > (size_t)k->target->shared_bytes)
        kb_fail(k, "%zu bytes of shared memory, %s has %d", k->shared_used, k->target->name,
                k->target->shared_bytes);
    return kb_offseti(k, k->shared_base, (long long)at);
}

size_t kb_shared_used(struct kb *k) { return k->shared_used; }

val kb_table(struct kb *k, const char *name, const void *data, size_t bytes, int align)
{
    char symbol[64];
    snprintf(symbol, sizeof symbol, "%s.%d", name, k->tables++);
    for (char *p = symbol; *p; p++)
        if (*p == '.')
            *p = '_'; /* PTX names have no dots */
    LLVMTypeRef words = LLVMArrayType2(kb_llvm_type(k, KB_I8), bytes);
    val global =
        LLVMAddGlobalInAddressSpace(k->module, words, symbol, (unsigned)k->target->ops->as_const);
    LLVMSetInitializer(global, LLVMConstStringInContext2(k->ctx, data, bytes, 1));
    LLVMSetGlobalConstant(global, 1);
    LLVMSetLinkage(global, LLVMInternalLinkage);
    LLVMSetAlignment(global, (unsigned)align);
    return global;
}

/* ---- the entry point ---- */

void kb_open(struct kb *k, LLVMContextRef ctx, LLVMModuleRef module, const struct target *target,
             const struct plan *plan, kvk_error *err)
{
    *k = (struct kb){.ctx = ctx, .module = module, .target = target, .plan = plan, .err = err};
    k->builder = LLVMCreateBuilderInContext(ctx);
}

void kb_close(struct kb *k) { LLVMDisposeBuilder(k->builder); }

void kb_entry_begin(struct kb *k, const char *symbol, const char *abi, int threads)
{
    const struct target_ops *ops = k->target->ops;
    const char *names[ABI_MOST_PARAMS + 1];
    int types[ABI_MOST_PARAMS + 1], offsets[ABI_MOST_PARAMS + 1];
    if (abi_params(abi, names, types, offsets, ABI_MOST_PARAMS + 1) > ABI_MOST_PARAMS)
        kb_fail(k, "abi.def: %s has more than %d parameters", abi, ABI_MOST_PARAMS);
    if (abi_bytes(abi) % 8)
        kb_fail(k, "abi.def: %s has %d bytes of parameters, no multiple of 8", abi, abi_bytes(abi));
    k->nparams = 0;
    k->shared_used = 0;
    k->waited = false;
    k->team = 0;
    ops->entry(k, symbol, abi, threads);
    k->shared_base = ops->shared_base(k);
    k->tid = ops->tid(k);
    k->cta = ops->cta(k);
    k->lane = kb_andi(k, k->tid, k->target->warp - 1);
    k->warp = ops->uniform(k, kb_divi(k, k->tid, k->target->warp));
}

void kb_entry_end(struct kb *k)
{
    LLVMBuildRetVoid(k->builder);
    if (k->target->ops->finish)
        k->target->ops->finish(k);
}

void kb_bind_param(struct kb *k, const char *name, val value)
{
    if (k->nparams == KB_MAX_PARAMS) {
        kb_fail(k, "too many parameters");
        return;
    }
    k->params[k->nparams].name = name;
    k->params[k->nparams++].value = value;
}

val kb_param(struct kb *k, const char *name)
{
    for (int i = 0; i < k->nparams; i++)
        if (!strcmp(k->params[i].name, name))
            return k->params[i].value;
    kb_fail(k, "no parameter %s", name);
    return kb_i32(k, 0);
}

val kb_function(struct kb *k, const char *symbol, const int *params, int nparams)
{
    LLVMTypeRef types[KB_MAX_PARAMS];
    for (int i = 0; i < nparams && i < KB_MAX_PARAMS; i++)
        types[i] = kb_llvm_type(k, params[i]);
    LLVMTypeRef type = LLVMFunctionType(kb_llvm_type(k, KB_VOID), types, (unsigned)nparams, 0);
    k->function = LLVMAddFunction(k->module, symbol, type);
    LLVMBasicBlockRef entry = LLVMAppendBasicBlockInContext(k->ctx, k->function, "entry");
    LLVMPositionBuilderAtEnd(k->builder, entry);
    return k->function;
}

void kb_attribute(struct kb *k, val function, const char *key, const char *value)
{
    LLVMAttributeRef a = LLVMCreateStringAttribute(k->ctx, key, (unsigned)strlen(key), value,
                                                   (unsigned)strlen(value));
    LLVMAddAttributeAtIndex(function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, a);
}

val kb_tid(struct kb *k) { return k->tid; }
val kb_lane(struct kb *k) { return k->lane; }
val kb_warp(struct kb *k) { return k->warp; }
val kb_cta(struct kb *k) { return k->cta; }
int kb_warp_size(struct kb *k) { return k->target->warp; }

/* ---- roles ---- */

/* A word of a pointer to shared memory, and back. */
static val through_word(struct kb *k, val x, val (*op)(struct kb *k, val x))
{
    if (!op || kb_type_of(k, x) != KB_SHARED)
        return op ? op(k, x) : x;
    val word = op(k, kb_address(k, x));
    return LLVMBuildIntToPtr(k->builder, word, kb_llvm_type(k, KB_SHARED), "");
}

val kb_uniform(struct kb *k, val x) { return through_word(k, x, k->target->ops->uniform); }
val kb_held(struct kb *k, val x) { return through_word(k, x, k->target->ops->held); }

void kb_bulk_init(struct kb *k, val bar, val arrivals)
{
    k->target->ops->bulk_init(k, bar, arrivals);
}
void kb_bulk_expect(struct kb *k, val bar, val bytes)
{
    k->target->ops->bulk_expect(k, bar, bytes);
}
void kb_bulk_copy(struct kb *k, val to, val from, val bytes, val bar)
{
    k->target->ops->bulk_copy(k, to, from, bytes, bar);
}
void kb_tensor_begin(struct kb *k) { k->target->ops->tensor_begin(k); }
void kb_tensor_copy(struct kb *k, val to, const val at[KB_TENSOR_DIMS], val bar)
{
    k->target->ops->tensor_copy(k, to, at, bar);
}
void kb_bulk_wait(struct kb *k, val bar, val phase) { k->target->ops->bulk_wait(k, bar, phase); }
void kb_bulk_settle(struct kb *k, val x) { k->target->ops->bulk_settle(k, x); }
val kb_elect(struct kb *k)
{
    return k->target->ops->elect ? k->target->ops->elect(k) : kb_icmpi(k, KB_EQ, k->lane, 0);
}

val kb_funnel(struct kb *k, val lo, val hi, val shift)
{
    return KB_CALL_T("llvm.fshr", KB_I32, hi, lo, shift);
}

val kb_warp_sum(struct kb *k, val x)
{
    if (k->target->ops->warp_sum)
        return k->target->ops->warp_sum(k, x);
    for (int mask = 1; mask < k->target->warp; mask *= 2)
        x = kb_add(k, x, kb_shuffle_xor(k, x, mask));
    return x;
}

val kb_warp_most(struct kb *k, val x)
{
    if (k->target->ops->warp_most)
        return k->target->ops->warp_most(k, x);
    for (int mask = 1; mask < k->target->warp; mask *= 2) {
        val other = kb_shuffle_xor(k, x, mask);
        x = kb_select(k, kb_icmp(k, KB_ULT, x, other), other, x);
    }
    return x;
}

val kb_any(struct kb *k, val cond)
{
    if (k->target->ops->any)
        return k->target->ops->any(k, cond);
    val bits = kb_zext(k, cond, KB_I32);
    for (int mask = 1; mask < k->target->warp; mask *= 2)
        bits = kb_or(k, bits, kb_shuffle_xor(k, bits, mask));
    return kb_icmpi(k, KB_NE, bits, 0);
}

val kb_bit_select(struct kb *k, unsigned mask, val x, val y)
{
    if (k->target->ops->bit_select)
        return k->target->ops->bit_select(k, mask, x, y);
    val own = kb_andi(k, x, (int)mask), other = kb_andi(k, y, (int)~mask);
    return kb_or(k, own, other);
}

val kb_mask_merge(struct kb *k, val x, unsigned mask, unsigned bits)
{
    if (k->target->ops->mask_merge)
        return k->target->ops->mask_merge(k, x, mask, bits);
    return kb_or(k, kb_andi(k, x, (int)mask), kb_i32(k, (int)bits));
}

val kb_fp8_pair(struct kb *k, bool e5m2, val bytes)
{
    bool there = k->target->flags & TF_FP8_CVT && k->target->ops->fp8_pair;
    return there ? k->target->ops->fp8_pair(k, e5m2, bytes) : NULL;
}

val kb_opaque(struct kb *k, val x) { return k->target->ops->opaque(k, x); }
void kb_team(struct kb *k, int threads) { k->team = threads; }

void kb_barrier(struct kb *k)
{
    if (k->team)
        k->target->ops->team_barrier(k, k->team);
    else
        k->target->ops->barrier(k);
}
void kb_warp_sync(struct kb *k) { k->target->ops->warp_sync(k); }

void kb_cluster_barrier(struct kb *k)
{
    if (k->target->flags & TF_CLUSTER)
        k->target->ops->cluster_barrier(k);
    else
        kb_barrier(k);
}

val kb_neighbour(struct kb *k, val generic, val rank)
{
    return k->target->flags & TF_CLUSTER ? k->target->ops->neighbour(k, generic, rank) : generic;
}

static val as_word(struct kb *k, val x, bool *is_float)
{
    *is_float = x && kb_type_of(k, x) == KB_F32;
    if (!x || (!*is_float && kb_type_of(k, x) != KB_I32)) {
        kb_fail(k, "a shuffle moves i32 or f32");
        return kb_i32(k, 0);
    }
    return *is_float ? kb_bitcast(k, x, KB_I32) : x;
}

val kb_shuffle_xor(struct kb *k, val x, int mask)
{
    bool is_float;
    val word = as_word(k, x, &is_float);
    val r = k->target->ops->shuffle_xor(k, word, mask);
    return is_float ? kb_bitcast(k, r, KB_F32) : r;
}

val kb_shuffle(struct kb *k, val x, val lane)
{
    bool is_float;
    val word = as_word(k, x, &is_float);
    val r = k->target->ops->shuffle(k, word, lane);
    return is_float ? kb_bitcast(k, r, KB_F32) : r;
}

val kb_exp2(struct kb *k, val x) { return k->target->ops->exp2(k, x); }
val kb_log2(struct kb *k, val x) { return k->target->ops->log2(k, x); }
val kb_rsqrt(struct kb *k, val x) { return k->target->ops->rsqrt(k, x); }
val kb_rcp(struct kb *k, val x) { return k->target->ops->rcp(k, x); }

/* ---- for targets ---- */

val kb_intrinsic(struct kb *k, const char *name, const int *overloads, int noverloads,
                 const val *args, int nargs)
{
    LLVMTypeRef types[4];
    for (int i = 0; i < noverloads && i < 4; i++)
        types[i] = kb_llvm_type(k, overloads[i]);
    for (int i = 0; i < nargs; i++)
        if (!args[i]) {
            kb_fail(k, "%s: operand %d is missing", name, i);
            return kb_i32(k, 0);
        }
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    if (!id) {
        kb_fail(k, "unknown intrinsic %s", name);
        return kb_i32(k, 0);
    }
    val f = LLVMGetIntrinsicDeclaration(k->module, id, types, (size_t)noverloads);
    LLVMTypeRef type = LLVMIntrinsicGetType(k->ctx, id, types, (size_t)noverloads);
    if (LLVMCountParamTypes(type) != (unsigned)nargs) {
        kb_fail(k, "%s takes %u operands, not %d", name, LLVMCountParamTypes(type), nargs);
        return kb_i32(k, 0);
    }
    return LLVMBuildCall2(k->builder, type, f, (val *)args, (unsigned)nargs, "");
}

val kb_asm(struct kb *k, int result, const val *args, int nargs, const char *text,
           const char *constraints, bool effects)
{
    LLVMTypeRef types[16];
    if (nargs > 16)
        kb_fail(k, "%d operands of inline assembly", nargs);
    for (int i = 0; i < nargs && i < 16; i++)
        types[i] = LLVMTypeOf(args[i]);
    char all[128];
    snprintf(all, sizeof all, "%s%s%s", constraints, effects && *constraints ? "," : "",
             effects ? "~{memory}" : "");
    LLVMTypeRef type = LLVMFunctionType(kb_llvm_type(k, result), types, (unsigned)nargs, 0);
    val callee = LLVMGetInlineAsm(type, text, strlen(text), all, strlen(all), effects, 0,
                                  LLVMInlineAsmDialectATT, 0);
    val call = LLVMBuildCall2(k->builder, type, callee, (val *)args, (unsigned)nargs, "");
    if (effects) {
        unsigned kind = LLVMGetEnumAttributeKindForName("convergent", 10);
        LLVMAddCallSiteAttribute(call, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                                 LLVMCreateEnumAttribute(k->ctx, kind, 0));
    }
    return call;
}
