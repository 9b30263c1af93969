/* SPDX-License-Identifier: Apache-2.0 */
/*
** target_host.c - the processor as a SIMT machine: roles as calls through the struct host_thread
** that an entry gets (runtime/host_abi.h). The matrix role has the fragments of NVIDIA's m16n8k16,
** see target_nvptx.c.
**
** Nothing here may end in a library call: the linked image has no imports. exp2 and log2 are
** polynomials, "no-builtins" keeps LLVM from recognising memset in a loop, and where the processor
** has no F16C the module brings the two functions along that LLVM calls for arithmetic on half.
**
** Fragments go to the runtime widened to float, through three buffers that the entry block
** allocates first.
*/
#include <llvm-c/Core.h>
#include <llvm-c/Target.h>

#include "../runtime/host_abi.h"
#include "abi_table.h"
#include "plan.h"
#include "target.h"
#include "target_group.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MMA_A, MMA_B, MMA_C, MMA_BUFFERS }; /* order of the allocations in the entry block */

static void initialise_once(void)
{
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
}

static void initialise(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, initialise_once);
}

/* ---- entry ---- */

static val function_of(struct kb *k)
{
    return LLVMGetBasicBlockParent(LLVMGetInsertBlock(kb_llvm_builder(k)));
}

static val thread_of(struct kb *k) { return LLVMGetParam(function_of(k), 0); }

static void enum_attribute(struct kb *k, val f, LLVMAttributeIndex index, const char *name)
{
    unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAddAttributeAtIndex(f, index, LLVMCreateEnumAttribute(kb_llvm_context(k), kind, 0));
}

static void function_attributes(struct kb *k, val f)
{
    char frame[16];
    snprintf(frame, sizeof frame, "%d", HOST_STACK_BYTES - HOST_STACK_RESERVED);
    kb_attribute(k, f, "no-builtins", "");
    kb_attribute(k, f, "warn-stack-size", frame);
    kb_attribute(k, f, "probe-stack",
                 "inline-asm"); /* a frame that is too large meets the page below the stack */
    enum_attribute(k, f, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, "nounwind");
    for (LLVMAttributeIndex i = 1; i <= 2; i++)
        enum_attribute(k, f, i, "nonnull");
}

/* Defines `result NAME(argument)`, the C library's conversion of this name, as body(argument). */
static void conversion(struct kb *k, const char *name, int result, int argument,
                       val (*body)(struct kb *, val))
{
    LLVMModuleRef m = kb_llvm_module(k);
    if (LLVMGetNamedFunction(m, name))
        return;
    LLVMTypeRef type = kb_llvm_type(k, argument);
    val f = LLVMAddFunction(m, name, LLVMFunctionType(kb_llvm_type(k, result), &type, 1, 0));
    LLVMSetVisibility(
        f, LLVMHiddenVisibility); /* not internal: nothing calls it before code generation */
    LLVMPositionBuilderAtEnd(kb_llvm_builder(k),
                             LLVMAppendBasicBlockInContext(kb_llvm_context(k), f, "entry"));
    kb_attribute(k, f, "no-builtins", "");
    enum_attribute(k, f, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, "nounwind");
    val r = body(k, LLVMGetParam(f, 0));
    LLVMBuildRet(kb_llvm_builder(k), r);
}

static val extend_body(struct kb *k, val x)
{
    return kb_soft_f16_to_f32(k, kb_bitcast(k, x, KB_I16));
}
static val truncate_body(struct kb *k, val x)
{
    return kb_bitcast(k, kb_soft_f32_to_f16(k, x), KB_F16);
}

static void entry(struct kb *k, const char *symbol, const char *abi, int threads)
{
    static const int sizes[MMA_BUFFERS] = {[MMA_A] = 8, [MMA_B] = 4, [MMA_C] = 4};
    const char *names[ABI_MOST_PARAMS];
    int types[ABI_MOST_PARAMS], offsets[ABI_MOST_PARAMS];
    (void)threads;
    if (!(kb_target(k)->flags & TF_F16)) {
        conversion(k, "__extendhfsf2", KB_F32, KB_F16, extend_body);
        conversion(k, "__truncsfhf2", KB_F16, KB_F32, truncate_body);
    }
    int n = abi_params(abi, names, types, offsets, ABI_MOST_PARAMS);
    val f = kb_function(k, symbol, (const int[]){KB_GLOBAL, KB_GLOBAL}, 2);
    function_attributes(k, f);
    for (int i = 0; i < MMA_BUFFERS; i++) {
        LLVMTypeRef floats = LLVMArrayType2(kb_llvm_type(k, KB_F32), (unsigned long long)sizes[i]);
        LLVMSetAlignment(LLVMBuildAlloca(kb_llvm_builder(k), floats, "fragment"), 32);
    }
    for (int i = 0; i < n; i++) {
        val at = kb_offseti(k, LLVMGetParam(f, 1), offsets[i]);
        kb_bind_param(
            k, names[i],
            kb_load_once(k, types[i], at, types[i] == KB_I32 || types[i] == KB_F32 ? 4 : 8));
    }
}

/* ---- calls into the runtime ---- */

static val thread_field(struct kb *k, int type, size_t offset)
{
    return kb_load_once(k, type, kb_offseti(k, thread_of(k), (long long)offset),
                        type == KB_I32 ? 4 : 8);
}

/* calls->FUNCTION(thread, args...), FUNCTION at this offset of struct host_calls. */
static val call(struct kb *k, size_t offset, int result, const val *args, int nargs)
{
    LLVMTypeRef types[4];
    val all[4] = {thread_of(k)};
    for (int i = 0; i < nargs; i++) {
        if (!args[i]) {
            kb_fail(k, "a role's operand %d is missing", i);
            return kb_i32(k, 0);
        }
        all[i + 1] = args[i];
    }
    for (int i = 0; i <= nargs; i++)
        types[i] = LLVMTypeOf(all[i]);
    val table = thread_field(k, KB_GLOBAL, offsetof(struct host_thread, calls));
    val target = kb_load_once(k, KB_GLOBAL, kb_offseti(k, table, (long long)offset), 8);
    LLVMTypeRef type = LLVMFunctionType(kb_llvm_type(k, result), types, (unsigned)nargs + 1, 0);
    val c = LLVMBuildCall2(kb_llvm_builder(k), type, target, all, (unsigned)nargs + 1, "");
    static const char *const attributes[] = {"convergent", "nounwind"};
    for (int i = 0; i < 2; i++) {
        unsigned kind = LLVMGetEnumAttributeKindForName(attributes[i], strlen(attributes[i]));
        LLVMAddCallSiteAttribute(c, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                                 LLVMCreateEnumAttribute(kb_llvm_context(k), kind, 0));
    }
    return c;
}

#define CALL(function, result, ...)                                                                \
    call(k, offsetof(struct host_calls, function), result, (const val[]){__VA_ARGS__},             \
         (int)(sizeof((const val[]){__VA_ARGS__}) / sizeof(val)))

static val shared_base(struct kb *k)
{
    return thread_field(k, KB_SHARED, offsetof(struct host_thread, shared));
}
static val tid(struct kb *k) { return thread_field(k, KB_I32, offsetof(struct host_thread, tid)); }
static val cta(struct kb *k) { return thread_field(k, KB_I32, offsetof(struct host_thread, cta)); }

static void barrier(struct kb *k)
{
    val zero = kb_i32(k, 0); /* barrier 0, all threads */
    CALL(barrier, KB_VOID, zero, zero);
}

static void warp_sync(struct kb *k)
{
    call(k, offsetof(struct host_calls, warp_sync), KB_VOID, NULL, 0);
}

static void group_sync(struct kb *k, val group)
{
    val id = kb_addi(k, group, 1), threads = kb_i32(k, 128);
    CALL(barrier, KB_VOID, id, threads);
}

/* mbarriers without transactions: the runtime's. */
static void bar_init(struct kb *k, val bar, val arrivals)
{
    CALL(mbarrier_init, KB_VOID, bar, arrivals);
}
static void bar_arrive(struct kb *k, val bar) { CALL(mbarrier_arrive, KB_VOID, bar); }
static void bar_wait(struct kb *k, val bar, val phase) { CALL(mbarrier_wait, KB_VOID, bar, phase); }

static const struct group_ops group_host = {.sync = group_sync, .arrive = bar_arrive};

static val shuffle_xor(struct kb *k, val x, int mask)
{
    val m = kb_i32(k, mask);
    return CALL(shuffle_xor, KB_I32, x, m);
}

static val shuffle(struct kb *k, val x, val lane) { return CALL(shuffle_idx, KB_I32, x, lane); }

static val uniform(struct kb *k, val x)
{
    (void)k;
    return x;
}

static val opaque(struct kb *k, val x) { return kb_asm(k, KB_I32, &x, 1, "", "=r,0", true); }

/* ---- functions ---- */

/*
** 2^x = 2^n 2^f, n = floor(x), f in [0, 1): 1 + f q(f), q of degree 5 through the Chebyshev nodes
** of (2^f - 1) / f. Relative error of the polynomial 1.2e-8, of the whole in float about 1e-7;
** powers of two are exact. Results below 2^-126 are 0.
*/
static val exp2_host(struct kb *k, val x)
{
    static const double q[] = {0.6931471824645996,   0.24022720754146576,   0.05549602210521698,
                               0.009652195498347282, 0.0012692166492342949, 0.0002081791462842375};
    val low = kb_fmax(k, x, kb_f32(k, -126));
    val inside = kb_fmin(k, low, kb_f32(k, 127.99999));
    val floor = kb_floor(k, inside);
    val f = kb_fsub(k, inside, floor);
    val p = kb_f32(k, q[5]);
    for (int i = 4; i >= 0; i--)
        p = kb_fma(k, p, f, kb_f32(k, q[i]));
    p = kb_fma(k, p, f, kb_f32(k, 1));
    val n = kb_fptosi(k, floor);
    val scale = kb_bitcast(k, kb_shli(k, kb_addi(k, n, 127), 23), KB_F32);
    val r = kb_fmul(k, p, scale);
    val tiny = kb_fcmp(k, KB_OLT, x, kb_f32(k, -126));
    r = kb_select(k, tiny, kb_f32(k, 0), r);
    val huge = kb_fcmp(k, KB_OGE, x, kb_f32(k, 128));
    r = kb_select(k, huge, kb_f32_bits(k, 0x7f800000), r);
    val nan = kb_fcmp(k, KB_UNO, x, x);
    return kb_select(k, nan, x, r);
}

/*
** log2 x = e + log2 m, m in [sqrt 1/2, sqrt 2); with s = (m - 1) / (m + 1), |s| < 0.172:
** log2 m = 2 / ln 2 (s + s^3/3 + s^5/5 + s^7/7 + s^9/9), truncated at 2e-9. Subnormals are scaled
** by 2^23 first.
*/
static val log2_host(struct kb *k, val x)
{
    val small = kb_fcmp(k, KB_OLT, x, kb_f32_bits(k, 0x00800000));
    val scaled = kb_select(k, small, kb_fmul(k, x, kb_f32(k, 8388608)), x);
    val bits = kb_bitcast(k, scaled, KB_I32);
    val above = kb_sub(k, bits, kb_i32(k, 0x3f3504f3)); /* sqrt 1/2 */
    val e = kb_ashr(k, above, kb_i32(k, 23));
    val m = kb_bitcast(k, kb_sub(k, bits, kb_shli(k, e, 23)), KB_F32);
    val t = kb_fsub(k, m, kb_f32(k, 1));
    val s = kb_fdiv(k, t, kb_fadd(k, m, kb_f32(k, 1)));
    val s2 = kb_fmul(k, s, s);
    val p = kb_f32(k, 2.8853900817779268 / 9);
    for (int i = 7; i >= 1; i -= 2)
        p = kb_fma(k, p, s2, kb_f32(k, 2.8853900817779268 / i));
    val exponent = kb_select(k, small, kb_addi(k, e, -23), e);
    val r = kb_fma(k, p, s, kb_sitofp(k, exponent));
    val inf = kb_f32_bits(k, 0x7f800000);
    r = kb_select(k, kb_fcmp(k, KB_OEQ, x, inf), inf, r);
    r = kb_select(k, kb_fcmp(k, KB_OEQ, x, kb_f32(k, 0)), kb_f32_bits(k, 0xff800000), r);
    val good = kb_fcmp(k, KB_OGE, x, kb_f32(k, 0));
    return kb_select(k, good, r, kb_f32_bits(k, 0x7fc00000));
}

static val rcp_host(struct kb *k, val x)
{
    val one = kb_f32(k, 1);
    return kb_fdiv(k, one, x);
}

static val rsqrt_host(struct kb *k, val x)
{
    val root = kb_sqrt(k, x);
    return rcp_host(k, root);
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

static val splat_bits(struct kb *k, int n, unsigned bits)
{
    return kb_bitcast(k, kb_const(k, KB_VEC(KB_I32, n), bits), KB_VEC(KB_F32, n));
}

/* kb_soft_f16_to_f32 for a vector: <n x i32> holding half bits -> floats. */
static val soft_widen(struct kb *k, val h, int n)
{
    val sign = kb_shli(k, kb_andi(k, h, 0x8000), 16);
    val magnitude = kb_shli(k, kb_andi(k, h, 0x7fff), 13);
    val factor = splat_bits(k, n, 0x77800000); /* 2^112 */
    val scaled = kb_fmul(k, kb_bitcast(k, magnitude, KB_VEC(KB_F32, n)), factor);
    val special = kb_icmpi(k, KB_UGE, magnitude, 0x7c00 << 13);
    val big = kb_or(k, magnitude, kb_const(k, KB_VEC(KB_I32, n), 0x7f800000));
    val bits = kb_select(k, special, big, kb_bitcast(k, scaled, KB_VEC(KB_I32, n)));
    return kb_bitcast(k, kb_or(k, bits, sign), KB_VEC(KB_F32, n));
}

/* n/2 pairs -> <n x float> */
static val widen(struct kb *k, int type, const val *pairs, int n)
{
    val packed = kb_vec(k, pairs, n / 2);
    if (type == KB_F16 && kb_target(k)->flags & TF_F16) {
        val halves = kb_bitcast(k, packed, KB_VEC(KB_F16, n));
        return LLVMBuildFPExt(kb_llvm_builder(k), halves, kb_llvm_type(k, KB_VEC(KB_F32, n)), "");
    }
    val words = kb_zext(k, kb_bitcast(k, packed, KB_VEC(KB_I16, n)), KB_VEC(KB_I32, n));
    return type == KB_F16 ? soft_widen(k, words, n)
                          : kb_bitcast(k, kb_shli(k, words, 16), KB_VEC(KB_F32, n));
}

/* a in the order of the registers: (row, k half) = (0,0) (1,0) (0,1) (1,1) */
static void product(struct kb *k, int type, val *acc, const val order[4], const val y[2])
{
    val buffer[MMA_BUFFERS];
    buffer[0] = LLVMGetFirstInstruction(LLVMGetEntryBasicBlock(function_of(k)));
    for (int i = 1; i < MMA_BUFFERS; i++)
        buffer[i] = LLVMGetNextInstruction(buffer[i - 1]);
    val a = widen(k, type, order, 8);
    val b = widen(k, type, y, 4);
    val c = kb_vec(k, acc, 4);
    kb_store(k, a, buffer[MMA_A], 32);
    kb_store(k, b, buffer[MMA_B], 32);
    kb_store(k, c, buffer[MMA_C], 32);
    CALL(mma_16x8x16, KB_VOID, buffer[MMA_A], buffer[MMA_B], buffer[MMA_C]);
    val r = kb_load(k, KB_VEC(KB_F32, 4), buffer[MMA_C], 32);
    for (int i = 0; i < 4; i++)
        acc[i] = kb_extract(k, r, i);
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

/* The narrow form: as NVIDIA's, see target_nvptx.c. */
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

/* Element (row 2c + i, column g) of 8 x 8 is the lane 4 (2c + i) + g / 2's, half g % 2. */
static val transpose(struct kb *k, val pair)
{
    val column = y_index(k);
    val odd = kb_icmpi(k, KB_NE, kb_andi(k, column, 1), 0);
    val first = kb_shli(k, group_of(k), 3);
    first = kb_add(k, first, kb_lshri(k, column, 1));
    val a = kb_shuffle(k, pair, first);
    val b = kb_shuffle(k, pair, kb_addi(k, first, 4));
    val a_low = kb_andi(k, a, 0xffff), a_high = kb_lshri(k, a, 16);
    val low = kb_or(k, a_low, kb_shli(k, b, 16));
    val high = kb_or(k, a_high, kb_andi(k, b, (int)0xffff0000u));
    return kb_select(k, odd, high, low);
}

static void narrow_x_from_result(struct kb *k, int type, const val *r, val *pairs)
{
    for (int tile = 0; tile < 2; tile++) {
        val pair = kb_pack_half(k, r[tile * 2], r[tile * 2 + 1], type);
        pairs[tile] = transpose(k, pair);
    }
}

const struct matrix_ops matrix_host = {
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

const struct matrix_ops matrix_host_narrow = {
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
};

const struct target_ops target_ops_host = {
    .triple = "x86_64-unknown-linux-gnu",
    .device_scope = "",
    .reloc_pic = 1,
    .object = 1,
    .initialise = initialise,
    .entry = entry,
    .shared_base = shared_base,
    .tid = tid,
    .cta = cta,
    .barrier = barrier,
    .warp_sync = warp_sync,
    .shuffle_xor = shuffle_xor,
    .shuffle = shuffle,
    .uniform = uniform,
    .opaque = opaque,
    .exp2 = exp2_host,
    .log2 = log2_host,
    .rsqrt = rsqrt_host,
    .rcp = rcp_host,
    .matrix = &matrix_host,
    .narrow = &matrix_host_narrow,
    .bulk_init = bar_init,
    .bulk_wait = bar_wait,
    .group = &group_host,
};
