/* SPDX-License-Identifier: Apache-2.0 */
/*
** kb.h - the kernel builder: typed values, memory, structured control flow over LLVM IR, with a sticky first error.
**
** A template is a C function over this interface. Rules it obeys:
**   - One emitting call at most among the arguments of a call or in an initialiser list: C does not order them, and two
**     compilers would emit two kernels. Name intermediate values.
**   - No test on the target: what differs comes from the plan or from a role (kb_shuffle_xor, kb_mma, kb_exp2, ...).
**   - Arithmetic is IEEE, never fused or reassociated: kb_fma is the only way to a fused multiply-add.
**
** `K` passes the builder together with the place in the template; the first failure is kept with that place, all later
** calls do nothing useful but stay safe. kb values are borrowed from the module; nothing is freed one by one.
*/
#ifndef KVKILN_GEN_KB_H
#define KVKILN_GEN_KB_H

#include "../runtime/kvkiln.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct LLVMOpaqueValue *val; /* an SSA value */
struct kb;
struct plan;

#define K kb_at(k, __FILE__, __LINE__)
struct kb *kb_at(struct kb *k, const char *file, int line);

/* Types: a scalar, or a vector of n of them. */
enum kb_type { KB_VOID, KB_I1, KB_I8, KB_I16, KB_I32, KB_I64, KB_F16, KB_BF16, KB_F32, KB_GLOBAL, KB_SHARED, KB_CONST, KB_ANY };
enum { KB_TENSOR_DIMS = 4 };
#define KB_VEC(type, n) ((type) | (n) << 8)

enum kb_pred { KB_EQ, KB_NE, KB_SLT, KB_SLE, KB_SGT, KB_SGE, KB_ULT, KB_ULE, KB_UGT, KB_UGE };
enum kb_fpred { KB_OEQ, KB_ONE, KB_OLT, KB_OLE, KB_OGT, KB_OGE, KB_ORD, KB_UNO };

const struct plan *kb_plan(struct kb *k);
void kb_fail(struct kb *k, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- constants ---- */
val kb_i1(struct kb *k, bool x);
val kb_i8(struct kb *k, int x);
val kb_i16(struct kb *k, int x);
val kb_i32(struct kb *k, long long x);
val kb_i64(struct kb *k, long long x);
val kb_f32(struct kb *k, double x);        /* rounded to f32 */
val kb_f32_bits(struct kb *k, unsigned bits);
val kb_const(struct kb *k, int type, long long x); /* integer or small exact float; splat for vectors */
val kb_f16x2(struct kb *k, unsigned bits); /* <2 x half> from its 32 bits */
val kb_undef(struct kb *k, int type);
/* A read-only table in the code object; pointer of type KB_CONST. */
val kb_table(struct kb *k, const char *name, const void *data, size_t bytes, int align);

/* ---- integers (any width, scalars and vectors) ---- */
val kb_add(struct kb *k, val a, val b);
val kb_sub(struct kb *k, val a, val b);
val kb_mul(struct kb *k, val a, val b);
val kb_udiv(struct kb *k, val a, val b);
val kb_urem(struct kb *k, val a, val b);
val kb_and(struct kb *k, val a, val b);
val kb_or(struct kb *k, val a, val b);
val kb_xor(struct kb *k, val a, val b);
val kb_shl(struct kb *k, val a, val b);
val kb_lshr(struct kb *k, val a, val b);
val kb_ashr(struct kb *k, val a, val b);
val kb_smin(struct kb *k, val a, val b);
val kb_smax(struct kb *k, val a, val b);
/* with an immediate of a's type */
val kb_addi(struct kb *k, val a, long long x);
val kb_muli(struct kb *k, val a, long long x);
val kb_andi(struct kb *k, val a, long long x);
val kb_shli(struct kb *k, val a, int x);
val kb_lshri(struct kb *k, val a, int x);
val kb_divi(struct kb *k, val a, long long x); /* unsigned */
val kb_remi(struct kb *k, val a, long long x); /* unsigned */

/* ---- floats (f32; f16 where a target has it, scalars and vectors) ---- */
val kb_fadd(struct kb *k, val a, val b);
val kb_fsub(struct kb *k, val a, val b);
val kb_fmul(struct kb *k, val a, val b);
val kb_fdiv(struct kb *k, val a, val b);   /* IEEE */
val kb_sqrt(struct kb *k, val a);          /* IEEE */
val kb_fma(struct kb *k, val a, val b, val c);
val kb_fneg(struct kb *k, val a);
val kb_fabs(struct kb *k, val a);
val kb_floor(struct kb *k, val a);
val kb_trunc_f(struct kb *k, val a);       /* toward zero, stays float */
/* a < b ? a : b and a > b ? a : b: NaN in a gives b; two zeros of different sign give b. Not symmetric: mind shuffles. */
val kb_fmin(struct kb *k, val a, val b);
val kb_fmax(struct kb *k, val a, val b);
val kb_fmaxnum(struct kb *k, val a, val b); /* one instruction on GPUs; zeros and NaN as the target likes */

/* ---- comparison, selection ---- */
val kb_icmp(struct kb *k, enum kb_pred pred, val a, val b);
val kb_icmpi(struct kb *k, enum kb_pred pred, val a, long long x);
val kb_fcmp(struct kb *k, enum kb_fpred pred, val a, val b);
val kb_select(struct kb *k, val cond, val a, val b);
val kb_not(struct kb *k, val cond);

/* ---- conversion ---- */
val kb_zext(struct kb *k, val a, int type);
val kb_sext(struct kb *k, val a, int type);
val kb_trunc(struct kb *k, val a, int type);
val kb_bitcast(struct kb *k, val a, int type);
val kb_uitofp(struct kb *k, val a);        /* -> f32 */
val kb_sitofp(struct kb *k, val a);        /* -> f32 */
val kb_fptoui(struct kb *k, val a);        /* f32 -> i32; the value must be in range */
val kb_fptosi(struct kb *k, val a);
val kb_to_f32(struct kb *k, val a);        /* f16 or bf16 scalar, exact */
/* f32 -> KB_F16 or KB_BF16, RNE, subnormals kept, overflow to infinity */
val kb_to_half(struct kb *k, val a, int type);
val kb_pack_finite(struct kb *k, val lo, val hi); /* the same of f16, +-65504 where larger, NaN kept; NULL: the target has none */
val kb_pack_half(struct kb *k, val lo, val hi, int type); /* two f32 -> i32 holding two f16 or bf16, lo in bits 0-15 */

/* ---- vectors ---- */
val kb_extract(struct kb *k, val v, int i);
val kb_insert(struct kb *k, val v, val x, int i);
val kb_vec(struct kb *k, const val *x, int n);
/* bytes of the 8-byte string b:a picked by the four nibbles of `selector` (0-3 from a, 4-7 from b), lowest first */
val kb_byte_perm(struct kb *k, val a, val b, unsigned selector);

/* ---- memory. Pointers keep their space; offsets are bytes, i32 (sign-extended) or i64. ---- */
val kb_offset(struct kb *k, val pointer, val bytes);
val kb_offseti(struct kb *k, val pointer, long long bytes);
val kb_load(struct kb *k, int type, val pointer, int align);
/* read-only for the whole launch: may use the read-only path */
val kb_load_once(struct kb *k, int type, val pointer, int align);
void kb_store(struct kb *k, val x, val pointer, int align);
val kb_is_null(struct kb *k, val pointer);
/* a pointer that may be to global or to shared memory */
val kb_generic(struct kb *k, val pointer);
val kb_distance(struct kb *k, val from, val to); /* i64 bytes between generic pointers */
val kb_address_bits(struct kb *k, val pointer, int mask); /* i32: the address & mask */
/* `bytes` of the CTA's shared memory, for the kernel's lifetime; constant offset from its base */
val kb_shared(struct kb *k, size_t bytes, int align);
size_t kb_shared_used(struct kb *k);

#include "kb_kernel.h"

#endif
