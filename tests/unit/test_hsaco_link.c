/* SPDX-License-Identifier: Apache-2.0 */
/*
** The linker for AMD code objects: what it writes is what a loader looks for, equals LLVM's linker in all that a loader
** or a disassembler sees (when that linker is installed), and no damaged input makes it read or write outside.
*/
#include <llvm-c/Core.h> /* first: its parameters are named like the builder's macro */

#include "gen/hsaco_link.h"
#include "gen/kb_internal.h"
#include "gen/lower.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const targets[] = {"gfx942", "gfx950", "gfx1100", "gfx1201"};
enum { NTARGETS = sizeof targets / sizeof *targets };

/* Looks a value up in a table and passes it through shared memory: a relocation and a zero-sized shared block. */
static void kernel(struct kb *k, const char *symbol, const char *abi)
{
    static const int words[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
    kb_entry_begin(k, symbol, abi, 128);
    val table = kb_table(k, "words", words, sizeof words, 16);
    val shared = kb_shared(k, 128 * 4, 16);
    val at = kb_shli(k, kb_andi(k, kb_tid(k), 15), 2);
    val word = kb_load(k, KB_I32, kb_offset(k, table, at), 4);
    kb_store(k, word, kb_offset(k, shared, kb_shli(k, kb_tid(k), 2)), 4);
    kb_barrier(k);
    val back = kb_xor(k, kb_tid(k), kb_i32(k, 127));
    val other = kb_load(k, KB_I32, kb_offset(k, shared, kb_shli(k, back, 2)), 4);
    kb_store(k, other, kb_offset(k, kb_param(k, "out"), kb_shli(k, kb_tid(k), 2)), 4);
    kb_entry_end(k);
}

static void *relocatable(const char *target_name, size_t *bytes)
{
    kvk_error err = {0};
    struct lower *l = NULL;
    void *object = NULL;
    const struct target *target = target_find(target_name);
    assert_int_equal(lower_open(target, "test", false, &l, &err), KVK_OK);
    struct plan *plan = calloc(1, sizeof *plan);
    struct kb k;
    kb_open(&k, lower_context(l), lower_module(l), target, plan, &err);
    kernel(&k, "first", "decode");
    kernel(&k, "second", "reduce");
    assert_string_equal(err.text, "");
    kb_close(&k);
    assert_int_equal(lower_verify(l, &err), KVK_OK);
    assert_int_equal(lower_optimise(l, &err), KVK_OK);
    assert_int_equal(lower_emit(l, 1, &object, bytes, &err), KVK_OK);
    lower_close(l);
    free(plan);
    return object;
}

/* ---- what a loader sees ---- */

static const Elf64_Dyn *dynamic_entry(const unsigned char *image, int64_t tag)
{
    const Elf64_Ehdr *head = (const void *)image;
    const Elf64_Phdr *p = (const void *)(image + head->e_phoff);
    for (int i = 0; i < head->e_phnum; i++)
        if (p[i].p_type == PT_DYNAMIC)
            for (const Elf64_Dyn *d = (const void *)(image + p[i].p_offset); d->d_tag != DT_NULL;
                 d++)
                if (d->d_tag == tag)
                    return d;
    return NULL;
}

static const void *dynamic_table(const unsigned char *image, int64_t tag)
{
    const Elf64_Dyn *d = dynamic_entry(image, tag);
    assert_non_null(d);
    return image + d->d_un.d_ptr; /* addresses of the first segment are file offsets */
}

/* Through DT_HASH, as the HSA loader does. */
static const Elf64_Sym *find_symbol(const unsigned char *image, const char *name)
{
    const uint32_t *hash = dynamic_table(image, DT_HASH);
    const Elf64_Sym *symbols = dynamic_table(image, DT_SYMTAB);
    const char *names = dynamic_table(image, DT_STRTAB);
    unsigned long h = 0;
    for (const char *c = name; *c; c++) {
        h = (h << 4) + (unsigned char)*c;
        unsigned long top = h & 0xf0000000UL;
        h = (h ^ top >> 24) & ~top & 0xffffffffUL;
    }
    for (uint32_t i = hash[2 + h % hash[0]]; i; i = hash[2 + hash[0] + i])
        if (!strcmp(names + symbols[i].st_name, name))
            return &symbols[i];
    return NULL;
}

static void symbols_are_found_by_hash(void **state)
{
    (void)state;
    static const char *const names[] = {"first", "first.kd", "second", "second.kd"};
    for (int t = 0; t < NTARGETS; t++) {
        size_t bytes, size;
        void *object = relocatable(targets[t], &bytes), *image;
        kvk_error err = {0};
        assert_int_equal(hsaco_link(object, bytes, &image, &size, &err), KVK_OK);
        for (int i = 0; i < 4; i++) {
            const Elf64_Sym *s = find_symbol(image, names[i]);
            assert_non_null(s);
            if (i & 1)
                assert_int_equal(s->st_size, 64); /* a kernel descriptor */
        }
        assert_null(find_symbol(image, "third"));
        free(image);
        free(object);
    }
}

/* Bytes 16-23 of a descriptor: distance from it to the code. */
static void descriptors_point_at_their_code(void **state)
{
    (void)state;
    size_t bytes, size;
    void *object = relocatable("gfx942", &bytes), *image;
    assert_int_equal(hsaco_link(object, bytes, &image, &size, NULL), KVK_OK);
    static const char *const names[] = {"first", "second"};
    for (int i = 0; i < 2; i++) {
        char kd[16];
        snprintf(kd, sizeof kd, "%s.kd", names[i]);
        const Elf64_Sym *code = find_symbol(image, names[i]), *descriptor = find_symbol(image, kd);
        int64_t distance;
        memcpy(&distance, (char *)image + descriptor->st_value + 16, 8);
        assert_int_equal(descriptor->st_value + (uint64_t)distance, code->st_value);
    }
    free(image);
    free(object);
}

static void equal_input_gives_equal_output(void **state)
{
    (void)state;
    size_t bytes, a_size, b_size;
    void *object = relocatable("gfx1100", &bytes), *a, *b;
    unsigned char *shifted = malloc(bytes + 1); /* at an odd address */
    memcpy(shifted + 1, object, bytes);
    assert_int_equal(hsaco_link(object, bytes, &a, &a_size, NULL), KVK_OK);
    assert_int_equal(hsaco_link(shifted + 1, bytes, &b, &b_size, NULL), KVK_OK);
    assert_int_equal(a_size, b_size);
    assert_memory_equal(a, b, a_size);
    free(shifted);
    free(a);
    free(b);
    free(object);
}

/* ---- against LLVM's linker ---- */

static char *output_of(const char *format, ...)
{
    char command[512];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    char *text = calloc(1, 1 << 20);
    size_t n = fread(text, 1, (1 << 20) - 1, pipe);
    text[n] = 0;
    assert_int_equal(pclose(pipe), 0);
    return text;
}

static void write_file(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

/* Everything but section headers, which a loader does not read and which lld adds its own to. */
static char *facts(const char *dir, const char *file, const char *target)
{
    return output_of("cd %s && cp %s it && llvm-objdump-22 -d --mcpu=%s it && "
                     "llvm-readobj-22 --notes -l --dyn-syms --dynamic-table --gnu-hash-table "
                     "--hash-table -h it | "
                     "grep -v -e SectionHeader -e StringTableSectionIndex",
                     dir, file, target);
}

static void agrees_with_lld(void **state)
{
    (void)state;
    if (system("command -v ld.lld-22 llvm-objdump-22 llvm-readobj-22 >/dev/null"))
        skip();
    char dir[] = "/tmp/hsaco.XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    for (int t = 0; t < NTARGETS; t++) {
        size_t bytes, size;
        void *object = relocatable(targets[t], &bytes), *image;
        assert_int_equal(hsaco_link(object, bytes, &image, &size, NULL), KVK_OK);
        snprintf(path, sizeof path, "%s/in.o", dir);
        write_file(path, object, bytes);
        snprintf(path, sizeof path, "%s/ours", dir);
        write_file(path, image, size);
        free(output_of("cd %s && ld.lld-22 -shared --no-undefined -o theirs in.o", dir));
        char *ours = facts(dir, "ours", targets[t]), *theirs = facts(dir, "theirs", targets[t]);
        assert_non_null(strstr(ours, "s_endpgm"));
        assert_string_equal(ours, theirs);
        free(ours);
        free(theirs);
        free(image);
        free(object);
    }
    free(output_of("rm -r %s", dir));
}

/* ---- damaged input ---- */

/* Any status, but an error has a text and no output. */
static kvk_status attempt(const void *data, size_t bytes)
{
    void *image;
    size_t size;
    kvk_error err = {0};
    kvk_status status = hsaco_link(data, bytes, &image, &size, &err);
    if (status) {
        assert_true(err.text[0] != 0);
        assert_null(image);
    }
    free(image);
    return status;
}

/* Each time in a block of exactly that size, so that a sanitizer sees any read past the end. */
static kvk_status attempt_copy(const void *data, size_t bytes)
{
    void *copy = malloc(bytes ? bytes : 1);
    memcpy(copy, data, bytes);
    kvk_status status = attempt(copy, bytes);
    free(copy);
    return status;
}

static void truncated_input_is_refused(void **state)
{
    (void)state;
    size_t bytes;
    void *object = relocatable("gfx942", &bytes);
    for (size_t n = 0; n < bytes; n++) /* the section headers come last */
        assert_int_equal(attempt_copy(object, n), KVK_E_OBJECT);
    free(object);
}

static void no_byte_matters_too_much(void **state)
{
    (void)state;
    static const unsigned char values[] = {0, 1, 0x7f, 0x80, 0xff};
    size_t bytes, refused = 0;
    unsigned char *object = relocatable("gfx1201", &bytes), *copy = malloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        for (size_t v = 0; v < sizeof values; v++) {
            memcpy(copy, object, bytes);
            copy[i] = values[v];
            refused += attempt(copy, bytes) != KVK_OK;
        }
    assert_true(refused > 100);
    free(copy);
    free(object);
}

static void other_files_are_refused(void **state)
{
    (void)state;
    size_t bytes, size;
    void *object = relocatable("gfx942", &bytes), *image;
    assert_int_equal(hsaco_link(object, bytes, &image, &size, NULL), KVK_OK);
    assert_int_equal(attempt(image, size), KVK_E_OBJECT); /* linked already */
    assert_int_equal(attempt("#!/bin/sh\n", 10), KVK_E_OBJECT);
    static const unsigned char zeros[4096];
    assert_int_equal(attempt(zeros, sizeof zeros), KVK_E_OBJECT);
    free(image);
    free(object);
}

/* ---- refusals of what LLVM could have made ---- */

/* The parts of a relocatable that the tests change. */
struct parts {
    unsigned char *object;
    size_t bytes, sections;
    Elf64_Shdr *section, *code, *rela; /* all, the code, the relocations of code */
    Elf64_Sym *symbol;                 /* of the first relocation */
    Elf64_Rela *first;
};

static void take_apart(struct parts *p)
{
    *p = (struct parts){0};
    p->object = relocatable("gfx942", &p->bytes);
    const Elf64_Ehdr *head = (const void *)p->object;
    p->section = (void *)(p->object + head->e_shoff);
    p->sections = head->e_shnum;
    for (size_t i = 0; i < p->sections; i++)
        if (p->section[i].sh_flags & SHF_EXECINSTR && p->section[i].sh_size)
            p->code = &p->section[i];
    assert_non_null(p->code);
    for (size_t i = 0; i < p->sections; i++)
        if (p->section[i].sh_type == SHT_RELA && &p->section[p->section[i].sh_info] == p->code)
            p->rela = &p->section[i];
    assert_non_null(p->rela);
    p->first = (void *)(p->object + p->rela->sh_offset);
    p->symbol = (void *)(p->object + p->section[p->rela->sh_link].sh_offset);
    p->symbol += ELF64_R_SYM(p->first->r_info);
}

static void refuse_parts(struct parts *p, const char *text)
{
    void *image;
    size_t size;
    kvk_error err = {0};
    assert_int_equal(hsaco_link(p->object, p->bytes, &image, &size, &err), KVK_E_UNSUPPORTED);
    if (!strstr(err.text, text))
        fail_msg("%s: %s", text, err.text);
    assert_null(image);
    free(p->object);
}

static void what_cannot_be_linked_is_named(void **state)
{
    (void)state;
    struct parts p;
    take_apart(&p);
    p.code->sh_flags |= SHF_WRITE;
    refuse_parts(&p, ": writable or zero-filled data (type 1)");
    take_apart(&p);
    p.code->sh_type = SHT_NOBITS;
    refuse_parts(&p, ": writable or zero-filled data (type 8)");
    take_apart(&p);
    p.rela->sh_type = SHT_REL;
    refuse_parts(&p, ": relocations without addends");
    take_apart(&p);
    p.symbol->st_shndx = SHN_COMMON;
    refuse_parts(&p, " in reserved section 0xfff2");
    take_apart(&p);
    p.first->r_info = ELF64_R_INFO(ELF64_R_SYM(p.first->r_info), 6); /* R_AMDGPU_ABS32 */
    refuse_parts(&p, "relocation of type 6");
    take_apart(&p);
    p.symbol->st_shndx = SHN_ABS;
    refuse_parts(&p, "relocation against a symbol without a place in the file: ");
    take_apart(&p);
    p.symbol->st_shndx = (Elf64_Half)(p.rela - p.section); /* not loaded */
    p.symbol->st_value = p.symbol->st_size = 0;
    refuse_parts(&p, "relocation against a symbol without a place in the file: ");
}

static void undefined_symbols_are_named(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *object = relocatable("gfx942", &bytes);
    const Elf64_Ehdr *head = (const void *)object;
    const Elf64_Shdr *s = (const void *)(object + head->e_shoff);
    for (int i = 0; i < head->e_shnum; i++)
        if (s[i].sh_type == SHT_SYMTAB) {
            Elf64_Sym *symbol = (void *)(object + s[i].sh_offset);
            for (size_t n = 1; n < s[i].sh_size / sizeof *symbol; n++)
                if (ELF64_ST_TYPE(symbol[n].st_info) == STT_FUNC)
                    symbol[n].st_shndx = SHN_UNDEF;
        }
    void *image;
    size_t size;
    kvk_error err = {0};
    assert_int_equal(hsaco_link(object, bytes, &image, &size, &err), KVK_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "undefined symbol first"));
    free(object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(symbols_are_found_by_hash),
        cmocka_unit_test(descriptors_point_at_their_code),
        cmocka_unit_test(equal_input_gives_equal_output),
        cmocka_unit_test(agrees_with_lld),
        cmocka_unit_test(truncated_input_is_refused),
        cmocka_unit_test(no_byte_matters_too_much),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(what_cannot_be_linked_is_named),
        cmocka_unit_test(undefined_symbols_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
