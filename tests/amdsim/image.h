/* SPDX-License-Identifier: Apache-2.0 */
/*
** image.h - a loaded code object: its memory and its kernels.
*/
#ifndef KVKILN_AMDSIM_IMAGE_H
#define KVKILN_AMDSIM_IMAGE_H

#include "sim.h"

struct image {
    const uint8_t *file;
    size_t file_bytes;
    uint8_t *memory; /* the segments at their addresses */
    size_t bytes;
    const char *target;
    struct program program;
};

/* What a dispatcher reads of a kernel. */
struct kernel {
    struct image *image;
    char name[256];
    struct launch launch; /* without grid, threads, parameters */
    uint32_t param_bytes;
};

/* file: a linked code object, kept by the caller. 0, or -1 and a text. */
int image_open(struct image *m, const void *file, char *error, size_t cap);
void image_close(struct image *m);
int image_kernel(struct image *m, const char *name, struct kernel *out, char *error, size_t cap);

#endif
