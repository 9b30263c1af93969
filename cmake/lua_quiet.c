/* SPDX-License-Identifier: Apache-2.0 */
/*
** lua_quiet.c - what Lua's archive finds in place of libc's standard streams and the calls that write to them.
** Writing succeeds and goes nowhere. The names are the archive's only; no header declares them.
*/
#include <stddef.h>

void *const lua_quiet_stdin = NULL, *const lua_quiet_stdout = NULL, *const lua_quiet_stderr = NULL;

size_t lua_quiet_fwrite(const void *data, size_t size, size_t count, void *stream);
size_t lua_quiet_fwrite(const void *data, size_t size, size_t count, void *stream)
{
    (void)data, (void)size, (void)stream;
    return count;
}

int lua_quiet_fflush(void *stream);
int lua_quiet_fflush(void *stream)
{
    (void)stream;
    return 0;
}

int lua_quiet_fprintf(void *stream, const char *format, ...);
int lua_quiet_fprintf(void *stream, const char *format, ...)
{
    (void)stream, (void)format;
    return 0;
}

int lua_quiet___fprintf_chk(void *stream, int flag, const char *format, ...);
int lua_quiet___fprintf_chk(void *stream, int flag, const char *format, ...)
{
    (void)stream, (void)flag, (void)format;
    return 0;
}
