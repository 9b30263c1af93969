/* SPDX-License-Identifier: Apache-2.0 */
/*
** custom.c - specs that a user may write: every codec on a side that no preset has it on, every
** width somewhere.
*/
#include "num.h"

#define CODEBOOK(b, r, c)                                                                          \
    {                                                                                              \
        .kind = REF_CODEBOOK, .bits = b, .rotated = r, .correction = c                             \
    }
#define AFFINE(b)                                                                                  \
    {                                                                                              \
        .kind = REF_AFFINE, .bits = b                                                              \
    }
#define FLOAT8(f)                                                                                  \
    {                                                                                              \
        .kind = REF_FLOAT, .bits = 8, .format = f                                                  \
    }
#define FLOAT16(f)                                                                                 \
    {                                                                                              \
        .kind = REF_FLOAT, .bits = 16, .format = f                                                 \
    }
#define BLOCK(r, g, h)                                                                             \
    {                                                                                              \
        .kind = REF_BLOCK, .bits = 4, .rotated = h, .rule = r, .group = g                          \
    }

static const struct ref_spec specs[] = {
    {"own_c2_a2", CODEBOOK(2, 1, 1), AFFINE(2), .soa = 1, .native = 1},
    {"own_c3_a5", CODEBOOK(3, 0, 1), AFFINE(5), .soa = 1},
    {"own_c4_a6", CODEBOOK(4, 1, 0), AFFINE(6), .soa = 1},
    {"own_e4m3_a8", FLOAT8(REF_E4M3), AFFINE(8), .soa = 1},
    {"own_e4b15_a3", FLOAT8(REF_E4B15), AFFINE(3), .soa = 1, .native = 1},
    {"own_e5m2_e4m3", FLOAT8(REF_E5M2), FLOAT8(REF_E4M3), .soa = 0},
    {"own_fp16_bf16", FLOAT16(REF_FP16), FLOAT16(REF_BF16), .soa = 0},
    {"own_bf16_fp16", FLOAT16(REF_BF16), FLOAT16(REF_FP16), .soa = 0},
    {"own_a7_c4", AFFINE(7), CODEBOOK(4, 0, 1), .soa = 1},
    {"own_a4_e5m2", AFFINE(4), FLOAT8(REF_E5M2), .soa = 1},
    {"own_mxfp4_nvfp4", BLOCK(REF_MXFP4, 32, 1), BLOCK(REF_NVFP4, 16, 0), .soa = 0},
    {"own_nvfp4_mxfp4", BLOCK(REF_NVFP4, 16, 0), BLOCK(REF_MXFP4, 32, 0), .soa = 0, .native = 1},
    {"own_c4_ultra", CODEBOOK(4, 1, 1), BLOCK(REF_ULTRAQUANT, 32, 0), .soa = 0, .native = 1},
    {"own_ultra_a4", BLOCK(REF_ULTRAQUANT, 32, 1), AFFINE(4), .soa = 0, .native = 1},
    /* encoder options; of specs with fields every second one is laid out as soa (cases.c) */
    {"own_options_aos",
     {.kind = REF_CODEBOOK, .bits = 4, .rotated = 1, .correction = 1, .unbiased = 1},
     {.kind = REF_AFFINE, .bits = 4, .stored = 1},
     .soa = 1,
     .native = 1},
    {"own_options_soa",
     {.kind = REF_CODEBOOK, .bits = 3, .rotated = 1, .correction = 1, .unbiased = 1},
     {.kind = REF_AFFINE, .bits = 3, .stored = 1},
     .soa = 1,
     .native = 1},
    {"own_options",
     {.kind = REF_CODEBOOK, .bits = 2, .rotated = 1, .unbiased = 1},
     {.kind = REF_AFFINE, .bits = 8, .stored = 1},
     .soa = 1},
    {"own_options_block",
     {.kind = REF_BLOCK, .bits = 4, .rotated = 1, .group = 32, .search = 1, .constant = 0.12f},
     {.kind = REF_BLOCK, .bits = 4, .group = 32, .constant = 0.2f},
     .soa = 0},
    /* values that attention rotates back, values whose length it corrects, both */
    {"own_a4_c4", AFFINE(4), CODEBOOK(4, 1, 1), .soa = 1, .native = 1},
    {"own_c3_c2", CODEBOOK(3, 1, 1), CODEBOOK(2, 1, 0), .soa = 1, .native = 1},
    {"own_e4m3_c3", FLOAT8(REF_E4M3), CODEBOOK(3, 0, 1), .soa = 1, .native = 1},
    {"own_c4_c3", CODEBOOK(4, 1, 1), CODEBOOK(3, 1, 1), .soa = 1, .native = 1},
    {"own_fp16_ultra", FLOAT16(REF_FP16), BLOCK(REF_ULTRAQUANT, 32, 1), .soa = 0},
    {"own_ultra_nvfp4", BLOCK(REF_ULTRAQUANT, 32, 1), BLOCK(REF_NVFP4, 16, 1), .soa = 0,
     .native = 1},
    /* 8-bit queries; matrix units with block scales take the first two as they are */
    {"own_e4m3q_ultra", BLOCK(REF_ULTRAQUANT, 32, 1), BLOCK(REF_ULTRAQUANT, 32, 0), .native = 1,
     .query_e4m3 = 1},
    {"own_e4m3q_mxfp4", BLOCK(REF_MXFP4, 32, 0), AFFINE(4), .query_e4m3 = 1},
    {"own_e4m3q_nvfp4", BLOCK(REF_NVFP4, 16, 0), FLOAT8(REF_E4M3), .query_e4m3 = 1},
    {"own_fp8_e4m3", FLOAT8(REF_E4M3), FLOAT8(REF_E4M3), .soa = 0},
    {"own_fp8_e4b15", FLOAT8(REF_E4B15), FLOAT8(REF_E4B15), .soa = 0},
    {"own_fp8_e5m2", FLOAT8(REF_E5M2), FLOAT8(REF_E5M2), .soa = 0},
    {0},
};

const struct ref_spec *num_custom_specs(void) { return specs; }
