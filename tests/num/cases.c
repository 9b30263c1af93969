/* SPDX-License-Identifier: Apache-2.0 */
/*
** cases.c - which cases there are.
**
** The core takes one model for every format (preset and layout) and head size, and gives it the GQA
** ratio, dtype and page size that cover most pairs of values not yet covered. The full list is the
** product. Properties and negative controls run on four pinned models, which are part of the core,
** so that they compile few kernels of their own.
*/
#include "num.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FORMATS = 9, SIZES = 3, GQAS = 7, DTYPES = 2, PAGES = 4, EXTRAS = 6, AWKWARD = 20 };

static const int sizes[SIZES] = {64, 128, 256}, gqas[GQAS] = {1, 3, 4, 6, 7, 8, 16},
                 pages[PAGES] = {16, 32, 64, 128};
static const kvk_dtype dtypes[DTYPES] = {KVK_BFLOAT16, KVK_FLOAT16};

struct list {
    struct num_case *cases;
    size_t count, cap;
};

struct pick {
    int format, size, gqa, dtype, page; /* indices */
};

static const struct pick pinned[] = {
    {2, 0, 2, 0, 0}, /* turboquant_4bit_nc aos d64 g4 bf16 p16 */
    {1, 0, 2, 1, 1}, /* turboquant_k8v4 soa d64 g4 fp16 p32 */
    {8, 0, 2, 0, 0}, /* ultraquant_4bit aos d64 g4 bf16 p16 */
    {7, 1, 1, 1, 2}, /* turboquant_3bit_nc soa d128 g3 fp16 p64 */
};
enum { PINNED = sizeof pinned / sizeof *pinned };

/* Head sizes that only some formats run: format index, head size, and the rest as indices. */
static const struct {
    int format, d, gqa, dtype, page;
} extras[EXTRAS] = {{0, 80, 1, 1, 0}, {1, 96, 2, 0, 1}, {0, 192, 3, 0, 2},
                    {1, 80, 5, 0, 0}, {0, 96, 4, 1, 3}, {8, 512, 2, 0, 0}};

/*
** Numbers that no model family of the presets has: blocks of the rotation that are smaller than the
** head, odd slots and odd-aligned fields (3-bit keys at 40 and 72), the smallest and the largest
** head, pages that are no power of two, every other GQA ratio. Values, not indices.
*/
static const struct {
    int format, d, gqa, dtype, page, attends;
} awkward[AWKWARD] = {
    {2, 80, 2, 0, 16, 1},   {3, 96, 5, 1, 48, 1},  {6, 192, 9, 0, 256, 1}, {4, 112, 10, 1, 16, 1},
    {7, 48, 11, 0, 16, 1},  {2, 16, 12, 1, 32, 1}, {8, 96, 13, 0, 48, 1},  {8, 192, 14, 1, 16, 1},
    {2, 512, 1, 0, 16, 1},  {6, 40, 1, 0, 16, 0},  {4, 72, 1, 1, 7, 0},    {5, 72, 1, 0, 32, 0},
    {7, 1024, 1, 1, 1, 0},  {0, 320, 2, 0, 80, 1}, {5, 64, 15, 1, 16, 1},  {1, 64, 71, 0, 16, 1},
    {3, 64, 128, 1, 48, 1}, {2, 128, 5, 0, 8, 1},  {6, 64, 2, 0, 1, 1},    {0, 32, 3, 1, 16, 1},
};

/* What is promised and met by no other case of the core: head sizes, GQA ratios, pages. Never refused.
** tests/num/test_core.py holds the list against the promise. */
static const struct {
    int format, d, dv, gqa, dtype, page;
} promised[] = {
    {2, 40, 40, 24, 0, 1536},  {7, 72, 72, 32, 1, 8},      {4, 120, 120, 48, 0, 16},
    {6, 160, 160, 64, 0, 32},  {3, 224, 224, 1, 1, 16},    {1, 576, 576, 2, 0, 16},
    {0, 192, 128, 16, 1, 128}, {2, 576, 512, 16, 0, 1536},
};
enum { PROMISED = sizeof promised / sizeof *promised };

/* Formats: every preset as aos, and as soa where it may be. */
static const struct ref_spec *format_at(int index, enum ref_layout *layout)
{
    int i = 0;

    for (int s = 0; s < ref_spec_count(); s++)
        for (int l = 0; l <= ref_spec_at(s)->soa; l++, i++)
            if (i == index) {
                *layout = l ? REF_SOA : REF_AOS;
                return ref_spec_at(s);
            }
    abort();
}

static struct num_model model_of(int format, int d, int gqa, int dtype, int page)
{
    struct num_model m = {
        .d = d, .dv = d, .gqa = gqas[gqa], .page = pages[page], .dtype = dtypes[dtype]};

    m.spec = format_at(format, &m.layout);
    m.kv_heads = 1 + (format + page + gqa) % 3;
    m.dequant_dtype = dtypes[(dtype + (format + page) % 2) % DTYPES];
    return m;
}

static void add(struct list *list, const struct num_model *m, const char *what, num_body *body,
                int variant, enum num_fault fault, int full)
{
    if (list->count == list->cap) {
        list->cap = list->cap ? list->cap * 2 : 256;
        list->cases = realloc(list->cases, list->cap * sizeof *list->cases);
        if (!list->cases)
            abort();
    }
    struct num_case *c = &list->cases[list->count++];
    *c = (struct num_case){
        .model = *m, .body = body, .variant = variant, .fault = fault, .full = full};
    char head[16];

    snprintf(head, sizeof head, m->d == m->dv ? "%d" : "%dx%d", m->d, m->dv);
    snprintf(c->name, sizeof c->name, "%s/%s.%s.d%s.g%d.%s.p%d/%d", what, m->spec->name,
             ref_layout_name(m->layout), head, m->gqa, m->dtype == KVK_FLOAT16 ? "fp16" : "bf16",
             m->page, variant);
}

/* --- the core --- */

struct covered {
    char format_gqa[FORMATS][GQAS], size_gqa[SIZES][GQAS], format_dtype[FORMATS][DTYPES],
        size_dtype[SIZES][DTYPES], gqa_dtype[GQAS][DTYPES], format_page[FORMATS][PAGES],
        size_page[SIZES][PAGES], gqa_page[GQAS][PAGES], dtype_page[DTYPES][PAGES];
};

static int touch(char *pair, int mark)
{
    int fresh = !*pair;

    *pair = (char)(*pair | mark);
    return fresh;
}

/* Pairs that a pick would cover for the first time; marks them if told to. */
static int gain(struct covered *c, const struct pick *p, int mark)
{
    return touch(&c->format_gqa[p->format][p->gqa], mark) +
           touch(&c->size_gqa[p->size][p->gqa], mark) +
           touch(&c->format_dtype[p->format][p->dtype], mark) +
           touch(&c->size_dtype[p->size][p->dtype], mark) +
           touch(&c->gqa_dtype[p->gqa][p->dtype], mark) +
           touch(&c->format_page[p->format][p->page], mark) +
           touch(&c->size_page[p->size][p->page], mark) +
           touch(&c->gqa_page[p->gqa][p->page], mark) +
           touch(&c->dtype_page[p->dtype][p->page], mark);
}

static struct pick best_pick(struct covered *c, int format, int size)
{
    struct pick best = {format, size, 0, 0, 0};
    int most = -1;

    for (int i = 0; i < PINNED; i++)
        if (pinned[i].format == format && pinned[i].size == size)
            return pinned[i];
    for (int k = 0; k < GQAS * DTYPES * PAGES; k++) {
        struct pick p = {format, size, (k / 8 + format) % GQAS, (k / 4 + format) % DTYPES,
                         (k + size) % PAGES};
        int g = gain(c, &p, 0);
        if (g > most) {
            most = g;
            best = p;
        }
    }
    return best;
}

static void add_rows(struct list *list, const struct num_model *m, int full)
{
    for (int v = 0; v < 3; v++)
        add(list, m, "store", check_store, v, FAULT_NONE, full);
    for (int v = 0; v < 3; v++)
        add(list, m, "dequant", check_dequant, v, FAULT_NONE, full);
}

static void add_attention(struct list *list, const struct num_model *m, int full)
{
    for (int v = 0; v < (full ? 4 : 3); v++)
        add(list, m, "decode", check_decode, v, FAULT_NONE, full);
    for (int v = 0; v < (full ? 4 : 3); v++)
        add(list, m, "unified", check_unified, v, FAULT_NONE, full);
}

/* The part of the core that the product holds too. */
static void add_covering(struct list *list)
{
    struct covered covered;

    memset(&covered, 0, sizeof covered);
    for (int i = 0; i < PINNED; i++)
        gain(&covered, &pinned[i], 1);
    for (int format = 0; format < FORMATS; format++)
        for (int size = 0; size < SIZES; size++) {
            struct pick p = best_pick(&covered, format, size);
            struct num_model m = model_of(format, sizes[size], p.gqa, p.dtype, p.page);
            gain(&covered, &p, 1);
            add_rows(list, &m, 0);
            add_attention(list, &m, 0);
        }
}

/* Cases from `first` on may be refused, by name; a wrong result is still a failure. */
static void let_refuse(struct list *list, size_t first)
{
    for (size_t i = first; i < list->count; i++)
        list->cases[i].may_refuse = 1;
}

static void add_awkward(struct list *list)
{
    size_t first = list->count;

    for (int i = 0; i < AWKWARD; i++) {
        struct num_model m = model_of(awkward[i].format, awkward[i].d, 0, awkward[i].dtype, 0);
        m.gqa = awkward[i].gqa;
        m.page = awkward[i].page;
        add(list, &m, "store", check_store, 1, FAULT_NONE, 0);
        add(list, &m, "dequant", check_dequant, 1, FAULT_NONE, 0);
        if (!awkward[i].attends)
            continue;
        add(list, &m, "decode", check_decode, 1, FAULT_NONE, 0);
        add(list, &m, "unified", check_unified, 1, FAULT_NONE, 0);
    }
    let_refuse(list, first);
}

static void add_promised(struct list *list)
{
    for (int i = 0; i < PROMISED; i++) {
        struct num_model m = model_of(promised[i].format, promised[i].d, 0, promised[i].dtype, 0);
        m.dv = promised[i].dv;
        m.gqa = promised[i].gqa;
        m.page = promised[i].page;
        m.kv_heads = 1;
        add(list, &m, "store", check_store, i % 3, FAULT_NONE, 0);
        add(list, &m, "dequant", check_dequant, i % 3, FAULT_NONE, 0);
        add(list, &m, "decode", check_decode, i % 3, FAULT_NONE, 0);
        add(list, &m, "unified", check_unified, i % 2, FAULT_NONE, 0);
    }
}

static void add_extras(struct list *list)
{
    for (int i = 0; i < EXTRAS; i++) {
        struct num_model m =
            model_of(extras[i].format, extras[i].d, extras[i].gqa, extras[i].dtype, extras[i].page);
        add_rows(list, &m, 0);
        add_attention(list, &m, 0);
    }
}

static void add_product(struct list *list)
{
    for (int format = 0; format < FORMATS; format++)
        for (int size = 0; size < SIZES; size++)
            for (int k = 0; k < GQAS * DTYPES * PAGES; k++) {
                struct num_model m =
                    model_of(format, sizes[size], k % GQAS, k / GQAS % DTYPES, k / GQAS / DTYPES);
                if (k % GQAS == 0) /* store and dequant know no query heads */
                    add_rows(list, &m, 1);
                add_attention(list, &m, 1);
            }
}

/* --- properties and controls --- */

static void add_properties(struct list *list, const struct num_model *m, int first)
{
    add(list, m, "page_permutation_changes_nothing", prop_page_permutation, 0, FAULT_NONE, 0);
    add(list, m, "unused_slots_never_matter", prop_unused_slots, 0, FAULT_NONE, 0);
    add(list, m, "n_splits_equal_one", prop_splits, 0, FAULT_NONE, 0);
    add(list, m, "one_dominant_key_returns_its_value", prop_dominant_key, 0, FAULT_NONE, 0);
    add(list, m, "equal_keys_return_the_mean", prop_equal_keys, 0, FAULT_NONE, 0);
    add(list, m, "linear_in_v", prop_linear_in_v, 0, FAULT_NONE, 0);
    add(list, m, "gqa_equals_gqa1_with_heads_repeated", prop_gqa_repeats, 0, FAULT_NONE, !first);
    add(list, m, "unified_equals_decode", prop_unified_is_decode, 0, FAULT_NONE, 0);
    add(list, m, "results_do_not_depend_on_rest_of_batch", prop_rest_of_batch, 0, FAULT_NONE, 0);
    add(list, m, "negative_slot_leaves_no_trace", prop_negative_slot, 0, FAULT_NONE, 0);
    add(list, m, "a_bad_sequence_spreads_to_no_other", prop_bad_sequence, 0, FAULT_NONE, 0);
    add(list, m, "a_bad_query_spreads_to_no_other", prop_bad_query, 0, FAULT_NONE, 0);
    add(list, m, "scores_far_below_zero_in_a_window", prop_far_below_zero, 0, FAULT_NONE, 0);
    if (m->dtype == KVK_FLOAT16)
        add(list, m, "fp16_rows_end_at_65504", prop_largest_values, 0, FAULT_NONE, 0);
    if (m->spec->key.kind == REF_BLOCK)
        add(list, m, "decode_of_scales_far_apart", prop_growing_scales, 0, FAULT_NONE, 0);
    if (first)
        add(list, m, "offsets_beyond_4_gib", prop_far_pages, 0, FAULT_NONE, 0);
    /* a block whose largest code is 4 gets another scale when encoded again */
    if (m->spec->key.kind != REF_BLOCK)
        add(list, m, "dequant_then_store_gives_same_codes", prop_codes_survive, 0, FAULT_NONE, 0);
}

static void add_controls(struct list *list, const struct num_model *m)
{
    add(list, m, "control_scale_2_percent/decode", check_decode, 0, FAULT_SCALE, 0);
    add(list, m, "control_scale_2_percent/unified", check_unified, 0, FAULT_SCALE, 0);
    add(list, m, "control_scale_a_fiftieth_of_a_percent/decode", check_decode, 0, FAULT_SLIGHT, 0);
    add(list, m, "control_scale_a_fiftieth_of_a_percent/unified", check_unified, 0, FAULT_SLIGHT,
        0);
    add(list, m, "control_length_off_by_one/decode", check_decode, 0, FAULT_LENGTH, 0);
    add(list, m, "control_length_off_by_one/unified", check_unified, 0, FAULT_LENGTH, 0);
    add(list, m, "control_swapped_nibbles/decode", check_decode, 0, FAULT_NIBBLES, 0);
    add(list, m, "control_swapped_nibbles/unified", check_unified, 0, FAULT_NIBBLES, 0);
    add(list, m, "control_swapped_nibbles/dequant", check_dequant, 0, FAULT_NIBBLES, 0);
    add(list, m, "control_one_sign/store", check_store, 0, FAULT_ELEMENT, 0);
    if (!m->spec->key.rotated)
        return;
    add(list, m, "control_unrotated_query/decode", check_decode, 0, FAULT_UNROTATED, 0);
    add(list, m, "control_unrotated_query/unified", check_unified, 0, FAULT_UNROTATED, 0);
}

/* --- specs that are no presets, and head sizes that differ --- */

static void add_own(struct list *list, const struct ref_spec *spec, enum ref_layout layout, int d,
                    int dv, int turn)
{
    struct num_model m = {.spec = spec,
                          .layout = layout,
                          .d = d,
                          .dv = dv,
                          .gqa = gqas[turn % GQAS],
                          .kv_heads = 1 + turn % 2,
                          .page = pages[turn % 2],
                          .dtype = dtypes[turn % DTYPES],
                          .dequant_dtype = dtypes[turn / 2 % DTYPES]};

    add(list, &m, "store", check_store, 1, FAULT_NONE, 0);
    add(list, &m, "dequant", check_dequant, 2, FAULT_NONE, 0);
    add(list, &m, "decode", check_decode, 1, FAULT_NONE, 0);
    add(list, &m, "unified", check_unified, 1, FAULT_NONE, 0);
}

static const struct ref_spec *own_spec(const char *name)
{
    const struct ref_spec *s = num_custom_specs();

    while (s->name && strcmp(s->name, name) != 0)
        s++;
    if (!s->name)
        abort();
    return s;
}

/*
** The native layout: every preset that has it, at the head sizes where planes of codes are of every
** kind (192: words and a half), in pages of one block and of several. The rest behind --full.
*/
static void add_native(struct list *list)
{
    static const int native_sizes[] = {64, 128, 256, 192};

    for (int s = 0, turn = 0; s < ref_spec_count(); s++)
        for (int i = 0; ref_spec_at(s)->native && i < 4; i++, turn++) {
            struct num_model m = {.spec = ref_spec_at(s),
                                  .layout = REF_NATIVE,
                                  .d = native_sizes[i],
                                  .dv = native_sizes[i],
                                  .gqa = gqas[turn % GQAS],
                                  .kv_heads = 1 + turn % 3,
                                  .page = pages[(turn + turn / 4) % PAGES],
                                  .dtype = dtypes[turn % DTYPES],
                                  .dequant_dtype = dtypes[turn / 2 % DTYPES]};
            for (int v = 0; v < 3; v++) {
                add(list, &m, "store", check_store, v, FAULT_NONE, v != 1);
                add(list, &m, "dequant", check_dequant, v, FAULT_NONE, v != turn % 2);
                add(list, &m, "decode", check_decode, v, FAULT_NONE, v != turn % 2);
                add(list, &m, "unified", check_unified, v, FAULT_NONE, v != 1);
            }
            for (int v = 0; v < 4; v++)
                add(list, &m, "copy", check_copy, v, FAULT_NONE, v != turn % 4);
            add(list, &m, "accepted_draft_tokens_move", check_drafts, 0, FAULT_NONE, i > 0);
            add(list, &m, "native_reads_as_other_layouts_do", prop_native_reads_alike, 0,
                FAULT_NONE, 0);
        }
}

/* Any codec that has planes on either side, 2-bit ones among them; sides of different sizes. */
static void add_native_codecs(struct list *list)
{
    static const int codec_sizes[][2] = {{64, 64}, {128, 128}, {192, 64}, {64, 256}};
    int turn = 0;

    for (const struct ref_spec *s = num_custom_specs(); s->name; s++, turn += s->native)
        if (s->native)
            add_own(list, s, REF_NATIVE, codec_sizes[turn % 4][0], codec_sizes[turn % 4][1], turn);
    add_own(list, ref_spec_find("turboquant_3bit_nc"), REF_NATIVE, 192, 64, 3);
    add_own(list, ref_spec_find("turboquant_k8v4"), REF_NATIVE, 64, 128, 4);
}

static int has_layout(const struct ref_spec *s, enum ref_layout layout)
{
    return layout == REF_AOS || (layout == REF_SOA ? s->soa : s->native);
}

/* From every layout to every other one, a way of moving each; all ways behind --full. Pages of 16 with
** the first two ways, among others, for the simulated GPUs. */
static void add_conversions(struct list *list)
{
    static num_body *const bodies[] = {check_convert_aos, check_convert_soa, check_convert_native};

    for (int s = 0, turn = 0; s < ref_spec_count(); s++)
        for (int pair = 0; pair < 9; pair++) {
            enum ref_layout from = (enum ref_layout)(pair / 3), to = (enum ref_layout)(pair % 3);
            const struct ref_spec *spec = ref_spec_at(s);
            char what[24];
            if (!spec->native || from == to || !has_layout(spec, from) || !has_layout(spec, to))
                continue;
            int core = turn / 2 % (turn % 2 ? 2 : 4);
            struct num_model m =
                model_of(0, sizes[turn % SIZES], 2, 0, turn % 2 ? 0 : turn / 2 % PAGES);
            m.spec = spec;
            m.layout = to;
            snprintf(what, sizeof what, "convert_from_%s", ref_layout_name(from));
            for (int v = 0; v < 4; v++)
                add(list, &m, what, bodies[from], v, FAULT_NONE, v != core);
            turn++;
        }
    /* the other branch of a kernel that runs above: its loads are of another kind on gfx12 */
    struct num_model m = model_of(0, 256, 2, 0, 0);
    m.spec = ref_spec_find("turboquant_4bit_nc");
    add(list, &m, "convert_from_native", check_convert_native, 1, FAULT_NONE, 0);
}

static void add_gpu_decode(struct list *list, int spec, enum ref_layout layout, const int shape[2],
                           int kv_heads, int turn, int all)
{
    struct num_model m = {.spec = ref_spec_at(spec), .layout = layout, .kv_heads = kv_heads};
    m.d = m.dv = shape[0];
    m.gqa = shape[1];
    m.page = 16;
    m.dtype = m.dequant_dtype = dtypes[turn % DTYPES];
    if (kv_heads < 8)
        add(list, &m, "decode_by_pairs", check_decode_by_pairs, 0, FAULT_NONE, 0);
    for (int v = 0; v < 4 && kv_heads == 8; v++)
        if (all || v == turn % 4)
            add(list, &m, "decode_by_images", check_decode_by_images, v, FAULT_NONE, 0);
}

/* Decode on GPUs alone. By images: the kernels that benches time, for every number of query tiles, heads enough for a
** CTA of the most. By pairs of CTAs: plans that join their warps' sums at once, and in two halves (wide heads of few
** bits, many rows). */
static void add_images(struct list *list)
{
    static const int shapes[][2] = {{128, 4},  {128, 1},  {128, 8}, {128, 12},
                                    {128, 16}, {128, 24}, {64, 8},  {256, 4}},
                     pairs[][2] = {{128, 4}, {256, 4}, {256, 1}, {64, 24}, {128, 24}};
    int turn = 0;

    for (int s = 0; s < ref_spec_count(); s++)
        for (enum ref_layout layout = REF_AOS; layout <= REF_NATIVE; layout++) {
            if (!has_layout(ref_spec_at(s), layout))
                continue;
            for (int i = 0; i < 8; i++, turn++)
                add_gpu_decode(list, s, layout, shapes[i], 8, turn, i == 0);
            for (int i = 0; i < 5; i++)
                add_gpu_decode(list, s, layout, pairs[i], 4, turn + i, 0);
        }
}

/* KV heads as CTAs share them out: one, an odd number, as many as a CTA takes, more. */
static void add_heads(struct list *list)
{
    static const char *const names[] = {"decode_of_1_head", "decode_of_3_heads",
                                        "decode_of_8_heads", "decode_of_16_heads"};
    static const int heads[] = {1, 3, 8, 16}, sizes[] = {128, 256, 64};

    for (int format = 0; format < FORMATS; format++)
        for (int h = 0; h < 4; h++) {
            struct num_model m = {
                .gqa = 1 + (format + h) % 8, .page = 16, .dtype = dtypes[h % DTYPES]};

            m.spec = format_at(format, &m.layout);
            m.d = m.dv = sizes[(format + h) % 3];
            m.kv_heads = heads[h];
            m.dequant_dtype = m.dtype;
            add(list, &m, names[h], check_decode, 1, FAULT_NONE, 0);
        }
}

/*
** Values that are rotated, corrected or both, at sizes where something ends unevenly: blocks of the
** rotation in the middle of a lane's dims (40, 72, 80), odd dims a lane, lanes that share dims, and
** warps that share a row (512, 576; on gfx11 from 72 on).
*/
static void add_values(struct list *list)
{
    static const struct {
        const char *spec;
        int soa, d, dv, gqa, page;
    } shapes[] = {
        {"own_c4_c3", 0, 128, 40, 4, 16},       {"own_c4_c3", 0, 64, 72, 16, 16},
        {"own_a4_c4", 0, 32, 512, 2, 16},       {"own_a4_c4", 1, 64, 80, 1, 8},
        {"own_e4m3_c3", 0, 64, 576, 3, 16},     {"own_fp16_ultra", 0, 16, 256, 5, 16},
        {"own_ultra_nvfp4", 0, 64, 576, 8, 32},
    };

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct num_model m = {.spec = own_spec(shapes[i].spec),
                              .layout = shapes[i].soa ? REF_SOA : REF_AOS,
                              .d = shapes[i].d,
                              .dv = shapes[i].dv,
                              .gqa = shapes[i].gqa,
                              .kv_heads = 1,
                              .page = shapes[i].page,
                              .dtype = dtypes[i % DTYPES],
                              .dequant_dtype = dtypes[i % DTYPES]};
        add(list, &m, "values/decode", check_decode, 0, FAULT_NONE, 0);
        add(list, &m, "values/decode", check_decode, 1, FAULT_NONE, 0);
        add(list, &m, "values/unified", check_unified, (int)(i % 2), FAULT_NONE, 0);
    }
    struct num_model m = {.spec = own_spec("own_c4_c3"),
                          .d = 64,
                          .dv = 64,
                          .gqa = 4,
                          .kv_heads = 2,
                          .page = 16,
                          .dtype = KVK_BFLOAT16};
    add(list, &m, "tiled_equals_unified", check_tiled, 4, FAULT_NONE, 0);
    add(list, &m, "n_splits_equal_one", prop_splits, 0, FAULT_NONE, 0);
    add(list, &m, "unified_equals_decode", prop_unified_is_decode, 0, FAULT_NONE, 0);
    add(list, &m, "halves_merge_to_the_whole", prop_merged_halves, 0, FAULT_NONE, 0);
    add(list, &m, "a_bad_sequence_spreads_to_no_other", prop_bad_sequence, 0, FAULT_NONE, 0);
    add(list, &m, "unused_slots_never_matter", prop_unused_slots, 0, FAULT_NONE, 0);
}

static void add_others(struct list *list)
{
    int turn = 0;

    for (const struct ref_spec *s = num_custom_specs(); s->name; s++, turn++)
        add_own(list, s, s->soa && turn % 2 ? REF_SOA : REF_AOS, turn % 3 ? 64 : 128,
                turn % 3 ? 64 : 128, turn);
    static const char *const plain[] = {"fp16", "bf16", "fp8_e4m3", "nvfp4", "mxfp4"};
    for (int i = 0; i < 5; i++) /* the presets that FORMATS leaves out */
        add_own(list, ref_spec_find(plain[i]), REF_AOS, i % 2 ? 64 : 128, i % 2 ? 64 : 128, i);
    add_own(list, ref_spec_find("turboquant_4bit_nc"), REF_AOS, 128, 64, 3);
    add_own(list, ref_spec_find("turboquant_k8v4"), REF_SOA, 64, 128, 4);
    /* long rows of two terms that nothing rotates, and a ratio that is no power of two: a loop over
    ** queries that no other model has on CDNA */
    for (const struct ref_spec *s = num_custom_specs(); s->name; s++)
        if (!strcmp(s->name, "own_nvfp4_mxfp4"))
            add_own(list, s, REF_AOS, 256, 256, 1);
}

/*
** 8-bit queries at sizes whose quarters begin and end at other places of a block of 32. Rotated
** ones where that is exact in fp32, as rounding it differently would round the query differently.
*/
static void add_e4m3_queries(struct list *list)
{
    static const int plain[] = {32, 96, 128, 160, 192, 320}, rotated[] = {64, 256};
    size_t first = list->count;

    for (const struct ref_spec *s = num_custom_specs(); s->name; s++)
        for (int i = 0; s->query_e4m3 && i < (s->key.rotated || s->key.group < 32 ? 2 : 6); i++) {
            struct num_model m = {.spec = s,
                                  .gqa = (const int[]){16, 1, 8, 3}[i % 4],
                                  .kv_heads = 1 + i % 2,
                                  .page = 16,
                                  .dtype = dtypes[i % DTYPES],
                                  .dequant_dtype = dtypes[i % DTYPES]};
            m.d = m.dv = s->key.rotated ? rotated[i] : plain[i];
            add(list, &m, "e4m3_query/decode", check_decode, 1, FAULT_NONE, 0);
            add(list, &m, "e4m3_query/unified", check_unified, 0, FAULT_NONE, 0);
        }
    let_refuse(list, first);
}

/* Every code and every input; the specs come in the order of fp8.h. */
static void add_fp8(struct list *list)
{
    int flavour = 0;

    for (const struct ref_spec *s = num_custom_specs(); s->name; s++) {
        struct num_model m = {.spec = s,
                              .d = 256,
                              .dv = 256,
                              .gqa = 1,
                              .kv_heads = 1,
                              .page = 16,
                              .dtype = KVK_FLOAT16,
                              .dequant_dtype = KVK_FLOAT16};
        if (!strncmp(s->name, "own_fp8_", 8))
            add(list, &m, "every_code_and_every_number", check_fp8, flavour++, FAULT_NONE, 0);
    }
}

/* --- options of attention, merge, copy --- */

static void add_options(struct list *list, const struct num_model *m, int first)
{
    static const struct {
        const char *name;
        unsigned options;
    } sets[] = {{"soft_cap_and_alibi", KVK_SOFT_CAP | KVK_ALIBI},
                {"soft_cap", KVK_SOFT_CAP},
                {"alibi", KVK_ALIBI}};
    struct num_model with = *m;

    for (int v = 2; v < 8; v++)
        add(list, m, v % 2 ? "options/unified" : "options/decode", check_options, v, FAULT_NONE, 0);
    for (int i = 0; i < 3; i++) {
        with.options = sets[i].options;
        for (int v = 0; v < 8; v++) {
            char what[48];
            snprintf(what, sizeof what, "%s/%s", sets[i].name, v % 2 ? "unified" : "decode");
            add(list, &with, what, check_options, v, FAULT_NONE, !first && i > 0);
        }
    }
    add(list, m, "one_to_sixteen_query_tokens", check_query_tokens, 0, FAULT_NONE, 0);
    add(list, m, "query_lengths_of_one_to_a_thousand", check_query_lengths, 0, FAULT_NONE, !first);
    add(list, m, "head_major/decode", check_decode, 3, FAULT_NONE, !first);
    add(list, m, "head_major/unified", check_unified, 3, FAULT_NONE, !first);
    add(list, m, "batch_invariant_bits", prop_batch_invariant, 0, FAULT_NONE, !first);
    add(list, m, "halves_merge_to_the_whole", prop_merged_halves, 0, FAULT_NONE, 0);
}

/* The second way of a continuation prefill. */
static void add_tiled(struct list *list, const struct num_model *m, int first)
{
    struct num_model with = *m;

    for (int v = 0; v < 14; v++)
        add(list, m, "tiled_equals_unified", check_tiled, v, FAULT_NONE, !first && v % 2);
    with.options = KVK_SOFT_CAP;
    add(list, &with, "tiled_equals_unified/soft_cap", check_tiled, 3, FAULT_NONE, 0);
    with.options = KVK_ALIBI;
    add(list, &with, "tiled_equals_unified/alibi", check_tiled, 4, FAULT_NONE, !first);
    add(list, &with, "tiled_equals_unified/alibi", check_tiled, 5, FAULT_NONE, 0);
    add(list, &with, "tiled_equals_unified/alibi", check_tiled, 8, FAULT_NONE, !first);
    with.options = KVK_SOFT_CAP | KVK_ALIBI;
    add(list, &with, "tiled_equals_unified/soft_cap_and_alibi", check_tiled, 9, FAULT_NONE, 0);
    if (!first)
        return;
    add(list, m, "one_million_tokens", check_million, 0, FAULT_NONE, 0);
    add(list, m, "graph_replay_equals_eager/tiled", graph_tiled, 0, FAULT_NONE, 0);
    with = *m;
    with.dv = m->d == 64 ? 128 : 64;
    add(list, &with, "tiled_equals_unified", check_tiled, 3, FAULT_NONE, 0);
}

/* Rows of the merge kernel are values' sizes only; bytes of the copy kernel are those of a format. */
static void add_moves(struct list *list)
{
    static const int value_sizes[] = {16, 64, 72, 128, 192, 320, 1024};

    for (int i = 0; i < 7; i++) {
        struct num_model m = model_of(1, 64, i, i % 2, 0);
        m.d = m.dv = value_sizes[i];
        for (int v = 0; v < 4; v++)
            add(list, &m, "merge", check_merge, v, FAULT_NONE, 0);
    }
    for (int format = 0; format < FORMATS; format++) {
        struct num_model m = model_of(format, sizes[format % SIZES], 2, 0, format % PAGES);
        for (int v = 0; v < 4; v++)
            add(list, &m, "copy", check_copy, v, FAULT_NONE, 0);
        add(list, &m, "accepted_draft_tokens_move", check_drafts, 0, FAULT_NONE, 0);
    }
    for (int i = 0; i < AWKWARD; i++) {
        struct num_model m = model_of(awkward[i].format, awkward[i].d, 0, awkward[i].dtype, 0);
        m.page = awkward[i].page;
        add(list, &m, "copy", check_copy, i % 4, FAULT_NONE, 0);
    }
}

struct num_case *num_cases(int full, size_t *count)
{
    struct list list = {0};

    if (full)
        add_product(&list);
    else
        add_covering(&list);
    add_extras(&list);
    add_awkward(&list);
    add_promised(&list);
    add_others(&list);
    add_native(&list);
    add_native_codecs(&list);
    add_heads(&list);
    add_images(&list);
    add_values(&list);
    add_e4m3_queries(&list);
    add_fp8(&list);
    for (int i = 0; i < PINNED; i++) {
        const struct pick *p = &pinned[i];
        struct num_model m = model_of(p->format, sizes[p->size], p->gqa, p->dtype, p->page);
        add_properties(&list, &m, i < 2);
        add_controls(&list, &m);
        add_options(&list, &m, i < 2);
        add_tiled(&list, &m, i < 2);
    }
    add_moves(&list);
    add_conversions(&list);
    size_t kept = 0;
    for (size_t i = 0; i < list.count; i++)
        if (full || !list.cases[i].full)
            list.cases[kept++] = list.cases[i];
    *count = kept;
    return list.cases;
}
