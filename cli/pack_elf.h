/* SPDX-License-Identifier: Apache-2.0 */
/* pack_elf.h - bytes as a relocatable object file, to be linked into a program. */
#ifndef KVKILN_CLI_PACK_ELF_H
#define KVKILN_CLI_PACK_ELF_H

#include <stddef.h>

enum { PACK_ELF_X86_64 = 62, PACK_ELF_AARCH64 = 183 }; /* e_machine */

/* An ELF64 file, malloc'd, with two global symbols in read-only data: `symbol`, the bytes, 64-byte
 * aligned, and `symbol`_size, their number as a 64-bit integer. */
void *pack_elf(const void *bytes, size_t size, const char *symbol, int machine, size_t *out_size);

#endif
