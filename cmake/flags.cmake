# SPDX-License-Identifier: Apache-2.0
# How everything is compiled, and where products go.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
# Assertions stay: they guard against the programmer, and cost nothing that a profile shows.
set(CMAKE_C_FLAGS_RELEASE "-O2 -g1")

# -ffp-contract=off: the host oracle and the spec arithmetic round where the source says.
add_compile_options(-Wall -Wextra -pedantic -ffp-contract=off -fno-math-errno
  -ffile-prefix-map=${CMAKE_SOURCE_DIR}/= -ffunction-sections -fdata-sections)
add_compile_definitions(_GNU_SOURCE)

if(KVKILN_SANITIZE)
  add_compile_options(-fsanitize=${KVKILN_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${KVKILN_SANITIZE})
  if(KVKILN_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=all)
  endif()
  # What nobody set is no null by luck: gcc 12, clang 8.
  include(CheckCCompilerFlag)
  check_c_compiler_flag(-ftrivial-auto-var-init=pattern has_pattern)
  if(has_pattern)
    add_compile_options(-ftrivial-auto-var-init=pattern)
  endif()
endif()

if(CMAKE_BINARY_DIR STREQUAL "${CMAKE_SOURCE_DIR}/out/build")
  set(KVKILN_OUT ${CMAKE_SOURCE_DIR}/out)
else()
  set(KVKILN_OUT ${CMAKE_BINARY_DIR})
endif()
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${KVKILN_OUT}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/ar)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
