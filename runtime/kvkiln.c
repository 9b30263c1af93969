/* SPDX-License-Identifier: Apache-2.0 */
/*
** kvkiln.c - the context: opening, closing, what was opened, and the small device services.
*/
#include "context.h"

#include "env.h"
#include "error.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char *kvk_version(void)
{
    return TEXT(KVK_VERSION_MAJOR) "." TEXT(KVK_VERSION_MINOR) "." TEXT(KVK_VERSION_PATCH);
}

kvk_status args_check_from(const void *args, size_t least, size_t known, const char *name,
                           kvk_error *err)
{
    size_t size;
    if (!args)
        return error_set(err, KVK_E_ARG, name, "struct %s is NULL", name);
    memcpy(&size, args, sizeof size);
    if (size < least)
        return error_set(err, KVK_E_ARG, name,
                         "struct %s: size is %zu, this library needs %zu: initialise with KVK_INIT",
                         name, size, least);
    for (size_t i = known; i < size; i++)
        if (((const unsigned char *)args)[i])
            return error_set(err, KVK_E_UNSUPPORTED, name,
                             "struct %s: a field at byte %zu is set that version %s does not know",
                             name, i, kvk_version());
    return KVK_OK;
}

kvk_status args_check(const void *args, size_t known, const char *name, kvk_error *err)
{
    return args_check_from(args, known, known, name, err);
}

/* Options of a program built against an older header end earlier: the rest is the default. */
static kvk_status take_options(const struct kvk_options *given, struct kvk_options *out,
                               kvk_error *err)
{
    const size_t first_release = offsetof(struct kvk_options, packs);
    *out = KVK_INIT(struct kvk_options);
    if (!given)
        return KVK_OK;
    kvk_status status = args_check_from(given, first_release, sizeof *out, "kvk_options", err);
    if (status)
        return status;
    memcpy(out, given, given->size < sizeof *out ? given->size : sizeof *out);
    if (out->compile != KVK_COMPILE_ON_MISS && out->compile != KVK_COMPILE_NEVER)
        return ERR(err, KVK_E_ARG, "compile is %d, accepted 0 or 1", (int)out->compile);
    if (out->prepare_threads < 0 || out->prepare_threads > PREPARE_THREADS_MOST)
        return ERR(err, KVK_E_ARG, "prepare_threads is %d, accepted 0..%d", out->prepare_threads,
                   PREPARE_THREADS_MOST);
    if (out->overlap_launches < 0 || out->overlap_launches > 2)
        return ERR(err, KVK_E_ARG, "overlap_launches is %d, accepted 0..2", out->overlap_launches);
    return KVK_OK;
}

static kvk_status take_overlap(kvk_context *ctx, int given, kvk_error *err)
{
    const char *text = given ? NULL : env_get(ENV_OVERLAP);
    if (text && *text && strcmp(text, "1") != 0 && strcmp(text, "2") != 0)
        return ERR(err, KVK_E_ARG, "$KVKILN_OVERLAP is \"%s\", accepted 1, 2", text);
    ctx->overlap = text ? *text == '1' : given == 1;
    return KVK_OK;
}

static char *copy_or_env(const char *text, enum env_name name)
{
    if (!text)
        text = env_get(name);
    return strdup(text ? text : "");
}

static kvk_status copy_options(kvk_context *ctx, const struct kvk_options *o, kvk_error *err)
{
    ctx->compile = o->compile;
    ctx->log = o->log;
    ctx->log_data = o->log_data;
    ctx->prepare_threads = o->prepare_threads;
    ctx->progress = o->progress;
    ctx->progress_data = o->progress_data;
    ctx->spec_dirs = copy_or_env(o->spec_dirs, ENV_SPECS);
    ctx->generator_path = copy_or_env(o->generator, ENV_GENERATOR);
    if (!ctx->spec_dirs || !ctx->generator_path)
        return ERR(err, KVK_E_MEMORY, "no memory for options");
    kvk_status status = take_overlap(ctx, o->overlap_launches, err);
    if (!status)
        status = packs_open(&ctx->packs, o, err);
    return status ? status
                  : cache_open(&ctx->cache, o->cache_dir, o->cache_bytes, o->log, o->log_data, err);
}

static void init_locks(kvk_context *ctx)
{
    pthread_condattr_t clock; /* waits with a limit are not moved by a clock that is set */
    pthread_mutex_init(&ctx->mutex, NULL);
    pthread_mutex_init(&ctx->generator_mutex, NULL);
    pthread_mutex_init(&ctx->cache.mutex, NULL);
    pthread_mutex_init(&ctx->packs.mutex, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&ctx->changed, &clock);
    pthread_condattr_destroy(&clock);
}

kvk_status kvk_open(const struct kvk_options *options, kvk_context **out, kvk_error *err)
{
    struct kvk_options all;
    if (!out)
        return ERR(err, KVK_E_ARG, "out is NULL");
    *out = NULL;
    kvk_status status = take_options(options, &all, err);
    if (status)
        return status;
    kvk_context *ctx = calloc(1, sizeof *ctx);
    if (!ctx)
        return ERR(err, KVK_E_MEMORY, "no memory for a context");
    init_locks(ctx);
    assembler_find(&ctx->assembler);
    status = fork_mark_make(ctx, err);
    if (!status)
        status = copy_options(ctx, &all, err);
    if (!status)
        status = choose_device(ctx, all.device, err);
    if (status) {
        kvk_close(ctx);
        return status;
    }
    *out = ctx;
    return KVK_OK;
}

void kvk_close(kvk_context *ctx)
{
    if (!ctx || fork_is_child(ctx))
        return;
    if (ctx->device) /* kernels that are queued need their modules; a lost device waits for nothing */
        ctx->driver->synchronize(ctx->device, NULL);
    for (struct kvk_kernels *set = ctx->sets, *next; set; set = next) {
        next = set->next;
        kernels_free(set);
    }
    for (struct kernel *k = ctx->kernels, *next; k; k = next) {
        next = k->next;
        kernel_free(ctx, k);
    }
    for (size_t i = 0; i < ctx->nallocations; i++)
        ctx->driver->free(ctx->device, ctx->allocations[i]);
    if (ctx->device)
        ctx->driver->close(ctx->device);
    cache_close(&ctx->cache);
    packs_close(&ctx->packs);
    pthread_mutex_destroy(&ctx->packs.mutex);
    pthread_cond_destroy(&ctx->changed);
    pthread_mutex_destroy(&ctx->generator_mutex);
    pthread_mutex_destroy(&ctx->mutex);
    /* The generator's library stays loaded: LLVM does not survive being unloaded and loaded again.
    ** */
    fork_mark_free(ctx);
    free(ctx->allocations);
    free(ctx->spec_dirs);
    free(ctx->generator_path);
    free(ctx);
}

kvk_status kvk_device(const kvk_context *ctx, struct kvk_device_info *info, kvk_error *err)
{
    if (!ctx)
        return ERR(err, KVK_E_ARG, "ctx is NULL");
    if (!info || info->size < sizeof *info)
        return ERR(err, KVK_E_ARG, "struct kvk_device_info: initialise with KVK_INIT");
    info->device = ctx->device_name;
    info->name = ctx->info.name;
    info->target = ctx->info.target;
    info->reason = ctx->reason;
    info->memory_bytes = ctx->info.memory_bytes;
    info->multiprocessors = ctx->info.multiprocessors;
    return KVK_OK;
}

static kvk_status remember(kvk_context *ctx, void *memory)
{
    kvk_status status = KVK_OK;
    pthread_mutex_lock(&ctx->mutex);
    if (ctx->nallocations == ctx->allocations_room) {
        size_t room = ctx->allocations_room ? 2 * ctx->allocations_room : 16;
        void **more = realloc(ctx->allocations, room * sizeof *more);
        if (more) {
            ctx->allocations = more;
            ctx->allocations_room = room;
        } else {
            status = KVK_E_MEMORY;
        }
    }
    if (!status)
        ctx->allocations[ctx->nallocations++] = memory;
    pthread_mutex_unlock(&ctx->mutex);
    return status;
}

kvk_status kvk_alloc(kvk_context *ctx, size_t bytes, void **out, kvk_error *err)
{
    kvk_status status = fork_check(ctx, __func__, err);
    if (status)
        return status;
    if (!out)
        return ERR(err, KVK_E_ARG, "out is NULL");
    *out = NULL;
    status = ctx->driver->alloc(ctx->device, bytes ? bytes : 1, out, err);
    if (status || remember(ctx, *out) == KVK_OK)
        return status;
    ctx->driver->free(ctx->device, *out);
    *out = NULL;
    return ERR(err, KVK_E_MEMORY, "no memory to remember an allocation");
}

void kvk_free(kvk_context *ctx, void *memory)
{
    int known = 0;
    if (!ctx || !memory || fork_is_child(ctx))
        return;
    pthread_mutex_lock(&ctx->mutex);
    for (size_t i = 0; i < ctx->nallocations && !known; i++)
        if (ctx->allocations[i] == memory) {
            ctx->allocations[i] = ctx->allocations[--ctx->nallocations];
            known = 1;
        }
    pthread_mutex_unlock(&ctx->mutex);
    if (known) /* anything else is not from kvk_alloc and not ours to free */
        ctx->driver->free(ctx->device, memory);
}

static kvk_status check_copy(const kvk_context *ctx, const void *a, const void *b, size_t bytes,
                             const char *where, kvk_error *err)
{
    kvk_status status = fork_check(ctx, where, err);
    if (status)
        return status;
    if (bytes && (!a || !b))
        return error_set(err, KVK_E_ARG, where, "a pointer to %zu bytes is NULL", bytes);
    return KVK_OK;
}

kvk_status kvk_upload(kvk_context *ctx, void *device, const void *host, size_t bytes,
                      kvk_error *err)
{
    kvk_status status = check_copy(ctx, device, host, bytes, __func__, err);
    return status || !bytes ? status : ctx->driver->upload(ctx->device, device, host, bytes, err);
}

kvk_status kvk_download(kvk_context *ctx, void *host, const void *device, size_t bytes,
                        kvk_error *err)
{
    kvk_status status = check_copy(ctx, device, host, bytes, __func__, err);
    return status || !bytes ? status : ctx->driver->download(ctx->device, host, device, bytes, err);
}

kvk_status kvk_fill(kvk_context *ctx, void *device, int byte, size_t bytes, kvk_error *err)
{
    kvk_status status = check_copy(ctx, device, device, bytes, __func__, err);
    return status || !bytes ? status : ctx->driver->fill(ctx->device, device, byte, bytes, err);
}

kvk_status kvk_device_copy(kvk_context *ctx, void *to, const void *from, size_t bytes,
                           kvk_stream stream, kvk_error *err)
{
    kvk_status status = check_copy(ctx, to, from, bytes, __func__, err);
    return status || !bytes ? status : ctx->driver->copy(ctx->device, to, from, bytes, stream, err);
}

kvk_status kvk_synchronize(kvk_context *ctx, kvk_error *err)
{
    kvk_status status = fork_check(ctx, __func__, err);
    return status ? status : ctx->driver->synchronize(ctx->device, err);
}

kvk_status kvk_time(kvk_context *ctx,
                    kvk_status (*body)(void *data, kvk_stream stream, kvk_error *err), void *data,
                    double *ms, kvk_error *err)
{
    kvk_status status = fork_check(ctx, __func__, err);
    if (status)
        return status;
    if (!body || !ms)
        return ERR(err, KVK_E_ARG, "%s is NULL", !body ? "body" : "ms");
    return ctx->driver->time(ctx->device, body, data, ms, err);
}
