/* SPDX-License-Identifier: Apache-2.0 */
/*
** native.c - sizes and places of the native layout's planes.
*/
#include "native.h"

#include "../runtime/error.h"

static int unit_of(int bytes, int most)
{
    while (bytes % most)
        most /= 2;
    return most;
}

/* `rows` * 4 lanes of `bytes` each. */
static int place(struct plane *p, int bits, int bytes, int rows, int most, int at)
{
    *p = (struct plane){.bits = bytes ? bits : 0, .at = at, .bytes = bytes};
    p->unit = bytes ? unit_of(bytes, most) : 0;
    return at + bytes * rows * NATIVE_LANES;
}

int native_planes(const struct codec *codec, int head_size, bool value, int at,
                  struct plane planes[NATIVE_PLANES])
{
    int rows = value ? NATIVE_VALUE_ROWS : NATIVE_KEY_ROWS;
    int codes = value ? head_size / 2 : head_size / 4; /* of a lane */
    int most = value && head_size % 128 ? 8 : 16;
    bool three = codec->bits == 3;
    int tail = three && head_size % 128 ? (value ? 4 : 2) : 0;
    int main_bits = three ? 2 : codec->bits;
    at = place(&planes[NATIVE_MAIN], main_bits, codes * main_bits / 8, rows, most, at);
    at = place(&planes[NATIVE_HIGH], 1, three ? codes / 8 - tail : 0, rows, most, at);
    return place(&planes[NATIVE_TAIL], 1, tail, rows, most, at);
}

const char *native_codecs(const struct codec *key, const struct codec *value)
{
    if (key->bits != 2 && key->bits != 3 && key->bits != 4 && key->bits != 8)
        return "keys of 2, 3, 4 or 8 bits";
    if (value->bits < 2 || value->bits > 4)
        return "values of 2, 3 or 4 bits";
    return NULL;
}

kvk_status native_check(const struct spec *spec, const struct geometry *geo, kvk_error *err)
{
    const char *takes = native_codecs(&spec->key, &spec->value);
    const int sizes[2] = {geo->head_size, geo->value_head_size};
    if (takes)
        return ERR(err, KVK_E_UNSUPPORTED, "%s: layout native takes %s", spec->name, takes);
    for (int i = 0; i < 2; i++)
        if (sizes[i] % 64)
            return ERR(err, KVK_E_UNSUPPORTED, "%s: %s %d: layout native takes multiples of 64",
                       spec->name, i ? "value_head_size" : "head_size", sizes[i]);
    if (geo->page_tokens % NATIVE_TOKENS)
        return ERR(err, KVK_E_UNSUPPORTED,
                   "%s: page_tokens %d: layout native takes multiples of %d", spec->name,
                   geo->page_tokens, NATIVE_TOKENS);
    return KVK_OK;
}
