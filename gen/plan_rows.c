/* SPDX-License-Identifier: Apache-2.0 */
/*
** plan_rows.c - how rows of images of the aos layout (part_words.c) and values of the soa layout are read
** (part_image_pairs.c), and where the lengths of keys come from whose norm is corrected when read.
*/
#include "plan_rules.h"

/* Squares of centroids that differ by less keep their bits in f16, largest 1 to 4; sums of a lane are below 2^10. */
enum { MOST_RATIO = 64 };

static bool even_sizes(const struct codec *c)
{
    float least = 0, most = 0;
    for (int i = 0; i < c->ncentroids; i++) {
        float x = c->centroids[i] < 0 ? -c->centroids[i] : c->centroids[i];
        most = x > most ? x : most;
        if (x > 0 && (least == 0 || x < least))
            least = x;
    }
    return most <= MOST_RATIO * least; /* the solver's: 21 */
}

bool plan_squares_possible(const struct plan *p)
{
    return p->geo.layout == LAYOUT_AOS && p->narrow == 1 && p->slot.key.norm_at_read &&
           p->key_operand == OPERAND_F16 && even_sizes(&p->slot.key.codec);
}

/* Words of a side that begin two bytes behind its codes hold whole codes, and the codes that were
** left out find room in the field behind the last. */
static bool turns(const struct plan *p, const struct side *side)
{
    if (p->slot.slot_bytes % 4 == 0 && side->code_offset % 4 == 0)
        return true; /* never needed */
    return side->fields && side->field_offset[0] == side->code_offset + side->code_bytes;
}

/* Lanes side by side take words side by side: `lanes` of them share a row. */
static bool whole_words(const struct plan *p, const struct side *side, int lanes)
{
    int size = side->head_size, bits = side->codec.bits, row = size * bits;
    bool plain = (side->codec.kind == CODEC_FLOAT && bits == 8) ||
                 side->codec.kind == CODEC_CODEBOOK || side->codec.kind == CODEC_AFFINE;
    enum { MOST_WORDS = 32 }; /* of a lane */
    if (row > 32 * lanes * MOST_WORDS)
        return false;
    return p->narrow <= 1 && plain && !side->scale_bytes && bits <= 8 && 16 % bits == 0 &&
           (size & (size - 1)) == 0 && row % (32 * lanes) == 0 && turns(p, side);
}

/* A tensor copy takes whole rows: behind the last of a page's records it reads some of its fields. */
static bool rows_end_in_page(const struct slot *s)
{
    int over = PLAN_ROW_BYTES - 1 - (s->record_bytes - 1) % PLAN_ROW_BYTES;
    return over <= 32 * s->fields;
}

/* 16 bytes of a token are four codes of each of eight lanes, and begin at a multiple of 16. */
static bool pairs_possible(const struct plan *p)
{
    const struct slot *s = &p->slot;
    const struct codec *c = &s->value.codec;
    const struct matrix_ops *m = p->target->ops->narrow;
    bool order = p->narrow && m && m->load_pairs && p->target->ops->held && p->subtiles == 2 &&
                 p->mma.k_tiles == 1;
    int bytes = s->value.code_bytes;
    return order && p->geo.page_tokens == 16 && c->kind == CODEC_AFFINE && c->bits == 4 &&
           !s->key.norm_at_read && s->record_bytes % 16 == 0 && s->value.code_offset % 16 == 0 &&
           bytes % 32 == 0 && (bytes & (bytes - 1)) == 0 && rows_end_in_page(s);
}

static void plan_turned(struct plan *p)
{
    p->value_pairs = p->turned = p->image_padding && pairs_possible(p);
    if (p->turned)
        p->image_padding = 0;
    plan_because(
        p, "turned", "%s",
        p->turned
            ? "tensor copies put a head's tokens into different banks, and to multiples of 1024"
            : "pages come as they lie");
}

/* Rows whose words are whole anyway: 4 bits, which transposing loads take by 16 bytes of rows that begin there. */
static bool row_pairs_possible(const struct plan *p)
{
    const struct side *s = &p->slot.value;
    const struct matrix_ops *m = p->target->ops->narrow;
    int chunks = s->code_bytes / 16;
    return p->value_words && p->narrow == 1 && m && m->load_pairs && p->target->ops->held &&
           p->subtiles == 2 && p->mma.k_tiles == 1 && s->codec.bits == 4 &&
           s->code_bytes % 32 == 0 && (chunks & (chunks - 1)) == 0;
}

/* Seven registers, which kernels have to spare that move no bytes of values. Those of many rows: some. */
static enum plan_held held_places(const struct plan *p)
{
    bool native = p->geo.layout == LAYOUT_NATIVE, words = p->key_words && p->value_words;
    bool spare = p->powers || (p->narrow == 1 && p->geo.head_size == 128 && (native || words));
    if (!p->target->ops->held || p->subtiles != 2 || !(p->value_pairs || spare))
        return HELD_NONE;
    if (p->narrow > 2)
        return HELD_LEAST;
    if (!p->turned || p->narrow == 1)
        return HELD_ALL;
    return p->spec.key.bits == 3 ? HELD_SOME : HELD_MOST;
}

static void plan_places(struct plan *p)
{
    static const char *const why[] = {
        [HELD_NONE] = "registers are for the step",
        [HELD_LEAST] = "three tiles of rows leave registers for a token's fields alone",
        [HELD_SOME] = "two tiles of rows and keys of 3 bits: what all rows see would spill as well",
        [HELD_MOST] =
            "two tiles of rows: the query's place would spill, fields' is a uniform register's",
        [HELD_ALL] = "a twelfth of a step's instructions would make addresses again"};
    p->held_places = held_places(p);
    plan_because(p, "held_places", "%s", why[p->held_places]);
}

void plan_rows(struct plan *p)
{
    p->value_pairs = p->held_places = p->turned =
        0; /* a shape whose images did not fit leaves its own */
    if (p->images && p->geo.layout == LAYOUT_SOA)
        plan_turned(p);
    const struct slot *s = &p->slot;
    bool aos = p->images && p->geo.layout == LAYOUT_AOS;
    p->squares = aos && plan_squares_possible(p);
    p->key_words = aos && p->key_operand == OPERAND_F16 && whole_words(p, &s->key, p->mma.groups);
    p->value_words = aos && s->value.codec.kind == CODEC_AFFINE && !s->value.norm_at_read &&
                     whole_words(p, &s->value, p->mma.y_tile);
    p->value_pairs |= row_pairs_possible(p);
    if (!p->images)
        return;
    plan_because(p, "value_pairs", "%s",
                 p->value_pairs ? "loads that transpose: two tokens a word, no bytes are moved"
                                : "each token's codes, which are put together two by two");
    plan_places(p);
    if (!aos)
        return;
    plan_because(p, "key_words", "%s",
                 p->key_words ? "aligned words of a row side by side: no shifts, no bank twice"
                              : "runs of bytes, shifted together");
    plan_because(p, "value_words", "%s",
                 p->value_words ? "as those of keys" : "runs of bytes, shifted together");
    plan_because(p, "squares", "%s",
                 p->squares
                     ? "pairs of squares summed in f16, and over lanes by the matrix unit"
                     : "lengths of keys are stored, or squares are looked up beside centroids");
}
