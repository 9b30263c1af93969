/* SPDX-License-Identifier: Apache-2.0 */
/*
** target_amdgcn.c - AMD GPUs: gfx9 (wave64, MFMA), gfx11 and gfx12 (wave32, WMMA).
**
** Matrix roles. The hardware computes D[i][j] = sum_k A[i][k] B[k][j] and leaves column j = lane &
** 15 of D in a lane on all three. X (query rows) is therefore operand B and Y operand A: one lane
** then holds one row x of the result and several y, and the result is operand B of the next product
** but for a conversion (gfx11: and an exchange).
**
**           operand: index    its k, element e     result: y of element e
**   gfx9    lane & 15         4 * (lane >> 4) + e  4 * (lane >> 4) + e
**   gfx12   lane & 15         8 * (lane >> 4) + e  8 * (lane >> 4) + e
**   gfx11   lane & 15         e (0..15, in both halves of the wave)   2 * e + (lane >> 4)
**
** Source: AMD's CDNA3, RDNA3 and RDNA4 instruction set manuals. Shared memory is "dynamic" (no
** static size in the kernel descriptor): its size is in the manifest and goes into the launch.
*/
#include <llvm-c/Core.h> /* first: its parameters are named like the builder's macro */
#include <llvm-c/Target.h>

#include "abi_table.h"
#include "plan.h"
#include "target.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    SPACE_GLOBAL = 1,
    SPACE_SHARED = 3,
    SPACE_CONST = 4,
    CODE_OBJECT_VERSION = 500,
    ENTRY_PARAMS_MAX = ABI_MOST_PARAMS
};

/* DPP control words: how a lane picks its source lane. */
enum {
    DPP_QUAD_PERM = 0,
    DPP_ROW_ROTATE = 0x120,
    DPP_ROW_MIRROR = 0x140,
    DPP_HALF_MIRROR = 0x141,
    DPP_ROW_XOR = 0x160 /* gfx10 and later */
};

static bool is_gfx9(struct kb *k) { return kb_target(k)->flags & TF_MFMA; }
static bool is_gfx11(struct kb *k) { return kb_target(k)->flags & TF_WMMA_GFX11; }

static void initialise_once(void)
{
    LLVMInitializeAMDGPUTargetInfo();
    LLVMInitializeAMDGPUTarget();
    LLVMInitializeAMDGPUTargetMC();
    LLVMInitializeAMDGPUAsmPrinter();
    LLVMInitializeAMDGPUAsmParser(); /* inline assembly */
}

static void initialise(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, initialise_once);
}

/* ---- the entry point ---- */

static void code_object_version(struct kb *k)
{
    static const char flag[] = "amdhsa_code_object_version";
    LLVMModuleRef module = kb_llvm_module(k);
    if (LLVMGetModuleFlag(module, flag, sizeof flag - 1))
        return;
    LLVMMetadataRef version = LLVMValueAsMetadata(kb_i32(k, CODE_OBJECT_VERSION));
    LLVMAddModuleFlag(module, LLVMModuleFlagBehaviorError, flag, sizeof flag - 1, version);
}

/* What an entry does not need from the dispatcher. Without these LLVM reserves registers and kernel
** arguments for all of it whenever its own analysis does not run. */
static void needs_little(struct kb *k, val f)
{
    static const char *const unused[] = {
        "amdgpu-no-implicitarg-ptr",    "amdgpu-no-dispatch-ptr",
        "amdgpu-no-dispatch-id",        "amdgpu-no-queue-ptr",
        "amdgpu-no-workgroup-id-y",     "amdgpu-no-workgroup-id-z",
        "amdgpu-no-workitem-id-y",      "amdgpu-no-workitem-id-z",
        "amdgpu-no-lds-kernel-id",      "amdgpu-no-hostcall-ptr",
        "amdgpu-no-heap-ptr",           "amdgpu-no-default-queue",
        "amdgpu-no-multigrid-sync-arg", "amdgpu-no-completion-action",
        "amdgpu-no-flat-scratch-init",
    };
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++)
        kb_attribute(k, f, unused[i], "");
}

static void entry(struct kb *k, const char *symbol, const char *abi, int threads)
{
    const char *names[ENTRY_PARAMS_MAX];
    int types[ENTRY_PARAMS_MAX], offsets[ENTRY_PARAMS_MAX];
    int n = abi_params(abi, names, types, offsets, ENTRY_PARAMS_MAX);
    if (!n)
        kb_fail(k, "no parameters of entry %s", abi);
    val f = kb_function(k, symbol, types, n);
    LLVMSetFunctionCallConv(f, LLVMAMDGPUKERNELCallConv);
    LLVMSetVisibility(f, LLVMProtectedVisibility);
    char size[32];
    snprintf(size, sizeof size, "%d,%d", threads, threads);
    kb_attribute(k, f, "amdgpu-flat-work-group-size", size);
    kb_attribute(k, f, "uniform-work-group-size", "true");
    needs_little(k, f);
    code_object_version(k);
    for (int i = 0; i < n; i++) {
        val p = LLVMGetParam(f, (unsigned)i);
        LLVMSetValueName2(p, names[i], strlen(names[i]));
        kb_bind_param(k, names[i], p);
    }
}

/* All shared memory is dynamic, so it begins at address 0, which is no null pointer in this space.
** A constant lets loads carry a table's place in their offset field. */
static val shared_base(struct kb *k)
{
    LLVMTypeRef pointer = LLVMPointerTypeInContext(kb_llvm_context(k), SPACE_SHARED);
    return LLVMConstIntToPtr(kb_i32(k, 0), pointer);
}

static val tid(struct kb *k)
{
    return kb_intrinsic(k, "llvm.amdgcn.workitem.id.x", NULL, 0, NULL, 0);
}
static val cta(struct kb *k)
{
    return kb_intrinsic(k, "llvm.amdgcn.workgroup.id.x", NULL, 0, NULL, 0);
}

/* ---- synchronisation ---- */

static void fence(struct kb *k, LLVMAtomicOrdering ordering, const char *scope)
{
    unsigned id = LLVMGetSyncScopeID(kb_llvm_context(k), scope, strlen(scope));
    LLVMBuildFenceSyncScope(kb_llvm_builder(k), ordering, id, "");
}

/* The barrier instruction alone orders nothing: stores would still be on their way when it is
** passed. */
static void barrier(struct kb *k)
{
    fence(k, LLVMAtomicOrderingRelease, "workgroup");
    kb_intrinsic(k, "llvm.amdgcn.s.barrier", NULL, 0, NULL, 0);
    fence(k, LLVMAtomicOrderingAcquire, "workgroup");
}

/* A wave's shared memory instructions execute in order: only the compiler has to be held. */
static void warp_sync(struct kb *k)
{
    fence(k, LLVMAtomicOrderingRelease, "wavefront");
    kb_intrinsic(k, "llvm.amdgcn.wave.barrier", NULL, 0, NULL, 0);
    fence(k, LLVMAtomicOrderingAcquire, "wavefront");
}

/* ---- lanes ---- */

static val dpp(struct kb *k, val x, int control)
{
    const val args[] = {kb_undef(k, KB_I32), x, kb_i32(k, control), kb_i32(k, 15), kb_i32(k, 15),
                        kb_i1(k, true)};
    return kb_intrinsic(k, "llvm.amdgcn.update.dpp", (const int[]){KB_I32}, 1, args, 6);
}

static val shuffle(struct kb *k, val x, val lane)
{
    val address = kb_shli(k, lane, 2);
    return KB_CALL("llvm.amdgcn.ds.bpermute", address, x);
}

/* Exchange with lane ^ 16: each lane reads the same position of the other row of its pair. */
static val other_row(struct kb *k, val x)
{
    const val low = kb_i32(k, 0x76543210), high = kb_i32(k, 0xfedcba98), no = kb_i1(k, false);
    const val args[] = {kb_undef(k, KB_I32), x, low, high, no, no};
    return kb_intrinsic(k, "llvm.amdgcn.permlanex16", (const int[]){KB_I32}, 1, args, 6);
}

/* gfx9 has no exclusive-or in DPP, but permutations that equal one; 0 where it has none. */
static int dpp_xor_gfx9(int mask)
{
    switch (mask) {
    case 1: return DPP_QUAD_PERM | 0xb1; /* 1 0 3 2 */
    case 2: return DPP_QUAD_PERM | 0x4e; /* 2 3 0 1 */
    case 3: return DPP_QUAD_PERM | 0x1b; /* 3 2 1 0 */
    case 7: return DPP_HALF_MIRROR;
    case 8: return DPP_ROW_ROTATE | 8; /* by half a row: the same in both directions */
    case 15: return DPP_ROW_MIRROR;
    default: return 0;
    }
}

static val shuffle_xor(struct kb *k, val x, int mask)
{
    int control = is_gfx9(k) ? dpp_xor_gfx9(mask) : mask < 16 ? DPP_ROW_XOR | mask : 0;
    if (control)
        return dpp(k, x, control);
    if (!is_gfx9(k) && mask == 16)
        return other_row(k, x);
    if (mask < 32) { /* bit mode: and 31, or 0, exclusive or `mask` */
        val pattern = kb_i32(k, mask << 10 | 31);
        return KB_CALL("llvm.amdgcn.ds.swizzle", x, pattern);
    }
    val lane = kb_xor(k, kb_lane(k), kb_i32(k, mask));
    return shuffle(k, x, lane);
}

static val uniform(struct kb *k, val x)
{
    return KB_CALL_T("llvm.amdgcn.readfirstlane", KB_I32, x);
}
static val opaque(struct kb *k, val x) { return kb_asm(k, KB_I32, &x, 1, "", "=v,0", true); }

/* ---- arithmetic: one instruction each, within 1 ulp; subnormals are flushed ---- */

static val exp2_approx(struct kb *k, val x) { return KB_CALL_T("llvm.amdgcn.exp2", KB_F32, x); }
static val log2_approx(struct kb *k, val x) { return KB_CALL_T("llvm.amdgcn.log", KB_F32, x); }
static val rsqrt_approx(struct kb *k, val x) { return KB_CALL_T("llvm.amdgcn.rsq", KB_F32, x); }
static val rcp_approx(struct kb *k, val x) { return KB_CALL_T("llvm.amdgcn.rcp", KB_F32, x); }

/* The instruction takes the string's upper half first and a byte, not a nibble, a selector. */
static val byte_perm(struct kb *k, val a, val b, unsigned selector)
{
    unsigned bytes = 0;
    for (int i = 0; i < 4; i++)
        bytes |= (selector >> 4 * i & 7) << 8 * i;
    val select = kb_i32(k, bytes);
    return KB_CALL("llvm.amdgcn.perm", b, a, select);
}

/* Not v_cvt_pkrtz: that one rounds toward zero. */
static val pack_half(struct kb *k, val lo, val hi, int type)
{
    val pair = kb_vec(k, (const val[]){lo, hi}, 2);
    val halves = LLVMBuildFPTrunc(kb_llvm_builder(k), pair, kb_llvm_type(k, KB_VEC(type, 2)), "");
    return kb_bitcast(k, halves, KB_I32);
}

/* ---- matrix roles ---- */

static val row_of_lane(struct kb *k) { return kb_andi(k, kb_lane(k), 15); }
static val half_of_lane(struct kb *k) { return kb_lshri(k, kb_lane(k), 4); }

static val x_row(struct kb *k, int i)
{
    (void)i;
    return row_of_lane(k);
}

static val group(struct kb *k)
{
    return kb_target(k)->mma.groups > 1 ? half_of_lane(k) : kb_i32(k, 0);
}

static val result_y(struct kb *k, int e)
{
    int ye = kb_target(k)->mma.ye;
    if (is_gfx11(k))
        return kb_addi(k, half_of_lane(k), 2 * e);
    return kb_addi(k, kb_muli(k, half_of_lane(k), ye), e);
}

/* Two results of the double-rate shapes make an operand: elements 4 to 7 are the second 16 y. */
static val k_index(struct kb *k, int e)
{
    int each = kb_target(k)->mma.ke / kb_target(k)->mma.k_tiles;
    if (is_gfx11(k))
        return kb_i32(k, e);
    return kb_addi(k, result_y(k, e % each), e / each * 16);
}

static int reduce_masks(const struct target *t, int masks[4])
{
    int n = 0;
    for (int mask = 16; mask < t->warp; mask *= 2)
        masks[n++] = mask;
    return n;
}

static int group_masks(const struct target *t, int masks[4])
{
    return t->mma.groups > 1 ? reduce_masks(t, masks) : 0;
}

static int y_masks(const struct target *t, int masks[4])
{
    (void)t;
    for (int i = 0; i < 4; i++)
        masks[i] = 1 << i;
    return 4;
}

/* Pairs as one operand of `elements` 16-bit values. LLVM takes bf16 as integers, but for the double-rate shapes. */
static val operand(struct kb *k, int type, const val *pairs, int elements)
{
    val words = kb_vec(k, pairs, elements / 2);
    int bf16 = kb_target(k)->mma.k_tiles > 1 ? KB_BF16 : KB_I16;
    return kb_bitcast(k, words, KB_VEC(type == KB_F16 ? KB_F16 : bf16, elements));
}

static val mfma(struct kb *k, int type, val x, val y, val acc)
{
    val zero = kb_i32(k, 0);
    if (kb_target(k)->mma.k_tiles > 1)
        return type == KB_F16
                   ? KB_CALL("llvm.amdgcn.mfma.f32.16x16x32.f16", y, x, acc, zero, zero, zero)
                   : KB_CALL("llvm.amdgcn.mfma.f32.16x16x32.bf16", y, x, acc, zero, zero, zero);
    if (type == KB_F16)
        return KB_CALL("llvm.amdgcn.mfma.f32.16x16x16f16", y, x, acc, zero, zero, zero);
    return KB_CALL("llvm.amdgcn.mfma.f32.16x16x16bf16.1k", y, x, acc, zero, zero, zero);
}

static val wmma(struct kb *k, int type, val x, val y, val acc)
{
    const char *name =
        type == KB_F16 ? "llvm.amdgcn.wmma.f32.16x16x16.f16" : "llvm.amdgcn.wmma.f32.16x16x16.bf16";
    const int types[] = {kb_type_of(k, acc), kb_type_of(k, x)};
    const val args[] = {y, x, acc};
    return kb_intrinsic(k, name, types, 2, args, 3);
}

/* gfx11 keeps every operand twice, once in each half of a wave. Left alone, LLVM starts the table
** look-ups of all steps of a long row at once and spills: nothing moves across a product there.
** Measured for head size 256: 190 registers and no spills; with only shared memory held back, 38
** spills. */
static void limit_overlap(struct kb *k)
{
    if (is_gfx11(k) && kb_plan(k)->geo.head_size > 128)
        KB_CALL("llvm.amdgcn.sched.barrier", kb_i32(k, 0));
}

static void mma(struct kb *k, int type, val *acc, const val *x, const val *y)
{
    const struct target *t = kb_target(k);
    if (!(t->flags & (TF_MFMA | TF_WMMA_GFX11 | TF_WMMA_GFX12))) {
        kb_fail(k, "%s has no matrix instruction", t->name);
        return;
    }
    val a = operand(k, type, y, t->mma.ke);
    val b = operand(k, type, x, t->mma.ke);
    val c = kb_vec(k, acc, t->mma.ye);
    c = t->flags & TF_MFMA ? mfma(k, type, b, a, c) : wmma(k, type, b, a, c);
    limit_overlap(k);
    for (int e = 0; e < t->mma.ye; e++)
        acc[e] = kb_extract(k, c, e);
}

/* Y: FP4 (E2M1), k = 32 * (lane >> 4) + e. X: FP8 (E4M3), k = 64 * run + 16 * (lane >> 4) + e % 16.
** Source: AMD's matrix core examples for CDNA4, and Triton's layouts for operands of mixed types. */
static void scaled_x(struct kb *k, int run, val *group, val *first)
{
    val quarter = half_of_lane(k);
    *group = kb_addi(k, kb_lshri(k, quarter, 1), 2 * run);
    *first = kb_shli(k, kb_andi(k, quarter, 1), 4);
}

static void mma_scaled(struct kb *k, val *acc, const val *x, const val *y, val scale)
{
    const int types[] = {KB_VEC(KB_I32, 4), KB_VEC(KB_I32, 8)};
    val a = kb_vec(k, y, 4);
    val b = kb_vec(k, x, 8);
    val c = kb_vec(k, acc, 4);
    const val fp4 = kb_i32(k, 4), fp8 = kb_i32(k, 0), one = kb_i32(k, 127), zero = kb_i32(k, 0);
    const val args[] = {a, b, c, fp4, fp8, zero, scale, zero, one};
    c = kb_intrinsic(k, "llvm.amdgcn.mfma.scale.f32.16x16x128.f8f6f4", types, 2, args, 9);
    for (int e = 0; e < 4; e++)
        acc[e] = kb_extract(k, c, e);
}

/* gfx11: lanes l and l ^ 16 hold the even and the odd y of one row; each needs all of them in
** order. */
static void interleave(struct kb *k, const val *own, val *pairs)
{
    val odd = kb_icmpi(k, KB_NE, half_of_lane(k), 0);
    for (int i = 0; i < 4; i++) { /* own[i]: y = 4i, 4i + 2, or one more in the odd half */
        val other = other_row(k, own[i]);
        val even_y = kb_select(k, odd, other, own[i]);
        val odd_y = kb_select(k, odd, own[i], other);
        pairs[2 * i] = byte_perm(k, even_y, odd_y, 0x5410);
        pairs[2 * i + 1] = byte_perm(k, even_y, odd_y, 0x7632);
    }
}

static void x_from_result(struct kb *k, int type, const val *r, val *pairs)
{
    val own[4] = {NULL};
    int n = kb_target(k)->mma.ye * kb_target(k)->mma.k_tiles / 2;
    for (int p = 0; p < n; p++)
        own[p] = kb_pack_half(k, r[2 * p], r[2 * p + 1], type);
    if (is_gfx11(k))
        interleave(k, own, pairs);
    else
        for (int p = 0; p < n; p++)
            pairs[p] = own[p];
}

const struct matrix_ops matrix_amdgcn = {
    .x_row = x_row,
    .operand_row = x_row,
    .y_index = row_of_lane,
    .group = group,
    .result_y = result_y,
    .k_index = k_index,
    .reduce_masks = reduce_masks,
    .group_masks = group_masks,
    .y_masks = y_masks,
    .mma = mma,
    .mma_scaled = mma_scaled,
    .scaled_x = scaled_x,
    .x_from_result = x_from_result,
};

const struct target_ops target_ops_amdgcn = {
    .triple = "amdgcn-amd-amdhsa",
    .device_scope = "agent",
    .reloc_pic = 1,
    .object = 1,
    .as_global = SPACE_GLOBAL,
    .as_shared = SPACE_SHARED,
    .as_const = SPACE_CONST,
    .initialise = initialise,
    .entry = entry,
    .finish = NULL,
    .shared_base = shared_base,
    .tid = tid,
    .cta = cta,
    .barrier = barrier,
    .warp_sync = warp_sync,
    .shuffle_xor = shuffle_xor,
    .shuffle = shuffle,
    .uniform = uniform,
    .opaque = opaque,
    .exp2 = exp2_approx,
    .log2 = log2_approx,
    .rsqrt = rsqrt_approx,
    .rcp = rcp_approx,
    .byte_perm = byte_perm,
    .pack_half = pack_half,
    .matrix = &matrix_amdgcn,
};
