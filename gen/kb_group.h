/* SPDX-License-Identifier: Apache-2.0 */
/*
** kb_group.h - roles of kernels whose matrix products read shared memory: four warps, a group, multiply 64 rows at once, while
** other warps bring the operands.
**
** A tile is `rows` rows (64 of one group's queries, 64 tokens) of 16-bit elements in blocks of 64 columns: [block][row][64], where
** the 16-byte unit u of row r lies at unit u ^ (r & 7). It begins at a multiple of 1024 bytes. Where a target has no such product,
** each warp of the group multiplies its 16 rows by the matrix role: same results, same places.
**
** A lane holds, of a result of n columns, n / 2 floats: [column / 8][row half][e], the row being 16 * (warp % 4) + lane / 4 + 8 *
** half and the column 8 * (column / 8) + 2 * (lane % 4) + e. Products are started, and ended by kb_group_wait in the order in
** which they were started; until then results are not to be touched, nor operands to be overwritten.
*/
#ifndef KVKILN_GEN_KB_GROUP_H
#define KVKILN_GEN_KB_GROUP_H

#include "kb.h"

enum { KB_GROUP_ROWS = 64, KB_GROUP_WARPS = 4, KB_TILE_TOKENS = 64, KB_UNIT = 16 };

/* Bytes of a tile of `columns` columns, from block to block, and to the unit of a row and column in the first: unit and row i32. */
int kb_tile_bytes(int columns);
val kb_tile_offset(struct kb *k, val row, val unit);

/* s[KB_TILE_TOKENS / 2] = queries x keys; type KB_F16 or KB_BF16; `size` columns each. */
void kb_group_scores(struct kb *k, int type, int size, val queries, val keys, val *s);
/* o[size / 2] += p x values; p: `terms` (1 or 2) times KB_TILE_TOKENS / 4 pairs, [token / 8][row half], whose sum is meant. */
void kb_group_values(struct kb *k, int type, int size, const val *p, int terms, val values, val *o);
/* Until at most `pending` products are not done; x[0..n): what the ones that are done wrote, held[0..m): what they read. */
void kb_group_wait(struct kb *k, int pending, val *x, int n, const val *held, int m);
/* A barrier of the group's 128 threads; what they stored in shared memory before it, products may read after it. */
void kb_group_sync(struct kb *k, val group);
/* The registers of a thread of this group from here on: `more` than at the start, or less. */
void kb_group_registers(struct kb *k, int registers, bool more);

/* 16 bytes from global to shared memory, or zeros where `valid` (i1) is false: then nothing is read. */
void kb_copy(struct kb *k, val to, val from, val valid);
/* Copies of this thread begun since the last call are one batch; until at most `pending` batches are not done: products may then
** read the others, once told by an arrival. */
void kb_copy_batch(struct kb *k);
void kb_copy_wait(struct kb *k, int pending);
/* Arrives at an mbarrier (see kb_bulk_init); by single lanes. */
void kb_arrive(struct kb *k, val bar);

#endif
