/* SPDX-License-Identifier: Apache-2.0 */
/*
** slot.c - bytes of a slot from its two codecs: the one place where sizes and offsets come from.
**
** aos: key codes, key fields (or scales), value codes, value fields (or scales), padded to even.
** soa: data records of key codes then value codes, a region of 16-bit fields behind them in the
** page.
*/
#include "plan.h"

#include "../runtime/error.h"

static int low_bit(int x) { return x & -x; }
static int min_int(int a, int b) { return a < b ? a : b; }

static int fields_of(const struct codec *c)
{
    return c->kind == CODEC_CODEBOOK ? 1 : c->kind == CODEC_AFFINE ? 2 : 0;
}

static void side_sizes(const struct codec *c, int head_size, struct side *s)
{
    *s = (struct side){.codec = *c, .head_size = head_size, .fields = fields_of(c)};
    s->code_bytes = (head_size * c->bits + 7) / 8;
    s->scale_bytes = c->kind == CODEC_BLOCK_FLOAT ? head_size / c->group : 0;
}

/* Places one side at `at` in an aos slot; returns the offset behind it. */
static int place_aos(struct side *s, int at, int first_field)
{
    s->code_offset = at;
    at += s->code_bytes + s->scale_bytes;
    for (int i = 0; i < s->fields; i++, at += 2) {
        s->field_offset[i] = at;
        s->field_index[i] = first_field + i;
    }
    return at;
}

static int place_soa(struct side *s, int at, int first_field)
{
    s->code_offset = at;
    for (int i = 0; i < s->fields; i++)
        s->field_index[i] = first_field + i;
    return at + s->code_bytes;
}

kvk_status slot_make(const struct spec *spec, const struct geometry *geo, struct slot *out,
                     kvk_error *err)
{
    *out = (struct slot){0};
    struct side *key = &out->key, *value = &out->value;
    bool soa = geo->layout == LAYOUT_SOA;
    side_sizes(&spec->key, geo->head_size, key);
    side_sizes(&spec->value, geo->value_head_size, value);
    out->fields = key->fields + value->fields;
    if (soa && (!out->fields || key->scale_bytes || value->scale_bytes))
        return ERR(err, KVK_E_UNSUPPORTED,
                   "%s: layout soa is for codecs with per-slot fields, not float or block_float",
                   spec->name);
    int end = soa ? place_soa(key, 0, 0) : place_aos(key, 0, 0);
    end = soa ? place_soa(value, end, key->fields) : place_aos(value, end, key->fields);
    int raw = soa ? end + 2 * out->fields : end;
    out->slot_bytes = (raw + 1) / 2 * 2;
    out->record_bytes = soa ? end : out->slot_bytes;
    int base =
        soa ? min_int(low_bit(out->record_bytes), low_bit(geo->page_tokens * out->slot_bytes))
            : low_bit(out->slot_bytes);
    out->alignment = min_int(base, 16);
    struct side *sides[2] = {key, value};
    for (int i = 0; i < 2; i++) {
        struct side *s = sides[i];
        s->code_align =
            s->code_offset ? min_int(out->alignment, low_bit(s->code_offset)) : out->alignment;
        bool corrected = s->codec.kind == CODEC_CODEBOOK && s->codec.norm_correction;
        s->norm_at_read = corrected && !soa;
        s->norm_at_store = corrected && soa;
    }
    return KVK_OK;
}
