/* SPDX-License-Identifier: Apache-2.0 */
/*
** loader.c - finding the generator: registered by a static build, or libkvkiln-gen.so, loaded on
** the first need.
*/
#include "context.h"

#include "build_id.h"
#include "error.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define GENERATOR_FILE "libkvkiln-gen.so"

typedef const struct gen_api *generator_function(void);

/* The one writable datum of the library: set once by the program, before contexts are opened. */
static _Atomic(generator_function *) registered;

void kvk_register_generator(generator_function *get) { atomic_store(&registered, get); }

/* Path of the file beside the library that holds this function, or 0. */
static int beside_runtime(char *path, size_t cap)
{
    Dl_info info;
    const void *here = &registered;
    if (!dladdr(here, &info) || !info.dli_fname)
        return 0;
    const char *slash = strrchr(info.dli_fname, '/');
    int dir = slash ? (int)(slash - info.dli_fname) : 0;
    int n = slash ? snprintf(path, cap, "%.*s/%s", dir, info.dli_fname, GENERATOR_FILE) : -1;
    return n > 0 && (size_t)n < cap && access(path, R_OK) == 0;
}

static kvk_status load_library(kvk_context *ctx, void **library, kvk_error *err)
{
    char beside[PATH_MAX];
    const char *path = GENERATOR_FILE;
    if (*ctx->generator_path)
        path = ctx->generator_path;
    else if (beside_runtime(beside, sizeof beside))
        path = beside;
    *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (*library)
        return KVK_OK;
    const char *why = dlerror();
    return ERR(err, KVK_E_GENERATOR,
               "the kernel generator cannot be loaded (it is needed to compile): %s",
               why ? why : path);
}

/* File of the generator's library, for messages; borrowed. */
static const char *file_of(generator_function *get)
{
    Dl_info info;
    const void *address;
    memcpy(&address, &get, sizeof address);
    return dladdr(address, &info) && info.dli_fname ? info.dli_fname : GENERATOR_FILE;
}

static kvk_status check(const struct gen_api *api, generator_function *get, kvk_error *err)
{
    if (!api)
        return ERR(err, KVK_E_GENERATOR, "%s has no table of functions", file_of(get));
    if (api->version != KVK_GEN_API_VERSION)
        return ERR(err, KVK_E_GENERATOR,
                   "%s has interface version %u, this runtime needs %d: install "
                   "the " GENERATOR_FILE " that came with it",
                   file_of(get), (unsigned)api->version, KVK_GEN_API_VERSION);
    if (strcmp(api->build_id, KVK_BUILD_ID) != 0)
        return ERR(err, KVK_E_GENERATOR,
                   "%s is build %s, this runtime belongs to build %s: install "
                   "the " GENERATOR_FILE " that came with it",
                   file_of(get), api->build_id, KVK_BUILD_ID);
    return KVK_OK;
}

static kvk_status find(kvk_context *ctx, const struct gen_api **out, kvk_error *err)
{
    generator_function *get = atomic_load(&registered);
    if (!get || *ctx->generator_path) {
        void *library;
        kvk_status status = load_library(ctx, &library, err);
        if (status)
            return status;
        void *symbol = dlsym(library, "kvk_generator");
        if (!symbol)
            return ERR(err, KVK_E_GENERATOR, "%s has no kvk_generator",
                       *ctx->generator_path ? ctx->generator_path : GENERATOR_FILE);
        memcpy(&get, &symbol, sizeof get);
    }
    *out = get();
    return check(*out, get, err);
}

kvk_status loader_get(kvk_context *ctx, const struct gen_api **out, kvk_error *err)
{
    const struct gen_api *api = NULL;
    kvk_status status = KVK_OK;
    pthread_mutex_lock(&ctx->generator_mutex);
    if (ctx->generator)
        api = ctx->generator;
    else if ((status = find(ctx, &api, err)) == KVK_OK)
        ctx->generator = api;
    pthread_mutex_unlock(&ctx->generator_mutex);
    *out = api;
    return status;
}
