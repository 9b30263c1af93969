/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel names: what is accepted comes back as it went, what is refused is refused in one line. */
#include "fuzz.h"

#include "gen/name.h"

#include <string.h>

const char fuzz_name[] = "name";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kernel_name parsed;
    char again[NAME_MAX_BYTES];
    kvk_error err = {0};
    char *name = malloc(size + 1);
    FUZZ_CHECK(name);
    memcpy(name, data, size);
    name[size] = '\0';
    if (name_parse(name, &parsed, &err) == KVK_OK) {
        size_t n = name_format(parsed.kind, parsed.spec, &parsed.geometry, again, sizeof again);
        FUZZ_CHECK(n == strlen(name) && n < sizeof again && strcmp(again, name) == 0);
    } else {
        FUZZ_CHECK(err.status == KVK_E_ARG && *err.text && !strchr(err.text, '\n'));
    }
    free(name);
    return 0;
}
