/* SPDX-License-Identifier: Apache-2.0 */
/*
** golden.h - reads one case file (safetensors: 8-byte length, JSON header, data). Test files only:
** it trusts the sizes that the header names, after checking that they lie inside the file.
*/
#ifndef KVKILN_TESTS_GOLDEN_H
#define KVKILN_TESTS_GOLDEN_H

#include <stddef.h>
#include <stdint.h>

struct golden; /* an open file */

struct golden_tensor {
    char dtype[8]; /* F16, BF16, F32, I32, U8 */
    int dims;
    size_t shape[4], count; /* missing dimensions are 1 */
    const uint8_t *data;
};

struct golden *golden_open(const char *path); /* NULL if it cannot be read */
void golden_close(struct golden *g);
const char *golden_text(const struct golden *g, const char *key); /* metadata, or NULL */
int golden_int(const struct golden *g, const char *key); /* metadata as a number, 0 if missing */
/* 0 if there is no such tensor. */
int golden_get(const struct golden *g, const char *name, struct golden_tensor *out);

/* Element i of a F16, BF16, F32, I32 or U8 tensor. */
double golden_at(const struct golden_tensor *t, size_t i);

/* The folder with the cases: KVKILN_GOLDEN, else ../shared/golden beside the source folder, else
** its tests/data. */
void golden_folder(const char *source_folder, char *path, size_t cap);

#endif
