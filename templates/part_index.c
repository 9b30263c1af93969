/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_index.c - one number out of an array of int32 or int64.
*/
#include "part_index.h"

#include "../gen/kb.h"

val index_load(struct kb *k, val array, val index, val wide)
{
    val is_wide = kb_icmpi(K, KB_NE, wide, 0);
    struct kb_if either = kb_if(K, is_wide);
    val bytes64 = kb_shli(K, index, 3);
    val at64 = kb_offset(K, array, bytes64);
    val number64 = kb_load_once(K, KB_I64, at64, 8);
    kb_else(K, &either);
    val bytes32 = kb_shli(K, index, 2);
    val at32 = kb_offset(K, array, bytes32);
    val number32 = kb_load_once(K, KB_I32, at32, 4);
    val extended = kb_sext(K, number32, KB_I64);
    kb_endif(K, &either);
    return kb_merge(K, &either, number64, extended);
}
