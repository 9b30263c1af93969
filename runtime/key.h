/* SPDX-License-Identifier: Apache-2.0 */
/*
** key.h - the text that names a kernel in every cache: who made it, with what, and which one it is.
*/
#ifndef KVKILN_KEY_H
#define KVKILN_KEY_H

#include "gen_api.h"

/* `assembler` is "NAME VERSION" or "none". Returns the length needed (like snprintf). */
size_t key_text(const struct gen_request *request, const char *build_id, const char *assembler, char *text, size_t cap);

/* The same, malloc'd; NULL when out of memory. */
char *key_make(const struct gen_request *request, const char *build_id, const char *assembler);

enum { KEY_HASH_CHARS = 33 };

/* XXH3-128 of a key text in hex: the name of its file. */
void key_hash(const char *text, char hex[KEY_HASH_CHARS]);

#endif
