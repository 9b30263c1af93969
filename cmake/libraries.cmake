# SPDX-License-Identifier: Apache-2.0
# The two libraries and the command line.

set(KVKILN_LIBRARY_LINK -Wl,--gc-sections -Wl,--exclude-libs,ALL -Wl,-z,relro,-z,now)
if(NOT KVKILN_SANITIZE) # sanitized libraries leave symbols to the executable
  list(APPEND KVKILN_LIBRARY_LINK -Wl,-z,defs)
endif()

# ---- runtime ----
add_library(runtime-objects OBJECT ${KVKILN_RUNTIME_SOURCES} ${KVKILN_TEXTS_SOURCE})
target_include_directories(runtime-objects PRIVATE ${CMAKE_SOURCE_DIR} ${KVKILN_GENERATED})
target_include_directories(runtime-objects SYSTEM PRIVATE ${KVKILN_XXHASH_INCLUDE})
add_dependencies(runtime-objects build_id)

add_library(kvkiln SHARED)
target_link_libraries(kvkiln PRIVATE runtime-objects dep_zstd Threads::Threads m ${CMAKE_DL_LIBS})
target_include_directories(kvkiln INTERFACE ${CMAKE_SOURCE_DIR}/runtime)
target_link_options(kvkiln PRIVATE ${KVKILN_LIBRARY_LINK})
set(KVKILN_SOVERSION ${PROJECT_VERSION_MAJOR}) # binary compatibility of runtime/kvkiln.h: docs/embedding.md
set_target_properties(kvkiln PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${KVKILN_SOVERSION})
if(NOT KVKILN_GENERATOR)
  return()
endif()

# ---- generator ----
add_library(gen-objects OBJECT ${KVKILN_GEN_SOURCES} ${KVKILN_EMBED_SOURCES})
target_include_directories(gen-objects PRIVATE ${CMAKE_SOURCE_DIR} ${KVKILN_GENERATED})
target_include_directories(gen-objects SYSTEM PRIVATE ${KVKILN_XXHASH_INCLUDE})
target_link_libraries(gen-objects PRIVATE dep_llvm dep_lua)
add_dependencies(gen-objects build_id embedded_specs)

if(NOT KVKILN_STATIC)
  add_library(kvkiln-gen SHARED)
  target_link_libraries(kvkiln-gen PRIVATE gen-objects dep_llvm dep_lua Threads::Threads m ${CMAKE_DL_LIBS})
  target_link_options(kvkiln-gen PRIVATE ${KVKILN_LIBRARY_LINK}
    -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/generator.map)
  set_target_properties(kvkiln-gen PROPERTIES LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/generator.map)
endif()

# ---- everything, for tests of private functions and for static executables ----
# request.c and five files of runtime/ belong to both halves: once here
add_library(everything STATIC $<TARGET_OBJECTS:runtime-objects>
  $<FILTER:$<TARGET_OBJECTS:gen-objects>,EXCLUDE,/runtime/|gen/request[.]c>)
target_link_libraries(everything INTERFACE dep_zstd dep_llvm dep_lua Threads::Threads m ${CMAKE_DL_LIBS})
target_include_directories(everything INTERFACE ${CMAKE_SOURCE_DIR} ${KVKILN_GENERATED})

# ---- command line ----
add_executable(kvkiln-cli ${KVKILN_CLI_SOURCES})
set_target_properties(kvkiln-cli PROPERTIES OUTPUT_NAME kvkiln RUNTIME_OUTPUT_DIRECTORY ${KVKILN_OUT}/bin
  BUILD_RPATH "$ORIGIN/../lib")
target_include_directories(kvkiln-cli PRIVATE ${CMAKE_SOURCE_DIR} ${KVKILN_GENERATED})
add_dependencies(kvkiln-cli build_id)
if(KVKILN_STATIC)
  target_compile_definitions(kvkiln-cli PRIVATE KVKILN_STATIC)
  target_link_libraries(kvkiln-cli PRIVATE everything dep_jansson)
  target_link_options(kvkiln-cli PRIVATE ${KVKILN_STATIC_LINK})
else()
  # the library exports its public functions only
  target_sources(kvkiln-cli PRIVATE ${KVKILN_CLI_RUNTIME_SOURCES} ${KVKILN_TEXTS_SOURCE})
  target_link_libraries(kvkiln-cli PRIVATE kvkiln dep_zstd dep_jansson Threads::Threads m ${CMAKE_DL_LIBS})
  add_dependencies(kvkiln-cli kvkiln-gen)
endif()
