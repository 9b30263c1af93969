/* SPDX-License-Identifier: Apache-2.0 */
/*
** sample_spec.c - draws a format: a preset, one of the users' specs, or any two codecs.
*/
#include "sample.h"

#include <stdio.h>
#include <string.h>

/* Every codec with the options of its encoder. */
static const struct {
    const char *name;
    struct ref_codec codec;
} codecs[] = {
    {"c2", {.kind = REF_CODEBOOK, .bits = 2, .rotated = 1, .correction = 1}},
    {"c3", {.kind = REF_CODEBOOK, .bits = 3, .rotated = 1, .correction = 1}},
    {"c4", {.kind = REF_CODEBOOK, .bits = 4, .rotated = 1, .correction = 1}},
    {"c2u", {.kind = REF_CODEBOOK, .bits = 2, .rotated = 1, .correction = 1, .unbiased = 1}},
    {"c4c", {.kind = REF_CODEBOOK, .bits = 4, .correction = 1}},
    {"c4r", {.kind = REF_CODEBOOK, .bits = 4, .rotated = 1}},
    {"c2n", {.kind = REF_CODEBOOK, .bits = 2}},
    {"c3n", {.kind = REF_CODEBOOK, .bits = 3}},
    {"c4n", {.kind = REF_CODEBOOK, .bits = 4}},
    {"a2", {.kind = REF_AFFINE, .bits = 2}},
    {"a3", {.kind = REF_AFFINE, .bits = 3}},
    {"a4", {.kind = REF_AFFINE, .bits = 4}},
    {"a5", {.kind = REF_AFFINE, .bits = 5}},
    {"a6", {.kind = REF_AFFINE, .bits = 6}},
    {"a7", {.kind = REF_AFFINE, .bits = 7}},
    {"a8", {.kind = REF_AFFINE, .bits = 8}},
    {"a4s", {.kind = REF_AFFINE, .bits = 4, .stored = 1}},
    {"e4m3", {.kind = REF_FLOAT, .bits = 8, .format = REF_E4M3}},
    {"e4b15", {.kind = REF_FLOAT, .bits = 8, .format = REF_E4B15}},
    {"e5m2", {.kind = REF_FLOAT, .bits = 8, .format = REF_E5M2}},
    {"fp16", {.kind = REF_FLOAT, .bits = 16, .format = REF_FP16}},
    {"bf16", {.kind = REF_FLOAT, .bits = 16, .format = REF_BF16}},
    {"ultra", {.kind = REF_BLOCK, .bits = 4, .rotated = 1, .rule = REF_ULTRAQUANT, .group = 32}},
    {"ultran", {.kind = REF_BLOCK, .bits = 4, .rule = REF_ULTRAQUANT, .group = 32}},
    {"mx4", {.kind = REF_BLOCK, .bits = 4, .rule = REF_MXFP4, .group = 32}},
    {"nv4", {.kind = REF_BLOCK, .bits = 4, .rule = REF_NVFP4, .group = 16}},
    {"nv4r", {.kind = REF_BLOCK, .bits = 4, .rotated = 1, .rule = REF_NVFP4, .group = 16}},
};
enum { CODECS = sizeof codecs / sizeof *codecs };

static int has_fields(const struct ref_codec *c)
{
    return c->kind == REF_CODEBOOK || c->kind == REF_AFFINE;
}

/* Widths that the native layout has planes for. */
static int has_planes(const struct ref_codec *c, int key)
{
    return c->bits <= 4 || (key && c->bits == 8);
}

static void draw_mixed(struct num_random *r, struct sample *s)
{
    int key = num_below(r, CODECS), value = num_below(r, CODECS);

    s->spec =
        (struct ref_spec){.name = s->name, .key = codecs[key].codec, .value = codecs[value].codec};
    snprintf(s->name, sizeof s->name, "mix_%s_%s", codecs[key].name, codecs[value].name);
    s->spec.soa = s->spec.key.kind != REF_BLOCK && s->spec.value.kind != REF_BLOCK &&
                  (has_fields(&s->spec.key) || has_fields(&s->spec.value));
    s->spec.native = has_planes(&s->spec.key, 1) && has_planes(&s->spec.value, 0);
    s->model.spec = &s->spec;
}

void sample_spec(struct num_random *r, struct sample *s)
{
    if (num_below(r, 5) < 2)
        draw_mixed(r, s);
    else
        s->model.spec = ref_spec_at(num_below(r, ref_spec_count()));
    s->model.layout = s->model.spec->soa && num_below(r, 2) ? REF_SOA : REF_AOS;
}
