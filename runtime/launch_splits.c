/* SPDX-License-Identifier: Apache-2.0 */
/*
** launch_splits.c - how a decode's cache is shared out among CTAs, and the workspace formula.
**
** Splits: a decode has base = S * G * row_tiles CTAs (fewer by the KV heads a CTA takes). It is
** split over the cache until the device has about WAVES times as many CTAs as it holds at once (as
** many, where CTAs keep rings of pages), as long as each split still has a step of work for every
** warp (two, where loads are started a step ahead) and there are enough of them to pay for the
** reduction. What is host-known decides how many slots the sequences have together, so that a
** captured call and its replays use the same grid; who has which is found from the lengths on the
** device (templates/part_spread.h). Splits of the caller's choice are as many for every sequence.
**
** Workspace: a split CTA writes at most `rows` query rows, and there are at most `target` of them
** wherever something is split, so partial rows never exceed target * rows: the bound does not grow
** with the context or with the batch. Behind them is the map, a pair of numbers a sequence, for the
** reduction; or, where the last CTAs of a row's splits join them, a word for each group of CTAs
** that share rows (there are at most half as many as CTAs aimed at).
**
** Where sequences have two splits on the average, CTAs are launched in pairs that join theirs in
** their shared memory.
**
** A batch-invariant decode is cut every INVARIANT_TOKENS tokens of a sequence instead, and always
** merged by reduce, so that no sum of a row has an order that depends on anything but its own
** sequence. Its workspace is rows times spans of the longest context.
*/
#include "launch_splits.h"

#include "error.h"

enum {
    WAVES = 3,
    SPLIT_TILES = 2,
    FEWEST_SPLITS = 3, /* two do not save the time that their reduction takes */
    RESIDENT_GUESS = 2,
    LEAST_CTAS = 128,  /* of a target with few processors */
    MOST_SPREAD = 512, /* sequences that every CTA looks through */
    MOST_SLOTS = 65535,
    MAP_BYTES = 8,
    WORD_BYTES = 8,
    JOINED_SPLITS = 16,      /* of a row on the average, and */
    JOINED_BYTES = 34 << 10, /* of partial rows a CTA, that its last may join by itself */
    WORKSPACE_ALIGNMENT = 16,
    LEAST_PIECE = 8 << 10, /* bytes of a page that are worth a copy */
    EIGHT = 8              /* threads of a reduction that take neighbouring dims */
};

/* Callers that choose `splits` themselves get at least this much for it, as far as MAX_SPLITS can
** use it. */
#define WORKSPACE_FLOOR_BYTES (INT64_C(32) << 20)

static int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/* CTAs that a split decode aims at. */
static int64_t target_ctas(const kvk_kernels *k)
{
    int resident = k->kernel[KIND_DECODE]->main.resident_ctas;
    int units = k->ctx->info.multiprocessors;
    int waves = k->kernel[KIND_DECODE]->image_heads
                    ? 1
                    : WAVES; /* a ring is slow to start, and never waits */
    int64_t ctas =
        (int64_t)waves * (resident > 0 ? resident : RESIDENT_GUESS) * (units > 0 ? units : 1);
    return ctas > LEAST_CTAS ? ctas : LEAST_CTAS;
}

/* Tokens a CTA takes a step: warps that take other KV heads take no other tokens. */
static int64_t decode_tile(const kvk_kernels *k, int32_t heads)
{
    return k->kernel[KIND_DECODE]->tile_tokens / heads;
}

/* Two splits of a row cost no second launch, and no CTA of the device idles for it. */
static int can_pair(const kvk_kernels *k)
{
    const struct kernel *kernel = k->kernel[KIND_DECODE];
    return kernel->neighbours > 1 && kernel->image_heads &&
           kernel->main.pair_ctas >= target_ctas(k);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Steps of a split, at least. */
static int32_t least_steps(const kvk_kernels *k)
{
    return k->kernel[KIND_DECODE]->image_heads ? 1 : SPLIT_TILES;
}

static void choose_splits(const kvk_kernels *k, int64_t sequences, int64_t context,
                          struct decode_shape *d)
{
    int64_t by_context = context / (least_steps(k) * decode_tile(k, d->heads));
    int64_t slots = target_ctas(k) / (d->base / sequences), splits = slots / sequences;
    int pairs = can_pair(k) && splits == 2;
    d->splits = 1;
    if (by_context < (pairs ? 2 : FEWEST_SPLITS) || splits < 2)
        return;
    splits = least(least(splits, by_context), MAX_SPLITS);
    d->splits = (int32_t)splits;
    d->pairs = pairs;
    if (sequences > MOST_SPREAD || context > INT32_MAX / sequences)
        return;
    slots = least(slots, sequences * least(by_context, MAX_SPLITS));
    d->spread = (int32_t)least(slots, MOST_SLOTS);
    d->least = least_steps(k);
}

/* Bytes of one row of one split: its values, their reference and denominator. */
static int64_t partial_bytes(const kvk_kernels *k)
{
    return (int64_t)sizeof(float) * (k->shape.value_head_size + 2);
}

/* Where a batch-invariant decode is cut: whole steps of this kernel. */
static int64_t invariant_tokens(const kvk_kernels *k)
{
    int64_t tile = decode_tile(k, launch_image_heads(k));
    return ceil_div(INVARIANT_TOKENS, tile) * tile;
}

/* Never 1: a single split would not pass through reduce, which rounds in its own places. */
static int64_t invariant_splits(const kvk_kernels *k, int64_t context)
{
    int64_t splits = ceil_div(context, invariant_tokens(k));
    return splits > 2 ? splits : 2;
}

/* Rows times splits of the largest call whose splits are equal parts. */
static int64_t equal_rows(const kvk_kernels *k, int64_t rows)
{
    int64_t most, floor_rows = WORKSPACE_FLOOR_BYTES / partial_bytes(k);
    if (__builtin_mul_overflow(rows, (int64_t)MAX_SPLITS, &rows))
        rows = INT64_MAX;
    if (__builtin_mul_overflow(target_ctas(k), k->kernel[KIND_DECODE]->rows * launch_image_heads(k),
                               &most) ||
        most < floor_rows)
        most = floor_rows;
    return rows < most ? rows : most;
}

size_t kvk_workspace_bytes(const kvk_kernels *k, const struct kvk_limits *limits)
{
    int64_t rows, need, fixed, bytes;
    if (!k || !k->kernel[KIND_DECODE] ||
        args_check(limits, sizeof *limits, "kvk_limits", NULL) != KVK_OK)
        return 0;
    int64_t tokens = limits->query_tokens > 0 ? limits->query_tokens : 1;
    if (limits->sequences <= 0)
        return 0;
    if (__builtin_mul_overflow(limits->sequences, tokens, &rows) ||
        __builtin_mul_overflow(rows, (int64_t)k->shape.query_heads, &rows))
        rows = INT64_MAX;
    need = equal_rows(k, rows);
    if (limits->batch_invariant) {
        if (__builtin_mul_overflow(rows, invariant_splits(k, limits->context), &fixed))
            fixed = INT64_MAX;
        need = need > fixed ? need : fixed;
    }
    if (__builtin_mul_overflow(need, partial_bytes(k), &bytes) ||
        __builtin_add_overflow(bytes, MAP_BYTES * (least(limits->sequences, MOST_SPREAD) + 1),
                               &bytes) ||
        __builtin_add_overflow(bytes, WORD_BYTES * least(rows, target_ctas(k) / 2), &bytes))
        return SIZE_MAX;
    return (size_t)ceil_div(bytes, WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT;
}

static kvk_status workspace_check(const kvk_kernels *k, const struct kvk_decode_args *a,
                                  struct decode_shape *d, const char *where, kvk_error *err)
{
    int64_t need, map = d->joined ? WORD_BYTES * d->base : d->spread ? MAP_BYTES * a->sequences : 0;
    if (__builtin_mul_overflow(d->places, partial_bytes(k), &need) ||
        __builtin_add_overflow(need, map ? map + need % MAP_BYTES : 0, &need))
        need = INT64_MAX;
    if ((uint64_t)need > a->workspace_bytes)
        return error_set(err, KVK_E_WORKSPACE, where, "workspace of %zu bytes, %d splits need %lld",
                         a->workspace_bytes, (int)d->splits, (long long)need);
    d->behind = map ? need - map : 0;
    return launch_pointer(a->workspace, "workspace", WORKSPACE_ALIGNMENT, where, err);
}

/* What the call says of its lengths, else what its table can hold. */
static int64_t longest(const kvk_kernels *k, const struct kvk_decode_args *a)
{
    if (a->max_context)
        return a->max_context;
    return a->table_stride < INT32_MAX / k->shape.page_tokens
               ? a->table_stride * k->shape.page_tokens
               : INT32_MAX;
}

/* A second launch costs as much as one CTA's reading so many partial rows. Who joins them makes no difference to their
** order. */
static int few_to_join(const kvk_kernels *k, int64_t sequences, const struct decode_shape *d)
{
    const struct kernel *kernel = k->kernel[KIND_DECODE];
    int64_t splits = ceil_div(d->spread, sequences);
    int64_t rows = least(kernel->rows, d->tokens * k->shape.gqa) * d->heads;
    return kernel->neighbours && splits <= JOINED_SPLITS &&
           splits * rows * partial_bytes(k) <= JOINED_BYTES;
}

static kvk_status decode_splits(const kvk_kernels *k, const struct kvk_decode_args *a,
                                struct decode_shape *d, const char *where, kvk_error *err)
{
    int64_t context = longest(k, a);
    if (a->batch_invariant && a->splits)
        return error_set(err, KVK_E_ARG, where,
                         "splits is %d: batch_invariant fixes where a sequence is split",
                         (int)a->splits);
    if (a->batch_invariant) {
        d->split_tokens = (int32_t)invariant_tokens(k);
        d->splits = (int32_t)invariant_splits(k, context);
    } else {
        choose_splits(k, a->sequences, context, d);
        if (a->splits) {
            d->splits = a->splits;
            d->spread = 0;
        }
    }
    d->pairs = d->pairs && d->spread;
    d->joined = d->spread && (d->pairs || few_to_join(k, a->sequences, d));
    d->slots = d->spread ? d->spread : a->sequences * d->splits;
    d->grid_slots = d->slots + (d->pairs && d->slots % 2);
    if (__builtin_mul_overflow(d->slots, d->rows / a->sequences, &d->places))
        d->places = INT64_MAX;
    return d->splits > 1 ? workspace_check(k, a, d, where, err) : KVK_OK;
}

/* Ways by the splits alone: a row's bits depend on the number of its splits, not on the rows. */
static int32_t reduce_ways_log(const struct decode_shape *d)
{
    if (d->split_tokens)
        return 4;
    return d->splits <= 4 ? 0 : d->splits <= 16 ? 2 : 4;
}

/* Blocks of eight threads' dims in a row (reduce.c). */
static int64_t row_blocks(const kvk_kernels *k)
{
    int dims = k->shape.value_head_size, wide = dims % 4 == 0 ? 4 : dims % 2 == 0 ? 2 : 1;
    return ceil_div(dims / wide, EIGHT);
}

/* KV heads a CTA: half as many, if rows have two splits then, which pairs join. Fewer still, and
** pages come in small pieces (measured: two heads take 2 to 10 % longer than eight). Pages of other
** layouts than native come in one piece only where a CTA takes all heads. */
static int32_t choose_heads(const kvk_kernels *k, const struct kvk_decode_args *a, int64_t tiles)
{
    int32_t heads = launch_image_heads(k), half = heads / 2;
    if (!k->pages.native || !can_pair(k) || a->batch_invariant || a->splits || !half ||
        half * k->pages.record_bytes < LEAST_PIECE)
        return heads;
    int64_t splits = target_ctas(k) / (k->shape.kv_heads / half * tiles) / a->sequences;
    return splits == 2 ? half : heads;
}

kvk_status decode_measure(const kvk_kernels *k, const struct kvk_decode_args *a,
                          struct decode_shape *d, const char *where, kvk_error *err)
{
    d->tokens = a->query_tokens ? a->query_tokens : 1;
    kvk_status status = launch_range(d->tokens, "query_tokens", 1, 1 << 20, where, err);
    if (!status)
        status = launch_range(a->splits, "splits", 0, MAX_SPLITS, where, err);
    if (!status)
        status = launch_range(a->batch_invariant, "batch_invariant", 0, 1, where, err);
    if (!status)
        status = launch_range(a->max_context, "max_context", 0, INT32_MAX, where, err);
    if (status)
        return status;
    int64_t tiles = ceil_div(d->tokens * k->shape.gqa, k->kernel[KIND_DECODE]->rows);
    d->heads = choose_heads(k, a, tiles);
    int64_t heads = k->shape.kv_heads / d->heads;
    if (__builtin_mul_overflow(a->sequences * heads, tiles, &d->base) ||
        __builtin_mul_overflow(a->sequences * d->tokens, (int64_t)k->shape.query_heads, &d->rows) ||
        d->base > LAUNCH_GRID_MOST || d->rows > LAUNCH_GRID_MOST / row_blocks(k))
        return error_set(err, KVK_E_SHAPE, where,
                         "sequences %lld, query_tokens %lld: more rows than a launch takes",
                         (long long)a->sequences, (long long)d->tokens);
    status = decode_splits(k, a, d, where, err);
    d->ways_log = reduce_ways_log(d);
    d->eights = d->rows * row_blocks(k) << d->ways_log;
    return status;
}
