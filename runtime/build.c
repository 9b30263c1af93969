/* SPDX-License-Identifier: Apache-2.0 */
/*
** build.c - one kernel, from its key to entries that can be launched. Everything slow happens here,
** under no lock.
*/
#include "context.h"

#include "build_id.h"
#include "error.h"
#include "key.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TILE_MOST = 1 << 20,
    REDUCE_EIGHT = 8 /* threads of a reduction that work together: launches count in them */
};

void kernel_free(kvk_context *ctx, struct kernel *k)
{
    if (!k)
        return;
    if (k->module)
        ctx->driver->unload(ctx->device, k->module);
    free(k->bytes);
    free(k->key);
    free(k);
}

/* A line that only some kinds have: 0 if it is not there. Launches multiply by it without looking. */
static kvk_status read_tile(const struct kernel *k, const char *name, long long *out,
                            kvk_error *err)
{
    *out = 0;
    if (object_get_int(&k->object, name, out) && (*out < 0 || *out > TILE_MOST))
        return ERR(err, KVK_E_OBJECT, "kernel %s: manifest: %s is %lld, accepted 0..%d", k->name,
                   name, *out, TILE_MOST);
    return KVK_OK;
}

static kvk_status check_manifest(const kvk_context *ctx, struct kernel *k, kvk_error *err)
{
    long long abi;
    char target[32];
    if (!object_get(&k->object, "kernel", k->name, sizeof k->name))
        return ERR(err, KVK_E_OBJECT, "a manifest has no line \"kernel\"");
    if (!object_get_int(&k->object, "abi", &abi) || abi != KVK_ABI_VERSION)
        return ERR(err, KVK_E_OBJECT, "kernel %s has another argument layout than version %d",
                   k->name, KVK_ABI_VERSION);
    if (!object_get(&k->object, "target", target, sizeof target) ||
        strcmp(target, ctx->info.target) != 0)
        return ERR(err, KVK_E_OBJECT, "kernel %s is not made for %s", k->name, ctx->info.target);
    kvk_status status = read_tile(k, "rows", &k->rows, err);
    if (!status)
        status = read_tile(k, "vectors", &k->vectors, err);
    if (!status)
        status = read_tile(k, "tile_tokens", &k->tile_tokens, err);
    if (!status)
        status = read_tile(k, "image_heads", &k->image_heads, err);
    if (!status)
        status = read_tile(k, "image_padding", &k->image_padding, err);
    if (!status)
        status = read_tile(k, "image_group", &k->image_group, err);
    if (!k->image_group) /* no such line */
        k->image_group = 4;
    if (!status)
        status = read_tile(k, "turned", &k->turned, err);
    return status ? status : read_tile(k, "neighbours", &k->neighbours, err);
}

static kvk_status find_entry(kvk_context *ctx, struct kernel *k, const char *kind,
                             struct driver_entry *out, kvk_error *err)
{
    char name[32], value[256], line[300];
    snprintf(name, sizeof name, "entry %s", kind);
    if (!object_get(&k->object, name, value, sizeof value))
        return ERR(err, KVK_E_OBJECT, "kernel %s has no line \"%s\" in its manifest", k->name,
                   name);
    snprintf(line, sizeof line, "%s %s", kind, value);
    kvk_status status = ctx->driver->entry(ctx->device, k->module, line, out, err);
    if (!status && !out->threads)
        return ERR(err, KVK_E_OBJECT, "kernel %s: entry \"%s\" has no threads", k->name, line);
    return status;
}

/* What the launches of a kind divide by. */
static kvk_status check_tiles(const struct kernel *k, const char *kind, kvk_error *err)
{
    const char *missing = NULL;
    int decode = strcmp(kind, "decode") == 0, attends = decode || strcmp(kind, "unified") == 0;
    if (!attends && k->vectors < 1)
        missing = "vectors";
    else if (attends && k->rows < 1)
        missing = "rows";
    else if (decode && k->tile_tokens < 1)
        missing = "tile_tokens";
    if (k->image_group != 4 && k->image_group != 8)
        return ERR(err, KVK_E_OBJECT, "kernel %s: manifest: image_group is %lld, accepted 4, 8",
                   k->name, k->image_group);
    if (decode && k->image_heads && k->tile_tokens % k->image_heads)
        return ERR(err, KVK_E_OBJECT,
                   "kernel %s: manifest: image_heads is %lld, no divisor of tile_tokens, %lld",
                   k->name, k->image_heads, k->tile_tokens);
    return missing
               ? ERR(err, KVK_E_OBJECT, "kernel %s: its manifest has no \"%s\"", k->name, missing)
               : KVK_OK;
}

/* Object bytes in k -> module and entries. On failure the bytes stay, the module does not. */
static kvk_status load(kvk_context *ctx, struct kernel *k, const char *kind, kvk_error *err)
{
    kvk_status status = check_manifest(ctx, k, err);
    if (!status)
        status = check_tiles(k, kind, err);
    if (!status && (status = ctx->driver->load(ctx->device, &k->object, &k->module, err)) != KVK_OK)
        k->module = NULL;
    if (!status)
        status = find_entry(ctx, k, kind, &k->main, err);
    if (!status && strcmp(kind, "merge") == 0)
        status = find_entry(ctx, k, "reduce", &k->reduce, err);
    if (!status && k->reduce.threads % REDUCE_EIGHT)
        status = ERR(err, KVK_E_OBJECT,
                     "kernel %s: manifest: entry reduce has %d threads, no multiple of %d", k->name,
                     (int)k->reduce.threads, REDUCE_EIGHT);
    long long waits = 0;
    object_get_int(&k->object, "grid_wait", &waits);
    k->main.overlaps = k->reduce.overlaps = ctx->overlap && waits == 1;
    if (status && k->module) {
        ctx->driver->unload(ctx->device, k->module);
        k->module = NULL;
    }
    return status;
}

static void drop_bytes(struct kernel *k)
{
    free(k->bytes);
    k->bytes = NULL;
    memset(&k->object, 0, sizeof k->object);
}

static kvk_status adopt(struct kernel *k, void *bytes, size_t size, kvk_error *err)
{
    kvk_status status = object_parse(bytes, size, &k->object, err);
    if (status)
        free(bytes);
    else
        k->bytes = bytes;
    return status;
}

/* The generator's object under the runtime's key text, which alone names it in the cache. */
static kvk_status seal_under_key(const struct kernel *k, const void *object, size_t bytes,
                                 void **out, size_t *out_bytes, kvk_error *err)
{
    struct object parts;
    kvk_status status = object_parse(object, bytes, &parts, err);
    if (status)
        return status;
    parts.key = k->key;
    parts.key_bytes = strlen(k->key);
    return object_seal(&parts, out, out_bytes, err);
}

static kvk_status compile(kvk_context *ctx, struct kernel *k, const struct gen_request *request,
                          kvk_error *err)
{
    const struct gen_api *api;
    struct gen_artifacts made = {0};
    void *bytes = NULL;
    size_t size = 0;
    kvk_status status = loader_get(ctx, &api, err);
    if (!status)
        status = api->compile(request, 1u << GEN_EMIT_OBJECT, &made, err);
    if (status)
        return status;
    if (!made.data[GEN_EMIT_OBJECT])
        status = ERR(err, KVK_E_GENERATOR, "the generator made no object");
    else
        status = seal_under_key(k, made.data[GEN_EMIT_OBJECT], made.bytes[GEN_EMIT_OBJECT], &bytes,
                                &size, err);
    api->artifacts_free(&made);
    if (status)
        return status;
    cache_store(&ctx->cache, k->key, bytes, size);
    k->origin = "compiled";
    return adopt(k, bytes, size, err);
}

/* Is this object's trouble with the driver of a kind that PTX, which the driver assembles itself,
** could get round? */
static int ptx_could_help(const struct kernel *k, kvk_status status)
{
    char format[16];
    return status == KVK_E_UNSUPPORTED && object_get(&k->object, "format", format, sizeof format) &&
           strcmp(format, "cubin") == 0;
}

/* Places where a kernel may be ready, in the order in which they are asked. */
enum store { STORE_PACKS, STORE_PACKS_PTX, STORE_CACHE, STORES };

static kvk_status fetch(kvk_context *ctx, struct kernel *k, const struct gen_request *request,
                        enum store store, int *found, kvk_error *err)
{
    size_t size;
    void *bytes = NULL;
    kvk_status status = KVK_OK;
    if (store == STORE_CACHE)
        bytes = cache_load(&ctx->cache, k->key, &size);
    else
        status = packs_load(&ctx->packs, request, store == STORE_PACKS_PTX, &bytes, &size, err);
    *found = bytes != NULL;
    if (!bytes)
        return status;
    k->origin = store == STORE_CACHE ? "cache" : "pack";
    return adopt(k, bytes, size, err);
}

static kvk_status miss(const kvk_context *ctx, const struct gen_request *request, kvk_error *err)
{
    char name[160], packs[240];
    gen_request_name(request, name, sizeof name);
    packs_describe(&ctx->packs, request->target, packs, sizeof packs);
    return ERR(err, KVK_E_MISS,
               "%s for %s is missing: sought %s%s%s%.100s; compiling is not allowed", name,
               request->target, *packs ? packs : "in no pack", ctx->cache.dir ? ", " : "",
               ctx->cache.dir ? "in cache " : ", and there is no cache folder",
               ctx->cache.dir ? ctx->cache.dir : "");
}

/* PTX of the kernel, from wherever it can be had, under k->key. */
static kvk_status get_ptx(kvk_context *ctx, struct kernel *k, const struct gen_request *ptx,
                          kvk_error *err)
{
    int found = 0;
    kvk_status status = KVK_OK;
    for (int s = STORE_PACKS_PTX; s < STORES && !found && !status; s++)
        status = fetch(ctx, k, ptx, (enum store)s, &found, err);
    if (status || found)
        return status;
    return ctx->compile == KVK_COMPILE_NEVER ? miss(ctx, ptx, err) : compile(ctx, k, ptx, err);
}

/* A driver older than the cubin: the same kernel as PTX, under its own key. */
static kvk_status build_ptx(kvk_context *ctx, struct kernel *k, const struct gen_request *request,
                            const kvk_error *refused, kvk_error *err)
{
    struct gen_request ptx = *request;
    char *cubin_key = k->key;
    kvk_error below = {0};
    ptx.assemble = 0;
    k->key = key_make(&ptx, KVK_BUILD_ID, "none");
    if (!k->key) {
        k->key = cubin_key;
        return ERR(err, KVK_E_MEMORY, "no memory for a key");
    }
    drop_bytes(k);
    kvk_status status = get_ptx(ctx, k, &ptx, &below);
    if (!status)
        status = load(ctx, k, ptx.kind, &below);
    free(k->key); /* in memory the kernel goes by the key that was asked for */
    k->key = cubin_key;
    if (!status && ctx->log)
        ctx->log(ctx->log_data, KVK_LOG_WARNING,
                 "the driver is older than the assembled kernel: using PTX instead");
    return !status ? KVK_OK
                   : error_driver(err, refused->status, refused->driver, refused->where,
                                  "%.250s; nor does PTX help: %.190s", refused->text, below.text);
}

static kvk_status finish(kvk_context *ctx, struct kernel *k, const struct gen_request *request,
                         kvk_error *err)
{
    kvk_error refused = {0};
    kvk_status status = load(ctx, k, request->kind, &refused);
    if (ptx_could_help(k, status))
        return build_ptx(ctx, k, request, &refused, err);
    if (status && err)
        *err = refused;
    return status;
}

kvk_status build_from_store(kvk_context *ctx, struct kernel *k, const struct gen_request *request,
                            int *found, kvk_error *err)
{
    double start = clock_ms();
    kvk_status status = KVK_OK, useless = KVK_OK;
    *found = 0;
    for (int s = 0; s < STORES && !*found && !status; s++) {
        if (s == STORE_PACKS_PTX && strncmp(request->target, "sm_", 3) != 0)
            continue; /* one format, one key */
        status = fetch(ctx, k, request, (enum store)s, found, err);
        if (!status && *found)
            status = finish(ctx, k, request, err);
        if (status == KVK_E_OBJECT) { /* whole, but of no use: sought further, and replaced */
            drop_bytes(k);
            *found = 0;
            useless = status;
            status = KVK_OK;
        }
    }
    if (!status && !*found && ctx->compile == KVK_COMPILE_NEVER)
        status = useless ? useless : miss(ctx, request, err);
    k->build_ms = clock_ms() - start;
    return status;
}

kvk_status build_by_compiling(kvk_context *ctx, struct kernel *k, const struct gen_request *request,
                              kvk_error *err)
{
    double start = clock_ms();
    kvk_status status = compile(ctx, k, request, err);
    if (!status)
        status = finish(ctx, k, request, err);
    k->build_ms += clock_ms() - start;
    return status;
}
