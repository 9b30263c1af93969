# SPDX-License-Identifier: Apache-2.0
# libFuzzer programs, one a reader of untrusted bytes (preset `fuzz`, clang): ./dev fuzz. No LLVM library is needed.
set(fuzz_flags -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -O1)
add_compile_options(${fuzz_flags})
add_link_options(-fsanitize=address,undefined)

include(generated)
add_library(fuzzed STATIC ${KVKILN_RUNTIME_SOURCES} ${KVKILN_SPEC_SOURCES} ${KVKILN_EMBED_SOURCES}
  ${KVKILN_TEXTS_SOURCE} gen/name.c cli/cli.c cli/safetensors.c)
target_include_directories(fuzzed PUBLIC ${CMAKE_SOURCE_DIR} ${KVKILN_GENERATED})
target_include_directories(fuzzed SYSTEM PUBLIC ${KVKILN_XXHASH_INCLUDE})
target_link_libraries(fuzzed PUBLIC dep_zstd dep_lua dep_jansson Threads::Threads m ${CMAKE_DL_LIBS})
add_dependencies(fuzzed build_id embedded_specs)

set(targets ${KVKILN_TEST_SOURCES})
list(FILTER targets INCLUDE REGEX "^tests/fuzz/")
foreach(target IN LISTS targets)
  string(REGEX REPLACE "tests/fuzz/test_([a-z0-9_]+)[.]c" "fuzz_\\1" name ${target})
  add_executable(${name} ${target})
  target_link_libraries(${name} PRIVATE fuzzed)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
endforeach()
