# SPDX-License-Identifier: Apache-2.0
# kvkiln_add_pack(NAME SPECS SPEC... TARGETS TARGET...
#                 [KINDS K...] [LAYOUTS L...] [HEAD_SIZES D...] [VALUE_HEAD_SIZES D...] [GQA N...] [DTYPES T...]
#                 [PAGES N...] [OPTIONS O...] [FORMATS cubin ptx] [JOBS N] [MACHINE x86-64|aarch64] [DESTINATION DIR])
#
# Kernels ahead of time, made in this project's build: every combination of the lists, as in `kvkiln build --help`,
# whose defaults hold for lists that are left out. A SPEC with a / or .lua is a file, relative to the source folder.
#
#   NAME         a library to link: the pack as read-only data, for KVK_PACK_DECLARE(NAME) and KVK_PACK_MEMORY(NAME)
#   NAME-file    a target that makes the file NAME.kvkpack, which is the property KVKILN_PACK of NAME. It is part of
#                `all` and installed if DESTINATION is given: kvk_options.packs takes its path
#
# A change of a spec file or of kvkiln itself makes the pack anew. Needs the component generator.

function(kvkiln_check_executable)
  if(NOT kvkiln_generator_FOUND)
    message(FATAL_ERROR "kvkiln_add_pack: the generator is not installed: find_package(kvkiln COMPONENTS generator)")
  endif()
  get_property(version GLOBAL PROPERTY kvkiln_EXECUTABLE_VERSION)
  if(NOT version)
    execute_process(COMMAND ${kvkiln_EXECUTABLE} --version OUTPUT_VARIABLE version RESULT_VARIABLE status
      ERROR_VARIABLE error OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT status EQUAL 0)
      message(FATAL_ERROR "kvkiln_add_pack: ${kvkiln_EXECUTABLE} does not run: ${status} ${error}")
    endif()
    string(REGEX REPLACE "^kvkiln " "" version "${version}")
    set_property(GLOBAL PROPERTY kvkiln_EXECUTABLE_VERSION ${version})
  endif()
  if(NOT version STREQUAL kvkiln_VERSION)
    message(FATAL_ERROR "kvkiln_add_pack: ${kvkiln_EXECUTABLE} is version ${version}, the runtime here is "
      "${kvkiln_VERSION}: it would refuse the pack")
  endif()
endfunction()

# --OPTION=A,B,C out of a list, or nothing.
macro(kvkiln_list option)
  if(ARG_${option})
    list(JOIN ARG_${option} "," joined)
    list(APPEND lists "--${ARGV1}=${joined}")
  endif()
endmacro()

function(kvkiln_machine variable)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set(${variable} x86-64 PARENT_SCOPE)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    set(${variable} aarch64 PARENT_SCOPE)
  else()
    message(FATAL_ERROR "kvkiln_add_pack: processor \"${CMAKE_SYSTEM_PROCESSOR}\": accepted x86-64, aarch64 (MACHINE)")
  endif()
endfunction()

function(kvkiln_add_pack name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "JOBS;MACHINE;DESTINATION"
    "SPECS;TARGETS;KINDS;LAYOUTS;HEAD_SIZES;VALUE_HEAD_SIZES;GQA;DTYPES;PAGES;OPTIONS;FORMATS")
  if(ARG_UNPARSED_ARGUMENTS OR ARG_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR
      "kvkiln_add_pack(${name}): not understood: ${ARG_UNPARSED_ARGUMENTS} ${ARG_KEYWORDS_MISSING_VALUES}")
  endif()
  if(NOT ARG_SPECS OR NOT ARG_TARGETS)
    message(FATAL_ERROR "kvkiln_add_pack(${name}): SPECS and TARGETS are needed")
  endif()
  if(NOT name MATCHES "^[A-Za-z_][A-Za-z0-9_]*$")
    message(FATAL_ERROR "kvkiln_add_pack(${name}): the name becomes part of a C symbol: accepted letters, digits and _")
  endif()
  kvkiln_check_executable()
  if(NOT ARG_MACHINE)
    kvkiln_machine(ARG_MACHINE)
  endif()

  set(lists "")
  kvkiln_list(TARGETS target)
  kvkiln_list(KINDS kind)
  kvkiln_list(LAYOUTS layout)
  kvkiln_list(HEAD_SIZES head-size)
  kvkiln_list(VALUE_HEAD_SIZES value-head-size)
  kvkiln_list(GQA gqa)
  kvkiln_list(DTYPES dtype)
  kvkiln_list(PAGES page)
  kvkiln_list(OPTIONS options)
  kvkiln_list(FORMATS pack-format)
  kvkiln_list(JOBS jobs)
  set(specs "")
  set(files "")
  foreach(spec IN LISTS ARG_SPECS)
    if(spec MATCHES "/|[.]lua$")
      get_filename_component(spec "${spec}" ABSOLUTE)
      list(APPEND files "${spec}")
    endif()
    list(APPEND specs "${spec}")
  endforeach()

  set(pack ${CMAKE_CURRENT_BINARY_DIR}/${name}.kvkpack)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.kvkpack.o)
  add_custom_command(OUTPUT ${pack}
    COMMAND ${kvkiln_EXECUTABLE} build ${specs} ${lists} --pack ${pack}
    DEPENDS ${files} ${kvkiln_EXECUTABLE} ${kvkiln_LIBRARY_DIR}/libkvkiln-gen.so
    COMMENT "Kernels of ${name}" VERBATIM)
  add_custom_command(OUTPUT ${object}
    COMMAND ${kvkiln_EXECUTABLE} pack object ${pack} -o ${object} --machine ${ARG_MACHINE}
    DEPENDS ${pack} COMMENT "${name}.kvkpack as an object file" VERBATIM)
  if(DEFINED ARG_DESTINATION)
    add_custom_target(${name}-file ALL DEPENDS ${pack})
    install(FILES ${pack} DESTINATION ${ARG_DESTINATION})
  else()
    add_custom_target(${name}-file DEPENDS ${pack})
  endif()
  add_library(${name} STATIC EXCLUDE_FROM_ALL ${object})
  set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  add_dependencies(${name} ${name}-file) # one rule makes the file, however the build runs them
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE C KVKILN_PACK ${pack})
endfunction()
