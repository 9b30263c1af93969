/* SPDX-License-Identifier: Apache-2.0 */
/*
** slot.c - bytes of a slot from its two codecs: the one place where sizes and offsets come from.
**
** aos: key codes, key fields (or scales), value codes, value fields (or scales), padded to even.
** soa: data records of key codes then value codes, a region of 16-bit fields behind them in the
** page.
** native: blocks of 16 tokens of a head: key codes, value codes, fields, scales (native.h).
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
    s->scale_offset = at + s->code_bytes;
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

static int align16(int x) { return (x + 15) / 16 * 16; }

/* Bytes of a head block. */
static int place_native(struct side *key, struct side *value)
{
    struct side *sides[2] = {key, value};
    int at = 0, field = 0;
    for (int i = 0; i < 2; i++) {
        sides[i]->code_offset = at;
        at = native_planes(&sides[i]->codec, sides[i]->head_size, i, at, sides[i]->plane);
    }
    for (int i = 0; i < 2; i++)
        for (int f = 0; f < sides[i]->fields; f++, field++, at += 2 * NATIVE_TOKENS) {
            sides[i]->field_offset[f] = at;
            sides[i]->field_index[f] = field;
        }
    for (int i = 0; i < 2; i++) {
        sides[i]->scale_offset = at;
        at += NATIVE_TOKENS * sides[i]->scale_bytes;
    }
    return align16(at);
}

static kvk_status check(const struct spec *spec, const struct geometry *geo, const struct slot *s,
                        kvk_error *err)
{
    bool scales = s->key.scale_bytes || s->value.scale_bytes;
    if (geo->layout == LAYOUT_NATIVE)
        return native_check(spec, geo, err);
    if (geo->layout == LAYOUT_SOA && (!s->fields || scales))
        return ERR(err, KVK_E_UNSUPPORTED,
                   "%s: layout soa is for codecs with per-slot fields, not float or block_float",
                   spec->name);
    return KVK_OK;
}

/* Sizes of a slot and of what is one piece in a page, and what both are multiples of. */
static void measure(struct slot *s, enum layout layout, int page_tokens)
{
    if (layout == LAYOUT_NATIVE) {
        s->record_bytes = place_native(&s->key, &s->value);
        s->slot_bytes = s->record_bytes / NATIVE_TOKENS;
        s->alignment = 16;
        return;
    }
    bool soa = layout == LAYOUT_SOA;
    int end = soa ? place_soa(&s->key, 0, 0) : place_aos(&s->key, 0, 0);
    end = soa ? place_soa(&s->value, end, s->key.fields) : place_aos(&s->value, end, s->key.fields);
    int raw = soa ? end + 2 * s->fields : end;
    s->slot_bytes = (raw + 1) / 2 * 2;
    s->record_bytes = soa ? end : s->slot_bytes;
    int base = soa ? min_int(low_bit(s->record_bytes), low_bit(page_tokens * s->slot_bytes))
                   : low_bit(s->slot_bytes);
    s->alignment = min_int(base, 16);
}

kvk_status slot_make(const struct spec *spec, const struct geometry *geo, struct slot *out,
                     kvk_error *err)
{
    *out = (struct slot){0};
    struct side *sides[2] = {&out->key, &out->value};
    side_sizes(&spec->key, geo->head_size, sides[0]);
    side_sizes(&spec->value, geo->value_head_size, sides[1]);
    out->fields = sides[0]->fields + sides[1]->fields;
    kvk_status status = check(spec, geo, out, err);
    if (status)
        return status;
    measure(out, geo->layout, geo->page_tokens);
    for (int i = 0; i < 2; i++) {
        struct side *s = sides[i];
        s->code_align =
            s->code_offset ? min_int(out->alignment, low_bit(s->code_offset)) : out->alignment;
        bool corrected = s->codec.kind == CODEC_CODEBOOK && s->codec.norm_correction;
        s->norm_at_read = corrected && geo->layout == LAYOUT_AOS;
        s->norm_at_store = corrected && geo->layout != LAYOUT_AOS;
    }
    return KVK_OK;
}
