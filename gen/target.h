/* SPDX-License-Identifier: Apache-2.0 */
/*
** target.h - what a target supplies: a row of facts (targets.def) and its family's roles.
**
** Matrix role. All families compute X (`rows` query rows) times Y (tokens or dims), fp32 accumulation, 16 * k_tiles along k a
** step:
**   result: a lane holds `lane_rows` of the rows, x_row(i)
**   X operand: a lane holds `operand_rows` of them, operand_row(i)
**   Y operand: a lane holds one y of `y_tile`, y_index(); a product takes `tiles` such tiles at once
**   along k: lanes form `groups` groups; a lane of group() holds `ke` consecutive elements of ITS share. Which k they are for
**            the hardware does not matter as long as X and Y agree: X and Y operands hold the k of the same (group, step, e).
**   result: a lane holds, for each of its rows, `ye` elements of a tile; result_y(e) is the y of element e
**   Results over 16 * k_tiles y (16 / y_tile tiles for each 16) become the X operand of the next product (its k = those y) by
**   x_from_result; k_index(e) names the y (0 .. 16 * k_tiles - 1) that element e of that operand, and so of the matching Y
**   operand, stands for: the first ke / k_tiles elements lie in the first 16, and so on.
** A family may have two forms: `matrix` with 16 rows, and `narrow`, where Y is the hardware's operand of 16 rows and X the one
** of 8: half the products, result registers and softmax work for up to 8 query rows.
** 16-bit elements travel in pairs: i32, lower element in bits 0-15.
*/
#ifndef KVKILN_GEN_TARGET_H
#define KVKILN_GEN_TARGET_H

#include "kb.h"

struct target;
enum family { FAMILY_HOST, FAMILY_NVPTX, FAMILY_AMDGCN };

enum {
    TF_F16 = 1,        /* native f16 <-> f32 conversion and f16 arithmetic */
    TF_BF16_CVT = 2,   /* native f32 -> bf16 conversion */
    TF_CP_ASYNC = 4,
    TF_BULK_COPY = 8,  /* TMA, mbarrier transactions */
    TF_WGMMA = 16,
    TF_TCGEN05 = 32,
    TF_FP8_CVT = 64,
    TF_MFMA = 128,
    TF_MFMA_DOUBLE = 256, /* gfx950's double-rate shapes */
    TF_WMMA_GFX11 = 512,
    TF_WMMA_GFX12 = 1024,
    TF_MFMA_SCALED = 2048, /* mma_scaled */
    TF_ONE_CONSTANT = 4096, /* three-operand instructions take one constant, and from a register */
    TF_VOTE = 8192, /* a warp votes faster than it finds a maximum */
    TF_SUBNORMAL = 16384,   /* the matrix unit takes f16 subnormals as they are */
    TF_LAST_JOINS = 1 << 19, TF_GRID_WAIT = 1 << 20, /* CTAs find out which of them is last, and it goes on */
    TF_CLUSTER = 1 << 21 /* CTAs of a cluster see each other's shared memory */
};

struct mma_shape { int lane_rows, groups, ke, y_tile, ye, k_tiles, rows, operand_rows, tiles; };

struct matrix_ops {
    val (*x_row)(struct kb *k, int i);
    val (*operand_row)(struct kb *k, int i);
    val (*y_index)(struct kb *k);
    val (*group)(struct kb *k);
    val (*result_y)(struct kb *k, int e);
    val (*k_index)(struct kb *k, int e);
    int (*reduce_masks)(const struct target *t, int masks[4]); /* xor masks that join the lanes sharing result rows */
    int (*group_masks)(const struct target *t, int masks[4]);  /* xor masks that join the groups of one y_index */
    int (*y_masks)(const struct target *t, int masks[4]);      /* xor masks that join the y_index of one group */
    /* acc[tiles * lane_rows * ye] += x[operand_rows * ke/2] * y[tiles * ke/2]; type KB_F16 or KB_BF16; acc index =
    ** (tile * lane_rows + row) * ye + e */
    void (*mma)(struct kb *k, int type, val *acc, const val *x, const val *y);
    /* TF_MFMA_SCALED, NULL elsewhere: acc[ye] += x y 2^(scale - 127) over 32 elements a group. Y: the lane's 32 E2M1 codes of
    ** its group (y[4] words, element 0 lowest) and their scale byte; X: e4m3, x[8] words in two runs of 16 bytes, run h of a
    ** lane being elements `first` .. of `group`, which is not its own. lane_rows is 1. */
    void (*mma_scaled)(struct kb *k, val *acc, const val *x, const val *y, val scale);
    void (*scaled_x)(struct kb *k, int run, val *group, val *first);
    /* results over 16 * k_tiles y: r[tile][row][e] f32 -> pairs[operand row * ke/2 + p] of `type` */
    void (*x_from_result)(struct kb *k, int type, const val *r, val *pairs);
    void (*load_pairs)(struct kb *k, val at, val words[4]); /* NULL: none; templates/part_image_pairs.h */
};
extern const struct matrix_ops matrix_nvptx, matrix_nvptx_narrow, matrix_amdgcn, matrix_host, matrix_host_narrow, matrix_tiles;

struct target {
    const char *name;      /* "sm_90a", "gfx942", "x86-64-v3" */
    enum family family;
    const char *cpu, *features; /* for LLVM */
    unsigned flags;        /* TF_* */
    int warp;              /* lanes */
    int shared_bytes;      /* most shared memory a CTA may have */
    int registers;         /* most a thread may have at 128 threads a CTA, 0 = no such limit */
    struct mma_shape mma, narrow; /* narrow.rows 0: the family has no such form */
    const struct target_ops *ops;
};

struct target_ops {
    const char *triple;
    const char *device_scope, *(*passes)(bool quick); /* of atomics that all CTAs see; LLVM's, NULL = default<O2> */
    int reloc_pic, object; /* object: LLVM emits an object file (amdgcn, host), else text (PTX) */
    int as_global, as_shared, as_const;
    void (*initialise)(void); /* the LLVM back end; called once per compile, idempotent */
    /* Declares the entry with abi.def's parameters, attributes and calling convention, positions the builder in it and
    ** fills kb's parameter values (kb_bind_param). threads: CTA size. */
    void (*entry)(struct kb *k, const char *symbol, const char *abi, int threads);
    void (*finish)(struct kb *k); /* after the last block of an entry (may be NULL) */
    val (*shared_base)(struct kb *k), (*tid)(struct kb *k), (*cta)(struct kb *k);
    void (*grid_wait)(struct kb *k); /* with TF_GRID_WAIT; NULL: grids never overlap */
    void (*barrier)(struct kb *k), (*warp_sync)(struct kb *k);
    val (*shuffle_xor)(struct kb *k, val x, int mask), (*shuffle)(struct kb *k, val x, val lane); /* i32 */
    void (*bulk_init)(struct kb *k, val bar, val arrivals); /* NULL, with the rest of these: no bulk copies */
    void (*bulk_expect)(struct kb *k, val bar, val bytes), (*bulk_copy)(struct kb *k, val to, val from, val bytes, val bar);
    void (*tensor_copy)(struct kb *k, val to, const val at[KB_TENSOR_DIMS], val bar), (*tensor_begin)(struct kb *k),
        (*bulk_wait)(struct kb *k, val bar, val phase), (*bulk_settle)(struct kb *k, val x), (*cluster_barrier)(struct kb *k),
        (*team_barrier)(struct kb *k, int threads); val (*elect)(struct kb *k); /* team: of the CTA's first threads */
    val (*neighbour)(struct kb *k, val pointer, val rank), (*table_word)(struct kb *k, val base, val offset); /* base: i32 */
    val (*any)(struct kb *k, val cond); /* i1; NULL: by shuffles */
    val (*warp_sum)(struct kb *k, val x), (*warp_most)(struct kb *k, val x); /* i32; NULL: by shuffles */
    val (*uniform)(struct kb *k, val x), (*opaque)(struct kb *k, val x), (*held)(struct kb *k, val x); /* held: i32; NULL: x */
    val (*exp2)(struct kb *k, val x), (*log2)(struct kb *k, val x), (*rsqrt)(struct kb *k, val x), (*rcp)(struct kb *k, val x);
    val (*byte_perm)(struct kb *k, val a, val b, unsigned selector); /* NULL: generic shifts */
    /* NULL: generic. mask_merge: (x & mask) | bits */
    val (*bit_select)(struct kb *k, unsigned mask, val x, val y), (*mask_merge)(struct kb *k, val x, unsigned mask, unsigned bits);
    val (*fp8_pair)(struct kb *k, int e5m2, val i16); /* two e4m3fn or e5m2 bytes -> i32 f16 pair, NaN kept; NULL: none */
    /* NULL: generic. pack_finite: f16, saturated; with TF_FP8_CVT */
    val (*pack_half)(struct kb *k, val lo, val hi, int type), (*pack_finite)(struct kb *k, val lo, val hi);
    const struct matrix_ops *matrix, *narrow; /* narrow may be NULL */
    const struct group_ops *group;            /* NULL: no kernels of groups */
    const struct encode_ops *encode;          /* may be NULL */
};

extern const struct target_ops target_ops_nvptx, target_ops_amdgcn, target_ops_host;
const struct target *target_find(const char *name); /* NULL if unknown */
const struct target *target_at(int index);          /* NULL past the last */

val kb_address(struct kb *k, val pointer); /* i32 in shared memory, else i64 */
/* for target_*.c only */
void kb_bind_param(struct kb *k, const char *name, val value);
val kb_intrinsic(struct kb *k, const char *name, const int *overloads, int noverloads, const val *args, int nargs);
#define KB_CALL(name, ...) \
    kb_intrinsic(k, name, NULL, 0, (const val[]){__VA_ARGS__}, (int)(sizeof((const val[]){__VA_ARGS__}) / sizeof(val)))
#define KB_CALL_T(name, type, ...) \
    kb_intrinsic(k, name, (const int[]){type}, 1, (const val[]){__VA_ARGS__}, \
                 (int)(sizeof((const val[]){__VA_ARGS__}) / sizeof(val)))
/* Inline assembly; `effects` adds sideeffect, convergent and a memory clobber. */
val kb_asm(struct kb *k, int result, const val *args, int nargs, const char *text, const char *constraints, bool effects);
const struct target *kb_target(struct kb *k);
const struct matrix_ops *kb_matrix(struct kb *k); /* of the plan's form */
void *kb_llvm_builder(struct kb *k);  /* LLVMBuilderRef */
void *kb_llvm_module(struct kb *k);   /* LLVMModuleRef */
void *kb_llvm_context(struct kb *k);  /* LLVMContextRef */
void *kb_llvm_type(struct kb *k, int type); /* LLVMTypeRef */
int kb_type_of(struct kb *k, val x);
/* Starts a function of void type with these parameters; positions the builder in its entry block. Returns the function. */
val kb_function(struct kb *k, const char *symbol, const int *params, int nparams);
void kb_attribute(struct kb *k, val function, const char *key, const char *value);
/* Software conversions for targets without TF_F16 (exact, no library call). */
val kb_soft_f16_to_f32(struct kb *k, val i16);
val kb_soft_f32_to_f16(struct kb *k, val f32); /* -> i16 */

#endif
