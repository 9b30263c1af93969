/* SPDX-License-Identifier: Apache-2.0 */
/*
** num - runs the numeric suite on one device. Last line: "N passed, N failed, N skipped".
**
** Exit 0: all passed; 1: a case failed; 2: usage; 3: the device cannot be used.
*/
#include "contract.h"
#include "graph.h"
#include "sample.h"

#include <argp.h>
#include <fnmatch.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CASE_SECONDS = 180 };

struct options {
    struct num_run run;
    const char *filter;
    char *only; /* names, each between newlines */
    int full, list, json, verbose, samples, reduced;
    int shard, shards; /* 1..shards */
};

/* What the signal handler needs to say which case faulted. */
static struct {
    const struct num_case *at;
    const char *device;
    unsigned long long seed;
    size_t passed, failed, skipped, left;
} progress;

static const struct argp_option option_list[] = {
    {"device", 'd', "DEVICE", 0, "auto, host, cuda:0, hip:0; host:1 and host:2 guard buffers", 0},
    {"filter", 'f', "TEXT", 0, "Cases whose name contains TEXT, or matches it if it holds a *", 0},
    {"only", 6, "FILE", 0, "Cases whose names are the lines of FILE, each of which must be one", 0},
    {"full", 1, NULL, 0, "The full product of shapes", 0},
    {"sample", 2, "N", 0, "N shapes drawn by the seed, and nothing else", 0},
    {"reduced", 5, NULL, 0, "One case of every kind for every preset and layout", 0},
    {"shard", 3, "I/N", 0, "The I-th of N parts of the selected cases", 0},
    {"break", 4, NULL, 0, "Lengths one too small in every call: what a failure looks like", 0},
    {"seed", 's', "N", 0, "Seed of the random inputs (default 1)", 0},
    {"cache", 'c', "DIR", 0, "Kernel cache; \"\" keeps kernels in memory only", 0},
    {"list", 'l', NULL, 0, "Print the names and end", 0},
    {"json", 'j', NULL, 0, "Results as JSON on stdout", 0},
    {"verbose", 'v', NULL, 0, "A line for every case", 0},
    {0},
};

static int read_shard(struct options *o, const char *text)
{
    int end = 0;

    return sscanf(text, "%d/%d%n", &o->shard, &o->shards, &end) == 2 && !text[end] &&
           o->shard >= 1 && o->shard <= o->shards;
}

/* A file's text after a newline; exits if it cannot be read. */
static char *read_lines(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t cap = 0;

    if (!file || getdelim(&text, &cap, '\0', file) < 0) {
        fprintf(stderr, "num: --only %s: cannot be read, or is empty\n", path);
        exit(2);
    }
    fclose(file);
    char *lines = malloc(strlen(text) + 2);
    if (!lines)
        abort();
    lines[0] = '\n';
    strcpy(lines + 1, text);
    free(text);
    return lines;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    char *end;

    switch (key) {
    case 'd': o->run.device = arg; break;
    case 'f': o->filter = arg; break;
    case 'c': o->run.cache_dir = arg; break;
    case 1: o->full = 1; break;
    case 'l': o->list = 1; break;
    case 'j': o->json = 1; break;
    case 'v': o->verbose = 1; break;
    case 2:
        o->samples = (int)strtol(arg, &end, 0);
        if (*end || o->samples < 1)
            argp_error(state, "--sample %s: not a number above 0", arg);
        break;
    case 5: o->reduced = 1; break;
    case 6: o->only = read_lines(arg); break;
    case 4: o->run.broken = FAULT_LENGTH; break;
    case 3:
        if (!read_shard(o, arg))
            argp_error(state, "--shard %s: I/N with I in 1..N accepted", arg);
        break;
    case 's':
        o->run.seed = strtoull(arg, &end, 0);
        if (*end || end == arg)
            argp_error(state, "--seed %s: not a number", arg);
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* The options that make the list hold a case, and select it. */
static void repeat(const struct num_case *c, char *text, size_t cap)
{
    if (!c)
        snprintf(text, cap, "--filter ''");
    else if (c->body == sample_run)
        snprintf(text, cap, "--sample %d --filter sample.%d/", c->variant + 1, c->variant);
    else
        snprintf(text, cap, "%s--filter '%s'", c->full ? "--full " : "", c->name);
}

static void on_signal(int signal)
{
    char text[768], options[256];

    repeat(progress.at, options, sizeof options);
    int n = snprintf(text, sizeof text,
                     "FAIL %s: signal %d\n     repeat: num --device %s --seed %llu %s\n"
                     "%zu passed, %zu failed, %zu skipped\n",
                     progress.at ? progress.at->name : "(start)", signal, progress.device,
                     progress.seed, options, progress.passed, progress.failed + 1,
                     progress.skipped + progress.left);

    if (write(STDOUT_FILENO, text, (size_t)n) < 0)
        _exit(4);
    _exit(1);
}

static void catch_signals(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGALRM, SIGABRT};
    static char stack[65536];
    const stack_t alternative = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_RESETHAND};

    sigaltstack(&alternative, NULL);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &action, NULL);
}

static int is_line(const char *lines, const char *name)
{
    char line[sizeof((struct num_case *)NULL)->name + 2];

    snprintf(line, sizeof line, "\n%s\n", name);
    return strstr(lines, line) != NULL;
}

static size_t count_lines(const char *lines)
{
    size_t n = 0;

    while ((lines = strchr(lines + 1, '\n')))
        n++;
    return n;
}

static int matches(const struct options *o, const struct num_case *c)
{
    if (o->only && !is_line(o->only, c->name))
        return 0;
    if (!o->filter)
        return 1;
    if (strchr(o->filter, '*'))
        return !fnmatch(o->filter, c->name, 0);
    return strstr(c->name, o->filter) != NULL;
}

static size_t kind_length(const struct num_case *c) { return strcspn(c->name, "/"); }

/* Of a kind of kernel, and none among `kept` is of the same kind, preset and layout. */
static int is_new(const struct num_case *c, const struct num_case *kept, size_t count)
{
    static const char *const kinds[] = {"store",   "dequant", "decode", "decode_by_images",
                                        "unified", "merge",   "copy",   "tiled_equals_unified"};
    const size_t n = kind_length(c);
    int known = 0;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        known |= strlen(kinds[i]) == n && !strncmp(kinds[i], c->name, n);
    for (size_t i = 0; known && i < count; i++)
        if (kind_length(&kept[i]) == n && !strncmp(kept[i].name, c->name, n) &&
            kept[i].model.spec == c->model.spec && kept[i].model.layout == c->model.layout)
            return 0;
    return known;
}

/* Keeps the cases that the options select; returns how many. A shard is a run of neighbours, which
** share kernels. */
static size_t select_cases(const struct options *o, struct num_case *cases, size_t count)
{
    const size_t shards = (size_t)(o->shards ? o->shards : 1);
    const size_t shard = (size_t)(o->shards ? o->shard : 1);
    size_t kept = 0;

    for (size_t i = 0; i < count; i++)
        if (matches(o, &cases[i]) && (!o->reduced || is_new(&cases[i], cases, kept)))
            cases[kept++] = cases[i];
    if (o->only && kept != count_lines(o->only)) {
        fprintf(stderr, "num: --only: %zu lines, %zu cases\n", count_lines(o->only), kept);
        exit(2);
    }
    const size_t first = kept * (shard - 1) / shards, end = kept * shard / shards;
    memmove(cases, cases + first, (end - first) * sizeof *cases);
    return end - first;
}

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void report(const struct options *o, const struct num_case *c, enum num_result result,
                   double ms, json_t *results)
{
    static const char *const words[] = {"fail", "pass", "skip"};
    char options[256];

    if (o->json)
        json_array_append_new(results,
                              json_pack("{s:s, s:s, s:f, s:f, s:s}", "name", c->name, "result",
                                        words[result], "ms", ms, "error", o->run.error, "text",
                                        result == CASE_PASSED ? "" : o->run.text));
    else if (result == CASE_FAILED) {
        repeat(c, options, sizeof options);
        printf("FAIL %s: %s\n     repeat: num --device %s --seed %llu %s\n", c->name, o->run.text,
               o->run.device, (unsigned long long)o->run.seed, options);
    } else if (o->verbose)
        printf("%s %s (%.0f ms, error %.2g, lse %.2g) %s\n", words[result], c->name, ms,
               o->run.error, o->run.lse_error, result == CASE_SKIPPED ? o->run.text : "");
    fflush(stdout);
}

static void finish(const struct options *o, const struct kvk_device_info *info, json_t *results)
{
    FILE *summary = o->json ? stderr : stdout;

    if (o->json) {
        json_t *all =
            json_pack("{s:s, s:s, s:s, s:I, s:O, s:I, s:I, s:I}", "device", info->device, "name",
                      info->name, "target", info->target, "seed", (json_int_t)o->run.seed, "cases",
                      results, "passed", (json_int_t)progress.passed, "failed",
                      (json_int_t)progress.failed, "skipped", (json_int_t)progress.skipped);
        json_dumpf(all, stdout, JSON_INDENT(1));
        putchar('\n');
        json_decref(all);
    }
    fprintf(summary, "%zu passed, %zu failed, %zu skipped\n", progress.passed, progress.failed,
            progress.skipped);
}

static int run_all(struct options *o, const struct num_case *cases, size_t count)
{
    struct kvk_device_info info = KVK_INIT(struct kvk_device_info);
    kvk_error err = {0};
    json_t *results = json_array();

    if (kvk_device(o->run.ctx, &info, &err) == KVK_OK && !o->json)
        printf("num on %s: %s, %s\n", info.device, info.name, info.target);
    progress.device = o->run.device;
    progress.seed = (unsigned long long)o->run.seed;
    progress.left = count;
    if (progress.left == 0)
        fprintf(stderr, "no case matches\n");
    for (size_t i = 0; i < count; i++) {
        double start = now_ms();
        progress.left--;
        progress.at = &cases[i];
        alarm(CASE_SECONDS);
        enum num_result result = num_try(&o->run, &cases[i]);
        alarm(0);
        progress.passed += result == CASE_PASSED;
        progress.failed += result == CASE_FAILED;
        progress.skipped += result == CASE_SKIPPED;
        report(o, &cases[i], result, now_ms() - start, results);
    }
    finish(o, &info, results);
    json_decref(results);
    return progress.failed ? 1 : progress.passed ? 0 : 2;
}

static void print_log(void *data, kvk_log_level level, const char *line)
{
    (void)data;
    if (level == KVK_LOG_WARNING)
        fprintf(stderr, "%s\n", line);
}

static struct num_case *all_cases(const struct options *o, size_t *count)
{
    *count = 0;
    if (o->samples)
        return sample_cases(NULL, count, o->run.seed, o->samples, o->samples);
    struct num_case *cases = contract_cases(num_cases(o->full, count), count);
    cases = graph_cases(cases, count);
    return sample_cases(cases, count, o->run.seed, o->full ? SAMPLE_FULL : SAMPLE_CORE,
                        SAMPLE_CORE);
}

int main(int argc, char **argv)
{
    static const struct argp argp = {.options = option_list,
                                     .parser = parse,
                                     .doc = "Runs every kind of kernel against the oracle."};
    struct options o = {.run = {.device = "host", .seed = 1}};
    struct kvk_options open = KVK_INIT(struct kvk_options);
    kvk_error err = {0};
    size_t count;

    argp_parse(&argp, argc, argv, 0, NULL, &o);
    struct num_case *cases = all_cases(&o, &count);
    count = select_cases(&o, cases, count);
    if (o.list) {
        for (size_t i = 0; i < count; i++)
            puts(cases[i].name);
        free(o.only);
        free(cases);
        return 0;
    }
    num_use_own_generator();
    open.device = o.run.device;
    open.cache_dir = o.run.cache_dir;
    open.log = print_log;
    if (kvk_open(&open, &o.run.ctx, &err) != KVK_OK) {
        fprintf(stderr, "num: %s: %s\n", o.run.device, err.text);
        free(cases);
        return 3;
    }
    catch_signals();
    o.run.spec_folder = spec_folder_make();
    int code = run_all(&o, cases, count);
    free(o.only);
    spec_folder_remove(o.run.spec_folder);
    kvk_close(o.run.ctx);
    free(cases);
    return code;
}
