/* SPDX-License-Identifier: Apache-2.0 */
/*
** ref_format.c - the presets as the format contract names them, and the sizes that follow at one
** geometry.
*/
#include "ref.h"

#include <string.h>

#define MSE(b)                                                                                     \
    {                                                                                              \
        .kind = REF_CODEBOOK, .bits = b, .rotated = 1, .correction = 1                             \
    }
#define UNIFORM(b)                                                                                 \
    {                                                                                              \
        .kind = REF_AFFINE, .bits = b                                                              \
    }
#define PLAIN(f, b)                                                                                \
    {                                                                                              \
        .kind = REF_FLOAT, .bits = b, .format = f                                                  \
    }
#define FOUR(r, g)                                                                                 \
    {                                                                                              \
        .kind = REF_BLOCK, .bits = 4, .rule = r, .group = g                                        \
    }

static const struct ref_spec presets[] = {
    {"turboquant_k8v4", PLAIN(REF_E4M3, 8), UNIFORM(4), .soa = 1, .native = 1},
    {"turboquant_4bit_nc", MSE(4), UNIFORM(4), .soa = 1, .native = 1},
    {"turboquant_k3v4_nc", MSE(3), UNIFORM(4), .soa = 1, .native = 1},
    {"turboquant_3bit_nc", MSE(3), UNIFORM(3), .soa = 1, .native = 1},
    {"ultraquant_4bit",
     {.kind = REF_BLOCK, .bits = 4, .rotated = 1, .rule = REF_ULTRAQUANT, .group = 32},
     {.kind = REF_BLOCK, .bits = 4, .rule = REF_ULTRAQUANT, .group = 32},
     .soa = 0,
     .native = 1},
    {"nvfp4", FOUR(REF_NVFP4, 16), FOUR(REF_NVFP4, 16), .soa = 0},
    {"mxfp4", FOUR(REF_MXFP4, 32), FOUR(REF_MXFP4, 32), .soa = 0},
    {"fp8_e4m3", PLAIN(REF_E4M3, 8), PLAIN(REF_E4M3, 8), .soa = 0},
    {"fp16", PLAIN(REF_FP16, 16), PLAIN(REF_FP16, 16), .soa = 0},
    {"bf16", PLAIN(REF_BF16, 16), PLAIN(REF_BF16, 16), .soa = 0},
};

const char *ref_layout_name(enum ref_layout layout)
{
    return layout == REF_AOS ? "aos" : layout == REF_SOA ? "soa" : "native";
}

int ref_spec_count(void) { return (int)(sizeof presets / sizeof *presets); }

const struct ref_spec *ref_spec_at(int index) { return &presets[index]; }

const struct ref_spec *ref_spec_find(const char *name)
{
    for (int i = 0; i < ref_spec_count(); i++)
        if (!strcmp(presets[i].name, name))
            return &presets[i];
    return NULL;
}

size_t ref_code_bytes(const struct ref_codec *codec, int d)
{
    size_t codes = ((size_t)d * (size_t)codec->bits + 7) / 8;

    return codec->kind == REF_BLOCK ? codes + (size_t)(d / codec->group) : codes;
}

int ref_field_count(const struct ref_codec *codec)
{
    return codec->kind == REF_CODEBOOK ? 1 : codec->kind == REF_AFFINE ? 2 : 0;
}

void ref_format_make(struct ref_format *out, const struct ref_spec *spec, enum ref_layout layout,
                     int key_size, int value_size, int heads, int page_tokens)
{
    size_t slot;

    *out = (struct ref_format){.key = spec->key,
                               .value = spec->value,
                               .layout = layout,
                               .key_size = key_size,
                               .value_size = value_size,
                               .heads = heads,
                               .page_tokens = page_tokens};
    out->key_bytes = ref_code_bytes(&spec->key, key_size);
    out->value_bytes = ref_code_bytes(&spec->value, value_size);
    out->key_fields = ref_field_count(&spec->key);
    out->value_fields = ref_field_count(&spec->value);
    slot = out->key_bytes + out->value_bytes + 2 * (size_t)(out->key_fields + out->value_fields);
    out->slot_bytes = (slot + 1) / 2 * 2;
    out->page_bytes = out->slot_bytes * (size_t)heads * (size_t)page_tokens;
    if (spec->key.kind == REF_CODEBOOK)
        ref_lloyd_max(key_size, spec->key.bits, out->key_centroids);
    if (spec->value.kind == REF_CODEBOOK)
        ref_lloyd_max(value_size, spec->value.bits, out->value_centroids);
}
