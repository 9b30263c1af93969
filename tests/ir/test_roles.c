/* SPDX-License-Identifier: Apache-2.0 */
/*
** What every target promises in target.h, checked for all of them without running a kernel: index roles are evaluated
** lane by lane (the builder folds constants), the emitted text is searched for facts.
*/
#include <llvm-c/Core.h> /* first: its parameters are named like the builder's macro */

#include "gen/kb_internal.h"
#include "gen/lower.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench {
    struct lower *lower;
    struct plan *plan;
    struct kb kb;
    kvk_error err;
};

/* A builder inside an entry of `reduce`. */
static struct bench *begin(const struct target *target)
{
    struct bench *b = calloc(1, sizeof *b);
    b->plan = calloc(1, sizeof *b->plan);
    b->plan->target = target;
    assert_int_equal(lower_open(target, "roles", false, &b->lower, &b->err), KVK_OK);
    kb_open(&b->kb, lower_context(b->lower), lower_module(b->lower), target, b->plan, &b->err);
    kb_entry_begin(&b->kb, "roles", "reduce", 2 * target->warp);
    return b;
}

static void end(struct bench *b)
{
    assert_string_equal(b->err.text, "");
    kb_close(&b->kb);
    lower_close(b->lower);
    free(b->plan);
    free(b);
}

static void set_lane(struct bench *b, int lane) { b->kb.lane = kb_i32(&b->kb, lane); }

static int number(val x)
{
    assert_true(LLVMIsConstant(x));
    return (int)LLVMConstIntGetZExtValue(x);
}

/* ---- index roles ---- */

static void for_each_target(void (*check)(struct bench *b, const struct target *t))
{
    const struct target *t;
    for (int i = 0; (t = target_at(i)); i++) {
        struct bench *b = begin(t);
        check(b, t);
        kb_entry_end(&b->kb);
        end(b);
    }
}

static void check_result(struct bench *b, const struct target *t)
{
    int seen[16][16] = {{0}};
    for (int lane = 0; lane < t->warp; lane++) {
        set_lane(b, lane);
        for (int tile = 0; tile < 16 / t->mma.y_tile; tile++)
            for (int row = 0; row < t->mma.lane_rows; row++)
                for (int e = 0; e < t->mma.ye; e++) {
                    int x = number(t->ops->matrix->x_row(&b->kb, row));
                    int y = tile * t->mma.y_tile + number(t->ops->matrix->result_y(&b->kb, e));
                    assert_in_range(x, 0, 15);
                    assert_in_range(y, 0, 15);
                    seen[x][y]++;
                }
    }
    for (int i = 0; i < 256; i++)
        assert_int_equal(seen[i / 16][i % 16], 1);
}

static void each_result_lies_in_one_place(void **state)
{
    (void)state;
    for_each_target(check_result);
}

static void check_operand(struct bench *b, const struct target *t)
{
    const struct mma_shape *m = &t->mma;
    int lanes[16][4] = {{0}}, k_seen[16][32] = {{0}};
    for (int lane = 0; lane < t->warp; lane++) {
        set_lane(b, lane);
        int y = number(t->ops->matrix->y_index(&b->kb)), group = number(t->ops->matrix->group(&b->kb));
        assert_in_range(y, 0, m->y_tile - 1);
        assert_in_range(group, 0, m->groups - 1);
        lanes[y][group]++;
        for (int e = 0; e < m->ke; e++)
            k_seen[y][number(t->ops->matrix->k_index(&b->kb, e)) & 31]++;
    }
    int copies =
        t->warp / (m->y_tile * m->groups); /* gfx11: both halves of a wave hold an operand */
    assert_int_equal(m->groups * m->ke, 16 * m->k_tiles);
    for (int y = 0; y < m->y_tile; y++) {
        for (int group = 0; group < m->groups; group++)
            assert_int_equal(lanes[y][group], copies);
        for (int e = 0; e < 16 * m->k_tiles; e++)
            assert_int_equal(k_seen[y][e], copies);
    }
}

static void operands_hold_every_k_of_every_y(void **state)
{
    (void)state;
    for_each_target(check_operand);
}

/* All lanes that xor masks reach from lane 0. */
static int reach(const int *masks, int n, int lanes[64])
{
    int count = 1;
    lanes[0] = 0;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < count; j++)
            lanes[count + j] = lanes[j] ^ masks[i];
        count *= 2;
    }
    return count;
}

static void check_reduction(struct bench *b, const struct target *t)
{
    int masks[4], lanes[64], count = reach(masks, t->ops->matrix->reduce_masks(t, masks), lanes);
    assert_int_equal(count * t->mma.ye, t->mma.y_tile);
    for (int lane = 0; lane < t->warp; lane++) {
        set_lane(b, lane);
        int x = number(t->ops->matrix->x_row(&b->kb, 0)), ys = 0;
        for (int j = 0; j < count; j++) {
            set_lane(b, lane ^ lanes[j]);
            assert_int_equal(number(t->ops->matrix->x_row(&b->kb, 0)), x);
            for (int e = 0; e < t->mma.ye; e++)
                ys |= 1 << number(t->ops->matrix->result_y(&b->kb, e));
        }
        assert_int_equal(ys, (1 << t->mma.y_tile) - 1);
    }
}

static void reduction_masks_join_the_lanes_of_a_row(void **state)
{
    (void)state;
    for_each_target(check_reduction);
}

static void check_groups(struct bench *b, const struct target *t)
{
    int masks[4], lanes[64], count = reach(masks, t->ops->matrix->group_masks(t, masks), lanes);
    assert_int_equal(count, t->mma.groups);
    for (int lane = 0; lane < t->warp; lane++) {
        set_lane(b, lane);
        int y = number(t->ops->matrix->y_index(&b->kb)), groups = 0;
        for (int j = 0; j < count; j++) {
            set_lane(b, lane ^ lanes[j]);
            assert_int_equal(number(t->ops->matrix->y_index(&b->kb)), y);
            groups |= 1 << number(t->ops->matrix->group(&b->kb));
        }
        assert_int_equal(groups, (1 << t->mma.groups) - 1);
    }
}

static void group_masks_join_the_groups_of_a_y(void **state)
{
    (void)state;
    for_each_target(check_groups);
}

/* ---- emitted text ---- */

static void store_word(struct kb *k, int slot, val x)
{
    val word = kb_type_of(k, x) == KB_F32 ? kb_bitcast(k, x, KB_I32) : x;
    val at = kb_shli(k, kb_addi(k, kb_tid(k), slot * 256), 2);
    kb_store(k, word, kb_offset(k, kb_param(k, "out"), at), 4);
}

static void use_roles(struct kb *k)
{
    val at = kb_shli(k, kb_tid(k), 2);
    val x = kb_load(k, KB_I32, kb_offset(k, kb_param(k, "partial"), at), 4);
    val f = kb_bitcast(k, x, KB_F32);
    int slot = 0;
    for (int mask = 1; mask < kb_warp_size(k); mask *= 2)
        store_word(k, slot++, kb_shuffle_xor(k, x, mask));
    store_word(k, slot++, kb_shuffle(k, x, kb_andi(k, x, 15)));
    store_word(k, slot++, kb_exp2(k, f));
    store_word(k, slot++, kb_log2(k, f));
    store_word(k, slot++, kb_rsqrt(k, f));
    store_word(k, slot++, kb_rcp(k, f));
    store_word(k, slot++, kb_byte_perm(k, x, kb_tid(k), 0x7250));
    store_word(k, slot++, kb_pack_half(k, f, kb_fneg(k, f), KB_F16));
    store_word(k, slot++, kb_pack_half(k, f, kb_fneg(k, f), KB_BF16));
    store_word(k, slot++, kb_uniform(k, kb_warp(k)));
    val shared = kb_shared(k, 4096, 16);
    kb_store(k, x, kb_offset(k, shared, at), 4);
    kb_warp_sync(k);
    kb_barrier(k);
    store_word(k, slot++, kb_load(k, KB_I32, kb_offset(k, shared, kb_andi(k, x, 1020)), 4));
}

/* X Y^T over 16 k with the operands of one lane alike; then the result as an operand. */
static void use_mma(struct kb *k, int type)
{
    const struct target *t = kb_target(k);
    const struct mma_shape *m = &t->mma;
    val acc[16], x[16], y[8], pairs[16];
    int words = m->lane_rows * m->ye * (16 / m->y_tile) * m->k_tiles;
    val word =
        kb_load(k, KB_I32, kb_offset(k, kb_param(k, "partial"), kb_shli(k, kb_lane(k), 2)), 4);
    for (int i = 0; i < words; i++)
        acc[i] = kb_f32(k, 0);
    for (int i = 0; i < m->lane_rows * m->ke / 2; i++)
        x[i] = word;
    for (int i = 0; i < m->ke / 2; i++)
        y[i] = word;
    for (int tile = 0; tile < 16 / m->y_tile * m->k_tiles; tile++)
        t->ops->matrix->mma(k, type, acc + tile * m->lane_rows * m->ye, x, y);
    t->ops->matrix->x_from_result(k, type, acc, pairs);
    for (int i = 0; i < m->lane_rows * m->ke / 2; i++)
        store_word(k, 32 + i, pairs[i]);
}

static char *emitted(const struct target *t, int type)
{
    struct bench *b = begin(t);
    use_roles(&b->kb);
    use_mma(&b->kb, type);
    kb_entry_end(&b->kb);
    void *text = NULL;
    size_t bytes;
    kvk_status status = lower_verify(b->lower, &b->err);
    if (!status)
        status = lower_optimise(b->lower, &b->err);
    if (!status)
        status = lower_emit(b->lower, 0, &text, &bytes, &b->err);
    if (status)
        print_error("%s: %s\n", t->name, b->err.text);
    end(b);
    return text;
}

static void expect(const struct target *t, const char *text, const char *wanted)
{
    if (!strstr(text, wanted))
        fail_msg("%s: no %s", t->name, wanted);
}

static void expect_none(const struct target *t, const char *text, const char *unwanted)
{
    if (strstr(text, unwanted))
        fail_msg("%s: has %s", t->name, unwanted);
}

static const char *matrix_instruction(const struct target *t, int type)
{
    if (t->family == FAMILY_NVPTX)
        return type == KB_F16 ? "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
                              : "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32";
    if (t->flags & TF_MFMA_DOUBLE)
        return type == KB_F16 ? "v_mfma_f32_16x16x32_f16" : "v_mfma_f32_16x16x32_bf16";
    if (t->flags & TF_MFMA)
        return type == KB_F16 ? "v_mfma_f32_16x16x16_f16" : "v_mfma_f32_16x16x16_bf16";
    return type == KB_F16 ? "v_wmma_f32_16x16x16_f16" : "v_wmma_f32_16x16x16_bf16";
}

static void gpus_use_their_matrix_unit(void **state)
{
    (void)state;
    const struct target *t;
    for (int i = 0; (t = target_at(i)); i++)
        for (int type = KB_F16; type <= KB_BF16 && t->family != FAMILY_HOST; type++) {
            char *text = emitted(t, type);
            expect(t, text, matrix_instruction(t, type));
            free(text);
        }
}

/* The rule of formats.md: every rounding to 16 bits is to nearest even. */
static void conversions_never_round_toward_zero(void **state)
{
    (void)state;
    const struct target *t;
    for (int i = 0; (t = target_at(i)); i++) {
        char *text = emitted(t, KB_BF16);
        expect_none(t, text, "cvt_pkrtz");
        expect_none(t, text, "cvt.rz.f16");
        expect_none(t, text, "cvt.rz.bf16");
        free(text);
    }
}

/* Stores to shared memory have arrived before the barrier is passed. */
static void amd_barriers_wait_for_shared_memory(void **state)
{
    (void)state;
    const struct target *t;
    for (int i = 0; (t = target_at(i)); i++) {
        if (t->family != FAMILY_AMDGCN)
            continue;
        char *text = emitted(t, KB_F16);
        char *barrier = strstr(text, "s_barrier");
        assert_non_null(barrier);
        *barrier = 0;
        char *wait = NULL;
        const char *word = t->flags & TF_WMMA_GFX12 ? "s_wait_" : "lgkmcnt(0)";
        for (char *p = text; (p = strstr(p, word)); p++)
            wait = p;
        assert_non_null(wait);
        expect(t, text, "ds_");
        expect_none(t, wait, "ds_write");
        expect_none(t, wait, "ds_store");
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_result_lies_in_one_place),
        cmocka_unit_test(operands_hold_every_k_of_every_y),
        cmocka_unit_test(reduction_masks_join_the_lanes_of_a_row),
        cmocka_unit_test(group_masks_join_the_groups_of_a_y),
        cmocka_unit_test(gpus_use_their_matrix_unit),
        cmocka_unit_test(conversions_never_round_toward_zero),
        cmocka_unit_test(amd_barriers_wait_for_shared_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
