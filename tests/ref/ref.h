/* SPDX-License-Identifier: Apache-2.0 */
/*
** ref.h - the oracle: what every kernel must compute, written a second time, slowly and plainly.
**
** Nothing here is shared with the product: no header, no table, no solver. Encoding follows the
** fp32 arithmetic of the format contract operation by operation (compile with -ffp-contract=off),
** so its bytes are compared for equality; decoding and attention are double precision, so kernels
** are compared within rounding.
** Shapes    rows [rows][G][D] of float or double, dense; G KV heads, H query heads, D head size, P
** tokens a page. Memory    all buffers are the caller's; a format and a pool are plain values.
*/
#ifndef KVKILN_TESTS_REF_H
#define KVKILN_TESTS_REF_H

#include <stddef.h>
#include <stdint.h>

enum ref_kind { REF_CODEBOOK, REF_AFFINE, REF_FLOAT, REF_BLOCK };
enum ref_float { REF_E4M3, REF_E4B15, REF_E5M2, REF_FP16, REF_BF16 };
enum ref_rule { REF_ULTRAQUANT, REF_MXFP4, REF_NVFP4 };
enum ref_layout { REF_AOS, REF_SOA, REF_NATIVE };
enum { REF_MAX_D = 1024, REF_MAX_FIELDS = 4 };

struct ref_codec {
    enum ref_kind kind;
    int bits;              /* codebook 2..4, affine 2..8, float 8 or 16, block 4 */
    int rotated;           /* codebook, block: elements are coded in the Hadamard basis */
    int correction;        /* codebook: the decoded direction has length one */
    enum ref_float format; /* float */
    enum ref_rule rule;    /* block */
    int group;             /* block: elements that share a scale byte */
    /* what only the encoder does otherwise (sections 12.1 to 12.3) */
    int unbiased;          /* codebook: the stored length makes <x, decoded x> = <x, x> */
    int stored;            /* affine: codes from the fields as stored */
    int search;            /* ultraquant: exponent e or e + 1, whichever errs less */
    float constant;        /* ultraquant: 0 = 0.156 */
};

struct ref_spec {
    const char *name;
    struct ref_codec key, value;
    int soa; /* may be laid out as structure of arrays */
    int native; /* and in blocks of 16 tokens */
    int query_e4m3; /* attention reads the (rotated) query rounded to e4m3 */
};

/* A spec at one geometry, with what follows from it. */
struct ref_format {
    struct ref_codec key, value;
    enum ref_layout layout;
    int key_size, value_size, heads, page_tokens;
    float key_centroids[16], value_centroids[16];
    size_t key_bytes, value_bytes; /* codes, and the scale bytes of block codecs behind them */
    int key_fields, value_fields;  /* 16-bit fields a slot */
    size_t slot_bytes, page_bytes; /* slot padded to even */
};

struct ref_pool {
    uint8_t *data;
    int64_t pages, page_stride, position_stride, head_stride; /* bytes */
};

/* Byte offsets in a pool, not native, of one token of one head. Fields: key fields, then value fields. */
struct ref_place {
    size_t key, value, field[REF_MAX_FIELDS];
};

/* ref_format.c */
const char *ref_layout_name(enum ref_layout layout);
int ref_spec_count(void);
const struct ref_spec *ref_spec_at(int index);
const struct ref_spec *ref_spec_find(const char *name); /* NULL if there is none */
size_t ref_code_bytes(const struct ref_codec *codec, int d);
int ref_field_count(const struct ref_codec *codec);
void ref_format_make(struct ref_format *out, const struct ref_spec *spec, enum ref_layout layout,
                     int key_size, int value_size, int heads, int page_tokens);

/* ref_page.c */
struct ref_pool ref_pool_dense(const struct ref_format *f, uint8_t *data, int64_t pages);
struct ref_place ref_place(const struct ref_format *f, const struct ref_pool *pool, int64_t slot,
                           int head);

/* ref_bits.c: conversions round to nearest even, keep subnormals; 8-bit formats saturate */
uint16_t ref_f16_from(float x);
float ref_f16_to(uint16_t h);
uint16_t ref_bf16_from(float x);
float ref_bf16_to(uint16_t h);
uint8_t ref_e4m3_from(float x);
float ref_e4m3_to(uint8_t b);
uint8_t ref_e4b15_from(float x);
float ref_e4b15_to(uint8_t b);
uint8_t ref_e5m2_from(float x);
float ref_e5m2_to(uint8_t b);
unsigned ref_get_code(const uint8_t *bytes, int bits, int element); /* one LSB-first stream */
void ref_put_code(uint8_t *bytes, int bits, int element, unsigned code); /* over zero bits */
uint16_t ref_get16(const uint8_t *bytes);
void ref_put16(uint8_t *bytes, uint16_t v);

/* ref_rotate.c */
int ref_block_order(int d);                /* largest power of two that divides d */
void ref_rotate_f32(float *x, int d);      /* butterflies, one multiplication at the end */
void ref_rotate_stages(float *x, int d);   /* the block codec's form: scaled at every butterfly */
void ref_rotate(double *x, int d);         /* exact to double rounding; its own inverse */

/* ref_codebook.c: centroids for N(0, 1/d), ascending; midpoints in fp32 from them */
void ref_lloyd_max(int d, int bits, float *centroids);
void ref_midpoints(const float *centroids, int bits, float *midpoints);

/*
** ref_store.c. `codes` receives ref_code_bytes, `fields` ref_field_count entries. `edge`, if not
** NULL, receives per element the number that the code was derived from: the rotated coordinate
** (codebook), the quotient (affine).
*/
void ref_encode(const struct ref_codec *codec, const float *centroids, enum ref_layout layout,
                const float *x, int d, uint8_t *codes, uint16_t *fields, float *edge);
/* One row of all heads. Slots outside the pool change nothing. */
void ref_store(const struct ref_format *f, const struct ref_pool *pool, int64_t slot,
               const float *key, const float *value);

/* ref_dequant.c. Keys of rotated codecs stay rotated. A NaN field reads as 0, an infinite one as +-65504. */
void ref_decode(const struct ref_codec *codec, const float *centroids, enum ref_layout layout,
                const uint8_t *codes, const uint16_t *fields, int d, double *out);
/* One token of one head; key or value may be NULL. */
void ref_dequant(const struct ref_format *f, const struct ref_pool *pool, int64_t slot, int head,
                 double *key, double *value);

/* ref_attend.c: one sequence. Query i sits at length - query_len + i; rows before position 0 and
** rows that see no key give zeros and LSE -inf. Query and keys must be in one basis. LSE is
** natural and leaves the sinks out. */
struct ref_attention {
    const double *query;       /* [query_len][H][key_size] */
    const double *key, *value; /* [length][G][D] */
    double *out;               /* [query_len][H][value_size] */
    double *lse;               /* [query_len][H] or NULL */
    int query_len, length, query_heads, heads, key_size, value_size;
    double scale;
    int window;                /* 0 = none */
    const float *sinks;        /* [H] or NULL */
    int full;                  /* every row sees every key that its window lets it see */
    double soft_cap;           /* 0 = none */
    const float *alibi;        /* [H] slopes of key - position, or NULL */
};
void ref_attend(const struct ref_attention *a);

#include "ref_slot.h"

#endif
