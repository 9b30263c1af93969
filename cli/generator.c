/* SPDX-License-Identifier: Apache-2.0 */
/* generator.c - see generator.h. */
#include "generator.h"

#include "cli.h"
#include "paths.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef KVKILN_STATIC

char *generator_path(void)
{
    return NULL;
}

void generator_register(void)
{
    kvk_register_generator(kvk_generator);
}

const struct gen_api *generator_get(kvk_error *err)
{
    (void)err;
    return kvk_generator();
}

#else

static const struct gen_api *fail(kvk_error *err, const char *text)
{
    if (err) {
        memset(err, 0, sizeof *err);
        err->status = KVK_E_GENERATOR;
        snprintf(err->where, sizeof err->where, "generator_get");
        snprintf(err->text, sizeof err->text, "%s", text);
    }
    return NULL;
}

char *generator_path(void)
{
    if (getenv("KVKILN_GENERATOR"))
        return cli_format("%s", getenv("KVKILN_GENERATOR"));
    char *dir = paths_executable_dir(), *path = cli_format("%s/../lib/libkvkiln-gen.so", dir);
    free(dir);
    if (!access(path, R_OK))
        return path;
    free(path);
    return NULL;
}

void generator_register(void)
{
}

const struct gen_api *generator_get(kvk_error *err)
{
    char *path = generator_path();
    void *library = dlopen(path ? path : "libkvkiln-gen.so", RTLD_NOW | RTLD_LOCAL);
    free(path);
    if (!library)
        return fail(err, dlerror());
    const struct gen_api *(*get)(void);
    *(void **)&get = dlsym(library, "kvk_generator");
    const struct gen_api *api = get ? get() : NULL;
    if (!api)
        return fail(err, "libkvkiln-gen.so has no kvk_generator");
    if (api->version != KVK_GEN_API_VERSION)
        return fail(err, "libkvkiln-gen.so is of another version");
    return api;
}

#endif
