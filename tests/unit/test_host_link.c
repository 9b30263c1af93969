/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_host_link.c - the linker of host images, on a relocatable made here byte by byte.
*/
#include "../../gen/host_link.h"
#include "../../runtime/host_abi.h"
#include "../../runtime/host_cpu.h"
#include "../../runtime/driver.h"

#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TEXT = 1, CONSTANTS, RELA, SYMBOLS, STRINGS, NAMES, UNWIND, NSECTIONS };
enum { LOCAL_TABLE = 1, ENTRY_SYMBOL, OTHER_SYMBOL, NSYMBOLS };

/* out[tid] = tid + table[0] + table[1]; params: {uint32_t *out}. */
static const unsigned char code[] = {
    0x8b, 0x07,                      /* mov (%rdi),%eax */
    0x89, 0xc1,                      /* mov %eax,%ecx */
    0x48, 0x8b, 0x16,                /* mov (%rsi),%rdx */
    0x03, 0x05, 0,    0,    0, 0,    /* add table(%rip),%eax */
    0x4c, 0x8b, 0x05, 0,    0, 0, 0, /* mov table@GOTPCREL(%rip),%r8 */
    0x41, 0x03, 0x40, 0x04,          /* add 4(%r8),%eax */
    0x89, 0x04, 0x8a,                /* mov %eax,(%rdx,%rcx,4) */
    0xc3,                            /* ret */
};

struct file {
    Elf64_Ehdr head;
    Elf64_Shdr sections[NSECTIONS];
    unsigned char text[64];
    uint32_t constants[4];
    Elf64_Rela rela[2];
    Elf64_Sym symbols[NSYMBOLS];
    char strings[64], names[80];
    unsigned char unwind[16];
};

static void section(struct file *f, int i, uint32_t name, uint32_t type, uint64_t flags,
                    size_t offset, size_t bytes)
{
    f->sections[i] = (Elf64_Shdr){.sh_name = name,
                                  .sh_type = type,
                                  .sh_flags = flags,
                                  .sh_offset = offset,
                                  .sh_size = bytes,
                                  .sh_addralign = 16};
}

static void make(struct file *f)
{
    memset(f, 0, sizeof *f);
    memcpy(f->head.e_ident, ELFMAG, SELFMAG);
    f->head.e_ident[EI_CLASS] = ELFCLASS64;
    f->head.e_ident[EI_DATA] = ELFDATA2LSB;
    f->head.e_type = ET_REL;
    f->head.e_machine = EM_X86_64;
    f->head.e_shoff = offsetof(struct file, sections);
    f->head.e_shentsize = sizeof(Elf64_Shdr);
    f->head.e_shnum = NSECTIONS;
    f->head.e_shstrndx = NAMES;
    memcpy(f->text, code, sizeof code);
    f->constants[0] = 1000;
    f->constants[1] = 70000;
    memcpy(f->strings, "\0table\0kernel\0memset", 21);
    memcpy(f->names, "\0.text\0.rodata\0.eh_frame\0.other", 32);
    section(f, TEXT, 1, SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, offsetof(struct file, text),
            sizeof code);
    section(f, CONSTANTS, 7, SHT_PROGBITS, SHF_ALLOC, offsetof(struct file, constants),
            sizeof f->constants);
    section(f, RELA, 25, SHT_RELA, SHF_INFO_LINK, offsetof(struct file, rela), sizeof f->rela);
    section(f, SYMBOLS, 25, SHT_SYMTAB, 0, offsetof(struct file, symbols), sizeof f->symbols);
    section(f, STRINGS, 25, SHT_STRTAB, 0, offsetof(struct file, strings), sizeof f->strings);
    section(f, NAMES, 25, SHT_STRTAB, 0, offsetof(struct file, names), sizeof f->names);
    section(f, UNWIND, 15, SHT_PROGBITS, SHF_ALLOC, offsetof(struct file, unwind),
            sizeof f->unwind);
    f->sections[CONSTANTS].sh_addralign = 64;
    f->sections[RELA].sh_link = SYMBOLS;
    f->sections[RELA].sh_info = TEXT;
    f->sections[SYMBOLS].sh_link = STRINGS;
    f->symbols[LOCAL_TABLE] = (Elf64_Sym){
        .st_name = 1, .st_info = ELF64_ST_INFO(STB_LOCAL, STT_OBJECT), .st_shndx = CONSTANTS};
    f->symbols[ENTRY_SYMBOL] =
        (Elf64_Sym){.st_name = 7, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_shndx = TEXT};
    f->symbols[OTHER_SYMBOL] =
        (Elf64_Sym){.st_name = 14, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_NOTYPE)};
    f->rela[0] = (Elf64_Rela){9, ELF64_R_INFO(LOCAL_TABLE, R_X86_64_PC32), -4};
    f->rela[1] = (Elf64_Rela){16, ELF64_R_INFO(LOCAL_TABLE, R_X86_64_REX_GOTPCRELX), -4};
}

static kvk_status link_bytes(const void *bytes, size_t n, void **image, size_t *image_bytes,
                             size_t *offset, kvk_error *err)
{
    const char *const names[] = {"kernel"};
    *image = NULL;
    kvk_status status = host_link(bytes, n, names, offset, 1, image, image_bytes, err);
    if (status) {
        assert_null(*image);
        assert_true(status == KVK_E_OBJECT || status == KVK_E_UNSUPPORTED);
        assert_int_not_equal(err->text[0], 0);
    }
    return status;
}

static void a_linked_kernel_runs_through_the_driver(void **state)
{
    (void)state;
    struct file f;
    make(&f);
    void *image, *device, *module;
    size_t bytes, offset;
    kvk_error err = {0};
    assert_int_equal(link_bytes(&f, sizeof f, &image, &bytes, &offset, &err), KVK_OK);
    assert_int_equal(offset, 0);
    if (host_cpu_level() < 2) {
        free(image);
        skip();
    }
    struct object object = {.manifest = "format host\ntarget x86-64-v2\n",
                            .manifest_bytes = 29,
                            .code = image,
                            .code_bytes = bytes};
    for (int mode = 0; mode < 3; mode++) {
        struct driver_device_info info;
        struct driver_entry entry;
        assert_int_equal(driver_host.open(mode, &device, &info, &err), KVK_OK);
        assert_int_equal(driver_host.load(device, &object, &module, &err), KVK_OK);
        assert_int_equal(driver_host.entry(device, module, "store kernel 64 1024 0", &entry, &err),
                         KVK_OK);
        void *out;
        assert_int_equal(driver_host.alloc(device, 64 * 4, &out, &err), KVK_OK);
        assert_int_equal(driver_host.launch(device, &entry, (struct driver_grid){.ctas = 3}, &out,
                                            sizeof out, NULL, &err),
                         KVK_OK);
        for (uint32_t i = 0; i < 64; i++)
            assert_int_equal(((uint32_t *)out)[i], i + 71000);
        driver_host.free(device, out);
        driver_host.unload(device, module);
        driver_host.close(device);
    }
    free(image);
}

static void entries_outside_the_code_are_refused(void **state)
{
    (void)state;
    void *device, *module;
    struct driver_device_info info;
    struct driver_entry entry;
    kvk_error err = {0};
    struct object object = {.manifest = "format host\ntarget x86-64-v2\n",
                            .manifest_bytes = 29,
                            .code = "\xc3",
                            .code_bytes = 1};
    if (host_cpu_level() < 2)
        skip();
    assert_int_equal(driver_host.open(0, &device, &info, &err), KVK_OK);
    assert_int_equal(driver_host.load(device, &object, &module, &err), KVK_OK);
    static const char *const lines[] = {"store kernel 64 0 1",
                                        "store kernel 64 0",
                                        "store kernel 0 0 0",
                                        "store kernel 2048 0 0",
                                        "",
                                        "store kernel x 0 0"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        assert_int_equal(driver_host.entry(device, module, lines[i], &entry, &err), KVK_E_OBJECT);
    driver_host.unload(device, module);
    object.manifest = "format ptx\ntarget sm_80\n";
    object.manifest_bytes = 24;
    assert_int_equal(driver_host.load(device, &object, &module, &err), KVK_E_OBJECT);
    driver_host.close(device);
    assert_int_equal(driver_host.open(3, &device, &info, &err), KVK_E_DEVICE);
}

/* On machines that this one is not. */
static void processors_that_cannot_run_it_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *target, *here;
        int level;
        kvk_status status;
        const char *text;
    } cases[] = {
        {"x86-64-v3", "x86-64-v4", 4, KVK_OK, ""},
        {"x86-64-v3", "x86-64-v3", 3, KVK_OK, ""},
        {"x86-64-v3", "x86-64-v2", 2, KVK_E_UNSUPPORTED,
         "target x86-64-v3: this processor runs x86-64-v2"},
        {"x86-64-v2", "x86-64", 1, KVK_E_UNSUPPORTED,
         "target x86-64-v2: this processor runs x86-64"},
        {"x86-64-v2", "aarch64", 0, KVK_E_UNSUPPORTED,
         "target x86-64-v2: this host is aarch64, for which there is no target yet"},
        {"sm_90a", "aarch64", 0, KVK_E_OBJECT, "target sm_90a: x86-64-v2"},
        {"x86-64-v5", "x86-64-v4", 4, KVK_E_OBJECT, "target x86-64-v5"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvk_error err = {0};
        assert_int_equal(host_cpu_check(cases[i].target, cases[i].level, cases[i].here, &err),
                         cases[i].status);
        if (!strstr(err.text, cases[i].text))
            fail_msg("%s: %s", cases[i].text, err.text);
    }
}

static void refuse_bytes(const void *f, size_t n, kvk_status want, const char *text)
{
    void *image;
    size_t bytes, offset;
    kvk_error err = {0};
    assert_int_equal(link_bytes(f, n, &image, &bytes, &offset, &err), want);
    if (!strstr(err.text, text))
        fail_msg("%s: %s", text, err.text);
}

static void refuse(const struct file *f, kvk_status want, const char *text)
{
    refuse_bytes(f, sizeof *f, want, text);
}

/* One section of more than the limit, and two that are so together; the file is zeros that nothing
** reads. */
static void huge_code_is_refused(void **state)
{
    (void)state;
    const size_t limit = 64u << 20, n = sizeof(struct file) + limit + 64;
    struct file *f = calloc(1, n);
    assert_non_null(f);
    for (int both = 0; both < 2; both++) {
        make(f);
        f->sections[TEXT].sh_size = both ? limit - 64 : limit + 1;
        f->sections[CONSTANTS].sh_size = 80;
        refuse_bytes(f, n, KVK_E_UNSUPPORTED, "more than 67108864 bytes of code");
    }
    free(f);
}

static void what_cannot_be_linked_is_named(void **state)
{
    (void)state;
    struct file f;
    make(&f);
    f.rela[0].r_info = ELF64_R_INFO(OTHER_SYMBOL, R_X86_64_PLT32);
    refuse(&f, KVK_E_UNSUPPORTED, "undefined symbol memset");
    make(&f);
    f.symbols[LOCAL_TABLE].st_shndx = STRINGS;
    refuse(&f, KVK_E_UNSUPPORTED, "symbol table lies in no section that is loaded");
    make(&f);
    f.symbols[LOCAL_TABLE].st_shndx = SHN_ABS;
    refuse(&f, KVK_E_UNSUPPORTED, "symbol table lies in no section that is loaded");
    make(&f);
    f.rela[0].r_info = ELF64_R_INFO(LOCAL_TABLE, R_X86_64_64);
    refuse(&f, KVK_E_UNSUPPORTED, "relocation type 1 in section .text");
    make(&f);
    f.text[14] = 0x89; /* no load: cannot be relaxed */
    refuse(&f, KVK_E_UNSUPPORTED, "relocation type 42");
    make(&f);
    f.sections[CONSTANTS].sh_flags |= SHF_WRITE;
    refuse(&f, KVK_E_UNSUPPORTED, "section .rodata: a kernel has no writable data");
    make(&f);
    f.sections[CONSTANTS].sh_type = SHT_NOBITS;
    refuse(&f, KVK_E_UNSUPPORTED, "section .rodata: type");
    make(&f);
    f.sections[CONSTANTS].sh_addralign = 8192;
    refuse(&f, KVK_E_UNSUPPORTED, "alignment 8192");
    make(&f);
    f.rela[1].r_offset = sizeof code - 3;
    refuse(&f, KVK_E_OBJECT, "outside section .text");
    make(&f);
    f.rela[1].r_addend = (int64_t)1 << 40;
    refuse(&f, KVK_E_OBJECT, "does not fit");
    make(&f);
    f.rela[1].r_info = ELF64_R_INFO(900, R_X86_64_PC32);
    refuse(&f, KVK_E_OBJECT, "symbol 900");
    make(&f);
    f.symbols[ENTRY_SYMBOL].st_name = 1;
    refuse(&f, KVK_E_OBJECT, "symbol kernel");
    make(&f);
    f.symbols[ENTRY_SYMBOL].st_shndx = CONSTANTS;
    refuse(&f, KVK_E_OBJECT, "symbol kernel is no function");
    make(&f);
    f.sections[SYMBOLS].sh_type = SHT_PROGBITS;
    refuse(&f, KVK_E_OBJECT, "no symbol table");
    make(&f);
    f.sections[RELA].sh_type = SHT_REL;
    refuse(&f, KVK_E_UNSUPPORTED, "relocations without addends");
    make(&f);
    f.head.e_machine = EM_AARCH64;
    refuse(&f, KVK_E_OBJECT, "not a relocatable for x86-64");
}

/* The copy ends where its memory ends, so that sanitizers see a read past it. */
static void no_truncation_crashes(void **state)
{
    (void)state;
    struct file f;
    make(&f);
    for (size_t n = 0; n < sizeof f; n++) {
        unsigned char *copy = malloc(n ? n : 1);
        memcpy(copy, &f, n);
        void *image;
        size_t bytes, offset;
        kvk_error err = {0};
        if (!link_bytes(copy, n, &image, &bytes, &offset, &err))
            free(image);
        free(copy);
    }
}

static void no_flipped_byte_crashes(void **state)
{
    (void)state;
    struct file f;
    static const unsigned char flips[] = {0x01, 0x80, 0xff, 0x10};
    for (size_t at = 0; at < sizeof f; at++)
        for (size_t i = 0; i < sizeof flips; i++) {
            make(&f);
            ((unsigned char *)&f)[at] ^= flips[i];
            void *image;
            size_t bytes, offset = 0;
            kvk_error err = {0};
            if (!link_bytes(&f, sizeof f, &image, &bytes, &offset, &err)) {
                assert_true(offset < bytes);
                free(image);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_linked_kernel_runs_through_the_driver),
        cmocka_unit_test(entries_outside_the_code_are_refused),
        cmocka_unit_test(processors_that_cannot_run_it_are_named),
        cmocka_unit_test(huge_code_is_refused),
        cmocka_unit_test(what_cannot_be_linked_is_named),
        cmocka_unit_test(no_truncation_crashes),
        cmocka_unit_test(no_flipped_byte_crashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
