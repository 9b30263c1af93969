/* SPDX-License-Identifier: Apache-2.0 */
/*
** hsaco_link.c - the output side of the code object linker.
**
** The file has three loaded segments, in the order and with the addresses that LLVM's linker gives
** them; each starts a page later in memory than in the file, so that pages of different rights
** never share one:
**
** read ELF and program headers, .note, .dynsym, .gnu.hash, .hash, .dynstr, constants address =
** offset
**   execute   code   address = offset + page
** write .dynamic (written by a loader at most once, then read only) address = offset + 2 pages
**
** place_* decide where everything goes and add up the size, write_* fill the zeroed image, relocate
** patches the copied sections. .gnu.hash has one bucket (a code object exports two symbols a
** kernel), .hash one a symbol: the sizes that LLVM's linker would give them, so that all addresses
** agree with its output.
*/
#include "hsaco_link.h"

#include "hsaco_input.h"

#include "../runtime/error.h"

#include <stdlib.h>
#include <string.h>

enum {
    PAGE = 0x1000,
    TEXT_ALIGN = 256,
    CONST_ALIGN = 64,
    PROGRAM_HEADERS = 8,
    DYNAMIC_ENTRIES = 7,
    BLOOM_SHIFT = 26
};
enum {
    R_REL32 = 4,
    R_REL64 = 5,
    R_REL32_LO = 10,
    R_REL32_HI = 11
}; /* R_AMDGPU_*; S + A - P all of them */
enum {
    OUTPUT_MAX = 256 << 20
}; /* sections of a damaged file may overlap and add up to more than the file */

/* Section headers of the output, for tools; a loader reads program headers. */
enum {
    S_NULL,
    S_NOTE,
    S_DYNSYM,
    S_GNU_HASH,
    S_HASH,
    S_DYNSTR,
    S_RODATA,
    S_TEXT,
    S_DYNAMIC,
    S_SHSTRTAB,
    S_COUNT
};
static const char section_names[] =
    "\0.note\0.dynsym\0.gnu.hash\0.hash\0.dynstr\0.rodata\0.text\0.dynamic\0.shstrtab";

struct span {
    uint64_t offset, bytes, align;
};

struct link {
    struct hsaco_input in;
    uint64_t *offset; /* in the output, of each input section; 0 = not copied */
    struct span span[S_COUNT];
    uint64_t dynamic_symbols, strings, headers, size;
    unsigned char *image;
};

static uint64_t align_up(uint64_t x, uint64_t align)
{
    return align > 1 ? (x + align - 1) & ~(align - 1) : x;
}

/* Address minus offset of what lies in an output section. */
static uint64_t bias(int section)
{
    return section == S_TEXT ? PAGE : section == S_DYNAMIC ? 2 * PAGE : 0;
}

static int output_section(enum hsaco_part part)
{
    return part == PART_NOTE ? S_NOTE : part == PART_TEXT ? S_TEXT : S_RODATA;
}

static uint64_t address_of(const struct link *l, size_t section)
{
    return l->offset[section] + bias(output_section(hsaco_input_part(&l->in.section[section])));
}

/* ---- placing ---- */

static void place(struct link *l, int section, uint64_t bytes, uint64_t align)
{
    l->size = align_up(l->size, align);
    l->span[section] = (struct span){l->size, bytes, align};
    l->size += bytes;
}

/* All input sections of a part, one after the other, as one output section. */
static void place_part(struct link *l, enum hsaco_part part, uint64_t align)
{
    uint64_t begin = UINT64_MAX;
    for (size_t i = 0; i < l->in.sections; i++) {
        const Elf64_Shdr *s = &l->in.section[i];
        if (hsaco_input_part(s) != part || !s->sh_size || l->size > OUTPUT_MAX)
            continue;
        uint64_t own = begin == UINT64_MAX && align > s->sh_addralign ? align : s->sh_addralign;
        l->size = align_up(l->size, own);
        if (begin == UINT64_MAX)
            begin = l->size, align = own ? own : 1;
        l->offset[i] = l->size;
        l->size += s->sh_size;
    }
    if (begin == UINT64_MAX)
        begin = l->size = align_up(l->size, align);
    l->span[output_section(part)] = (struct span){begin, l->size - begin, align};
}

static void count_symbols(struct link *l)
{
    l->dynamic_symbols = 1; /* symbol 0 is the null symbol, string 0 the empty one */
    l->strings = 1;
    for (size_t i = 1; i < l->in.symbols && l->strings <= OUTPUT_MAX; i++)
        if (hsaco_input_exported(&l->in, &l->in.symbol[i])) {
            l->dynamic_symbols++;
            l->strings += strlen(l->in.names + l->in.symbol[i].st_name) + 1;
        }
}

static kvk_status place_all(struct link *l, kvk_error *err)
{
    count_symbols(l);
    uint64_t n = l->dynamic_symbols;
    l->size = sizeof(Elf64_Ehdr) + PROGRAM_HEADERS * sizeof(Elf64_Phdr);
    place_part(l, PART_NOTE, 4);
    place(l, S_DYNSYM, n * sizeof(Elf64_Sym), 8);
    place(l, S_GNU_HASH, 4 * 4 + 8 + 4 + 4 * (n - 1),
          8);                             /* header, one bloom word, one bucket, the hashes */
    place(l, S_HASH, 4 * (2 + n + n), 4); /* counts, buckets, chains */
    place(l, S_DYNSTR, l->strings, 1);
    place_part(l, PART_CONST, CONST_ALIGN);
    place_part(l, PART_TEXT, TEXT_ALIGN);
    place(l, S_DYNAMIC, DYNAMIC_ENTRIES * sizeof(Elf64_Dyn), 8);
    place(l, S_SHSTRTAB, sizeof section_names, 1);
    l->headers = align_up(l->size, 8);
    l->size = l->headers + S_COUNT * sizeof(Elf64_Shdr);
    if (l->size > OUTPUT_MAX)
        return ERR(err, KVK_E_OBJECT, "the code object would have %llu bytes",
                   (unsigned long long)l->size);
    if (!l->span[S_TEXT].bytes)
        return ERR(err, KVK_E_OBJECT, "no code");
    return KVK_OK;
}

/* ---- writing ---- */

static void put(struct link *l, uint64_t offset, const void *data, size_t bytes)
{
    memcpy(l->image + offset, data, bytes);
}

static void write_head(struct link *l)
{
    Elf64_Ehdr head = l->in.head; /* keeps the ABI version, and the processor in e_flags */
    head.e_type = ET_DYN;
    head.e_entry = 0;
    head.e_phoff = sizeof head;
    head.e_phentsize = sizeof(Elf64_Phdr);
    head.e_phnum = PROGRAM_HEADERS;
    head.e_shoff = l->headers;
    head.e_shentsize = sizeof(Elf64_Shdr);
    head.e_shnum = S_COUNT;
    head.e_shstrndx = S_SHSTRTAB;
    put(l, 0, &head, sizeof head);
}

static Elf64_Phdr segment(unsigned type, unsigned flags, uint64_t offset, uint64_t address,
                          uint64_t bytes, uint64_t align)
{
    return (Elf64_Phdr){.p_type = type,
                        .p_flags = flags,
                        .p_offset = offset,
                        .p_vaddr = address,
                        .p_paddr = address,
                        .p_filesz = bytes,
                        .p_memsz = bytes,
                        .p_align = align};
}

static void write_segments(struct link *l)
{
    const struct span *text = &l->span[S_TEXT], *dyn = &l->span[S_DYNAMIC],
                      *note = &l->span[S_NOTE];
    uint64_t table = sizeof(Elf64_Ehdr),
             read_end = l->span[S_RODATA].offset + l->span[S_RODATA].bytes;
    uint64_t text_at = text->offset + PAGE, dyn_at = dyn->offset + 2 * PAGE;
    Elf64_Phdr p[PROGRAM_HEADERS] = {
        segment(PT_PHDR, PF_R, table, table, sizeof p, 8),
        segment(PT_LOAD, PF_R, 0, 0, read_end, PAGE),
        segment(PT_LOAD, PF_R | PF_X, text->offset, text_at, text->bytes, PAGE),
        segment(PT_LOAD, PF_R | PF_W, dyn->offset, dyn_at, dyn->bytes, PAGE),
        segment(PT_DYNAMIC, PF_R | PF_W, dyn->offset, dyn_at, dyn->bytes, 8),
        segment(PT_GNU_RELRO, PF_R, dyn->offset, dyn_at, dyn->bytes, 1),
        segment(PT_GNU_STACK, PF_R | PF_W, 0, 0, 0, 0),
        segment(PT_NOTE, PF_R, note->offset, note->offset, note->bytes, 4),
    };
    p[3].p_memsz = p[5].p_memsz =
        align_up(dyn_at + dyn->bytes, PAGE) - dyn_at; /* read-only pages are whole pages */
    put(l, table, p, sizeof p);
}

static void write_dynamic(struct link *l)
{
    const Elf64_Dyn d[DYNAMIC_ENTRIES] = {
        {DT_SYMTAB, {l->span[S_DYNSYM].offset}},
        {DT_SYMENT, {sizeof(Elf64_Sym)}},
        {DT_STRTAB, {l->span[S_DYNSTR].offset}},
        {DT_STRSZ, {l->span[S_DYNSTR].bytes}},
        {DT_GNU_HASH, {l->span[S_GNU_HASH].offset}},
        {DT_HASH, {l->span[S_HASH].offset}},
        {DT_NULL, {0}},
    };
    put(l, l->span[S_DYNAMIC].offset, d, sizeof d);
}

static void write_section_headers(struct link *l)
{
    static const struct {
        unsigned type, flags, link, info, entry;
    } facts[S_COUNT] = {
        [S_NOTE] = {SHT_NOTE, SHF_ALLOC, 0, 0, 0},
        [S_DYNSYM] = {SHT_DYNSYM, SHF_ALLOC, S_DYNSTR, 1, sizeof(Elf64_Sym)},
        [S_GNU_HASH] = {SHT_GNU_HASH, SHF_ALLOC, S_DYNSYM, 0, 0},
        [S_HASH] = {SHT_HASH, SHF_ALLOC, S_DYNSYM, 0, 4},
        [S_DYNSTR] = {SHT_STRTAB, SHF_ALLOC, 0, 0, 0},
        [S_RODATA] = {SHT_PROGBITS, SHF_ALLOC, 0, 0, 0},
        [S_TEXT] = {SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, 0, 0, 0},
        [S_DYNAMIC] = {SHT_DYNAMIC, SHF_ALLOC | SHF_WRITE, S_DYNSTR, 0, sizeof(Elf64_Dyn)},
        [S_SHSTRTAB] = {SHT_STRTAB, 0, 0, 0, 0},
    };
    Elf64_Shdr h[S_COUNT] = {{0}};
    size_t name = 1;
    for (int i = 1; i < S_COUNT; i++) {
        h[i].sh_name = (Elf64_Word)name;
        h[i].sh_type = facts[i].type;
        h[i].sh_flags = facts[i].flags;
        h[i].sh_link = facts[i].link;
        h[i].sh_info = facts[i].info;
        h[i].sh_entsize = facts[i].entry;
        h[i].sh_offset = l->span[i].offset;
        h[i].sh_addr = facts[i].flags & SHF_ALLOC ? l->span[i].offset + bias(i) : 0;
        h[i].sh_size = l->span[i].bytes;
        h[i].sh_addralign = l->span[i].align;
        name += strlen(section_names + name) + 1;
    }
    put(l, l->headers, h, sizeof h);
    put(l, l->span[S_SHSTRTAB].offset, section_names, sizeof section_names);
}

static uint32_t gnu_hash(const char *name)
{
    uint32_t h = 5381;
    for (; *name; name++)
        h = h * 33 + (unsigned char)*name;
    return h;
}

static void write_symbol(struct link *l, const Elf64_Sym *from, uint64_t index, uint64_t string)
{
    Elf64_Sym to = *from;
    to.st_name = (Elf64_Word)string;
    to.st_value += address_of(l, from->st_shndx);
    to.st_shndx = (Elf64_Half)output_section(hsaco_input_part(&l->in.section[from->st_shndx]));
    put(l, l->span[S_DYNSYM].offset + index * sizeof to, &to, sizeof to);
}

static void write_hash_heads(struct link *l, uint64_t bloom)
{
    const uint32_t some = l->dynamic_symbols > 1, n = (uint32_t)l->dynamic_symbols;
    const uint32_t gnu[4] = {1, 1, 1, BLOOM_SHIFT}; /* buckets, first hashed symbol, bloom words */
    uint64_t at = l->span[S_GNU_HASH].offset;
    put(l, at, gnu, sizeof gnu);
    put(l, at + 16, &bloom, sizeof bloom);
    put(l, at + 24, &some, sizeof some); /* the bucket starts at symbol 1 */
    const uint32_t hash[2] = {n, n};     /* buckets, chain length */
    put(l, l->span[S_HASH].offset, hash, sizeof hash);
}

/* The hash of the System V ABI. */
static uint32_t sysv_hash(const char *name)
{
    uint32_t h = 0;
    for (; *name; name++) {
        h = (h << 4) + (unsigned char)*name;
        uint32_t top = h & 0xf0000000U;
        h = (h ^ top >> 24) & ~top;
    }
    return h;
}

/* Puts symbol n before the chain of its bucket. */
static void chain_symbol(struct link *l, const char *name, uint32_t n)
{
    uint64_t buckets = l->span[S_HASH].offset + 8, chains = buckets + 4 * l->dynamic_symbols;
    uint64_t bucket = buckets + 4 * (sysv_hash(name) % l->dynamic_symbols);
    memcpy(l->image + chains + 4 * (uint64_t)n, l->image + bucket, 4);
    put(l, bucket, &n, sizeof n);
}

/* Symbols in the input's order. */
static void write_symbols(struct link *l)
{
    uint64_t n = 1, string = 1, bloom = 0;
    for (size_t i = 1; i < l->in.symbols; i++) {
        const Elf64_Sym *s = &l->in.symbol[i];
        if (!hsaco_input_exported(&l->in, s))
            continue;
        const char *name = l->in.names + s->st_name;
        size_t bytes = strlen(name) + 1;
        bool last = n + 1 == l->dynamic_symbols;
        uint32_t h = gnu_hash(name), hashed = (h & ~1U) | last;
        bloom |= 1ULL << (h & 63) | 1ULL << (h >> BLOOM_SHIFT & 63);
        write_symbol(l, s, n, string);
        put(l, l->span[S_DYNSTR].offset + string, name, bytes);
        put(l, l->span[S_GNU_HASH].offset + 28 + 4 * (n - 1), &hashed, sizeof hashed);
        chain_symbol(l, name, (uint32_t)n);
        string += bytes;
        n++;
    }
    write_hash_heads(l, bloom);
}

static void write_sections(struct link *l)
{
    for (size_t i = 0; i < l->in.sections; i++)
        if (l->offset[i])
            put(l, l->offset[i], l->in.data + l->in.section[i].sh_offset, l->in.section[i].sh_size);
}

/* ---- relocating ---- */

static kvk_status relocate_one(struct link *l, size_t section, const Elf64_Rela *r, kvk_error *err)
{
    unsigned type = ELF64_R_TYPE(r->r_info);
    size_t width = type == R_REL64 ? 8 : 4, index = ELF64_R_SYM(r->r_info);
    if (type != R_REL32 && type != R_REL64 && type != R_REL32_LO && type != R_REL32_HI)
        return ERR(err, KVK_E_UNSUPPORTED, "relocation of type %u", type);
    uint64_t room = l->in.section[section].sh_size;
    if (index >= l->in.symbols || r->r_offset > room || width > room - r->r_offset)
        return ERR(err, KVK_E_OBJECT, "relocation of symbol %zu at %#llx lies outside", index,
                   (unsigned long long)r->r_offset);
    const Elf64_Sym *s = &l->in.symbol[index];
    if (s->st_shndx == SHN_UNDEF || s->st_shndx >= SHN_LORESERVE || !l->offset[s->st_shndx])
        return ERR(err, KVK_E_UNSUPPORTED,
                   "relocation against a symbol without a place in the file: %.80s",
                   l->in.names + s->st_name);
    uint64_t target = address_of(l, s->st_shndx) + s->st_value + (uint64_t)r->r_addend;
    uint64_t value = target - (address_of(l, section) + r->r_offset);
    int64_t distance = (int64_t)value;
    if (type == R_REL32 && distance != (int32_t)distance)
        return ERR(err, KVK_E_OBJECT, "relocation out of range: %lld", (long long)distance);
    if (type == R_REL32_HI)
        value >>= 32;
    put(l, l->offset[section] + r->r_offset, &value, width); /* little endian on both sides */
    return KVK_OK;
}

static kvk_status relocate(struct link *l, kvk_error *err)
{
    for (size_t i = 0; i < l->in.sections; i++) {
        const Elf64_Shdr *s = &l->in.section[i];
        if (s->sh_type != SHT_RELA || !l->offset[s->sh_info])
            continue; /* of a section that is not loaded: debug information */
        for (size_t n = 0; n < s->sh_size / sizeof(Elf64_Rela); n++) {
            Elf64_Rela r = hsaco_input_rela(&l->in, s, n);
            kvk_status st = relocate_one(l, s->sh_info, &r, err);
            if (st)
                return st;
        }
    }
    return KVK_OK;
}

static kvk_status write_all(struct link *l, kvk_error *err)
{
    l->image = calloc(1, l->size);
    if (!l->image)
        return ERR(err, KVK_E_MEMORY, "%llu bytes", (unsigned long long)l->size);
    write_head(l);
    write_segments(l);
    write_symbols(l);
    write_sections(l);
    write_dynamic(l);
    write_section_headers(l);
    return relocate(l, err);
}

kvk_status hsaco_link(const void *elf, size_t size, void **out, size_t *out_size, kvk_error *err)
{
    struct link l = {0};
    *out = NULL;
    *out_size = 0;
    kvk_status st = hsaco_input_open(&l.in, elf, size, err);
    if (st)
        return st;
    l.offset = calloc(l.in.sections, sizeof *l.offset);
    st = l.offset ? place_all(&l, err) : ERR(err, KVK_E_MEMORY, "%zu sections", l.in.sections);
    if (!st)
        st = write_all(&l, err);
    if (st)
        free(l.image);
    else
        *out = l.image, *out_size = l.size;
    free(l.offset);
    hsaco_input_close(&l.in);
    return st;
}
