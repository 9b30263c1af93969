/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_native.h - codes of the native layout (gen/native.h, docs/layouts.md) by eights.
**
** Eight m is elements 8m ... 8m + 7 of a token. As a word it is eight nibbles, lowest first, whatever the width up to 4 bits; codes
** of 8 bits are two words.
*/
#ifndef KVKILN_PART_NATIVE_H
#define KVKILN_PART_NATIVE_H

#include "part_rowvec.h"
#include "part_slot.h"

/* Of any layout: a warp's codes of one side, as part_pack.h has them. */
void slot_store(struct kb *k, const struct slot_token *token, const struct side *side, const struct rowvec *v, const val *code);
void slot_load(struct kb *k, const struct slot_token *token, const struct side *side, const struct rowvec *v, val *code);

/* Of this one. No byte of another token is read or written. */
void native_store(struct kb *k, const struct slot_token *token, const struct side *side, const struct rowvec *v,
                  const val *code);
/* The same of a shared vector: word[j] are the codes of eight j * v->lanes + lane, two words of 8-bit ones; if `exists`. */
void native_store_eights(struct kb *k, const struct slot_token *token, const struct side *side, const struct rowvec *v,
                         const val word[][2], val exists);
void native_load(struct kb *k, const struct slot_token *token, const struct side *side, const struct rowvec *v, val *code);

/* Eight m (i32), read-only memory. */
void native_load8(struct kb *k, const struct slot_token *token, const struct side *side, val m, val words[2]);

/* `run` codes from element `first` (i32, a multiple of `step`) as one LSB-first stream of their own width, read-only memory. */
void native_load_run(struct kb *k, const struct slot_token *token, const struct side *side, val first, int run, int step,
                     val *words);

#endif
