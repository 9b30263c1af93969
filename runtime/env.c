/* SPDX-License-Identifier: Apache-2.0 */
#include "env.h"

#include <stdlib.h>

const char *env_get(enum env_name name)
{
    static const char *const names[] = {
        [ENV_CACHE_DIR] = "KVKILN_CACHE_DIR",
        [ENV_SPECS] = "KVKILN_SPECS",
        [ENV_PACKS] = "KVKILN_PACKS",
        [ENV_GENERATOR] = "KVKILN_GENERATOR",
        [ENV_OVERLAP] = "KVKILN_OVERLAP",
        [ENV_XDG_CACHE] = "XDG_CACHE_HOME",
        [ENV_HOME] = "HOME",
        [ENV_PATH] = "PATH",
        [ENV_LIBRARY_PATH] = "LD_LIBRARY_PATH",
    };
    return getenv(names[name]);
}
