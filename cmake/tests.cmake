# SPDX-License-Identifier: Apache-2.0
# One program for each tests/*/test_*.c, linked with both halves (private functions included); see ./dev test.
if(NOT KVKILN_TESTS OR NOT KVKILN_GENERATOR OR KVKILN_STATIC)
  return()
endif()

add_library(ref STATIC ${KVKILN_REF_SOURCES} cmake/empty.c)
target_include_directories(ref PUBLIC ${CMAKE_SOURCE_DIR})

function(add_suites folder)
  collect(tests tests/${folder}/test_*.c)
  collect(parts tests/${folder}/*.c)
  list(FILTER parts EXCLUDE REGEX "/test_|/fake_|/main")
  foreach(test IN LISTS tests)
    get_filename_component(name ${test} NAME_WE)
    set(name ${folder}_${name})
    add_executable(${name} ${test} ${parts})
    target_compile_definitions(${name} PRIVATE TEST_ROOT="${CMAKE_SOURCE_DIR}" TEST_BUILD="${CMAKE_BINARY_DIR}")
    target_link_libraries(${name} PRIVATE ref everything dep_jansson dep_cmocka)
  endforeach()
endfunction()
add_suites(unit)
add_suites(rt)
add_suites(ir)
add_suites(cli)

collect(fakes tests/rt/fake_*.c) # driver libraries that fail on demand
foreach(fake IN LISTS fakes)
  get_filename_component(name ${fake} NAME_WE)
  add_library(${name} MODULE ${fake})
  set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
endforeach()

if(KVKILN_NUM_SOURCES)
  add_executable(num ${KVKILN_NUM_SOURCES})
  target_link_libraries(num PRIVATE ref everything dep_jansson dep_cmocka)
endif()
