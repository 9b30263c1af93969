/* SPDX-License-Identifier: Apache-2.0 */
/* Tuned tables: read whole or refused in one line with file and line; values lie in their ranges. */
#include "fuzz.h"

#include "runtime/tuned.h"

#include <string.h>

const char fuzz_name[] = "tuned";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tuned_table table;
    struct gen_request request = {
        .spec_text = "spec 1\nname x\nkey codebook\nkey.bits 4\nvalue affine\nvalue.bits 4\n",
        .kind = "decode",
        .layout = "soa",
        .target = "sm_90a",
        .head_size = 128,
        .gqa = 4,
        .page_tokens = 16};
    char text[TUNED_PLAN_BYTES];
    kvk_error err = {0};
    if (tuned_read("t.lua", (const char *)data, size, &table, &err) != KVK_OK) {
        FUZZ_CHECK(err.status == KVK_E_SPEC && !strncmp(err.text, "t.lua:", 6) &&
                   !strchr(err.text, '\n'));
        return 0;
    }
    for (int i = 0; i < table.count; i++) {
        struct tuned_plan again;
        FUZZ_CHECK(tuned_plan_format(&table.rows[i].plan, text, sizeof text) < sizeof text);
        FUZZ_CHECK(tuned_plan_parse("t", text, &again, &err) == KVK_OK);
        FUZZ_CHECK(!memcmp(&again, &table.rows[i].plan, sizeof again));
        FUZZ_CHECK(table.rows[i].line > 0 &&
                   memchr(table.rows[i].note, 0, sizeof table.rows[i].note));
    }
    tuned_match(&table, &request);
    tuned_free(&table);
    return 0;
}
