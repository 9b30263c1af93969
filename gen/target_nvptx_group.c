/* SPDX-License-Identifier: Apache-2.0 */
/*
** target_nvptx_group.c - products of four warps that read shared memory, and what feeds them: PTX
** ISA, "Asynchronous warpgroup level matrix instructions", "cp.async", "setmaxnreg".
**
** All products of a tile are one text of assembly, so that nothing comes between them: the assembler
** takes every other use of their registers before they are waited for as a reason to run them one
** after the other. The wait has the results as operands that it seems to change, which keeps their
** uses behind it.
*/
#include <llvm-c/Core.h>

#include "kb_group.h"
#include "target.h"
#include "target_group.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT = 8192, MOST = 160, SIZE_MOST = 256 };

struct text {
    char at[TEXT];
    size_t length;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->at + t->length, sizeof t->at - t->length, format, args);
    va_end(args);
    t->length += n > 0 ? (size_t)n : 0;
    if (t->length >= sizeof t->at)
        t->length = sizeof t->at - 1;
}

/* Operands first .. first + n - 1, as a list in braces. */
static void put_list(struct text *t, int first, int n)
{
    for (int i = 0; i < n; i++)
        put(t, "%s$%d", i ? "," : "{", first + i);
    put(t, "}");
}

/* Assembly with n floats as results, which begin as x (NULL: only results), and other operands. */
static void run(struct kb *k, const struct text *body, val *x, bool begin, int n, const val *args,
                const char *const *kinds, int nargs)
{
    struct text constraints = {.length = 0};
    LLVMTypeRef types[MOST], floats[SIZE_MOST];
    val all[MOST];
    int operands = 0;
    for (int i = 0; i < n; i++) {
        floats[i] = kb_llvm_type(k, KB_F32);
        put(&constraints, "=f,");
    }
    for (int i = 0; begin && i < n; i++, operands++) {
        all[operands] = x[i];
        put(&constraints, "%d,", i);
    }
    for (int i = 0; i < nargs; i++, operands++) {
        all[operands] = args[i];
        put(&constraints, "%s,", kinds[i]);
    }
    put(&constraints, "~{memory}");
    for (int i = 0; i < operands; i++) {
        if (!all[i]) {
            kb_fail(k, "a product's operand %d is missing", i);
            return;
        }
        types[i] = LLVMTypeOf(all[i]);
    }
    LLVMContextRef ctx = kb_llvm_context(k);
    LLVMTypeRef result =
        n ? LLVMStructTypeInContext(ctx, floats, (unsigned)n, 0) : LLVMVoidTypeInContext(ctx);
    LLVMTypeRef type = LLVMFunctionType(result, types, (unsigned)operands, 0);
    val callee = LLVMGetInlineAsm(type, body->at, body->length, constraints.at, constraints.length,
                                  1, 0, LLVMInlineAsmDialectATT, 0);
    val call = LLVMBuildCall2(kb_llvm_builder(k), type, callee, all, (unsigned)operands, "");
    unsigned kind = LLVMGetEnumAttributeKindForName("convergent", 10);
    LLVMAddCallSiteAttribute(call, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                             LLVMCreateEnumAttribute(ctx, kind, 0));
    for (int i = 0; i < n; i++)
        x[i] = LLVMBuildExtractValue(kb_llvm_builder(k), call, (unsigned)i, "");
}

/* "Matrix descriptor": rows of 128 bytes whose 16-byte units are xored with the row's last three
** bits; 1024 bytes from eight rows to the next. `block`: from 64 columns to the next, where they are
** not along k. */
static val descriptor(struct kb *k, val tile, int block)
{
    val units = kb_lshri(K, kb_andi(K, kb_address(K, tile), 0x3ffff), 4);
    long long facts = 1LL << 62 | (1024LL >> 4) << 32 | (long long)(block >> 4) << 16;
    return kb_or(K, kb_zext(K, units, KB_I64), kb_i64(K, facts));
}

static const char *name_of(int type) { return type == KB_F16 ? "f16" : "bf16"; }

/* 16 columns are 32 bytes of a row, 64 a block. */
static void scores(struct kb *k, int type, int size, val queries, val keys, val *s)
{
    static const char *const kinds[] = {"l", "l"};
    const int n = KB_TILE_TOKENS / 2;
    const char *t = name_of(type);
    struct text body = {.length = 0};
    put(&body, "{ .reg .b64 a, b; .reg .pred p; wgmma.fence.sync.aligned;\n");
    for (int step = 0; step < size / 16; step++) {
        int at = (step / 4 * (kb_tile_bytes(64)) + step % 4 * 32) >> 4;
        put(&body, "add.s64 a, $%d, %d; add.s64 b, $%d, %d; setp.ne.b32 p, %d, 0;\n", n, at, n + 1,
            at, step);
        put(&body, "wgmma.mma_async.sync.aligned.m64n64k16.f32.%s.%s ", t, t);
        put_list(&body, 0, n);
        put(&body, ", a, b, p, 1, 1, 0, 0;\n");
    }
    put(&body, "wgmma.commit_group.sync.aligned; }");
    val first = descriptor(k, queries, 16), second = descriptor(k, keys, 16);
    run(k, &body, s, false, n, (const val[]){first, second}, kinds, 2);
}

/* 16 tokens are 16 rows of 128 bytes. */
static void values(struct kb *k, int type, int size, const val *p, int terms, val tile, val *o)
{
    enum { STEPS = KB_TILE_TOKENS / 16, PAIRS = 2 * KB_TILE_TOKENS / 4 };
    const char *t = name_of(type), *kinds[PAIRS + 1];
    const int n = size / 2, pairs = terms * 4 * STEPS;
    val args[PAIRS + 1];
    struct text body = {.length = 0};
    put(&body, "{ .reg .b64 b; wgmma.fence.sync.aligned;\n");
    for (int step = 0; step < terms * STEPS; step++) {
        put(&body, "add.s64 b, $%d, %d;\n", 2 * n + pairs, step % STEPS * (16 * 128 >> 4));
        put(&body, "wgmma.mma_async.sync.aligned.m64n%dk16.f32.%s.%s ", size, t, t);
        put_list(&body, 0, n);
        put(&body, ", ");
        put_list(&body, 2 * n + 4 * step, 4);
        put(&body, ", b, 1, 1, 1, 1;\n");
    }
    put(&body, "wgmma.commit_group.sync.aligned; }");
    for (int i = 0; i < pairs; i++) {
        args[i] = p[i];
        kinds[i] = "r";
    }
    args[pairs] = descriptor(k, tile, kb_tile_bytes(64));
    kinds[pairs] = "l";
    run(k, &body, o, true, n, args, kinds, pairs + 1);
}

static void wait(struct kb *k, int pending, val *x, int n, const val *held, int m)
{
    const char *kinds[MOST];
    struct text body = {.length = 0};
    put(&body, "wgmma.wait_group.sync.aligned %d;", pending);
    for (int i = 0; i < m && i < MOST; i++)
        kinds[i] = "r";
    run(k, &body, x, true, n, held, kinds, m);
}

static void sync(struct kb *k, val group)
{
    val id = kb_addi(K, group, 1);
    kb_asm(k, KB_VOID, &id, 1, "fence.proxy.async.shared::cta; bar.sync $0, 128;", "r", true);
}

static void registers(struct kb *k, int n, bool more)
{
    char text[64];
    snprintf(text, sizeof text, "setmaxnreg.%s.sync.aligned.u32 %d;", more ? "inc" : "dec", n);
    kb_asm(k, KB_VOID, NULL, 0, text, "", true);
}

static void arrive(struct kb *k, val bar)
{
    val at = kb_address(k, bar);
    kb_asm(k, KB_VOID, &at, 1, "mbarrier.arrive.shared::cta.b64 _, [$0];", "r", true);
}

static void copy(struct kb *k, val to, val from, val valid)
{
    val shared = kb_address(k, to), global = kb_address(k, from);
    val bytes = kb_select(k, valid, kb_i32(k, KB_UNIT), kb_i32(k, 0));
    kb_asm(k, KB_VOID, (const val[]){shared, global, bytes}, 3,
           "cp.async.cg.shared.global.L2::128B [$0], [$1], 16, $2;", "r,l,r", true);
}

static void copy_batch(struct kb *k)
{
    kb_asm(k, KB_VOID, NULL, 0, "cp.async.commit_group;", "", true);
}

/* Copies and products are different proxies. */
static void copy_wait(struct kb *k, int pending)
{
    char text[96];
    snprintf(text, sizeof text, "cp.async.wait_group %d; fence.proxy.async.shared::cta;", pending);
    kb_asm(k, KB_VOID, NULL, 0, text, "", true);
}

const struct group_ops group_nvptx = {
    .scores = scores,
    .values = values,
    .wait = wait,
    .sync = sync,
    .registers = registers,
    .arrive = arrive,
    .copy = copy,
    .copy_batch = copy_batch,
    .copy_wait = copy_wait,
};
