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

/* Bytes from the head's part of an image to a token's scales. */
static val scales_at(struct kb *k, const struct attend *v, const struct side *side, val token,
                     val steps)
{
    val at = is_native(v) ? kb_muli(K, order_of(K, token), side->scale_bytes) : steps;
    return kb_addi(K, at, side->scale_offset);
}

/* Steps from a token to that of so many tokens later (native: nothing). */
static val later(struct kb *k, const struct attend *v, val steps, int tokens)
{
    if (is_native(v))
        return NULL;
    val more = kb_muli(K, v->head.step, tokens);
    return kb_add(K, steps, more);
}

val powers_token(struct kb *k, val row)
{
    val r0 = kb_shli(K, kb_andi(K, row, 1), 2), r1 = kb_lshri(K, kb_andi(K, row, 2), 1);
    val r2 = kb_shli(K, kb_andi(K, row, 4), 1), r3 = kb_lshri(K, kb_andi(K, row, 8), 2);
    return kb_or(K, kb_or(K, r0, r1), kb_or(K, r2, r3));
}

void powers_begin(struct kb *k, struct attend *v, val group_pitch)
{
    const struct slot *slot = &v->plan->slot;
    struct attend_powers *p = &v->powers;
    p->group_pitch = group_pitch;
    val chunk = kb_divi(K, kb_muli(K, v->group, v->key_run), slot->key.codec.group);
    for (int t = 0; t < v->y_tiles; t++) {
        val token = kb_addi(K, v->y_token, (long long)t * v->tokens_8);
        val steps = later(K, v, v->y_steps, t * v->tokens_8);
        p->key[t] = kb_add(K, scales_at(K, v, &slot->key, token, steps), chunk);
    }
    val dim = attend_first_dim(K, v, v->y);
    chunk = kb_divi(K, dim, slot->value.codec.group);
    for (int e = 0; e < v->shape.ke; e++) {
        bool next = e % 4 >= 2; /* 8 rows on from e - 2 */
        val steps = later(K, v, v->v_steps[next ? e - 2 : e], next ? v->tokens_8 : 0);
        p->value[e] = kb_add(K, scales_at(K, v, &slot->value, v->k_token[e], steps), chunk);
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

static val byte_at(struct kb *k, val part, val at, int more)
{
    val place = kb_offseti(K, kb_offset(K, part, at), more);
    return kb_zext(K, kb_load(K, KB_I8, place, 1), KB_I32);
}

static void load_bytes(struct kb *k, const struct attend *v, struct attend_codes *c)
{
    int tiles = v->shape.k_tiles, each = v->shape.ke / tiles;
    for (int u = 0; u < v->plan->subtiles; u++) {
        val part = part_of(K, v, kb_i32(K, u));
        for (int t = 0; t < v->y_tiles; t++)
            for (int i = 0; i < key_chunks(v); i++)
                c->key_scale[u][t][i] = byte_at(K, part, v->powers.key[t], i);
        for (int e = 0; e < each; e++)
            for (int i = 0; i < value_chunks(v); i++)
                c->value_scale[u / tiles][u % tiles * each + e][i] =
                    byte_at(K, part, v->powers.value[e], i);
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
    val group = kb_mul(K, kb_lshri(K, token, 2), v->powers.group_pitch);
    val steps = kb_add(K, group, kb_mul(K, kb_andi(K, token, 3), v->head.step));
    for (int i = 0; i < 2; i++) {
        val at = scales_at(K, v, sides[i], token, steps);
        own.n[i] = own_words(K, sides[i], kb_offset(K, part, at), own.word[i]);
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
        val x = word_of(K, a, c, sub, pair, dim / 4), high = kb_shli(K, x, 4);
        *w = (struct power_word){.sub = sub, .word = dim / 4};
        w->even = kb_bit_select(K, (unsigned)SIGNS, high, kb_shli(K, x, 1));
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
