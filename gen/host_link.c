/* SPDX-License-Identifier: Apache-2.0 */
/*
** host_link.c - see host_link.h.
**
** Of the sections that are loaded, code goes to the front and constants behind it, each at its
** alignment; unwind tables are dropped (kernels do not unwind). All references are relative to
** their place, so the image needs no fixing up when loaded. A load of an address from a table that
** does not exist (GOTPCRELX) becomes a computation of the address. Relocations: System V ABI, AMD64
** supplement, section 4.4.
*/
#include "host_link.h"

#include "../runtime/error.h"

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_IMAGE = 64 << 20, MAX_ALIGN = 4096, UNWIND = 0x70000001 /* SHT_X86_64_UNWIND */ };
#define NOT_PLACED SIZE_MAX

struct input {
    const unsigned char *data;
    size_t bytes;
    Elf64_Shdr *sections;
    size_t *place; /* of each section in the image */
    size_t nsections;
    size_t symbols_at, nsymbols; /* byte offset of the symbol table, entries */
    const char *strings, *section_names;
    size_t strings_bytes, section_names_bytes;
    unsigned char *image;
    size_t image_bytes;
    kvk_error *err;
};

static bool inside(const struct input *in, uint64_t offset, uint64_t bytes)
{
    return offset <= in->bytes && bytes <= in->bytes - offset;
}

/* A name that ends inside its table, else a stand-in. */
static const char *name_at(const char *table, size_t bytes, size_t offset)
{
    return table && offset < bytes && memchr(table + offset, 0, bytes - offset) ? table + offset
                                                                                : "(unnamed)";
}

static const char *section_name(const struct input *in, size_t i)
{
    return name_at(in->section_names, in->section_names_bytes, in->sections[i].sh_name);
}

static Elf64_Sym symbol_at(const struct input *in, size_t i)
{
    Elf64_Sym s;
    memcpy(&s, in->data + in->symbols_at + i * sizeof s, sizeof s);
    return s;
}

static const char *symbol_name(const struct input *in, const Elf64_Sym *s)
{
    return name_at(in->strings, in->strings_bytes, s->st_name);
}

/* ---- reading ---- */

static kvk_status read_sections(struct input *in)
{
    Elf64_Ehdr head;
    if (in->bytes < sizeof head)
        return ERR(in->err, KVK_E_OBJECT, "%zu bytes are no ELF file", in->bytes);
    memcpy(&head, in->data, sizeof head);
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_ident[EI_DATA] != ELFDATA2LSB || head.e_type != ET_REL ||
        head.e_machine != EM_X86_64)
        return ERR(in->err, KVK_E_OBJECT, "not a relocatable for x86-64");
    in->nsections = head.e_shnum;
    if (head.e_shentsize != sizeof(Elf64_Shdr) || !in->nsections ||
        !inside(in, head.e_shoff, in->nsections * sizeof(Elf64_Shdr)))
        return ERR(in->err, KVK_E_OBJECT, "the section table lies outside the file");
    in->sections = malloc(in->nsections * sizeof *in->sections);
    in->place = malloc(in->nsections * sizeof *in->place);
    if (!in->sections || !in->place)
        return ERR(in->err, KVK_E_MEMORY, "%zu sections", in->nsections);
    memcpy(in->sections, in->data + head.e_shoff, in->nsections * sizeof *in->sections);
    for (size_t i = 0; i < in->nsections; i++) {
        const Elf64_Shdr *s = &in->sections[i];
        in->place[i] = NOT_PLACED;
        if (s->sh_type != SHT_NOBITS && s->sh_type != SHT_NULL &&
            !inside(in, s->sh_offset, s->sh_size))
            return ERR(in->err, KVK_E_OBJECT, "section %zu lies outside the file", i);
    }
    if (head.e_shstrndx < in->nsections && in->sections[head.e_shstrndx].sh_type == SHT_STRTAB) {
        in->section_names = (const char *)in->data + in->sections[head.e_shstrndx].sh_offset;
        in->section_names_bytes = in->sections[head.e_shstrndx].sh_size;
    }
    return KVK_OK;
}

static kvk_status read_symbols(struct input *in)
{
    for (size_t i = 0; i < in->nsections; i++) {
        const Elf64_Shdr *s = &in->sections[i];
        if (s->sh_type != SHT_SYMTAB)
            continue;
        if (in->nsymbols || s->sh_link >= in->nsections ||
            in->sections[s->sh_link].sh_type != SHT_STRTAB)
            return ERR(in->err, KVK_E_OBJECT, "the symbol table has no names or is one of several");
        in->symbols_at = s->sh_offset;
        in->nsymbols = s->sh_size / sizeof(Elf64_Sym);
        in->strings = (const char *)in->data + in->sections[s->sh_link].sh_offset;
        in->strings_bytes = in->sections[s->sh_link].sh_size;
    }
    return in->nsymbols ? KVK_OK : ERR(in->err, KVK_E_OBJECT, "no symbol table");
}

/* ---- placing ---- */

static bool is_unwind(const struct input *in, size_t i)
{
    return in->sections[i].sh_type == UNWIND || !strcmp(section_name(in, i), ".eh_frame");
}

static kvk_status check_loaded(const struct input *in, size_t i)
{
    const Elf64_Shdr *s = &in->sections[i];
    if (s->sh_flags & (SHF_WRITE | SHF_TLS))
        return ERR(in->err, KVK_E_UNSUPPORTED, "section %s: a kernel has no writable data",
                   section_name(in, i));
    if (s->sh_type != SHT_PROGBITS)
        return ERR(in->err, KVK_E_UNSUPPORTED, "section %s: type %#x", section_name(in, i),
                   s->sh_type);
    if (s->sh_addralign > MAX_ALIGN || (s->sh_addralign & (s->sh_addralign - 1)))
        return ERR(in->err, KVK_E_UNSUPPORTED, "section %s: alignment %llu", section_name(in, i),
                   (unsigned long long)s->sh_addralign);
    return KVK_OK;
}

static kvk_status place_sections(struct input *in, bool code)
{
    for (size_t i = 0; i < in->nsections; i++) {
        const Elf64_Shdr *s = &in->sections[i];
        if (!(s->sh_flags & SHF_ALLOC) || !s->sh_size || is_unwind(in, i) ||
            !!(s->sh_flags & SHF_EXECINSTR) != code)
            continue;
        kvk_status status = check_loaded(in, i);
        if (status)
            return status;
        size_t align = s->sh_addralign > 16 ? s->sh_addralign : 16;
        in->place[i] = (in->image_bytes + align - 1) & ~(align - 1);
        if (s->sh_size > MAX_IMAGE || in->place[i] + s->sh_size > MAX_IMAGE)
            return ERR(in->err, KVK_E_UNSUPPORTED, "more than %d bytes of code", MAX_IMAGE);
        in->image_bytes = in->place[i] + s->sh_size;
    }
    return KVK_OK;
}

static kvk_status make_image(struct input *in)
{
    kvk_status status = place_sections(in, true);
    if (!status)
        status = place_sections(in, false);
    if (status)
        return status;
    if (!in->image_bytes)
        return ERR(in->err, KVK_E_OBJECT, "no code");
    in->image = malloc(in->image_bytes);
    if (!in->image)
        return ERR(in->err, KVK_E_MEMORY, "%zu bytes of code", in->image_bytes);
    memset(in->image, 0xcc, in->image_bytes); /* int3 between functions */
    for (size_t i = 0; i < in->nsections; i++)
        if (in->place[i] != NOT_PLACED)
            memcpy(in->image + in->place[i], in->data + in->sections[i].sh_offset,
                   in->sections[i].sh_size);
    return KVK_OK;
}

/* ---- references ---- */

static kvk_status symbol_place(const struct input *in, size_t index, uint64_t *place)
{
    if (index >= in->nsymbols)
        return ERR(in->err, KVK_E_OBJECT, "a relocation names symbol %zu of %zu", index,
                   in->nsymbols);
    Elf64_Sym s = symbol_at(in, index);
    if (s.st_shndx == SHN_UNDEF)
        return ERR(in->err, KVK_E_UNSUPPORTED, "undefined symbol %s: a kernel can call no library",
                   symbol_name(in, &s));
    if (s.st_shndx >= in->nsections || in->place[s.st_shndx] == NOT_PLACED)
        return ERR(in->err, KVK_E_UNSUPPORTED, "symbol %s lies in no section that is loaded",
                   symbol_name(in, &s));
    if (s.st_value > in->sections[s.st_shndx].sh_size)
        return ERR(in->err, KVK_E_OBJECT, "symbol %s lies outside its section",
                   symbol_name(in, &s));
    *place = in->place[s.st_shndx] + s.st_value;
    return KVK_OK;
}

/* `at` points to the 4 bytes of the reference; `before` bytes of the section precede it. */
static bool relax_load(unsigned char *at, size_t before, bool rex)
{
    if (before < (rex ? 3u : 2u))
        return false;
    if (at[-2] == 0x8b &&
        (at[-1] & 0xc7) == 5) { /* mov foo@GOTPCREL(%rip), reg -> lea foo(%rip), reg */
        at[-2] = 0x8d;
        return true;
    }
    if (!rex && at[-2] == 0xff &&
        at[-1] == 0x15) { /* call *foo@GOTPCREL(%rip) -> addr32 call foo */
        at[-2] = 0x67;
        at[-1] = 0xe8;
        return true;
    }
    return false;
}

static kvk_status relocate(struct input *in, size_t section, const Elf64_Rela *r)
{
    const Elf64_Shdr *s = &in->sections[section];
    unsigned type = (unsigned)ELF64_R_TYPE(r->r_info);
    size_t width = type == R_X86_64_PC64 ? 8 : 4;
    uint64_t target;
    if (type == R_X86_64_NONE)
        return KVK_OK;
    if (r->r_offset > s->sh_size || width > s->sh_size - r->r_offset)
        return ERR(in->err, KVK_E_OBJECT, "a relocation lies outside section %s",
                   section_name(in, section));
    kvk_status status = symbol_place(in, ELF64_R_SYM(r->r_info), &target);
    if (status)
        return status;
    size_t place = in->place[section] + r->r_offset;
    unsigned char *at = in->image + place;
    switch (type) {
    case R_X86_64_PC32:
    case R_X86_64_PLT32:
    case R_X86_64_PC64: break;
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX:
        if (relax_load(at, r->r_offset, type == R_X86_64_REX_GOTPCRELX))
            break;
        /* fall through */
    default:
        return ERR(in->err, KVK_E_UNSUPPORTED, "relocation type %u in section %s", type,
                   section_name(in, section));
    }
    uint64_t value = target + (uint64_t)r->r_addend - place;
    if (width == 4 && (int64_t)value != (int32_t)(uint32_t)value)
        return ERR(in->err, KVK_E_OBJECT, "a reference from section %s does not fit 32 bits",
                   section_name(in, section));
    for (size_t i = 0; i < width; i++)
        at[i] = (unsigned char)(value >> 8 * i);
    return KVK_OK;
}

static kvk_status relocate_section(struct input *in, size_t index)
{
    const Elf64_Shdr *s = &in->sections[index];
    if (s->sh_info >= in->nsections || in->place[s->sh_info] == NOT_PLACED)
        return KVK_OK; /* of debug information or unwind tables */
    if (s->sh_type == SHT_REL)
        return ERR(in->err, KVK_E_UNSUPPORTED, "relocations without addends");
    for (size_t i = 0; i < s->sh_size / sizeof(Elf64_Rela); i++) {
        Elf64_Rela r;
        memcpy(&r, in->data + s->sh_offset + i * sizeof r, sizeof r);
        kvk_status status = relocate(in, s->sh_info, &r);
        if (status)
            return status;
    }
    return KVK_OK;
}

static kvk_status find_symbol(const struct input *in, const char *name, size_t *offset)
{
    for (size_t i = 1; i < in->nsymbols; i++) {
        Elf64_Sym s = symbol_at(in, i);
        if (strcmp(symbol_name(in, &s), name))
            continue;
        uint64_t place;
        kvk_status status = symbol_place(in, i, &place);
        if (status)
            return status;
        if (place >= in->image_bytes || !(in->sections[s.st_shndx].sh_flags & SHF_EXECINSTR))
            return ERR(in->err, KVK_E_OBJECT, "symbol %s is no function", name);
        *offset = (size_t)place;
        return KVK_OK;
    }
    return ERR(in->err, KVK_E_OBJECT, "no symbol %s", name);
}

static kvk_status link_all(struct input *in, const char *const symbols[], size_t offsets[],
                           int nsymbols)
{
    kvk_status status = read_sections(in);
    if (!status)
        status = read_symbols(in);
    if (!status)
        status = make_image(in);
    for (size_t i = 0; !status && i < in->nsections; i++)
        if (in->sections[i].sh_type == SHT_RELA || in->sections[i].sh_type == SHT_REL)
            status = relocate_section(in, i);
    for (int i = 0; !status && i < nsymbols; i++)
        status = find_symbol(in, symbols[i], &offsets[i]);
    return status;
}

kvk_status host_link(const void *elf, size_t elf_bytes, const char *const symbols[],
                     size_t offsets[], int nsymbols, void **image, size_t *image_bytes,
                     kvk_error *err)
{
    struct input in = {.data = elf, .bytes = elf_bytes, .err = err};
    kvk_status status = link_all(&in, symbols, offsets, nsymbols);
    free(in.sections);
    free(in.place);
    if (status) {
        free(in.image);
        return status;
    }
    *image = in.image;
    *image_bytes = in.image_bytes;
    return KVK_OK;
}
