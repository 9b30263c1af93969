/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_rowpair.h - which (row, head) a warp handles in the kinds that do not attend, and where rows of K and V lie.
*/
#ifndef KVKILN_PART_ROWPAIR_H
#define KVKILN_PART_ROWPAIR_H

#include "../gen/plan.h"

/* row: i64, head: i32, equal in all lanes. A warp beyond the last row has left the kernel. */
struct rowpair { val row, head; };
struct rowpair rowpair_begin(struct kb *k);
/* The same where the parameters that count them are not called rows and kv_heads. */
struct rowpair rowpair_begin_of(struct kb *k, const char *rows, const char *heads);

/* Element 0 of the pair's row in the tensor of parameters `name`, `name`_row, `name`_head (key or value). */
val rowpair_key(struct kb *k, const struct rowpair *pair);
val rowpair_value(struct kb *k, const struct rowpair *pair);

/* KB_F16 or KB_BF16: the elements of these tensors. */
int rowpair_type(struct kb *k);

#endif
