/* SPDX-License-Identifier: Apache-2.0 */
/*
** abi_table.h - abi.def as a table for the targets' entry role.
*/
#ifndef KVKILN_GEN_ABI_TABLE_H
#define KVKILN_GEN_ABI_TABLE_H

enum { ABI_MOST_PARAMS = 40 };

/* Parameters of one entry in order: name, kb type (KB_GLOBAL, KB_I64, KB_I32, KB_F32), byte offset in the parameter
** buffer (the C struct's own). Returns how many; at most `max` are written. */
int abi_params(const char *entry, const char *names[], int types[], int offsets[], int max);

/* Bytes of the parameter buffer. A multiple of 8, or the C struct ends in padding and CUDA refuses the launch. */
int abi_bytes(const char *entry);

#endif
