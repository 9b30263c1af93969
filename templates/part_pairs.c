/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_pairs.c - see part_pairs.h.
*/
#include "part_pairs.h"

#include "part_codebook.h"
#include "part_eights.h"

/* One side of the call. */
struct rows {
    const struct pairs *pairs;
    const struct side *side;
    val (*row_of)(struct kb *, const struct rowpair *);
    val table; /* a codebook's, if lanes hold it */
    struct eights codes[PAIR_TURNS_MAX];
};

static void store_row(struct kb *k, const struct rows *r, int i, const struct rowvec *v, bool by_16)
{
    val row = r->row_of(k, &r->pairs->at[i]);
    struct kb_if exists = kb_if(K, r->pairs->exists[i]);
    rowvec_store_shared(k, v, rowpair_type(k), row, by_16);
    kb_endif(K, &exists);
}

static void share(struct kb *k, const struct side *side, struct rowvec *v)
{
    rowvec_share(k, v, side->head_size, kb_plan(k)->pair_lanes);
}

/* Vector after vector: only what was loaded is held for all of them. */
static void shared_rows(struct kb *k, const struct rows *r, bool back, bool by_16)
{
    bool joined = back && r->side->codec.kind == CODEC_CODEBOOK;
    for (int i = 0; i < r->pairs->n; i++) {
        struct rowvec v;
        struct eights codes = r->codes[i];
        share(k, r->side, &v);
        if (joined) /* norm and factor are one product */
            codes.field[0] = kb_fmul(K, codes.field[0], rotate_factor(K, v.d));
        eights_decode(k, &r->pairs->token[i], r->side, &codes, r->table, &v);
        if (joined)
            rotate_sums(k, &v);
        else if (back)
            rotate(k, &v);
        store_row(k, r, i, &v, by_16);
    }
}

/* The rotation costs shuffles, so it has a branch of its own. */
static void rotated_rows(struct kb *k, const struct rows *r, bool by_16)
{
    bool rotated = r->side->codec.rotation == ROTATION_HADAMARD;
    if (!rotated) {
        shared_rows(k, r, false, by_16);
        return;
    }
    struct kb_if back = kb_if(K, kb_icmpi(K, KB_NE, kb_param(K, "rotate_back"), 0));
    shared_rows(k, r, true, by_16);
    kb_else(K, &back);
    shared_rows(k, r, false, by_16);
    kb_endif(K, &back);
}

/* Rows that begin at multiples of 16 bytes are written by as many. */
static void all_rows(struct kb *k, const struct rows *r, const char *data, const char *row_stride,
                     const char *head_stride)
{
    val base = kb_param(K, data),
        strides = kb_or(K, kb_param(K, row_stride), kb_param(K, head_stride));
    val address = kb_address_bits(K, base, 15);
    val apart = kb_or(K, address, kb_andi(K, kb_trunc(K, strides, KB_I32), 7));
    struct kb_if wanted = kb_if(K, kb_not(K, kb_is_null(K, base)));
    struct kb_if units = kb_if(K, kb_icmpi(K, KB_EQ, apart, 0));
    rotated_rows(k, r, true);
    kb_else(K, &units);
    rotated_rows(k, r, false);
    kb_endif(K, &units);
    kb_endif(K, &wanted);
}

static void load_rows(struct kb *k, const struct pairs *p, const struct side *side, struct rows *r)
{
    *r = (struct rows){.pairs = p, .side = side};
    if (kb_plan(k)->shuffled && side->codec.kind == CODEC_CODEBOOK) {
        float centroids[SPEC_MAX_CENTROIDS];
        codebook_of_side(side, centroids);
        r->table = codebook_lanes(k, centroids, side->codec.bits);
    }
    for (int i = 0; i < p->n; i++) {
        struct rowvec v;
        share(k, side, &v);
        eights_load(k, &p->token[i], side, &v, &r->codes[i]);
    }
}

/* Both sides' loads are under way before the first is decoded. */
void pairs_write(struct kb *k, const struct pairs *p)
{
    const struct slot *slot = &kb_plan(k)->slot;
    struct rows key, value;
    if (slot->key.head_size)
        load_rows(k, p, &slot->key, &key);
    if (slot->value.head_size)
        load_rows(k, p, &slot->value, &value);
    key.row_of = rowpair_key;
    value.row_of = rowpair_value;
    if (slot->key.head_size)
        all_rows(k, &key, "key", "key_row", "key_head");
    if (slot->value.head_size)
        all_rows(k, &value, "value", "value_row", "value_head");
}
