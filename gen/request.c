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

/* The word behind "name " in a canonical spec text. */
static const char *spec_name(const char *text, int *length)
{
    const char *line = strncmp(text, "name ", 5) == 0 ? text : strstr(text, "\nname ");
    line = line ? strchr(line, ' ') + 1 : "?";
    *length = (int)strcspn(line, "\n");
    return line;
}

size_t gen_request_name(const struct gen_request *request, char *name, size_t cap)
{
    const struct gen_request *r = request;
    char value_head[16] = "";
    int length;
    const char *spec = spec_name(text_or_none(r->spec_text), &length);
    if (r->value_head_size && r->value_head_size != r->head_size)
        snprintf(value_head, sizeof value_head, "x%d", r->value_head_size);
    int n =
        snprintf(name, cap, "%s.%.*s.%s.d%d%s.g%d.%s.p%d%s%s", text_or_none(r->kind), length, spec,
                 text_or_none(r->layout), r->head_size, value_head, r->gqa,
                 r->dtype == KVK_FLOAT16 ? "f16" : "bf16", r->page_tokens,
                 r->options & KVK_SOFT_CAP ? ".cap" : "", r->options & KVK_ALIBI ? ".alibi" : "");
    return n > 0 ? (size_t)n : 0;
}
