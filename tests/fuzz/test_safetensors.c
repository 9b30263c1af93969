/* SPDX-License-Identifier: Apache-2.0 */
/*
** .safetensors files. The first eight bytes of a file are the length of its header, which a mutation
** of anything else breaks: with a leading byte of 'H' the length is put right, up to the last brace.
*/
#include "fuzz.h"

#include "cli/safetensors.h"

#include <string.h>

const char fuzz_name[] = "safetensors";

static void parse(const uint8_t *data, size_t size)
{
    struct safetensors st;
    char error[SAFETENSORS_ERROR] = "";
    unsigned char *bytes = malloc(size ? size : 1);
    size_t covered = 0;
    FUZZ_CHECK(bytes);
    memcpy(bytes, data, size);
    if (!safetensors_parse(bytes, size, &st, error)) {
        FUZZ_CHECK(*error && !strchr(error, '\n'));
        return;
    }
    for (int i = 0; i < st.ntensors; i++) {
        const struct tensor *t = &st.tensors[i];
        FUZZ_CHECK(safetensors_get(&st, t->name));
        FUZZ_CHECK(t->data >= bytes + 8 && t->bytes <= (size_t)(bytes + size - t->data));
        covered += t->bytes;
    }
    FUZZ_CHECK(covered <= size);
    safetensors_text(&st, "preset");
    safetensors_close(&st);
}

static size_t header_bytes(const uint8_t *data, size_t size)
{
    for (size_t n = size; n > 8; n--)
        if (data[n - 1] == '}')
            return n - 8;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 9 || *data != 'H') {
        parse(data, size);
        return 0;
    }
    uint8_t *copy = malloc(size - 1);
    FUZZ_CHECK(copy);
    memcpy(copy, data + 1, size - 1);
    size_t length = header_bytes(copy, size - 1);
    for (int i = 0; i < 8; i++)
        copy[i] = (uint8_t)(length >> 8 * i);
    parse(copy, size - 1);
    free(copy);
    return 0;
}
