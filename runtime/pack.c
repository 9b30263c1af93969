/* SPDX-License-Identifier: Apache-2.0 */
/*
** pack.c - see pack.h.
**
** Everything in the head has one place where it can be: sections follow each other without gaps,
** and a frame begins where the one before it ended, rounded up. So there is nothing to overlap, and
** what is checked is that the numbers are the only possible ones.
*/
#include "pack.h"

#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>
#include <zstd_errors.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static uint64_t get(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static int sum_is(const unsigned char *sum, const void *bytes, size_t size)
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, size));
    return memcmp(sum, canonical.digest, PACK_SUM_BYTES) == 0;
}

static uint64_t aligned(uint64_t at)
{
    return (at + PACK_ALIGNMENT - 1) / PACK_ALIGNMENT * PACK_ALIGNMENT;
}

static int all_zero(const unsigned char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (at[i])
            return 0;
    return 1;
}

const char *pack_format_name(enum pack_format format)
{
    static const char *const names[PACK_FORMATS] = {NULL, "cubin", "ptx", "hsaco", "host", "spec"};
    return (unsigned)format < PACK_FORMATS ? names[format] : NULL;
}

size_t pack_spec_key(const char *spec_name, char *text, size_t cap)
{
    int n = snprintf(text, cap, "kvkiln spec %s\n", spec_name);
    return n > 0 ? (size_t)n : 0;
}

static kvk_status check_header(const unsigned char *bytes, size_t size, kvk_error *err)
{
    if (size < PACK_HEADER_BYTES)
        return ERR(err, KVK_E_OBJECT, "pack of %zu bytes is shorter than its header of %d", size,
                   PACK_HEADER_BYTES);
    if (memcmp(bytes, PACK_MAGIC, sizeof PACK_MAGIC - 1) != 0)
        return ERR(err, KVK_E_OBJECT, "not a pack: it does not start with the magic number");
    if (get(bytes + PACK_AT_VERSION, 4) != PACK_VERSION)
        return ERR(err, KVK_E_OBJECT, "pack version %llu, this build reads %d",
                   (unsigned long long)get(bytes + PACK_AT_VERSION, 4), PACK_VERSION);
    if (get(bytes + PACK_AT_TOTAL, 8) != size)
        return ERR(err, KVK_E_OBJECT, "pack says %llu bytes, there are %zu",
                   (unsigned long long)get(bytes + PACK_AT_TOTAL, 8), size);
    if (get(bytes + PACK_AT_VERSION + 4, 4) || get(bytes + PACK_AT_ABI + 4, 4) ||
        !all_zero(bytes + PACK_AT_RESERVED, PACK_AT_GENERATOR - PACK_AT_RESERVED))
        return ERR(err, KVK_E_OBJECT, "reserved header bytes of the pack are not zero");
    return KVK_OK;
}

/* Rows, strings, manifest and data follow each other; all sums below stay under 2 * size + 2^40. */
static kvk_status check_sections(const unsigned char *bytes, size_t size, kvk_error *err)
{
    uint64_t rows = get(bytes + PACK_AT_ROWS, 4), strings_at = get(bytes + PACK_AT_STRINGS, 8),
             strings = get(bytes + PACK_AT_STRINGS + 8, 8),
             manifest_at = get(bytes + PACK_AT_MANIFEST, 8),
             manifest = get(bytes + PACK_AT_MANIFEST + 8, 8),
             data_at = get(bytes + PACK_AT_DATA, 8);
    if (strings > size || manifest > size ||
        strings_at != PACK_HEADER_BYTES + rows * PACK_ROW_BYTES ||
        manifest_at != strings_at + strings || data_at != aligned(manifest_at + manifest + 1) ||
        data_at > size)
        return ERR(err, KVK_E_OBJECT, "sections of the pack do not fit its %zu bytes", size);
    if (!sum_is(bytes + PACK_AT_SUM, bytes + PACK_AT_TOTAL, (size_t)data_at - PACK_AT_TOTAL))
        return ERR(err, KVK_E_OBJECT, "checksum differs: the index of the pack is damaged");
    if ((rows && !strings) || (strings && bytes[manifest_at - 1]) ||
        strnlen((const char *)bytes + manifest_at, manifest + 1) != manifest ||
        !memchr(bytes + PACK_AT_GENERATOR, '\0', PACK_GENERATOR_CAP))
        return ERR(err, KVK_E_OBJECT, "a text of the pack does not end where it should");
    return KVK_OK;
}

/* Names become names of files: nothing in them may lead out of a folder or break a line. */
static int is_name(const char *text, int may_be_empty)
{
    size_t n = strnlen(text, PACK_NAME_CAP);
    return n < PACK_NAME_CAP && (n || may_be_empty) && *text != '.' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-") == n;
}

static int is_line(const char *text)
{
    size_t n = 0;
    for (; text[n]; n++)
        if (n + 1 >= PACK_NAME_CAP || text[n] < ' ' || text[n] > '~')
            return 0;
    return 1;
}

static kvk_status check_row(const struct pack *pack, uint32_t index, uint64_t strings,
                            uint64_t *next, kvk_error *err)
{
    const unsigned char *row = pack->bytes + PACK_HEADER_BYTES + (size_t)index * PACK_ROW_BYTES;
    uint64_t format = get(row + PACK_ROW_FORMAT, 4), at = get(row + PACK_ROW_DATA, 8),
             stored = get(row + PACK_ROW_STORED, 8), raw = get(row + PACK_ROW_RAW, 8);
    if (index && memcmp(row - PACK_ROW_BYTES, row, PACK_SUM_BYTES) >= 0)
        return ERR(err, KVK_E_OBJECT, "row %u of the pack is out of order", index);
    if (format < 1 || format >= PACK_FORMATS)
        return ERR(err, KVK_E_OBJECT, "row %u of the pack has format %llu, accepted 1..%d", index,
                   (unsigned long long)format, PACK_FORMATS - 1);
    if (at != aligned(*next) || at > pack->size || stored > pack->size - at || !stored)
        return ERR(err, KVK_E_OBJECT, "row %u of the pack lies outside its %zu bytes", index,
                   pack->size);
    if (!raw || raw > PACK_RAW_MOST_BYTES)
        return ERR(err, KVK_E_OBJECT, "row %u of the pack has %llu bytes, accepted 1..%llu", index,
                   (unsigned long long)raw, (unsigned long long)PACK_RAW_MOST_BYTES);
    if (get(row + PACK_ROW_NAME, 4) >= strings || get(row + PACK_ROW_TARGET, 4) >= strings ||
        get(row + PACK_ROW_SIGNATURE, 4) >= strings || get(row + PACK_ROW_ZERO, 8))
        return ERR(err, KVK_E_OBJECT, "row %u of the pack is not valid", index);
    *next = at + stored;
    struct pack_row r;
    pack_row(pack, index, &r);
    if (!is_name(r.name, 0) || !is_name(r.target, format == PACK_SPEC) || !is_line(r.signature))
        return ERR(err, KVK_E_OBJECT, "row %u of the pack has a name that is none", index);
    return KVK_OK;
}

kvk_status pack_parse(const void *data, size_t size, struct pack *out, kvk_error *err)
{
    const unsigned char *bytes = data;
    memset(out, 0, sizeof *out);
    kvk_status status = check_header(bytes, size, err);
    if (!status)
        status = check_sections(bytes, size, err);
    if (status)
        return status;
    struct pack pack = {.bytes = bytes,
                        .size = size,
                        .rows = (uint32_t)get(bytes + PACK_AT_ROWS, 4),
                        .object = (uint32_t)get(bytes + PACK_AT_OBJECT, 4),
                        .abi = (uint32_t)get(bytes + PACK_AT_ABI, 4),
                        .generator = (const char *)bytes + PACK_AT_GENERATOR,
                        .manifest = (const char *)bytes + get(bytes + PACK_AT_MANIFEST, 8),
                        .strings = (const char *)bytes + get(bytes + PACK_AT_STRINGS, 8)};
    uint64_t next = get(bytes + PACK_AT_DATA, 8), strings = get(bytes + PACK_AT_STRINGS + 8, 8);
    if (!is_line(pack.generator))
        return ERR(err, KVK_E_OBJECT, "the pack's generator is not a line of text");
    for (uint32_t i = 0; i < pack.rows && !status; i++)
        status = check_row(&pack, i, strings, &next, err);
    if (!status && next != size)
        status = ERR(err, KVK_E_OBJECT, "rows of the pack end at byte %llu of %zu",
                     (unsigned long long)next, size);
    if (!status)
        *out = pack;
    return status;
}

kvk_status pack_map(const char *path, struct pack *out, kvk_error *err)
{
    struct stat st = {0};
    memset(out, 0, sizeof *out);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return ERR(err, KVK_E_IO, "pack %s: %s", path, strerror(errno));
    void *bytes = MAP_FAILED;
    if (fstat(fd, &st) == 0 && !S_ISREG(st.st_mode))
        errno = EINVAL;
    else if (st.st_size <= 0)
        errno = ENODATA;
    else
        bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    int error = errno;
    close(fd);
    if (bytes == MAP_FAILED)
        return ERR(err, error == ENOMEM ? KVK_E_MEMORY : KVK_E_IO, "pack %s: %s", path,
                   error == EINVAL    ? "not a regular file"
                   : error == ENODATA ? "the file is empty"
                                      : strerror(error));
    kvk_error below = {0};
    kvk_status status = pack_parse(bytes, (size_t)st.st_size, out, &below);
    if (status) {
        munmap(bytes, (size_t)st.st_size);
        return ERR(err, status, "%s: %s", path, below.text);
    }
    out->mapped = 1;
    return KVK_OK;
}

void pack_close(struct pack *pack)
{
    if (pack->mapped)
        munmap((void *)(uintptr_t)pack->bytes, pack->size);
    memset(pack, 0, sizeof *pack);
}

void pack_row(const struct pack *pack, uint32_t index, struct pack_row *out)
{
    const unsigned char *row = pack->bytes + PACK_HEADER_BYTES + (size_t)index * PACK_ROW_BYTES;
    *out = (struct pack_row){.name = pack->strings + get(row + PACK_ROW_NAME, 4),
                             .target = pack->strings + get(row + PACK_ROW_TARGET, 4),
                             .signature = pack->strings + get(row + PACK_ROW_SIGNATURE, 4),
                             .format = (enum pack_format)get(row + PACK_ROW_FORMAT, 4),
                             .data = pack->bytes + get(row + PACK_ROW_DATA, 8),
                             .stored_bytes = get(row + PACK_ROW_STORED, 8),
                             .raw_bytes = get(row + PACK_ROW_RAW, 8),
                             .key = row + PACK_ROW_KEY,
                             .stored_sum = row + PACK_ROW_STORED_SUM,
                             .raw_sum = row + PACK_ROW_RAW_SUM};
}

int pack_find(const struct pack *pack, const char *key, uint32_t *index)
{
    XXH128_canonical_t hash;
    uint32_t low = 0, high = pack->rows;
    XXH128_canonicalFromHash(&hash, XXH3_128bits(key, strlen(key)));
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const unsigned char *row =
            pack->bytes + PACK_HEADER_BYTES + (size_t)middle * PACK_ROW_BYTES;
        int order = memcmp(row + PACK_ROW_KEY, hash.digest, PACK_SUM_BYTES);
        if (!order) {
            *index = middle;
            return 1;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

kvk_status pack_read(const struct pack *pack, uint32_t index, void **bytes, size_t *size,
                     kvk_error *err)
{
    struct pack_row row;
    *bytes = NULL;
    if (index >= pack->rows)
        return ERR(err, KVK_E_ARG, "row %u of a pack of %u", index, pack->rows);
    pack_row(pack, index, &row);
    if (!sum_is(row.stored_sum, row.data, (size_t)row.stored_bytes))
        return ERR(err, KVK_E_OBJECT, "%s.%s in the pack is damaged: its checksum differs",
                   row.name, row.target);
    if (ZSTD_getFrameContentSize(row.data, (size_t)row.stored_bytes) != row.raw_bytes)
        return ERR(err, KVK_E_OBJECT, "%s.%s in the pack does not hold %llu bytes", row.name,
                   row.target, (unsigned long long)row.raw_bytes);
    char *raw = malloc((size_t)row.raw_bytes + 1);
    if (!raw)
        return ERR(err, KVK_E_MEMORY, "no memory for %llu bytes of a pack",
                   (unsigned long long)row.raw_bytes);
    size_t got = ZSTD_decompress(raw, (size_t)row.raw_bytes, row.data, (size_t)row.stored_bytes);
    if (ZSTD_getErrorCode(got) == ZSTD_error_memory_allocation) {
        free(raw);
        return ERR(err, KVK_E_MEMORY, "no memory to decompress %s.%s", row.name, row.target);
    }
    if (ZSTD_isError(got) || got != row.raw_bytes || !sum_is(row.raw_sum, raw, got)) {
        free(raw);
        return ERR(err, KVK_E_OBJECT, "%s.%s in the pack cannot be decompressed: %s", row.name,
                   row.target, ZSTD_isError(got) ? ZSTD_getErrorName(got) : "checksum differs");
    }
    raw[got] = '\0';
    *bytes = raw;
    *size = got;
    return KVK_OK;
}
