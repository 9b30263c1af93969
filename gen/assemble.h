/* SPDX-License-Identifier: Apache-2.0 */
/*
** assemble.h - PTX to cubin by nvJitLink or ptxas, whichever runtime/assembler.h finds.
*/
#ifndef KVKILN_GEN_ASSEMBLE_H
#define KVKILN_GEN_ASSEMBLE_H

#include "../runtime/assembler.h"
#include "../runtime/kvkiln.h"

#include <stddef.h>

/* *cubin is malloc'd. *report (malloc'd text, may be NULL) is the assembler's own account of registers and spills. */
kvk_status assemble_ptx(const struct assembler *assembler, const char *ptx, const char *arch, int quick, void **cubin,
                        size_t *bytes, char **report, kvk_error *err);

#endif
