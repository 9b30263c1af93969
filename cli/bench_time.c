/* SPDX-License-Identifier: Apache-2.0 */
/* bench_time.c - see bench_time.h. */
#include "bench_time.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

/* RESTS: a GPU at its power limit lowers its clock within a tenth of a second (an H200, 700 W: from 1980 to 1700 MHz).
** After a rest of three times as long as it worked it has not: such times are what a launch takes; those without rests
** are given, too. */
enum { WARM_UP = 2, MOST_LAUNCHES = 50, RESTS = 3 };

static kvk_status run_unit(void *data, kvk_stream stream, kvk_error *err)
{
    struct bench_unit *unit = data;
    kvk_status status = KVK_OK;
    if (unit->graph)
        return bench_graph_launch(unit->graph, stream, err);
    for (long i = 0; i < unit->launches && !status; i++)
        status = unit->body(unit->data, i, stream, err);
    return status;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One launch tells how many are worth a unit. */
static kvk_status choose_launches(struct bench_unit *unit, kvk_error *err)
{
    double ms = 0;
    int host = device_is_host(unit->device);
    unit->launches = 1;
    kvk_status status = KVK_OK;
    for (int i = 0; i < (host ? 1 : WARM_UP) && !status; i++)
        status = kvk_time(unit->device->ctx, run_unit, unit, &ms, err);
    if (!host)
        unit->launches = ms < 10.0 / MOST_LAUNCHES ? MOST_LAUNCHES
                         : ms > 5                  ? 2
                                                   : (long)ceil(10 / ms);
    return status;
}

/* A unit's time a launch; then, asked to, a rest of so many times as long. */
static kvk_status time_once(struct bench_unit *unit, double rests, double *ms, kvk_error *err)
{
    kvk_status status = kvk_time(unit->device->ctx, run_unit, unit, ms, err);
    double rest = rests * *ms * 1e-3;
    struct timespec t = {(time_t)rest, (long)(fmod(rest, 1) * 1e9)};
    if (!status && rest > 0)
        nanosleep(&t, NULL);
    *ms /= (double)unit->launches;
    return status;
}

/* `repeats` times in order, after one that is not kept. */
static kvk_status time_all(struct bench_unit *unit, long repeats, double rests, double *ms,
                           kvk_error *err)
{
    kvk_status status = KVK_OK;
    for (long i = -1; i < repeats && !status; i++)
        status = time_once(unit, rests, &ms[i < 0 ? 0 : i], err);
    qsort(ms, (size_t)repeats, sizeof *ms, by_value);
    return status;
}

static double median_of(const double *ms, long n)
{
    return n % 2 ? ms[n / 2] : (ms[n / 2 - 1] + ms[n / 2]) / 2;
}

kvk_status bench_unit_paced(struct bench_unit *unit, long repeats, enum bench_pace pace,
                            struct bench_times *out, kvk_error *err)
{
    double *ms = cli_alloc((size_t)repeats, sizeof *ms), sustained = 0;
    kvk_status status = unit->launches ? KVK_OK : choose_launches(unit, err);
    if (!status)
        status = bench_graph_capture(unit, err);
    if (!status && unit->graph && pace != BENCH_RESTED) {
        status = time_all(unit, repeats, 0, ms, err);
        sustained = median_of(ms, repeats);
    }
    if (!status && (!unit->graph || pace != BENCH_AT_ONCE))
        status = time_all(unit, repeats, unit->graph ? RESTS : 0, ms, err);
    *out = (struct bench_times){
        median_of(ms, repeats), ms[0], ms[repeats - 1], sustained, repeats, unit->launches,
        unit->graph != NULL};
    bench_graph_free(unit->graph);
    unit->graph = NULL;
    free(ms);
    return status;
}

kvk_status bench_unit_times(struct bench_unit *unit, long repeats, struct bench_times *out,
                            kvk_error *err)
{
    return bench_unit_paced(unit, repeats, BENCH_BOTH, out, err);
}

static kvk_status launch_set(void *data, long i, kvk_stream stream, kvk_error *err)
{
    const struct bench *b = data;
    return b->kind->launch(b, i % b->sets, stream, err);
}

struct bench_unit bench_unit_of(const struct bench *b, const struct device *device)
{
    return (struct bench_unit){device, launch_set, (void *)(uintptr_t)b, 0, NULL};
}

int bench_passed(const struct bench_result *r)
{
    return r->verdict.compared > 0 && r->verdict.rel_l2 <= r->verdict.limit;
}

double bench_gbs(const struct bench_result *r)
{
    return r->times.median > 0 ? (r->work.read + r->work.written) / r->times.median * 1e-6 : 0;
}

kvk_status bench_check(const struct bench *b, struct bench_result *out, kvk_error *err)
{
    double copy_gbs = out->copy_gbs;
    *out = (struct bench_result){.copy_gbs = copy_gbs};
    out->kernel = KVK_INIT(struct kvk_kernel_info);
    b->kind->work(b, &out->work);
    kvk_status status =
        b->dense ? kvk_kernel(b->dense, KVK_UNIFIED, &out->kernel, err)
                 : kvk_kernel(b->kernels, (kvk_kind_bits)b->kind->bits, &out->kernel, err);
    return status ? status : b->kind->verify(b, &out->verdict, err);
}

kvk_status bench_measure(const struct bench *b, const struct device *device, long repeats,
                         struct bench_result *out, kvk_error *err)
{
    struct bench_unit unit = bench_unit_of(b, device);
    kvk_status status = bench_check(b, out, err);
    return status || !bench_passed(out) ? status
                                        : bench_unit_times(&unit, repeats, &out->times, err);
}
