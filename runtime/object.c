/* SPDX-License-Identifier: Apache-2.0 */
/*
** object.c - sealing and parsing code objects.
**
**     0   magic[8]  "KVKILN\r\n": a transfer that rewrites line ends is noticed
**     8   u32       KVK_OBJECT_VERSION
**     12  u32       zero
**     16  u8[16]    XXH3-128 (canonical byte order) of everything from byte 32 to the end
**     32  u64       key bytes, then manifest bytes, code bytes, total bytes
**     64            key, NUL, manifest, NUL, zeros up to a multiple of 64, code
**
** The total must equal the size of the buffer, so that an appended or a cut file is told from a
** flipped bit.
*/
#include "object.h"

#include "error.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    AT_VERSION = 8,
    AT_ZERO = 12,
    AT_SUM = 16,
    AT_SIZES = 32,
    HEADER_BYTES = 64,
    CODE_ALIGNMENT = 64,
    SUM_BYTES = 16
};

static const unsigned char magic[8] = {'K', 'V', 'K', 'I', 'L', 'N', '\r', '\n'};

static void put(unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static void checksum(const unsigned char *bytes, size_t size, unsigned char sum[SUM_BYTES])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes + AT_SIZES, size - AT_SIZES));
    memcpy(sum, canonical.digest, SUM_BYTES);
}

/* Offset of the code; the sizes are known to be far from wrapping. */
static size_t code_offset(size_t key_bytes, size_t manifest_bytes)
{
    size_t texts = HEADER_BYTES + key_bytes + 1 + manifest_bytes + 1;
    return (texts + CODE_ALIGNMENT - 1) / CODE_ALIGNMENT * CODE_ALIGNMENT;
}

kvk_status object_seal(const struct object *parts, void **out, size_t *out_bytes, kvk_error *err)
{
    const size_t most = SIZE_MAX / 8;
    if (parts->key_bytes > most || parts->manifest_bytes > most || parts->code_bytes > most)
        return ERR(err, KVK_E_MEMORY, "object of %zu code bytes is too large", parts->code_bytes);
    size_t code_at = code_offset(parts->key_bytes, parts->manifest_bytes),
           total = code_at + parts->code_bytes;
    unsigned char *bytes = calloc(1, total);
    if (!bytes)
        return ERR(err, KVK_E_MEMORY, "no memory for an object of %zu bytes", total);
    memcpy(bytes, magic, sizeof magic);
    put(bytes + AT_VERSION, KVK_OBJECT_VERSION, 4);
    put(bytes + AT_SIZES, parts->key_bytes, 8);
    put(bytes + AT_SIZES + 8, parts->manifest_bytes, 8);
    put(bytes + AT_SIZES + 16, parts->code_bytes, 8);
    put(bytes + AT_SIZES + 24, total, 8);
    if (parts->key_bytes)
        memcpy(bytes + HEADER_BYTES, parts->key, parts->key_bytes);
    if (parts->manifest_bytes)
        memcpy(bytes + HEADER_BYTES + parts->key_bytes + 1, parts->manifest, parts->manifest_bytes);
    if (parts->code_bytes)
        memcpy(bytes + code_at, parts->code, parts->code_bytes);
    checksum(bytes, total, bytes + AT_SUM);
    *out = bytes;
    *out_bytes = total;
    return KVK_OK;
}

/* The header's own claims, before anything behind it is trusted. */
static kvk_status check_header(const unsigned char *bytes, size_t size, kvk_error *err)
{
    if (size < HEADER_BYTES)
        return ERR(err, KVK_E_OBJECT, "object of %zu bytes is shorter than its header of %d", size,
                   HEADER_BYTES);
    if (memcmp(bytes, magic, sizeof magic) != 0)
        return ERR(err, KVK_E_OBJECT,
                   "not a kvkiln object: it does not start with the magic number");
    if (get(bytes + AT_VERSION, 4) != KVK_OBJECT_VERSION)
        return ERR(err, KVK_E_OBJECT, "object version %llu, this build reads %d",
                   (unsigned long long)get(bytes + AT_VERSION, 4), KVK_OBJECT_VERSION);
    if (get(bytes + AT_ZERO, 4) != 0)
        return ERR(err, KVK_E_OBJECT, "reserved header bytes are not zero");
    if (get(bytes + AT_SIZES + 24, 8) != size)
        return ERR(err, KVK_E_OBJECT, "object says %llu bytes, there are %zu",
                   (unsigned long long)get(bytes + AT_SIZES + 24, 8), size);
    return KVK_OK;
}

/* Do the parts fill the buffer exactly, and are the texts texts? */
static kvk_status check_parts(const unsigned char *bytes, size_t size, struct object *out,
                              kvk_error *err)
{
    uint64_t key = get(bytes + AT_SIZES, 8), manifest = get(bytes + AT_SIZES + 8, 8);
    uint64_t code = get(bytes + AT_SIZES + 16, 8);
    if (key > size || manifest > size || code > size || HEADER_BYTES + key + manifest + 2 > size)
        return ERR(err, KVK_E_OBJECT, "parts of the object lie outside its %zu bytes", size);
    size_t code_at = code_offset((size_t)key, (size_t)manifest);
    if (code_at > size || size - code_at != code)
        return ERR(err, KVK_E_OBJECT, "parts of the object do not add up to its %zu bytes", size);
    out->key = (const char *)bytes + HEADER_BYTES;
    out->manifest = out->key + key + 1;
    out->code = bytes + code_at;
    out->key_bytes = (size_t)key;
    out->manifest_bytes = (size_t)manifest;
    out->code_bytes = (size_t)code;
    if (strnlen(out->key, key + 1) != key || strnlen(out->manifest, manifest + 1) != manifest)
        return ERR(err, KVK_E_OBJECT, "a text of the object does not end where its size says");
    return KVK_OK;
}

kvk_status object_parse(const void *data, size_t size, struct object *out, kvk_error *err)
{
    const unsigned char *bytes = data;
    unsigned char sum[SUM_BYTES];
    kvk_status status = check_header(bytes, size, err);
    if (status)
        return status;
    checksum(bytes, size, sum);
    if (memcmp(sum, bytes + AT_SUM, SUM_BYTES) != 0)
        return ERR(err, KVK_E_OBJECT, "checksum differs: the object of %zu bytes is damaged", size);
    return check_parts(bytes, size, out, err);
}

int object_get(const struct object *object, const char *name, char *value, size_t cap)
{
    size_t length = strlen(name);
    for (const char *line = object->manifest; line && *line;) {
        const char *end = strchr(line, '\n');
        size_t bytes = end ? (size_t)(end - line) : strlen(line);
        if (bytes > length && line[length] == ' ' && strncmp(line, name, length) == 0) {
            size_t n = bytes - length - 1;
            if (cap) {
                n = n < cap ? n : cap - 1;
                memcpy(value, line + length + 1, n);
                value[n] = '\0';
            }
            return 1;
        }
        line = end ? end + 1 : NULL;
    }
    return 0;
}

int object_get_int(const struct object *object, const char *name, long long *value)
{
    char text[32], *end;
    if (!object_get(object, name, text, sizeof text))
        return 0;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno || end == text || *end)
        return 0;
    *value = n;
    return 1;
}
