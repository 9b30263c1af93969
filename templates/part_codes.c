/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_codes.c - one step's codes, scales and fields from memory to registers.
**
** Addresses never leave the tokens that exist: a subtile at or past the length is replaced by the
** sequence's last one (its tokens are masked later), so no block-table entry past the length is
** read and every load lies inside a slot.
*/
#include "part_image_pairs.h"

#include "part_image_native.h"
#include "part_native.h"
#include "part_powers.h"
#include "part_squares.h"
#include "part_word_pairs.h"
#include "part_words.h"

static int min_int(int a, int b) { return a < b ? a : b; }
static int gcd(int a, int b) { return b ? gcd(b, a % b) : a; }

/* Cached tokens do not change while a kernel runs; images of their pages do. */
static val get(struct kb *k, const struct attend *a, int type, val at, int align)
{
    return a->image ? kb_load(K, type, at, align) : kb_load_once(K, type, at, align);
}

/* The same from shared memory, where whole words around them can be read: shifted together. */
static void load_shifted(struct kb *k, const struct attend *a, val at, int bytes, val *words)
{
    int n = (bytes + 3) / 4, around = (bytes + 2 + 3) / 4;
    val in[ATTEND_KEY_WORDS + 1], low = kb_address_bits(K, at, 2);
    val first = kb_offset(K, at, kb_sub(K, kb_i32(K, 0), low)), shift = kb_shli(K, low, 3);
    for (int i = 0; i < around; i++)
        in[i] = get(K, a, KB_I32, kb_offseti(K, first, 4LL * i), 4);
    for (int i = 0; i < n; i++)
        words[i] =
            i + 1 < around ? kb_funnel(K, in[i], in[i + 1], shift) : kb_lshr(K, in[i], shift);
    if (bytes % 4)
        words[n - 1] = kb_andi(K, words[n - 1], (1LL << bytes % 4 * 8) - 1);
}

void attend_load_words(struct kb *k, const struct attend *a, val at, int bytes, int align,
                       val *words)
{
    int unit = min_int(align, 16);
    if (a->image && unit == 2 && bytes > 2) {
        load_shifted(K, a, at, bytes, words);
        return;
    }
    if (unit >= 8) { /* vectors of 2 or 4 words */
        int n = unit / 4;
        for (int i = 0; i < bytes / unit; i++) {
            val v = get(K, a, KB_VEC(KB_I32, n), kb_offseti(K, at, i * unit), unit);
            for (int j = 0; j < n; j++)
                words[i * n + j] = kb_extract(K, v, j);
        }
        return;
    }
    int type = unit == 4 ? KB_I32 : unit == 2 ? KB_I16 : KB_I8;
    for (int i = 0; i < bytes / unit; i++) {
        val x = get(K, a, type, kb_offseti(K, at, i * unit), unit);
        x = kb_shli(K, kb_zext(K, x, KB_I32), i * unit % 4 * 8);
        words[i * unit / 4] = i * unit % 4 ? kb_or(K, words[i * unit / 4], x) : x;
    }
}

static void load_scales(struct kb *k, const struct attend *a, val at, val first_element, int run,
                        int group, val *scales)
{
    int chunk = gcd(run, group);
    for (int i = 0; i < run / chunk; i++) {
        val element = kb_addi(K, first_element, i * chunk);
        val byte = get(K, a, KB_I8, kb_offset(K, at, kb_divi(K, element, group)), 1);
        scales[i] = kb_zext(K, byte, KB_I32);
    }
}

/* A run that begins inside a byte for some lanes (5 dims of 4 bits): loads the bytes it can touch,
** shifts it down. What may lie behind the codes' last byte belongs to the same slot or page. */
static void load_bits(struct kb *k, const struct attend *a, val codes, val first_bit, int bits,
                      val *words)
{
    int bytes = (7 + bits + 7) / 8, n = (bytes + 3) / 4;
    attend_load_words(K, a, kb_offset(K, codes, kb_lshri(K, first_bit, 3)), bytes, 1, words);
    val shift = kb_andi(K, first_bit, 7);
    val up = kb_sub(K, kb_i32(K, 31), shift);
    for (int i = 0; i < n; i++) {
        val low = kb_lshr(K, words[i], shift);
        if (i + 1 < n) {
            val high = kb_shl(K, kb_shli(K, words[i + 1], 1), up);
            low = kb_or(K, low, high);
        }
        words[i] = low;
    }
}

void attend_load_run(struct kb *k, const struct attend *a, const struct slot_token *token,
                     const struct side *side, val first, int run, int step, val *words, val *scales)
{
    int bits = run * side->codec.bits, unit = step * side->codec.bits;
    val codes = slot_codes(K, token, side);
    val first_bit = kb_muli(K, first, side->codec.bits);
    if (token->head->layout == LAYOUT_NATIVE) {
        native_load_run(K, token, side, first, run, step, words);
    } else if (bits % 8 || unit % 8) {
        load_bits(K, a, codes, first_bit, bits, words);
    } else {
        int align = plan_run_unit(side, run, step);
        val first_byte = kb_offset(K, codes, kb_lshri(K, first_bit, 3));
        attend_load_words(K, a, first_byte, bits / 8, align, words);
    }
    if (side->scale_bytes && !a->plan->powers) { /* part_powers.c reads them by itself */
        val at_scales = slot_scales(K, token, side);
        load_scales(K, a, at_scales, first, run, side->codec.group, scales);
    }
}

/* Fields of the one token whose facts this lane prepares. */
static void load_fields(struct kb *k, const struct attend *a, const struct slot_token *token,
                        val *field)
{
    const struct slot *slot = &a->plan->slot;
    const struct side *sides[2] = {&slot->key, &slot->value};
    int n = 0;
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < sides[s]->fields; i++) {
            int align = slot_field_align(&a->head, sides[s], i);
            field[n++] = get(K, a, KB_I16, slot_field(K, token, sides[s], i), align);
        }
}

void attend_table(struct kb *k, struct attend *a, val sequence)
{
    val entries = kb_mul(K, kb_zext(K, sequence, KB_I64), kb_param(K, "table_stride"));
    val wide = kb_zext(K, kb_param(K, "table_64"), KB_I64);
    val bytes = kb_shl(K, kb_i64(K, 4), wide);
    a->table = kb_offset(K, kb_param(K, "table"), kb_mul(K, entries, bytes));
}

/* Page number of the sequence's page `index`; the low half of an int64 entry is its first word. */
val attend_page(struct kb *k, const struct attend *a, val index)
{
    val bytes = kb_shl(K, kb_i64(K, 4), kb_zext(K, kb_param(K, "table_64"), KB_I64));
    val at = kb_mul(K, kb_zext(K, index, KB_I64), bytes);
    return kb_load_once(K, KB_I32, kb_offset(K, a->table, at), 4);
}

/* What attend_load knows of its subtiles: their first tokens, where 16 tokens share a page. */
struct subtiles {
    val start;
    struct slot_token first[ATTEND_SUBTILES];
};

/* First token of subtile `sub`, kept inside the sequence. */
static struct slot_token find_subtile(struct kb *k, const struct attend *a, val start, int sub)
{
    int tokens = a->plan->geo.page_tokens;
    if (a->image) {
        val page = kb_offset(K, a->image, kb_muli(K, a->image_page, sub));
        return (struct slot_token){
            .head = &a->head,
            .record = kb_offset(K, page, a->head.record),
            .place = kb_i32(K, 0),
            .field =
                kb_offset(K, page, a->head.layout == LAYOUT_SOA ? a->head.field : a->head.record)};
    }
    val last = kb_andi(K, kb_addi(K, a->length, -1), -16);
    val begin = kb_smin(K, kb_addi(K, start, 16 * sub), last);
    val page = attend_page(K, a, kb_divi(K, begin, tokens));
    val position = tokens == 16 ? kb_i32(K, 0) : kb_remi(K, begin, tokens);
    return slot_token(K, &a->head, page, position);
}

/* Token `index` (0..15, i32) of a subtile; `steps`: as many positions in bytes, or NULL. */
static struct slot_token find_token(struct kb *k, const struct attend *a, const struct subtiles *s,
                                    int sub, val index, val steps)
{
    if (a->plan->paged_subtiles)
        return slot_later(K, &s->first[sub], index, steps);
    int tokens = a->plan->geo.page_tokens;
    val at = kb_add(K, kb_addi(K, s->start, 16 * sub), index);
    at = kb_smin(K, at, kb_addi(K, a->length, -1));
    val page = attend_page(K, a, kb_divi(K, at, tokens));
    return slot_token(K, &a->head, page, kb_remi(K, at, tokens));
}

/* The one token whose facts this lane prepares: lane % (16 * subtiles). */
static struct slot_token own_token(struct kb *k, const struct attend *a, const struct subtiles *s)
{
    if (a->own_field) {
        val from = a->image_fields ? a->image_fields : a->image;
        val own = kb_offset(K, from, a->own_field);
        return (struct slot_token){
            .head = &a->head, .record = own, .field = own, .place = kb_i32(K, 0)};
    }
    val index = kb_andi(K, kb_lane(K), 15), steps = slot_steps(K, &a->head, index);
    if (a->plan->subtiles == 1)
        return find_token(K, a, s, 0, index, steps);
    val upper = kb_icmpi(K, KB_NE, kb_andi(K, kb_lane(K), 16), 0);
    struct subtiles own = *s;
    if (a->plan->paged_subtiles) {
        own.first[0].record = kb_select(K, upper, s->first[1].record, s->first[0].record);
        own.first[0].field = kb_select(K, upper, s->first[1].field, s->first[0].field);
    } else {
        own.start = kb_select(K, upper, kb_addi(K, s->start, 16), s->start);
    }
    return find_token(K, a, &own, 0, index, steps);
}

/* The token along k: whole positions after the first, a constant times the step. */
static struct slot_token direct_value(struct kb *k, const struct attend *a,
                                      const struct subtiles *s, int sub, int e)
{
    val index = kb_matrix(K)->k_index(K, e), first = kb_matrix(K)->k_index(K, 0);
    val more = slot_steps(K, &a->head, kb_sub(K, index, first));
    return find_token(K, a, s, sub, index, kb_add(K, a->k_steps, more));
}

/* `more`: bytes on, or NULL. */
static struct slot_token image_value(struct kb *k, const struct attend *a, const struct subtiles *s,
                                     int sub, int e, val more)
{
    bool next = e % 4 >= 2; /* 8 rows on from e - 2: at a sum that costs no register */
    val steps = a->v_steps[next ? e - 2 : e];
    if (more)
        steps = kb_add(K, steps, more);
    if (next)
        steps = kb_add(K, steps, kb_muli(K, a->head.step, a->tokens_8));
    return find_token(K, a, s, sub, a->k_token[e], steps);
}

/* A row of words: where held places lead from rows 0 to 7 of a step (part_words.c), to those eight on, to the other
** page's; or a token's record. */
static void add_row(struct kb *k, const struct attend *a, struct word_rows *w, int which, val own,
                    val record, val *words)
{
    bool held = a->plan->held_places;
    w->row[w->count] = held ? kb_offset(K, a->image, a->rows_8[which]) : record;
    w->own[w->count] = held ? own : kb_i32(K, 0);
    w->words[w->count++] = words;
}

/* The lane's words of all subtiles' tokens. */
static void word_keys(struct kb *k, const struct attend *a, const struct subtiles *s,
                      struct attend_codes *c)
{
    struct word_rows w = {.count = 0};
    int bits = a->plan->slot.key.codec.bits;
    val first = kb_add(K, a->y_steps, a->words.key);
    for (int u = 0; u < a->plan->subtiles; u++)
        for (int t = 0; t < a->y_tiles; t++) {
            struct slot_token token = {.record = NULL};
            if (!a->plan->held_places) {
                val more = kb_muli(K, a->head.step, (long long)t * a->tokens_8);
                token = find_token(K, a, s, u, a->y_token, kb_add(K, first, more));
            }
            add_row(K, a, &w, 2 * u + t, a->y_steps, token.record, c->key[u][t]);
        }
    words_load(K, a, &w, a->key_run * bits / 32, a->shape.groups);
}

static void word_values(struct kb *k, const struct attend *a, const struct subtiles *s,
                        struct attend_codes *c)
{
    struct word_rows w = {.count = 0};
    int tiles = a->shape.k_tiles, each = a->shape.ke / tiles;
    for (int u = 0; u < a->plan->subtiles; u++)
        for (int e = 0; e < each; e++) {
            struct slot_token token = {.record = NULL};
            if (!a->plan->held_places)
                token = image_value(K, a, s, u, e, a->words.value);
            val *words = c->value[u / tiles][u % tiles * each + e];
            add_row(K, a, &w, 2 * u + e / 2, a->v_steps[e % 2], token.record, words);
        }
    int bits = a->plan->slot.value.codec.bits;
    words_load(K, a, &w, a->dims * bits / 32, a->shape.y_tile);
}

/* In pairs, by loads that transpose where rows allow it. */
static void pair_values(struct kb *k, const struct attend *a, const struct subtiles *s,
                        struct attend_codes *c)
{
    struct attend_codes other = *c;
    struct kb_if fit = kb_if(K, word_pairs_fit(K));
    word_pairs_load(K, a, c);
    kb_else(K, &fit);
    word_values(K, a, s, &other);
    word_pairs_join(K, a, &other);
    kb_endif(K, &fit);
    for (int u = 0; u < a->plan->subtiles; u++)
        for (int w = 0; w < image_native_words(a); w++)
            c->value[u][0][w] = kb_merge(K, &fit, c->value[u][0][w], other.value[u][0][w]);
}

/* The y'th tokens' key runs. */
static void load_keys(struct kb *k, const struct attend *a, const struct subtiles *s, int sub,
                      struct attend_codes *c)
{
    const struct slot *slot = &a->plan->slot;
    if (image_is_native(a)) {
        image_native_keys(K, a, s->first[sub].record, sub, c);
        return;
    }
    if (a->plan->turned) {
        pairs_keys(K, a, sub, c);
        return;
    }
    if (powers_by_rows(a)) {
        powers_keys(K, a, sub, c);
        return;
    }
    val key_first = kb_muli(K, a->group, a->key_run);
    for (int t = 0; t < a->y_tiles; t++) {
        int later = t * (a->image ? a->tokens_8 : a->shape.y_tile);
        val index = kb_addi(K, a->image ? a->y_token : a->y, later);
        val more = kb_muli(K, a->head.step, later);
        struct slot_token token = find_token(K, a, s, sub, index, kb_add(K, a->y_steps, more));
        attend_load_run(K, a, &token, &slot->key, key_first, a->key_run, a->key_run, c->key[sub][t],
                        c->key_scale[sub][t]);
    }
}

/* The value runs of the tokens along k: those lie whole positions after the first, which costs one
** addition each. */
static void load_values(struct kb *k, const struct attend *a, const struct subtiles *s, int sub,
                        struct attend_codes *c)
{
    const struct slot *slot = &a->plan->slot;
    if (image_is_native(a)) {
        image_native_values(K, a, s->first[sub].record, sub, c);
        return;
    }
    if (powers_by_rows(a)) {
        powers_values(K, a, sub, c);
        return;
    }
    if (a->plan->turned) {
        pairs_values(K, a, sub, c);
        return;
    }
    int dims = a->dims, step = a->plan->dims_overlap ? gcd(dims, a->plan->dims_overlap) : dims;
    val value_first = attend_first_dim(K, a, a->y);
    int tiles = a->shape.k_tiles, each = a->shape.ke / tiles, product = sub / tiles;
    for (int e = 0; e < each; e++) {
        int at = sub % tiles * each + e; /* among the tokens of the product */
        struct slot_token token =
            a->image ? image_value(K, a, s, sub, e, NULL) : direct_value(K, a, s, sub, e);
        attend_load_run(K, a, &token, &slot->value, value_first, dims, step, c->value[product][at],
                        c->value_scale[product][at]);
        if (slot->value.norm_at_read)
            c->value_squares[product][at] = attend_other_squares(K, a, &token, step);
    }
}

static struct subtiles find_subtiles(struct kb *k, const struct attend *a, val start)
{
    struct subtiles s = {.start = start};
    for (int u = 0; a->plan->paged_subtiles && u < a->plan->subtiles; u++)
        s.first[u] = find_subtile(K, a, start, u);
    return s;
}

static void fields(struct kb *k, const struct attend *a, const struct subtiles *s,
                   struct attend_codes *c)
{
    if (!a->plan->slot.fields)
        return;
    struct slot_token token = own_token(K, a, s);
    load_fields(K, a, &token, c->field);
    if (a->image && (a->plan->key_words || a->plan->value_words))
        words_patch(K, a, &token);
}

void attend_load(struct kb *k, const struct attend *a, val start, struct attend_codes *c)
{
    struct subtiles s = find_subtiles(K, a, start);
    for (int u = 0; u < a->plan->subtiles; u++) {
        load_keys(K, a, &s, u, c);
        load_values(K, a, &s, u, c);
    }
    fields(K, a, &s, c);
}

void attend_load_keys(struct kb *k, const struct attend *a, val start, struct attend_codes *c)
{
    struct subtiles s = find_subtiles(K, a, start);
    if (a->plan->key_words || a->plan->value_words) /* these make the words whole */
        fields(K, a, &s, c);
    if (a->plan->key_words) {
        word_keys(K, a, &s, c);
        return;
    }
    for (int u = 0; u < a->plan->subtiles; u++)
        load_keys(K, a, &s, u, c);
    if (!a->plan->value_words)
        fields(K, a, &s, c);
}

void attend_load_values(struct kb *k, const struct attend *a, val start, struct attend_codes *c)
{
    struct subtiles s = find_subtiles(K, a, start);
    if (a->plan->value_words && a->plan->value_pairs) {
        pair_values(K, a, &s, c);
        return;
    }
    if (a->plan->value_words) {
        word_values(K, a, &s, c);
        return;
    }
    for (int u = 0; u < a->plan->subtiles; u++)
        load_values(K, a, &s, u, c);
}
