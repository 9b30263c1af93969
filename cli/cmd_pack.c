/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_pack.c - `kvkiln pack`: what can be done with packs once `kvkiln build --pack` has made them. */
#include "cli.h"
#include "pack_elf.h"
#include "pack_tools.h"
#include "paths.h"

#include "build_id.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPT_CODE = 0x100, OPT_SYMBOL, OPT_MACHINE };
enum { MANY = 4096 };

struct options {
    char **words; /* the sub-command, then files */
    int nwords, json;
    const char *out, *symbol;
    int machine;
    struct pack_extract extract;
};

static void print_head(const struct open_pack *open)
{
    const struct pack *p = &open->pack;
    printf("%s: %u rows, %zu bytes, generator %s, argument layout %u%s\n", open->file, p->rows,
           p->size, p->generator, p->abi,
           strcmp(p->generator, KVK_BUILD_ID) ? " (not of this build)" : "");
    for (const char *line = p->manifest; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (!strncmp(line, "assembler ", 10) || !strncmp(line, "target ", 7) ||
            !strncmp(line, "specs ", 6))
            printf("  %.*s\n", (int)strcspn(line, "\n"), line);
}

static void list(const struct open_pack *open, json_t *packs)
{
    const struct pack *p = &open->pack;
    uint32_t *order = pack_sorted(p);
    json_t *rows = json_array();
    if (!packs)
        print_head(open);
    for (uint32_t i = 0; i < p->rows; i++) {
        struct pack_row row;
        pack_row(p, order[i], &row);
        const char *format = pack_format_name(row.format);
        if (!packs)
            printf("%-64s %-10s %-6s %8llu %8llu  %s\n", row.name, *row.target ? row.target : "-",
                   format, (unsigned long long)row.stored_bytes, (unsigned long long)row.raw_bytes,
                   row.signature);
        json_array_append_new(rows,
                              json_pack("{s:s, s:s, s:s, s:s, s:I, s:I}", "name", row.name,
                                        "target", row.target, "format", format, "signature",
                                        row.signature, "stored_bytes", (json_int_t)row.stored_bytes,
                                        "raw_bytes", (json_int_t)row.raw_bytes));
    }
    if (packs)
        json_array_append_new(
            packs, json_pack("{s:s, s:s, s:i, s:i, s:b, s:I, s:s, s:O}", "file", open->file,
                             "generator", p->generator, "abi", (int)p->abi, "object",
                             (int)p->object, "this_build", !strcmp(p->generator, KVK_BUILD_ID),
                             "bytes", (json_int_t)p->size, "manifest", p->manifest, "rows", rows));
    json_decref(rows);
    free(order);
}

static int run_list(struct options *o, struct open_pack *packs, int count, json_t *root)
{
    json_t *array = o->json ? json_array() : NULL;
    for (int i = 0; i < count; i++)
        list(&packs[i], array);
    if (root)
        json_object_set_new(root, "packs", array);
    return CLI_OK;
}

static int run_verify(struct options *o, struct open_pack *packs, int count, json_t *root)
{
    json_t *array = json_array();
    int bad = 0;
    for (int i = 0; i < count; i++) {
        json_t *faults = json_array();
        int n = pack_verify(&packs[i], faults);
        bad += n != 0;
        if (!o->json)
            printf("%s: %u rows, %s\n", packs[i].file, packs[i].pack.rows, n ? "DAMAGED" : "ok");
        json_array_append_new(array, json_pack("{s:s, s:i, s:o}", "file", packs[i].file, "rows",
                                               (int)packs[i].pack.rows, "faults", faults));
    }
    if (root)
        json_object_set(root, "packs", array);
    json_decref(array);
    return bad ? CLI_FAILED : CLI_OK;
}

static int run_diff(struct options *o, struct open_pack *packs, int count, json_t *root)
{
    (void)count;
    json_t *array = o->json ? json_array() : NULL;
    int code = pack_diff(&packs[0], &packs[1], array) ? CLI_FAILED : CLI_OK;
    if (root)
        json_object_set_new(root, "differences", array);
    return code;
}

static int run_merge(struct options *o, struct open_pack *packs, int count, json_t *root)
{
    (void)root;
    return pack_merge(packs, count, o->out);
}

static int run_extract(struct options *o, struct open_pack *packs, int count, json_t *root)
{
    (void)count, (void)root;
    o->extract.dir = o->out;
    return pack_extract(&packs[0], &o->extract);
}

static int run_object(struct options *o, struct open_pack *packs, int count, json_t *root)
{
    (void)count, (void)root;
    return pack_object_file(&packs[0], o->out, o->symbol, o->machine);
}

static const struct command {
    const char *name;
    int least, most; /* files */
    int out, json;   /* takes --output, --json */
    int whole;       /* takes packs without a fault only; the others look at rows one by one */
    int (*run)(struct options *o, struct open_pack *packs, int count, json_t *root);
} commands[] = {
    {"list", 1, MANY, 0, 1, 0, run_list},   {"verify", 1, MANY, 0, 1, 0, run_verify},
    {"merge", 1, MANY, 1, 0, 1, run_merge}, {"extract", 1, 1, 1, 0, 0, run_extract},
    {"diff", 2, 2, 0, 1, 1, run_diff},      {"object", 1, 1, 1, 0, 1, run_object},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static const struct command *find_command(const char *name)
{
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(commands[i].name, name))
            return &commands[i];
    return NULL;
}

static void check_use(struct argp_state *state, const struct options *o)
{
    const struct command *c = o->nwords ? find_command(o->words[0]) : NULL;
    int files = o->nwords - 1, extract = c && c->run == run_extract;
    if (!c)
        argp_error(state, "%s%s%s: accepted list, verify, merge, extract, diff, object",
                   o->nwords ? "'" : "no command", o->nwords ? o->words[0] : "",
                   o->nwords ? "' is no command" : " given");
    else if (files < c->least || files > c->most)
        argp_error(state, "%s takes %s, %d given", c->name,
                   c->most == 1   ? "one FILE"
                   : c->most == 2 ? "two FILEs"
                                  : "one FILE or more",
                   files);
    else if (!o->out != !c->out)
        argp_error(state, c->out ? "%s needs --output" : "%s takes no --output", c->name);
    else if (o->json && !c->json)
        argp_error(state, "%s takes no --json", c->name);
    else if (!extract && (o->extract.code || o->extract.target || o->extract.name))
        argp_error(state, "%s takes none of --code, --target, --name", c->name);
    else if (c->run != run_object && (o->symbol || o->machine))
        argp_error(state, "%s takes neither --symbol nor --machine", c->name);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'j': o->json = 1; return 0;
    case 'o': o->out = arg; return 0;
    case 't': o->extract.target = arg; return 0;
    case 'n': o->extract.name = arg; return 0;
    case OPT_CODE: o->extract.code = 1; return 0;
    case OPT_SYMBOL: o->symbol = arg; return 0;
    case OPT_MACHINE:
        o->machine = !strcmp(arg, "x86-64")    ? PACK_ELF_X86_64
                     : !strcmp(arg, "aarch64") ? PACK_ELF_AARCH64
                                               : 0;
        if (!o->machine)
            argp_error(state, "--machine: '%s': accepted x86-64, aarch64", arg);
        return 0;
    case ARGP_KEY_ARGS:
        o->words = state->argv + state->next;
        o->nwords = state->argc - state->next;
        return 0;
    case ARGP_KEY_END: check_use(state, o); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option pack_options[] = {
    {"json", 'j', 0, 0, "list, verify, diff: results as JSON", 0},
    {"output", 'o', "PATH", 0, "merge, object: the file to write; extract: the folder", 0},
    {"code", OPT_CODE, 0, 0, "extract: cubin, PTX, HSACO or host code instead of sealed objects",
     0},
    {"target", 't', "T", 0, "extract: only of this target", 0},
    {"name", 'n', "PATTERN", 0, "extract: only kernels of such names ('decode.*')", 0},
    {"symbol", OPT_SYMBOL, "NAME", 0,
     "object: of the bytes (default kvk_pack_ and the file's name); their number is NAME_size", 0},
    {"machine", OPT_MACHINE, "M", 0, "object: x86-64 or aarch64 (default: of this build)", 0},
    {0},
};

static int output_ready(const struct command *command, const struct options *o)
{
    if (!o->out)
        return 1;
    return command->run == run_extract ? paths_make_folder(o->out) : paths_make_ready(o->out);
}

static int are_whole(const struct open_pack *packs, int count)
{
    int faults = 0;
    for (int i = 0; i < count; i++)
        faults += pack_verify(&packs[i], NULL);
    return !faults;
}

static int run_files(const struct command *command, struct options *o)
{
    int count = o->nwords - 1, opened = 0, code = CLI_OK;
    struct open_pack *packs = cli_alloc((size_t)count, sizeof *packs);
    for (; opened < count && code == CLI_OK; opened++) {
        kvk_error err = {0};
        packs[opened].file = o->words[1 + opened];
        if (pack_map(packs[opened].file, &packs[opened].pack, &err)) {
            cli_message("%s", err.text);
            code =
                err.status == KVK_E_OBJECT && command->run == run_verify ? CLI_FAILED : CLI_USAGE;
        }
    }
    if (code == CLI_OK && !output_ready(command, o))
        code = CLI_USAGE;
    if (code == CLI_OK && command->whole && !are_whole(packs, count))
        code = CLI_FAILED;
    if (code == CLI_OK) {
        json_t *root = o->json ? json_pack("{s:s}", "version", kvk_version()) : NULL;
        code = command->run(o, packs, count, root);
        if (root) {
            json_dumpf(root, stdout, JSON_INDENT(2));
            printf("\n");
        }
        json_decref(root);
    }
    for (int i = 0; i < opened; i++)
        pack_close(&packs[i].pack);
    free(packs);
    return code;
}

int cmd_pack(int argc, char **argv)
{
    static const struct argp argp = {
        pack_options,
        parse,
        "list FILE...\nverify FILE...\nmerge -o OUT FILE...\nextract -o DIR FILE\ndiff FILE "
        "FILE\nobject -o OUT.o FILE",
        "Lists, verifies, merges, takes apart and compares packs of kernels, or makes an object "
        "file of one to link into a program. `kvkiln build --pack` makes packs.\vExit status: 0; 1 "
        "a pack is damaged (all but list), packs differ (diff) or contradict each other (merge); 2 "
        "usage, "
        "or a file that cannot be read.",
        0,
        0,
        0};
    struct options o = {0};
    argp_parse(&argp, argc, argv, 0, 0, &o);
    if (!o.machine)
#if defined(__aarch64__)
        o.machine = PACK_ELF_AARCH64;
#else
        o.machine = PACK_ELF_X86_64;
#endif
    return run_files(find_command(o.words[0]), &o);
}
