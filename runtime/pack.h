/* SPDX-License-Identifier: Apache-2.0 */
/*
** pack.h - reading .kvkpack files: many sealed objects in one mapped file. Every byte of it: docs/packs.md.
**
** pack_parse takes any bytes whatever: it checks header, index, names and manifest (the head, one checksum) and touches
** nothing behind them; pack_read checks and decompresses one row. A parsed pack is immutable: its functions are thread safe.
** A pack of another generator or argument layout parses, so that tools can list it; who uses its code compares
** generator, abi and object first. The buffer stays the caller's, and must stay as it is, until the pack is closed.
*/
#ifndef KVKILN_PACK_H
#define KVKILN_PACK_H

#include "kvkiln.h"

enum { PACK_VERSION = 1, PACK_HEADER_BYTES = 192, PACK_ROW_BYTES = 96, PACK_ALIGNMENT = 16, PACK_SUM_BYTES = 16 };
enum { PACK_GENERATOR_CAP = 64, PACK_NAME_CAP = 256 };

/* Where the fields of header and row lie. */
enum {
    PACK_AT_VERSION = 8, PACK_AT_SUM = 16, PACK_AT_TOTAL = 32, PACK_AT_ROWS = 40, PACK_AT_OBJECT = 44, PACK_AT_ABI = 48,
    PACK_AT_STRINGS = 56, PACK_AT_MANIFEST = 72, PACK_AT_DATA = 88, PACK_AT_RESERVED = 96, PACK_AT_GENERATOR = 128
};
enum {
    PACK_ROW_KEY = 0, PACK_ROW_FORMAT = 16, PACK_ROW_NAME = 20, PACK_ROW_TARGET = 24, PACK_ROW_SIGNATURE = 28,
    PACK_ROW_DATA = 32, PACK_ROW_STORED = 40, PACK_ROW_RAW = 48, PACK_ROW_STORED_SUM = 56, PACK_ROW_RAW_SUM = 72,
    PACK_ROW_ZERO = 88
};
#define PACK_MAGIC "KVKPAK\r\n"
#define PACK_RAW_MOST_BYTES (UINT64_C(256) << 20)

/* What a row holds: a sealed object with code of a format, or the canonical text of a spec. Part of the file format. */
enum pack_format { PACK_CUBIN = 1, PACK_PTX, PACK_HSACO, PACK_HOST, PACK_SPEC, PACK_FORMATS };

struct pack {
    const unsigned char *bytes;
    size_t size;
    uint32_t rows, object, abi;
    const char *generator, *manifest; /* inside the buffer */
    const char *strings;
    int mapped;                       /* by pack_map */
};

struct pack_row {
    const char *name, *target, *signature; /* inside the buffer; target and signature of a spec are "" */
    enum pack_format format;
    const unsigned char *data;             /* one zstd frame */
    uint64_t stored_bytes, raw_bytes;
    const unsigned char *key, *stored_sum, *raw_sum; /* XXH3-128: of the key text, the frame, what it decompresses to */
};

/* KVK_E_OBJECT names what is wrong with the bytes. */
kvk_status pack_parse(const void *bytes, size_t size, struct pack *out, kvk_error *err);

/* The same on a mapped file; KVK_E_IO where it cannot be had. Replace a pack by rename: cutting a mapped file kills readers. */
kvk_status pack_map(const char *path, struct pack *out, kvk_error *err);
void pack_close(struct pack *pack);

/* Row by number, below pack->rows. Rows ascend by key. */
void pack_row(const struct pack *pack, uint32_t index, struct pack_row *out);

/* The row under this key text: 1 and its number, or 0. */
int pack_find(const struct pack *pack, const char *key, uint32_t *index);

/* The bytes of a row, malloc'd, checked and decompressed; a NUL follows them. */
kvk_status pack_read(const struct pack *pack, uint32_t index, void **bytes, size_t *size, kvk_error *err);

/* The word for a format: "cubin", "ptx", "hsaco", "host", "spec"; NULL for none. */
const char *pack_format_name(enum pack_format format);

/* Key text of a spec's row. Returns the length needed (like snprintf). */
size_t pack_spec_key(const char *spec_name, char *text, size_t cap);

#endif
