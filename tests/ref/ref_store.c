/* SPDX-License-Identifier: Apache-2.0 */
/*
** ref_store.c - encoders, in the one fp32 arithmetic that all targets share.
**
** Every product and every sum is a rounding of its own. Sums over elements are a balanced tree over
** the element index.
*/
#include "ref.h"

#include <math.h>
#include <string.h>

/* Step k = 1, 2, 4, ... adds element i + k to element i; the zero padding is what the bound on i +
** k stands for. */
static float tree_sum(const float *x, int d)
{
    float t[REF_MAX_D];

    memcpy(t, x, (size_t)d * sizeof *t);
    for (int k = 1; k < d; k *= 2)
        for (int i = 0; i + k < d; i += 2 * k)
            t[i] = t[i] + t[i + k];
    return t[0];
}

static float sum_squares(const float *x, int d)
{
    float t[REF_MAX_D] = {0};

    for (int i = 0; i < d; i++)
        t[i] = x[i] * x[i];
    return tree_sum(t, d);
}

static float limit(float x, float bound)
{
    return isnan(x) ? 0 : x > bound ? bound : x < -bound ? -bound : x;
}

/* k: the normalised vector in the basis of the codes; chosen: its centroids. */
static float stored_length(const struct ref_codec *codec, enum ref_layout layout, float n,
                           const float *k, const float *chosen, int d)
{
    float products[REF_MAX_D] = {0}, squared = sum_squares(chosen, d) + 1e-16f,
          length = sqrtf(squared);
    float inverse = 1.0f / length, dot, ratio;
    int folded = codec->correction && layout != REF_AOS;

    for (int i = 0; i < d; i++)
        products[i] = k[i] * chosen[i];
    dot = tree_sum(products, d);
    if (!codec->unbiased || !(dot > 0))
        return folded ? n * inverse : n;
    ratio = n / dot;
    return codec->correction && !folded ? ratio * length : ratio;
}

static void encode_codebook(const struct ref_codec *codec, const float *centroids,
                            enum ref_layout layout, const float *x, int d, uint8_t *codes,
                            uint16_t *fields, float *edge)
{
    float k[REF_MAX_D] = {0}, chosen[REF_MAX_D] = {0}, mid[15], n, scalar;

    for (int i = 0; i < d; i++)
        k[i] = limit(x[i], 65504);
    n = sqrtf(sum_squares(k, d));
    for (int i = 0; i < d; i++) {
        float divisor = n + 1e-8f;
        k[i] = k[i] / divisor;
    }
    if (codec->rotated)
        ref_rotate_f32(k, d);
    ref_midpoints(centroids, codec->bits, mid);
    for (int i = 0; i < d; i++) {
        unsigned index = 0;
        for (int j = 0; j < (1 << codec->bits) - 1; j++)
            index += k[i] >= mid[j];
        ref_put_code(codes, codec->bits, i, index);
        chosen[i] = centroids[index];
        if (edge)
            edge[i] = k[i];
    }
    scalar = stored_length(codec, layout, n, k, chosen, d);
    fields[0] = ref_f16_from(limit(scalar, 65504));
}

static void affine_range(const float *v, int d, float *mn, float *mx)
{
    int any = 0;

    *mn = *mx = 0;
    for (int i = 0; i < d; i++) {
        if (isnan(v[i]))
            continue;
        *mn = any && *mn <= v[i] ? *mn : v[i];
        *mx = any && *mx >= v[i] ? *mx : v[i];
        any = 1;
    }
}

static void encode_affine(const struct ref_codec *codec, const float *x, int d, uint8_t *codes,
                          uint16_t *fields, float *edge)
{
    float v[REF_MAX_D], mn, mx, z, s, top = (float)((1 << codec->bits) - 1);

    for (int i = 0; i < d; i++)
        v[i] = isinf(x[i]) ? copysignf(65504, x[i]) : x[i];
    affine_range(v, d, &mn, &mx);
    z = limit(mn, 65504);
    float reciprocal_top = 1.0f / top, range = mx - z;
    s = range * reciprocal_top;
    if (!(s > 1e-8f))
        s = 1e-8f;
    if (s >= 65520)
        s = 65504;
    fields[0] = ref_f16_from(s);
    fields[1] = ref_f16_from(z);
    if (codec->stored) {
        s = ref_f16_to(fields[0]);
        z = ref_f16_to(fields[1]);
    }
    float reciprocal = s != 0 ? 1.0f / s : 0;
    for (int i = 0; i < d; i++) {
        float shifted = v[i] - z, quotient = shifted * reciprocal, q = quotient + 0.5f;
        q = isnan(v[i]) || !(q > 0) ? 0 : q > top ? top : truncf(q);
        ref_put_code(codes, codec->bits, i, (unsigned)q);
        if (edge)
            edge[i] = quotient;
    }
}

static void encode_float(const struct ref_codec *codec, const float *x, int d, uint8_t *codes)
{
    for (int i = 0; i < d; i++) {
        switch (codec->format) {
        case REF_E4M3: codes[i] = isnan(x[i]) ? 0 : ref_e4m3_from(x[i]); break;
        case REF_E4B15: codes[i] = isnan(x[i]) ? 0 : ref_e4b15_from(x[i]); break;
        case REF_E5M2: codes[i] = ref_e5m2_from(x[i]); break;
        case REF_FP16: ref_put16(codes + 2 * i, ref_f16_from(x[i])); break;
        case REF_BF16: ref_put16(codes + 2 * i, ref_bf16_from(x[i])); break;
        }
    }
}

/* Exponent of the group scale: log2(amax * constant) to the nearest integer, by the mantissa. */
static int block_exponent(float amax, float constant)
{
    float r = amax * constant, f;
    int e;

    f = frexpf(r, &e); /* f in [0.5, 1) */
    return f * 2 >= 0x1.6a09e6p+0f ? e : e - 1;
}

/* Bounds strictly below w among seven and their negatives; a tie belongs to the lower level. */
static unsigned block_code(float w)
{
    static const float bounds[] = {-5,    -3.5f, -2.5f, -1.75f, -1.25f, -0.75f, -0.25f,
                                   0.25f, 0.75f, 1.25f, 1.75f,  2.5f,   3.5f,   5};
    unsigned index = 0;

    for (int i = 0; i < 14; i++)
        index += bounds[i] < w;
    return index < 7 ? 15 - index : index - 7;
}

/* E2M1 by the usual rule: nearest level, a tie to the even code, at most 6. Zero has no sign. */
static unsigned nearest_code(float w)
{
    static const float level[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    float a =
        fminf(fabsf(w), 6); /* beyond, differences round to the same and 4 would seem as near */
    unsigned best = 0;

    for (unsigned i = 1; i < 8; i++) {
        float here = fabsf(a - level[i]), before = fabsf(a - level[best]);
        if (here < before || (here == before && i % 2 == 0))
            best = i;
    }
    return best && signbit(w) ? best | 8 : best;
}

/* Sum over a group of ((w - decoded) / 2^unit)^2 for elements coded with exponent e, as a balanced
** tree. */
static float block_error(const float *w, int group, int e, int unit)
{
    static const float level[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    float squares[64];

    for (int i = 0; i < group; i++) {
        float scaled = ldexpf(w[i], -e);
        unsigned code = block_code(scaled);
        float value = code & 8 ? -level[code & 7] : level[code & 7];
        float off = ldexpf(scaled - value, e - unit);
        squares[i] = off * off;
    }
    return tree_sum(squares, group);
}

/* One group of a block with a power of two as its scale. */
static uint8_t encode_exponent_group(const struct ref_codec *codec, const float *w, float amax,
                                     uint8_t *codes, int at)
{
    float constant = codec->constant > 0 ? codec->constant : 0.156f;
    int ultra = codec->rule == REF_ULTRAQUANT;
    int e = ultra ? block_exponent(amax, constant) : ilogbf(amax) - 2;

    if (ultra && e < -126)
        return 0; /* codes are zero already */
    if (codec->search &&
        block_error(w, codec->group, e + 1, e) < block_error(w, codec->group, e, e))
        e++;
    if (e < -126)
        e = -126;
    for (int i = 0; i < codec->group; i++) {
        float scaled = ldexpf(w[i], -e);
        ref_put_code(codes, 4, at + i, ultra ? block_code(scaled) : nearest_code(scaled));
    }
    return (uint8_t)(e + 127);
}

static uint8_t encode_e4m3_group(const struct ref_codec *codec, const float *w, float amax,
                                 uint8_t *codes, int at)
{
    float wanted = amax / 6;
    uint8_t scale = ref_e4m3_from(wanted);

    for (int i = 0; scale && i < codec->group; i++) {
        float quotient = w[i] / ref_e4m3_to(scale);
        ref_put_code(codes, 4, at + i, nearest_code(quotient));
    }
    return scale;
}

static void encode_block(const struct ref_codec *codec, const float *x, int d, uint8_t *codes)
{
    float y[REF_MAX_D];
    uint8_t *scales = codes + d / 2;

    for (int i = 0; i < d; i++)
        y[i] = limit(x[i], 0x1p120f);
    if (codec->rotated && codec->rule == REF_ULTRAQUANT)
        ref_rotate_stages(y, d);
    else if (codec->rotated)
        ref_rotate_f32(y, d);
    for (int at = 0; at < d; at += codec->group) {
        float amax = 0;

        for (int i = 0; i < codec->group; i++)
            amax = fmaxf(amax, fabsf(y[at + i]));
        if (amax == 0)
            continue;
        scales[at / codec->group] = codec->rule == REF_NVFP4
                                        ? encode_e4m3_group(codec, y + at, amax, codes, at)
                                        : encode_exponent_group(codec, y + at, amax, codes, at);
    }
}

/* fp16(n16 / length) for layouts that keep the norm corrected, fp16(k16 * length) back to aos. */
uint16_t ref_convert_scalar(const struct ref_codec *codec, const float *centroids,
                            enum ref_layout from, enum ref_layout to, const uint8_t *codes,
                            uint16_t field, int d)
{
    float chosen[REF_MAX_D] = {0}, x = ref_f16_to(field), squared, length, factor;

    x = limit(x, 65504);
    if (codec->kind != REF_CODEBOOK || !codec->correction || (from == REF_AOS) == (to == REF_AOS))
        return ref_f16_from(x);
    for (int i = 0; i < d; i++)
        chosen[i] = centroids[ref_get_code(codes, codec->bits, i)];
    squared = sum_squares(chosen, d) + 1e-16f;
    length = sqrtf(squared);
    factor = to == REF_AOS ? length : 1.0f / length;
    x = x * factor;
    return ref_f16_from(limit(x, 65504));
}

void ref_encode(const struct ref_codec *codec, const float *centroids, enum ref_layout layout,
                const float *x, int d, uint8_t *codes, uint16_t *fields, float *edge)
{
    memset(codes, 0, ref_code_bytes(codec, d));
    switch (codec->kind) {
    case REF_CODEBOOK: encode_codebook(codec, centroids, layout, x, d, codes, fields, edge); break;
    case REF_AFFINE: encode_affine(codec, x, d, codes, fields, edge); break;
    case REF_FLOAT: encode_float(codec, x, d, codes); break;
    case REF_BLOCK: encode_block(codec, x, d, codes); break;
    }
}

void ref_store(const struct ref_format *f, const struct ref_pool *pool, int64_t slot,
               const float *key, const float *value)
{
    if (slot < 0 || slot >= pool->pages * f->page_tokens)
        return;
    for (int h = 0; h < f->heads; h++) {
        struct ref_slot s;

        ref_encode(&f->key, f->key_centroids, f->layout, key + (size_t)h * (size_t)f->key_size,
                   f->key_size, s.key, s.field, NULL);
        ref_encode(&f->value, f->value_centroids, f->layout,
                   value + (size_t)h * (size_t)f->value_size, f->value_size, s.value,
                   s.field + f->key_fields, NULL);
        ref_slot_put(f, pool, slot, h, &s);
    }
}
