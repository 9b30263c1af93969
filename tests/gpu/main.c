/* SPDX-License-Identifier: Apache-2.0 */
/*
** gpu_driver - contexts, threads, closing and captures on one device, TAP on stdout.
**
**     gpu_driver [DEVICE]      cuda:0 (default); host and hip:N run what needs no CUDA
**
** Kernels come from the packs of $KVKILN_PACKS: turboquant_4bit_nc and turboquant_k8v4, all kinds,
** both layouts, the default sizes of `kvkiln build`. Exit 0: nothing failed; 1: a case failed; 2: usage;
** 3: there is no such device, and every case counts as skipped.
*/
#include "gpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CASE_SECONDS = 120 };

static const struct {
    const char *name;
    test_body *body;
    int cuda; /* only there */
} cases[] = {
#define CASE(name, cuda)                                                                           \
    {                                                                                              \
#name, name, cuda                                                                          \
    }
    CASE(every_kind_runs_on_two_contexts, 0),
    CASE(two_contexts_used_alternately, 0),
    CASE(two_contexts_from_two_threads, 0),
    CASE(one_context_from_four_threads, 0),
    CASE(closing_under_load, 0),
    CASE(closing_one_context_leaves_the_other, 0),
    CASE(a_context_of_the_callers_own, 1),
    CASE(capture_while_another_thread_prepares, 1),
    CASE(a_graph_of_two_contexts, 1),
    CASE(a_graph_outlives_other_contexts, 1),
#undef CASE
};
enum { CASES = sizeof cases / sizeof *cases };

int test_fail(struct test *t, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    pthread_mutex_lock(&t->mutex);
    if (!t->failed)
        vsnprintf(t->text, sizeof t->text, format, args);
    t->failed = 1;
    pthread_mutex_unlock(&t->mutex);
    va_end(args);
    return 1;
}

int test_ok(struct test *t, kvk_status status, const kvk_error *err, const char *call)
{
    if (!status)
        return 0;
    return test_fail(t, "%s: %s: %s (%s)", call, kvk_status_name(status), err->text, err->where);
}

/* Returns 1 if the device can be opened; `why` says what it is or why it cannot be. */
static int there(const char *device, char *name, char *why, size_t cap)
{
    struct kvk_options o = KVK_INIT(struct kvk_options);
    struct kvk_device_info info = KVK_INIT(struct kvk_device_info);
    kvk_context *ctx;
    kvk_error err = {0};

    o.device = device;
    o.cache_dir = "";
    if (kvk_open(&o, &ctx, &err) || kvk_device(ctx, &info, &err)) {
        snprintf(why, cap, "%s", err.text);
        return 0;
    }
    snprintf(name, 32, "%s", info.device);
    snprintf(why, cap, "%s, %s", info.name, info.target);
    kvk_close(ctx);
    return 1;
}

static int run(int number, const char *device, int fake)
{
    struct test t = {.device = device, .ordinal = -1, .fake = fake};

    if (!strncmp(device, "cuda:", 5))
        t.ordinal = atoi(device + 5);
    if (cases[number].cuda && t.ordinal < 0) {
        printf("ok %d - %s # SKIP not a CUDA device\n", number + 1, cases[number].name);
        return 0;
    }
    pthread_mutex_init(&t.mutex, NULL);
    alarm(CASE_SECONDS);
    cases[number].body(&t);
    alarm(0);
    printf("%sok %d - %s\n", t.failed ? "not " : "", number + 1, cases[number].name);
    if (t.failed)
        printf("# %s\n", t.text);
    fflush(stdout);
    pthread_mutex_destroy(&t.mutex);
    return t.failed;
}

int main(int argc, char **argv)
{
    const char *device = argc > 1 ? argv[1] : "cuda:0";
    char name[32], why[600];
    int failed = 0;

    if (argc > 2) {
        fprintf(stderr, "usage: gpu_driver [DEVICE]\n");
        return 2;
    }
    printf("1..%d\n", CASES);
    if (!there(device, name, why, sizeof why)) {
        printf("# %s cannot be used: %s\n", device, why);
        for (int i = 0; i < CASES; i++)
            printf("ok %d - %s # SKIP no device\n", i + 1, cases[i].name);
        return 3;
    }
    printf("# %s: %s\n", name, why);
    for (int i = 0; i < CASES; i++)
        failed |= run(i, name, !strncmp(why, "Fake", 4));
    return failed;
}
