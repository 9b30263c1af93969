/* SPDX-License-Identifier: Apache-2.0 */
/*
** error.h - filling a kvk_error. The lowest function that knows what went wrong fills it, once, in one line.
*/
#ifndef KVKILN_ERROR_H
#define KVKILN_ERROR_H

#include "kvkiln.h"

/* Fills *err (NULL is allowed) and returns `status`, so that `return error_set(...)` reads well. */
kvk_status error_set(kvk_error *err, kvk_status status, const char *where, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The same with the driver's own code. */
kvk_status error_driver(kvk_error *err, kvk_status status, long driver, const char *where, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

#define ERR(err, status, ...) error_set(err, status, __func__, __VA_ARGS__)

#endif
