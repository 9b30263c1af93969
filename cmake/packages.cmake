# SPDX-License-Identifier: Apache-2.0
# What the parts are built from. Interface targets: dep_llvm, dep_lua, dep_jansson, dep_cmocka.

function(config_words variable)
  execute_process(COMMAND ${KVKILN_LLVM_CONFIG} ${ARGN} OUTPUT_VARIABLE words RESULT_VARIABLE status
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${KVKILN_LLVM_CONFIG} ${ARGN} failed: install llvm-22-dev or set KVKILN_LLVM_CONFIG")
  endif()
  string(REGEX REPLACE "[ \n]+" ";" words "${words}")
  set(${variable} ${words} PARENT_SCOPE)
endfunction()

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
# One header, XXH_INLINE_ALL. Its folder may hold the headers of another libc (cross builds): only a copy is shown.
find_file(KVKILN_XXHASH_H xxhash.h PATHS /usr/include NO_CMAKE_FIND_ROOT_PATH REQUIRED)
configure_file(${KVKILN_XXHASH_H} ${CMAKE_BINARY_DIR}/include/xxhash.h COPYONLY)
set(KVKILN_XXHASH_INCLUDE ${CMAKE_BINARY_DIR}/include)

# zstd, for packs: the archive (position independent in Debian), so that the runtime needs no library. Cross builds: the
# package of the other architecture, for example libzstd-dev:arm64.
find_library(KVKILN_ZSTD_ARCHIVE libzstd.a REQUIRED)
find_file(KVKILN_ZSTD_H zstd.h PATHS /usr/include NO_CMAKE_FIND_ROOT_PATH REQUIRED)
get_filename_component(zstd_folder ${KVKILN_ZSTD_H} DIRECTORY)
foreach(header zstd.h zstd_errors.h)
  configure_file(${zstd_folder}/${header} ${CMAKE_BINARY_DIR}/include/${header} COPYONLY)
endforeach()
add_library(dep_zstd INTERFACE)
target_include_directories(dep_zstd SYSTEM INTERFACE ${CMAKE_BINARY_DIR}/include)
target_link_libraries(dep_zstd INTERFACE ${KVKILN_ZSTD_ARCHIVE})

if(KVKILN_GENERATOR)
  config_words(KVKILN_LLVM_VERSION --version)
  if(NOT KVKILN_LLVM_VERSION MATCHES "^22\\.")
    message(FATAL_ERROR "LLVM ${KVKILN_LLVM_VERSION} found, 22 needed")
  endif()
  config_words(llvm_include --includedir)
  add_library(dep_llvm INTERFACE)
  target_include_directories(dep_llvm SYSTEM INTERFACE ${llvm_include})
  if(KVKILN_STATIC)
    include(static)
  else()
    config_words(llvm_libs --link-shared --ldflags --libs)
    target_link_libraries(dep_llvm INTERFACE ${llvm_libs})
  endif()

  include(lua)

  pkg_check_modules(JANSSON REQUIRED jansson)
  add_library(dep_jansson INTERFACE)
  target_include_directories(dep_jansson SYSTEM INTERFACE ${JANSSON_INCLUDE_DIRS})
  if(KVKILN_STATIC)
    find_library(KVKILN_JANSSON_ARCHIVE libjansson.a REQUIRED)
    target_link_libraries(dep_jansson INTERFACE ${KVKILN_JANSSON_ARCHIVE})
  else()
    target_link_libraries(dep_jansson INTERFACE ${JANSSON_LINK_LIBRARIES})
  endif()
else()
  # The build id must equal that of the generator whose kernels this runtime will find in caches and packs.
  set(KVKILN_LLVM_VERSION "22.1.8" CACHE STRING "LLVM version of the generator that goes with this runtime")
endif()

if(KVKILN_TESTS)
  pkg_check_modules(CMOCKA REQUIRED cmocka)
  add_library(dep_cmocka INTERFACE)
  target_include_directories(dep_cmocka SYSTEM INTERFACE ${CMOCKA_INCLUDE_DIRS})
  target_link_libraries(dep_cmocka INTERFACE ${CMOCKA_LINK_LIBRARIES})
endif()
