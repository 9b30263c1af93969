/* SPDX-License-Identifier: Apache-2.0 */
/*
** num.h - the numeric suite: every kind of kernel, through the public interface, against tests/ref.
**
** A case runs inside num_try: memory that it takes from num_host and num_device is freed when it
** ends, and num_fail leaves it by longjmp. One case runs at a time.
*/
#ifndef KVKILN_TESTS_NUM_H
#define KVKILN_TESTS_NUM_H

#include "../../runtime/kvkiln.h"
#include "../ref/ref.h"

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

enum { NUM_MAX_SEQUENCES = 96, NUM_TEXT = 640 };

/* What a negative control breaks, on the kernel's side only. */
enum num_fault {
    FAULT_NONE,
    FAULT_SCALE,
    FAULT_SLIGHT,
    FAULT_LENGTH,
    FAULT_UNROTATED,
    FAULT_NIBBLES,
    FAULT_ELEMENT
};

struct num_run {
    kvk_context *ctx;
    const char *device, *cache_dir;
    char *spec_folder; /* files of the specs that are no presets */
    uint64_t seed;
    enum num_fault fault, broken; /* broken: of every case that has no fault of its own */
    jmp_buf *leave;
    char text[NUM_TEXT];     /* why the case failed */
    double error, lse_error; /* largest that attention_check saw: relative L2, absolute */
    int compared;            /* the failure is a comparison's, not a call's */
    int may_refuse, skipped; /* the case's; it was refused */
    struct num_memory *memory;
};

struct num_model {
    const struct ref_spec *spec;
    enum ref_layout layout;
    int d, dv, gqa, kv_heads, page; /* head size of keys and queries, of values and outputs */
    kvk_dtype dtype, dequant_dtype;
    unsigned options;
};

struct num_case;
typedef void num_body(struct num_run *run, const struct num_case *c);
struct num_case {
    char name[144];
    struct num_model model;
    num_body *body;
    int variant;
    enum num_fault fault; /* not FAULT_NONE: the body must fail a comparison */
    int full;             /* only with --full */
    int may_refuse;       /* KVK_E_UNSUPPORTED and KVK_E_SHAPE are an answer: the case is skipped */
};

/* --- run.c --- */
enum num_result { CASE_FAILED, CASE_PASSED, CASE_SKIPPED };
enum num_result num_try(struct num_run *run, const struct num_case *c);
_Noreturn void num_fail(struct num_run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
_Noreturn void num_differ(struct num_run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void *num_host(struct num_run *run, size_t bytes);   /* zeroed */
void *num_device(struct num_run *run, size_t bytes); /* filled with 0xFF */
void *num_device_untouched(struct num_run *run, size_t bytes);
/* A page into memory that is too large to be filled: what is near it is 0xFF, as num_device would leave it. */
struct page_at {
    const uint8_t *page;
    size_t offset, bytes;
};
enum { PAGE_EDGE = 1 << 18 };
void num_place_page(struct num_run *run, uint8_t *memory, size_t bytes, const struct page_at *at);
void *num_upload(struct num_run *run, const void *from, size_t bytes);
void num_download(struct num_run *run, void *to, const void *from, size_t bytes);
/* Leaves the case as skipped, for this reason, on the host and on simulated GPUs. */
void num_gpus_only(struct num_run *run, const char *why);
void num_ok(struct num_run *run, kvk_status status, const kvk_error *err, const char *call);
const kvk_kernels *num_prepare(struct num_run *run, const struct num_model *model, unsigned kinds);

/* --- data.c: everything random follows from a seed and a stream number --- */
struct num_random {
    uint64_t state;
};
struct num_random num_random(uint64_t seed, uint64_t stream);
uint64_t num_case_seed(const struct num_run *run, const struct num_case *c);
uint64_t num_next(struct num_random *r);
int num_below(struct num_random *r, int n);
float num_normal(struct num_random *r);
void num_shuffle(struct num_random *r, int32_t *x, int n);
uint16_t num_bits(kvk_dtype dtype, float x);
float num_value(kvk_dtype dtype, uint16_t bits);
void num_fill_normal(struct num_random *r, kvk_dtype dtype, uint16_t *out, size_t n);
/* Rows that break careless encoders: zeros, constants, outliers, tiny, huge, infinite, NaN.
** [rows][heads][d] */
void num_fill_special(struct num_random *r, kvk_dtype dtype, uint16_t *out, size_t vectors, int d);

/* --- rows.c: a tensor of rows on the device, dense or with gaps --- */
struct num_rows {
    kvk_dtype dtype;
    size_t rows, heads, d, first, row_stride, head_stride, elements; /* first: of the buffer */
    void *base;                                                      /* device */
    struct kvk_rows device;
};
/* bits NULL: an output, filled with a pattern that num_rows_get finds again in gaps and unwritten
** rows. */
struct num_rows num_rows_put(struct num_run *run, kvk_dtype dtype, const uint16_t *bits,
                             size_t rows, size_t heads, size_t d, int strided);
/* Dense bits of the first `rows` rows; all else must still hold the pattern. */
uint16_t *num_rows_get(struct num_run *run, const struct num_rows *t, size_t rows,
                       const char *what);

void num_use_own_generator(void); /* generator.c */

/* --- spec_file.c --- */
char *spec_folder_make(void);
void spec_folder_remove(char *folder);
void spec_file_write(const char *folder, const struct ref_spec *spec);

/* --- the cases --- */
num_body check_store, check_dequant, check_decode, check_decode_by_images, check_decode_by_pairs, check_unified,
    check_options, check_query_tokens, check_query_lengths, check_merge, check_copy, check_convert_aos, check_convert_soa,
    check_convert_native, check_drafts, check_fp8, check_tiled, check_million, graph_tiled;
num_body prop_page_permutation, prop_splits, prop_dominant_key, prop_equal_keys, prop_linear_in_v,
    prop_gqa_repeats, prop_unified_is_decode, prop_codes_survive, prop_native_reads_alike,
    prop_rest_of_batch, prop_negative_slot, prop_unused_slots, prop_bad_sequence, prop_bad_query,
    prop_far_below_zero, prop_growing_scales, prop_largest_values, prop_far_pages, prop_batch_invariant,
    prop_merged_halves;
struct num_case *num_cases(int full, size_t *count); /* malloc'd */

const struct ref_spec *num_custom_specs(void); /* specs that are no presets; the last has no name */

#endif
