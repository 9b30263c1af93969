/* SPDX-License-Identifier: Apache-2.0 */
/*
** target.c - the table of targets, and abi.def as the generator reads it.
*/
#include "target.h"

#include "abi_table.h"

#include <string.h>

#define OPS_FAMILY_HOST (&target_ops_host)
#define OPS_FAMILY_NVPTX (&target_ops_nvptx)
#define OPS_FAMILY_AMDGCN (&target_ops_amdgcn)

static const struct target targets[] = {
#define TARGET(name, family, cpu, features, flags, warp, shared, registers, ...)                   \
    {name, family, cpu, features, flags, warp, shared, registers, __VA_ARGS__, OPS_##family},
#include "targets.def"
#undef TARGET
};

enum { NTARGETS = sizeof targets / sizeof *targets };

const struct target *target_at(int index)
{
    return index >= 0 && index < NTARGETS ? &targets[index] : NULL;
}

const struct target *target_find(const char *name)
{
    for (int i = 0; i < NTARGETS; i++)
        if (!strcmp(targets[i].name, name))
            return &targets[i];
    return NULL;
}

static const struct abi_row {
    const char *entry, *name;
    int type;
} rows[] = {
#define TYPE_PTR KB_GLOBAL
#define TYPE_I64 KB_I64
#define TYPE_I32 KB_I32
#define TYPE_F32 KB_F32
#define ABI(entry, type, name) {#entry, #name, TYPE_##type},
#include "../runtime/abi.def"
#undef ABI
};

int abi_params(const char *entry, const char *names[], int types[], int offsets[], int max)
{
    int n = 0, offset = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].entry, entry) && n < max) {
            int size = rows[i].type == KB_GLOBAL || rows[i].type == KB_I64 ? 8 : 4;
            offset = (offset + size - 1) / size * size;
            names[n] = rows[i].name;
            types[n] = rows[i].type;
            offsets[n++] = offset;
            offset += size;
        }
    return n;
}

int abi_bytes(const char *entry)
{
    const char *names[64];
    int types[64], offsets[64], n = abi_params(entry, names, types, offsets, 64);
    return n ? offsets[n - 1] + (types[n - 1] == KB_GLOBAL || types[n - 1] == KB_I64 ? 8 : 4) : 0;
}
