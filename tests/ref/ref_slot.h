/* SPDX-License-Identifier: Apache-2.0 */
/*
** ref_slot.h - whole slots in and out of pools of any layout. Part of ref.h; others include that.
*/
#ifndef KVKILN_TESTS_REF_SLOT_H
#define KVKILN_TESTS_REF_SLOT_H

#include "ref.h"

/* ref_native.c. One slot out of its pool, in the order of aos: codes (and scales behind them), fields. */
struct ref_slot {
    uint8_t key[2 * REF_MAX_D], value[2 * REF_MAX_D];
    uint16_t field[REF_MAX_FIELDS];
};
void ref_slot_get(const struct ref_format *f, const struct ref_pool *pool, int64_t slot, int head,
                  struct ref_slot *out);
void ref_slot_put(const struct ref_format *f, const struct ref_pool *pool, int64_t slot, int head,
                  const struct ref_slot *in);
/* ref_store.c: a side's first field in another layout, and any other field as it is */
uint16_t ref_convert_scalar(const struct ref_codec *codec, const float *centroids,
                            enum ref_layout from, enum ref_layout to, const uint8_t *codes,
                            uint16_t field, int d);
/* native: which bit of its head block is bit `bit` of the code of a token's element; side 1: values */
size_t ref_native_bit(const struct ref_format *f, int side, int token, int element, int bit);

#endif
