/* SPDX-License-Identifier: Apache-2.0 */
/* bench_time.h - time per launch: many launches as one unit, a captured graph where the device has graphs. */
#ifndef KVKILN_CLI_BENCH_TIME_H
#define KVKILN_CLI_BENCH_TIME_H

#include "bench.h"

/* Calls body(data, i, ...) for i = 0 .. launches-1 on one stream. */
struct bench_unit {
    const struct device *device;
    kvk_status (*body)(void *data, long i, kvk_stream stream, kvk_error *err);
    void *data;
    long launches;
    struct bench_graph *graph; /* NULL: launches are queued one by one */
};

/* ---- bench_graph.c ---- */
/* Captures the unit's launches; *graph stays NULL on a device without graphs. */
kvk_status bench_graph_capture(struct bench_unit *unit, kvk_error *err);
/* Queues the captured launches on a stream. */
kvk_status bench_graph_launch(struct bench_graph *graph, kvk_stream stream, kvk_error *err);
void bench_graph_free(struct bench_graph *graph);

/* ---- bench_time.c ---- */
struct bench_times {
    double median, low, high; /* ms a launch, with rests between units on a device that has graphs */
    double sustained;         /* the median without rests; 0: not measured */
    long repeats, launches;
    int graph;
};

/* One untimed run, then `repeats` timed ones (at least one), with graphs once without and once with rests. launches of `unit` 0: as
** many as take about 10 ms, 2 to 50 (host: 1). */
kvk_status bench_unit_times(struct bench_unit *unit, long repeats, struct bench_times *out, kvk_error *err);
/* The same by one of the two ways alone; without rests `sustained` is the median too. */
enum bench_pace { BENCH_BOTH, BENCH_RESTED, BENCH_AT_ONCE };
kvk_status bench_unit_paced(struct bench_unit *unit, long repeats, enum bench_pace pace, struct bench_times *out, kvk_error *err);

struct bench_result {
    struct bench_verdict verdict;
    struct bench_times times;
    struct bench_work work;
    struct kvk_kernel_info kernel;
    double copy_gbs; /* read + written, measured in the same process the same way */
};

/* Launches of a bench, its sets in turn. */
struct bench_unit bench_unit_of(const struct bench *b, const struct device *device);
/* All but the times: what the kernel is, what a launch moves, and the verdict. */
kvk_status bench_check(const struct bench *b, struct bench_result *out, kvk_error *err);
/* Verifies, then times. A verdict that fails leaves times zero. */
kvk_status bench_measure(const struct bench *b, const struct device *device, long repeats, struct bench_result *out,
                         kvk_error *err);
/* Bytes read and written a nanosecond of the fastest copy there is (bench_copy.c). */
kvk_status bench_copy(const struct device *device, double *gbs, kvk_error *err);
int bench_passed(const struct bench_result *result);
double bench_gbs(const struct bench_result *result);

/* ---- bench_report.c ---- */
void bench_print(const struct bench *b, const struct bench_result *result);
json_t *bench_json(const struct bench *b, const struct bench_result *result);

#endif
