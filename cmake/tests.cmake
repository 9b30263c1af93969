# SPDX-License-Identifier: Apache-2.0
# One program for each of KVKILN_TEST_SOURCES, linked with both halves (private functions included): ./dev test.
# A static build makes only `num`, `gpu_driver`, the runtime's library and the example `engine`, to be carried to
# machines with a GPU.
if(NOT KVKILN_TESTS OR NOT KVKILN_GENERATOR)
  return()
endif()

add_library(ref STATIC ${KVKILN_REF_SOURCES})
target_include_directories(ref PUBLIC ${CMAKE_SOURCE_DIR})
target_link_libraries(ref PUBLIC dep_jansson m)

# Of the runtime alone: it has no compiler.
add_executable(gpu_driver ${KVKILN_GPU_SOURCES})
target_link_libraries(gpu_driver PRIVATE runtime-objects dep_zstd Threads::Threads m ${CMAKE_DL_LIBS})

add_executable(num ${KVKILN_NUM_SOURCES})
target_link_libraries(num PRIVATE ref everything dep_jansson)
if(KVKILN_STATIC)
  target_link_options(num PRIVATE ${KVKILN_STATIC_LINK})
  add_executable(engine examples/engine/engine.c examples/engine/graph.c)
  target_include_directories(engine PRIVATE runtime)
  target_link_libraries(engine PRIVATE runtime-objects dep_zstd Threads::Threads m ${CMAKE_DL_LIBS})
  target_link_options(engine PRIVATE -Wl,--gc-sections -s)
  target_link_options(gpu_driver PRIVATE -Wl,--gc-sections -s)
  return()
endif()

# Calls of libc that tests/rt/faults.c can make fail.
list(TRANSFORM KVKILN_TEST_WRAPPED PREPEND "-Wl,--wrap=" OUTPUT_VARIABLE wrapped)

foreach(test IN LISTS KVKILN_TEST_SOURCES)
  string(REGEX REPLACE "tests/([a-z]+)/(test_[a-z0-9_]+)[.]c" "\\1_\\2" name ${test})
  set(parts ${KVKILN_TEST_PARTS})
  list(FILTER parts INCLUDE REGEX "^tests/${CMAKE_MATCH_1}/")
  add_executable(${name} ${test} ${parts})
  target_compile_definitions(${name} PRIVATE TEST_ROOT="${CMAKE_SOURCE_DIR}" TEST_BUILD="${CMAKE_BINARY_DIR}")
  target_link_libraries(${name} PRIVATE ref everything dep_jansson dep_cmocka)
  if(name MATCHES "^rt_")
    target_link_options(${name} PRIVATE ${wrapped})
  endif()
endforeach()

target_compile_definitions(rt_test_process PRIVATE TEST_LIBRARY="$<TARGET_FILE:kvkiln>")
add_dependencies(rt_test_process kvkiln kvkiln-gen)
target_sources(fuzz_test_safetensors PRIVATE cli/cli.c cli/safetensors.c)

foreach(fake IN LISTS KVKILN_TEST_FAKES)
  get_filename_component(name ${fake} NAME_WE)
  add_library(${name} MODULE ${fake})
  set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
endforeach()

# ---- AMD by simulation: the suites and the command line on a simulated HIP device ----
add_library(amdsim-objects OBJECT ${KVKILN_AMDSIM_SOURCES})
target_compile_options(amdsim-objects PRIVATE -fPIC -ffp-contract=off -fvisibility=hidden)
add_library(amdsim SHARED $<TARGET_OBJECTS:amdsim-objects>)
target_sources(amdsim_test_sim PRIVATE $<TARGET_OBJECTS:amdsim-objects>)
target_sources(amdsim_test_matrix PRIVATE $<TARGET_OBJECTS:amdsim-objects>)
set_target_properties(amdsim PROPERTIES OUTPUT_NAME amdhip64 SUFFIX .so.6
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/amdsim)
target_link_libraries(amdsim PRIVATE m Threads::Threads)
add_executable(amdsim_num ${KVKILN_NUM_SOURCES} ${KVKILN_AMDSIM_DRIVER})
target_link_libraries(amdsim_num PRIVATE ref everything dep_jansson)
add_executable(amdsim_kvkiln ${KVKILN_CLI_SOURCES} ${KVKILN_AMDSIM_DRIVER})
target_include_directories(amdsim_kvkiln PRIVATE ${CMAKE_SOURCE_DIR} ${KVKILN_GENERATED})
target_compile_definitions(amdsim_kvkiln PRIVATE KVKILN_STATIC)
target_link_libraries(amdsim_kvkiln PRIVATE everything dep_jansson)
add_dependencies(amdsim_kvkiln build_id)
