/* SPDX-License-Identifier: Apache-2.0 */
/*
** output.h - from an optimised module to what a device loads: PTX or cubin, HSACO, or a flat host image.
*/
#ifndef KVKILN_GEN_OUTPUT_H
#define KVKILN_GEN_OUTPUT_H

#include "../runtime/gen_api.h"

struct lower;
struct manifest;
struct target;

struct output_code {
    void *bytes; /* malloc'd */
    size_t size;
    const char *format; /* "ptx", "cubin", "hsaco", "host" */
    int quick;          /* in: the assembler may spend less time */
    char *report;       /* the assembler's own account, or NULL */
};

/* Also keeps the artefacts that `emit` asks for, and fills the manifest's entry offsets for host images. */
kvk_status output_code(const struct target *target, int assemble, struct lower *lower, struct manifest *manifest, unsigned emit,
                       struct gen_artifacts *out, struct output_code *code, kvk_error *err);
void output_free(struct output_code *code);

#endif
