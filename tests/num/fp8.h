/* SPDX-License-Identifier: Apache-2.0 */
/*
** fp8.h - the 8-bit formats bit for bit, through the public interface on any device: every code
** decoded, every fp16 and bf16 number encoded, against tables made from the definitions.
*/
#ifndef KVKILN_TESTS_FP8_H
#define KVKILN_TESTS_FP8_H

#include "../../runtime/kvkiln.h"

#include <stddef.h>

enum { FP8_FLAVOURS = 3 };

const char *fp8_name(int flavour); /* as a spec has it: "e4m3", "e4b15", "e5m2" */

/* `spec`: keys and values in that format. 1, or 0 with a line in `text`. */
int fp8_check(kvk_context *ctx, const char *spec, int flavour, char *text, size_t cap);

#endif
