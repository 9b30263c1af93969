/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_sim.c - the simulator itself: lanes, constants, numbers, unknowns, work-groups.
*/
#include "machine.h"

/* ---- lanes ---- */

static void dpp_onto_itself(void **state)
{
    static const struct {
        const char *code;
        int from[16]; /* within a row */
    } cases[] = {
        {"v_add_u32_dpp v0, v0, v0 row_ror:1 row_mask:0xf bank_mask:0xf bound_ctrl:1",
         {15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}},
        {"v_add_u32_dpp v0, v0, v0 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf bound_ctrl:1",
         {1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14}},
        {"v_add_u32_dpp v0, v0, v0 row_mirror row_mask:0xf bank_mask:0xf bound_ctrl:1",
         {15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}},
        {"v_add_u32_dpp v0, v0, v0 row_half_mirror row_mask:0xf bank_mask:0xf bound_ctrl:1",
         {7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8}},
        {"v_add_nc_u32_dpp v0, v0, v0 row_xmask:5 row_mask:0xf bank_mask:0xf bound_ctrl:1",
         {5, 4, 7, 6, 1, 0, 3, 2, 13, 12, 15, 14, 9, 8, 11, 10}},
    };
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        start(n == 4 ? 1100 : 942, cases[n].code);
        for (int l = 0; l < m.wave.lanes; l++)
            set(0, l, 1000u + (unsigned)(l * l));
        RUNS();
        for (int l = 0; l < m.wave.lanes; l++) {
            int from = (l & ~15) + cases[n].from[l & 15];
            assert_int_equal(get(0, l), 2000 + l * l + from * from);
        }
        finish();
    }
}

static void dpp_edges(void **state)
{
    (void)state;
    start(942, "v_mov_b32_dpp v1, v0 row_shr:1 row_mask:0xf bank_mask:0xf\n"
               "v_mov_b32_dpp v2, v0 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1\n"
               "v_mov_b32_dpp v3, v0 row_shr:1 row_mask:0x1 bank_mask:0x2");
    for (int l = 0; l < 64; l++)
        set(0, l, (unsigned)l);
    for (int reg = 1; reg < 4; reg++)
        set_all(reg, 99);
    RUNS();
    assert_int_equal(get(1, 16), 99); /* no source: left alone */
    assert_int_equal(get(1, 17), 16);
    assert_int_equal(get(2, 16), 0); /* or 0 */
    assert_int_equal(get(3, 5), 4);
    assert_int_equal(get(3, 9), 99);  /* another bank */
    assert_int_equal(get(3, 21), 99); /* another row */
    finish();
}

static void exchanges(void **state)
{
    (void)state;
    start(1100, "v_permlanex16_b32 v1, v0, s0, s1\n"
                "ds_swizzle_b32 v2, v0 offset:swizzle(SWAP,4)\n"
                "ds_bpermute_b32 v3, v4, v0\n"
                "v_readfirstlane_b32 s2, v0\n"
                "v_readlane_b32 s3, v0, 9");
    set_scalar(0, 0x76543210);
    set_scalar(1, 0xfedcba98);
    for (int l = 0; l < 32; l++) {
        set(0, l, 100u + (unsigned)l);
        set(4, l, 4u * (unsigned)(31 - l) + 128);
    }
    RUNS();
    for (int l = 0; l < 32; l++) {
        assert_int_equal(get(1, l), 100 + (l ^ 16));
        assert_int_equal(get(2, l), 100 + (l ^ 4));
        assert_int_equal(get(3, l), 131 - l);
    }
    assert_int_equal(m.wave.s[2], 100);
    assert_int_equal(m.wave.s[3], 109);
    finish();
}

/* ---- EXEC and memory ---- */

static void inactive_lanes_touch_nothing(void **state)
{
    (void)state;
    start(942, "s_mov_b64 exec, 2\nds_write_b32 v0, v1\nds_read_b32 v2, v0 offset:0\n"
               "global_store_dword v[4:5], v1, off\nv_mov_b32_e32 v1, 7");
    set(0, 1, 64); /* all other lanes: unknown, and would be far outside */
    set(1, 1, 0x12345678);
    set(4, 1, (uint32_t)(uintptr_t)m.global);
    set(5, 1, (uint32_t)((uint64_t)(uintptr_t)m.global >> 32));
    RUNS();
    assert_int_equal(get(2, 1), 0x12345678);
    assert_int_equal(m.wave.vu[2][0], 0xffffffff);
    assert_int_equal(m.global[3], 0x12);
    assert_int_equal(get(1, 1), 7);
    assert_int_equal(m.wave.vu[1][0], 0xffffffff);
    finish();
}

static void bounds(void **state)
{
    static const char *const lds[] = {"ds_read_b32 v1, v0",
                                      "ds_read2_b32 v[2:3], v0 offset0:0 offset1:1",
                                      "ds_write_b128 v0, v[4:7]", "ds_read_b64 v[2:3], v0"};
    static const uint32_t at[] = {SHARED - 3, SHARED - 4, SHARED - 8, 0xfffffffc};
    (void)state;
    for (int n = 0; n < 4; n++) {
        start(942, lds[n]);
        set_all(0, at[n]);
        for (int reg = 4; reg < 8; reg++)
            set_all(reg, 0);
        STOPS("LDS bytes");
        finish();
    }
    start(942, "ds_write_b32 v0, v1 offset:8\nds_read_b32 v2, v3"); /* addresses wrap at 32 bits */
    set_all(0, 0xfffffffc);
    set_all(1, 5);
    set_all(3, 4);
    RUNS();
    assert_int_equal(get(2, 0), 5);
    finish();
    for (int n = 0; n < 2; n++) {
        start(942, n ? "global_load_dword v2, v0, s[0:1] offset:-4"
                     : "global_store_dwordx2 v0, v[2:3], s[0:1]");
        set_scalar(0, (uint32_t)(uintptr_t)m.global);
        set_scalar(1, (uint32_t)((uint64_t)(uintptr_t)m.global >> 32));
        set_all(0, n ? 0 : GLOBAL - 4);
        set_all(2, 0);
        set_all(3, 0);
        STOPS("in no allocation");
        finish();
    }
}

/* ---- constants and numbers ---- */

static void inline_constants(void **state)
{
    (void)state;
    start(950,
          "v_mov_b32_e32 v0, 1.0\nv_mul_f32_e32 v1, 0.15915494, v0\nv_add_f16_e32 v2, 1.0, v3\n"
          "v_pk_add_f16 v4, v3, 2.0 op_sel_hi:[1,0]\nv_pk_add_f16 v5, v3, 2.0\n"
          "v_pk_lshlrev_b16 v6, 12, v7\nv_mov_b32_e32 v8, -16\nv_lshl_add_u64 v[10:11], v[12:13], "
          "0, -1\n"
          "v_max_f32_e32 v9, 0x7fc00000, v0\nv_and_b32_e32 v14, lit(0x10), v7");
    set_all(3, 0x40003c00); /* 1, 2 */
    set_all(7, 0x00110011);
    set_all(12, 0);
    set_all(13, 1);
    RUNS();
    assert_int_equal(get(0, 0), 0x3f800000);
    assert_int_equal(get(1, 0), 0x3e22f983);
    assert_int_equal(get(2, 0), 0x4000);
    assert_int_equal(get(4, 0), 0x44004200); /* 2 for both halves */
    assert_int_equal(get(5, 0), 0x40004200); /* the upper half of a constant is 0 */
    assert_int_equal(get(6, 0), 0x00111000); /* so it is not shifted */
    assert_int_equal(get(8, 0), (uint32_t)-16);
    assert_int_equal(get(10, 0), 0xffffffff);
    assert_int_equal(get(11, 0), 0);
    assert_int_equal(get(9, 0), 0x3f800000); /* the number */
    assert_int_equal(get(14, 0), 0x10);
    finish();
}

static void subnormals(void **state)
{
    (void)state;
    start(942, "v_mul_f32_e32 v0, 0.5, v1\nv_rcp_f32_e32 v2, v1\nv_cvt_f16_f32_e32 v3, "
               "v4\nv_cvt_f32_f16_e32 v5, v3\n"
               "v_fma_f32 v6, v1, v7, v1\nv_exp_f32_e32 v8, v9\nv_pk_mul_f16 v10, v3, v11");
    set_all(1, 0x00800000);
    set_all(4, float_bits(0x1.8p-24f)); /* between 1 and 2 units of a half: to even */
    set_all(7, float_bits(-0.5f));
    set_all(9, float_bits(-130));
    set_all(11, 0x40004000);
    RUNS();
    assert_int_equal(get(0, 0), 0x00400000);
    assert_int_equal(get(2, 0), float_bits(0x1p126f));
    assert_int_equal(get(3, 0), 2);
    assert_int_equal(get(5, 0), float_bits(0x1p-23f));
    assert_int_equal(get(6, 0), 0x00400000);
    assert_int_equal(get(8, 0), 0); /* an approximation flushes */
    assert_int_equal(get(10, 0), 4);
    finish();
}

static void halves_of_registers(void **state)
{
    (void)state;
    start(1100, "v_mov_b16_e32 v0.h, v1.l\nv_or_b16 v2.l, v2.l, v1.h op_sel:[0,1,0]\nv_cndmask_b16 "
                "v3.h, 0, 8, vcc_lo\n"
                "v_fma_mixhi_f16 v4, v5, v6, 0 op_sel_hi:[1,0,0]\nv_dual_mov_b32 v8, v9 :: "
                "v_dual_mov_b32 v9, v8");
    set_all(0, 0x11112222);
    set_all(1, 0x33334444);
    set_all(2, 0x55550001);
    set_all(3, 0x66667777);
    set_all(4, 0x88889999);
    set_all(5, 0x00003c00);
    set_all(6, float_bits(3));
    set_all(8, 8);
    set_all(9, 9);
    set_scalar(SGPR_VCC, 1);
    RUNS();
    assert_int_equal(get(0, 0), 0x44442222);
    assert_int_equal(get(2, 0), 0x55553333);
    assert_int_equal(get(3, 0), 0x00087777);
    assert_int_equal(get(3, 1), 0x00007777);
    assert_int_equal(get(4, 0), 0x42009999);
    assert_int_equal(get(8, 0), 9);
    assert_int_equal(get(9, 0), 8);
    finish();
}

static void dot_products_of_halves(void **state)
{
    (void)state;
    start(942, "v_dot2_f32_f16 v3, v0, v1, v2\nv_dot2c_f32_f16_e32 v2, v0, v1");
    set_all(0, 0x40003e00); /* 2, 1.5 */
    set_all(1, 0xc5004400); /* -5, 4 */
    set_all(2, float_bits(0.25f));
    RUNS();
    assert_true(as_float(get(3, 0)) == -3.75f && as_float(get(2, 63)) == -3.75f);
    finish();
}

static void bytes_and_carries(void **state)
{
    (void)state;
    start(942, "v_perm_b32 v0, v1, v2, v3\nv_add_co_u32_e32 v4, vcc, v5, v6\nv_addc_co_u32_e32 v7, "
               "vcc, 0, v8, vcc\n"
               "v_pk_mov_b32 v[10:11], v[12:13], v[14:15] op_sel:[1,0]\nv_cmp_class_f32_e64 "
               "s[0:1], v1, 3\n"
               "v_and_b32_sdwa v16, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_3 "
               "src1_sel:DWORD\n"
               "v_mad_u64_u32 v[18:19], s[2:3], v5, v6, v[12:13]");
    set_all(1, 0x7fc04321);
    set_all(2, 0x89abcdef);
    set_all(3, 0x0c040800); /* zero, byte 0 of v1, the sign of v2's lower half, byte 0 of v2 */
    set_all(5, 0xffffffff);
    set_all(6, 2);
    set_all(8, 5);
    for (int reg = 12; reg < 16; reg++)
        set_all(reg, (unsigned)reg);
    RUNS();
    assert_int_equal(get(0, 0), 0x0021ffef);
    assert_int_equal(get(4, 0), 1);
    assert_int_equal(get(7, 0), 6);
    assert_int_equal(get(10, 0), 13);
    assert_int_equal(get(11, 0), 14);
    assert_int_equal(m.wave.s[0], 0xffffffff); /* a quiet NaN */
    assert_int_equal(get(16, 0), 0x6f);        /* bits of 0x7f */
    assert_int_equal(get(18, 0), 0xfffffffe + 12);
    assert_int_equal(get(19, 0), 1 + 13 + 1);
    finish();
}

static void small_formats(void **state)
{
    (void)state;
    assert_int_equal(half_of_double(0), 0);
    assert_int_equal(half_of_double(-0.0), 0x8000);
    assert_int_equal(half_of_double(65520), 0x7c00);
    for (uint32_t bits = 0; bits < 0x7c01; bits++) {
        assert_int_equal(half_bits(half_value(bits)), bits);
        assert_int_equal(half_of_double(half_value(bits)), bits);
    }
    assert_int_equal(half_bits(1 + 0x1p-11f), 0x3c00); /* ties to even */
    assert_int_equal(half_bits(1 + 0x3p-11f), 0x3c02);
    assert_int_equal(half_fma(1 + 0x1p-10, 1 - 0x1p-10, 0x1p-24), half_of_double(1));
    assert_int_equal(bfloat_bits(as_float(0x3f808000)), 0x3f80);
    assert_int_equal(bfloat_bits(as_float(0x3f818000)), 0x3f82);
    assert_int_equal(small_bits(&small_e4m3, 448, false), 0x7e);
    assert_int_equal(small_bits(&small_e4m3, 1000, true), 0x7e);
    assert_true(small_value(&small_e4m3_fnuz, 0x7f) == 240);
    assert_true(isnan(small_value(&small_e4m3_fnuz, 0x80)));
    assert_true(small_value(&small_e2m1, 7) == 6);
}

/* ---- unknown values ---- */

static void unknown_values_stop(void **state)
{
    static const struct {
        const char *code, *text;
    } cases[] = {
        {"ds_read_b32 v1, v0", "LDS address from an unknown value"},
        {"global_load_dword v2, v[0:1], off", "address from an unknown value"},
        {"s_load_dword s4, s[2:3], 0x0", "address from an unknown value"},
        {"s_mov_b64 exec, s[2:3]", "EXEC from an unknown value"},
        {"s_and_saveexec_b64 s[4:5], s[2:3]", "EXEC from an unknown value"},
        {"v_cmp_eq_u32_e32 vcc, 0, v0\ns_cbranch_vccnz 0", "branch on an unknown value"},
        {"s_cmp_eq_u32 s2, 0\ns_cbranch_scc1 0", "branch on an unknown value"},
        {"s_cbranch_scc1 0", "branch on an unknown value"},
        {"s_mov_b64 exec, 1\nglobal_store_dword v4, v0, s[0:1]", "stores an unknown value"},
        {"v_mov_b32_e32 v4, 0\nv_add_f32_e32 v5, v4, v0\ns_mov_b64 exec, 1\nglobal_store_dword v4, "
         "v5, s[0:1]",
         "stores an unknown value"},
        {"v_readlane_b32 s4, v4, s2", "lane number from an unknown value"},
    };
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        start(942, cases[n].code);
        set_all(4, 0);
        set_scalar(0, (uint32_t)(uintptr_t)m.global);
        set_scalar(1, (uint32_t)((uint64_t)(uintptr_t)m.global >> 32));
        STOPS(cases[n].text);
        finish();
    }
}

static void unknown_bits_may_travel(void **state)
{
    (void)state;
    start(942, "v_and_b32_e32 v1, 0xffff, v0\nv_lshl_or_b32 v2, v0, 16, v1\nv_cndmask_b32_e32 v3, "
               "v4, v5, vcc\n"
               "v_xor_b32_e32 v6, v0, v1\nv_pk_add_f16 v7, v0, v1\nv_bfe_u32 v8, v0, 4, "
               "8\ns_and_b64 s[4:5], s[2:3], 0\n"
               "v_mad_u64_u32 v[10:11], s[6:7], v1, v1, v[12:13]");
    for (int l = 0; l < 64; l++)
        write_lane(&m.wave, 0, l, 0x3c00, 0xffff0000); /* the upper half is unknown */
    set_all(4, 4);
    set_all(12, 1); /* v13 is unknown: the lower word is none the less known */
    set_scalar(SGPR_VCC, 0);
    set_scalar(SGPR_VCC + 1, 0);
    RUNS();
    assert_int_equal(get(1, 3), 0x3c00);
    assert_int_equal(get(2, 3), 0x3c003c00);
    assert_int_equal(get(3, 3), 4);
    assert_int_equal(m.wave.vu[6][3], 0xffff0000);
    assert_int_equal(m.wave.vu[7][3], 0xffff0000);
    assert_int_equal(get(8, 3), 0xc0);
    assert_int_equal(m.wave.su[4] | m.wave.su[5], 0);
    assert_int_equal(get(10, 3), 0x3c00 * 0x3c00 + 1);
    assert_int_equal(m.wave.vu[11][3], 0xffffffff);
    finish();
}

static void unknown_instructions(void **state)
{
    static const char *const lines[] = {"v_frobnicate_b32 v0, v1", "v_add_f32_e32 v0, v1, v2 fast",
                                        "s_branch 7", "v_mov_b32_e32 v0, v1, v2, v3, v4, v5, v6"};
    (void)state;
    for (size_t n = 0; n < sizeof lines / sizeof *lines; n++) {
        struct program p = {.gfx = 942};
        char error[300] = "";
        assert_int_equal(program_parse(&p, listing(lines[n]), error, sizeof error), -1);
        assert_non_null(strstr(error, " in \""));
        program_free(&p);
    }
    start(942, "v_add_f32_e32 v0, v1");
    set_all(1, 0);
    STOPS("operands are missing");
    finish();
}

/* ---- work-groups ---- */

/* Thread t writes its number and reads that of t ^ 64: the other of two waves. */
static int exchange(int gfx, const char *barrier, bool backwards, uint32_t *out)
{
    char code[900], error[300];
    const char *store = gfx < 1000 ? "ds_write_b32" : "ds_store_b32",
               *load = gfx < 1000 ? "ds_read_b32" : "ds_load_b32";
    const char *word = gfx < 1000 ? "s_load_dwordx2" : "s_load_b64";
    const char *global = gfx < 1000 ? "global_store_dword" : "global_store_b32";
    int threads = gfx < 1000 ? 128 : 64, waves_apart = 4 * threads / 2;
    snprintf(code, sizeof code,
             "%s s[2:3], s[0:1], 0x0\nv_lshlrev_b32_e32 v1, 2, v0\n%s v1, v0\n%s\nv_xor_b32_e32 "
             "v2, 0x%x, v1\n"
             "%s v3, v2\n%s v1, v3, s[2:3]",
             word, store, barrier, (unsigned)waves_apart, load, global);
    struct program p = {.gfx = gfx};
    struct memory memory = {0};
    uint64_t params[1] = {(uint64_t)(uintptr_t)out};
    assert_int_equal(program_parse(&p, listing(code), error, sizeof error), 0);
    memory_add(&memory, (struct range){(uint8_t *)out, NULL, (size_t)threads * 4, false});
    memory_add(&memory, (struct range){(uint8_t *)params, NULL, sizeof params, true});
    struct sim sim = {.program = &p, .memory = &memory, .backwards = backwards};
    struct launch l = {.grid = 2,
                       .threads = (unsigned)threads,
                       .shared_bytes = (size_t)threads * 4,
                       .params = params,
                       .user_sgprs = 2,
                       .group_id = true};
    int status = sim_launch(&sim, &l);
    if (status)
        assert_non_null(strstr(sim.error, "stores an unknown value"));
    program_free(&p);
    free(memory.ranges);
    return status;
}

static void barriers(void **state)
{
    static const struct {
        int gfx;
        const char *barrier;
    } cases[] = {
        {942, "s_barrier"}, {1100, "s_barrier"}, {1201, "s_barrier_signal -1\ns_barrier_wait -1"}};
    uint32_t out[128];
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
        for (int backwards = 0; backwards < 2; backwards++) {
            unsigned half = cases[n].gfx < 1000 ? 64 : 32;
            memset(out, 0, sizeof out);
            assert_int_equal(exchange(cases[n].gfx, cases[n].barrier, backwards, out), 0);
            for (unsigned t = 0; t < 2 * half; t++)
                assert_int_equal(out[t], t ^ half);
            assert_int_equal(exchange(cases[n].gfx, "s_nop 0", backwards, out), -1);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dpp_onto_itself),
        cmocka_unit_test(dpp_edges),
        cmocka_unit_test(exchanges),
        cmocka_unit_test(inactive_lanes_touch_nothing),
        cmocka_unit_test(bounds),
        cmocka_unit_test(inline_constants),
        cmocka_unit_test(subnormals),
        cmocka_unit_test(halves_of_registers),
        cmocka_unit_test(dot_products_of_halves),
        cmocka_unit_test(bytes_and_carries),
        cmocka_unit_test(small_formats),
        cmocka_unit_test(unknown_values_stop),
        cmocka_unit_test(unknown_bits_may_travel),
        cmocka_unit_test(unknown_instructions),
        cmocka_unit_test(barriers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
