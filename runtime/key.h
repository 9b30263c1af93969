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

/* The key under which packs hold a kernel, malloc'd: any assembler, and as PTX or (of targets that have both) assembled. A plan
** is part of it if the caller gave it, not if a tuned table did: packs are found where there are other tables, or none. */
char *key_for_pack(const struct gen_request *request, const char *build_id, int ptx);

enum { KEY_HASH_CHARS = 33 };

/* XXH3-128 of a key text in hex: the name of its file. */
void key_hash(const char *text, char hex[KEY_HASH_CHARS]);

#endif
