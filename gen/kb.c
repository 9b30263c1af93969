/* SPDX-License-Identifier: Apache-2.0 */
/*
** kb.c - the builder's core: state, types, constants, arithmetic, conversion. Control flow is in
** kb_flow.c, memory and the machine's roles in kb_mem.c.
**
** Every operation checks that its operands exist and agree in type before it calls LLVM, whose own
** checks are compiled out of release packages: a template's slip becomes an error with its file and
** line instead of a crash.
*/
#include "kb_internal.h"

#include "../runtime/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct kb *kb_at(struct kb *k, const char *file, int line)
{
    k->file = file;
    k->line = line;
    return k;
}

const struct plan *kb_plan(struct kb *k) { return k->plan; }
const struct target *kb_target(struct kb *k) { return k->target; }

const struct matrix_ops *kb_matrix(struct kb *k)
{
    if (k->plan->narrow > 1)
        return &matrix_tiles;
    return k->plan->narrow ? k->target->ops->narrow : k->target->ops->matrix;
}
void *kb_llvm_builder(struct kb *k) { return k->builder; }
void *kb_llvm_module(struct kb *k) { return k->module; }
void *kb_llvm_context(struct kb *k) { return k->ctx; }

void kb_fail(struct kb *k, const char *format, ...)
{
    if (k->status)
        return;
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *slash = k->file ? strrchr(k->file, '/') : NULL;
    const char *file = slash ? slash + 1 : k->file ? k->file : "?";
    k->status = ERR(k->err, KVK_E_INTERNAL, "%s:%d: %s", file, k->line, text);
}

/* ---- types ---- */

static LLVMTypeRef scalar_type(struct kb *k, int type)
{
    const struct target_ops *ops = k->target->ops;
    switch (type) {
    case KB_VOID: return LLVMVoidTypeInContext(k->ctx);
    case KB_I1: return LLVMInt1TypeInContext(k->ctx);
    case KB_I8: return LLVMInt8TypeInContext(k->ctx);
    case KB_I16: return LLVMInt16TypeInContext(k->ctx);
    case KB_I32: return LLVMInt32TypeInContext(k->ctx);
    case KB_I64: return LLVMInt64TypeInContext(k->ctx);
    case KB_F16: return LLVMHalfTypeInContext(k->ctx);
    case KB_BF16: return LLVMBFloatTypeInContext(k->ctx);
    case KB_F32: return LLVMFloatTypeInContext(k->ctx);
    case KB_GLOBAL: return LLVMPointerTypeInContext(k->ctx, (unsigned)ops->as_global);
    case KB_SHARED: return LLVMPointerTypeInContext(k->ctx, (unsigned)ops->as_shared);
    case KB_ANY: return LLVMPointerTypeInContext(k->ctx, 0);
    case KB_CONST: return LLVMPointerTypeInContext(k->ctx, (unsigned)ops->as_const);
    }
    kb_fail(k, "unknown type %d", type);
    return LLVMInt32TypeInContext(k->ctx);
}

void *kb_llvm_type(struct kb *k, int type)
{
    LLVMTypeRef t = scalar_type(k, type & 255);
    return type >> 8 ? LLVMVectorType(t, (unsigned)type >> 8) : t;
}

static int scalar_code(struct kb *k, LLVMTypeRef t)
{
    switch (LLVMGetTypeKind(t)) {
    case LLVMHalfTypeKind: return KB_F16;
    case LLVMBFloatTypeKind: return KB_BF16;
    case LLVMFloatTypeKind: return KB_F32;
    case LLVMIntegerTypeKind:
        switch (LLVMGetIntTypeWidth(t)) {
        case 1: return KB_I1;
        case 8: return KB_I8;
        case 16: return KB_I16;
        case 32: return KB_I32;
        case 64: return KB_I64;
        }
        break;
    case LLVMPointerTypeKind: {
        int space = (int)LLVMGetPointerAddressSpace(t);
        const struct target_ops *ops = k->target->ops;
        return space == ops->as_shared ? KB_SHARED : space == ops->as_global ? KB_GLOBAL : KB_CONST;
    }
    default: break;
    }
    return KB_VOID;
}

int kb_type_of(struct kb *k, val x)
{
    LLVMTypeRef t = LLVMTypeOf(x);
    if (LLVMGetTypeKind(t) == LLVMVectorTypeKind)
        return KB_VEC(scalar_code(k, LLVMGetElementType(t)), (int)LLVMGetVectorSize(t));
    return scalar_code(k, t);
}

/* A usable stand-in after an error. */
static val dummy(struct kb *k) { return LLVMConstInt(LLVMInt32TypeInContext(k->ctx), 0, 0); }

static bool both(struct kb *k, val a, val b, const char *what)
{
    if (!a || !b) {
        kb_fail(k, "%s: missing operand", what);
        return false;
    }
    if (LLVMTypeOf(a) != LLVMTypeOf(b)) {
        char *x = LLVMPrintTypeToString(LLVMTypeOf(a)), *y = LLVMPrintTypeToString(LLVMTypeOf(b));
        kb_fail(k, "%s: operands are %s and %s", what, x, y);
        LLVMDisposeMessage(x);
        LLVMDisposeMessage(y);
        return false;
    }
    return true;
}

static bool one(struct kb *k, val a, const char *what)
{
    if (!a)
        kb_fail(k, "%s: missing operand", what);
    return a != NULL;
}

/* ---- constants ---- */

static val integer(struct kb *k, LLVMTypeRef t, long long x)
{
    (void)k;
    return LLVMConstInt(t, (unsigned long long)x, 1);
}

val kb_i1(struct kb *k, bool x) { return integer(k, LLVMInt1TypeInContext(k->ctx), x); }
val kb_i8(struct kb *k, int x) { return integer(k, LLVMInt8TypeInContext(k->ctx), x); }
val kb_i16(struct kb *k, int x) { return integer(k, LLVMInt16TypeInContext(k->ctx), x); }
val kb_i32(struct kb *k, long long x) { return integer(k, LLVMInt32TypeInContext(k->ctx), x); }
val kb_i64(struct kb *k, long long x) { return integer(k, LLVMInt64TypeInContext(k->ctx), x); }
val kb_f32(struct kb *k, double x)
{
    return LLVMConstReal(LLVMFloatTypeInContext(k->ctx), (float)x);
}

val kb_f32_bits(struct kb *k, unsigned bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return kb_f32(k, f);
}

static val constant_of(struct kb *k, LLVMTypeRef t, long long x)
{
    if (LLVMGetTypeKind(t) == LLVMVectorTypeKind) {
        val e[16];
        unsigned n = LLVMGetVectorSize(t);
        for (unsigned i = 0; i < n && i < 16; i++)
            e[i] = constant_of(k, LLVMGetElementType(t), x);
        return LLVMConstVector(e, n);
    }
    switch (LLVMGetTypeKind(t)) {
    case LLVMIntegerTypeKind: return integer(k, t, x);
    case LLVMHalfTypeKind:
    case LLVMBFloatTypeKind:
    case LLVMFloatTypeKind: return LLVMConstReal(t, (double)x);
    default: kb_fail(k, "no constant of this type"); return dummy(k);
    }
}

val kb_const(struct kb *k, int type, long long x)
{
    return constant_of(k, kb_llvm_type(k, type), x);
}
val kb_f16x2(struct kb *k, unsigned bits)
{
    return LLVMConstBitCast(kb_i32(k, bits), kb_llvm_type(k, KB_VEC(KB_F16, 2)));
}
val kb_undef(struct kb *k, int type) { return LLVMGetPoison(kb_llvm_type(k, type)); }

/* ---- arithmetic ---- */

#define BINARY(name, build)                                                                        \
    val name(struct kb *k, val a, val b)                                                           \
    {                                                                                              \
        return both(k, a, b, #name) ? build(k->builder, a, b, "") : dummy(k);                      \
    }

BINARY(kb_add, LLVMBuildAdd)
BINARY(kb_sub, LLVMBuildSub)
BINARY(kb_mul, LLVMBuildMul)
BINARY(kb_udiv, LLVMBuildUDiv)
BINARY(kb_urem, LLVMBuildURem)
BINARY(kb_and, LLVMBuildAnd)
BINARY(kb_or, LLVMBuildOr)
BINARY(kb_xor, LLVMBuildXor)
BINARY(kb_shl, LLVMBuildShl)
BINARY(kb_lshr, LLVMBuildLShr)
BINARY(kb_ashr, LLVMBuildAShr)
BINARY(kb_fadd, LLVMBuildFAdd)
BINARY(kb_fsub, LLVMBuildFSub)
BINARY(kb_fmul, LLVMBuildFMul)
BINARY(kb_fdiv, LLVMBuildFDiv)

static val immediate(struct kb *k, val a, long long x)
{
    return a ? constant_of(k, LLVMTypeOf(a), x) : dummy(k);
}

val kb_addi(struct kb *k, val a, long long x) { return x ? kb_add(k, a, immediate(k, a, x)) : a; }
val kb_muli(struct kb *k, val a, long long x)
{
    return x == 1 ? a : kb_mul(k, a, immediate(k, a, x));
}
val kb_andi(struct kb *k, val a, long long x) { return kb_and(k, a, immediate(k, a, x)); }
val kb_shli(struct kb *k, val a, int x) { return x ? kb_shl(k, a, immediate(k, a, x)) : a; }
val kb_lshri(struct kb *k, val a, int x) { return x ? kb_lshr(k, a, immediate(k, a, x)) : a; }
val kb_divi(struct kb *k, val a, long long x)
{
    return x == 1 ? a : kb_udiv(k, a, immediate(k, a, x));
}
val kb_remi(struct kb *k, val a, long long x) { return kb_urem(k, a, immediate(k, a, x)); }

val kb_icmp(struct kb *k, enum kb_pred pred, val a, val b)
{
    static const LLVMIntPredicate map[] = {
        [KB_EQ] = LLVMIntEQ,   [KB_NE] = LLVMIntNE,   [KB_SLT] = LLVMIntSLT, [KB_SLE] = LLVMIntSLE,
        [KB_SGT] = LLVMIntSGT, [KB_SGE] = LLVMIntSGE, [KB_ULT] = LLVMIntULT, [KB_ULE] = LLVMIntULE,
        [KB_UGT] = LLVMIntUGT, [KB_UGE] = LLVMIntUGE};
    return both(k, a, b, "kb_icmp") ? LLVMBuildICmp(k->builder, map[pred], a, b, "") : kb_i1(k, 0);
}

val kb_icmpi(struct kb *k, enum kb_pred pred, val a, long long x)
{
    return kb_icmp(k, pred, a, immediate(k, a, x));
}

val kb_fcmp(struct kb *k, enum kb_fpred pred, val a, val b)
{
    static const LLVMRealPredicate map[] = {
        [KB_OEQ] = LLVMRealOEQ, [KB_ONE] = LLVMRealONE, [KB_OLT] = LLVMRealOLT,
        [KB_OLE] = LLVMRealOLE, [KB_OGT] = LLVMRealOGT, [KB_OGE] = LLVMRealOGE,
        [KB_ORD] = LLVMRealORD, [KB_UNO] = LLVMRealUNO};
    return both(k, a, b, "kb_fcmp") ? LLVMBuildFCmp(k->builder, map[pred], a, b, "") : kb_i1(k, 0);
}

val kb_select(struct kb *k, val cond, val a, val b)
{
    return one(k, cond, "kb_select") && both(k, a, b, "kb_select")
               ? LLVMBuildSelect(k->builder, cond, a, b, "")
               : dummy(k);
}

val kb_not(struct kb *k, val cond)
{
    return one(k, cond, "kb_not") ? LLVMBuildNot(k->builder, cond, "") : kb_i1(k, 0);
}

static val min_max(struct kb *k, val a, val b, LLVMIntPredicate pred)
{
    if (!both(k, a, b, "min/max"))
        return dummy(k);
    val c = LLVMBuildICmp(k->builder, pred, a, b, "");
    return LLVMBuildSelect(k->builder, c, a, b, "");
}

val kb_smin(struct kb *k, val a, val b) { return min_max(k, a, b, LLVMIntSLT); }
val kb_smax(struct kb *k, val a, val b) { return min_max(k, a, b, LLVMIntSGT); }

static val fmin_fmax(struct kb *k, val a, val b, LLVMRealPredicate pred)
{
    if (!both(k, a, b, "fmin/fmax"))
        return dummy(k);
    val c = LLVMBuildFCmp(k->builder, pred, a, b, "");
    return LLVMBuildSelect(k->builder, c, a, b, "");
}

val kb_fmin(struct kb *k, val a, val b) { return fmin_fmax(k, a, b, LLVMRealOLT); }
val kb_fmax(struct kb *k, val a, val b) { return fmin_fmax(k, a, b, LLVMRealOGT); }

static val unary_intrinsic(struct kb *k, const char *name, val a)
{
    return one(k, a, name) ? KB_CALL_T(name, kb_type_of(k, a), a) : dummy(k);
}

val kb_sqrt(struct kb *k, val a) { return unary_intrinsic(k, "llvm.sqrt", a); }
val kb_fabs(struct kb *k, val a) { return unary_intrinsic(k, "llvm.fabs", a); }
val kb_fneg(struct kb *k, val a)
{
    return one(k, a, "kb_fneg") ? LLVMBuildFNeg(k->builder, a, "") : dummy(k);
}

/* x86-64-v2 has roundss; the other targets have their own: no library call anywhere. */
val kb_floor(struct kb *k, val a) { return unary_intrinsic(k, "llvm.floor", a); }
val kb_trunc_f(struct kb *k, val a) { return unary_intrinsic(k, "llvm.trunc", a); }

val kb_fmaxnum(struct kb *k, val a, val b)
{
    if (!both(k, a, b, "kb_fmaxnum"))
        return dummy(k);
    /* select, not llvm.maxnum, where the target has no instruction of that meaning */
    return k->target->family == FAMILY_HOST ? kb_fmax(k, a, b)
                                            : KB_CALL_T("llvm.maxnum", kb_type_of(k, a), a, b);
}

static bool is_half(val a)
{
    LLVMTypeRef t = LLVMTypeOf(a);
    if (LLVMGetTypeKind(t) == LLVMVectorTypeKind)
        t = LLVMGetElementType(t);
    return LLVMGetTypeKind(t) == LLVMHalfTypeKind;
}

val kb_fma(struct kb *k, val a, val b, val c)
{
    if (!both(k, a, b, "kb_fma") || !both(k, a, c, "kb_fma"))
        return dummy(k);
    /* x86-64-v2 has no fma instruction, and of f16 LLVM would make a library call */
    bool halves = k->target->family == FAMILY_HOST && is_half(a);
    if (halves || (k->target->family == FAMILY_HOST && !(k->target->flags & TF_F16)))
        return kb_fadd(k, kb_fmul(k, a, b), c);
    return KB_CALL_T("llvm.fma", kb_type_of(k, a), a, b, c);
}

/* ---- conversion ---- */

#define CAST(name, build)                                                                          \
    val name(struct kb *k, val a, int type)                                                        \
    {                                                                                              \
        return one(k, a, #name) ? build(k->builder, a, kb_llvm_type(k, type), "") : dummy(k);      \
    }

CAST(kb_zext, LLVMBuildZExtOrBitCast)
CAST(kb_sext, LLVMBuildSExtOrBitCast)
CAST(kb_trunc, LLVMBuildTruncOrBitCast)
CAST(kb_bitcast, LLVMBuildBitCast)

val kb_uitofp(struct kb *k, val a)
{
    return one(k, a, "uitofp") ? LLVMBuildUIToFP(k->builder, a, kb_llvm_type(k, KB_F32), "")
                               : dummy(k);
}
val kb_sitofp(struct kb *k, val a)
{
    return one(k, a, "sitofp") ? LLVMBuildSIToFP(k->builder, a, kb_llvm_type(k, KB_F32), "")
                               : dummy(k);
}
val kb_fptoui(struct kb *k, val a)
{
    return one(k, a, "fptoui") ? LLVMBuildFPToUI(k->builder, a, kb_llvm_type(k, KB_I32), "")
                               : dummy(k);
}
val kb_fptosi(struct kb *k, val a)
{
    return one(k, a, "fptosi") ? LLVMBuildFPToSI(k->builder, a, kb_llvm_type(k, KB_I32), "")
                               : dummy(k);
}

val kb_to_f32(struct kb *k, val a)
{
    if (!one(k, a, "kb_to_f32"))
        return dummy(k);
    int type = kb_type_of(k, a);
    if (type == KB_BF16) { /* the upper half of an f32 */
        val wide = kb_zext(k, kb_bitcast(k, a, KB_I16), KB_I32);
        return kb_bitcast(k, kb_shli(k, wide, 16), KB_F32);
    }
    if (k->target->flags & TF_F16)
        return LLVMBuildFPExt(k->builder, a, kb_llvm_type(k, KB_F32), "");
    return kb_soft_f16_to_f32(k, kb_bitcast(k, a, KB_I16));
}

/* f32 bits -> bf16 bits in the low half: round to nearest even by adding just under half an ulp,
** NaN kept quiet. */
static val bf16_bits(struct kb *k, val x)
{
    val bits = kb_bitcast(k, x, KB_I32);
    val odd = kb_andi(k, kb_lshri(k, bits, 16), 1);
    val bias = kb_addi(k, odd, 0x7fff);
    val rounded = kb_lshri(k, kb_add(k, bits, bias), 16);
    val nan = kb_fcmp(k, KB_UNO, x, x);
    val quiet = kb_or(k, kb_lshri(k, bits, 16), kb_i32(k, 0x40));
    return kb_select(k, nan, quiet, rounded);
}

val kb_to_half(struct kb *k, val a, int type)
{
    if (!one(k, a, "kb_to_half"))
        return dummy(k);
    bool native = k->target->flags & (type == KB_F16 ? TF_F16 : TF_BF16_CVT);
    if (native)
        return LLVMBuildFPTrunc(k->builder, a, kb_llvm_type(k, type), "");
    val bits = type == KB_F16 ? kb_soft_f32_to_f16(k, a) : kb_trunc(k, bf16_bits(k, a), KB_I16);
    return kb_bitcast(k, bits, type);
}

val kb_pack_half(struct kb *k, val lo, val hi, int type)
{
    if (!both(k, lo, hi, "kb_pack_half"))
        return dummy(k);
    if (k->target->ops->pack_half)
        return k->target->ops->pack_half(k, lo, hi, type);
    val a = kb_bitcast(k, kb_to_half(k, lo, type), KB_I16);
    val b = kb_bitcast(k, kb_to_half(k, hi, type), KB_I16);
    val high = kb_shli(k, kb_zext(k, b, KB_I32), 16);
    return kb_or(k, kb_zext(k, a, KB_I32), high);
}

val kb_pack_finite(struct kb *k, val lo, val hi)
{
    bool there = k->target->flags & TF_FP8_CVT && k->target->ops->pack_finite;
    return there ? k->target->ops->pack_finite(k, lo, hi) : NULL;
}

/* ---- vectors ---- */

val kb_extract(struct kb *k, val v, int i)
{
    return one(k, v, "kb_extract") ? LLVMBuildExtractElement(k->builder, v, kb_i32(k, i), "")
                                   : dummy(k);
}

val kb_insert(struct kb *k, val v, val x, int i)
{
    return one(k, v, "kb_insert") && one(k, x, "kb_insert")
               ? LLVMBuildInsertElement(k->builder, v, x, kb_i32(k, i), "")
               : dummy(k);
}

val kb_vec(struct kb *k, const val *x, int n)
{
    if (!one(k, x[0], "kb_vec"))
        return dummy(k);
    val v = LLVMGetPoison(LLVMVectorType(LLVMTypeOf(x[0]), (unsigned)n));
    for (int i = 0; i < n; i++)
        v = kb_insert(k, v, x[i], i);
    return v;
}

val kb_byte_perm(struct kb *k, val a, val b, unsigned selector)
{
    if (!both(k, a, b, "kb_byte_perm"))
        return dummy(k);
    if (k->target->ops->byte_perm)
        return k->target->ops->byte_perm(k, a, b, selector);
    val r = NULL;
    for (int i = 0; i < 4; i++) {
        unsigned s = selector >> 4 * i & 7;
        val byte = kb_andi(k, kb_lshri(k, s < 4 ? a : b, (int)(8 * (s & 3))), 255);
        byte = kb_shli(k, byte, 8 * i);
        r = r ? kb_or(k, r, byte) : byte;
    }
    return r;
}

/* ---- software half conversion ---- */

/* Exact: the exponent is rebiased by a multiplication, which also normalises subnormals; infinities
** and NaNs are set apart. */
val kb_soft_f16_to_f32(struct kb *k, val i16)
{
    val h = kb_zext(k, i16, KB_I32);
    val sign = kb_shli(k, kb_andi(k, h, 0x8000), 16);
    val magnitude = kb_shli(k, kb_andi(k, h, 0x7fff), 13);
    val scaled =
        kb_fmul(k, kb_bitcast(k, magnitude, KB_F32), kb_f32_bits(k, 0x77800000)); /* 2^112 */
    val special = kb_icmpi(k, KB_UGE, magnitude, 0x7c00 << 13);
    val big = kb_or(k, magnitude, kb_i32(k, 0x7f800000));
    val bits = kb_select(k, special, big, kb_bitcast(k, scaled, KB_I32));
    return kb_bitcast(k, kb_or(k, bits, sign), KB_F32);
}

/* RNE. Normal results: add the rounding bias to the bits. Subnormal results: adding 0.5 shifts the
** fraction into place. */
val kb_soft_f32_to_f16(struct kb *k, val f32)
{
    val bits = kb_bitcast(k, f32, KB_I32);
    val sign = kb_andi(k, kb_lshri(k, bits, 16), 0x8000);
    val a = kb_andi(k, bits, 0x7fffffff);
    val odd = kb_andi(k, kb_lshri(k, a, 13), 1);
    val normal = kb_lshri(k, kb_add(k, kb_addi(k, a, (long long)0xc8000fff), odd),
                          13); /* -112 << 23, + half an ulp - 1 */
    val shifted = kb_bitcast(k, kb_fadd(k, kb_bitcast(k, a, KB_F32), kb_f32(k, 0.5)), KB_I32);
    val tiny = kb_sub(k, shifted, kb_i32(k, 0x3f000000));
    val small = kb_select(k, kb_icmpi(k, KB_ULT, a, 0x38800000), tiny, normal);
    val limited =
        kb_select(k, kb_icmpi(k, KB_UGE, a, 0x47800000), kb_i32(k, 0x7c00), small); /* >= 65536 */
    val result = kb_select(k, kb_icmpi(k, KB_UGT, a, 0x7f800000), kb_i32(k, 0x7e00), limited);
    return kb_trunc(k, kb_or(k, result, sign), KB_I16);
}
