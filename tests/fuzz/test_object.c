/* SPDX-License-Identifier: Apache-2.0 */
/*
** Sealed objects: the bytes as they are, and with magic, version, total and checksum put right, so that
** what lies behind the checksum is reached.
*/
#include "fuzz.h"

#include "runtime/object.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

const char fuzz_name[] = "object";

static int inside(const void *p, size_t bytes, const uint8_t *data, size_t size)
{
    size_t at = (size_t)((const uint8_t *)p - data);
    return at <= size && bytes <= size - at;
}

static void look_up(const struct object *o)
{
    static const char *const names[] = {"kernel", "entry decode", "layout.slot_bytes", "", " "};
    char value[24];
    long long number;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t cap = 0; cap <= sizeof value; cap += 8) {
            memset(value, 'x', sizeof value);
            int found = object_get(o, names[i], value, cap);
            FUZZ_CHECK(!found || !cap || memchr(value, '\0', cap));
            object_get_int(o, names[i], &number);
        }
}

static void parse(const uint8_t *data, size_t size)
{
    struct object o, p;
    kvk_error err = {0};
    void *again;
    size_t bytes;
    if (object_parse(data, size, &o, &err) != KVK_OK) {
        FUZZ_CHECK(err.status == KVK_E_OBJECT && *err.text && !strchr(err.text, '\n'));
        return;
    }
    FUZZ_CHECK(inside(o.key, o.key_bytes + 1, data, size) && !o.key[o.key_bytes]);
    FUZZ_CHECK(inside(o.manifest, o.manifest_bytes + 1, data, size));
    FUZZ_CHECK(strlen(o.manifest) == o.manifest_bytes && strlen(o.key) == o.key_bytes);
    FUZZ_CHECK(inside(o.code, o.code_bytes, data, size));
    look_up(&o);
    FUZZ_CHECK(object_seal(&o, &again, &bytes, NULL) == KVK_OK && bytes == size);
    FUZZ_CHECK(object_parse(again, bytes, &p, NULL) == KVK_OK && strcmp(p.key, o.key) == 0);
    free(again);
}

static void repair(uint8_t *bytes, size_t size)
{
    XXH128_canonical_t sum;
    uint64_t total = size;
    memcpy(bytes, "KVKILN\r\n\1\0\0\0\0\0\0\0", 16);
    for (int i = 0; i < 8; i++)
        bytes[56 + i] = (uint8_t)(total >> 8 * i);
    XXH128_canonicalFromHash(&sum, XXH3_128bits(bytes + 32, size - 32));
    memcpy(bytes + 16, sum.digest, 16);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    parse(data, size);
    if (size < 64)
        return 0;
    uint8_t *copy = malloc(size);
    FUZZ_CHECK(copy);
    memcpy(copy, data, size);
    repair(copy, size);
    parse(copy, size);
    free(copy);
    return 0;
}
