/* SPDX-License-Identifier: Apache-2.0 */
/*
** image.c - a code object as a loader sees it: segments, dynamic symbols, kernel descriptors.
**
** Descriptor, 64 bytes: LDS at 0, private bytes of a lane at 4, parameter bytes at 8, distance to
** the code at 16, resource words 3, 1, 2 at 44, property bits at 56, preloaded parameters at 58.
*/
#include "image.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    MODE_SHIFT = 12,
    MODE_BITS = 0xff,
    MODE_EXPECTED = 0xf0, /* to nearest, subnormals everywhere */
    PROPERTY_KERNARG = 8,
    PROPERTY_WAVE32 = 1 << 10,
    GROUP_ID_X = 1 << 7,
    GROUP_ID_OTHERS = 7 << 8
};

static const struct {
    unsigned machine;
    int gfx;
    const char *name;
} targets[] = {{0x4c, 942, "gfx942"},
               {0x4f, 950, "gfx950"},
               {0x41, 1100, "gfx1100"},
               {0x48, 1200, "gfx1200"},
               {0x4e, 1201, "gfx1201"}};

static int refuse(char *error, size_t cap, const char *text)
{
    snprintf(error, cap, "%s", text);
    return -1;
}

static size_t file_size(const uint8_t *file, const Elf64_Ehdr *h)
{
    size_t end = h->e_shoff + (size_t)h->e_shnum * h->e_shentsize;
    for (int i = 0; i < h->e_phnum; i++) {
        Elf64_Phdr p;
        memcpy(&p, file + h->e_phoff + (size_t)i * sizeof p, sizeof p);
        if (p.p_offset + p.p_filesz > end)
            end = p.p_offset + p.p_filesz;
    }
    return end;
}

static int load_segments(struct image *m, const Elf64_Ehdr *h)
{
    m->bytes = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < h->e_phnum; i++) {
            Elf64_Phdr p;
            memcpy(&p, m->file + h->e_phoff + (size_t)i * sizeof p, sizeof p);
            if (p.p_type != PT_LOAD)
                continue;
            if (!pass && p.p_vaddr + p.p_memsz > m->bytes)
                m->bytes = p.p_vaddr + p.p_memsz;
            if (pass)
                memcpy(m->memory + p.p_vaddr, m->file + p.p_offset, p.p_filesz);
        }
        if (pass)
            continue;
        m->memory =
            mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (m->memory == MAP_FAILED)
            return -1;
    }
    return 0;
}

static char *read_all(FILE *from)
{
    size_t size = 0, cap = 1 << 20;
    char *text = malloc(cap + 1);
    for (size_t n; text && (n = fread(text + size, 1, cap - size, from)) > 0;) {
        size += n;
        if (size == cap)
            text = realloc(text, (cap *= 2) + 1);
    }
    if (text)
        text[size] = '\0';
    return text;
}

static int write_file(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "we");
    if (!file)
        return -1;
    bool whole = fwrite(bytes, 1, size, file) == size;
    return fclose(file) == 0 && whole ? 0 : -1;
}

static char *run_disassembler(const struct image *m)
{
    char path[] = "/tmp/amdsim-XXXXXX", command[128];
    int file = mkstemp(path);
    if (file < 0)
        return NULL;
    close(file);
    snprintf(command, sizeof command, "llvm-objdump-22 -d --mcpu=%s %s", m->target, path);
    bool written = !write_file(path, m->file, m->file_bytes);
    FILE *output = written ? popen(command, "re") : NULL;
    char *text = output ? read_all(output) : NULL;
    if (output && pclose(output) != 0) {
        free(text);
        text = NULL;
    }
    unlink(path);
    return text;
}

/* Kept under the hash of the code (FNV-1a), if there is a folder for that: starting the disassembler
** takes longer than most launches. */
static char *disassemble(const struct image *m)
{
    const char *folder = getenv("AMDSIM_LISTINGS");
    char path[512], fresh[540];
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < m->file_bytes; i++)
        hash = (hash ^ m->file[i]) * 0x100000001b3;
    snprintf(path, sizeof path, "%s/%016llx", folder ? folder : "", (unsigned long long)hash);
    FILE *kept = folder ? fopen(path, "re") : NULL;
    if (kept) {
        char *text = read_all(kept);
        fclose(kept);
        return text;
    }
    char *text = run_disassembler(m);
    snprintf(fresh, sizeof fresh, "%s.%ld", path, (long)getpid());
    if (folder && text && (write_file(fresh, text, strlen(text)) || rename(fresh, path)))
        unlink(fresh);
    return text;
}

int image_open(struct image *m, const void *file, char *error, size_t cap)
{
    Elf64_Ehdr h;
    memset(m, 0, sizeof *m);
    memcpy(&h, file, sizeof h);
    if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_type != ET_DYN || h.e_machine != 224)
        return refuse(error, cap, "not a linked AMD code object");
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (targets[i].machine == (h.e_flags & 0xff)) {
            m->target = targets[i].name;
            m->program.gfx = targets[i].gfx;
        }
    if (!m->target)
        return refuse(error, cap, "unknown processor");
    m->file = file;
    m->file_bytes = file_size(file, &h);
    if (load_segments(m, &h))
        return refuse(error, cap, "no memory");
    m->program.base = (uint64_t)(uintptr_t)m->memory;
    char *listing = disassemble(m);
    if (!listing)
        return refuse(error, cap, "llvm-objdump-22 failed");
    return program_parse(&m->program, listing, error, cap);
}

void image_close(struct image *m)
{
    program_free(&m->program);
    if (m->memory && m->memory != MAP_FAILED)
        munmap(m->memory, m->bytes);
    m->memory = NULL;
}

static uint64_t dynamic_entry(const struct image *m, Elf64_Sxword tag)
{
    Elf64_Ehdr h;
    memcpy(&h, m->file, sizeof h);
    for (int i = 0; i < h.e_phnum; i++) {
        Elf64_Phdr p;
        memcpy(&p, m->file + h.e_phoff + (size_t)i * sizeof p, sizeof p);
        for (uint64_t at = 0; p.p_type == PT_DYNAMIC && at < p.p_filesz; at += sizeof(Elf64_Dyn)) {
            Elf64_Dyn d;
            memcpy(&d, m->file + p.p_offset + at, sizeof d);
            if (d.d_tag == tag)
                return d.d_un.d_val;
        }
    }
    return 0;
}

static const uint8_t *find_symbol(const struct image *m, const char *name)
{
    uint64_t table = dynamic_entry(m, DT_SYMTAB), strings = dynamic_entry(m, DT_STRTAB),
             hash = dynamic_entry(m, DT_HASH);
    uint32_t count;
    if (!table || !strings || !hash)
        return NULL;
    memcpy(&count, m->memory + hash + 4, 4);
    for (uint32_t i = 1; i < count; i++) {
        Elf64_Sym s;
        memcpy(&s, m->memory + table + i * sizeof s, sizeof s);
        if (strcmp((const char *)m->memory + strings + s.st_name, name) == 0)
            return m->memory + s.st_value;
    }
    return NULL;
}

static uint32_t word(const uint8_t *at)
{
    uint32_t x;
    memcpy(&x, at, 4);
    return x;
}

/* User registers come in the order of the property bits. */
static int kernarg_register(unsigned properties)
{
    static const int before[] = {4, 2, 2}; /* private buffer, dispatch pointer, queue pointer */
    int at = 0;
    for (int i = 0; i < 3; i++)
        at += properties >> i & 1 ? before[i] : 0;
    return properties & PROPERTY_KERNARG ? at : -1;
}

int image_kernel(struct image *m, const char *name, struct kernel *out, char *error, size_t cap)
{
    char symbol[300];
    memset(out, 0, sizeof *out);
    snprintf(symbol, sizeof symbol, "%s.kd", name);
    const uint8_t *d = find_symbol(m, symbol);
    if (!d)
        return refuse(error, cap, "no such kernel");
    uint32_t rsrc1 = word(d + 48), rsrc2 = word(d + 52), properties = word(d + 56) & 0xffff;
    int64_t distance;
    memcpy(&distance, d + 16, 8);
    if ((rsrc1 >> MODE_SHIFT & MODE_BITS) != MODE_EXPECTED)
        return refuse(error, cap, "a floating-point mode that is not simulated");
    if (word(d + 56) >> 16)
        return refuse(error, cap, "preloaded parameters are not simulated");
    if (rsrc2 & GROUP_ID_OTHERS || !(properties & PROPERTY_WAVE32) != (m->program.gfx < 1000))
        return refuse(error, cap, "a grid of more dimensions, or another wave size");
    out->image = m;
    snprintf(out->name, sizeof out->name, "%s", name);
    out->launch = (struct launch){
        .entry = (uint64_t)(d - m->memory) + (uint64_t)distance,
        .shared_bytes = word(d),
        .scratch_bytes = word(d + 4),
        .user_sgprs = (int)(rsrc2 >> 1 & 31),
        .kernarg_at = kernarg_register(properties),
        .group_id = rsrc2 & GROUP_ID_X,
    };
    out->param_bytes = word(d + 8);
    return 0;
}
