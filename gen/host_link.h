/* SPDX-License-Identifier: Apache-2.0 */
/*
** host_link.h - one x86-64 relocatable from LLVM to a flat image that runs at any page-aligned address. LLVM-C has no linker.
*/
#ifndef KVKILN_GEN_HOST_LINK_H
#define KVKILN_GEN_HOST_LINK_H

#include "../runtime/kvkiln.h"

#include <stddef.h>

/*
** host_link - code first, constants after it, references inside the image resolved.
**
** Input   any bytes; what is not a sound relocatable of this kind is refused: nothing outside `elf` is read.
** Output  *image, malloc'd, of *image_bytes; offsets[i]: of the function symbols[i] in it.
** Errors  KVK_E_UNSUPPORTED: writable data, an undefined symbol (named: a library call that the target must not emit), a
**         relocation that needs an absolute address, alignment past a page. KVK_E_OBJECT: damaged. KVK_E_MEMORY.
*/
kvk_status host_link(const void *elf, size_t elf_bytes, const char *const symbols[], size_t offsets[], int nsymbols,
                     void **image, size_t *image_bytes, kvk_error *err);

#endif
