/* SPDX-License-Identifier: Apache-2.0 */
/*
** ref_dequant.c - decoders, in double.
*/
#include "ref.h"

#include <math.h>

static double field_value(uint16_t field)
{
    double x = ref_f16_to(field);

    return isnan(x) ? 0 : isinf(x) ? copysign(65504, x) : x;
}

static void decode_codebook(const struct ref_codec *codec, const float *centroids,
                            enum ref_layout layout, const uint8_t *codes, double scalar, int d,
                            double *out)
{
    double squares = 0, factor = scalar;

    for (int i = 0; i < d; i++) {
        out[i] = centroids[ref_get_code(codes, codec->bits, i)];
        squares += out[i] * out[i];
    }
    if (codec->correction && layout == REF_AOS)
        factor /= sqrt(squares + 1e-16);
    for (int i = 0; i < d; i++)
        out[i] *= factor;
}

static double float_value(enum ref_float format, const uint8_t *codes, int i)
{
    switch (format) {
    case REF_E4M3: return ref_e4m3_to(codes[i]);
    case REF_E4B15: return ref_e4b15_to(codes[i]);
    case REF_E5M2: return ref_e5m2_to(codes[i]);
    case REF_FP16: return ref_f16_to(ref_get16(codes + 2 * i));
    case REF_BF16: return ref_bf16_to(ref_get16(codes + 2 * i));
    }
    return 0;
}

static void decode_block(const struct ref_codec *codec, const uint8_t *codes, int d, double *out)
{
    static const double level[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

    for (int i = 0; i < d; i++) {
        unsigned code = ref_get_code(codes, 4, i);
        int scale = codes[d / 2 + i / codec->group];
        double factor = codec->rule == REF_NVFP4 ? ref_e4m3_to((uint8_t)scale)
                        : scale                  ? ldexp(1, scale - 127)
                                                 : 0;
        double x = level[code & 7] * factor;
        out[i] = code & 8 ? -x : x;
    }
}

void ref_decode(const struct ref_codec *codec, const float *centroids, enum ref_layout layout,
                const uint8_t *codes, const uint16_t *fields, int d, double *out)
{
    switch (codec->kind) {
    case REF_CODEBOOK:
        decode_codebook(codec, centroids, layout, codes, field_value(fields[0]), d, out);
        break;
    case REF_AFFINE:
        for (int i = 0; i < d; i++)
            out[i] = ref_get_code(codes, codec->bits, i) * field_value(fields[0]) +
                     field_value(fields[1]);
        break;
    case REF_FLOAT:
        for (int i = 0; i < d; i++)
            out[i] = float_value(codec->format, codes, i);
        break;
    case REF_BLOCK: decode_block(codec, codes, d, out); break;
    }
}

void ref_dequant(const struct ref_format *f, const struct ref_pool *pool, int64_t slot, int head,
                 double *key, double *value)
{
    struct ref_slot s;

    ref_slot_get(f, pool, slot, head, &s);
    if (key)
        ref_decode(&f->key, f->key_centroids, f->layout, s.key, s.field, f->key_size, key);
    if (value)
        ref_decode(&f->value, f->value_centroids, f->layout, s.value, s.field + f->key_fields,
                   f->value_size, value);
}
