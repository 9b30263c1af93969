/* SPDX-License-Identifier: Apache-2.0 */
/* check_store.h - stored bytes against a sample's cache, field by field. */
#ifndef KVKILN_CLI_CHECK_STORE_H
#define KVKILN_CLI_CHECK_STORE_H

#include "compare.h"
#include "sample.h"

/* `pool` is what our store left of a pool filled with 0xA5, in
 * the sample's own layout. Adds one comparison a field. */
void check_store(const struct sample *sample, const unsigned char *pool, struct comparisons *all);

/* The same for a pool of another layout (`slots`): codes and
 * fields where each layout keeps them; no untouched bytes. */
void check_store_across(const struct sample *sample, const struct slots *slots,
                        const unsigned char *pool, struct comparisons *all);

#endif
