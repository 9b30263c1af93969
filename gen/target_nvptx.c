/* SPDX-License-Identifier: Apache-2.0 */
/*
** target_nvptx.c - NVIDIA GPUs: roles as NVVM intrinsics. Fragment layouts: PTX ISA, "Matrix
** fragments for mma.m16n8k16".
**
** lane = 4 g + c. X is the A operand (query rows g and g+8), Y the B operand (y = g, k shares by
** c), the result holds rows g, g+8 and y = 2c, 2c+1; so two results over 8 y each are the A operand
** over those 16 y, without moving anything. The narrow form swaps the operands: two Y tiles are A, X is B
** (query row g), the result holds y = g of both tiles and query rows 2c, 2c+1; it becomes B by a transposition.
*/
#include <llvm-c/Core.h>
#include <llvm-c/Target.h>

#include "abi_table.h"
#include "plan.h"
#include "target.h"
#include "kb_encode.h"
#include "target_group.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { TENSOR_MAP_BYTES = 128, TENSOR_MAP_ALIGN = 64 }; /* CUDA driver API, CUtensorMap */

static void initialise_once(void)
{
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
}

static void initialise(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, initialise_once);
}

/* A tensor map behind the other parameters (abi.def), which the copy engine reads where it lies. */
static void bind_map(struct kb *k, val map)
{
    LLVMContextRef ctx = kb_llvm_context(k);
    val f = LLVMGetBasicBlockParent(LLVMGetInsertBlock(kb_llvm_builder(k)));
    unsigned byval = LLVMGetEnumAttributeKindForName("byval", 5),
             align = LLVMGetEnumAttributeKindForName("align", 5);
    LLVMTypeRef type = LLVMArrayType2(kb_llvm_type(k, KB_I8), TENSOR_MAP_BYTES);
    unsigned at = LLVMCountParams(f);
    LLVMAddAttributeAtIndex(f, at, LLVMCreateTypeAttribute(ctx, byval, type));
    LLVMAddAttributeAtIndex(f, at, LLVMCreateEnumAttribute(ctx, align, TENSOR_MAP_ALIGN));
    LLVMAddAttributeAtIndex(f, at, LLVMCreateStringAttribute(ctx, "nvvm.grid_constant", 18, "", 0));
    kb_bind_param(k, "tensor_map", kb_address(k, map));
}

static void entry(struct kb *k, const char *symbol, const char *abi, int threads)
{
    const char *names[ABI_MOST_PARAMS];
    int types[ABI_MOST_PARAMS + 1], offsets[ABI_MOST_PARAMS];
    int n = abi_params(abi, names, types, offsets, ABI_MOST_PARAMS);
    const struct plan *p = kb_plan(k);
    bool maps = p->turned && p->bulk && !strcmp(abi, "decode");
    types[n] = KB_ANY;
    val f = kb_function(k, symbol, types, n + maps);
    LLVMSetFunctionCallConv(f, LLVMPTXKernelCallConv);
    char number[16];
    snprintf(number, sizeof number, "%d", threads);
    kb_attribute(k, f, "nvvm.maxntid", number);
    if (p->min_ctas) {
        snprintf(number, sizeof number, "%d", p->min_ctas);
        kb_attribute(k, f, "nvvm.minctasm", number);
    }
    for (int i = 0; i < n; i++)
        kb_bind_param(k, names[i], LLVMGetParam(f, (unsigned)i));
    if (maps)
        bind_map(k, LLVMGetParam(f, (unsigned)n));
}

/* One external block, sized at launch: constant offsets into it are never split or shrunk by the
** optimiser. */
static val shared_base(struct kb *k)
{
    LLVMModuleRef m = kb_llvm_module(k);
    val g = LLVMGetNamedGlobal(m, "kvk_shared");
    if (!g) {
        g = LLVMAddGlobalInAddressSpace(m, LLVMArrayType2(kb_llvm_type(k, KB_I8), 0), "kvk_shared",
                                        3);
        LLVMSetLinkage(g, LLVMExternalLinkage);
        bool turned = kb_plan(k)->dense || kb_plan(k)->turned; /* kb_group.h, kb_tensor_copy */
        LLVMSetAlignment(g, turned ? 1024 : 128);
    }
    return g;
}

static val tid(struct kb *k)
{
    return kb_intrinsic(k, "llvm.nvvm.read.ptx.sreg.tid.x", NULL, 0, NULL, 0);
}
static val cta(struct kb *k)
{
    return kb_intrinsic(k, "llvm.nvvm.read.ptx.sreg.ctaid.x", NULL, 0, NULL, 0);
}
/* PTX ISA, "griddepcontrol": until the grids before this one are done and their writes seen; then the grid after this
** one may come as soon as every CTA of this one has begun. Both are nothing in a launch that lets no grids overlap. */
static void grid_wait(struct kb *k)
{
    kb_asm(k, KB_VOID, NULL, 0, "griddepcontrol.wait; griddepcontrol.launch_dependents;", "", true);
}
static void barrier(struct kb *k)
{
    KB_CALL("llvm.nvvm.barrier.cta.sync.aligned.all", kb_i32(k, 0));
}
/* PTX ISA, "barrier.cluster": by all threads that have not left the kernel; what they wrote before is seen after. */
static void cluster_barrier(struct kb *k)
{
    kb_intrinsic(k, "llvm.nvvm.barrier.cluster.arrive", NULL, 0, NULL, 0);
    kb_intrinsic(k, "llvm.nvvm.barrier.cluster.wait", NULL, 0, NULL, 0);
}
static val neighbour(struct kb *k, val pointer, val rank)
{
    return KB_CALL("llvm.nvvm.mapa", pointer, rank);
}
/* Opaque to LLVM, whose passes spend 11 ms on the addresses of a decode's 64 look-ups and leave the same code. */
static val table_word(struct kb *k, val base, val offset)
{
    return kb_asm(k, KB_I32, (const val[]){offset, base}, 2,
                  "{ .reg .b32 t; add.u32 t, $1, $2; ld.shared.b32 $0, [t]; }", "=r,r,r", false);
}
static void warp_sync(struct kb *k) { KB_CALL("llvm.nvvm.bar.warp.sync", kb_i32(k, -1)); }

static val shuffle_xor(struct kb *k, val x, int mask)
{
    return KB_CALL("llvm.nvvm.shfl.sync.bfly.i32", kb_i32(k, -1), x, kb_i32(k, mask),
                   kb_i32(k, 31));
}

static val shuffle(struct kb *k, val x, val lane)
{
    return KB_CALL("llvm.nvvm.shfl.sync.idx.i32", kb_i32(k, -1), x, lane, kb_i32(k, 31));
}

/* A warp-wide minimum of equal values: redux writes a uniform register, so the assembler knows what
** depends on it to be uniform and keeps loops over it free of code for diverged warps (which, up to
** sm_89, costs spills around every shuffle). */
static val uniform(struct kb *k, val x)
{
    return KB_CALL("llvm.nvvm.redux.sync.umin", x, kb_i32(k, -1));
}

static val warp_sum(struct kb *k, val x)
{
    return KB_CALL("llvm.nvvm.redux.sync.add", x, kb_i32(k, -1));
}

static val warp_most(struct kb *k, val x)
{
    return KB_CALL("llvm.nvvm.redux.sync.umax", x, kb_i32(k, -1));
}

static val any(struct kb *k, val cond)
{
    return KB_CALL("llvm.nvvm.vote.any.sync", kb_i32(k, -1), cond);
}

/* Barrier 1: 0 is the whole CTA's. */
static void team_barrier(struct kb *k, int threads)
{
    KB_CALL("llvm.nvvm.barrier.cta.sync.aligned.count", kb_i32(k, 1), kb_i32(k, threads));
}

/* ---- bulk copies: PTX ISA, "Asynchronous copy", "mbarrier" ---- */

static void bulk_init(struct kb *k, val bar, val arrivals)
{
    val at = kb_address(k, bar);
    kb_asm(k, KB_VOID, (const val[]){at, arrivals}, 2,
           "mbarrier.init.shared::cta.b64 [$0], $1; fence.mbarrier_init.release.cluster;", "r,r",
           true);
}

static void bulk_expect(struct kb *k, val bar, val bytes)
{
    val at = kb_address(k, bar);
    kb_asm(k, KB_VOID, (const val[]){at, bytes}, 2,
           "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "r,r", true);
}

static void bulk_copy(struct kb *k, val to, val from, val bytes, val bar)
{
    val shared = kb_address(k, to), global = kb_address(k, from), at = kb_address(k, bar);
    kb_asm(
        k, KB_VOID, (const val[]){shared, global, bytes, at}, 4,
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];",
        "r,l,r,r", true);
}

static void tensor_begin(struct kb *k)
{
    val map = kb_param(k, "tensor_map");
    kb_asm(k, KB_VOID, &map, 1, "prefetch.tensormap [$0];", "l", true);
}

/* PTX ISA, "cp.async.bulk.tensor". */
static void tensor_copy(struct kb *k, val to, const val at[KB_TENSOR_DIMS], val bar)
{
    val shared = kb_address(k, to), map = kb_param(k, "tensor_map"), done = kb_address(k, bar);
    kb_asm(k, KB_VOID, (const val[]){shared, map, at[0], at[1], at[2], at[3], done}, 7,
           "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
           "[$0], [$1, {$2, $3, $4, $5}], [$6];",
           "r,l,r,r,r,r,r", true);
}

static void bulk_wait(struct kb *k, val bar, val phase)
{
    val at = kb_address(k, bar);
    kb_asm(k, KB_VOID, (const val[]){at, phase}, 2,
           "{ .reg .pred p; wait${:uid}: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; @!p "
           "bra wait${:uid}; }",
           "r,r", true);
}

/* An arrival does not wait for loads of shared memory that are still on their way to registers, and
** the copy engine is not ordered behind them (seen as wrong results where loads queued for long); a
** proxy fence costs a MEMBAR and registers. So something that the assembler cannot drop depends on
** what was loaded. */
static void bulk_settle(struct kb *k, val x)
{
    if (kb_plan(k)->settle_branch) {
        kb_asm(k, KB_VOID, &x, 1,
               "{ .reg .pred p; setp.eq.u32 p, $0, 0x5bd1e995; @p nanosleep.u32 1; }", "r", true);
        return;
    }
    kb_asm(k, KB_VOID, &x, 1,
           "{ .reg .pred p; .reg .b32 t; mov.u32 t, 0; setp.eq.u32 p, $0, 0x5bd1e995; @p "
           "ld.volatile.shared.b32 t, [t]; }",
           "r", true);
}

static val elect(struct kb *k)
{
    val both = KB_CALL("llvm.nvvm.elect.sync", kb_i32(k, -1));
    return LLVMBuildExtractValue(kb_llvm_builder(k), both, 1, "");
}

static val opaque(struct kb *k, val x) { return kb_asm(k, KB_I32, &x, 1, "", "=r,0", true); }

/* The assembler makes what it is short of registers for again, in every turn of a loop; not what comes from a
** shuffle. */
static val held(struct kb *k, val x) { return shuffle(k, x, kb_lane(k)); }
/* .ftz: results below 2^-126 are 0, which saves the three instructions that would keep them. */
static val exp2_approx(struct kb *k, val x)
{
    return KB_CALL_T("llvm.nvvm.ex2.approx.ftz", KB_F32, x);
}
static val log2_approx(struct kb *k, val x) { return KB_CALL("llvm.nvvm.lg2.approx.f", x); }
static val rsqrt_approx(struct kb *k, val x) { return KB_CALL("llvm.nvvm.rsqrt.approx.ftz.f", x); }
static val rcp_approx(struct kb *k, val x) { return KB_CALL("llvm.nvvm.rcp.approx.ftz.f", x); }

static val byte_perm(struct kb *k, val a, val b, unsigned selector)
{
    return KB_CALL("llvm.nvvm.prmt", a, b, kb_i32(k, selector));
}

/* One lop3 (0xea: a & b | c). Of an and and an or with two constants the assembler makes two, so the second constant is
** given as a register. */
static val mask_merge(struct kb *k, val x, unsigned mask, unsigned bits)
{
    const val args[] = {x, kb_i32(k, (int)mask), kb_i32(k, (int)bits)};
    return kb_asm(k, KB_I32, args, 3, "lop3.b32 $0, $1, $2, $3, 0xea;", "=r,r,n,r", false);
}

/* One lop3 (0xe4: c ? a : b), of which the assembler makes two where it is given ands and an or. */
static val bit_select(struct kb *k, unsigned mask, val x, val y)
{
    const val args[] = {x, y, kb_i32(k, (int)mask)};
    return kb_asm(k, KB_I32, args, 3, "lop3.b32 $0, $1, $2, $3, 0xe4;", "=r,r,r,n", false);
}

static val fp8_pair(struct kb *k, int e5m2, val bytes)
{
    const char *name = e5m2 ? "llvm.nvvm.e5m2x2.to.f16x2.rn" : "llvm.nvvm.e4m3x2.to.f16x2.rn";
    return kb_bitcast(k, KB_CALL(name, bytes), KB_I32);
}

/* One cvt.rn.{f16x2,bf16x2}.f32. */
static val pack_half(struct kb *k, val lo, val hi, int type)
{
    val v = kb_vec(k, (const val[]){lo, hi}, 2);
    val r = LLVMBuildFPTrunc(kb_llvm_builder(k), v, kb_llvm_type(k, KB_VEC(type, 2)), "");
    return kb_bitcast(k, r, KB_I32);
}

/* PTX 8.1, which the targets with conversions of FP8 have. */
static val pack_finite(struct kb *k, val lo, val hi)
{
    return kb_asm(k, KB_I32, (const val[]){hi, lo}, 2, "cvt.rn.satfinite.f16x2.f32 $0, $1, $2;",
                  "=r,f,f", false);
}

/* ---- matrix role ---- */

static val group_of(struct kb *k) { return kb_andi(k, kb_lane(k), 3); }
static val y_index(struct kb *k) { return kb_lshri(k, kb_lane(k), 2); }
static val x_row(struct kb *k, int i) { return kb_addi(k, y_index(k), 8 * i); }
static val result_y(struct kb *k, int e) { return kb_addi(k, kb_shli(k, group_of(k), 1), e); }
static val k_index(struct kb *k, int e)
{
    return kb_addi(k, kb_shli(k, group_of(k), 1), (e & 1) + (e & 2) * 4);
}

static int reduce_masks(const struct target *t, int masks[4])
{
    (void)t;
    masks[0] = 1;
    masks[1] = 2;
    return 2;
}

static int y_masks(const struct target *t, int masks[4])
{
    (void)t;
    for (int i = 0; i < 3; i++)
        masks[i] = 4 << i;
    return 3;
}

/* a in the order of the registers: (row, k half) = (0,0) (1,0) (0,1) (1,1) */
static void product(struct kb *k, int type, val *acc, const val a[4], const val b[2])
{
    val all[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    const char *name = "llvm.nvvm.mma.m16n8k16.row.col.bf16";
    if (type == KB_F16) {
        name = "llvm.nvvm.mma.m16n8k16.row.col.f32.f32";
        for (int i = 0; i < 6; i++)
            all[i] = kb_bitcast(k, all[i], KB_VEC(KB_F16, 2));
    }
    val r = KB_CALL(name, all[0], all[1], all[2], all[3], all[4], all[5], acc[0], acc[1], acc[2],
                    acc[3]);
    if (LLVMGetTypeKind(LLVMTypeOf(r)) != LLVMStructTypeKind)
        return; /* the intrinsic was refused; the error is kept */
    for (unsigned i = 0; i < 4; i++)
        acc[i] = LLVMBuildExtractValue(kb_llvm_builder(k), r, i, "");
}

static void mma(struct kb *k, int type, val *acc, const val *x, const val *y)
{
    product(k, type, acc, (const val[]){x[0], x[2], x[1], x[3]}, y);
}

static void narrow_mma(struct kb *k, int type, val *acc, const val *x, const val *y)
{
    product(k, type, acc, (const val[]){y[0], y[2], y[1], y[3]}, x);
}

static void x_from_result(struct kb *k, int type, const val *r, val *pairs)
{
    for (int row = 0; row < 2; row++)
        for (int half = 0; half < 2; half++)
            pairs[row * 2 + half] =
                kb_pack_half(k, r[(half * 2 + row) * 2], r[(half * 2 + row) * 2 + 1], type);
}

/* Columns 2c and 2c + 1 of the operand are rows c and c + 4: up to four rows meet in the lanes' first results. */
static val narrow_x_row(struct kb *k, int i) { return kb_addi(k, group_of(k), 4 * i); }
static val narrow_row(struct kb *k, int i)
{
    if (i)
        return kb_i32(k, 0);
    val column = y_index(k), odd = kb_andi(k, column, 1);
    val low = kb_lshri(k, column, 1), high = kb_shli(k, odd, 2);
    return kb_or(k, low, high);
}
static val narrow_y(struct kb *k, int e) { return e ? kb_i32(k, 0) : y_index(k); }

/* 8 x 8 16-bit elements: the pair (row g; columns 2c, 2c+1) becomes (rows 2c, 2c+1; column g). */
static void narrow_x_from_result(struct kb *k, int type, const val *r, val *pairs)
{
    for (int tile = 0; tile < 2; tile++) {
        val pair = kb_pack_half(k, r[tile * 2], r[tile * 2 + 1], type);
        pairs[tile] = kb_asm(k, KB_I32, &pair, 1, "movmatrix.sync.aligned.m8n8.trans.b16 $0, $1;",
                             "=r,r", true);
    }
}

/* 8 x 8 16-bit elements each, transposed. */
static void load_pairs(struct kb *k, val at, val words[4])
{
    val all = KB_CALL_T("llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16", KB_SHARED, at);
    if (LLVMGetTypeKind(LLVMTypeOf(all)) != LLVMStructTypeKind)
        return; /* the intrinsic was refused; the error is kept */
    for (unsigned i = 0; i < 4; i++)
        words[i] = LLVMBuildExtractValue(kb_llvm_builder(k), all, i, "");
}

const struct matrix_ops matrix_nvptx = {
    .x_row = x_row,
    .operand_row = x_row,
    .y_index = y_index,
    .group = group_of,
    .result_y = result_y,
    .k_index = k_index,
    .reduce_masks = reduce_masks,
    .group_masks = reduce_masks,
    .y_masks = y_masks,
    .mma = mma,
    .x_from_result = x_from_result,
};

const struct matrix_ops matrix_nvptx_narrow = {
    .x_row = narrow_x_row,
    .operand_row = narrow_row,
    .y_index = y_index,
    .group = group_of,
    .result_y = narrow_y,
    .k_index = k_index,
    .reduce_masks = y_masks,
    .group_masks = reduce_masks,
    .y_masks = y_masks,
    .mma = narrow_mma,
    .x_from_result = narrow_x_from_result,
    .load_pairs = load_pairs,
};

/* What the assembler does not do itself: 45 ms less than default<O2>, the same loop (562 instead of
** 555 instructions) and no more registers (decode 4bit_nc, sm_90a). Also keeps LLVM from unrolling what
** the assembler then works on. Quick: 40 of 190 ms less, with what a back end without optimisation
** saves; what it leaves in is uniform work of rare branches. */
static const char *passes(bool quick)
{
    return quick
               ? "function(early-cse<memssa>,speculative-execution,early-cse)"
               : "function(early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,early-cse,"
                 "gvn,dce)";
}

const struct target_ops target_ops_nvptx = {
    .triple = "nvptx64-nvidia-cuda",
    .device_scope = "device",
    .passes = passes,
    .as_global = 1,
    .as_shared = 3,
    .as_const = 4,
    .initialise = initialise,
    .entry = entry,
    .shared_base = shared_base,
    .tid = tid,
    .cta = cta,
    .grid_wait = grid_wait,
    .barrier = barrier,
    .warp_sync = warp_sync,
    .cluster_barrier = cluster_barrier,
    .neighbour = neighbour,
    .table_word = table_word,
    .shuffle_xor = shuffle_xor,
    .shuffle = shuffle,
    .bulk_init = bulk_init,
    .bulk_expect = bulk_expect,
    .bulk_copy = bulk_copy,
    .tensor_begin = tensor_begin,
    .tensor_copy = tensor_copy,
    .bulk_wait = bulk_wait,
    .team_barrier = team_barrier,
    .elect = elect,
    .bulk_settle = bulk_settle,
    .any = any,
    .warp_sum = warp_sum,
    .warp_most = warp_most,
    .uniform = uniform,
    .opaque = opaque,
    .held = held,
    .exp2 = exp2_approx,
    .log2 = log2_approx,
    .rsqrt = rsqrt_approx,
    .rcp = rcp_approx,
    .byte_perm = byte_perm,
    .bit_select = bit_select,
    .mask_merge = mask_merge,
    .fp8_pair = fp8_pair,
    .pack_half = pack_half,
    .pack_finite = pack_finite,
    .matrix = &matrix_nvptx,
    .narrow = &matrix_nvptx_narrow,
    .group = &group_nvptx,
    .encode = &encode_nvptx,
};
