/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_attend.h - attention of 16 query rows (8 in the narrow form) to a range of cached tokens by one warp: what decode
** and unified share.
**
** A step takes 16 * subtiles tokens. Codes go from memory straight into registers (with images from
** pages in shared memory, part_image.h) in the order the matrix unit wants: the lane's share of a K
** row is D / groups consecutive elements and its share of a V row D / y_tile, so the order along D is
** permuted; the query is read in the same order, and output columns are written back in it.
**
** Numbers. Scores are in log2 units. K operands are codes without their norm, which scales the
** score; V operands are codes less the middle code (where plan->centre_tokens it is taken off their
** sums), their scale s is multiplied into p, their zero (plus the middle) is a scalar sum over p. The running
** reference is m = max(t + floor(log2 s)), or less by some powers of two (part_reference.c): then p * s fits
** 16 bits whatever the range of scores and scales. Online softmax: Milakov & Gimelshein 2018, arXiv:1805.02867.
*/
#ifndef KVKILN_PART_ATTEND_H
#define KVKILN_PART_ATTEND_H

#include "../gen/target.h"
#include "part_power_state.h"
#include "part_row_words.h"
#include "part_slot.h"

enum {
    ATTEND_ROWS = 8, ATTEND_SUBTILES = 2, /* query rows a lane holds, at most */
    ATTEND_KEY_WORDS = 320,
    ATTEND_VALUE_WORDS = 32,
    ATTEND_CHUNKS = 40,   /* block scales a lane needs of one token, at most */
    ATTEND_TOKENS = 16,   /* V tokens of a lane and product, at most */
    ATTEND_SUMS = PLAN_SUMS, ATTEND_MASKS = 10 /* bits below an f16's exponent */
};

/* A table in shared memory, one copy or one a lane (plan->spread_tables): then no two lanes ever meet in a bank. */
struct attend_lookup {
    val base;              /* NULL: the codec has none */
    val lane;              /* i32: the lane's copy inside a row of copies; NULL with one copy */
    int pitch;             /* bytes from one entry to the next, a power of two */
};

/* Fixed for a warp. */
struct attend {
    const struct plan *plan;
    struct mma_shape shape;
    int y_tiles;           /* 16 / y_tile */
    int key_run, dims;     /* elements of a K row, dims of a V row that a lane holds */
    struct slot_head head;
    val y, group, dim_base;/* i32; dim_base: first value dim of this warp */
    val y_steps, k_steps;  /* i64 bytes: from a subtile's first token to those of y and of the first k, in one page */
    val table;             /* block table of the sequence */
    val length;            /* i32 cached tokens of the sequence, > 0 where codes are loaded */
    struct attend_lookup key_table, value_table; /* pair tables */
    val squares_table, repeated; /* part_squares.c: squares of value centroids; dims at the lane's first that others count */
    val mask[ATTEND_MASKS];/* i32: of value codes that begin at this bit, NULL where the plan holds none */
    val query, scratch;    /* shared: this warp's query tile, token facts */
    val stride, stride_log; /* i32: tokens from one step of this warp to the next, a power of two; its log2 */
    val image, image_page, image_fields; /* shared: the step's pages, or NULL; bytes to the next; own_field's base, NULL: image */
    val y_token, k_token[ATTEND_TOKENS], result_token[8]; /* i32: tokens of rows y, k_index(e), result_y(e) in images */
    val v_steps[ATTEND_TOKENS]; /* i32 bytes to k_token[e] */
    /* Held across steps (plan->held_places), else NULL: i32: the token whose facts the lane prepares, bytes to its fields; its
    ** place in the query tile; shared: where its facts go and come from; i32 bytes to rows 8n. */
    val own_token, own_field, query_place, facts_to, facts_from, rows_8[4];
    val key_places[4], cell; /* i32, held: bytes to the lane's units of keys (part_image_pairs.c); to its 16 of a plane (native) */
    val all_first, all_last; /* i32: keys that all of the lane's rows see; NULL: not held */
    struct attend_words words; /* part_words.c */
    struct attend_powers powers; /* part_powers.c */
    int tokens_8;          /* tokens from that of a row to that of the row 8 later */
    void (*after_keys)(struct kb *k, void *data, const val *products), *after_data; /* NULL, or called once keys were used */
    val row_sum[ATTEND_ROWS];             /* f32: sum of the row's elements, scaled as its operand; affine keys */
    val position[ATTEND_ROWS];            /* i32: of the row's token in its sequence */
    val slope[ATTEND_ROWS], soft_cap;     /* f32: of kernels with these options, in log2 units */
    val row_scale[ATTEND_ROWS];           /* f32: score of a row = product * row_scale * token factor, log2 units */
    val first[ATTEND_ROWS], last[ATTEND_ROWS]; /* i32: visible keys of a row; last < first: none */
    val second;            /* i1, uniform: of the second half of some lane's rows one exists; NULL: not asked, they are worked on */
};

/* What the loop carries of the softmax. */
struct attend_sums {
    val m[ATTEND_ROWS], l[ATTEND_ROWS], z[ATTEND_ROWS];
    val o[ATTEND_SUMS];    /* [dim tile][row][e] */
    val power[2];          /* i32, where plan->powers: references of keys and values (part_powers.c) */
    val middle[16];        /* [tile][row][e], all tiles alike: weights times the middle code, not yet taken off o */
};

/* One step's raw data, as loaded. Unused entries are NULL. */
struct attend_codes {
    val key[ATTEND_SUBTILES][2][ATTEND_KEY_WORDS];
    val key_scale[ATTEND_SUBTILES][2][ATTEND_CHUNKS];
    val value[ATTEND_SUBTILES][ATTEND_TOKENS][ATTEND_VALUE_WORDS]; /* [product]: of k_tiles subtiles */
    val value_scale[ATTEND_SUBTILES][ATTEND_TOKENS][ATTEND_CHUNKS];
    val value_squares[ATTEND_SUBTILES][ATTEND_TOKENS]; /* f32: of the dims of other warps, where lengths are corrected */
    val field[4];          /* i16: of token lane % (16 * subtiles): key norm, value scale, value zero as the codecs have them */
};

/* Indices, pair tables (a CTA barrier must follow before the loop), scratch. Call once, outside any
** branch. */
void attend_begin(struct kb *k, struct attend *a, val head);

/* part_codes.c. The block table of a sequence; then one step's data. */
void attend_table(struct kb *k, struct attend *a, val sequence);
void attend_load(struct kb *k, const struct attend *a, val start, struct attend_codes *c);
/* The same in two parts: keys and fields, values. */
void attend_load_keys(struct kb *k, const struct attend *a, val start, struct attend_codes *c);
void attend_load_values(struct kb *k, const struct attend *a, val start, struct attend_codes *c);
/* `bytes` bytes at a multiple of `align` as little-endian words, the last one zero-extended. */
void attend_load_words(struct kb *k, const struct attend *a, val at, int bytes, int align, val *words);
/* Number of the sequence's page `index` (i32). */
val attend_page(struct kb *k, const struct attend *a, val index);
/* part_key.c: Y operand of k step s for one token row; *squares (may be NULL) gains its centroids' squares. */
void attend_key_operand(struct kb *k, const struct attend *a, const struct attend_codes *c, int sub, int tile, int s, val *pairs,
                        val *squares);
/* part_value.c: Y operand of dim tile `dim`; valid[e]: the e-th token exists (NULL where no codec needs it). */
void attend_value_operand(struct kb *k, const struct attend *a, const struct attend_codes *c, int sub, int dim, val valid[],
                          val *pairs);
void attend_value_masks(struct kb *k, struct attend *a); /* fills a->mask; outside of the loop */
/* What sums of dim tile `dim` are multiplied with at the end: V operands may be codes times a power of two. */
double attend_value_factor(const struct attend *a, int dim);
int attend_value_bit(const struct attend *a, int dim); /* the power of affine codes: where they stand in their halves */
int attend_value_middle(const struct attend *a);       /* a pair of middle codes at bit 0 */
/* part_tables.c: pair tables in shared memory, and look-ups. */
void attend_tables(struct kb *k, struct attend *a);
/* Address of the entry whose index is the `bits` bits at bit `at` of a word string. */
val attend_entry(struct kb *k, const struct attend_lookup *t, const val *words, int at, int bits);
/* Where plan->byte_tables: of n words the `pair`th pair of 3 bits. */
val attend_pair_of_three(struct kb *k, const struct attend_lookup *t, const val *words, int n, int pair);
val attend_word(struct kb *k, const struct attend_lookup *t, const val *words, int at, int bits); /* i32: its first word */
/* `bits` bits at bit `at` of a word string, times `scale` (a power of two). */
val attend_bits(struct kb *k, const val *words, int at, int bits, int scale);
/* Two bytes, in bits 0-7 and 16-23, of an 8-bit float format -> f16 pair. */
val attend_float_pair(struct kb *k, enum float_format format, val spread);
/* First value dim that the lane (or result column) y holds. */
val attend_first_dim(struct kb *k, const struct attend *a, val y);

/* Index of a result of a step: [16-token product and its tiles][row][e]. */
int attend_result(const struct attend *a, int tile, int row, int e);
/* part_step.c: one step over tokens start .. start + 16 * subtiles - 1. */
void attend_step(struct kb *k, const struct attend *a, val start, const struct attend_codes *c, struct attend_sums *s);

/* First and last key that all of the lane's rows see. */
void attend_seen_by_all(struct kb *k, const struct attend *a, val *from, val *to);

/* part_attend.c: tokens start, start + a->stride, ... < end (i32, warp-uniform); start is a multiple of 16. */
void attend_range(struct kb *k, const struct attend *a, val start, val end, struct attend_sums *s);
/* The same in chunks whose sums meet in f32 additions, finished: matrix units truncate when they accumulate, and over a
** million tokens that would show. `buffer`: plan_sums_bytes of shared memory of this warp's own. */
void attend_chunks(struct kb *k, const struct attend *a, val start, val end, val buffer, struct attend_sums *s);
/* Joins the lanes' partial l and z, adds z to every output sum. */
void attend_finish(struct kb *k, const struct attend *a, struct attend_sums *s);

#endif
