/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include "embedded.h"
#include "error.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEADS_MOST = 1 << 16, HEAD_SIZE_MOST = 1024, PAGE_MOST = 4096 };

static kvk_status in_range(const char *name, int value, int low, int high, kvk_error *err)
{
    if (value >= low && value <= high)
        return KVK_OK;
    return error_set(err, KVK_E_SHAPE, "kvk_prepare", "%s is %d, accepted %d..%d", name, value, low,
                     high);
}

static kvk_status check_dtype(const char *name, kvk_dtype dtype, kvk_error *err)
{
    if (dtype == KVK_FLOAT16 || dtype == KVK_BFLOAT16)
        return KVK_OK;
    return error_set(err, KVK_E_ARG, "kvk_prepare", "%s is %d, accepted KVK_FLOAT16, KVK_BFLOAT16",
                     name, (int)dtype);
}

kvk_status model_shape(const struct kvk_model *m, struct shape *out, kvk_error *err)
{
    memset(out, 0, sizeof *out);
    out->kv_heads = m->kv_heads;
    out->query_heads = m->query_heads;
    out->head_size = m->head_size;
    out->value_head_size = m->value_head_size ? m->value_head_size : m->head_size;
    out->page_tokens = m->page_tokens ? m->page_tokens : 16;
    out->dtype = m->dtype ? m->dtype : KVK_BFLOAT16;
    out->dequant_dtype = m->dequant_dtype ? m->dequant_dtype : out->dtype;
    out->kinds = m->kinds ? m->kinds : KVK_ALL_KINDS;
    out->options = m->options;
    if (!m->spec || !*m->spec)
        return ERR(err, KVK_E_ARG, "spec is missing: a preset's name or the path of a .lua file");
    if (out->kinds & ~(unsigned)(KVK_ALL_KINDS | KVK_CONVERT))
        return ERR(err, KVK_E_ARG, "kinds is 0x%x, accepted bits 0x%x", out->kinds,
                   (unsigned)(KVK_ALL_KINDS | KVK_CONVERT));
    if (out->kinds & KVK_DECODE)
        out->kinds |= KVK_MERGE; /* whose object joins the splits */
    if (out->options & ~(unsigned)KVK_ALL_OPTIONS)
        return ERR(err, KVK_E_UNSUPPORTED,
                   "options has unknown bits 0x%x, accepted KVK_SOFT_CAP (0x%x), KVK_ALIBI (0x%x)",
                   out->options & ~(unsigned)KVK_ALL_OPTIONS, (unsigned)KVK_SOFT_CAP,
                   (unsigned)KVK_ALIBI);
    kvk_status status = in_range("kv_heads", out->kv_heads, 1, HEADS_MOST, err);
    if (!status)
        status = in_range("query_heads", out->query_heads, 1, HEADS_MOST, err);
    if (!status && out->query_heads % out->kv_heads)
        status = ERR(err, KVK_E_SHAPE, "query_heads %d is not a multiple of kv_heads %d",
                     out->query_heads, out->kv_heads);
    if (!status)
        status = in_range("head_size", out->head_size, 1, HEAD_SIZE_MOST, err);
    if (!status)
        status = in_range("value_head_size", out->value_head_size, 1, HEAD_SIZE_MOST, err);
    if (!status)
        status = in_range("page_tokens", out->page_tokens, 1, PAGE_MOST, err);
    if (!status)
        status = check_dtype("dtype", out->dtype, err);
    if (!status)
        status = check_dtype("dequant_dtype", out->dequant_dtype, err);
    out->gqa = status ? 0 : out->query_heads / out->kv_heads;
    return status;
}

static int is_path(const char *spec)
{
    size_t n = strlen(spec);
    return strchr(spec, '/') || (n > 4 && strcmp(spec + n - 4, ".lua") == 0);
}

/* Does a file of this preset lie in one of the directories? Only then is the generator needed to
** read it. */
static int in_dirs(const char *dirs, const char *spec)
{
    char path[PATH_MAX];
    while (*dirs) {
        size_t n = strcspn(dirs, ":");
        if (n &&
            snprintf(path, sizeof path, "%.*s/%s.lua", (int)n, dirs, spec) < (int)sizeof path &&
            access(path, F_OK) == 0)
            return 1;
        dirs += n + (dirs[n] == ':');
    }
    return 0;
}

static kvk_status unknown_preset(const char *spec, kvk_error *err)
{
    char known[256] = "";
    const char *name, *text;
    for (int i = 0; embedded_spec_text(i, &name, &text); i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", name);
    }
    return ERR(err, KVK_E_SPEC, "no preset \"%s\": accepted %s, or the path of a .lua file", spec,
               known);
}

kvk_status model_spec_text(kvk_context *ctx, const char *spec, char **out, kvk_error *err)
{
    const char *name, *text;
    if (is_path(spec) || in_dirs(ctx->spec_dirs, spec)) {
        const struct gen_api *api;
        kvk_status status = loader_get(ctx, &api, err);
        return status ? status : api->spec_text(spec, ctx->spec_dirs, out, err);
    }
    for (int i = 0; embedded_spec_text(i, &name, &text); i++) {
        if (strcmp(name, spec) != 0)
            continue;
        *out = strdup(text);
        return *out ? KVK_OK : ERR(err, KVK_E_MEMORY, "no memory for a spec");
    }
    /* a user's own spec, on a host that has no generator */
    kvk_status status = packs_spec(&ctx->packs, spec, out, err);
    return status || *out ? status : unknown_preset(spec, err);
}

/* The words of the canonical text's line "layouts". */
static const char *layouts_line(const char *text)
{
    static const char name[] = "layouts ";
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, sizeof name - 1) == 0)
            return line + sizeof name - 1;
    }
    return NULL;
}

kvk_status model_layout(const struct kvk_model *model, const char *spec_text, struct shape *out,
                        kvk_error *err)
{
    static const char separators[] = " ,|\t";
    const char *words = layouts_line(spec_text);
    int length = words ? (int)strcspn(words, "\n") : 0;
    if (!words)
        return ERR(err, KVK_E_INTERNAL, "the canonical text of %s has no line \"layouts\"",
                   model->spec);
    for (const char *w = words; w < words + length;) {
        size_t n = strcspn(w, " ,|\t\n");
        if (n && n < sizeof out->layout &&
            (!model->layout || (strlen(model->layout) == n && !strncmp(w, model->layout, n)))) {
            memcpy(out->layout, w, n);
            out->layout[n] = '\0';
            return KVK_OK;
        }
        w += n;
        w += strspn(w, separators);
        if (!n && *w == '\n')
            break;
    }
    return ERR(err, KVK_E_SPEC, "layout \"%s\": %s has %.*s", model->layout ? model->layout : "",
               model->spec, length, words);
}
