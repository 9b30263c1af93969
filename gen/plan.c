/* SPDX-License-Identifier: Apache-2.0 */
/*
** plan.c - every choice a template obeys. Each is made once, here, and leaves its reason.
**
** Attention kernels hold 16 query rows a warp, in the narrow form 8. What a lane keeps of the output is
** rows * value dims / lanes floats: that, with 128 of them as the most that leaves room for a step's
** codes, decides how many warps share a row's dims.
*/
#include "plan_rules.h"

#include "../runtime/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_ACCUMULATORS = 128,
    ATTEND_WARPS = 4,
    STORE_WARPS = 4,
    TIGHT_WARPS = 12, /* of a multiprocessor: 168 registers a thread */
    MAX_KEY_WORDS = 320,
    CHUNK_TOKENS = 8192, /* 512 truncating accumulations a sum: an error of 3e-5 at most */
    CENTRE_TOKENS =
        512,        /* 32 truncating accumulations of numbers of one sign: below 10^-5 of the sum */
    MOST_TILES = 3, /* narrow ones of a warp: 255 registers */
    OTHER_SHARED = 512 /* barriers, alignment */
};

static const char *const kind_names[KIND_COUNT] = {"store", "decode", "unified", "dequant",
                                                   "merge", "copy",   "convert"};

const char *kind_name(enum kind kind) { return kind_names[kind]; }

int kind_from_name(const char *name)
{
    for (int i = 0; i < KIND_COUNT; i++)
        if (!strcmp(kind_names[i], name))
            return i;
    return -1;
}

void plan_because(struct plan *p, const char *field, const char *format, ...)
{
    if (p->nwhy == (int)(sizeof p->why / sizeof *p->why))
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(p->why[p->nwhy].text, sizeof p->why[0].text, format, args);
    va_end(args);
    p->why[p->nwhy++].field = field;
}

int plan_pick(struct plan *p, enum plan_field field, int rule)
{
    p->rule.value[field] = rule;
    return p->set.value[field] == TUNED_RULE ? rule : p->set.value[field];
}

static enum plan_operand operand_of(const struct codec *c)
{
    return c->kind == CODEC_BLOCK_FLOAT || c->format == FLOAT_BF16 ? OPERAND_BF16_SPLIT
                                                                   : OPERAND_F16;
}

/* Value dims of one warp. */
static int slice(const struct plan *p) { return p->geo.value_head_size / p->dim_warps; }

int plan_lane_sums(const struct plan *p)
{
    const struct mma_shape *m = &p->mma;
    return (slice(p) + m->y_tile - 1) / m->y_tile * m->lane_rows * m->ye;
}

int plan_lane_results(const struct plan *p)
{
    const struct mma_shape *m = &p->mma;
    return p->subtiles * (16 / m->y_tile) * m->lane_rows * m->ye;
}

/* FP4 codes with power-of-two scales of 32 neighbours, and a query of 8 bits. */
static bool scaled_operands(const struct plan *p)
{
    const struct codec *c = &p->spec.key;
    return p->target->flags & TF_MFMA_SCALED && p->spec.query == QUERY_E4M3 &&
           c->kind == CODEC_BLOCK_FLOAT && c->rule != BLOCK_NVFP4 && c->group == 32;
}

static void plan_operands(struct plan *p)
{
    p->key_operand = operand_of(&p->spec.key);
    p->value_operand = operand_of(&p->spec.value);
    if (p->key_operand == OPERAND_BF16_SPLIT && p->spec.query == QUERY_E4M3)
        p->key_operand = scaled_operands(p) ? OPERAND_SCALED : OPERAND_BF16;
    if (p->powers)
        p->key_operand = p->value_operand = OPERAND_F16;
    static const char *const why[] = {
        "codes are exact in f16 (centroids to 2^-12); norms and scales meet the f32 score",
        "codes are exact in bf16; the query is two bf16 terms",
        "codes and an e4m3 query are exact in bf16",
        "the matrix unit takes FP4 codes, their scales and an e4m3 query as they are"};
    static const char powers[] = "codes times scales under a warp's power of two, exact in f16";
    plan_because(p, "key_operand", "%s", p->powers ? powers : why[p->key_operand]);
    p->held_masks = (p->target->flags & TF_ONE_CONSTANT) != 0;
    plan_because(p, "held_masks", "%s",
                 p->held_masks
                     ? "a mask in a register lets one instruction mask a code and set its exponent"
                     : "constants cost nothing");
    plan_because(
        p, "value_operand", "%s",
        p->powers ? powers
        : p->value_operand == OPERAND_F16
            ? "codes are exact in f16; the scale is folded into p, the zero is a scalar sum"
            : "codes are exact in bf16; p is two bf16 terms");
}

/* 16 bytes of padding a row: lanes that read the same columns of neighbouring rows meet different
** banks. */
int plan_query_pitch(const struct plan *p)
{
    if (p->swizzled)
        return p->geo.head_size;
    int elements = p->key_operand == OPERAND_SCALED ? p->geo.head_size / 2 : p->geo.head_size;
    return elements + 8;
}

/* 16 bytes of padding here, too. */
int plan_turn_pitch(const struct plan *p) { return p->geo.value_head_size + 4; }

/* Rotated values: one row of output at least finds room where the query was. */
int plan_query_bytes(const struct plan *p)
{
    int planes = p->key_operand == OPERAND_BF16_SPLIT ? 2 : 1;
    int bytes = planes * p->mma.rows * plan_query_pitch(p) * 2 + 2 * p->mma.rows * 4;
    bool turned = p->spec.value.rotation == ROTATION_HADAMARD;
    int row = turned ? plan_turn_pitch(p) * 4 : 0;
    return bytes > row ? bytes : row;
}

int plan_sums_bytes(const struct plan *p)
{
    return (plan_lane_sums(p) + 3 * p->mma.lane_rows) * p->target->warp * 4;
}

static int gcd(int a, int b) { return b ? gcd(b, a % b) : a; }
static int least(int a, int b) { return a < b ? a : b; }
static int most(int a, int b) { return a > b ? a : b; }

int plan_run_unit(const struct side *side, int run, int step)
{
    int bits = run * side->codec.bits, apart = step * side->codec.bits;
    if (bits % 8 || apart % 8)
        return 1;
    int bytes = gcd(bits, apart) / 8;
    return least(16, least(side->code_align, bytes & -bytes));
}

static int units(int bytes, int unit) { return (bytes + unit - 1) / unit * unit; }

int plan_image_unit(const struct plan *p)
{
    return p->geo.layout == LAYOUT_NATIVE || p->powers ? PLAN_IMAGE_UNIT : 1;
}

/* A step's pages of `heads` KV heads (part_image.c, attend_image_begin). */
static int image_step_bytes(const struct plan *p, int heads)
{
    int padding = heads == p->image_heads ? 16 / p->image_group * p->image_padding : 0;
    int unit = plan_image_unit(p);
    if (!p->turned)
        return p->subtiles * units(heads * 16 * p->slot.slot_bytes + padding, unit);
    int rows = 16 * units(heads * p->slot.record_bytes, PLAN_ROW_BYTES);
    return p->subtiles * (rows + units(heads * 32 * p->slot.fields, PLAN_IMAGE_UNIT));
}

/* A launch chooses how many heads a CTA takes: there is room for any number. */
static int images_bytes(const struct plan *p)
{
    int bytes = 0;
    for (int heads = 1; heads <= p->image_heads; heads *= 2)
        bytes = most(bytes, p->warps / heads * image_step_bytes(p, heads));
    return p->images * bytes;
}

static int join_bytes(const struct plan *p, int passes)
{
    return p->token_warps * p->rows * (p->geo.value_head_size / passes + 2) * 4;
}

/* Halves of the lanes' runs of dims in turn: half the memory for two more barriers. */
int plan_join_passes(const struct plan *p)
{
    bool whole = p->dims % 2 || p->dims_overlap || join_bytes(p, 1) <= images_bytes(p);
    return whole ? 1 : 2;
}

int plan_join_bytes(const struct plan *p) { return join_bytes(p, plan_join_passes(p)); }

/* The warps are joined where the ring was. */
int plan_ring_bytes(const struct plan *p)
{
    return p->images ? most(images_bytes(p), plan_join_bytes(p)) : 0;
}

int plan_tile_bytes(const struct plan *p)
{
    int query = plan_query_bytes(p) * (p->images ? p->image_heads : p->row_warps);
    if (p->kind == KIND_UNIFIED)
        return query + (p->chunk_tokens ? p->warps * plan_sums_bytes(p) : 0);
    return p->images ? query : most(query, plan_join_bytes(p));
}

/* What a step leaves to a rare branch. Both keep more in registers, which kernels that hold a step in
** flight do not have: there they spilled, and gained 1 % where they did not (decode, sm_90a). */
static void plan_sums(struct plan *p)
{
    bool affine = p->spec.value.kind == CODEC_AFFINE && p->value_operand == OPERAND_F16;
    bool room = p->kind == KIND_UNIFIED && !p->min_ctas;
    bool spare = p->images || room || p->target->family == FAMILY_HOST;
    p->lazy_reference = spare && p->target->flags & TF_VOTE;
    plan_because(p, "lazy_reference", "%s",
                 p->lazy_reference
                     ? "moved when a score passes it by 2^8: a vote instead of a maximum over lanes"
                     : "the exact maximum of each step");
    p->centre_tokens =
        p->lazy_reference && affine && p->target->flags & TF_SUBNORMAL ? CENTRE_TOKENS : 0;
    plan_because(p, "centre_tokens", "%s",
                 p->centre_tokens
                     ? "codes go in as they stand; the middle comes off before truncation shows"
                     : "the middle comes off every code, or there is none");
}

/* Who does what among the CTA's warps. */
static void share_warps(struct plan *p)
{
    int others = p->warps / p->dim_warps;
    p->token_warps = p->kind == KIND_DECODE ? others : 1;
    p->row_warps = p->kind == KIND_DECODE ? 1 : others;
    p->rows = p->mma.rows * p->row_warps;
}

int plan_index_bits(const struct plan *p, const struct side *side)
{
    bool nibbles = p->images && p->geo.layout == LAYOUT_NATIVE && side->codec.bits < 4;
    return nibbles ? 4 : side->codec.bits;
}

/* A side's look-up table, as part_tables.c lays it out. */
static int table_bytes(const struct plan *p, const struct side *side)
{
    int kind = side->codec.kind, width = side->norm_at_read && !p->squares ? 8 : 4;
    if (p->byte_tables && side == &p->slot.key)
        return 2 * 256 * width * p->target->warp;
    int rows = kind == CODEC_CODEBOOK      ? 1 << 2 * plan_index_bits(p, side)
               : kind == CODEC_BLOCK_FLOAT ? 256
                                           : 0;
    int pitch = p->spread_tables ? width * p->target->warp : width;
    return rows * (p->spread_tables && rows == 256 ? most(pitch, 256) : pitch);
}

int plan_fact_bytes(const struct plan *p)
{
    bool more = p->spec.key.kind == CODEC_AFFINE || p->slot.key.norm_at_read;
    return more || !p->images ? 20 : 16;
}

static bool rows_fit(const struct plan *p)
{
    int tables = table_bytes(p, &p->slot.key);
    if (!p->powers) /* which share one */
        tables += table_bytes(p, &p->slot.value);
    bool squares = p->slot.value.norm_at_read; /* a table of them, and one a token */
    int facts = p->warps * 16 * most(p->subtiles, 1) * (plan_fact_bytes(p) + (squares ? 4 : 0)) +
                (squares ? 1024 : 0);
    int all = plan_tile_bytes(p) + plan_ring_bytes(p) + tables + facts + OTHER_SHARED +
              (p->turned ? PLAN_TURN_BYTES : 0);
    return all <= p->target->shared_bytes;
}

/* dim_warps, warps and who does what: as few warps a row as registers allow, CTAs that fit. */
static void plan_warps(struct plan *p, int warps)
{
    const struct target *t = p->target;
    int most = t->registers > 256 ? MAX_ACCUMULATORS : MAX_ACCUMULATORS / 2;
    bool wide = p->mma.groups == 1 || (p->mma.groups == 2 && p->geo.head_size > 128);
    if (wide) /* a lane holds (half of) whole operand rows: the registers are theirs */
        most /= 2;
    if (p->narrow > 1)
        most = MAX_ACCUMULATORS; /* tiles share the codes of a step */
    p->warps = plan_pick(p, PLAN_warps, warps);
    p->dim_warps = 1;
    while (plan_lane_sums(p) > most && p->dim_warps < p->warps && slice(p) % 2 == 0)
        p->dim_warps *= 2;
    p->dims = (slice(p) + p->mma.y_tile - 1) / p->mma.y_tile;
    p->dims_overlap = slice(p) % p->mma.y_tile ? slice(p) - p->dims : 0;
    plan_because(p, "dim_warps", "a lane keeps %d output sums, at most %d", plan_lane_sums(p),
                 most);
    p->chunk_tokens = p->kind == KIND_UNIFIED ? CHUNK_TOKENS : 0;
    share_warps(p);
    while (!rows_fit(p) && p->warps > p->dim_warps) {
        p->warps /= 2;
        share_warps(p);
    }
    if (!rows_fit(p))
        p->chunk_tokens = 0;
    plan_because(p, "chunk_tokens", "%s",
                 p->chunk_tokens
                     ? "matrix units truncate when they accumulate: chunks meet in f32 additions"
                 : p->kind == KIND_DECODE ? "decode splits its tokens: a sum is of few"
                                          : "no shared memory is left for sums of chunks");
    plan_because(p, "warps",
                 "query rows, later the warps' sums, take %d of %d bytes of shared memory",
                 plan_tile_bytes(p), t->shared_bytes);
}

int plan_turn_bytes(const struct plan *p) { return p->turn_rows * plan_turn_pitch(p) * 4; }

/* Rows of rotated output go where the query was, the warps are joined or sums of chunks lie. */
static void plan_turn(struct plan *p)
{
    int room = p->kind == KIND_DECODE
                   ? most(plan_tile_bytes(p), plan_ring_bytes(p)) / p->token_warps
               : p->chunk_tokens ? plan_sums_bytes(p) * p->dim_warps
                                 : plan_query_bytes(p);
    if (p->spec.value.rotation != ROTATION_HADAMARD)
        return;
    p->turn_rows = 16;
    while (p->turn_rows > 1 && plan_turn_bytes(p) > room)
        p->turn_rows /= 2;
    plan_because(p, "turn_rows",
                 "attention is linear in V: output rows, not values, are rotated back");
}

static void plan_step(struct plan *p)
{
    const struct target *t = p->target;
    bool two = p->mma.y_tile == 8 && plan_lane_sums(p) <= 32 * most(p->narrow, 1) &&
               p->key_operand == OPERAND_F16 && p->spec.key.bits <= 8 && p->spec.value.bits <= 8;
    p->subtiles = plan_pick(p, PLAN_subtiles, two ? 2 : t->mma.k_tiles);
    plan_because(p, "subtiles", "%s",
                 two ? "two 16-token products a step share one update of the running maximum"
                 : p->subtiles > 1
                     ? "one product takes the weights of 32 tokens"
                     : "one 16-token product a step: registers go to output sums and operands");
    p->tile_tokens = 16 * p->subtiles * p->token_warps;
    p->paged_subtiles = p->geo.page_tokens % 16 == 0;
    plan_because(p, "paged_subtiles", "%s",
                 p->paged_subtiles ? "16 tokens always lie in one page and share its look-up"
                                   : "pages end inside 16 tokens: each token looks its page up");
    bool small = plan_lane_sums(p) <= 64 && p->spec.key.bits <= 8 && p->spec.value.bits <= 8;
    if (t->registers <= 256 && p->slot.key.norm_at_read && p->slot.value.norm_at_read &&
        p->geo.head_size > 192) /* sums of squares of both: they took 10 to 40 registers too many */
        small = false;
    p->prefetch =
        plan_pick(p, PLAN_prefetch, t->family != FAMILY_HOST && p->mma.groups > 2 && small);
    plan_because(p, "prefetch", "%s",
                 p->prefetch ? "codes of the next step are in flight while this one is computed"
                             : "no registers (or, on a CPU, no use) for a step in flight");
}

/* The narrow form takes two Y tiles at once: every warp's dims must come in twos (see plan_warps). */
static bool narrow_possible(const struct plan *p)
{
    int d = p->geo.value_head_size;
    if (p->spec.value.rotation == ROTATION_HADAMARD) /* part_unrotate.c turns 16 rows */
        return false;
    return p->kind == KIND_DECODE && p->target->narrow.rows &&
           (d % 64 == 0 || (d % 16 == 0 && d < 256));
}

/* Tiles of a warp that 255 registers hold: of 128 value dims each takes 32 for its sums. */
static int most_tiles(const struct plan *p)
{
    bool much = p->spec.key.bits == 8 || p->geo.page_tokens > 16;
    bool spills =
        much && p->geo.layout == LAYOUT_NATIVE && p->geo.head_size > 64; /* 8 to 16 bytes */
    if (p->slot.key.norm_at_read || spills)                              /* squares take the rest */
        return 2;
    return p->geo.head_size <= 64 ? 4 : 3;
}

/* More than one tile where images help: they share what is made of codes. (aos: sm_100a's assembler spills 8 bytes.) */
static int row_tiles(const struct plan *p, bool images)
{
    int rows = p->target->narrow.rows;
    if (!narrow_possible(p))
        return 0;
    int tiles = (p->geo.gqa + rows - 1) / rows, most = most_tiles(p);
    int passes = (tiles + most - 1) / most;
    bool aos = p->geo.layout == LAYOUT_AOS, hopper = p->target->flags & TF_WGMMA;
    bool several = images && plan_images_help(p) && p->geo.head_size <= 128 && (hopper || !aos);
    return tiles == 1 || several ? (tiles + passes - 1) / passes : 0;
}

static void plan_form(struct plan *p, bool images)
{
    p->narrow = plan_pick(p, PLAN_narrow, row_tiles(p, images));
    bool form = p->narrow && p->target->narrow.rows; /* else check_set refuses it */
    p->mma = form ? p->target->narrow : p->target->mma;
    if (form) {
        p->mma.lane_rows *= p->narrow;
        p->mma.operand_rows *= p->narrow;
        p->mma.rows *= p->narrow;
    }
    static const char *const why[] = {"tiles of 16 query rows",
                                      "a KV head's query rows fit 8: half the products and sums",
                                      "tiles of 8 query rows that share what is made of codes"};
    plan_because(p, "narrow", "%s", why[least(p->narrow, 2)]);
}

/* 8 to 64 KiB a table: for targets where three CTAs have them. */
static void plan_tables(struct plan *p)
{
    bool room = p->target->family == FAMILY_NVPTX && p->target->shared_bytes >= 3 * 65536;
    p->spread_tables = plan_pick(p, PLAN_spread_tables, p->kind == KIND_DECODE && room);
    plan_because(p, "spread_tables", "%s",
                 p->spread_tables
                     ? "a copy for every lane: no bank conflicts, addresses by one permutation"
                     : "one copy of a look-up table: shared memory is for more CTAs");
}

/* Set from outside, or where images help whose codes meet so. */
static void plan_powers(struct plan *p, bool images)
{
    p->powers = images && p->set.value[PLAN_images] != 0 && plan_powers_possible(p);
    p->key_operand = OPERAND_F16;
    if (p->set.value[PLAN_images] == TUNED_RULE)
        p->powers = p->powers && plan_images_help(p);
}

/* Two tables of bytes where there is room: pairs of 3 bits begin at bits 0, 6, 4 and 2 of bytes, every other one after
** a shift of four bits. */
static void plan_byte_tables(struct plan *p)
{
    const struct side *key = &p->slot.key;
    bool pairs = key->codec.kind == CODEC_CODEBOOK && plan_index_bits(p, key) == 3;
    p->byte_tables = p->images && p->spread_tables && pairs && (!key->norm_at_read || p->squares);
    if (p->byte_tables && !rows_fit(p))
        p->byte_tables = 0;
    if (!pairs || !p->images)
        return;
    plan_because(p, "byte_tables", "%s",
                 p->byte_tables
                     ? "a pair of 3 bits by the byte that holds it: no masks, one shift in eight"
                     : "no room for them, or no copy for every lane");
}

static void plan_shape(struct plan *p, bool images)
{
    p->byte_tables = 0;
    plan_powers(p, images);
    plan_operands(p);
    plan_form(p, images && p->set.value[PLAN_images] != 0);
    plan_tables(p);
    bool wanted = images && p->narrow && p->set.value[PLAN_images] != 0 && plan_images_help(p);
    plan_warps(p, wanted ? plan_image_warps(p) : ATTEND_WARPS);
    plan_step(p);
    plan_images(p, wanted);
    plan_turn(p);
    plan_byte_tables(p);
}

/* Where kernels of the quick assembler were measured to be as fast: few long chains to interleave. With squares
** it keeps to 128 registers where the other spills some. */
static void plan_quick(struct plan *p)
{
    bool native = p->geo.layout == LAYOUT_NATIVE, soa = p->geo.layout == LAYOUT_SOA;
    int size = p->geo.head_size;
    native = native && !p->powers; /* 144 us by the other assembler, 149 by this */
    bool three = p->spec.key.bits < 4 || p->spec.value.bits < 4; /* aos: else they spill */
    bool squares = p->squares && (p->geo.gqa <= 4 || three); /* gqa 8: 155 us, quick 157 to 163 */
    bool easy = size == 128 && (squares || ((native || soa) && p->spec.key.bits >= 4));
    bool tight =
        size == 256 && soa && p->spec.key.bits == 8; /* the other assembler spills two registers */
    p->quick = plan_pick(p, PLAN_quick,
                         p->target->family == FAMILY_NVPTX && p->images && p->narrow == 1 &&
                             (easy || tight));
    plan_because(p, "quick", "%s",
                 !p->quick    ? "the assembler takes its time"
                 : p->squares ? "the other assembler spills some registers"
                              : "the assembler needs 30 ms less, the kernel takes no longer");
}

/* A branch and a second meeting of the warp, ten instructions a step: without, two tiles of 4bit_nc soa spill. */
static void plan_settle(struct plan *p)
{
    p->settle_branch = p->turned && p->narrow > 1 && p->spec.key.bits >= 4;
    if (p->bulk)
        plan_because(p, "settle_branch", "%s",
                     p->settle_branch ? "several tiles of rows would spill"
                                      : "a slot is given back without one");
}

static void plan_attend(struct plan *p)
{
    const struct target *t = p->target;
    plan_shape(p, true);
    if ((p->images && (!rows_fit(p) || !plan_images_possible(p))) || (p->powers && !p->images)) {
        p->nwhy = 0;
        plan_shape(p, false);
    }
    bool direct = p->geo.layout == LAYOUT_NATIVE && !p->images; /* planes: more addresses */
    bool plain = p->paged_subtiles && p->prefetch && !p->geo.options && !direct &&
                 p->key_operand == OPERAND_F16 && !p->slot.key.norm_at_read &&
                 !p->slot.value.norm_at_read;
    int code_bits = p->geo.head_size * (p->spec.key.bits + p->spec.value.bits);
    bool tight = plain && (p->narrow ? code_bits <= 256 * 12 && p->spec.key.bits != 3
                                     : p->spec.key.bits <= 4 && p->geo.head_size <= 128 &&
                                           p->subtiles == 1); /* else it would spill */
    int fit = TIGHT_WARPS / p->warps;                         /* 3, but where a table sets warps */
    bool limited = t->family == FAMILY_NVPTX && t->flags & TF_BULK_COPY && tight && fit > 1;
    p->min_ctas = plan_pick(p, PLAN_min_ctas, limited ? fit : 0);
    plan_because(p, "min_ctas", "%s",
                 p->min_ctas
                     ? "168 registers a thread: 12 warps hide more latency than the registers "
                       "would (measured, sm_90a)"
                     : "the assembler may use all registers");
    plan_sums(p);
    plan_quick(p);
    plan_settle(p);
    plan_neighbours(p);
}

static kvk_status refuse(const struct plan *p, kvk_error *err, const char *field, int value,
                         const char *accepted)
{
    return ERR(err, KVK_E_UNSUPPORTED, "%s %s: %s %d: %s kernels take %s", p->spec.name,
               p->target->name, field, value, kind_name(p->kind), accepted);
}

/* A warp holds a vector in runs of a power of two that divides the head size. */
static bool fits_warp(const struct plan *p, int size)
{
    return size / (size & -size) <= p->target->warp;
}

/* What kernels cannot do, one line each; docs/limits.md lists them with their causes. */
static kvk_status check_limits(const struct plan *p, kvk_error *err)
{
    const struct geometry *g = &p->geo;
    bool attends = p->kind == KIND_DECODE || p->kind == KIND_UNIFIED;
    int sizes[2] = {g->head_size, g->value_head_size};
    for (int i = 0; i < 2; i++)
        if (p->kind != KIND_MERGE && p->kind != KIND_COPY && !fits_warp(p, sizes[i]))
            return refuse(p, err, i ? "value_head_size" : "head_size", sizes[i],
                          "sizes of at most a warp's lanes times the largest power of two in them");
    if (!attends)
        return KVK_OK;
    if (g->head_size / p->target->mma.groups * p->spec.key.bits > MAX_KEY_WORDS * 32)
        return refuse(p, err, "head_size", g->head_size, "at most 10240 key bits a lane");
    return KVK_OK;
}

static kvk_status refuse_set(const struct plan *p, kvk_error *err, enum plan_field field,
                             const char *accepted)
{
    return ERR(err, KVK_E_ARG, "plan: %s %d: %s for %s takes %s", tuned_field_name(field),
               p->set.value[field], kind_name(p->kind), p->target->name, accepted);
}

/* Do the values from outside suit this kernel? */
/* Templates keep a lane's sums and scores in arrays of a fixed size. */
static bool lanes_hold(const struct plan *p)
{
    return plan_lane_sums(p) <= PLAN_SUMS && plan_lane_results(p) <= PLAN_RESULTS;
}

static kvk_status check_set(const struct plan *p, kvk_error *err)
{
    const int *set = p->set.value;
    int warps = set[PLAN_warps];
    bool attends = p->kind == KIND_DECODE || p->kind == KIND_UNIFIED;
    for (int i = 0; i < PLAN_FIELDS && !attends; i++)
        if (set[i] != TUNED_RULE)
            return refuse_set(p, err, (enum plan_field)i, "none");
    if (warps != TUNED_RULE && (warps & (warps - 1) || warps != p->warps))
        return refuse_set(p, err, PLAN_warps, "powers of two whose query rows fit shared memory");
    if (set[PLAN_subtiles] != TUNED_RULE && set[PLAN_subtiles] % p->target->mma.k_tiles)
        return refuse_set(p, err, PLAN_subtiles, "2: one product takes the weights of 32 tokens");
    if (set[PLAN_narrow] > 0 && !narrow_possible(p))
        return refuse_set(p, err, PLAN_narrow, "0");
    if (set[PLAN_narrow] > 0 && p->dims % p->mma.tiles)
        return refuse_set(p, err, PLAN_narrow, "fewer tiles: a warp's dims must come in twos");
    if (set[PLAN_narrow] > 0 && !lanes_hold(p))
        return refuse_set(p, err, PLAN_narrow, "fewer tiles: a lane holds at most 256 output sums");
    if (set[PLAN_warps] != TUNED_RULE && !lanes_hold(p))
        return refuse_set(p, err, PLAN_warps, "more: a lane holds at most 256 output sums");
    if (set[PLAN_images] > 0 && p->target->family == FAMILY_AMDGCN)
        return refuse_set(p, err, PLAN_images, "0: gfx targets have no images of pages");
    if (set[PLAN_images] > 0 && !plan_images_possible(p))
        return refuse_set(p, err, PLAN_images,
                          "0: images are for pages of 16 tokens and dims of one warp");
    if (set[PLAN_images] > 0 && !rows_fit(p))
        return refuse_set(p, err, PLAN_images,
                          "fewer, or fewer warps: they do not fit shared memory");
    if (set[PLAN_dense] > 0 && !plan_dense_possible(p))
        return refuse_set(p, err, PLAN_dense,
                          "0: groups are for rows of 16 bits of 64 or 128 elements");
    if (set[PLAN_producer] > 0 && !p->bulk)
        return refuse_set(p, err, PLAN_producer,
                          "0: only for images that the bulk copy engine brings");
    if (p->target->family != FAMILY_NVPTX && set[PLAN_min_ctas] > 0)
        return refuse_set(p, err, PLAN_min_ctas, "0: only sm_ targets limit registers");
    if (p->target->family != FAMILY_NVPTX && set[PLAN_quick] > 0)
        return refuse_set(p, err, PLAN_quick, "0: only sm_ targets have an assembler of their own");
    return KVK_OK;
}

static kvk_status make(struct plan *out, kvk_error *err)
{
    const struct spec *spec = &out->spec;
    const struct geometry *geo = &out->geo;
    const struct target *target = out->target;
    enum kind kind = out->kind;
    kvk_status status = spec_check_geometry(spec, geo, err);
    if (!status)
        status = slot_make(spec, geo, &out->slot, err);
    if (!status)
        status = check_limits(out, err);
    if (status)
        return status;
    out->dim_warps = out->row_warps = out->token_warps = 1;
    if (plan_dense(out)) {
        out->threads = out->warps * target->warp;
        return check_set(out, err);
    }
    if (kind == KIND_DECODE || kind == KIND_UNIFIED) {
        plan_attend(out);
        status = check_set(out, err);
        if (status)
            return status;
        if (!rows_fit(out))
            return refuse(out, err, "head_size", geo->head_size,
                          "sizes whose query rows fit shared memory");
    } else {
        out->warps = STORE_WARPS;
        if (kind != KIND_DEQUANT && kind != KIND_STORE)
            plan_because(out, "warps", "one warp a (row, head) pair, %d pairs a CTA", STORE_WARPS);
    }
    out->vectors = out->warps;
    plan_pairs(out);
    out->threads = (out->warps + out->producer) * target->warp;
    return check_set(out, err);
}

kvk_status plan_make_set(const struct spec *spec, const struct geometry *geo,
                         const struct target *target, enum kind kind, const char *values,
                         const char *source, struct plan *out, kvk_error *err)
{
    struct tuned_plan set;
    kvk_error first;
    kvk_status status = tuned_plan_parse(source ? source : "plan", values, &set, err);
    if (status)
        return status;
    *out = (struct plan){.spec = *spec, .geo = *geo, .target = target, .kind = kind};
    out->set = out->rule = set;
    out->set_source = source ? source : "asked for";
    status = make(out, source ? &first : err);
    if (!source || !status)
        return status;
    *out = (struct plan){.spec = *spec, .geo = *geo, .target = target, .kind = kind};
    tuned_plan_parse("", "", &out->set, NULL);
    status = make(out, err);
    if (!status && values && *values)
        snprintf(out->left_out, sizeof out->left_out, "%.64s: %s", source, first.text);
    return status;
}

kvk_status plan_make(const struct spec *spec, const struct geometry *geo,
                     const struct target *target, enum kind kind, struct plan *out, kvk_error *err)
{
    return plan_make_set(spec, geo, target, kind, NULL, NULL, out, err);
}
