/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_dense_attend.c - one group's rows over the ring's tiles: see part_dense.h.
*/
#include "part_dense.h"

enum { SLACK = 8, ROWS = 2, ROW_SCORES = DENSE_SCORES / ROWS };

/* Fixed for a warp. */
struct warp {
    const struct dense *d;
    val queries;          /* shared: the group's tile */
    val scale[ROWS];      /* f32: of a row's products, > 0 */
    val first[ROWS];      /* i32: first key that the row sees, less the lane's first column */
    val count[ROWS];      /* i32: so many from there */
    val all_from, all_to; /* i32: keys between these are seen by all rows of the warp */
    val thread;           /* i32: among those of the groups */
};

/* What the loop carries. */
struct carried {
    val tile, held[ROWS]; /* held: m of the sums in memory */
    struct dense_sums s;
    val p[DENSE_TERMS * DENSE_PAIRS]; /* the last: so many of them as there are terms */
};

val dense_row(struct kb *k, val group)
{
    val warp = kb_andi(K, kb_warp(K), KB_GROUP_WARPS - 1);
    val tile = kb_shli(K, group, 6), first = kb_add(K, tile, kb_shli(K, warp, 4));
    return kb_add(K, first, kb_lshri(K, kb_lane(K), 2));
}

val dense_nothing(struct kb *k) { return kb_f32(K, -3e38); }

/* ---- masks ---- */

static void lane_keys(struct kb *k, struct warp *w, val group)
{
    const struct dense *d = w->d;
    val window = kb_param(K, "window"), zero = kb_i32(K, 0);
    val windowed = kb_icmpi(K, KB_SGT, window, 0);
    val full = kb_icmpi(K, KB_NE, kb_param(K, "full"), 0);
    val newest = kb_addi(K, d->length, -1), column = kb_shli(K, kb_andi(K, kb_lane(K), 3), 1);
    for (int i = 0; i < ROWS; i++) {
        val head, valid, row = kb_addi(K, dense_row(K, group), 8 * i);
        val token = rows_token(K, &d->rows, row, &head, &valid);
        val position = kb_add(K, d->oldest, token);
        val reach = kb_addi(K, kb_sub(K, position, window), 1);
        val first = kb_select(K, windowed, kb_smax(K, reach, zero), zero);
        val last = kb_select(K, full, newest, position);
        val count = kb_smax(K, kb_addi(K, kb_sub(K, last, first), 1), zero);
        w->first[i] = kb_sub(K, first, column);
        w->count[i] = count;
    }
}

static void warp_keys(struct kb *k, struct warp *w, val group)
{
    const struct dense *d = w->d;
    int gqa = d->plan->geo.gqa;
    val window = kb_param(K, "window"), zero = kb_i32(K, 0);
    val windowed = kb_icmpi(K, KB_SGT, window, 0);
    val full = kb_icmpi(K, KB_NE, kb_param(K, "full"), 0);
    val own = kb_shli(K, kb_andi(K, kb_warp(K), KB_GROUP_WARPS - 1), 4);
    val row = kb_add(K, kb_add(K, d->rows.first, kb_shli(K, group, 6)), own);
    val oldest = kb_add(K, d->oldest, kb_divi(K, row, gqa));
    val newest = kb_add(K, d->oldest, kb_divi(K, kb_addi(K, row, 15), gqa));
    val reach = kb_addi(K, kb_sub(K, newest, window), 1);
    w->all_from = kb_select(K, windowed, kb_smax(K, reach, zero), zero);
    w->all_to = kb_select(K, full, d->length, kb_addi(K, oldest, 1));
}

/* Scores of keys that a row does not see become -inf, where the tile has any. */
static void mask(struct kb *k, const struct warp *w, val tile, val *s)
{
    val infinity = kb_f32_bits(K, 0xff800000), seen[DENSE_SCORES];
    val base = kb_add(K, w->d->start, kb_shli(K, tile, 6));
    val early = kb_icmp(K, KB_SLT, base, w->all_from);
    val late = kb_icmp(K, KB_SGT, kb_addi(K, base, KB_TILE_TOKENS), w->all_to);
    struct kb_if some = kb_if(K, kb_or(K, early, late));
    for (int i = 0; i < ROWS; i++) {
        val from = kb_sub(K, base, w->first[i]);
        for (int j = 0; j < ROW_SCORES; j++) {
            int at = j / 2 * 4 + i * 2 + j % 2;
            val key = kb_addi(K, from, j / 2 * 8 + j % 2);
            val visible = kb_icmp(K, KB_ULT, key, w->count[i]);
            seen[at] = kb_select(K, visible, s[at], infinity);
        }
    }
    kb_endif(K, &some);
    for (int i = 0; i < DENSE_SCORES; i++)
        s[i] = kb_merge(K, &some, seen[i], s[i]);
}

/* ---- softmax ---- */

static val row_of(const val *s, int row, int j) { return s[j / 2 * 4 + row * 2 + j % 2]; }

static val reduce(struct kb *k, const val *s, int row, val (*join)(struct kb *, val, val))
{
    val t[ROW_SCORES];
    for (int j = 0; j < ROW_SCORES; j++)
        t[j] = row_of(s, row, j);
    for (int n = ROW_SCORES / 2; n; n /= 2)
        for (int j = 0; j < n; j++)
            t[j] = join(k, t[j], t[j + n]);
    return t[0];
}

/* Moves the references where a score passes one by much; factor: of what was summed before. Returns
** whether any of the warp moved. */
static val move(struct kb *k, const struct warp *w, const val *s, struct dense_sums *sums,
                val factor[ROWS])
{
    val top[ROWS], passed = NULL, m[ROWS], l[ROWS], moved_factor[ROWS];
    for (int i = 0; i < ROWS; i++) {
        top[i] = kb_fmul(K, reduce(K, s, i, kb_fmaxnum), w->scale[i]);
        val above = kb_fcmp(K, KB_OGT, top[i], kb_fadd(K, sums->m[i], kb_f32(K, SLACK)));
        passed = passed ? kb_or(K, passed, above) : above;
    }
    val moved = kb_any(K, passed);
    struct kb_if some = kb_if(K, moved);
    for (int i = 0; i < ROWS; i++) {
        for (int lanes = 1; lanes < 4; lanes *= 2)
            top[i] = kb_fmaxnum(K, top[i], kb_shuffle_xor(K, top[i], lanes));
        m[i] = kb_fmaxnum(K, top[i], sums->m[i]);
        moved_factor[i] = kb_exp2(K, kb_fsub(K, sums->m[i], m[i]));
        l[i] = kb_fmul(K, sums->l[i], moved_factor[i]);
    }
    kb_endif(K, &some);
    for (int i = 0; i < ROWS; i++) {
        factor[i] = kb_merge(K, &some, moved_factor[i], kb_f32(K, 1));
        sums->m[i] = kb_merge(K, &some, m[i], sums->m[i]);
        sums->l[i] = kb_merge(K, &some, l[i], sums->l[i]);
    }
    return moved;
}

/* Scores to weights. */
static void weigh(struct kb *k, const struct warp *w, val *s, struct dense_sums *sums)
{
    for (int i = 0; i < ROWS; i++) {
        val below = kb_fneg(K, sums->m[i]);
        for (int j = 0; j < ROW_SCORES; j++) {
            int at = j / 2 * 4 + i * 2 + j % 2;
            s[at] = kb_exp2(K, kb_fma(K, s[at], w->scale[i], below));
        }
        sums->l[i] = kb_fadd(K, sums->l[i], reduce(K, s, i, kb_fadd));
    }
}

static int terms(const struct warp *w) { return w->d->type == KB_F16 ? 1 : DENSE_TERMS; }

static void pack(struct kb *k, const struct warp *w, const val *s, val *p)
{
    for (int i = 0; i < DENSE_PAIRS; i++)
        p[i] = kb_pack_half(K, s[2 * i], s[2 * i + 1], w->d->type);
    for (int i = 0; i < DENSE_PAIRS * (terms(w) - 1); i++) {
        val low = kb_bitcast(K, kb_shli(K, p[i], 16), KB_F32);
        val high = kb_bitcast(K, kb_andi(K, p[i], -0x10000), KB_F32);
        val first = kb_fsub(K, s[2 * i], low), second = kb_fsub(K, s[2 * i + 1], high);
        p[DENSE_PAIRS + i] = kb_pack_half(K, first, second, w->d->type);
    }
}

/* ---- output sums ---- */

static int outputs(const struct warp *w) { return w->d->plan->geo.value_head_size / 2; }

static void scale_outputs(struct kb *k, const struct warp *w, val moved, const val *factor, val *o)
{
    val scaled[DENSE_OUT];
    struct kb_if some = kb_if(K, moved);
    for (int i = 0; i < outputs(w); i++)
        scaled[i] = kb_fmul(K, o[i], factor[i / 2 % 2]);
    kb_endif(K, &some);
    for (int i = 0; i < outputs(w); i++)
        o[i] = kb_merge(K, &some, scaled[i], o[i]);
}

/* Sum i of this thread in memory: lanes meet different banks. */
static val place_of(struct kb *k, const struct warp *w, int i)
{
    val at = kb_offset(K, w->d->sums, kb_shli(K, w->thread, 2));
    return kb_offseti(K, at, (long long)i * 4 * w->d->plan->rows * 2);
}

/* Those in memory, brought to the reference m. */
static void gain(struct kb *k, const struct warp *w, const val *held, const val *m, val *o)
{
    for (int i = 0; i < outputs(w); i++) {
        int row = i / 2 % 2;
        val factor = kb_exp2(K, kb_fsub(K, held[row], m[row]));
        val before = kb_load(K, KB_F32, place_of(K, w, i), 4);
        o[i] = kb_fma(K, before, factor, o[i]);
    }
}

static val chunks(struct kb *k, const struct warp *w)
{
    int tiles = w->d->plan->chunk_tokens / KB_TILE_TOKENS;
    return kb_icmpi(K, KB_SGT, w->d->tiles, tiles);
}

static void clear_memory(struct kb *k, const struct warp *w)
{
    struct kb_if several = kb_if(K, chunks(K, w));
    for (int i = 0; i < outputs(w); i++)
        kb_store(K, kb_f32(K, 0), place_of(K, w, i), 4);
    kb_endif(K, &several);
}

/* A chunk has ended: its sums go to memory. */
static void end_chunk(struct kb *k, const struct warp *w, struct carried *c)
{
    int tiles = w->d->plan->chunk_tokens / KB_TILE_TOKENS;
    val kept[DENSE_OUT];
    for (int i = 0; i < outputs(w); i++)
        kept[i] = c->s.o[i];
    struct kb_if ends = kb_if(K, kb_icmpi(K, KB_EQ, kb_remi(K, c->tile, tiles), 0));
    gain(K, w, c->held, c->s.m, kept);
    for (int i = 0; i < outputs(w); i++)
        kb_store(K, kept[i], place_of(K, w, i), 4);
    kb_endif(K, &ends);
    for (int i = 0; i < outputs(w); i++)
        c->s.o[i] = kb_merge(K, &ends, kb_f32(K, 0), c->s.o[i]);
    for (int i = 0; i < ROWS; i++)
        c->held[i] = kb_merge(K, &ends, c->s.m[i], c->held[i]);
}

/* ---- the ring ---- */

static val place_in_ring(struct kb *k, const struct warp *w, val tile)
{
    return kb_andi(K, tile, w->d->plan->dense_tiles - 1);
}

static val keys_of(struct kb *k, const struct warp *w, val tile)
{
    int bytes = kb_tile_bytes(w->d->plan->geo.head_size);
    return kb_offset(K, w->d->keys, kb_muli(K, place_in_ring(K, w, tile), bytes));
}

static val values_of(struct kb *k, const struct warp *w, val tile)
{
    int bytes = kb_tile_bytes(w->d->plan->geo.value_head_size);
    return kb_offset(K, w->d->values, kb_muli(K, place_in_ring(K, w, tile), bytes));
}

static void await(struct kb *k, const struct warp *w, val tile)
{
    val round = kb_divi(K, tile, w->d->plan->dense_tiles);
    val bar = kb_offset(K, w->d->full, kb_shli(K, place_in_ring(K, w, tile), 3));
    kb_bulk_wait(K, bar, kb_andi(K, round, 1));
}

static void give_back(struct kb *k, const struct warp *w, val tile)
{
    kb_warp_sync(K);
    struct kb_if one = kb_if(K, kb_elect(K));
    kb_arrive(K, kb_offset(K, w->d->empty, kb_shli(K, place_in_ring(K, w, tile), 3)));
    kb_endif(K, &one);
}

/* ---- the loop ---- */

static void start_scores(struct kb *k, const struct warp *w, val tile, val *s)
{
    val keys = keys_of(K, w, tile);
    kb_group_scores(K, w->d->type, w->d->plan->geo.head_size, w->queries, keys, s);
}

static void start_values(struct kb *k, const struct warp *w, val tile, struct carried *c)
{
    val values = values_of(K, w, tile);
    int size = w->d->plan->geo.value_head_size;
    kb_group_values(K, w->d->type, size, c->p, terms(w), values, c->s.o);
}

static void first_tile(struct kb *k, const struct warp *w, struct carried *c)
{
    val s[DENSE_SCORES], factor[ROWS];
    await(K, w, kb_i32(K, 0));
    start_scores(K, w, kb_i32(K, 0), s);
    kb_group_wait(K, 0, s, DENSE_SCORES, NULL, 0);
    mask(K, w, kb_i32(K, 0), s);
    move(K, w, s, &c->s, factor);
    weigh(K, w, s, &c->s);
    pack(K, w, s, c->p);
}

static void next_tile(struct kb *k, const struct warp *w, struct carried *c)
{
    val s[DENSE_SCORES], factor[ROWS], before = kb_addi(K, c->tile, -1);
    await(K, w, c->tile);
    start_scores(K, w, c->tile, s);
    start_values(K, w, before, c);
    kb_group_wait(K, 1, s, DENSE_SCORES, NULL, 0);
    mask(K, w, c->tile, s);
    val moved = move(K, w, s, &c->s, factor);
    weigh(K, w, s, &c->s);
    kb_group_wait(K, 0, c->s.o, outputs(w), c->p, terms(w) * DENSE_PAIRS);
    give_back(K, w, before);
    scale_outputs(K, w, moved, factor, c->s.o);
    end_chunk(K, w, c);
    pack(K, w, s, c->p);
}

static struct warp make_warp(struct kb *k, const struct dense *d, val group)
{
    struct warp w = {.d = d};
    w.thread = kb_tid(K);
    int bytes = kb_tile_bytes(d->plan->geo.head_size);
    w.queries = kb_offset(K, d->queries, kb_muli(K, group, bytes));
    val at = kb_offset(K, d->factors, kb_shli(K, dense_row(K, group), 2));
    for (int i = 0; i < ROWS; i++)
        w.scale[i] = kb_load(K, KB_F32, kb_offseti(K, at, 8LL * 4 * i), 4);
    lane_keys(K, &w, group);
    warp_keys(K, &w, group);
    return w;
}

static void last_values(struct kb *k, const struct warp *w, struct carried *c)
{
    val joined[DENSE_OUT], last = kb_addi(K, w->d->tiles, -1);
    start_values(K, w, last, c);
    kb_group_wait(K, 0, c->s.o, outputs(w), c->p, terms(w) * DENSE_PAIRS);
    for (int i = 0; i < outputs(w); i++)
        joined[i] = c->s.o[i];
    struct kb_if several = kb_if(K, chunks(K, w));
    gain(K, w, c->held, c->s.m, joined);
    kb_endif(K, &several);
    for (int i = 0; i < outputs(w); i++)
        c->s.o[i] = kb_merge(K, &several, joined[i], c->s.o[i]);
}

void dense_attend(struct kb *k, const struct dense *d, val group, struct dense_sums *s)
{
    struct warp w = make_warp(K, d, group);
    struct carried c = {.tile = kb_i32(K, 1)};
    for (int i = 0; i < ROWS; i++) {
        c.s.m[i] = c.held[i] = dense_nothing(K);
        c.s.l[i] = kb_f32(K, 0);
    }
    for (int i = 0; i < outputs(&w); i++)
        c.s.o[i] = kb_f32(K, 0);
    clear_memory(K, &w);
    first_tile(K, &w, &c);
    struct kb_loop loop;
    size_t carried = sizeof c / sizeof(val) - (size_t)(DENSE_TERMS - terms(&w)) * DENSE_PAIRS;
    kb_loop_begin(K, &loop, (val *)&c, (int)carried);
    loop.rolled = true;
    kb_loop_while(K, &loop, kb_icmp(K, KB_SLT, c.tile, d->tiles));
    next_tile(K, &w, &c);
    c.tile = kb_addi(K, c.tile, 1);
    kb_loop_end(K, &loop);
    last_values(K, &w, &c);
    *s = c.s;
    for (int i = 0; i < ROWS; i++)
        for (int lanes = 1; lanes < 4; lanes *= 2) {
            val other = kb_shuffle_xor(K, s->l[i], lanes);
            s->l[i] = kb_fadd(K, s->l[i], other);
        }
}
