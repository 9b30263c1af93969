/* SPDX-License-Identifier: Apache-2.0 */
/*
** manifest.h - the text that travels with a code object; its lines are described in runtime/object.h.
*/
#ifndef KVKILN_GEN_MANIFEST_H
#define KVKILN_GEN_MANIFEST_H

#include "plan.h"

enum { MANIFEST_MAX_ENTRIES = 4, MANIFEST_SYMBOL = 184 };

struct manifest {
    int n;
    bool grid_wait; /* the entries begin with kb_grid_wait */
    struct manifest_entry {
        char abi[16], symbol[MANIFEST_SYMBOL];
        int threads;
        size_t shared_bytes, offset; /* offset: of the function in a host image */
    } entries[MANIFEST_MAX_ENTRIES];
};

void manifest_entry(struct manifest *m, const char *abi, const char *symbol, int threads, size_t shared_bytes);

/* report: the assembler's own text or NULL. */
void manifest_finish(const struct manifest *m, const struct plan *plan, const char *name, const char *format, const char *report,
                     char *text, size_t cap);

#endif
