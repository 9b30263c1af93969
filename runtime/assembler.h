/* SPDX-License-Identifier: Apache-2.0 */
/*
** assembler.h - finding what turns PTX into a cubin, without loading or starting it.
**
** The name is part of every nvptx cache key, so runtime and generator must find the same one: both link this file.
*/
#ifndef KVKILN_ASSEMBLER_H
#define KVKILN_ASSEMBLER_H

enum assembler_kind { ASSEMBLER_NONE, ASSEMBLER_NVJITLINK, ASSEMBLER_PTXAS };

struct assembler {
    enum assembler_kind kind;
    char path[512]; /* to load or to start */
    char name[96];  /* "nvJitLink 13.0 98806736": name, version by its real path, size in bytes; "none" */
};

/*
** Order: libnvJitLink.so.13, .12 (LD_LIBRARY_PATH, the loader's cache, then CUDA's usual folders), then ptxas (PATH,
** /usr/local/cuda/bin). A few stat calls; nothing is loaded. Returns 1 if something was found, else 0 and "none".
*/
int assembler_find(struct assembler *out);

#endif
