/* SPDX-License-Identifier: Apache-2.0 */
/* generator.c - see generator.h. */
#include "generator.h"

#include "cli.h"

#include "build_id.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef KVKILN_STATIC

char *generator_path(void) { return NULL; }

void generator_register(void) { kvk_register_generator(kvk_generator); }

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

/* Beside the runtime library, wherever that was installed. */
char *generator_path(void)
{
    Dl_info info;
    const char *(*here)(void) = kvk_version;
    const void *address;
    if (getenv("KVKILN_GENERATOR"))
        return cli_format("%s", getenv("KVKILN_GENERATOR"));
    memcpy(&address, &here, sizeof address);
    const char *slash =
        dladdr(address, &info) && info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
    if (!slash)
        return NULL;
    char *path = cli_format("%.*s/libkvkiln-gen.so", (int)(slash - info.dli_fname), info.dli_fname);
    if (!access(path, R_OK))
        return path;
    free(path);
    return NULL;
}

void generator_register(void) {}

static const struct gen_api *check(const struct gen_api *api, const char *path, kvk_error *err)
{
    char text[400];
    if (!api) {
        snprintf(text, sizeof text, "%s has no kvk_generator", path);
        return fail(err, text);
    }
    if (api->version != KVK_GEN_API_VERSION)
        snprintf(text, sizeof text, "%s has interface version %u, this program needs %d", path,
                 (unsigned)api->version, KVK_GEN_API_VERSION);
    else if (strcmp(api->build_id, KVK_BUILD_ID) != 0)
        snprintf(text, sizeof text, "%s is build %s, this program belongs to build %s", path,
                 api->build_id, KVK_BUILD_ID);
    else
        return api;
    return fail(err, text);
}

const struct gen_api *generator_get(kvk_error *err)
{
    char *path = generator_path();
    const char *name = path ? path : "libkvkiln-gen.so";
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    const struct gen_api *(*get)(void) = NULL, *api;
    if (library)
        *(void **)&get = dlsym(library, "kvk_generator");
    api = library ? check(get ? get() : NULL, name, err) : fail(err, dlerror());
    free(path);
    return api;
}

#endif
