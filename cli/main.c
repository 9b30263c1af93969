/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - `kvkiln COMMAND ...`: finds the command. */
#include "cli.h"
#include "generator.h"

#include <argp.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *what;
} commands[] = {
    {"presets", cmd_presets, "lists the cache formats there are"},
    {"doctor", cmd_doctor,
     "shows drivers, GPUs, assembler and cache of this machine, and what is missing for what"},
    {"explain", cmd_explain, "tells the plan of a kernel, and why it is so"},
    {"build", cmd_build, "compiles kernels ahead of time"},
    {"pack", cmd_pack, "lists, verifies, merges, extracts and compares packs of kernels"},
    {"cache", cmd_cache, "shows the cache of compiled kernels, verifies it and keeps it small"},
    {"check", cmd_check, "compares a device's kernels with sample files"},
    {"convert", cmd_convert, "writes a sample file's cache in another layout"},
    {"demo", cmd_demo, "does the main job on the sample cases that come with kvkiln"},
    {"bench", cmd_bench, "times kernels"},
    {"tune", cmd_tune, "times plans and keeps the best as data"},
    {"quality", cmd_quality, "measures what cache formats lose on given keys and values"},
};
enum { COMMANDS = sizeof commands / sizeof *commands };
enum { KEPT_BYTES = 1 << 30, PAD_BYTES = 64 << 20 };

static void help(FILE *to)
{
    fprintf(to, "Usage: kvkiln COMMAND [OPTION...]\nQuantised KV caches by generated kernels.\n\n");
    for (int i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-9s %s\n", commands[i].name, commands[i].what);
    fprintf(
        to,
        "\nA SPEC is a preset's name or the path of a .lua file. A DEVICE is auto (the first "
        "usable of\n"
        "CUDA, HIP and host), host, cuda:N or hip:N. Results go to stdout, messages to stderr.\n\n"
        "Exit status:\n"
        "  0  done; all that was compared passed\n"
        "  1  a comparison failed, or a kernel could not be made\n"
        "  2  usage, a file or spec that cannot be read, nothing to compare\n"
        "  3  the named device (or any device) cannot be used\n\n"
        "Environment:\n"
        "  KVKILN_CACHE_DIR  folder of compiled kernels; empty: none (else "
        "$XDG_CACHE_HOME/kvkiln,\n"
        "                    ~/.cache/kvkiln)\n"
        "  KVKILN_SPECS      folders of specs, colon-separated, looked in before those that ship; "
        "one that\n"
        "                    does not exist is passed over, where --specs DIR must exist\n"
        "  KVKILN_PACKS      packs of kernels, colon-separated, looked in before the cache\n"
        "  KVKILN_OVERLAP    1: CUDA kernels of a stream may overlap; 2: not (the default)\n"
        "  KVKILN_GENERATOR  path of libkvkiln-gen.so (else the one beside libkvkiln.so)\n\n"
        "`kvkiln COMMAND --help` tells more; `kvkiln --version` prints the version.\n");
}

/* A result that could not be written is no result. */
static int finish(int code)
{
    static int told;
    if (told || (!fflush(stdout) && !ferror(stdout)))
        return code;
    told = 1;
    cli_message("writing to standard output failed");
    return code ? code : CLI_USAGE;
}

/* argp ends the process after a command's --help. */
static void at_exit(void)
{
    if (finish(CLI_OK))
        _exit(CLI_USAGE);
}

/* Compilers free and ask again for some ten megabytes a kernel: given back to the system each time,
** they cost 10 to 15 of 175 ms. */
static void keep_memory(void)
{
#ifdef M_TRIM_THRESHOLD
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
    mallopt(M_MMAP_THRESHOLD, KEPT_BYTES);
    mallopt(M_TOP_PAD, PAD_BYTES);
#endif
}

int main(int argc, char **argv)
{
    keep_memory();
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of write() */
    atexit(at_exit);
    argp_err_exit_status = CLI_USAGE;
    generator_register();
    if (argc < 2) {
        help(stderr);
        return CLI_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        help(stdout);
        return finish(CLI_OK);
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
        printf("kvkiln %s\n", kvk_version());
        return finish(CLI_OK);
    }
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(argv[1], commands[i].name)) {
            char *name = cli_format("kvkiln %s", argv[1]);
            argv[1] = name; /* argp shows argv[0] */
            return finish(commands[i].run(argc - 1, argv + 1));
        }
    cli_message("'%s' is no command; see kvkiln --help", argv[1]);
    return CLI_USAGE;
}
