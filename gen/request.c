/* SPDX-License-Identifier: Apache-2.0 */
/*
** request.c - canonical text of a request: the part of a cache key that says which kernel it is.
**
** Compiled into both libraries, hence nothing of LLVM, Lua or the rest of gen/. Whatever cannot
** change the kernel must not show: kv heads, strides and lengths are run-time arguments, and only
** NVPTX has an assembler to ask for.
*/
#include "../runtime/gen_api.h"

#include <stdio.h>
#include <string.h>

static const char *text_or_none(const char *text) { return text ? text : ""; }

size_t gen_request_text(const struct gen_request *request, char *text, size_t cap)
{
    const struct gen_request *r = request;
    const char *target = text_or_none(r->target);
    const char *assemble = strncmp(target, "sm_", 3) ? ""
                           : r->assemble             ? "assemble 1\n"
                                                     : "assemble 0\n";
    const char *plan = text_or_none(r->plan);
    int n = snprintf(
        text, cap,
        "kind %s\nlayout %s\ntarget %s\nhead_size %d\nvalue_head_size %d\ngqa %d\npage_tokens %d\n"
        "dtype %s\noptions %u\n%s%s%s%s%s",
        text_or_none(r->kind), text_or_none(r->layout), target, r->head_size,
        r->value_head_size ? r->value_head_size : r->head_size, r->gqa, r->page_tokens,
        r->dtype == KVK_FLOAT16 ? "f16" : "bf16", r->options, assemble, *plan ? "plan " : "", plan,
        *plan ? "\n" : "", text_or_none(r->spec_text));
    return n > 0 ? (size_t)n : 0;
}
