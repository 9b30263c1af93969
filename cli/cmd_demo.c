/* SPDX-License-Identifier: Apache-2.0 */
/*
** cmd_demo.c - `kvkiln demo`: the main job on the sample cases that come with kvkiln.
**
** For each case: K and V rows are stored into a compressed cache, one query a sequence attends to
** it, and the output is held against attention over the uncompressed rows in double precision (what
** compression costs) and against the reference kernels' output in the file (whether this is the
** same computation).
*/
#include "check_read.h"
#include "device.h"
#include "oracle.h"
#include "paths.h"

#include <argp.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CASES = 64, TIME_REPEATS = 5, SHOWN_PLAN = 120 };
static const double unrounded_limit = 2.6e-2;

struct options {
    const char *device, *data, *specs;
    int json;
};

/* One query a sequence and what the reference answered. */
struct job {
    unsigned char *query, *reference, *out;
    long *position; /* of the query in its sequence; -1: the file has no query for it */
    size_t row_bytes;
};

struct outcome {
    double exact_error, reference_error, limit, store_ms, decode_ms, prepare_ms;
    char plan[1024];
    char error[512];
    enum cli_exit code;
};

/* Queries: decode_query, or the last row of each sequence's
 * unified chunk. 0 when the file has neither. */
static int job_make(const struct sample *s, struct job *job)
{
    const struct tensor *unified = s->unified_query ? safetensors_get(&s->st, "unified_out") : NULL;
    int decode = s->decode_query && s->decode_out;
    memset(job, 0, sizeof *job);
    if (!s->key || (!decode && !unified))
        return 0;
    size_t bytes = job->row_bytes = (size_t)s->query_heads * (size_t)s->head_size * 2;
    job->query = cli_alloc((size_t)s->sequences, bytes);
    job->reference = cli_alloc((size_t)s->sequences, bytes);
    job->out = cli_alloc((size_t)s->sequences, bytes);
    job->position = cli_alloc((size_t)s->sequences, sizeof *job->position);
    for (long i = 0; i < s->sequences; i++) {
        long row = decode ? i : s->query_start[i + 1] - 1;
        int present = s->lengths[i] > 0 && (decode || s->query_start[i + 1] > s->query_start[i]);
        job->position[i] = present ? s->lengths[i] - 1 : -1;
        if (!present)
            continue;
        memcpy(job->query + (size_t)i * bytes,
               (decode ? s->decode_query : s->unified_query)->data + (size_t)row * bytes, bytes);
        memcpy(job->reference + (size_t)i * bytes,
               (decode ? s->decode_out : unified)->data + (size_t)row * bytes, bytes);
    }
    return 1;
}

static void job_free(struct job *job)
{
    free(job->query);
    free(job->reference);
    free(job->out);
    free(job->position);
}

/* Row of `key` that holds each slot of the pool, or -1. */
static long *rows_of_slots(const struct sample *s)
{
    long count = s->pages * s->page_tokens, *rows = cli_alloc((size_t)count, sizeof *rows);
    for (long i = 0; i < count; i++)
        rows[i] = -1;
    for (long row = 0; row < s->rows; row++)
        if (s->slot_mapping[row] >= 0)
            rows[s->slot_mapping[row]] = row;
    return rows;
}

/* Uncompressed rows of one sequence and head. */
static void exact_rows(const struct sample *s, const long *rows, long sequence, int head,
                       struct oracle_rows *out)
{
    long tokens = s->lengths[sequence], d = s->head_size;
    *out = (struct oracle_rows){.head_size = (int)d, .tokens = tokens};
    out->key = cli_alloc((size_t)(tokens * d), sizeof(double));
    out->value = cli_alloc((size_t)(tokens * d), sizeof(double));
    for (long t = 0; t < tokens; t++) {
        long page = s->block_table[sequence * s->table_stride + t / s->page_tokens];
        long row = rows[page * s->page_tokens + t % s->page_tokens];
        for (long i = 0; row >= 0 && i < d; i++) {
            size_t at = (size_t)((row * s->kv_heads + head) * d + i);
            out->key[t * d + i] = number_at(s->number, s->key->data, at);
            out->value[t * d + i] = number_at(s->number, s->value->data, at);
        }
    }
}

/* Relative L2 of the output against exact attention. */
static double exact_error(const struct sample *s, const struct job *job)
{
    int gqa = s->query_heads / s->kv_heads, d = s->head_size;
    double square = 0, reference = 0, *query = cli_alloc((size_t)d, sizeof *query),
           *out = cli_alloc((size_t)d, sizeof *out);
    long *rows = rows_of_slots(s);
    struct oracle_mask mask = {.scale = s->scale};
    for (long i = 0; i < s->sequences; i++)
        for (int head = 0; head < s->kv_heads && job->position[i] >= 0; head++) {
            struct oracle_rows exact;
            exact_rows(s, rows, i, head, &exact);
            for (int h = head * gqa; h < (head + 1) * gqa; h++) {
                size_t at = (size_t)(i * s->query_heads + h) * (size_t)d;
                for (int j = 0; j < d; j++)
                    query[j] = number_at(s->number, job->query, at + (size_t)j);
                oracle_attend(&exact, query, job->position[i], &mask, out);
                for (int j = 0; j < d; j++) {
                    double diff = number_at(s->number, job->out, at + (size_t)j) - out[j];
                    square += diff * diff;
                    reference += out[j] * out[j];
                }
            }
            oracle_free(&exact);
        }
    free(query);
    free(out);
    free(rows);
    return sqrt(square / reference);
}

static double reference_error(const struct sample *s, const struct job *job)
{
    double square = 0, reference = 0;
    size_t count = job->row_bytes / 2;
    for (long i = 0; i < s->sequences; i++)
        for (size_t j = (size_t)i * count; job->position[i] >= 0 && j < (size_t)(i + 1) * count;
             j++) {
            double want = number_at(s->number, job->reference, j),
                   diff = number_at(s->number, job->out, j) - want;
            square += diff * diff;
            reference += want * want;
        }
    return sqrt(square / reference);
}

/* "rows 4, tile_tokens 64, ...": the plan.* lines of the manifest. */
static void plan_text(const struct run *run, char *text, size_t cap)
{
    struct kvk_kernel_info info = KVK_INIT(struct kvk_kernel_info);
    size_t length = 0;
    *text = '\0';
    if (kvk_kernel(run->kernels, KVK_DECODE, &info, NULL) || !info.manifest)
        return;
    for (const char *line = info.manifest; line && *line;
         line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        int size = (int)strcspn(line, "\n#"); /* the reason stands behind a # */
        while (size && line[size - 1] == ' ')
            size--;
        if (strncmp(line, "plan.", 5))
            continue;
        if (length + (size_t)size + 3 + sizeof ", ..." > cap) {
            snprintf(text + length, cap - length, ", ...");
            return;
        }
        length += (size_t)snprintf(text + length, cap - length, "%s%.*s", length ? ", " : "",
                                   size - 5, line + 5);
    }
}

static kvk_status run_case(struct device *device, const struct sample *s, struct job *job,
                           struct outcome *out, kvk_error *err)
{
    struct run run;
    double start = cli_now_ms();
    kvk_status status =
        run_open(&run, device->ctx, s, s->preset, s->layout, KVK_STORE | KVK_DECODE, err);
    out->prepare_ms = cli_now_ms() - start;
    if (status)
        return status;
    start = cli_now_ms();
    status = run_store(&run, err);
    out->store_ms = cli_now_ms() - start;
    struct run_attend attend = {
        .query = job->query, .out = job->out, .rows = s->sequences, .time_repeats = TIME_REPEATS};
    if (!status)
        status = run_decode(&run, &attend, err);
    out->decode_ms = attend.ms;
    plan_text(&run, out->plan, sizeof out->plan);
    run_close(&run);
    return status;
}

static void run_file(struct device *device, const char *path, struct sample *s, struct outcome *out)
{
    char reason[SAFETENSORS_ERROR];
    struct job job;
    kvk_error err = {0};
    memset(out, 0, sizeof *out);
    if (!sample_open(path, s, reason)) {
        snprintf(out->error, sizeof out->error, "%s", reason);
        out->code = CLI_USAGE;
        return;
    }
    if (!job_make(s, &job)) {
        snprintf(out->error, sizeof out->error, "no keys, values and queries in it");
        out->code = CLI_USAGE;
        return;
    }
    kvk_status status = run_case(device, s, &job, out, &err);
    if (status) {
        out->code = cli_exit_of(status);
        snprintf(out->error, sizeof out->error, "%s: %s", kvk_status_name(err.status), err.text);
    } else {
        out->limit =
            s->slots.format->key == KEY_E2M1 ? unrounded_limit : check_output_limit(s->dtype);
        out->exact_error = exact_error(s, &job);
        out->reference_error = reference_error(s, &job);
        if (!(out->reference_error <= out->limit) || !isfinite(out->exact_error))
            out->code = CLI_FAILED;
    }
    job_free(&job);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Paths of the cases in `dir`, sorted. */
static int list_cases(const char *dir, char **paths)
{
    DIR *folder = opendir(dir);
    struct dirent *entry;
    int count = 0;
    while (folder && count < MOST_CASES && (entry = readdir(folder))) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot && !strcmp(dot, ".safetensors"))
            paths[count++] = cli_format("%s/%s", dir, entry->d_name);
    }
    if (folder)
        closedir(folder);
    qsort(paths, (size_t)count, sizeof *paths, by_text);
    return count;
}

/* Where a line of the plan's first fields ends. */
static int plan_cut(const char *plan)
{
    size_t length = strlen(plan), cut = length < SHOWN_PLAN ? length : SHOWN_PLAN;
    while (cut < length && cut && plan[cut] != ',')
        cut--;
    return (int)cut;
}

static void print_case(const char *path, const struct sample *s, const struct outcome *out)
{
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    if (out->error[0]) {
        printf("%s\n    ERROR %s\n", name, out->error);
        return;
    }
    printf("%s %s, head size %d, %d query heads on %d KV head%s, page %d, %s\n", s->preset,
           s->layout, s->head_size, s->query_heads, s->kv_heads, s->kv_heads == 1 ? "" : "s",
           s->page_tokens, cli_dtype_name(s->dtype));
    printf("    compression %.2fx (%zu bytes a token and KV head), relative error %.4f to exact "
           "attention, %.1e to the reference kernels (limit %.1e) %s\n",
           4.0 * s->head_size / (double)s->slots.slot_bytes, s->slots.slot_bytes, out->exact_error,
           out->reference_error, out->limit, out->code ? "FAIL" : "PASS");
    printf("    store %ld rows %.2f ms, decode %ld sequences %.3f ms, kernels ready in %.0f ms\n",
           s->rows, out->store_ms, s->sequences, out->decode_ms, out->prepare_ms);
    int cut = plan_cut(out->plan);
    if (out->plan[0])
        printf("    plan of decode: %.*s%s\n", cut, out->plan,
               out->plan[cut] ? ", ... (kvkiln explain)" : "");
    fflush(stdout);
}

static json_t *case_json(const char *path, const struct sample *s, const struct outcome *out)
{
    json_t *object = json_pack("{s:s, s:b}", "file", path, "pass", out->code == CLI_OK);
    if (out->error[0]) {
        json_object_set_new(object, "error", json_string(out->error));
        return object;
    }
    json_t *rest = json_pack(
        "{s:s, s:s, s:f, s:o, s:o, s:f, s:f, s:f, s:f, s:s}", "preset", s->preset, "layout",
        s->layout, "ratio", 4.0 * s->head_size / (double)s->slots.slot_bytes, "exact_error",
        compare_real(out->exact_error), "reference_error", compare_real(out->reference_error),
        "limit", out->limit, "store_ms", out->store_ms, "decode_ms", out->decode_ms, "prepare_ms",
        out->prepare_ms, "plan", out->plan);
    json_object_update(object, rest);
    json_decref(rest);
    return object;
}

static enum cli_exit run_all(struct device *device, const struct options *o, char **paths,
                             int count)
{
    enum cli_exit code = CLI_OK;
    int passed = 0;
    double start = cli_now_ms();
    json_t *cases = json_array();
    for (int i = 0; i < count; i++) {
        struct sample sample;
        struct outcome out;
        run_file(device, paths[i], &sample, &out);
        passed += out.code == CLI_OK;
        code = cli_exit_worse(code, out.code);
        if (o->json)
            json_array_append_new(cases, case_json(paths[i], &sample, &out));
        else
            print_case(paths[i], &sample, &out);
        if (out.error[0])
            cli_message("%s: %s", paths[i], out.error);
        sample_close(&sample);
        free(paths[i]);
    }
    if (o->json) {
        json_t *root = json_pack("{s:s, s:O, s:i, s:i}", "version", kvk_version(), "cases", cases,
                                 "passed", passed, "failed", count - passed);
        device_json(device, root);
        json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
        printf("\n");
        json_decref(root);
    } else {
        printf("%d of %d cases agree with the reference, in %.1f s on %s (%s)\n", passed, count,
               (cli_now_ms() - start) / 1e3, device->info.device, device->info.name);
    }
    json_decref(cases);
    return code;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'd': o->device = arg; return 0;
    case 'D': o->data = arg; return 0;
    case 's': o->specs = arg; return 0;
    case 'j': o->json = 1; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int cmd_demo(int argc, char **argv)
{
    static const struct argp_option option[] = {
        {"device", 'd', "DEVICE", 0, "auto (default), host, cuda:0, hip:0", 0},
        {"data", 'D', "DIR", 0, "folder of sample cases (default: those that come with kvkiln)", 0},
        {"specs", 's', "DIR", 0, "look for presets here first", 0},
        {"json", 'j', 0, 0, "results as JSON", 0},
        {0}};
    static const struct argp argp = {
        option,
        parse,
        0,
        "Compresses the K and V of sample cases, attends to them, and compares with "
        "exact attention and with the reference kernels.\vExit status: 0 all cases agree with the "
        "reference; 1 one does not, or its kernels could not be made; 2 usage, no sample cases, or "
        "one that cannot be read; 3 the device is unusable.",
        device_children,
        0,
        0};
    struct options o = {0};
    struct device device;
    char *paths[MOST_CASES];
    argp_parse(&argp, argc, argv, 0, 0, &o);
    char *dir = paths_data(o.data);
    int count = dir ? list_cases(dir, paths) : 0;
    if (!count) {
        cli_message("no sample cases in %s: name their folder with --data DIR", dir ? dir
                                                                                : o.data
                                                                                    ? o.data
                                                                                    : "tests/data");
        free(dir);
        return CLI_USAGE;
    }
    free(dir);
    kvk_status opened = device_open(o.device, o.specs, &device);
    if (opened)
        return device_exit(opened);
    if (!o.json)
        device_print(&device);
    enum cli_exit code = run_all(&device, &o, paths, count);
    device_close(&device);
    return code;
}
