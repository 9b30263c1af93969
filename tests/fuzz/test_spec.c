/* SPDX-License-Identifier: Apache-2.0 */
/*
** Specs: Lua sources, and canonical texts (a leading "spec 1"). What is accepted has a canonical text that
** reads back and writes as the same text; what is refused is refused in one printable line.
*/
#include "fuzz.h"

#include "gen/spec_fields.h"

#include <string.h>

const char fuzz_name[] = "spec";

enum { TEXT_CAP = 4096, FUZZ_INSTRUCTIONS = 20000 };

static void round_trip(const struct spec *spec)
{
    char text[TEXT_CAP], again[TEXT_CAP];
    struct spec other;
    kvk_error err = {0};
    FUZZ_CHECK(spec_to_text(spec, text, sizeof text) < sizeof text);
    if (spec_from_text(text, &other, &err) != KVK_OK) {
        fprintf(stderr, "%s%s\n", text, err.text);
        abort();
    }
    FUZZ_CHECK(spec_to_text(&other, again, sizeof again) < sizeof again);
    FUZZ_CHECK(strcmp(text, again) == 0);
}

static void refused(const kvk_error *err, kvk_status status)
{
    FUZZ_CHECK(status == err->status && *err->text);
    for (const char *c = err->text; *c; c++)
        FUZZ_CHECK((unsigned char)*c >= ' ');
}

static void canonical(const uint8_t *data, size_t size)
{
    struct spec spec;
    kvk_error err = {0};
    char *text = malloc(size + 1), again[TEXT_CAP];
    FUZZ_CHECK(text);
    memcpy(text, data, size);
    text[size] = '\0';
    kvk_status status = spec_from_text(text, &spec, &err);
    if (status) {
        refused(&err, status);
    } else {
        FUZZ_CHECK(spec_to_text(&spec, again, sizeof again) < sizeof again);
        FUZZ_CHECK(strcmp(text, again) == 0);
        round_trip(&spec);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct spec spec;
    kvk_error err = {0};
    if (size >= 6 && memcmp(data, "spec 1", 6) == 0) {
        canonical(data, size);
        return 0;
    }
    if (size > SPEC_FILE_BYTES)
        return 0;
    /* few instructions, no clock: what a seed does must not depend on how busy the machine is */
    struct spec_search search = {NULL, 0, FUZZ_INSTRUCTIONS, INT64_MAX, INT64_MAX};
    memset(&spec, 0, sizeof spec);
    kvk_status status =
        spec_evaluate("fuzz.lua", "fuzz", (const char *)data, size, &search, &spec, &err);
    if (status)
        refused(&err, status);
    else
        round_trip(&spec);
    return 0;
}
