/* SPDX-License-Identifier: Apache-2.0 */
/*
** fuzz.h - one reader of untrusted bytes a file: tests/fuzz/test_NAME.c, seeds in corpus/NAME.
**
** Under the preset `fuzz` each is a libFuzzer program (./dev fuzz). Everywhere else replay.c gives it a main that runs the
** seeds and mutations of them, so that what a fuzzer once found stays found in ./dev test and ./dev sanitize.
*/
#ifndef KVKILN_TESTS_FUZZ_H
#define KVKILN_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Of this program: the folder of its seeds. */
extern const char fuzz_name[];

/* A claim about the reader; broken is as bad as a crash. */
#define FUZZ_CHECK(claim)                                                                          \
    do {                                                                                           \
        if (!(claim)) {                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #claim);                            \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
