/* SPDX-License-Identifier: Apache-2.0 */
/*
** Packs: the bytes as they are, and with magic, version, total and checksums put right, so that the
** index, the names and the decompressor behind the checksums are reached.
*/
#include "fuzz.h"

#include "runtime/pack.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

const char fuzz_name[] = "pack";

static void refused(const kvk_error *err, kvk_status status)
{
    FUZZ_CHECK(status == KVK_E_OBJECT && err->status == status);
    FUZZ_CHECK(*err->text && !strchr(err->text, '\n'));
}

static int inside(const struct pack *p, const void *at, size_t bytes)
{
    size_t offset = (size_t)((const unsigned char *)at - p->bytes);
    return offset <= p->size && bytes <= p->size - offset;
}

static void read_rows(const struct pack *p)
{
    for (uint32_t i = 0; i < p->rows; i++) {
        struct pack_row row;
        kvk_error err = {0};
        void *bytes;
        size_t size;
        pack_row(p, i, &row);
        FUZZ_CHECK(inside(p, row.data, (size_t)row.stored_bytes));
        FUZZ_CHECK(inside(p, row.name, strlen(row.name) + 1) && pack_format_name(row.format));
        FUZZ_CHECK(inside(p, row.target, strlen(row.target) + 1) && !strchr(row.name, '/'));
        FUZZ_CHECK(inside(p, row.signature, strlen(row.signature) + 1));
        kvk_status status = pack_read(p, i, &bytes, &size, &err);
        if (status)
            refused(&err, status);
        else
            FUZZ_CHECK(size == row.raw_bytes && !((char *)bytes)[size]);
        free(bytes);
    }
}

/* Returns the rows. */
static uint32_t parse(const uint8_t *data, size_t size)
{
    struct pack p;
    kvk_error err = {0};
    uint32_t index;
    kvk_status status = pack_parse(data, size, &p, &err);
    if (status) {
        refused(&err, status);
        return 0;
    }
    FUZZ_CHECK(inside(&p, p.manifest, strlen(p.manifest) + 1));
    pack_find(&p, "kvkiln spec mine\n", &index);
    read_rows(&p);
    uint32_t rows = p.rows;
    pack_close(&p);
    return rows;
}

static uint64_t number(const uint8_t *at)
{
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | at[i];
    return n;
}

static void put_sum(uint8_t *to, const uint8_t *bytes, size_t size)
{
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits(bytes, size));
    memcpy(to, sum.digest, sizeof sum.digest);
}

static void repair(uint8_t *bytes, size_t size)
{
    uint64_t total = size, head = number(bytes + PACK_AT_DATA);
    memcpy(bytes, PACK_MAGIC "\1\0\0\0\0\0\0\0", 16);
    for (int i = 0; i < 8; i++)
        bytes[PACK_AT_TOTAL + i] = (uint8_t)(total >> 8 * i);
    if (head >= PACK_HEADER_BYTES && head <= size)
        put_sum(bytes + PACK_AT_SUM, bytes + PACK_AT_TOTAL, (size_t)head - PACK_AT_TOTAL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    parse(data, size);
    if (size < PACK_HEADER_BYTES)
        return 0;
    uint8_t *copy = malloc(size);
    FUZZ_CHECK(copy);
    memcpy(copy, data, size);
    repair(copy, size);
    for (uint32_t i = 0, rows = parse(copy, size); i < rows; i++) {
        uint8_t *row = copy + PACK_HEADER_BYTES + (size_t)i * PACK_ROW_BYTES;
        put_sum(row + PACK_ROW_STORED_SUM, copy + number(row + PACK_ROW_DATA),
                (size_t)number(row + PACK_ROW_STORED));
    }
    repair(copy, size);
    parse(copy, size);
    free(copy);
    return 0;
}
