/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_index.h - one number out of an array of int32 or int64: slot mappings, block tables.
*/
#ifndef KVKILN_PART_INDEX_H
#define KVKILN_PART_INDEX_H

#include "../gen/plan.h"

/* Entry `index` (i64) of `array`, as i64. wide (i32): not 0 if the array holds int64. */
val index_load(struct kb *k, val array, val index, val wide);

#endif
