/* SPDX-License-Identifier: Apache-2.0 */
/*
** plan.c - every choice a template obeys. Each is made once, here, and leaves its reason.
**
** Attention kernels hold 16 query rows a warp. What a lane keeps of the output is 16 * value dims /
** lanes floats: that, with 128 of them as the most that leaves room for a step's codes, decides how
** many warps share a row's dims.
*/
#include "plan.h"

#include "../runtime/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_ACCUMULATORS = 128,
    ATTEND_WARPS = 4,
    STORE_WARPS = 4,
    OTHER_SHARED = 8192 /* tables, token facts */
};

static const char *const kind_names[KIND_COUNT] = {"store", "decode", "unified", "dequant"};

const char *kind_name(enum kind kind) { return kind_names[kind]; }

int kind_from_name(const char *name)
{
    for (int i = 0; i < KIND_COUNT; i++)
        if (!strcmp(kind_names[i], name))
            return i;
    return -1;
}

__attribute__((format(printf, 3, 4))) static void because(struct plan *p, const char *field,
                                                          const char *format, ...)
{
    if (p->nwhy == (int)(sizeof p->why / sizeof *p->why))
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(p->why[p->nwhy].text, sizeof p->why[0].text, format, args);
    va_end(args);
    p->why[p->nwhy++].field = field;
}

static enum plan_operand operand_of(const struct codec *c)
{
    return c->kind == CODEC_BLOCK_FLOAT || c->format == FLOAT_BF16 ? OPERAND_BF16_SPLIT
                                                                   : OPERAND_F16;
}

static int accumulators(const struct plan *p)
{
    return 16 * p->geo.value_head_size / p->dim_warps / p->target->warp;
}

static void plan_operands(struct plan *p)
{
    p->key_operand = operand_of(&p->spec.key);
    p->value_operand = operand_of(&p->spec.value);
    if (p->key_operand == OPERAND_BF16_SPLIT && p->spec.query == QUERY_E4M3)
        p->key_operand = OPERAND_BF16;
    because(p, "key_operand", "%s",
            p->key_operand == OPERAND_F16
                ? "codes are exact in f16 (centroids to 2^-12); the norm scales the score"
            : p->key_operand == OPERAND_BF16
                ? "E2M1 * 2^e and an e4m3 query are exact in bf16"
                : "E2M1 * 2^e is exact in bf16; the query is two bf16 terms");
    because(p, "value_operand", "%s",
            p->value_operand == OPERAND_F16
                ? "codes are exact in f16; the scale is folded into p, the zero is a scalar sum"
                : "E2M1 * 2^e is exact in bf16; p is two bf16 terms");
}

/* 16 bytes of padding a row: lanes that read the same columns of neighbouring rows meet different
** banks. */
int plan_query_pitch(const struct plan *p) { return p->geo.head_size + 8; }

int plan_query_bytes(const struct plan *p)
{
    int planes = p->key_operand == OPERAND_BF16_SPLIT ? 2 : 1;
    return planes * 16 * plan_query_pitch(p) * 2 + 16 * 4;
}

int plan_merge_bytes(const struct plan *p)
{
    int values = accumulators(p) + 2 * p->target->mma.lane_rows;
    return p->token_warps / 2 * p->dim_warps * values * p->target->warp * 4;
}

int plan_tile_bytes(const struct plan *p)
{
    int query = plan_query_bytes(p) * p->row_warps, merge = plan_merge_bytes(p);
    return query > merge ? query : merge;
}

/* Who does what among the CTA's warps. */
static void share_warps(struct plan *p)
{
    int others = p->warps / p->dim_warps;
    p->token_warps = p->kind == KIND_DECODE ? others : 1;
    p->row_warps = p->kind == KIND_DECODE ? 1 : others;
    p->rows = 16 * p->row_warps;
}

static void plan_attend(struct plan *p)
{
    const struct target *t = p->target;
    p->warps = ATTEND_WARPS;
    plan_operands(p);
    int most = t->registers > 256 ? MAX_ACCUMULATORS : MAX_ACCUMULATORS / 2;
    for (p->dim_warps = 1; accumulators(p) > most && p->dim_warps < p->warps; p->dim_warps *= 2)
        ;
    because(p, "dim_warps", "a lane keeps %d output sums, at most %d", accumulators(p), most);
    share_warps(p);
    while (plan_tile_bytes(p) + OTHER_SHARED > t->shared_bytes && p->warps > p->dim_warps) {
        p->warps /= 2;
        share_warps(p);
    }
    because(p, "warps", "query rows, later the warps' sums, take %d of %d bytes of shared memory",
            plan_tile_bytes(p), t->shared_bytes);
    p->subtiles =
        t->mma.y_tile == 8 && accumulators(p) <= 32 && p->key_operand == OPERAND_F16 ? 2 : 1;
    because(p, "subtiles", "%s",
            p->subtiles == 2
                ? "two 16-token products a step share one update of the running maximum"
                : "one 16-token product a step: registers go to output sums and operands");
    p->tile_tokens = 16 * p->subtiles * p->token_warps;
    bool tight = p->spec.key.bits <= 4 && p->geo.head_size <= 128 &&
                 p->subtiles == 1; /* else it would spill */
    p->min_ctas = t->family == FAMILY_NVPTX && t->flags & TF_BULK_COPY && tight ? 3 : 0;
    because(p, "min_ctas",
            p->min_ctas ? "168 registers a thread: 12 warps hide more latency than the registers "
                          "would (measured, sm_90a)"
                        : "the assembler may use all registers");
    p->subnormal_codes = t->family != FAMILY_AMDGCN;
    because(p, "subnormal_codes",
            p->subnormal_codes ? "masked codes are exact f16 subnormals: no shift, no subtraction"
                               : "not relied on: this matrix unit may flush f16 subnormals");
    p->prefetch = t->family != FAMILY_HOST && t->mma.groups > 1 && accumulators(p) <= 64;
    because(p, "prefetch",
            p->prefetch ? "codes of the next step are in flight while this one is computed"
                        : "no registers (or, on a CPU, no use) for a step in flight");
}

static kvk_status refuse(const struct plan *p, kvk_error *err, const char *field, int value,
                         const char *accepted)
{
    return ERR(err, KVK_E_UNSUPPORTED, "%s %s: %s %d: %s kernels take %s", p->spec.name,
               p->target->name, field, value, kind_name(p->kind), accepted);
}

/* What kernels cannot do yet, one line each. */
static kvk_status check_limits(const struct plan *p, kvk_error *err)
{
    const struct geometry *g = &p->geo;
    int sizes[2] = {g->head_size, g->value_head_size};
    const struct codec *codecs[2] = {&p->spec.key, &p->spec.value};
    bool attends = p->kind == KIND_DECODE || p->kind == KIND_UNIFIED;
    for (int i = 0; i < 2; i++) {
        const char *field = i ? "value_head_size" : "head_size";
        if (attends && (sizes[i] % 16 || sizes[i] > 512))
            return refuse(p, err, field, sizes[i], "multiples of 16 up to 512");
        if (codecs[i]->kind == CODEC_FLOAT && codecs[i]->format != FLOAT_E4M3 && attends)
            return ERR(err, KVK_E_UNSUPPORTED,
                       "%s: attention over a float codec other than e4m3 is not available yet",
                       p->spec.name);
        if (codecs[i]->kind == CODEC_BLOCK_FLOAT && codecs[i]->rule != BLOCK_ULTRAQUANT)
            return ERR(err, KVK_E_UNSUPPORTED,
                       "%s: block_float rule mxfp4 and nvfp4 are not available yet", p->spec.name);
    }
    if (attends && p->spec.key.kind == CODEC_AFFINE)
        return ERR(err, KVK_E_UNSUPPORTED, "%s: attention over affine keys is not available yet",
                   p->spec.name);
    if (attends && p->spec.value.kind == CODEC_CODEBOOK)
        return ERR(err, KVK_E_UNSUPPORTED,
                   "%s: attention over codebook values is not available yet", p->spec.name);
    if (attends && (g->gqa < 1 || g->gqa > 128))
        return refuse(p, err, "gqa", g->gqa, "1 to 128");
    if (attends && g->head_size / p->target->mma.groups * p->spec.key.bits > 64 * 32)
        return refuse(p, err, "head_size", g->head_size, "at most 2048 key bits a lane");
    if (attends && g->page_tokens % 16)
        return refuse(p, err, "page_tokens", g->page_tokens, "multiples of 16");
    return KVK_OK;
}

kvk_status plan_make(const struct spec *spec, const struct geometry *geo,
                     const struct target *target, enum kind kind, struct plan *out, kvk_error *err)
{
    *out = (struct plan){.spec = *spec, .geo = *geo, .target = target, .kind = kind};
    kvk_status status = spec_check_geometry(spec, geo, err);
    if (!status)
        status = slot_make(spec, geo, &out->slot, err);
    if (!status)
        status = check_limits(out, err);
    if (status)
        return status;
    out->dim_warps = out->row_warps = out->token_warps = 1;
    if (kind == KIND_DECODE || kind == KIND_UNIFIED) {
        plan_attend(out);
    } else {
        out->warps = STORE_WARPS;
        because(out, "warps", "one warp a (row, head) pair, %d pairs a CTA", STORE_WARPS);
    }
    out->vectors = out->warps;
    out->threads = out->warps * target->warp;
    return KVK_OK;
}

/* ---- printing ---- */

struct text {
    char *at;
    size_t cap, length;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t room = t->length < t->cap ? t->cap - t->length : 0;
    int n = vsnprintf(room ? t->at + t->length : NULL, room, format, args);
    va_end(args);
    t->length += n > 0 ? (size_t)n : 0;
}

static const char *reason(const struct plan *p, const char *field)
{
    for (int i = 0; i < p->nwhy; i++)
        if (!strcmp(p->why[i].field, field))
            return p->why[i].text;
    return NULL;
}

static void put_field(struct text *t, const struct plan *p, const char *field, int value)
{
    const char *why = reason(p, field);
    put(t, "%s %d%s%s\n", field, value, why ? "  # " : "", why ? why : "");
}

static void put_operand(struct text *t, const struct plan *p, const char *field,
                        enum plan_operand o)
{
    static const char *const names[] = {"f16", "bf16x2", "bf16"};
    put(t, "%s %s  # %s\n", field, names[o], reason(p, field));
}

size_t plan_print(const struct plan *p, char *text, size_t cap)
{
    struct text t = {text, cap, 0};
    put_field(&t, p, "warps", p->warps);
    put_field(&t, p, "threads", p->threads);
    if (p->kind == KIND_DECODE || p->kind == KIND_UNIFIED) {
        put_field(&t, p, "rows", p->rows);
        put_field(&t, p, "row_warps", p->row_warps);
        put_field(&t, p, "token_warps", p->token_warps);
        put_field(&t, p, "dim_warps", p->dim_warps);
        put_field(&t, p, "subtiles", p->subtiles);
        put_field(&t, p, "tile_tokens", p->tile_tokens);
        put_field(&t, p, "prefetch", p->prefetch);
        put_field(&t, p, "min_ctas", p->min_ctas);
        put_field(&t, p, "subnormal_codes", p->subnormal_codes);
        put_operand(&t, p, "key_operand", p->key_operand);
        put_operand(&t, p, "value_operand", p->value_operand);
    } else {
        put_field(&t, p, "vectors", p->vectors);
    }
    return t.length;
}
