# SPDX-License-Identifier: Apache-2.0
# Files made during the build, in generated/: build_id.h and embedded_texts.c.

set(KVKILN_GENERATED ${CMAKE_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${KVKILN_GENERATED})

list(JOIN KVKILN_ID_FILES "\n" id_files)
file(CONFIGURE OUTPUT ${KVKILN_GENERATED}/id_files.txt CONTENT "${id_files}\n" @ONLY)
add_custom_command(OUTPUT ${KVKILN_GENERATED}/build_id.h
  COMMAND ${CMAKE_COMMAND} -DROOT=${CMAKE_SOURCE_DIR} -DLIST=${KVKILN_GENERATED}/id_files.txt
    -DLLVM=${KVKILN_LLVM_VERSION} -DOUT=${KVKILN_GENERATED}/build_id.h -P ${CMAKE_SOURCE_DIR}/cmake/build_id.cmake
  DEPENDS ${KVKILN_ID_FILES} ${KVKILN_GENERATED}/id_files.txt ${CMAKE_SOURCE_DIR}/cmake/build_id.cmake
  COMMENT "build id" VERBATIM)
add_custom_target(build_id DEPENDS ${KVKILN_GENERATED}/build_id.h)

# Lua sources of the presets, as text inside the generator.
list(TRANSFORM KVKILN_SPEC_FILES PREPEND ${CMAKE_SOURCE_DIR}/ OUTPUT_VARIABLE spec_paths)
set(KVKILN_EMBED_SOURCES ${KVKILN_GENERATED}/embedded_specs.c)
add_custom_command(OUTPUT ${KVKILN_EMBED_SOURCES}
  COMMAND ${CMAKE_COMMAND} -DOUT=${KVKILN_EMBED_SOURCES} "-DSPECS=${spec_paths}" -P
    ${CMAKE_SOURCE_DIR}/cmake/embed_specs.cmake
  DEPENDS ${KVKILN_SPEC_FILES} ${CMAKE_SOURCE_DIR}/cmake/embed_specs.cmake COMMENT "presets" VERBATIM)
add_custom_target(embedded_specs DEPENDS ${KVKILN_EMBED_SOURCES})

# Canonical texts of the same presets, so that the runtime needs no Lua to know them, and the tuned tables.
set(tuned_paths ${KVKILN_TUNED_FILES})
list(TRANSFORM tuned_paths PREPEND ${CMAKE_SOURCE_DIR}/)
set(KVKILN_TEXTS_SOURCE ${KVKILN_GENERATED}/embedded_texts.c)
if(KVKILN_EMBEDDED)
  configure_file(${KVKILN_EMBEDDED} ${KVKILN_TEXTS_SOURCE} COPYONLY)
elseif(KVKILN_GENERATOR)
  add_executable(embed_texts cmake/embed_texts.c ${KVKILN_SPEC_SOURCES} ${KVKILN_EMBED_SOURCES})
  target_link_libraries(embed_texts PRIVATE dep_lua)
  target_include_directories(embed_texts PRIVATE ${KVKILN_GENERATED})
  add_dependencies(embed_texts build_id embedded_specs)
  add_custom_command(OUTPUT ${KVKILN_TEXTS_SOURCE}
    COMMAND embed_texts ${KVKILN_TEXTS_SOURCE} ${tuned_paths} DEPENDS embed_texts ${KVKILN_TUNED_FILES}
    COMMENT "canonical preset texts, tuned tables" VERBATIM)
else()
  message(FATAL_ERROR "without the generator, KVKILN_EMBEDDED must name the embedded_texts.c of a native build")
endif()
