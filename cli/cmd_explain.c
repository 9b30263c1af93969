/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_explain.c - `kvkiln explain`: the plan of each kernel, as the generator tells it. */
#include "cli.h"
#include "generator.h"
#include "jobs.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

struct options {
    struct job_lists lists;
    int json;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    (void)arg;
    if (key == ARGP_KEY_INIT) {
        state->child_inputs[0] = &o->lists;
        return 0;
    }
    if (key != 'j')
        return ARGP_ERR_UNKNOWN;
    o->json = 1;
    return 0;
}

static int explain(const struct gen_api *api, const struct job *job, json_t *list)
{
    kvk_error err = {0};
    char *text = NULL, *what = job_describe(job);
    int failed = 1;
    if (job->error)
        cli_message("%s: %s", what, job->error);
    else if (api->explain(&job->request, &text, &err))
        cli_error(what, &err);
    else
        failed = 0;
    if (!failed && list)
        json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name", job->name, "target",
                                              job->request.target, "plan", text));
    else if (!failed)
        printf("%s\n%s\n", what, text);
    free(text);
    free(what);
    return failed;
}

int cmd_explain(int argc, char **argv)
{
    static const struct argp_option option[] = {{"json", 'j', 0, 0, "results as JSON", 2}, {0}};
    static const struct argp_child children[] = {{&jobs_argp, 0, 0, 0}, {0}};
    static const struct argp argp = {
        option,
        parse,
        "SPEC...",
        "Prints the plan of a kernel and why it is so. SPEC is a preset's name or the path of a "
        ".lua file. Left out, the kind is "
        "decode and the layout the spec's first. A line is a field, its value and the reason.\v"
        "Exit status: 0; 2 usage, a spec or tuned table that cannot be read, or a kernel that is "
        "not "
        "possible.",
        children,
        0,
        0};
    struct options o = {0};
    struct jobs jobs;
    kvk_error err = {0};
    int failed = 0;
    argp_parse(&argp, argc, argv, 0, 0, &o);
    const struct gen_api *api = generator_get(&err);
    if (!api) {
        cli_error("generator", &err);
        return CLI_USAGE;
    }
    if (!jobs_make(&o.lists, api, JOBS_ONE, &jobs))
        return CLI_USAGE;
    json_t *list = o.json ? json_array() : NULL;
    for (int i = 0; i < jobs.count; i++)
        failed += explain(api, &jobs.items[i], list);
    if (list) {
        json_t *root = json_pack("{s:s, s:o}", "version", kvk_version(), "plans", list);
        json_dumpf(root, stdout, JSON_INDENT(2));
        printf("\n");
        json_decref(root);
    }
    failed += jobs.failed_specs;
    jobs_free(&jobs);
    return failed ? CLI_USAGE : CLI_OK;
}
