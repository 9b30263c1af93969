/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_powers.c - E2M1 codes with power-of-two scales as f16 operands.
**
** A scale byte b under the reference `power` becomes a factor 2^(b - power - 15), whose exponent
** field is b - power: 0 to 30, where 0 is no number but zero. Times a code's 2^-14 that is
** 2^(b - power - 29) of its value, where 2^(b - 127) is meant.
*/
#include "part_powers.h"

#include "part_image_native.h"

enum {
    MOST_FIELD = 30,  /* of a finite f16 */
    FIRST_FIELD = 26, /* what the largest scale of the first step becomes */
    MOST_REFERENCE = 223,
    UNKNOWN = 512, /* a reference before any scale: more than a byte, so that none fits */
    FIELDS_PAIR = 0x04000400, /* one in the exponent fields of a pair */
    SIGNS = (int)0x80808080u,
    LOW_CODES = 0x0f0f0f0f,
    CARRIES = 0x70707070, /* twice a code and that: its sign is carried to bit 7 */
    PLACES = (int)0x8e008e00u
};

static int chunks(int run) { return run > 32 ? run / 32 : 1; }
static int key_chunks(const struct attend *a) { return chunks(a->key_run); }
static int value_chunks(const struct attend *a) { return chunks(a->dims); }
static bool is_native(const struct attend *a) { return a->head.layout == LAYOUT_NATIVE; }
static int sums_of(const struct attend *a) { return a->dims * a->shape.lane_rows * a->shape.ye; }

/* Native's order of tokens. */
static val order_of(struct kb *k, val token)
{
    val pair = kb_shli(K, kb_andi(K, token, 7), 1);
    return kb_add(K, pair, kb_lshri(K, token, 3));
}

bool powers_by_rows(const struct attend *a)
{
    return a->plan->powers && a->head.layout == LAYOUT_AOS;
}

/* 16 value dims whose codes begin in the middle of 8 bytes. */
bool powers_turns(const struct plan *p)
{
    const struct side *side = &p->slot.value;
    bool two = p->dims * side->codec.bits == 64, middle = side->code_offset % 8 == 4;
    return p->powers && p->geo.layout == LAYOUT_AOS && two && middle;
}

val powers_dim(struct kb *k, val y, val dim)
{
    return kb_xor(K, dim, kb_shli(K, kb_andi(K, y, 4), 1));
}

val powers_token(struct kb *k, val row)
{
    val r0 = kb_shli(K, kb_andi(K, row, 1), 2), r1 = kb_lshri(K, kb_andi(K, row, 2), 1);
    val r2 = kb_shli(K, kb_andi(K, row, 4), 1), r3 = kb_lshri(K, kb_andi(K, row, 8), 2);
    val low = kb_or(K, r0, r1);
    return kb_or(K, low, kb_or(K, r2, r3));
}

static val held(struct kb *k, const struct attend *v, val x)
{
    return v->plan->held_places ? kb_held(K, x) : x;
}

/* The lane's first key row (value: token) of a step, and its chunk of the scales there. */
static val first_scale(struct kb *k, const struct attend *v, bool value)
{
    const struct side *side = value ? &v->plan->slot.value : &v->plan->slot.key;
    val element = value ? attend_first_dim(K, v, v->y) : kb_muli(K, v->group, v->key_run);
    val row = value ? v->v_steps[0] : v->y_steps;
    if (is_native(v)) {
        val order = order_of(K, value ? v->k_token[0] : v->y_token);
        row = kb_muli(K, order, side->scale_bytes);
    }
    val at = kb_add(K, row, kb_divi(K, element, side->codec.group));
    return kb_addi(K, kb_add(K, at, v->head.record), side->scale_offset);
}

/* Where the lane's codes of its first key row, and value token, begin. */
static void begin_rows(struct kb *k, struct attend *v)
{
    const struct plan *p = v->plan;
    const struct side *key = &p->slot.key, *value = &p->slot.value;
    struct attend_powers *w = &v->powers;
    val first = kb_muli(K, v->group, v->key_run * key->codec.bits / 8);
    first = kb_add(K, first, kb_add(K, v->y_steps, v->head.record));
    w->key_codes = held(K, v, kb_addi(K, first, key->code_offset));
    first = kb_muli(K, v->y, v->dims * value->codec.bits / 8);
    first = kb_add(K, first, kb_add(K, v->v_steps[0], v->head.record));
    first = kb_addi(K, first, value->code_offset);
    w->value_codes[0] = w->value_codes[1] = held(K, v, first);
    if (!powers_turns(p))
        return;
    val turn = kb_andi(K, v->y, 4);
    w->value_codes[0] = held(K, v, kb_add(K, first, turn));
    w->value_codes[1] = held(K, v, kb_add(K, first, kb_xor(K, turn, kb_i32(K, 4))));
}

void powers_begin(struct kb *k, struct attend *v, val group_pitch)
{
    struct attend_powers *w = &v->powers;
    w->group_pitch = kb_uniform(K, group_pitch);
    w->four_rows = kb_uniform(K, kb_muli(K, v->head.step, 4));
    w->low =
        kb_opaque(K, kb_i32(K, LOW_CODES)); /* a mask in a register: the addition shifts, too */
    w->key_scales = held(K, v, first_scale(K, v, false));
    w->value_scales = held(K, v, first_scale(K, v, true));
    for (int i = 0; i < 2 * v->plan->subtiles; i++) {
        val page = kb_muli(K, v->image_page, i / 2);
        int rows = is_native(v) ? 0 : i % 2 * v->tokens_8;
        val later = kb_muli(K, v->head.step, rows);
        v->rows_8[i] = kb_uniform(K, kb_add(K, page, later));
    }
    if (powers_by_rows(v))
        begin_rows(K, v);
}

/* Where rows of a subtile's image begin which are to the lane's first what row e of a lane's tokens along k is to
** row 0: one on (e odd), or eight. */
static val row_place(struct kb *k, const struct attend *v, int sub, int e)
{
    val at = kb_offset(K, v->image, v->rows_8[2 * sub + e / 2]);
    return e % 2 && !is_native(v) ? kb_offset(K, at, v->powers.four_rows) : at;
}

void powers_keys(struct kb *k, const struct attend *a, int sub, struct attend_codes *c)
{
    const struct side *side = &a->plan->slot.key;
    int run = a->key_run, align = plan_run_unit(side, run, run);
    for (int t = 0; t < a->y_tiles; t++) {
        val at = kb_offset(K, row_place(K, a, sub, 2 * t), a->powers.key_codes);
        attend_load_words(K, a, at, run * side->codec.bits / 8, align, c->key[sub][t]);
    }
}

void powers_values(struct kb *k, const struct attend *a, int sub, struct attend_codes *c)
{
    const struct side *side = &a->plan->slot.value;
    int run = a->dims, align = plan_run_unit(side, run, run);
    for (int e = 0; e < a->shape.ke; e++) {
        val row = row_place(K, a, sub, e), *words = c->value[sub][e];
        if (powers_turns(a->plan)) {
            for (int i = 0; i < 2; i++)
                words[i] = kb_load(K, KB_I32, kb_offset(K, row, a->powers.value_codes[i]), 4);
            continue;
        }
        val at = kb_offset(K, row, a->powers.value_codes[0]);
        attend_load_words(K, a, at, run * side->codec.bits / 8, align, words);
    }
}

void powers_clear(struct kb *k, struct attend_sums *s)
{
    for (int i = 0; i < 2; i++)
        s->power[i] = kb_i32(K, UNKNOWN);
}

/* The head's part of a subtile's image; sub: i32. */
static val part_of(struct kb *k, const struct attend *v, val sub)
{
    val page = kb_offset(K, v->image, kb_mul(K, v->image_page, sub));
    return kb_offset(K, page, v->head.record);
}

/* Scale bytes of the lane's own token, in words: those of 64 elements twice. */
static int own_words(struct kb *k, const struct side *side, val at, val *words)
{
    int n = side->scale_bytes / 4;
    if (!n) {
        words[0] = kb_muli(K, kb_zext(K, kb_load(K, KB_I16, at, 2), KB_I32), 0x10001);
        return 1;
    }
    for (int i = 0; i < n; i++)
        words[i] = kb_load(K, KB_I32, kb_offseti(K, at, 4LL * i), 4);
    return n;
}

enum { MOST_OWN = 4 };

struct own {
    val word[2][MOST_OWN];
    int n[2];
};

static val most_byte(struct kb *k, const val *words, int n)
{
    val most = NULL;
    for (int i = 0; i < 4 * n; i++) {
        val byte = kb_andi(K, kb_lshri(K, words[i / 4], i % 4 * 8), 255);
        most = most ? kb_smax(K, most, byte) : byte;
    }
    return most;
}

/* The reference that fits a step's largest scale, too. */
static val moved(struct kb *k, const struct own *own, int i, val exists, val before)
{
    val most = kb_select(K, exists, most_byte(K, own->word[i], own->n[i]), kb_i32(K, 0));
    most = kb_warp_most(K, most);
    val fit = kb_smax(K, kb_addi(K, most, -FIRST_FIELD), kb_i32(K, 1));
    fit = kb_smin(K, fit, kb_i32(K, MOST_REFERENCE));
    val above = kb_icmp(K, KB_SGT, kb_addi(K, most, -MOST_FIELD), before);
    val first = kb_icmpi(K, KB_EQ, before, UNKNOWN);
    return kb_select(K, kb_or(K, above, first), fit, before);
}

/* 2^(power + 29 - 127): what operands are multiplied with to be what they stand for. */
static val power_of(struct kb *k, val power)
{
    return kb_bitcast(K, kb_shli(K, kb_addi(K, power, 29), 23), KB_F32);
}

/* Factors of two scale bytes, by fields that are known to fit, or are made to. */
static val factors(struct kb *k, val lower, val upper, val power, bool fits)
{
    if (fits) {
        val none = kb_muli(K, power, -(long long)FIELDS_PAIR);
        if (lower == upper)
            return kb_add(K, kb_muli(K, lower, FIELDS_PAIR), none);
        val low = kb_add(K, kb_muli(K, lower, 0x400), none);
        return kb_add(K, kb_muli(K, upper, 0x04000000), low);
    }
    val byte[2] = {lower, upper}, field[2];
    for (int i = 0; i < 2; i++) {
        val x = kb_smax(K, kb_sub(K, byte[i], power), kb_i32(K, 0));
        field[i] = kb_smin(K, x, kb_i32(K, MOST_FIELD));
    }
    val high = kb_shli(K, field[1], 26);
    return kb_or(K, kb_shli(K, field[0], 10), high);
}

/* All factors of a step from its bytes. */
static void make_factors(struct kb *k, const struct attend *a, const struct attend_codes *from,
                         const val *power, bool fits, struct attend_codes *to)
{
    const struct plan *p = a->plan;
    int tiles = a->shape.k_tiles;
    for (int u = 0; u < p->subtiles; u++)
        for (int t = 0; t < a->y_tiles; t++)
            for (int i = 0; i < key_chunks(a); i++) {
                val byte = from->key_scale[u][t][i];
                to->key_scale[u][t][i] = factors(K, byte, byte, power[0], fits);
            }
    for (int u = 0; u < p->subtiles / tiles; u++)
        for (int e = 0; e < a->shape.ke; e += 2)
            for (int i = 0; i < value_chunks(a); i++) {
                val low = from->value_scale[u][e][i], high = from->value_scale[u][e + 1][i];
                to->value_scale[u][e][i] = factors(K, low, high, power[1], fits);
            }
}

/* Bytes from the lane's first scale to that of row e: in native's order rows 8 apart are neighbours. */
static int scale_at(const struct attend *v, const struct side *side, int e)
{
    return is_native(v) ? (e % 2 * 2 + e / 2) * side->scale_bytes : 0;
}

static val byte_at(struct kb *k, val row, val first, int more)
{
    val place = kb_offseti(K, kb_offset(K, row, first), more);
    return kb_zext(K, kb_load(K, KB_I8, place, 1), KB_I32);
}

static void load_bytes(struct kb *k, const struct attend *v, struct attend_codes *c)
{
    const struct side *key = &v->plan->slot.key, *value = &v->plan->slot.value;
    for (int u = 0; u < v->plan->subtiles; u++) {
        for (int t = 0; t < v->y_tiles; t++) {
            val row = row_place(K, v, u, 2 * t);
            int more = scale_at(v, key, 2 * t);
            for (int i = 0; i < key_chunks(v); i++)
                c->key_scale[u][t][i] = byte_at(K, row, v->powers.key_scales, more + i);
        }
        for (int e = 0; e < v->shape.ke; e++) {
            val row = row_place(K, v, u, e);
            int more = scale_at(v, value, e);
            for (int i = 0; i < value_chunks(v); i++)
                c->value_scale[u][e][i] = byte_at(K, row, v->powers.value_scales, more + i);
        }
    }
}

static val more_of(struct kb *k, val most, val byte, val none)
{
    val field = kb_add(K, byte, none);
    return most ? kb_select(K, kb_icmp(K, KB_UGT, most, field), most, field) : field;
}

/* Is some byte less its reference not 0 to 30? Lanes have all of a step's between them. */
static val unfit(struct kb *k, const struct attend *v, const struct attend_codes *c,
                 const val *power)
{
    val most = NULL, none[2], zero = kb_i32(K, 0);
    for (int i = 0; i < 2; i++)
        none[i] = kb_sub(K, zero, power[i]);
    for (int u = 0; u < v->plan->subtiles; u++)
        for (int t = 0; t < v->y_tiles; t++)
            for (int i = 0; i < key_chunks(v); i++)
                most = more_of(K, most, c->key_scale[u][t][i], none[0]);
    for (int u = 0; u < v->plan->subtiles / v->shape.k_tiles; u++)
        for (int e = 0; e < v->shape.ke; e++)
            for (int i = 0; i < value_chunks(v); i++)
                most = more_of(K, most, c->value_scale[u][e][i], none[1]);
    return kb_any(K, kb_icmpi(K, KB_UGT, most, MOST_FIELD));
}

static struct own load_own(struct kb *k, const struct attend *v)
{
    const struct slot *slot = &v->plan->slot;
    const struct side *sides[2] = {&slot->key, &slot->value};
    struct own own;
    val sub = v->plan->subtiles == 1 ? kb_i32(K, 0) : kb_lshri(K, kb_andi(K, kb_lane(K), 16), 4);
    val part = part_of(K, v, sub), token = kb_andi(K, kb_lane(K), 15);
    int tokens = v->plan->image_group;
    val group = kb_mul(K, kb_divi(K, token, tokens), v->powers.group_pitch);
    val steps = kb_add(K, group, kb_mul(K, kb_andi(K, token, tokens - 1), v->head.step));
    for (int i = 0; i < 2; i++) {
        val row = is_native(v) ? kb_muli(K, order_of(K, token), sides[i]->scale_bytes) : steps;
        val at = kb_offseti(K, kb_offset(K, part, row), sides[i]->scale_offset);
        own.n[i] = own_words(K, sides[i], at, own.word[i]);
    }
    return own;
}

/* Does the lane's own token exist? */
static val own_exists(struct kb *k, const struct attend *v, val start)
{
    val lane = kb_andi(K, kb_lane(K), 16 * v->plan->subtiles - 1);
    return kb_icmp(K, KB_SLT, kb_add(K, start, lane), v->length);
}

/* Values of a branch that the loop goes on with. */
static void merge_factors(struct kb *k, const struct attend *a, const struct kb_if *taken,
                          const struct attend_codes *before, struct attend_codes *c)
{
    for (int u = 0; u < a->plan->subtiles; u++)
        for (int t = 0; t < a->y_tiles; t++)
            for (int i = 0; i < key_chunks(a); i++)
                c->key_scale[u][t][i] =
                    kb_merge(K, taken, c->key_scale[u][t][i], before->key_scale[u][t][i]);
    for (int u = 0; u < a->plan->subtiles / a->shape.k_tiles; u++)
        for (int e = 0; e < a->shape.ke; e += 2)
            for (int i = 0; i < value_chunks(a); i++)
                c->value_scale[u][e][i] =
                    kb_merge(K, taken, c->value_scale[u][e][i], before->value_scale[u][e][i]);
}

void powers_load(struct kb *k, const struct attend *a, struct attend *v, val start,
                 struct attend_codes *c, struct attend_sums *s)
{
    load_bytes(K, v, c);
    struct attend_codes bytes = *c, usual;
    const struct attend_sums before = *s;
    make_factors(K, v, &bytes, s->power, true, c);
    usual = *c;
    struct kb_if rare = kb_if(K, unfit(K, v, &bytes, s->power));
    struct own own = load_own(K, v);
    val exists = own_exists(K, v, start);
    for (int i = 0; i < 2; i++)
        s->power[i] = moved(K, &own, i, exists, before.power[i]);
    make_factors(K, v, &bytes, s->power, false, c);
    val less = kb_smin(K, kb_sub(K, before.power[1], s->power[1]), kb_i32(K, 0));
    val factor = kb_exp2(K, kb_sitofp(K, less)); /* 1, where sums are nothing yet */
    for (int i = 0; i < sums_of(v); i++)
        s->o[i] = kb_fmul(K, s->o[i], factor);
    kb_endif(K, &rare);
    for (int i = 0; i < 2; i++)
        s->power[i] = kb_merge(K, &rare, s->power[i], before.power[i]);
    for (int i = 0; i < sums_of(v); i++)
        s->o[i] = kb_merge(K, &rare, s->o[i], before.o[i]);
    merge_factors(K, v, &rare, &usual, c);
    kb_warp_sync(K);
    for (int row = 0; row < v->shape.lane_rows; row++)
        v->row_scale[row] = kb_fmul(K, a->row_scale[row], power_of(K, s->power[0]));
    for (int i = 0; i < 2; i++)
        v->powers.words[i] = (struct power_word){.word = -1};
}

val powers_settle(struct kb *k, const struct attend *a, const struct attend_codes *c, val x)
{
    for (int u = 0; u < a->plan->subtiles / a->shape.k_tiles; u++)
        for (int e = 0; e < a->shape.ke; e += 2)
            for (int i = 0; i < value_chunks(a); i++)
                x = kb_xor(K, x, c->value_scale[u][e][i]);
    return x;
}

static val scaled(struct kb *k, val pair, val factor)
{
    val x = kb_bitcast(K, pair, KB_VEC(KB_F16, 2)), f = kb_bitcast(K, factor, KB_VEC(KB_F16, 2));
    return kb_bitcast(K, kb_fmul(K, x, f), KB_I32);
}

unsigned powers_bits(int code) { return (unsigned)(code & 7) << 9 | (unsigned)(code & 8) << 12; }

val powers_key_pair(struct kb *k, const struct attend *a, const struct attend_codes *c, int sub,
                    int tile, int pair)
{
    val at = attend_entry(K, &a->key_table, c->key[sub][tile], 8 * pair, 8);
    return scaled(K, kb_load(K, KB_I32, at, 4), c->key_scale[sub][tile][2 * pair / 32]);
}

/* Four dims of a pair of tokens, as nibbles of the halves of a word. */
static val word_of(struct kb *k, const struct attend *a, const struct attend_codes *c, int sub,
                   int pair, int word)
{
    if (image_is_native(a))
        return image_native_word(a, c->value[sub][0], pair, 4 * word);
    val x = c->value[sub][2 * pair][word / 2], y = c->value[sub][2 * pair + 1][word / 2];
    return kb_byte_perm(K, x, y, word % 2 ? 0x7632 : 0x5410);
}

val powers_value_pair(struct kb *k, const struct attend *a, const struct attend_codes *c, int sub,
                      int pair, int dim)
{
    struct power_word *w = &a->powers.words[pair];
    if (w->sub != sub || w->word != dim / 4) {
        val x = word_of(K, a, c, sub, pair, dim / 4);
        *w = (struct power_word){.sub = sub, .word = dim / 4};
        w->even = kb_addi(K, kb_shli(K, kb_and(K, x, a->powers.low), 1), CARRIES);
        w->odd = kb_bit_select(K, (unsigned)SIGNS, x, kb_lshri(K, x, 3));
    }
    val bytes =
        dim % 2 ? w->odd : w->even; /* a code a byte, to be moved to the upper of its half */
    if (dim % 4 < 2)
        bytes = kb_shli(K, bytes, 8);
    return scaled(K, kb_andi(K, bytes, PLACES), c->value_scale[sub][2 * pair][dim / 32]);
}

void powers_close(struct kb *k, const struct attend *a, struct attend_sums *s)
{
    val factor = power_of(K, s->power[1]);
    for (int i = 0; i < sums_of(a); i++)
        s->o[i] = kb_fmul(K, s->o[i], factor);
}
