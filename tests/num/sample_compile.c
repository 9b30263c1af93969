/* SPDX-License-Identifier: Apache-2.0 */
/*
** sample_compile.c - any shape compiles for any GPU target, or is refused by name; nothing runs.
*/
#include "sample.h"

#include "../../runtime/gen_api.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const targets[] = {"gfx942", "gfx950", "gfx1100", "gfx1200", "sm_80",
                                      "sm_90a", "gfx942", "gfx1201", "sm_120a", "sm_100a"};
static const char *const kinds[] = {"decode", "unified", "decode", "unified", "store", "dequant"};

#define AT(list, n) ((list)[(n) % (int)(sizeof(list) / sizeof *(list))])

/* What the runtime would ask for. */
static kvk_status compile(struct num_run *run, const struct sample *s, const char *spec,
                          kvk_error *err)
{
    const struct gen_api *api = kvk_generator();
    struct gen_artifacts out = {{0}, {0}};
    char *text = NULL;
    struct gen_request r = {.kind = AT(kinds, s->variant / 64),
                            .layout = ref_layout_name(s->model.layout),
                            .target = AT(targets, s->variant),
                            .head_size = s->model.d,
                            .value_head_size = s->model.dv,
                            .gqa = s->model.gqa,
                            .page_tokens = s->model.page,
                            .dtype = s->model.dtype};

    num_ok(run, api->spec_text(spec, NULL, &text, err), err, "spec_text");
    r.spec_text = text;
    if (s->variant / 64 % 6 < 4) /* attention */
        r.options = (unsigned)(s->variant / 4096) & KVK_ALL_OPTIONS;
    kvk_status status = api->compile(&r, 1u << GEN_EMIT_OBJECT, &out, err);
    if (!status && !out.bytes[GEN_EMIT_OBJECT])
        num_fail(run, "%s for %s: no object", r.kind, r.target);
    api->artifacts_free(&out);
    free(text);
    return status;
}

void sample_compile(struct num_run *run, const struct sample *s)
{
    const char *spec = s->model.spec->name;
    kvk_error err = {0};
    char path[512];

    if (s->model.spec == &s->spec) {
        snprintf(path, sizeof path, "%s/%s.lua", run->spec_folder, spec);
        spec = path;
    }
    kvk_status status = compile(run, s, spec, &err);
    run->skipped = run->may_refuse && status == KVK_E_UNSUPPORTED;
    char what[64];
    snprintf(what, sizeof what, "%s for %s", AT(kinds, s->variant / 64), AT(targets, s->variant));
    num_ok(run, status, &err, what);
}
