# SPDX-License-Identifier: Apache-2.0
# The files of each part.

# Bring-up: whatever lies in the folder.
function(collect variable)
  file(GLOB found CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} ${ARGN})
  list(FILTER found EXCLUDE REGEX "/\\.")
  if(KVKILN_SKIP)
    list(REMOVE_ITEM found ${KVKILN_SKIP})
  endif()
  set(${variable} ${found} PARENT_SCOPE)
endfunction()

collect(KVKILN_RUNTIME_SOURCES runtime/*.c gen/request.c)
collect(KVKILN_GEN_SOURCES gen/*.c templates/*.c runtime/error.c runtime/assembler.c runtime/env.c runtime/object.c)
collect(KVKILN_SPEC_SOURCES gen/spec.c gen/spec_*.c gen/codebook.c gen/request.c runtime/error.c)
collect(KVKILN_CLI_SOURCES cli/*.c)
collect(KVKILN_REF_SOURCES tests/ref/*.c)
list(FILTER KVKILN_REF_SOURCES EXCLUDE REGEX "/test_|main")
collect(KVKILN_NUM_SOURCES tests/num/*.c)
set(KVKILN_SPEC_FILES # in the order in which `kvkiln presets` lists them
  specs/turboquant_k8v4.lua
  specs/turboquant_4bit_nc.lua
  specs/turboquant_k3v4_nc.lua
  specs/turboquant_3bit_nc.lua
  specs/ultraquant_4bit.lua
  specs/ultraquant_4bit_e4m3q.lua)
# What a generated kernel depends on: a change here makes every cached kernel stale.
collect(KVKILN_ID_FILES gen/*.[chd]* templates/*.[chd]* runtime/abi.def runtime/object.h runtime/host_*.h)
