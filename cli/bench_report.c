/* SPDX-License-Identifier: Apache-2.0 */
/* bench_report.c - what a bench found, as text and as JSON. */
#include "bench_time.h"

#include "compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The manifest's lines "plan.FIELD VALUE  # why" as an object. */
static json_t *plan_json(const char *manifest)
{
    json_t *plan = json_object();
    for (const char *line = manifest; line && *line;
         line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, "plan.", 5))
            continue;
        size_t name = strcspn(line + 5, " \n"), value = strcspn(line + 5 + name, "#\n");
        char *field = cli_format("%.*s", (int)name, line + 5);
        while (value && line[5 + name + value - 1] == ' ')
            value--;
        json_object_set_new(plan, field, json_stringn(line + 5 + name + 1, value ? value - 1 : 0));
        free(field);
    }
    return plan;
}

static void print_plan(const char *manifest)
{
    json_t *plan = plan_json(manifest), *value;
    const char *field;
    printf("plan     ");
    json_object_foreach(plan, field, value) printf(" %s %s", field, json_string_value(value));
    printf("\n");
    json_decref(plan);
}

static void print_shape(const struct bench *b)
{
    const struct bench_shape *s = &b->shape;
    char context[256];
    bench_shape_text(s, context, sizeof context);
    printf("%s %s %s, head size %ld", b->kind->name, s->preset, s->layout, s->head_size);
    if (s->value_head_size != s->head_size)
        printf("/%ld", s->value_head_size);
    printf(", gqa %ld, %ld KV heads, sequences %s, query tokens %ld%s, page %ld, %s\n", s->gqa,
           s->kv_heads, context, s->query_tokens, s->full ? " (no mask)" : "", s->page,
           cli_dtype_name(s->dtype));
}

static void print_times(const struct bench *b, const struct bench_result *r)
{
    const struct bench_times *t = &r->times;
    printf(
        "time      %.6g us a launch: %.6g ms median, %.6g min, %.6g max of %ld, %ld launches %s\n",
        1e3 * t->median, t->median, t->low, t->high, t->repeats, t->launches,
        t->graph ? "in a captured graph, with rests" : "between events");
    if (t->sustained > 0)
        printf("sustained %.6g us a launch without rests: %.3g times as long\n", 1e3 * t->sustained,
               t->sustained / t->median);
    printf("bytes     %.0f read, %.0f written (%.0f of cache): %.4g GB/s\n", r->work.read,
           r->work.written, r->work.cache, bench_gbs(r));
    if (r->copy_gbs > 0)
        printf("copy      %.1f GB/s (read and written)\nshare     %.3g %% of copy bandwidth\n",
               r->copy_gbs, 100 * bench_gbs(r) / r->copy_gbs);
    if (r->work.flops > 0)
        printf("compute   %.4g TFLOP/s of %.4g GFLOP\n", r->work.flops / t->median * 1e-9,
               r->work.flops * 1e-9);
    printf(
        "kernel    %s: %d registers, %d bytes shared, %d local, %d threads, %d resident CTAs%s\n",
        r->kernel.name, r->kernel.registers, r->kernel.shared_bytes, r->kernel.local_bytes,
        r->kernel.threads, r->kernel.resident_ctas,
        b->kind != &bench_decode ? ""
        : b->shape.splits        ? ", splits given"
                                 : ", splits by rule");
    print_plan(r->kernel.manifest);
}

void bench_print(const struct bench *b, const struct bench_result *r)
{
    print_shape(b);
    if (b->host)
        printf("this times a CPU running the kernels' host form, not a GPU\n");
    printf("verified: relative L2 %.2e of %ld numbers against %s (limit %.1e) %s\n",
           r->verdict.rel_l2, r->verdict.compared, r->verdict.against, r->verdict.limit,
           bench_passed(r) ? "PASS" : "FAIL");
    if (bench_passed(r))
        print_times(b, r);
}

static json_t *shape_json(const struct bench *b)
{
    const struct bench_shape *s = &b->shape;
    char context[256];
    bench_shape_text(s, context, sizeof context);
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:b, s:I, s:s, s:I}",
        "version", kvk_version(), "kind", b->kind->name, "preset", s->preset, "layout", s->layout,
        "head_size", (json_int_t)s->head_size, "value_head_size", (json_int_t)s->value_head_size,
        "gqa", (json_int_t)s->gqa, "kv_heads", (json_int_t)s->kv_heads, "batch",
        (json_int_t)b->batch, "context", (json_int_t)b->longest, "sequences", context,
        "query_tokens", (json_int_t)s->query_tokens, "full", s->full, "page", (json_int_t)s->page,
        "dtype", cli_dtype_name(s->dtype), "splits", (json_int_t)s->splits);
}

static void merge(json_t *root, json_t *more)
{
    json_object_update(root, more);
    json_decref(more);
}

json_t *bench_json(const struct bench *b, const struct bench_result *r)
{
    json_t *root = shape_json(b);
    const struct bench_times *t = &r->times;
    double gbs = bench_gbs(r);
    merge(root, json_pack("{s:b, s:o, s:f, s:I, s:s}", "verified", bench_passed(r), "rel_l2",
                          compare_real(r->verdict.rel_l2), "limit", r->verdict.limit, "compared",
                          (json_int_t)r->verdict.compared, "against", r->verdict.against));
    merge(root, json_pack("{s:f, s:f, s:f, s:f, s:I, s:I, s:b}", "median_us", 1e3 * t->median,
                          "median_ms", t->median, "min_ms", t->low, "max_ms", t->high, "repeats",
                          (json_int_t)t->repeats, "launches", (json_int_t)t->launches, "graph",
                          t->graph));
    if (t->sustained > 0)
        json_object_set_new(root, "sustained_us", json_real(1e3 * t->sustained));
    merge(root,
          json_pack("{s:f, s:I, s:I, s:I, s:f, s:f, s:f, s:f}", "gbs", gbs, "compressed_bytes",
                    (json_int_t)r->work.cache, "read_bytes", (json_int_t)r->work.read,
                    "written_bytes", (json_int_t)r->work.written, "copy_gbs", r->copy_gbs, "share",
                    r->copy_gbs > 0 ? gbs / r->copy_gbs : 0.0, "flops", r->work.flops, "tflops",
                    t->median > 0 ? r->work.flops / t->median * 1e-9 : 0.0));
    merge(root, json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:o}", "kernel", r->kernel.name,
                          "origin", r->kernel.origin, "registers", r->kernel.registers,
                          "shared_bytes", r->kernel.shared_bytes, "local_bytes",
                          r->kernel.local_bytes, "threads", r->kernel.threads, "resident_ctas",
                          r->kernel.resident_ctas, "plan", plan_json(r->kernel.manifest)));
    return root;
}
