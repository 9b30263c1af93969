/* SPDX-License-Identifier: Apache-2.0 */
/*
** env.h - the one place where the libraries read the environment.
*/
#ifndef KVKILN_ENV_H
#define KVKILN_ENV_H

enum env_name {
    ENV_CACHE_DIR,    /* KVKILN_CACHE_DIR: cache directory; "" = memory only */
    ENV_SPECS,        /* KVKILN_SPECS: colon-separated directories of specs */
    ENV_PACKS,        /* KVKILN_PACKS: colon-separated packs */
    ENV_GENERATOR,    /* KVKILN_GENERATOR: path of libkvkiln-gen.so */
    ENV_OVERLAP,      /* KVKILN_OVERLAP: 1, 2: kvk_options.overlap_launches */
    ENV_XDG_CACHE,    /* XDG_CACHE_HOME */
    ENV_HOME,         /* HOME */
    ENV_PATH,         /* PATH: where ptxas is looked for */
    ENV_LIBRARY_PATH  /* LD_LIBRARY_PATH: where nvJitLink is looked for */
};

/* The value, borrowed from the environment, or NULL where it is unset. */
const char *env_get(enum env_name name);

#endif
