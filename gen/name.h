/* SPDX-License-Identifier: Apache-2.0 */
/*
** name.h - the canonical name of a kernel, both ways.
**
**     KIND.SPEC.LAYOUT.dD[xDv].gGQA.DTYPE.pPAGE[.cap][.alibi]      decode.turboquant_4bit_nc.aos.d128.g4.bf16.p16
**
** Dv appears only when it differs from D; DTYPE is f16 or bf16. A name says everything a kernel is specialised on but
** its target and the contents of the spec.
*/
#ifndef KVKILN_GEN_NAME_H
#define KVKILN_GEN_NAME_H

#include "spec.h"

enum { NAME_MAX_BYTES = 160 }; /* of any name, NUL included */

struct kernel_name {
    char kind[8]; /* store, decode, unified, dequant, merge, copy */
    char spec[SPEC_NAME_MAX];
    struct geometry geometry;
};

/* Returns the length needed (like snprintf), or 0 with an empty string if a part cannot be in a name. */
size_t name_format(const char *kind, const char *spec_name, const struct geometry *geometry, char *name, size_t cap);

/* Accepts exactly what name_format writes. KVK_E_ARG names the part at fault. */
kvk_status name_parse(const char *name, struct kernel_name *out, kvk_error *err);

/* NAME.TARGET.EXTENSION, the file that `build` writes. Returns the length needed. */
size_t name_file(const char *name, const char *target, const char *extension, char *file, size_t cap);

#endif
