/* SPDX-License-Identifier: Apache-2.0 */
/*
** cli.h - what the commands share: exit codes, memory, messages.
**
** Results go to stdout, messages to stderr. A command is one function `int cmd_NAME(int argc, char
** **argv)` that returns an exit code; argv[0] is "kvkiln NAME".
*/
#ifndef KVKILN_CLI_H
#define KVKILN_CLI_H

#include "../runtime/kvkiln.h"

#include <stddef.h>

enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1, /* a comparison, or a kernel that could not be made */
    CLI_USAGE = 2,  /* usage, or input that cannot be read */
    CLI_DEVICE = 3  /* the device is unusable */
};

int cmd_presets(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_build(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_convert(int argc, char **argv);
int cmd_demo(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_quality(int argc, char **argv);
int cmd_tune(int argc, char **argv);
int cmd_pack(int argc, char **argv);
int cmd_cache(int argc, char **argv);

/* Zeroed memory; ends the process when there is none (the tool can then do nothing useful). */
void *cli_alloc(size_t count, size_t size);
char *cli_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One line on stderr: "kvkiln: ...". */
void cli_message(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same for a failed call: what, status name and the error's text. */
void cli_error(const char *what, const kvk_error *err);

/* Parses a whole decimal number inside [low, high]; 0 when `text` is none. */
int cli_number(const char *text, long low, long high, long *out);

/* Splits "a,b,c" in place: returns the number of items, at
 * most `cap`, or -1 (an empty item, or too many). */
int cli_split(char *text, char **items, int cap);

/* KVK_FLOAT16, KVK_BFLOAT16, or KVK_DTYPE_DEFAULT for an unknown name. Accepts "fp16", "float16",
 * "f16", "bf16", "bfloat16". */
kvk_dtype cli_dtype(const char *name);
const char *cli_dtype_name(kvk_dtype dtype);

/* What a failed call means for the process. */
enum cli_exit cli_exit_of(kvk_status status);

/* The one to end with: a comparison that failed says most, then a device that broke
 * down, then input that could not be read. */
enum cli_exit cli_exit_worse(enum cli_exit a, enum cli_exit b);

/* Milliseconds of the monotonic clock. */
double cli_now_ms(void);

#endif
