/* SPDX-License-Identifier: Apache-2.0 */
/*
** fork.c - a context belongs to the process that opened it.
**
** Neither GPU drivers nor the threads of the host device survive a fork, and a lock may be held in
** the child by a thread that is not there. The mark is a page that the system wipes in children, so
** that looking costs one read and no system call. Systems before Linux 4.14 have no such pages:
** there, each look asks for the process's number.
*/
#include "context.h"

#include "error.h"

#include <sys/mman.h>
#include <unistd.h>

struct fork_mark {
    pid_t opener; /* 0: wiped */
    int asks;     /* the page is not wiped */
};

kvk_status fork_mark_make(kvk_context *ctx, kvk_error *err)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct fork_mark *mark =
        mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mark == MAP_FAILED)
        return ERR(err, KVK_E_MEMORY, "no memory for a page");
    mark->asks = madvise(mark, page, MADV_WIPEONFORK) != 0;
    ctx->opener = mark->opener = getpid();
    ctx->mark = mark;
    return KVK_OK;
}

void fork_mark_free(kvk_context *ctx)
{
    if (ctx->mark)
        munmap((void *)(uintptr_t)ctx->mark, (size_t)sysconf(_SC_PAGESIZE));
}

int fork_is_child(const kvk_context *ctx)
{
    const volatile struct fork_mark *mark = ctx->mark;
    return mark && (!mark->opener || (mark->asks && mark->opener != getpid()));
}

kvk_status fork_check(const kvk_context *ctx, const char *where, kvk_error *err)
{
    if (!ctx)
        return error_set(err, KVK_E_ARG, where, "ctx is NULL");
    if (!fork_is_child(ctx))
        return KVK_OK;
    return error_set(err, KVK_E_FORK, where,
                     "the context was opened by process %ld, of which this is a child made by "
                     "fork: open another one here",
                     (long)ctx->opener);
}
