/* SPDX-License-Identifier: Apache-2.0 */
/*
** api.c - the generator's one exported symbol: the function table of runtime/gen_api.h.
*/
#include "../runtime/gen_api.h"

#include "../runtime/error.h"
#include "build_id.h"
#include "name.h"
#include "pipeline.h"

#include <stdio.h>
#include <stdlib.h>

static kvk_status spec_text(const char *name, const char *dirs, char **text, kvk_error *err)
{
    struct spec spec;
    kvk_status status = spec_load(name, dirs, &spec, err);
    if (status)
        return status;
    size_t n = spec_to_text(&spec, NULL, 0);
    *text = malloc(n + 1);
    if (!*text)
        return ERR(err, KVK_E_MEMORY, "out of memory");
    spec_to_text(&spec, *text, n + 1);
    return KVK_OK;
}

static kvk_status name(const struct gen_request *request, char **out, kvk_error *err)
{
    struct plan plan;
    kvk_status status = pipeline_plan(request, &plan, err);
    if (status)
        return status;
    char text[NAME_MAX_BYTES];
    if (!name_format(request->kind, plan.spec.name, &plan.geo, text, sizeof text))
        return ERR(err, KVK_E_SPEC, "%s: not a name for a kernel", plan.spec.name);
    return asprintf(out, "%s", text) < 0 ? ERR(err, KVK_E_MEMORY, "out of memory") : KVK_OK;
}

static kvk_status explain(const struct gen_request *request, char **out, kvk_error *err)
{
    struct plan plan;
    kvk_status status = pipeline_plan(request, &plan, err);
    if (status)
        return status;
    char text[4096];
    plan_print(&plan, text, sizeof text);
    const struct slot *s = &plan.slot;
    double ratio = 2.0 * (plan.geo.head_size + plan.geo.value_head_size) / s->slot_bytes;
    int n = asprintf(
        out,
        "kind %s\ntarget %s\nlayout %s\nslot_bytes %d  # %.2f times smaller than 16-bit K and V\n"
        "slot_alignment %d  # what every access may rely on\n%s",
        request->kind, request->target, request->layout, s->slot_bytes, ratio, s->alignment, text);
    return n < 0 ? ERR(err, KVK_E_MEMORY, "out of memory") : KVK_OK;
}

static int target(int index, const char **target_name, const char **family)
{
    static const char *const families[] = {"host", "nvptx", "amdgcn"};
    const struct target *t = target_at(index);
    if (!t)
        return 0;
    *target_name = t->name;
    *family = families[t->family];
    return 1;
}

static void artifacts_free(struct gen_artifacts *artifacts)
{
    for (int i = 0; i < GEN_EMIT_COUNT; i++) {
        free(artifacts->data[i]);
        artifacts->data[i] = NULL;
    }
}

const struct gen_api *kvk_generator(void)
{
    static const struct gen_api api = {
        .version = KVK_GEN_API_VERSION,
        .build_id = KVK_BUILD_ID,
        .spec_text = spec_text,
        .compile = pipeline_compile,
        .name = name,
        .explain = explain,
        .target = target,
        .artifacts_free = artifacts_free,
    };
    return &api;
}
