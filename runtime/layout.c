/* SPDX-License-Identifier: Apache-2.0 */
/*
** layout.c - page geometry: the generator's facts out of the manifest, times the number of heads.
*/
#include "context.h"

#include "error.h"

#include <stdio.h>
#include <string.h>

enum { SLOT_MOST_BYTES = 1 << 20, NATIVE_TOKENS = 16 };

/* One "layout.NAME" line, inside 0..most. */
static kvk_status read_fact(const struct object *object, const char *name, int64_t most,
                            int64_t *out, kvk_error *err)
{
    char line[64];
    long long value;
    snprintf(line, sizeof line, "layout.%s", name);
    if (!object_get_int(object, line, &value))
        return ERR(err, KVK_E_OBJECT, "a manifest has no number \"%s\"", line);
    if (value < 0 || value > most)
        return ERR(err, KVK_E_OBJECT, "manifest: %s is %lld, accepted 0..%lld", line, value,
                   (long long)most);
    *out = value;
    return KVK_OK;
}

static kvk_status read_fields(const struct object *object, struct page_facts *out, kvk_error *err)
{
    int64_t fields = 0;
    kvk_status status = read_fact(object, "fields", 4, &fields, err);
    out->fields = (int)fields;
    for (int i = 0; !status && !out->soa && i < out->fields;
         i++) { /* soa's follow from the shape */
        char name[32];
        snprintf(name, sizeof name, "field_offset.%d", i);
        status = read_fact(object, name, SLOT_MOST_BYTES, &out->field_offset[i], err);
    }
    if (!status && (out->soa || out->native))
        status = read_fact(object, "record_bytes", SLOT_MOST_BYTES, &out->record_bytes, err);
    return status;
}

/* The object must be of the geometry that was asked for: a mixed-up object would read other bytes
** than it was given. */
static kvk_status check_shape(const struct object *object, const struct shape *shape,
                              kvk_error *err)
{
    const struct {
        const char *name;
        int value;
    } facts[] = {
        {"head_size", shape->head_size},
        {"value_head_size", shape->value_head_size},
        {"page_tokens", shape->page_tokens},
        {"gqa", shape->gqa},
    };
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        int64_t value = 0;
        kvk_status status = read_fact(object, facts[i].name, INT32_MAX, &value, err);
        if (status)
            return status;
        if (value != facts[i].value)
            return ERR(err, KVK_E_OBJECT, "manifest: layout.%s is %lld, asked for %d",
                       facts[i].name, (long long)value, facts[i].value);
    }
    return KVK_OK;
}

kvk_status page_facts_read(const struct object *object, const struct shape *shape,
                           struct page_facts *out, kvk_error *err)
{
    char layout[16];
    memset(out, 0, sizeof *out);
    if (!object_get(object, "layout.name", layout, sizeof layout) ||
        strcmp(layout, shape->layout) != 0)
        return ERR(err, KVK_E_OBJECT, "manifest: layout.name is not \"%s\"", shape->layout);
    out->soa = strcmp(layout, "soa") == 0;
    out->native = strcmp(layout, "native") == 0;
    if (!object_get(object, "signature", out->signature, sizeof out->signature))
        return ERR(err, KVK_E_OBJECT, "a manifest has no signature");
    const struct {
        const char *name;
        int64_t *to;
    } facts[] = {
        {"slot_bytes", &out->slot_bytes},     {"slot_alignment", &out->slot_alignment},
        {"key_offset", &out->key_offset},     {"key_bytes", &out->key_bytes},
        {"value_offset", &out->value_offset}, {"value_bytes", &out->value_bytes},
    };
    kvk_status status = check_shape(object, shape, err);
    for (size_t i = 0; !status && i < sizeof facts / sizeof *facts; i++)
        status = read_fact(object, facts[i].name, SLOT_MOST_BYTES, facts[i].to, err);
    if (!status)
        status = read_fields(object, out, err);
    if (!status && (out->slot_bytes < 1 || out->slot_alignment < 1))
        return ERR(err, KVK_E_OBJECT, "manifest: a slot of %lld bytes aligned to %lld",
                   (long long)out->slot_bytes, (long long)out->slot_alignment);
    return status;
}

kvk_status kvk_layout(const kvk_kernels *k, struct kvk_layout *out, kvk_error *err)
{
    if (!k)
        return ERR(err, KVK_E_ARG, "kernels is NULL");
    if (!out || out->size < sizeof *out)
        return ERR(err, KVK_E_ARG, "struct kvk_layout: initialise with KVK_INIT");
    const struct page_facts *p = &k->pages;
    const struct shape *s = &k->shape;
    size_t tokens = (size_t)s->page_tokens, heads = (size_t)s->kv_heads;
    size_t record = (size_t)(p->soa || p->native ? p->record_bytes : p->slot_bytes);
    out->slot_bytes = (size_t)p->slot_bytes;
    out->page_bytes = tokens * heads * out->slot_bytes;
    out->slot_alignment = (size_t)p->slot_alignment;
    out->position_stride = heads * record;
    out->head_stride = record;
    out->key_offset = (size_t)p->key_offset;
    out->key_bytes = (size_t)p->key_bytes;
    out->value_offset = (size_t)p->value_offset;
    out->value_bytes = (size_t)p->value_bytes;
    out->meta_offset = p->soa      ? tokens * heads * record
                       : p->native ? (size_t)(p->value_offset + NATIVE_TOKENS * p->value_bytes)
                                   : 0;
    out->fields = p->fields;
    for (size_t f = 0; f < 4; f++) {
        out->field_offset[f] = 0;
        if ((int)f < p->fields) /* soa: head, field, token; 2 bytes a field */
            out->field_offset[f] =
                p->soa ? out->meta_offset + 2 * f * tokens : (size_t)p->field_offset[f];
    }
    out->ratio = 2.0 * (s->head_size + s->value_head_size) / (double)p->slot_bytes;
    out->signature = p->signature;
    return KVK_OK;
}
