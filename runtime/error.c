/* SPDX-License-Identifier: Apache-2.0 */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void fill(kvk_error *err, kvk_status status, long driver, const char *where,
                 const char *format, va_list args)
{
    if (!err)
        return;
    memset(err, 0, sizeof *err);
    err->status = status;
    err->driver = driver;
    snprintf(err->where, sizeof err->where, "%s", where);
    vsnprintf(err->text, sizeof err->text, format, args);
    for (char *p = err->text; *p; p++) /* one line, whatever a file or driver put into it */
        if (*p == '\n' || *p == '\r')
            *p = ' ';
}

kvk_status error_set(kvk_error *err, kvk_status status, const char *where, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fill(err, status, 0, where, format, args);
    va_end(args);
    return status;
}

kvk_status error_driver(kvk_error *err, kvk_status status, long driver, const char *where,
                        const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fill(err, status, driver, where, format, args);
    va_end(args);
    return status;
}

const char *kvk_status_name(kvk_status status)
{
    switch (status) {
#define STATUS(name, value, meaning)                                                               \
    case value:                                                                                    \
        return "KVK_" #name;
#include "status.def"
#undef STATUS
    }
    return "KVK_E_?";
}
