/* SPDX-License-Identifier: Apache-2.0 */
/*
** slots.h - where each number of a compressed cache lies and what it means: the presets' byte
** formats, written again in plain C doubles, independent of the generator, so that the tool can
** judge it.
*/
#ifndef KVKILN_CLI_SLOTS_H
#define KVKILN_CLI_SLOTS_H

#include <stddef.h>
#include <stdint.h>

enum key_coding { KEY_CODEBOOK, KEY_FP8, KEY_E2M1 };
enum value_coding { VALUE_AFFINE, VALUE_E2M1 };
enum { SLOTS_GROUP = 32 }; /* elements that share an E2M1 scale */

struct format {
    const char *preset;
    enum key_coding key;
    int key_bits;
    enum value_coding value;
    int value_bits;
};

/* A pool of pages of one format and geometry. */
struct slots {
    const struct format *format;
    int soa, heads, head_size, page_tokens;
    int native; /* the pool's bytes are to be put through slots_from_native: these are of what comes out */
    size_t key_bytes, value_bytes; /* codes of one slot */
    size_t scale_bytes;            /* E2M1: group scales of one side */
    int fields;                    /* 16-bit fields: the key's scalar (codebook), v_scale, v_zero */
    size_t slot_bytes, page_bytes;
    double centroids[16]; /* codebook: the fp32 table */
    double midpoints[15];
};

/* Offsets in the pool of the parts of one slot. */
struct place {
    size_t key, value;               /* codes */
    size_t key_scales, value_scales; /* E2M1 */
    size_t scalar, scale, zero;      /* fields */
};

/* Preset by name ("turboquant_4bit_nc", ...), by index, or
 * NULL. "ultraquant_4bit_e4m3q" has ultraquant_4bit's bytes. */
const struct format *slots_format(const char *preset);
const struct format *slots_format_at(int index);
int slots_rotated(const struct format *format);

/* Sizes and tables; 0 when the format does not have this layout ("aos", "soa", "native") or geometry. */
int slots_make(const struct format *format, const char *layout, int heads, int head_size,
               int page_tokens, struct slots *out);

/* Whole pages of a native pool as pages of soa, or of aos where the format has no fields. */
void slots_from_native(const struct slots *slots, const unsigned char *from, size_t pages,
                       unsigned char *to);

/* Slot number `slot` = page * page_tokens + position, of one head. */
struct place slots_at(const struct slots *slots, long slot, int head);

/* Code of element d of an LSB-first bit stream. */
unsigned slots_code(const unsigned char *codes, int bits, int d);

/* Decoded rows of one slot: head_size doubles. Keys of rotated formats stay rotated. Non-finite
 * fields read as formats do: NaN as 0, infinities as +-65504. */
void slots_key(const struct slots *slots, const unsigned char *pool, long slot, int head,
               double *out);
void slots_value(const struct slots *slots, const unsigned char *pool, long slot, int head,
                 double *out);

/* Lloyd-Max table for N(0, 1/D) as the formats define it: 2^bits fp32 values, ascending. */
void slots_centroids(int head_size, int bits, double *out);

/* In place: the block-diagonal orthonormal Hadamard transform, its own inverse. */
void slots_rotate(double *row, int head_size);

#endif
