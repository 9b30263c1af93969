# SPDX-License-Identifier: Apache-2.0
# The files of each part, by name. A C file that is in no list is named by the
# configuration, and fails the budgets test.

set(KVKILN_RUNTIME_SOURCES
  runtime/assembler.c
  runtime/build.c
  runtime/cache.c
  runtime/cache_sweep.c
  runtime/choose.c
  runtime/driver_cuda.c
  runtime/driver_hip.c
  runtime/driver_host.c
  runtime/env.c
  runtime/error.c
  runtime/fork.c
  runtime/hip_topology.c
  runtime/host_cpu.c
  runtime/host_mma.c
  runtime/host_pool.c
  runtime/host_sched.c
  runtime/host_switch.c
  runtime/host_wait.c
  runtime/host_worker.c
  runtime/key.c
  runtime/kvkiln.c
  runtime/launch.c
  runtime/launch_attend.c runtime/launch_image.c
  runtime/launch_splits.c
  runtime/launch_convert.c
  runtime/launch_copy.c
  runtime/launch_merge.c
  runtime/layout.c
  runtime/loader.c
  runtime/model.c
  runtime/object.c
  runtime/pack.c
  runtime/packs.c
  runtime/prepare.c
  runtime/prepare_run.c
  runtime/tiled.c
  runtime/tuned.c
  runtime/tuned_plan.c
  runtime/tuned_read.c
  gen/request.c)

set(KVKILN_GEN_SOURCES
  gen/api.c
  gen/assemble.c
  gen/codebook.c
  gen/host_link.c
  gen/hsaco_input.c
  gen/hsaco_link.c
  gen/kb.c
  gen/kb_atomic.c
  gen/kb_flow.c
  gen/kb_encode.c
  gen/kb_group.c
  gen/kb_mem.c
  gen/lower.c
  gen/manifest.c
  gen/matrix_tiles.c
  gen/name.c
  gen/native.c
  gen/output.c
  gen/pipeline.c
  gen/plan.c gen/plan_print.c
  gen/plan_dense.c
  gen/plan_images.c gen/plan_join.c gen/plan_pairs.c
  gen/plan_powers.c gen/plan_rows.c
  gen/request.c
  gen/slot.c
  gen/spec.c
  gen/spec_fields.c
  gen/spec_lua.c
  gen/spec_text.c
  gen/target.c
  gen/target_amdgcn.c
  gen/target_host.c
  gen/target_nvptx.c
  gen/target_nvptx_encode.c
  gen/target_nvptx_group.c
  templates/convert.c
  templates/copy.c
  templates/decode.c
  templates/dense.c
  templates/dequant.c
  templates/merge.c
  templates/part_arrive.c
  templates/part_attend.c
  templates/part_codebook.c
  templates/part_codes.c
  templates/part_decode.c
  templates/part_dense_attend.c
  templates/part_dense_load.c
  templates/part_dense_write.c
  templates/part_encode.c
  templates/part_encode_affine.c
  templates/part_encode_block.c
  templates/part_encode_codebook.c
  templates/part_encode_float.c
  templates/part_eights.c
  templates/part_finite.c
  templates/part_index.c
  templates/part_items.c
  templates/part_native.c templates/part_native_store.c
  templates/part_join.c templates/part_key.c
  templates/part_splits.c
  templates/part_spread.c
  templates/part_powers.c templates/part_squares.c
  templates/part_tables.c
  templates/part_unrotate.c
  templates/part_value.c
  templates/part_output.c
  templates/part_reference.c templates/part_image.c templates/part_image_native.c
  templates/part_image_own.c templates/part_image_pages.c
  templates/part_image_pairs.c templates/part_words.c templates/part_word_pairs.c
  templates/part_pack.c
  templates/part_pairs.c
  templates/part_place.c
  templates/part_query.c
  templates/part_rotate.c
  templates/part_rowpair.c
  templates/part_rows.c
  templates/part_rowvec.c
  templates/part_scaled.c
  templates/part_shared.c
  templates/part_shared_encode.c
  templates/part_slot.c
  templates/part_step.c
  templates/reduce.c
  templates/store.c
  templates/unified.c
  runtime/assembler.c
  runtime/env.c
  runtime/error.c
  runtime/object.c
  runtime/tuned_plan.c)

set(KVKILN_SPEC_SOURCES # what reads a spec: for the tool that embeds their texts
  gen/codebook.c
  gen/native.c
  gen/request.c
  gen/spec.c
  gen/spec_fields.c
  gen/spec_lua.c
  gen/spec_text.c
  runtime/error.c)

set(KVKILN_SPEC_FILES # in the order in which `kvkiln presets` lists them
  specs/turboquant_k8v4.lua
  specs/turboquant_4bit_nc.lua
  specs/turboquant_k3v4_nc.lua
  specs/turboquant_3bit_nc.lua
  specs/ultraquant_4bit.lua
  specs/ultraquant_4bit_e4m3q.lua
  specs/nvfp4.lua
  specs/mxfp4.lua
  specs/fp8_e4m3.lua
  specs/fp16.lua
  specs/bf16.lua)

set(KVKILN_TUNED_FILES # measured plan values, docs/tuning.md
  specs/tuned/sm_90a.lua)

set(KVKILN_CLI_SOURCES
  cli/bench_attend.c
  cli/bench_compile.c
  cli/bench_copy.c
  cli/bench_decode.c
  cli/bench_dequant.c
  cli/bench_graph.c
  cli/bench_pool.c
  cli/bench_report.c
  cli/bench_rows.c
  cli/bench_shape.c
  cli/bench_store.c
  cli/bench_suite.c
  cli/bench_suite_report.c
  cli/bench_time.c
  cli/bench_tiled.c
  cli/bench_unified.c
  cli/build_pack.c
  cli/check_read.c
  cli/check_store.c
  cli/cli.c
  cli/cmd_bench.c
  cli/cmd_build.c
  cli/cmd_cache.c
  cli/cmd_check.c
  cli/cmd_convert.c
  cli/cmd_demo.c
  cli/cmd_doctor.c
  cli/cmd_explain.c
  cli/cmd_pack.c
  cli/cmd_presets.c
  cli/cmd_quality.c
  cli/cmd_tune.c
  cli/compare.c
  cli/device.c
  cli/encode.c
  cli/generator.c
  cli/jobs.c
  cli/main.c
  cli/number.c
  cli/options.c
  cli/oracle.c
  cli/pack_elf.c
  cli/pack_tools.c
  cli/pack_write.c
  cli/paths.c
  cli/quality_data.c
  cli/quality_run.c
  cli/run.c
  cli/safetensors.c
  cli/sample.c
  cli/slots.c
  cli/slots_native.c
  cli/tune_ahead.c
  cli/tune_search.c
  cli/tune_table.c)

set(KVKILN_CLI_RUNTIME_SOURCES # private parts of the runtime, which its library does not export
  runtime/assembler.c
  runtime/cache.c
  runtime/cache_sweep.c
  runtime/env.c
  runtime/error.c
  runtime/key.c
  runtime/object.c
  runtime/pack.c
  runtime/tuned.c
  runtime/tuned_plan.c
  runtime/tuned_read.c
  gen/request.c)

# ---- tests ----
set(KVKILN_REF_SOURCES # the oracle
  tests/ref/golden.c
  tests/ref/ref_attend.c
  tests/ref/ref_bits.c
  tests/ref/ref_codebook.c
  tests/ref/ref_dequant.c
  tests/ref/ref_format.c
  tests/ref/ref_native.c
  tests/ref/ref_page.c
  tests/ref/ref_rotate.c
  tests/ref/ref_store.c)

set(KVKILN_NUM_SOURCES
  tests/num/attend.c
  tests/num/cases.c
  tests/num/check_attend.c
  tests/num/check_convert.c
  tests/num/check_copy.c
  tests/num/check_dequant.c
  tests/num/check_fp8.c
  tests/num/check_merge.c
  tests/num/check_native.c
  tests/num/check_options.c
  tests/num/check_store.c
  tests/num/check_tiled.c
  tests/num/custom.c
  tests/num/contract.c
  tests/num/contract_list.c
  tests/num/contract_memory.c
  tests/num/contract_ragged.c
  tests/num/data.c
  tests/num/expect.c
  tests/num/fp8.c
  tests/num/generator.c
  tests/num/graph.c
  tests/num/graph_cuda.c
  tests/num/graph_moves.c
  tests/num/main.c
  tests/num/prop.c
  tests/num/prop_values.c
  tests/num/rows.c
  tests/num/run.c
  tests/num/sample.c
  tests/num/sample_compile.c
  tests/num/sample_spec.c
  tests/num/spec_file.c
  tests/num/world.c)

set(KVKILN_GPU_SOURCES # gpu_driver
  tests/gpu/capture.c
  tests/gpu/closing.c
  tests/gpu/contexts.c
  tests/gpu/cuda.c
  tests/gpu/main.c
  tests/gpu/work.c)

set(KVKILN_TEST_SOURCES # one program each: tests/FOLDER/test_NAME.c is FOLDER_test_NAME
  tests/amdsim/test_matrix.c
  tests/amdsim/test_sim.c
  tests/cli/test_oracle.c
  tests/cli/test_safetensors.c
  tests/fuzz/test_cache.c
  tests/fuzz/test_name.c
  tests/fuzz/test_object.c
  tests/fuzz/test_pack.c
  tests/fuzz/test_safetensors.c
  tests/fuzz/test_spec.c
  tests/fuzz/test_tuned.c
  tests/ir/test_roles.c
  tests/num/test_fp8.c
  tests/ref/test_options.c
  tests/ref/test_ref.c
  tests/rt/test_assembler.c
  tests/rt/test_bench_graph.c
  tests/rt/test_cache.c
  tests/rt/test_cuda.c
  tests/rt/test_drivers.c
  tests/rt/test_faults.c
  tests/rt/test_hip.c
  tests/rt/test_image.c
  tests/rt/test_joins.c
  tests/rt/test_convert.c
  tests/rt/test_launch.c
  tests/rt/test_maps.c
  tests/rt/test_object.c
  tests/rt/test_pack.c
  tests/rt/test_packs.c
  tests/rt/test_places.c
  tests/rt/test_prepare.c
  tests/rt/test_process.c
  tests/rt/test_progress.c
  tests/rt/test_shapes.c
  tests/rt/test_stress.c
  tests/rt/test_threads.c
  tests/rt/test_tiled.c
  tests/rt/test_refusals.c
  tests/rt/test_trouble.c
  tests/unit/test_codebook.c
  tests/unit/test_fails.c
  tests/unit/test_host_link.c
  tests/unit/test_host_roles.c
  tests/unit/test_host_sched.c
  tests/unit/test_hsaco_link.c
  tests/unit/test_limits.c
  tests/unit/test_name.c
  tests/unit/test_quotients.c
  tests/unit/test_spec.c
  tests/unit/test_tuned.c)

set(KVKILN_TEST_PARTS # linked into every program of their folder
  tests/cli/cli_sources.c
  tests/fuzz/replay.c
  tests/num/fp8.c
  tests/ref/test_golden.c
  tests/rt/faults.c
  tests/rt/life.c
  tests/rt/rt.c
  tests/rt/rt_pack.c)

set(KVKILN_TEST_WRAPPED # by tests/rt/faults.c
  malloc calloc realloc aligned_alloc strdup asprintf mmap mprotect pthread_create dlopen dlsym madvise
  open read write close opendir readdir fsync rename unlink unlinkat mkdir fstat fstatat futimens)

set(KVKILN_TEST_FAKES # driver libraries that fail on demand
  tests/rt/fake_cuda.c
  tests/rt/fake_hip.c)

set(KVKILN_AMDSIM_SOURCES # a libamdhip64 that simulates; driver.c goes into the programs that use it
  tests/amdsim/access.c
  tests/amdsim/hip.c
  tests/amdsim/image.c
  tests/amdsim/memory.c
  tests/amdsim/number.c
  tests/amdsim/op_compare.c
  tests/amdsim/op_float.c
  tests/amdsim/op_integer.c
  tests/amdsim/op_lane.c
  tests/amdsim/op_matrix.c
  tests/amdsim/op_memory.c
  tests/amdsim/op_scalar.c
  tests/amdsim/parse.c
  tests/amdsim/table.c
  tests/amdsim/vector.c
  tests/amdsim/wave.c)
set(KVKILN_AMDSIM_DRIVER tests/amdsim/driver.c)

# What a generated kernel depends on: a change here makes every cached kernel stale.
set(KVKILN_ID_FILES ${KVKILN_GEN_SOURCES}
  gen/abi_table.h
  gen/assemble.h
  gen/codebook.h
  gen/host_link.h
  gen/hsaco_input.h
  gen/hsaco_link.h
  gen/kb.h
  gen/kb_encode.h
  gen/kb_group.h
  gen/kb_internal.h
  gen/kb_kernel.h
  gen/lower.h
  gen/manifest.h
  gen/name.h
  gen/native.h
  gen/output.h
  gen/pipeline.h
  gen/plan.h
  gen/plan_rules.h
  gen/spec.h
  gen/spec_fields.h
  gen/target.h
  gen/target_group.h
  gen/spec.def
  gen/targets.def
  templates/part_arrive.h
  templates/part_attend.h templates/part_output.h templates/part_reference.h templates/part_image.h
  templates/part_image_native.h templates/part_image_own.h templates/part_image_pages.h
  templates/part_image_pairs.h templates/part_row_words.h
  templates/part_words.h templates/part_word_pairs.h
  templates/part_codebook.h
  templates/part_decode.h
  templates/part_dense.h
  templates/part_encode.h
  templates/part_eights.h
  templates/part_finite.h
  templates/part_index.h
  templates/part_items.h
  templates/part_native.h templates/part_native_place.h
  templates/part_pack.h
  templates/part_pairs.h
  templates/part_place.h templates/part_query.h
  templates/part_rowpair.h
  templates/part_rows.h
  templates/part_rowvec.h
  templates/part_scaled.h
  templates/part_shared.h
  templates/part_slot.h
  templates/part_splits.h
  templates/part_spread.h
  templates/part_power_state.h templates/part_powers.h templates/part_squares.h
  templates/part_unrotate.h
  templates/templates.h
  templates/kinds.def
  runtime/abi.def
  runtime/plan.def
  runtime/object.h
  runtime/tuned.h
  runtime/host_abi.h)

file(GLOB found CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} runtime/*.c gen/*.[ch] gen/*.def templates/*.[ch]
  templates/*.def cli/*.c specs/*.lua specs/tuned/*.lua tests/*/*.c)
list(REMOVE_ITEM found ${KVKILN_RUNTIME_SOURCES} ${KVKILN_CLI_SOURCES} ${KVKILN_REF_SOURCES} ${KVKILN_NUM_SOURCES}
  ${KVKILN_GPU_SOURCES}
  ${KVKILN_AMDSIM_SOURCES} ${KVKILN_AMDSIM_DRIVER} ${KVKILN_TEST_SOURCES} ${KVKILN_TEST_PARTS} ${KVKILN_TEST_FAKES}
  ${KVKILN_ID_FILES} ${KVKILN_SPEC_FILES} ${KVKILN_TUNED_FILES})
if(found)
  list(JOIN found ", " found)
  message(WARNING "in no list of cmake/sources.cmake: ${found}")
endif()
