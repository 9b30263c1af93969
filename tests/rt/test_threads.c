/* SPDX-License-Identifier: Apache-2.0 */
/*
** Many threads on one context, and on several contexts and devices at once. Clean under a thread
** sanitizer: ./dev tsan.
*/
#include "rt.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 8, ROUNDS = 6, ROWS = 5, D = 128, G = 2 };

struct worker {
    pthread_t thread;
    int number;
    kvk_context *ctx;
    const kvk_kernels *kernels;
    const char *device, *cache;
    kvk_status status;
    kvk_error error;
    unsigned char slots[ROWS * G * 256];
};

static int setup(void **state)
{
    (void)state;
    rt_generator_reset();
    rt_fake("libcuda.so.1");
    return 0;
}

/* Starts them all, joins them all, then looks at what became of them. */
static void run(struct worker *workers, void *(*body)(void *))
{
    for (int i = 0; i < THREADS; i++) {
        workers[i].number = i;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, body, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < THREADS; i++)
        if (workers[i].status)
            fail_msg("thread %d: %s: %s", i, workers[i].error.where, workers[i].error.text);
}

static kvk_context *open_on(const char *device, const char *cache)
{
    struct kvk_options options = KVK_INIT(struct kvk_options);
    kvk_context *ctx;
    kvk_error err = {0};
    options.device = device;
    options.cache_dir = cache;
    if (kvk_open(&options, &ctx, &err) != KVK_OK)
        fail_msg("%s", err.text);
    return ctx;
}

/* ---- one context ---- */

static void *prepare_and_launch(void *data)
{
    static const char *const specs[] = {"turboquant_k8v4", "turboquant_4bit_nc", "fp16"};
    struct worker *w = data;
    for (int i = 0; i < ROUNDS && !w->status; i++) {
        struct kvk_model model = rt_model();
        const kvk_kernels *k;
        model.spec = specs[(i + w->number) % 3];
        model.page_tokens = 16 << (i & 1);
        w->status = kvk_prepare(w->ctx, &model, &k, &w->error);
        if (!w->status)
            w->status = rt_launch_all(w->ctx, k, &w->error);
    }
    return NULL;
}

static void threads_share_a_context(void **state)
{
    (void)state;
    static struct worker workers[THREADS];
    char *dir = rt_folder();
    kvk_context *ctx = open_on("cuda:0", dir);
    memset(workers, 0, sizeof workers);
    for (int i = 0; i < THREADS; i++)
        workers[i].ctx = ctx;
    run(workers, prepare_and_launch);
    assert_int_equal(rt_generator.compiles, 2 * 3 * KIND_SERVING); /* every kernel once */
    kvk_close(ctx);
    rt_remove(dir);
}

/* Stores rows of this thread's own and reads the slots back. */
static kvk_status store(struct worker *w, kvk_error *err)
{
    enum { ROOM = 1 << 16 };
    struct kvk_store_args a = KVK_INIT(struct kvk_store_args);
    struct kvk_layout layout = KVK_INIT(struct kvk_layout);
    unsigned short rows[ROWS * G * D];
    int slots[ROWS];
    void *memory[3];
    kvk_status status = kvk_layout(w->kernels, &layout, err);
    for (int i = 0; i < ROWS * G * D; i++)
        rows[i] = (unsigned short)(0x3F80 + i * 7 % 97 + w->number); /* bf16 about 1 */
    for (int i = 0; i < ROWS; i++)
        slots[i] = i;
    for (int i = 0; i < 3 && !status; i++)
        if ((status = kvk_alloc(w->ctx, ROOM, &memory[i], err)) == KVK_OK)
            status = kvk_fill(w->ctx, memory[i], 0, ROOM, err);
    if (status)
        return status;
    a.pool = (struct kvk_pool){.data = memory[0], .pages = 2};
    a.key.data = a.value.data = memory[1];
    a.slots = memory[2];
    a.rows = ROWS;
    status = kvk_upload(w->ctx, memory[1], rows, sizeof rows, err);
    if (!status)
        status = kvk_upload(w->ctx, memory[2], slots, sizeof slots, err);
    if (!status)
        status = kvk_store(w->kernels, &a, NULL, err);
    if (!status)
        status = kvk_synchronize(w->ctx, err);
    if (!status)
        status = kvk_download(w->ctx, w->slots, memory[0], ROWS * G * layout.slot_bytes, err);
    for (int i = 0; i < 3; i++)
        kvk_free(w->ctx, memory[i]);
    return status;
}

static void *store_again_and_again(void *data)
{
    struct worker *w = data;
    for (int i = 0; i < ROUNDS && !w->status; i++)
        w->status = store(w, &w->error);
    return NULL;
}

/* Real kernels on the host: what a thread stores does not depend on the others. */
static void launches_do_not_mix(void **state)
{
    (void)state;
    static struct worker workers[THREADS], alone;
    kvk_register_generator(kvk_generator);
    kvk_context *ctx = open_on("host", "");
    struct kvk_model model = rt_model();
    kvk_error err = {0};
    const kvk_kernels *k;
    model.kinds = KVK_STORE;
    if (kvk_prepare(ctx, &model, &k, &err) != KVK_OK)
        fail_msg("%s", err.text);
    memset(workers, 0, sizeof workers);
    for (int i = 0; i < THREADS; i++)
        workers[i].ctx = ctx, workers[i].kernels = k;
    run(workers, store_again_and_again);
    for (int i = 0; i < THREADS; i++) {
        memset(&alone, 0, sizeof alone);
        alone.ctx = ctx;
        alone.kernels = k;
        alone.number = i;
        assert_int_equal(store(&alone, &err), KVK_OK);
        assert_memory_equal(alone.slots, workers[i].slots, sizeof alone.slots);
        if (i)
            assert_memory_not_equal(workers[0].slots, workers[i].slots, sizeof alone.slots);
    }
    kvk_close(ctx);
}

/* ---- several ---- */

static void *live_again_and_again(void *data)
{
    struct worker *w = data;
    for (int i = 0; i < ROUNDS && !w->status; i++)
        w->status = rt_life(w->device, w->cache, &w->error);
    return NULL;
}

static void contexts_and_devices_are_independent(void **state)
{
    (void)state;
    static struct worker workers[THREADS];
    char *dir = rt_folder(), *other = rt_folder();
    const char *const devices[] = {"cuda:0", "cuda:1", "cuda:0", "host"};
    kvk_error err = {0};
    kvk_register_generator(kvk_generator);
    if (rt_life("host", other, &err) != KVK_OK) /* compiled once, by the real generator */
        fail_msg("%s", err.text);
    rt_generator_reset();
    memset(workers, 0, sizeof workers);
    for (int i = 0; i < THREADS; i++) {
        workers[i].device = devices[i % 4];
        workers[i].cache = i % 4 == 3 ? other : i % 2 ? dir : "";
    }
    run(workers, live_again_and_again);
    assert_int_equal(rt_count(dir, ".kvko"), KIND_SERVING);
    assert_int_equal(rt_count(dir, ".tmp"), 0);
    rt_remove(dir);
    rt_remove(other);
}

int main(int argc, char **argv)
{
    (void)argc;
    rt_with_fakes(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(threads_share_a_context, setup),
        cmocka_unit_test_setup(launches_do_not_mix, setup),
        cmocka_unit_test_setup(contexts_and_devices_are_independent, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
