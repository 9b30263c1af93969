/* SPDX-License-Identifier: Apache-2.0 */
/* cli.c - see cli.h. */
#include "cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void *cli_alloc(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size ? size : 1);
    if (!memory) {
        cli_message("out of memory (%zu x %zu bytes)", count, size);
        exit(CLI_USAGE);
    }
    return memory;
}

char *cli_format(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int length = vasprintf(&text, format, args);
    va_end(args);
    if (length >= 0)
        return text;
    cli_message("out of memory");
    exit(CLI_USAGE);
}

void cli_message(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    flockfile(stderr);
    fputs("kvkiln: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    funlockfile(stderr);
    va_end(args);
}

void cli_error(const char *what, const kvk_error *err)
{
    cli_message("%s: %s: %s", what, kvk_status_name(err->status), err->text);
}

int cli_number(const char *text, long low, long high, long *out)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < low || value > high)
        return 0;
    *out = value;
    return 1;
}

int cli_split(char *text, char **items, int cap)
{
    int count = 0;
    for (char *item = text; item;) {
        char *comma = strchr(item, ',');
        if (comma)
            *comma++ = '\0';
        if (!*item || count == cap)
            return -1;
        items[count++] = item;
        item = comma;
    }
    return count;
}

kvk_dtype cli_dtype(const char *name)
{
    if (!strcmp(name, "fp16") || !strcmp(name, "float16") || !strcmp(name, "f16"))
        return KVK_FLOAT16;
    if (!strcmp(name, "bf16") || !strcmp(name, "bfloat16"))
        return KVK_BFLOAT16;
    return KVK_DTYPE_DEFAULT;
}

const char *cli_dtype_name(kvk_dtype dtype) { return dtype == KVK_FLOAT16 ? "fp16" : "bf16"; }

enum cli_exit cli_exit_of(kvk_status status)
{
    switch (status) {
    case KVK_OK: return CLI_OK;
    case KVK_E_ARG:
    case KVK_E_SPEC:
    case KVK_E_SHAPE:
    case KVK_E_UNSUPPORTED: return CLI_USAGE;
    case KVK_E_DEVICE:
    case KVK_E_DRIVER: return CLI_DEVICE;
    default: return CLI_FAILED;
    }
}

enum cli_exit cli_exit_worse(enum cli_exit a, enum cli_exit b)
{
    static const int rank[] = {[CLI_OK] = 0, [CLI_USAGE] = 1, [CLI_DEVICE] = 2, [CLI_FAILED] = 3};
    return rank[a] >= rank[b] ? a : b;
}

double cli_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}
