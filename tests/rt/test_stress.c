/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_stress [SECONDS [SEED]] - threads open, prepare, launch and close while drivers, memory,
** threads and files fail at random. Between rounds nothing fails: then every life must succeed, and
** no descriptor, thread or torn entry may be left. Leaks are for AddressSanitizer's build to see.
*/
#include "rt.h"

#include "faults.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, LIVES = 12 };

static int seconds = 2;
static unsigned long long seed = 1;
static const char *folders[4]; /* memory only; of the GPUs; no folder at all; of the host */
static atomic_int lives, failures;

static unsigned long long draw(unsigned long long *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* What is made for the host is made by the real generator. */
static kvk_status compile(const struct gen_request *request, unsigned emit,
                          struct gen_artifacts *out, kvk_error *err)
{
    int host = strncmp(request->target, "x86", 3) == 0;
    const struct gen_api *api = host ? kvk_generator() : rt_generator_table();
    return api->compile(request, emit, out, err);
}

static struct gen_api both;

static const struct gen_api *both_generators(void) { return &both; }

struct worker {
    pthread_t thread;
    unsigned long long random;
    kvk_context *shared;
    int bad;
};

/* A failure must say what failed. */
static int judged(kvk_status status, const kvk_error *err)
{
    lives++;
    failures += status != KVK_OK;
    if (status == KVK_OK || (err->status == status && *err->text && *err->where))
        return 1;
    printf("# status %d without a reason: %d %s: \"%s\"\n", status, err->status, err->where,
           err->text);
    return 0;
}

static kvk_status use_shared(kvk_context *ctx, unsigned long long pick, kvk_error *err)
{
    struct kvk_model model = rt_model();
    const kvk_kernels *k;
    model.kinds = 1 + pick % KVK_ALL_KINDS;
    model.page_tokens = 16 << (pick >> 8) % 4;
    model.layout = pick >> 12 & 1 ? "soa" : "aos";
    kvk_status status = kvk_prepare(ctx, &model, &k, err);
    if (!status && model.kinds == KVK_ALL_KINDS)
        status = rt_launch_all(ctx, k, err);
    return status;
}

static void *live(void *data)
{
    static const char *const devices[] = {"cuda:0", "cuda:1", "cuda:0", "host"};
    struct worker *w = data;
    for (int i = 0; i < LIVES && !w->bad; i++) {
        unsigned long long pick = draw(&w->random);
        int device = (int)(pick % 4);
        kvk_error err = {0};
        kvk_status status;
        if (pick >> 4 & 1 && w->shared)
            status = use_shared(w->shared, pick >> 8, &err);
        else
            status = rt_life(devices[device],
                             folders[device == 3     ? 3
                                     : pick >> 8 & 1 ? 1
                                                     : 2],
                             &err);
        w->bad = !judged(status, &err);
    }
    return NULL;
}

static int count_in(const char *folder)
{
    int n = 0;
    DIR *dir = opendir(folder);
    while (dir && readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static int torn_entries(const char *folder)
{
    int torn = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *d; dir && (d = readdir(dir)) != NULL;) {
        struct object object;
        size_t size;
        if (!cache_is_entry(d->d_name))
            continue;
        char *path = rt_path(folder, d->d_name);
        void *bytes = rt_read(path, &size);
        torn += object_parse(bytes, size, &object, NULL) != KVK_OK;
        free(bytes);
        free(path);
    }
    if (dir)
        closedir(dir);
    return torn;
}

/* How likely what fails: from never to one call in eight. Returns the families. */
static unsigned prepare_failures(unsigned long long *random, struct fake *fake)
{
    static const int errors[] = {EIO, ENOSPC, EACCES, EROFS, EBUSY, ESTALE, EINTR, EMFILE};
    faults_arm(0, 0, errors[draw(random) % 8]);
    faults.random = draw(random);
    faults.chance = 1u << draw(random) % 14;
    fake->random = draw(random);
    fake->chance = draw(random) % 4 ? 1u << draw(random) % 14 : 0;
    fake->fail_code = draw(random) % 2 ? 2 : 719;
    return (unsigned)(draw(random) % 8);
}

static int round_of_failures(unsigned long long *random, struct fake *fake)
{
    struct worker workers[THREADS];
    int bad = 0;
    kvk_context *shared = rt_open(draw(random) % 2 ? folders[1] : NULL);
    memset(workers, 0, sizeof workers);
    unsigned families = prepare_failures(random, fake);
    for (int i = 0; i < THREADS; i++) {
        workers[i].random = draw(random) | 1;
        workers[i].shared = shared;
        pthread_create(&workers[i].thread, NULL, live, &workers[i]);
    }
    faults.families = families; /* not before: our own threads must start */
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        bad += workers[i].bad;
    }
    kvk_close(shared);
    faults_disarm();
    fake->chance = 0;
    return bad;
}

static int quiet(void)
{
    kvk_error err = {0};
    if (rt_life("cuda:1", folders[1], &err) || rt_life("host", folders[3], &err))
        return printf("# nothing fails, but %s: %s\n", err.where, err.text), 0;
    if (torn_entries(folders[1]) || torn_entries(folders[3]))
        return printf("# torn entries\n"), 0;
    return 1;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void failures_at_random_leave_nothing(void **state)
{
    (void)state;
    struct fake *fake = rt_fake("libcuda.so.1");
    unsigned long long random = seed * 0x9E3779B97F4A7C15u | 1;
    int rounds = 0;
    assert_true(quiet());
    int files = count_in("/proc/self/fd"), threads = count_in("/proc/self/task");
    for (double end = now() + seconds; now() < end; rounds++) {
        if (round_of_failures(&random, fake) || !quiet())
            fail_msg("round %d of seed %llu", rounds, seed);
        assert_int_equal(count_in("/proc/self/fd"), files);
        assert_int_equal(count_in("/proc/self/task"), threads);
    }
    printf("# %d rounds, %d lives, %d of them failed\n", rounds, lives, failures);
    assert_true(lives > failures && failures > 0);
}

static int set_up(void **state)
{
    (void)state;
    rt_generator_reset();
    both = *rt_generator_table();
    both.compile = compile;
    kvk_register_generator(both_generators);
    folders[0] = "";
    folders[1] = rt_folder();
    folders[2] = "/proc/nowhere";
    folders[3] = rt_folder();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 1; i < 4; i += 2) {
        char *folder;
        memcpy(&folder, &folders[i], sizeof folder);
        rt_remove(folder);
    }
    return 0;
}

int main(int argc, char **argv)
{
    rt_with_fakes(argv);
    if (argc > 1)
        seconds = atoi(argv[1]);
    if (argc > 2)
        seed = strtoull(argv[2], NULL, 10);
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(failures_at_random_leave_nothing, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
