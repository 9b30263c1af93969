/* SPDX-License-Identifier: Apache-2.0 */
/*
** part_dense_write.c - a lane's two rows to memory: pairs of neighbouring columns.
*/
#include "part_dense.h"
#include "part_finite.h"
#include "part_output.h"

static val is_nothing(struct kb *k, val m) { return kb_fcmp(K, KB_OLE, m, dense_nothing(K)); }

/* 1 over the sum, the sink's share in it; 0 where nothing was summed. */
static val row_factor(struct kb *k, val m, val l, val head)
{
    val none = is_nothing(K, m), zero = kb_f32(K, 0), sink = attend_sink(K, head);
    val weight = kb_exp2(K, kb_fsub(K, sink, kb_select(K, none, sink, m)));
    val sum = kb_fadd(K, l, kb_select(K, none, zero, weight));
    val some = kb_fcmp(K, KB_OGT, sum, zero);
    return kb_select(K, some, kb_rcp(K, sum), zero);
}

static void write_row(struct kb *k, const struct dense *d, const val *o, val factor, val out,
                      bool pairs)
{
    int type = d->plan->geo.dtype == KVK_FLOAT16 ? KB_F16 : KB_BF16;
    val at = kb_offset(K, out, kb_shli(K, kb_andi(K, kb_lane(K), 3), 2));
    for (int i = 0; i < d->plan->geo.value_head_size / 2; i += 4) {
        val x[2];
        for (int e = 0; e < 2; e++) {
            x[e] = kb_fmul(K, o[i + e], factor);
            if (type == KB_F16)
                x[e] = saturate(K, x[e]);
        }
        val to = kb_offseti(K, at, 4LL * i);
        if (pairs) {
            kb_store(K, kb_pack_half(K, x[0], x[1], type), to, 4);
        } else {
            kb_store(K, kb_to_half(K, x[0], type), to, 2);
            val second = kb_to_half(K, x[1], type);
            kb_store(K, second, kb_offseti(K, to, 2), 2);
        }
    }
}

static void write_lse(struct kb *k, val m, val l, val token, val head)
{
    const struct plan *p = kb_plan(k);
    val lse = kb_param(K, "lse");
    val given = kb_not(K, kb_is_null(K, lse));
    val first = kb_icmpi(K, KB_EQ, kb_andi(K, kb_lane(K), 3), 0);
    struct kb_if wanted = kb_if(K, kb_and(K, given, first));
    val heads = kb_zext(K, kb_muli(K, kb_param(K, "kv_heads"), p->geo.gqa), KB_I64);
    val row = kb_mul(K, kb_zext(K, token, KB_I64), heads);
    row = kb_add(K, row, kb_zext(K, head, KB_I64));
    val sum = kb_fmul(K, kb_fadd(K, m, kb_log2(K, l)), kb_f32(K, 0.6931471805599453));
    sum = kb_select(K, is_nothing(K, m), kb_f32_bits(K, 0xff800000), sum);
    kb_store(K, sum, kb_offset(K, lse, kb_shli(K, row, 2)), 4);
    kb_endif(K, &wanted);
}

void dense_write(struct kb *k, const struct dense *d, val group, const struct dense_sums *s)
{
    for (int i = 0; i < 2; i++) {
        val head, valid, row = kb_addi(K, dense_row(K, group), 8 * i);
        val inner = rows_token(K, &d->rows, row, &head, &valid);
        val token = kb_add(K, d->rows.first_token, inner);
        struct kb_if exists = kb_if(K, valid);
        val factor = row_factor(K, s->m[i], s->l[i], head);
        val out = rows_pointer(K, "out", "out_row", "out_head", token, head);
        val odd = kb_icmpi(K, KB_NE, kb_address_bits(K, out, 2), 0);
        struct kb_if apart = kb_if(K, odd);
        write_row(K, d, s->o + 2 * i, factor, out, false);
        kb_else(K, &apart);
        write_row(K, d, s->o + 2 * i, factor, out, true);
        kb_endif(K, &apart);
        write_lse(K, s->m[i], s->l[i], token, head);
        kb_endif(K, &exists);
    }
}
