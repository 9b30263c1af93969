/* SPDX-License-Identifier: Apache-2.0 */
/*
** options.h - values of options that several commands take. What is none of them ends the process with status 2 and a line
** "kvkiln COMMAND: --OPTION: 'VALUE': accepted ...", behind which argp tells of --help in another.
*/
#ifndef KVKILN_CLI_OPTIONS_H
#define KVKILN_CLI_OPTIONS_H

#include "cli.h"

#include <argp.h>

#define OPTIONS_LAYOUTS "aos, soa, native"
#define OPTIONS_KINDS "store, decode, unified, dequant, merge, copy, convert"

/* The ranges of a kernel's shape, as gen/spec.c has them: tests/cli/test_usage.py compares. */
enum { OPTIONS_HEAD_LEAST = 16, OPTIONS_HEAD_MOST = 1024, OPTIONS_GQA_MOST = 128, OPTIONS_PAGE_MOST = 4096 };

/* A whole number of low to high. */
void options_number(const struct argp_state *state, const char *option, const char *arg, long low, long high, long *out);

/* Is `text` one of the words of "a, b, c"? */
int options_has(const char *words, const char *text);

/* `arg`, which is one of `words`, as options_has takes them. */
const char *options_word(const struct argp_state *state, const char *option, const char *arg, const char *words);

/* The value of --dtype. */
kvk_dtype options_dtype(const struct argp_state *state, const char *arg);

#endif
