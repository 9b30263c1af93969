/* SPDX-License-Identifier: Apache-2.0 */
/*
** pack_elf.c - see pack_elf.h.
**
** One section of data without relocations, so nothing in it belongs to a machine but its number in
** the header: header, .rodata, .symtab, .strtab, .shstrtab, section headers.
*/
#include "pack_elf.h"

#include "cli.h"

#include <elf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, SECTIONS = 6, SYMBOLS = 3 };

static const char section_names[] = "\0.rodata\0.symtab\0.strtab\0.shstrtab\0.note.GNU-stack";
enum { NAME_RODATA = 1, NAME_SYMTAB = 9, NAME_STRTAB = 17, NAME_SHSTRTAB = 25, NAME_STACK = 35 };

static size_t aligned(size_t at, size_t to) { return (at + to - 1) / to * to; }

static Elf64_Sym symbol_at(size_t name, size_t value, size_t size)
{
    return (Elf64_Sym){.st_name = (Elf64_Word)name,
                       .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT),
                       .st_other = STV_HIDDEN, /* a library that links it in does not export it */
                       .st_shndx = 1,
                       .st_value = value,
                       .st_size = size};
}

static Elf64_Shdr section(size_t name, size_t type, size_t at, size_t size, size_t align)
{
    return (Elf64_Shdr){.sh_name = (Elf64_Word)name,
                        .sh_type = (Elf64_Word)type,
                        .sh_offset = at,
                        .sh_size = size,
                        .sh_addralign = align};
}

void *pack_elf(const void *bytes, size_t size, const char *symbol, int machine, size_t *out_size)
{
    size_t length = strlen(symbol), names_bytes = 1 + length + 1 + length + sizeof "_size";
    size_t data_at = ALIGNMENT, count_at = aligned(data_at + size, 8),
           symbols_at = count_at + sizeof(uint64_t),
           names_at = symbols_at + SYMBOLS * sizeof(Elf64_Sym),
           section_names_at = names_at + names_bytes,
           sections_at = aligned(section_names_at + sizeof section_names, 8),
           total = sections_at + SECTIONS * sizeof(Elf64_Shdr);
    unsigned char *file = cli_alloc(total, 1);
    Elf64_Ehdr header = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
                                     EV_CURRENT, ELFOSABI_NONE},
                         .e_type = ET_REL,
                         .e_machine = (Elf64_Half)machine,
                         .e_version = EV_CURRENT,
                         .e_shoff = sections_at,
                         .e_ehsize = sizeof header,
                         .e_shentsize = sizeof(Elf64_Shdr),
                         .e_shnum = SECTIONS,
                         .e_shstrndx = 4};
    Elf64_Sym symbols[SYMBOLS] = {
        {0}, symbol_at(1, 0, size), symbol_at(length + 2, count_at - data_at, sizeof(uint64_t))};
    Elf64_Shdr sections[SECTIONS] = {
        {0},
        section(NAME_RODATA, SHT_PROGBITS, data_at, symbols_at - data_at, ALIGNMENT),
        section(NAME_SYMTAB, SHT_SYMTAB, symbols_at, sizeof symbols, 8),
        section(NAME_STRTAB, SHT_STRTAB, names_at, names_bytes, 1),
        section(NAME_SHSTRTAB, SHT_STRTAB, section_names_at, sizeof section_names, 1),
        section(NAME_STACK, SHT_PROGBITS, section_names_at, 0, 1)};
    uint64_t count = size;
    sections[1].sh_flags = SHF_ALLOC;
    sections[2].sh_link = 3;
    sections[2].sh_info = 1; /* first global symbol */
    sections[2].sh_entsize = sizeof(Elf64_Sym);
    memcpy(file, &header, sizeof header);
    memcpy(file + data_at, bytes, size);
    memcpy(file + count_at, &count, sizeof count);
    memcpy(file + symbols_at, symbols, sizeof symbols);
    memcpy(file + names_at + 1, symbol, length);
    memcpy(file + names_at + length + 2, symbol, length);
    memcpy(file + names_at + 2 * length + 2, "_size", sizeof "_size");
    memcpy(file + section_names_at, section_names, sizeof section_names);
    memcpy(file + sections_at, sections, sizeof sections);
    *out_size = total;
    return file;
}
