/* SPDX-License-Identifier: Apache-2.0 */
/* rt_pack.c - see rt_pack.h. */
#include "rt_pack.h"

#include "../../runtime/embedded.h"
#include "../../runtime/key.h"

#include "build_id.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "../../cli/cli.c"
#define append append_item
#define get get_number
#include "../../cli/pack_write.c"

struct gen_request rt_request(const char *kind)
{
    const char *name, *text = "";
    for (int i = 0; embedded_spec_text(i, &name, &text); i++)
        if (!strcmp(name, "turboquant_k8v4"))
            break;
    return (struct gen_request){.spec_text = text,
                                .kind = kind,
                                .layout = "aos",
                                .target = "sm_90a",
                                .head_size = 128,
                                .value_head_size = 128,
                                .gqa = 4,
                                .page_tokens = 16,
                                .dtype = KVK_BFLOAT16};
}

void rt_pack_add(struct pack_writer *writer, const struct gen_request *request, int ptx)
{
    struct gen_request r = *request;
    size_t bytes;
    r.assemble = !ptx;
    void *object = rt_object(&r, &bytes);
    char *key = key_for_pack(&r, KVK_BUILD_ID, ptx);
    char *error = pack_writer_object(writer, key, object, bytes);
    if (error)
        fail_msg("%s", error);
    free(key);
    free(object);
}

void *rt_pack(int ptx, size_t *size)
{
    static const char *const kinds[] = {"store", "decode", "unified", "dequant", "merge", "copy"};
    struct pack_writer writer;
    void *bytes;
    pack_writer_init(&writer, KVK_BUILD_ID);
    for (int i = 0; i < KIND_SERVING; i++) {
        struct gen_request request = rt_request(kinds[i]);
        rt_pack_add(&writer, &request, 0);
        if (ptx)
            rt_pack_add(&writer, &request, 1);
    }
    assert_null(pack_writer_bytes(&writer, &bytes, size));
    pack_writer_free(&writer);
    return bytes;
}

void rt_pack_sum(const void *bytes, size_t size, unsigned char out[PACK_SUM_BYTES])
{
    sum(bytes, size, out);
}

void rt_pack_reseal(unsigned char *bytes)
{
    uint64_t end = 0;
    for (int i = 7; i >= 0; i--)
        end = end << 8 | bytes[PACK_AT_DATA + i];
    sum(bytes + PACK_AT_TOTAL, (size_t)end - PACK_AT_TOTAL, bytes + PACK_AT_SUM);
}
