/* SPDX-License-Identifier: Apache-2.0 */
/*
** hsaco_link.h - one AMDGPU relocatable from LLVM to a loadable code object (HSACO). LLVM-C has no linker.
*/
#ifndef KVKILN_GEN_HSACO_LINK_H
#define KVKILN_GEN_HSACO_LINK_H

#include "../runtime/kvkiln.h"

#include <stddef.h>

/*
** hsaco_link - makes an ELF shared object with what a loader needs: segments, notes, dynamic symbols.
**
** `elf` may be any bytes whatever, of any alignment. One input; no undefined symbols, no writable data.
** *out is malloc'd, *out_size its length. Equal input gives equal output.
** Returns KVK_OK; KVK_E_OBJECT for damaged input, KVK_E_UNSUPPORTED for what needs a real linker, KVK_E_MEMORY.
*/
kvk_status hsaco_link(const void *elf, size_t size, void **out, size_t *out_size, kvk_error *err);

#endif
