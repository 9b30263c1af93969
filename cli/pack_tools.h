/* SPDX-License-Identifier: Apache-2.0 */
/*
** pack_tools.h - what `kvkiln pack` does with packs that are open. Each returns an exit code, after a
** message where it is not CLI_OK. What is written can be: paths.h was asked.
*/
#ifndef KVKILN_CLI_PACK_TOOLS_H
#define KVKILN_CLI_PACK_TOOLS_H

#include "../runtime/pack.h"

#include <jansson.h>

struct open_pack {
    const char *file;
    struct pack pack;
};

/* Rows by name, target and format, malloc'd. */
uint32_t *pack_sorted(const struct pack *pack);

/* Everything in every frame: checksums, keys, manifests. Each fault is a line on stderr and, with
 * `faults`, an item. Returns how many. */
int pack_verify(const struct open_pack *open, json_t *faults);

/* Lines on stdout, or, with `out`, items: 1 if the packs differ. Both are whole, as those to merge are: a sum in the index
 * stands for a row. */
int pack_diff(const struct open_pack *a, const struct open_pack *b, json_t *out);

int pack_merge(const struct open_pack *packs, int count, const char *out);

struct pack_extract {
    const char *dir, *target, *name; /* NULL: all; the name is a pattern of the shell */
    int code;                        /* the code alone instead of sealed objects */
};
int pack_extract(const struct open_pack *open, const struct pack_extract *how);

/* symbol NULL: kvk_pack_ and the file's name. */
int pack_object_file(const struct open_pack *open, const char *out, const char *symbol,
                     int machine);

#endif
