/* SPDX-License-Identifier: Apache-2.0 */
/*
** ref_page.c - where one token of one head lies.
*/
#include "ref.h"

struct ref_pool ref_pool_dense(const struct ref_format *f, uint8_t *data, int64_t pages)
{
    return (struct ref_pool){.data = data,
                             .pages = pages,
                             .page_stride = (int64_t)f->page_bytes,
                             .position_stride = (int64_t)f->slot_bytes * f->heads,
                             .head_stride = (int64_t)f->slot_bytes};
}

static struct ref_place place_aos(const struct ref_format *f, size_t slot)
{
    struct ref_place at = {.key = slot};
    size_t fields = slot + f->key_bytes;
    int n = 0;

    for (int i = 0; i < f->key_fields; i++, fields += 2)
        at.field[n++] = fields;
    at.value = fields;
    fields += f->value_bytes;
    for (int i = 0; i < f->value_fields; i++, fields += 2)
        at.field[n++] = fields;
    return at;
}

static struct ref_place place_soa(const struct ref_format *f, size_t page, size_t position,
                                  size_t head)
{
    size_t record = f->key_bytes + f->value_bytes, heads = (size_t)f->heads,
           tokens = (size_t)f->page_tokens;
    size_t nf = (size_t)(f->key_fields + f->value_fields);
    struct ref_place at = {.key = page + (position * heads + head) * record};

    at.value = at.key + f->key_bytes;
    for (size_t i = 0; i < nf; i++)
        at.field[i] = page + tokens * heads * record + 2 * ((head * nf + i) * tokens + position);
    return at;
}

struct ref_place ref_place(const struct ref_format *f, const struct ref_pool *pool, int64_t slot,
                           int head)
{
    int64_t page = slot / f->page_tokens, position = slot % f->page_tokens;

    if (f->layout == REF_SOA)
        return place_soa(f, (size_t)(page * pool->page_stride), (size_t)position, (size_t)head);
    return place_aos(f, (size_t)(page * pool->page_stride + position * pool->position_stride +
                                 head * pool->head_stride));
}
