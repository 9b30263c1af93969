/* SPDX-License-Identifier: Apache-2.0 */
#include "key.h"

#include "object.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

size_t key_text(const struct gen_request *request, const char *build_id, const char *assembler,
                char *text, size_t cap)
{
    int head = snprintf(text, cap, "kvkiln %d abi %d\ngenerator %s\nassembler %s\n",
                        KVK_OBJECT_VERSION, KVK_ABI_VERSION, build_id, assembler);
    size_t used = (size_t)head;
    int room = used < cap;
    return used + gen_request_text(request, room ? text + used : NULL, room ? cap - used : 0);
}

char *key_make(const struct gen_request *request, const char *build_id, const char *assembler)
{
    size_t bytes = key_text(request, build_id, assembler, NULL, 0) + 1;
    char *text = malloc(bytes);
    if (text)
        key_text(request, build_id, assembler, text, bytes);
    return text;
}

char *key_for_pack(const struct gen_request *request, const char *build_id, int ptx)
{
    struct gen_request r = *request;
    r.assemble = !ptx;
    if (r.plan_source)
        r.plan = NULL;
    return key_make(&r, build_id, "any");
}

void key_hash(const char *text, char hex[KEY_HASH_CHARS])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(text, strlen(text)));
    for (size_t i = 0; i < sizeof canonical.digest; i++)
        snprintf(hex + 2 * i, 3, "%02x", canonical.digest[i]);
}
