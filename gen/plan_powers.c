/* SPDX-License-Identifier: Apache-2.0 */
/*
** plan_powers.c - FP4 codes whose scales are powers of two: which decode kernels take them as f16 operands from images
** (part_powers.h), and not as products in bf16.
*/
#include "plan_rules.h"

enum { GROUP = 32 };

static bool suits(const struct codec *c)
{
    return c->kind == CODEC_BLOCK_FLOAT && c->rule != BLOCK_NVFP4 && c->group == GROUP;
}

/* Lanes hold runs of a quarter of a key, an eighth of two tokens' values, of which a scale serves all or 32. */
bool plan_powers_possible(const struct plan *p)
{
    const struct mma_shape *m = &p->target->narrow;
    int size = p->geo.head_size;
    bool form = m->rows && m->groups == 4 && m->y_tile == 8 && m->ke == 4 && m->k_tiles == 1 &&
                p->set.value[PLAN_narrow] != 0;
    return form && p->kind == KIND_DECODE && suits(&p->spec.key) && suits(&p->spec.value) &&
           p->spec.query != QUERY_E4M3 && p->spec.value.rotation == ROTATION_NONE &&
           size == p->geo.value_head_size && (size == 64 || size == 128 || size == 256);
}
