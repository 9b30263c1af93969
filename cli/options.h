/* SPDX-License-Identifier: Apache-2.0 */
/*
** options.h - values of options that several commands take. What is none of them ends the process with status 2 and one line:
** "kvkiln COMMAND: --OPTION: 'VALUE': accepted ...".
*/
#ifndef KVKILN_CLI_OPTIONS_H
#define KVKILN_CLI_OPTIONS_H

#include "cli.h"

#include <argp.h>

#define OPTIONS_LAYOUTS "aos, soa, native"
#define OPTIONS_KINDS "store, decode, unified, dequant, merge, copy, convert"

/* Is `text` one of the words of "a, b, c"? */
int options_has(const char *words, const char *text);

/* `arg`, which is one of `words`, as options_has takes them. */
const char *options_word(const struct argp_state *state, const char *option, const char *arg, const char *words);

/* The value of --dtype. */
kvk_dtype options_dtype(const struct argp_state *state, const char *arg);

#endif
