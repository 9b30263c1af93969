/* SPDX-License-Identifier: Apache-2.0 */
/*
** abi.h - abi.def as C structs: `struct abi_store` ... `struct abi_dequant` are exactly the kernel's parameter buffer.
*/
#ifndef KVKILN_ABI_H
#define KVKILN_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t abi_PTR;
typedef int64_t abi_I64;
typedef int32_t abi_I32;
typedef float abi_F32;

#define ABI_store(t, n)
#define ABI_decode(t, n)
#define ABI_reduce(t, n)
#define ABI_unified(t, n)
#define ABI_dequant(t, n)
#define ABI_merge(t, n)
#define ABI_copy(t, n)
#define ABI_convert(t, n)
#define ABI(entry, type, name) ABI_##entry(type, name)
#define ABI_FIELD(t, n) abi_##t n;

struct abi_store {
#undef ABI_store
#define ABI_store(t, n) ABI_FIELD(t, n)
#include "abi.def"
#undef ABI_store
#define ABI_store(t, n)
};
struct abi_decode {
#undef ABI_decode
#define ABI_decode(t, n) ABI_FIELD(t, n)
#include "abi.def"
#undef ABI_decode
#define ABI_decode(t, n)
};
struct abi_reduce {
#undef ABI_reduce
#define ABI_reduce(t, n) ABI_FIELD(t, n)
#include "abi.def"
#undef ABI_reduce
#define ABI_reduce(t, n)
};
struct abi_unified {
#undef ABI_unified
#define ABI_unified(t, n) ABI_FIELD(t, n)
#include "abi.def"
#undef ABI_unified
#define ABI_unified(t, n)
};
struct abi_dequant {
#undef ABI_dequant
#define ABI_dequant(t, n) ABI_FIELD(t, n)
#include "abi.def"
#undef ABI_dequant
#define ABI_dequant(t, n)
};
struct abi_merge {
#undef ABI_merge
#define ABI_merge(t, n) ABI_FIELD(t, n)
#include "abi.def"
#undef ABI_merge
#define ABI_merge(t, n)
};
struct abi_copy {
#undef ABI_copy
#define ABI_copy(t, n) ABI_FIELD(t, n)
#include "abi.def"
#undef ABI_copy
#define ABI_copy(t, n)
};
struct abi_convert {
#undef ABI_convert
#define ABI_convert(t, n) ABI_FIELD(t, n)
#include "abi.def"
#undef ABI_convert
#define ABI_convert(t, n)
};
#undef ABI
#undef ABI_FIELD
#undef ABI_store
#undef ABI_decode
#undef ABI_reduce
#undef ABI_unified
#undef ABI_dequant
#undef ABI_merge
#undef ABI_copy
#undef ABI_convert

#endif
