/* SPDX-License-Identifier: Apache-2.0 */
/*
** cmd_build.c - `kvkiln build`: kernels ahead of time, as files.
**
** Workers take jobs from a shared counter; each writes its own files (to a temporary name first, so
** that a file under its final name is complete) and notes what became of it in its job's slot.
** Results are printed in the order of the jobs.
*/
#include "build_pack.h"
#include "cli.h"
#include "generator.h"
#include "jobs.h"
#include "options.h"
#include "paths.h"

#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name, *family; /* family NULL: all */
    int artifact;
} emits[] = {
    {"ll", NULL, GEN_EMIT_LL},          {"opt.ll", NULL, GEN_EMIT_OPT_LL},
    {"s", NULL, GEN_EMIT_ASM},          {"ptx", "nvptx", GEN_EMIT_PTX},
    {"cubin", "nvptx", GEN_EMIT_CUBIN}, {"hsaco", "amdgcn", GEN_EMIT_HSACO},
    {"object", NULL, GEN_EMIT_OBJECT},
};
enum { EMITS = sizeof emits / sizeof *emits };

struct options {
    struct job_lists lists;
    unsigned emit; /* 1 << index in emits */
    const char *out;
    long threads;
    int json;
    const char *pack; /* file to make, or NULL */
    unsigned forms;   /* BUILD_* */
};

struct result {
    char *error;
    char *files[EMITS];
    int nfiles;
};

struct work {
    const struct options *options;
    const struct gen_api *api;
    const struct jobs *jobs;
    struct pack_writer *pack; /* NULL: files only */
    char *pack_error;
    struct result *results;
    atomic_int next, done, failed;
};

/* Of what was asked for, that which this family has. */
static unsigned applicable(unsigned emit, const char *family)
{
    unsigned mask = 0;
    for (int i = 0; i < EMITS; i++)
        if (emit & 1u << i && (!emits[i].family || !strcmp(emits[i].family, family)))
            mask |= 1u << i;
    return mask;
}

static void write_artifacts(const struct work *work, const struct job *job, unsigned mask,
                            const struct gen_artifacts *made, struct result *result)
{
    for (int i = 0; i < EMITS && !result->error; i++) {
        if (!(mask & 1u << i))
            continue;
        const void *data = made->data[emits[i].artifact];
        if (!data) {
            result->error = cli_format("no %s was made%s", emits[i].name,
                                       emits[i].artifact == GEN_EMIT_CUBIN
                                           ? " (is there an assembler? see kvkiln doctor)"
                                           : "");
            break;
        }
        char *path = cli_format("%s/%s.%s.%s", work->options->out, job->name, job->request.target,
                                emits[i].name);
        if (paths_write(path, data, made->bytes[emits[i].artifact], &result->error))
            result->files[result->nfiles++] = path;
        else
            free(path);
    }
}

static void build_one(const struct work *work, const struct job *job, struct result *result)
{
    struct gen_request request = job->request;
    struct gen_artifacts made = {0};
    unsigned mask = applicable(work->options->emit, job->family), emit = 0;
    kvk_error err = {0};
    if (job->error) {
        result->error = cli_format("%s", job->error);
        return;
    }
    if (work->pack)
        result->error = build_pack_job(work->pack, work->api, job, work->options->forms);
    if (result->error || !work->options->emit)
        return;
    if (!mask) {
        result->error = cli_format("nothing of --emit applies to %s targets", job->family);
        return;
    }
    for (int i = 0; i < EMITS; i++)
        if (mask & 1u << i) {
            emit |= 1u << emits[i].artifact;
            if (emits[i].artifact == GEN_EMIT_CUBIN || emits[i].artifact == GEN_EMIT_OBJECT)
                request.assemble = 1;
        }
    if (work->api->compile(&request, emit, &made, &err))
        result->error = cli_format("%s: %s", kvk_status_name(err.status), err.text);
    else
        write_artifacts(work, job, mask, &made, result);
    work->api->artifacts_free(&made);
}

static void progress(const struct work *work, int done, const struct job *job,
                     const struct result *result)
{
    char *what = job_describe(job);
    if (result->error)
        cli_message("[%d/%d] %s: %s", done, work->jobs->count, what, result->error);
    else
        cli_message("[%d/%d] %s", done, work->jobs->count, what);
    free(what);
}

static void *worker(void *data)
{
    struct work *work = data;
    int i;
    while ((i = atomic_fetch_add(&work->next, 1)) < work->jobs->count) {
        build_one(work, &work->jobs->items[i], &work->results[i]);
        if (work->results[i].error)
            atomic_fetch_add(&work->failed, 1);
        progress(work, atomic_fetch_add(&work->done, 1) + 1, &work->jobs->items[i],
                 &work->results[i]);
    }
    return NULL;
}

static void run_workers(struct work *work)
{
    long count = work->options->threads ? work->options->threads : sysconf(_SC_NPROCESSORS_ONLN);
    pthread_t threads[64];
    int started = 0;
    pthread_attr_t attributes;
    count = count > 64 ? 64 : count;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes,
                              8 << 20); /* LLVM recurses deeply; musl's default is small */
    while (started < count - 1 && !pthread_create(&threads[started], &attributes, worker, work))
        started++;
    worker(work);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    pthread_attr_destroy(&attributes);
}

static void report(const struct work *work)
{
    int files = 0, failed = work->failed + work->jobs->failed_specs;
    json_t *written = json_array(), *failures = json_array();
    if (work->pack_error)
        json_array_append_new(failures, json_pack("{s:s, s:s}", "pack", work->options->pack,
                                                  "error", work->pack_error));
    else if (work->pack)
        json_array_append_new(written, json_string(work->options->pack));
    for (int i = 0; i < work->jobs->ntexts; i++)
        if (work->jobs->spec_errors[i])
            json_array_append_new(failures,
                                  json_pack("{s:s, s:s}", "spec", work->options->lists.specs[i],
                                            "error", work->jobs->spec_errors[i]));
    for (int i = 0; i < work->jobs->count; i++) {
        struct result *r = &work->results[i];
        for (int f = 0; f < r->nfiles; f++, files++) {
            if (!work->options->json)
                printf("%s\n", r->files[f]);
            json_array_append_new(written, json_string(r->files[f]));
            free(r->files[f]);
        }
        if (r->error) {
            char *what = job_describe(&work->jobs->items[i]);
            json_array_append_new(failures,
                                  json_pack("{s:s, s:s}", "kernel", what, "error", r->error));
            free(what);
        }
        free(r->error);
    }
    if (work->options->json) {
        json_t *root = json_pack("{s:s, s:i, s:i, s:O, s:O}", "version", kvk_version(), "kernels",
                                 work->jobs->count - work->failed, "failed", failed, "files",
                                 written, "failures", failures);
        json_dumpf(root, stdout, JSON_INDENT(2));
        printf("\n");
        json_decref(root);
    } else {
        printf("%d kernels, %d files, %d failed\n", work->jobs->count - work->failed, files,
               failed);
    }
    json_decref(written);
    json_decref(failures);
}

static void parse_emit(struct argp_state *state, struct options *o, char *arg)
{
    char *items[16];
    int count = cli_split(arg, items, 16);
    o->emit = 0;
    if (count < 1)
        argp_error(state, "--emit: an empty item, or too many");
    for (int i = 0; i < count; i++) {
        int found = -1;
        for (int e = 0; e < EMITS; e++)
            if (!strcmp(items[i], emits[e].name))
                found = e;
        if (found < 0)
            argp_error(state, "--emit: '%s': accepted ll, opt.ll, s, ptx, cubin, hsaco, object",
                       items[i]);
        else
            o->emit |= 1u << found;
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &o->lists; return 0;
    case 'e': parse_emit(state, o, arg); return 0;
    case 'o': o->out = arg; return 0;
    case 'p': o->pack = arg; return 0;
    case 'P':
        o->forms = build_pack_forms(arg);
        if (!o->forms)
            argp_error(state, "--pack-format: '%s': accepted cubin, ptx, cubin,ptx", arg);
        return 0;
    case ARGP_KEY_SUCCESS:
        if (!o->emit && !o->pack)
            o->emit = 1u << (EMITS - 1);
        return 0;
    case 'J': o->json = 1; return 0;
    case 'j': options_number(state, "jobs", arg, 1, 64, &o->threads); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option build_options[] = {
    {"emit", 'e', "E,...", 0,
     "ll, opt.ll, s, ptx, cubin, hsaco, object (default object); what a target's family does not "
     "have is "
     "left out there",
     2},
    {"output", 'o', "DIR", 0, "where files go (default out/kernels)", 2},
    {"pack", 'p', "FILE", 0,
     "put the kernels into one pack, FILE.kvkpack; loose files are then written only with --emit",
     2},
    {"pack-format", 'P', "F,...", 0,
     "of kernels for NVIDIA GPUs in the pack: cubin (default), ptx, or both", 2},
    {"jobs", 'j', "N", 0, "kernels compiled at a time (default: one a core)", 2},
    {"json", 'J', 0, 0, "results as JSON", 2},
    {0},
};

int cmd_build(int argc, char **argv)
{
    static const struct argp_child children[] = {{&jobs_argp, 0, 0, 0}, {0}};
    static const struct argp argp = {
        build_options,
        parse,
        "SPEC...",
        "Compiles every combination of the lists to files NAME.TARGET.EXT. SPEC is a preset's name "
        "or the path of a .lua file. "
        "Left out: all kinds, every layout of the spec.\vExit status: 0 only if everything was "
        "written; 1 a kernel could not be made or written; 2 usage, or a spec or tuned table that "
        "cannot be read.",
        children,
        0,
        0};
    struct options o = {.out = "out/kernels", .forms = BUILD_CUBIN};
    struct jobs jobs;
    struct pack_writer writer;
    kvk_error err = {0};
    argp_parse(&argp, argc, argv, 0, 0, &o);
    const struct gen_api *api = generator_get(&err);
    if (!api) {
        cli_error("generator", &err);
        return CLI_USAGE;
    }
    if (!jobs_make(&o.lists, api, JOBS_ALL, &jobs))
        return CLI_USAGE;
    if ((o.emit && !paths_make_folder(o.out)) || (o.pack && !paths_make_ready(o.pack))) {
        jobs_free(&jobs);
        return CLI_USAGE;
    }
    struct work work = {.options = &o, .api = api, .jobs = &jobs};
    pack_writer_init(&writer, api->build_id);
    work.pack =
        o.pack && jobs.count ? &writer : NULL; /* no spec could be read: no pack of nothing */
    work.results = cli_alloc((size_t)jobs.count, sizeof *work.results);
    run_workers(&work);
    if (work.pack && (work.pack_error = build_pack_finish(&writer, &jobs, o.pack, o.json)))
        cli_message("%s", work.pack_error);
    report(&work);
    enum cli_exit code = work.failed > jobs.failed_tables || work.pack_error ? CLI_FAILED : CLI_OK;
    if (jobs.failed_specs || jobs.failed_tables)
        code = cli_exit_worse(code, CLI_USAGE);
    pack_writer_free(&writer);
    free(work.pack_error);
    free(work.results);
    jobs_free(&jobs);
    return code;
}
