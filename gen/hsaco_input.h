/* SPDX-License-Identifier: Apache-2.0 */
/*
** hsaco_input.h - an AMDGPU relocatable, taken apart and checked: what hsaco_link.c links.
**
** After hsaco_input_open every section with bytes lies inside the data, every name ends inside its string table, and
** every defined symbol lies inside its section. Headers are copies, so the data may have any alignment.
*/
#ifndef KVKILN_GEN_HSACO_INPUT_H
#define KVKILN_GEN_HSACO_INPUT_H

#include "../runtime/kvkiln.h"

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>

/* Which segment of the output a section goes to. */
enum hsaco_part { PART_NONE, PART_NOTE, PART_CONST, PART_TEXT };

struct hsaco_input {
    const unsigned char *data; /* borrowed */
    size_t size;
    Elf64_Ehdr head;
    Elf64_Shdr *section;
    Elf64_Sym *symbol;
    size_t sections, symbols;
    const char *names; /* of the symbols */
};

/* On failure everything is freed; KVK_E_OBJECT says what is wrong, KVK_E_UNSUPPORTED what cannot be linked. */
kvk_status hsaco_input_open(struct hsaco_input *in, const void *data, size_t size, kvk_error *err);
void hsaco_input_close(struct hsaco_input *in);

enum hsaco_part hsaco_input_part(const Elf64_Shdr *section);
/* Seen from outside: belongs into the dynamic symbol table. */
bool hsaco_input_exported(const struct hsaco_input *in, const Elf64_Sym *symbol);
/* Relocation n of a SHT_RELA section. */
Elf64_Rela hsaco_input_rela(const struct hsaco_input *in, const Elf64_Shdr *section, size_t n);

#endif
