/* SPDX-License-Identifier: Apache-2.0 */
/*
** engine.c - what an inference engine does with kvkiln, without the model: a paged pool, requests
** of different lengths that join and leave a running batch, one store and one decode a step.
**
**     engine [DEVICE [SPEC]]      auto (default), host, cuda:0, hip:0; turboquant_k8v4 (default)
**
** On CUDA the step is captured into a graph once and replayed: batch and bounds are fixed, an empty
** seat has length 0 and slot -1. What the last step of every request computed is compared with
** attention in double precision over the rows that its pages hold.
*/
#include "graph.h"

#include <kvkiln.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KV_HEADS = 2,
    QUERY_HEADS = 8,
    HEAD_SIZE = 128,
    PAGE = 16,
    SEATS = 3, /* sequences in the batch */
    REQUESTS = 7,
    MOST_TOKENS = 96, /* of one request, prompt and answer */
    SEAT_PAGES = MOST_TOKENS / PAGE,
    POOL_PAGES =
        14, /* fewer than SEATS full sequences need: pages are given back and taken again */
    ROW = KV_HEADS * HEAD_SIZE,
    QUERY_ROW = QUERY_HEADS * HEAD_SIZE
};

static const struct request {
    int prompt, answer;
} requests[REQUESTS] = {{37, 12}, {5, 30}, {64, 9}, {16, 16}, {1, 40}, {90, 6}, {23, 21}};

struct seat {
    int request; /* -1: empty */
    int length, pages;
};

struct engine {
    kvk_context *ctx;
    const kvk_kernels *kernels;
    struct kvk_pool pool;
    struct kvk_store_args store;
    struct kvk_decode_args decode;
    struct graph graph;
    struct seat seats[SEATS];
    int next_request, finished;
    int32_t free_pages[POOL_PAGES];
    int free_count;
    /* the host's copies of what a step uploads */
    int32_t tables[SEATS][SEAT_PAGES], lengths[SEATS], slots[SEATS];
    uint16_t key[MOST_TOKENS * ROW], value[MOST_TOKENS * ROW], query[SEATS * QUERY_ROW],
        out[SEATS * QUERY_ROW];
    double worst;
};

static void must(kvk_status status, const kvk_error *err)
{
    if (!status)
        return;
    fprintf(stderr, "engine: %s in %s: %s\n", kvk_status_name(status), err->where, err->text);
    exit(1);
}

static void must_graph(const char *failed)
{
    if (!failed)
        return;
    fprintf(stderr, "engine: CUDA graph: %s failed\n", failed);
    exit(1);
}

static void *device_memory(struct engine *e, size_t bytes)
{
    void *memory;
    kvk_error err;
    must(kvk_alloc(e->ctx, bytes, &memory, &err), &err);
    must(kvk_fill(e->ctx, memory, 0, bytes, &err), &err);
    return memory;
}

static void upload(struct engine *e, const void *device, const void *host, size_t bytes)
{
    kvk_error err;
    must(kvk_upload(e->ctx, (void *)device, host, bytes, &err), &err);
}

/* ---- the model that is not there: rows from a generator of random numbers ---- */

static uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void random_rows(uint16_t *rows, int count)
{
    static uint64_t state = 1;
    for (int i = 0; i < count; i++) {
        float sum = 0;
        for (int k = 0; k < 4; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            sum += (float)(state >> 40) / 16777216.0f - 0.5f;
        }
        rows[i] = to_bf16(1.7f * sum); /* close to normal, variance 1 */
    }
}

/* ---- pages ---- */

/* The pages that hold `tokens` tokens; 0 if there are not as many free ones. */
static int grow(struct engine *e, int seat, int tokens)
{
    struct seat *s = &e->seats[seat];
    int needed = (tokens + PAGE - 1) / PAGE - s->pages;
    if (needed > e->free_count)
        return 0;
    for (; needed > 0; needed--)
        e->tables[seat][s->pages++] = e->free_pages[--e->free_count];
    return 1;
}

static void give_back(struct engine *e, int seat)
{
    struct seat *s = &e->seats[seat];
    while (s->pages)
        e->free_pages[e->free_count++] = e->tables[seat][--s->pages];
    s->request = -1;
    s->length = 0;
}

static int32_t slot_of(const struct engine *e, int seat, int token)
{
    return e->tables[seat][token / PAGE] * PAGE + token % PAGE;
}

/* ---- steps ---- */

/* A request takes a free seat if the pages of all its tokens are there; its prompt is stored at once. */
static void admit(struct engine *e)
{
    int32_t slots[MOST_TOKENS];
    kvk_error err;
    for (int seat = 0; seat < SEATS && e->next_request < REQUESTS; seat++) {
        const struct request *r = &requests[e->next_request];
        if (e->seats[seat].request >= 0 || !grow(e, seat, r->prompt + r->answer))
            continue;
        e->seats[seat].request = e->next_request++;
        e->seats[seat].length = r->prompt;
        for (int t = 0; t < r->prompt; t++)
            slots[t] = slot_of(e, seat, t);
        random_rows(e->key, r->prompt * ROW);
        random_rows(e->value, r->prompt * ROW);
        upload(e, e->store.key.data, e->key, sizeof *e->key * (size_t)r->prompt * ROW);
        upload(e, e->store.value.data, e->value, sizeof *e->value * (size_t)r->prompt * ROW);
        upload(e, e->store.slots, slots, sizeof *slots * (size_t)r->prompt);
        struct kvk_store_args prompt = e->store;
        prompt.rows = r->prompt;
        must(kvk_store(e->kernels, &prompt, NULL, &err), &err);
        must(kvk_synchronize(e->ctx, &err), &err); /* the buffers are used again */
    }
}

static void queue_step(struct engine *e, kvk_stream stream)
{
    kvk_error err;
    must(kvk_store(e->kernels, &e->store, stream, &err), &err);
    must(kvk_decode(e->kernels, &e->decode, stream, &err), &err);
}

/* One token for every sequence in the batch. */
static void step(struct engine *e)
{
    kvk_error err;
    for (int seat = 0; seat < SEATS; seat++) {
        struct seat *s = &e->seats[seat];
        e->slots[seat] = s->request < 0 ? -1 : slot_of(e, seat, s->length);
        e->lengths[seat] = s->request < 0 ? 0 : ++s->length;
    }
    random_rows(e->key, SEATS * ROW);
    random_rows(e->value, SEATS * ROW);
    random_rows(e->query, SEATS * QUERY_ROW);
    upload(e, e->store.key.data, e->key, sizeof *e->key * SEATS * ROW);
    upload(e, e->store.value.data, e->value, sizeof *e->value * SEATS * ROW);
    upload(e, e->store.slots, e->slots, sizeof e->slots);
    upload(e, e->decode.query.data, e->query, sizeof e->query);
    upload(e, e->decode.block_table, e->tables, sizeof e->tables);
    upload(e, e->decode.lengths, e->lengths, sizeof e->lengths);
    if (e->graph.exec)
        must_graph(graph_launch(&e->graph));
    else
        queue_step(e, NULL);
    must(kvk_synchronize(e->ctx, &err), &err);
    must(kvk_download(e->ctx, e->out, e->decode.out.data, sizeof e->out, &err), &err);
}

/* ---- verification ---- */

/* The sequence's rows as its pages hold them, [length][G][D]. */
static void fetch_rows(struct engine *e, int seat, uint16_t *key, uint16_t *value)
{
    int32_t bounds[2] = {0, e->seats[seat].length};
    size_t bytes = sizeof *key * (size_t)bounds[1] * ROW;
    struct kvk_dequant_args args = KVK_INIT(struct kvk_dequant_args);
    kvk_error err;
    int32_t *starts = device_memory(e, sizeof bounds);
    upload(e, starts, bounds, sizeof bounds);
    args.pool = e->pool;
    args.key.data = device_memory(e, bytes);
    args.value.data = device_memory(e, bytes);
    args.block_table = (const int32_t *)e->decode.block_table + (size_t)seat * SEAT_PAGES;
    args.out_start = starts;
    args.sequences = 1;
    args.rows = bounds[1];
    args.rotate_back = 1;
    must(kvk_dequant(e->kernels, &args, NULL, &err), &err);
    must(kvk_synchronize(e->ctx, &err), &err);
    must(kvk_download(e->ctx, key, args.key.data, bytes, &err), &err);
    must(kvk_download(e->ctx, value, args.value.data, bytes, &err), &err);
    kvk_free(e->ctx, args.key.data);
    kvk_free(e->ctx, args.value.data);
    kvk_free(e->ctx, starts);
}

static void attend(const uint16_t *query, const uint16_t *key, const uint16_t *value, int length,
                   double *out)
{
    double weight[MOST_TOKENS], largest = -INFINITY, sum = 0;
    for (int t = 0; t < length; t++) {
        weight[t] = 0;
        for (int d = 0; d < HEAD_SIZE; d++)
            weight[t] +=
                (double)from_bf16(query[d]) * from_bf16(key[t * ROW + d]) / sqrt(HEAD_SIZE);
        largest = fmax(largest, weight[t]);
    }
    memset(out, 0, sizeof *out * HEAD_SIZE);
    for (int t = 0; t < length; t++) {
        double w = exp(weight[t] - largest);
        sum += w;
        for (int d = 0; d < HEAD_SIZE; d++)
            out[d] += w * from_bf16(value[t * ROW + d]);
    }
    for (int d = 0; d < HEAD_SIZE; d++)
        out[d] /= sum;
}

/* Relative L2 distance of a seat's output from attention over the rows in its pages. */
static double distance(struct engine *e, int seat)
{
    static uint16_t key[MOST_TOKENS * ROW], value[MOST_TOKENS * ROW];
    double exact[HEAD_SIZE], difference = 0, square = 0;
    fetch_rows(e, seat, key, value);
    for (int h = 0; h < QUERY_HEADS; h++) {
        int at = seat * QUERY_ROW + h * HEAD_SIZE, g = h / (QUERY_HEADS / KV_HEADS);
        attend(e->query + at, key + g * HEAD_SIZE, value + g * HEAD_SIZE, e->seats[seat].length,
               exact);
        for (int d = 0; d < HEAD_SIZE; d++) {
            difference += pow(from_bf16(e->out[at + d]) - exact[d], 2);
            square += exact[d] * exact[d];
        }
    }
    return sqrt(difference / square);
}

static void finish(struct engine *e)
{
    for (int seat = 0; seat < SEATS; seat++) {
        const struct seat *s = &e->seats[seat];
        if (s->request < 0 || s->length < requests[s->request].prompt + requests[s->request].answer)
            continue;
        double error = distance(e, seat);
        printf("request %d: %d tokens, seat %d, relative error %.1e\n", s->request, s->length, seat,
               error);
        e->worst = isfinite(error) ? fmax(e->worst, error) : INFINITY;
        e->finished++;
        give_back(e, seat);
    }
}

/* ---- set-up ---- */

static void prepare(struct engine *e, const char *device, const char *spec)
{
    kvk_error err;
    struct kvk_options options = KVK_INIT(struct kvk_options);
    struct kvk_model model = KVK_INIT(struct kvk_model);
    struct kvk_layout layout = KVK_INIT(struct kvk_layout);
    struct kvk_limits limits = KVK_INIT(struct kvk_limits);
    options.device = device;
    must(kvk_open(&options, &e->ctx, &err), &err);
    model.spec = spec;
    model.kv_heads = KV_HEADS;
    model.query_heads = QUERY_HEADS;
    model.head_size = HEAD_SIZE;
    model.page_tokens = PAGE;
    model.kinds = KVK_STORE | KVK_DECODE | KVK_DEQUANT;
    must(kvk_prepare(e->ctx, &model, &e->kernels, &err), &err);
    must(kvk_layout(e->kernels, &layout, &err), &err);
    e->pool.data = device_memory(e, layout.page_bytes * POOL_PAGES);
    e->pool.pages = POOL_PAGES;
    limits.sequences = SEATS;
    limits.context = MOST_TOKENS;
    e->decode.workspace_bytes = kvk_workspace_bytes(e->kernels, &limits);
    e->decode.workspace = device_memory(e, e->decode.workspace_bytes);
    printf("%s: %zu bytes a token and head, %.2f times smaller than 16-bit K and V\n", spec,
           layout.slot_bytes, layout.ratio);
}

/* Arguments are fixed from here on: what changes from step to step lies in device memory. */
static void make_arguments(struct engine *e)
{
    e->store.size = sizeof e->store;
    e->store.pool = e->decode.pool = e->pool;
    e->store.key.data = device_memory(e, sizeof e->key);
    e->store.value.data = device_memory(e, sizeof e->value);
    e->store.slots = device_memory(e, sizeof(int32_t) * MOST_TOKENS);
    e->store.rows = SEATS;
    e->decode.size = sizeof e->decode;
    e->decode.query.data = device_memory(e, sizeof e->query);
    e->decode.out.data = device_memory(e, sizeof e->out);
    e->decode.block_table = device_memory(e, sizeof e->tables);
    e->decode.table_stride = SEAT_PAGES;
    e->decode.lengths = device_memory(e, sizeof e->lengths);
    e->decode.sequences = SEATS;
    e->decode.max_context = MOST_TOKENS;
}

static void capture(struct engine *e)
{
    kvk_error err;
    struct kvk_device_info info = KVK_INIT(struct kvk_device_info);
    must(kvk_device(e->ctx, &info, &err), &err);
    int cuda = strncmp(info.device, "cuda:", 5) == 0;
    printf("device %s (%s): steps are %s\n", info.device, info.name,
           cuda ? "replays of a CUDA graph" : "two calls");
    if (!cuda)
        return;
    must(kvk_synchronize(e->ctx, &err), &err);
    must_graph(graph_begin(&e->graph, atoi(info.device + 5)));
    queue_step(e, e->graph.stream);
    must_graph(graph_end(&e->graph));
}

int main(int argc, char **argv)
{
    static struct engine e;
    int steps = 0;
    prepare(&e, argc > 1 ? argv[1] : NULL, argc > 2 ? argv[2] : "turboquant_k8v4");
    make_arguments(&e);
    capture(&e);
    for (int p = 0; p < POOL_PAGES; p++)
        e.free_pages[e.free_count++] = p;
    for (int seat = 0; seat < SEATS; seat++)
        e.seats[seat].request = -1;
    for (; e.finished < REQUESTS; steps++) {
        admit(&e);
        step(&e);
        finish(&e);
    }
    graph_free(&e.graph);
    kvk_close(e.ctx);
    int good = e.worst < 1e-2 && e.free_count == POOL_PAGES;
    printf("%s: %d requests in %d steps, worst relative error %.1e\n", good ? "PASS" : "FAIL",
           e.finished, steps, e.worst);
    return good ? 0 : 1;
}
