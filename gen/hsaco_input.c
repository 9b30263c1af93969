/* SPDX-License-Identifier: Apache-2.0 */
/*
** hsaco_input.c - reads and checks an ELF relocatable for AMDGPU.
**
** The bytes normally come straight from LLVM; they are checked as if they did not, so that a
** damaged file is an error and never a wild read. Nothing after this file checks offsets of the
** input again, relocation places excepted.
*/
#include "hsaco_input.h"

#include "../runtime/error.h"

#include <stdlib.h>
#include <string.h>

enum { MACHINE_AMDGPU = 224, OSABI_HSA = 64, ALIGN_MAX = 4096 };

static bool inside(uint64_t offset, uint64_t bytes, uint64_t size)
{
    return offset <= size && bytes <= size - offset;
}

static void *copy(const struct hsaco_input *in, uint64_t offset, size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (p)
        memcpy(p, in->data + offset, bytes);
    return p;
}

static kvk_status read_head(struct hsaco_input *in, kvk_error *err)
{
    Elf64_Ehdr *h = &in->head;
    if (in->size < sizeof *h)
        return ERR(err, KVK_E_OBJECT, "%zu bytes: shorter than an ELF header", in->size);
    memcpy(h, in->data, sizeof *h);
    if (memcmp(h->e_ident, ELFMAG, SELFMAG) || h->e_ident[EI_CLASS] != ELFCLASS64 ||
        h->e_ident[EI_DATA] != ELFDATA2LSB)
        return ERR(err, KVK_E_OBJECT, "not a 64-bit little-endian ELF file");
    if (h->e_type != ET_REL || h->e_machine != MACHINE_AMDGPU || h->e_ident[EI_OSABI] != OSABI_HSA)
        return ERR(err, KVK_E_OBJECT, "ELF type %u, machine %u, ABI %u: not an amdhsa relocatable",
                   h->e_type, h->e_machine, h->e_ident[EI_OSABI]);
    if (h->e_shentsize != sizeof(Elf64_Shdr) || !h->e_shnum ||
        !inside(h->e_shoff, (uint64_t)h->e_shnum * sizeof(Elf64_Shdr), in->size))
        return ERR(err, KVK_E_OBJECT, "section headers (%u of %u bytes) lie outside the file",
                   h->e_shnum, h->e_shentsize);
    return KVK_OK;
}

static kvk_status check_section(const struct hsaco_input *in, size_t i, kvk_error *err)
{
    const Elf64_Shdr *s = &in->section[i];
    if (s->sh_type != SHT_NULL && s->sh_type != SHT_NOBITS &&
        !inside(s->sh_offset, s->sh_size, in->size))
        return ERR(err, KVK_E_OBJECT, "section %zu lies outside the file", i);
    if (s->sh_addralign > ALIGN_MAX || (s->sh_addralign & (s->sh_addralign - 1)))
        return ERR(err, KVK_E_OBJECT, "section %zu: alignment %llu", i,
                   (unsigned long long)s->sh_addralign);
    if ((s->sh_flags & SHF_ALLOC) && s->sh_size && hsaco_input_part(s) == PART_NONE)
        return ERR(err, KVK_E_UNSUPPORTED, "section %zu: writable or zero-filled data (type %u)", i,
                   s->sh_type);
    if (s->sh_type == SHT_REL && s->sh_size)
        return ERR(err, KVK_E_UNSUPPORTED, "section %zu: relocations without addends", i);
    if (s->sh_type == SHT_RELA &&
        (s->sh_entsize != sizeof(Elf64_Rela) || s->sh_size % sizeof(Elf64_Rela)))
        return ERR(err, KVK_E_OBJECT, "section %zu: relocations of %llu bytes", i,
                   (unsigned long long)s->sh_entsize);
    if (s->sh_type == SHT_RELA && s->sh_info >= in->sections)
        return ERR(err, KVK_E_OBJECT, "section %zu relocates section %u, which does not exist", i,
                   s->sh_info);
    return KVK_OK;
}

static kvk_status read_sections(struct hsaco_input *in, kvk_error *err)
{
    in->sections = in->head.e_shnum;
    in->section = copy(in, in->head.e_shoff, in->sections * sizeof *in->section);
    if (!in->section)
        return ERR(err, KVK_E_MEMORY, "%zu section headers", in->sections);
    for (size_t i = 0; i < in->sections; i++) {
        kvk_status st = check_section(in, i, err);
        if (st)
            return st;
    }
    return KVK_OK;
}

static kvk_status check_symbol(const struct hsaco_input *in, size_t i, uint64_t names_bytes,
                               kvk_error *err)
{
    const Elf64_Sym *s = &in->symbol[i];
    if (s->st_name >= names_bytes)
        return ERR(err, KVK_E_OBJECT, "symbol %zu: its name lies outside the string table", i);
    const char *name = in->names + s->st_name;
    if (s->st_shndx == SHN_UNDEF) {
        if (i && ELF64_ST_BIND(s->st_info) != STB_LOCAL)
            return ERR(err, KVK_E_UNSUPPORTED, "undefined symbol %.80s", name);
        return KVK_OK;
    }
    if (s->st_shndx >= SHN_LORESERVE) {
        if (s->st_shndx != SHN_ABS)
            return ERR(err, KVK_E_UNSUPPORTED, "symbol %.80s in reserved section %#x", name,
                       s->st_shndx);
        return KVK_OK;
    }
    if (s->st_shndx >= in->sections)
        return ERR(err, KVK_E_OBJECT, "symbol %.80s in section %u, which does not exist", name,
                   s->st_shndx);
    if (!inside(s->st_value, s->st_size, in->section[s->st_shndx].sh_size))
        return ERR(err, KVK_E_OBJECT, "symbol %.80s lies outside its section", name);
    return KVK_OK;
}

static const Elf64_Shdr *only_symtab(const struct hsaco_input *in)
{
    const Elf64_Shdr *found = NULL;
    for (size_t i = 0; i < in->sections; i++)
        if (in->section[i].sh_type == SHT_SYMTAB) {
            if (found)
                return NULL;
            found = &in->section[i];
        }
    return found;
}

static kvk_status read_symbols(struct hsaco_input *in, kvk_error *err)
{
    const Elf64_Shdr *table = only_symtab(in);
    if (!table || table->sh_entsize != sizeof(Elf64_Sym) || table->sh_size % sizeof(Elf64_Sym) ||
        !table->sh_size)
        return ERR(err, KVK_E_OBJECT, "no symbol table, or several, or a damaged one");
    const Elf64_Shdr *names = table->sh_link < in->sections ? &in->section[table->sh_link] : NULL;
    if (!names || names->sh_type != SHT_STRTAB || !names->sh_size ||
        in->data[names->sh_offset + names->sh_size - 1])
        return ERR(err, KVK_E_OBJECT, "the symbols' string table is missing or does not end");
    in->names = (const char *)in->data + names->sh_offset;
    in->symbols = table->sh_size / sizeof(Elf64_Sym);
    in->symbol = copy(in, table->sh_offset, table->sh_size);
    if (!in->symbol)
        return ERR(err, KVK_E_MEMORY, "%zu symbols", in->symbols);
    for (size_t i = 0; i < in->symbols; i++) {
        kvk_status st = check_symbol(in, i, names->sh_size, err);
        if (st)
            return st;
    }
    return KVK_OK;
}

kvk_status hsaco_input_open(struct hsaco_input *in, const void *data, size_t size, kvk_error *err)
{
    memset(in, 0, sizeof *in);
    in->data = data;
    in->size = size;
    kvk_status st = read_head(in, err);
    if (!st)
        st = read_sections(in, err);
    if (!st)
        st = read_symbols(in, err);
    if (st)
        hsaco_input_close(in);
    return st;
}

void hsaco_input_close(struct hsaco_input *in)
{
    free(in->section);
    free(in->symbol);
    in->section = NULL;
    in->symbol = NULL;
    in->sections = in->symbols = 0;
}

enum hsaco_part hsaco_input_part(const Elf64_Shdr *section)
{
    if (!(section->sh_flags & SHF_ALLOC) || (section->sh_flags & (SHF_WRITE | SHF_TLS)))
        return PART_NONE;
    if (section->sh_type == SHT_NOTE)
        return PART_NOTE;
    if (section->sh_type != SHT_PROGBITS)
        return PART_NONE;
    return section->sh_flags & SHF_EXECINSTR ? PART_TEXT : PART_CONST;
}

bool hsaco_input_exported(const struct hsaco_input *in, const Elf64_Sym *symbol)
{
    int visibility = ELF64_ST_VISIBILITY(symbol->st_other);
    return ELF64_ST_BIND(symbol->st_info) != STB_LOCAL && visibility != STV_HIDDEN &&
           visibility != STV_INTERNAL && symbol->st_shndx != SHN_UNDEF &&
           symbol->st_shndx < SHN_LORESERVE && in->section[symbol->st_shndx].sh_size &&
           hsaco_input_part(&in->section[symbol->st_shndx]) != PART_NONE;
}

Elf64_Rela hsaco_input_rela(const struct hsaco_input *in, const Elf64_Shdr *section, size_t n)
{
    Elf64_Rela r;
    memcpy(&r, in->data + section->sh_offset + n * sizeof r, sizeof r);
    return r;
}
