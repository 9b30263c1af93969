/* SPDX-License-Identifier: Apache-2.0 */
/*
** plan.h - spec x geometry x target x kind -> every choice a template obeys, with its reason.
*/
#ifndef KVKILN_GEN_PLAN_H
#define KVKILN_GEN_PLAN_H

#include "../runtime/tuned.h"
#include "native.h"
#include "spec.h"
#include "target.h"

enum kind { KIND_STORE, KIND_DECODE, KIND_UNIFIED, KIND_DEQUANT, KIND_MERGE, KIND_COPY, KIND_CONVERT, KIND_COUNT };
enum plan_operand { OPERAND_F16, OPERAND_BF16_SPLIT, OPERAND_BF16, OPERAND_SCALED };
enum plan_held { HELD_NONE, HELD_LEAST, HELD_SOME, HELD_MOST, HELD_ALL }; /* least: the lane's token of a step and its fields */

/* One side (key or value) of a slot. Offsets in bytes. */
struct side {
    struct codec codec;
    int head_size;
    int code_bytes;      /* packed codes */
    int fields;          /* 16-bit fields per (token, head): codebook 1, affine 2, else 0 */
    int scale_bytes;     /* block_float: scales per (token, head), stored right after the codes */
    int code_offset;     /* aos: in the slot; soa: in the data record; native: in the block of 16 tokens */
    int scale_offset;    /* block_float: likewise, of the scales */
    int field_offset[2]; /* aos: in the slot; native: in the block, of its first token; soa: unused */
    int field_index[2];  /* soa, native: f of formats.md section 4 */
    int code_align;      /* power of two that every code_offset address is a multiple of */
    int norm_at_read;    /* codebook: decoded direction is divided by its length when read (aos with norm_correction) */
    int norm_at_store;   /* codebook: the stored scalar has it folded in (soa, native with norm_correction) */
    struct plane plane[NATIVE_PLANES]; /* native.h */
};

struct slot {
    struct side key, value;
    int slot_bytes;     /* even */
    int record_bytes;   /* soa: data record of one (token, head); aos: = slot_bytes; native: of 16 tokens of a head */
    int fields;         /* of both sides */
    int alignment;      /* power of two dividing slot_bytes, at most 16 */
};

struct plan {
    struct spec spec;
    struct geometry geo;
    const struct target *target;
    enum kind kind;
    struct slot slot;
    int warps, threads;       /* a CTA; threads include those of a producer */
    int vectors;              /* store, dequant, merge, copy, convert: (row, head) pairs a CTA: warps, but for store and dequant */
    int pair_lanes, pair_turns; /* store, dequant: lanes that hold a pair, a power of two; pairs of a lane, one after the other */
    int shuffled;             /* dequant: lanes hold a codebook, a look-up is a shuffle */
    /* decode, unified */
    int narrow;               /* tiles of the matrix unit's form for up to 8 query rows; 0: its form for 16 */
    struct mma_shape mma;     /* of that form, all tiles together */
    int rows;                 /* query rows a CTA: decode 16 or 8 a narrow tile; unified 16 a row warp */
    int row_warps;            /* warps with rows of their own (unified) */
    int token_warps;          /* warps that share rows and split tokens (decode) */
    int dim_warps;            /* warps that share rows and tokens and split the value dims */
    int dims;                 /* value dims a lane holds of a V row; lanes at the end share some where that is no divisor */
    int dims_overlap;         /* first dim of the last lanes, 0 where dims divide a warp's share */
    int subtiles;             /* 16-token products a step */
    int paged_subtiles;       /* 1: 16 tokens always lie in one page and share its look-up */
    int tile_tokens;          /* tokens a step of a CTA: 16 * subtiles * token_warps */
    int chunk_tokens;         /* unified: sums of so many tokens meet in f32 additions; 0: all in the matrix unit */
    int lazy_reference;       /* 1: the softmax's reference moves when a score passes it by much, not with every maximum */
    int centre_tokens;        /* affine values: their middle is taken off sums of so many tokens of a warp; 0: off every code */
    int turn_rows;            /* output rows rotated back at a time, as many as shared memory holds; 0: none are */
    int prefetch;             /* 1: codes of the next step are loaded before this one is computed */
    int images;               /* steps whose pages have a place in shared memory; 0: codes go straight to registers */
    int swizzled;             /* 1: 16-byte units of the query tile are permuted so that its operands' reads meet no bank twice */
    int image_heads;          /* KV heads a CTA takes at most, where it has images */
    int image_padding, image_group; /* bytes after so many token rows of an image, where a CTA takes image_heads heads */
    int byte_tables;          /* 1: pairs of 3-bit keys are looked up by bytes (part_tables.c) */
    int key_words, value_words; /* 1: lanes side by side read words side by side of an aos row in an image (part_words.h) */
    int powers;                  /* 1: images of FP4 codes under powers of two, which meet as f16 (part_powers.h) */
    int value_pairs;          /* 1: values come in pairs of tokens: of images that are turned, or of rows (part_word_pairs.h) */
    int turned;               /* 1: images are rows of 128 bytes that tensor copies turn (part_image_pairs.h) */
    int held_places;          /* enum plan_held: which of what a step's addresses begin with is kept in registers */
    int squares;                 /* 1: squares of key centroids are summed by the matrix unit */
    int producer;             /* 1: one more warp asks for pages; the others only read them */
    int bulk;                 /* 1: images come by the bulk copy engine */
    int neighbours;           /* decode: so many CTAs of a cluster, at most, join their splits, and the last cluster the rest, where
                              ** the launch says so; 0: a reduction always does */
    int dense;                /* unified, 16-bit rows: groups of four warps that multiply (kb_group.h); 0: each warp by itself */
    int dense_tiles;          /* of keys and of values that have a place in shared memory, a power of two */
    int held_masks;           /* 1: masks of value codes are kept in registers */
    int spread_tables;        /* 1: look-up tables have a copy for every lane */
    enum plan_operand key_operand, value_operand; /* how K and Q, V and P meet in the matrix unit */
    int settle_branch;        /* 1: a slot is given back behind a branch, and the warp meets again after it */
    int quick;                /* 1: the assembler may spend less time */
    int max_registers;        /* nvptx: cap handed to the assembler, 0 = none */
    int min_ctas;             /* CTAs a multiprocessor that registers are limited for, 0 = none */
    struct { const char *field; char text[120]; } why[40];
    int nwhy;
    struct tuned_plan set, rule; /* values from outside, and what the rules said of those fields */
    const char *set_source;      /* where `set` is from, borrowed */
    char left_out[TUNED_SOURCE_BYTES + sizeof ((kvk_error *)0)->text + 4]; /* a tuned row that did not suit, and why; "" */
};

enum {
    PLAN_IMAGE_UNIT = 128, /* bulk copies to multiples of it are the fastest (docs/performance.md) */
    PLAN_ROW_BYTES = 128,
    PLAN_TURN_BYTES = 8 * PLAN_ROW_BYTES, /* after so many turns of rows repeat */
    PLAN_SUMS = 256, PLAN_RESULTS = 64 /* output sums of a lane and its scores of a step, at most: templates hold no more */
};

/* Fails with KVK_E_SHAPE or KVK_E_UNSUPPORTED naming field, value and what is possible. */
kvk_status plan_make(const struct spec *spec, const struct geometry *geo, const struct target *target, enum kind kind,
                     struct plan *out, kvk_error *err);

/* The same with values from outside for some fields: `values` as tuned.h has them, from `source`. Values that do not suit the
** kernel are refused, or, where `source` is given, left out, which the plan then says. */
kvk_status plan_make_set(const struct spec *spec, const struct geometry *geo, const struct target *target, enum kind kind,
                         const char *values, const char *source, struct plan *out, kvk_error *err);

int plan_lane_sums(const struct plan *plan); /* output sums of a lane, and scores of a step */
int plan_lane_results(const struct plan *plan);
/* For people: one "field value  # reason" line each. Returns the length needed. */
size_t plan_print(const struct plan *plan, char *text, size_t cap);

/* One query tile in shared memory: operand planes of plan_query_pitch 16-bit elements a row (OPERAND_SCALED: bytes),
** then f32 row factors and sums of the row's elements. */
int plan_query_pitch(const struct plan *plan);
int plan_query_bytes(const struct plan *plan);
/* Bits of a code in registers, where it is an index of a table: images of native pages give nibbles. */
int plan_index_bits(const struct plan *plan, const struct side *side);
/* Bytes that one load or copy of a lane's run of codes takes at most. */
int plan_run_unit(const struct side *side, int run, int step);
/* Images of all steps and warps, later the warps' sums. */
int plan_fact_bytes(const struct plan *plan); /* of a token, beside the squares of value centroids */
int plan_ring_bytes(const struct plan *plan);
int plan_image_unit(const struct plan *plan); /* pages of an image begin at multiples of it */
/* One warp's sums; what joining the token warps of a decode CTA takes; and all that serves rows: decode uses one block for the
** query and then the join, unified keeps each warp's sums of earlier chunks beside its query. */
int plan_sums_bytes(const struct plan *plan);
int plan_join_passes(const struct plan *plan);
int plan_join_bytes(const struct plan *plan);
int plan_tile_bytes(const struct plan *plan);
/* Shared memory of a kernel of so many groups, at most. */
int plan_dense_bytes(const struct plan *plan, int groups);
/* Where output rows are rotated back: f32 from one row to the next, bytes of the turn_rows rows of warps that share them. */
int plan_turn_pitch(const struct plan *plan);
int plan_turn_bytes(const struct plan *plan);

const char *kind_name(enum kind kind);   /* "store", ... */
int kind_from_name(const char *name);    /* enum kind or -1 */
/* Byte facts of a slot, shared by plan and manifest. */
kvk_status slot_make(const struct spec *spec, const struct geometry *geo, struct slot *out, kvk_error *err);

#endif
