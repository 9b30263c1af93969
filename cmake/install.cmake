# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where. Nothing installed names its own place: the tree may be moved.
#
#   component runtime    lib/libkvkiln.so.*                                           libc only
#   component dev        include/kvkiln.h, lib/libkvkiln.{so,a}, lib/cmake/kvkiln, lib/pkgconfig
#   component generator  bin/kvkiln, lib/libkvkiln-gen.so, share/kvkiln, share/man    LLVM

# Not lib64, not lib/TRIPLET, unless asked for. No PATH: cmake makes one of the command line absolute.
set(CMAKE_INSTALL_LIBDIR lib CACHE STRING "libraries, below the prefix")
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(doc ${CMAKE_INSTALL_DATADIR}/doc)

# ---- runtime, and what compiles against it ----
if(NOT KVKILN_STATIC)
  install(TARGETS kvkiln LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev)
  install(FILES ${KVKILN_GENERATED}/copyright-runtime DESTINATION ${doc}/libkvkiln RENAME copyright COMPONENT runtime)

  # The archive is one object whose only global names are kvk_*: an engine may have its own `cache_load`.
  set(archive ${CMAKE_BINARY_DIR}/ar/libkvkiln.a)
  add_custom_command(OUTPUT ${archive}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
    COMMAND ${CMAKE_LINKER} -r -o ${CMAKE_BINARY_DIR}/ar/kvkiln.o $<TARGET_OBJECTS:runtime-objects>
      ${KVKILN_ZSTD_ARCHIVE}
    COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=kvk_* ${CMAKE_BINARY_DIR}/ar/kvkiln.o
    COMMAND ${CMAKE_AR} rcs ${archive} ${CMAKE_BINARY_DIR}/ar/kvkiln.o
    DEPENDS runtime-objects $<TARGET_OBJECTS:runtime-objects> COMMENT "libkvkiln.a" COMMAND_EXPAND_LISTS VERBATIM)
  set(header ${KVKILN_GENERATED}/include/kvkiln.h)
  add_custom_command(OUTPUT ${header}
    COMMAND ${CMAKE_COMMAND} -DROOT=${CMAKE_SOURCE_DIR} -DOUT=${header} -P ${CMAKE_SOURCE_DIR}/cmake/header.cmake
    DEPENDS runtime/kvkiln.h runtime/status.def cmake/header.cmake COMMENT "kvkiln.h" VERBATIM)
  add_custom_target(dev-files ALL DEPENDS ${archive} ${header})
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
  install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
  install(FILES ${KVKILN_GENERATED}/copyright-runtime DESTINATION ${doc}/libkvkiln-dev RENAME copyright COMPONENT dev)
  install(DIRECTORY examples DESTINATION ${doc}/libkvkiln-dev COMPONENT dev)

  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/kvkiln)
  configure_package_config_file(cmake/package/kvkilnConfig.cmake.in ${KVKILN_GENERATED}/kvkilnConfig.cmake
    INSTALL_DESTINATION ${package}
    PATH_VARS CMAKE_INSTALL_BINDIR CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
  write_basic_package_version_file(${KVKILN_GENERATED}/kvkilnConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${KVKILN_GENERATED}/kvkilnConfig.cmake ${KVKILN_GENERATED}/kvkilnConfigVersion.cmake
    cmake/package/kvkilnPack.cmake DESTINATION ${package} COMPONENT dev)
  file(RELATIVE_PATH KVKILN_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  string(REGEX REPLACE "/$" "" KVKILN_PC_PREFIX "${KVKILN_PC_PREFIX}")
  configure_file(cmake/package/kvkiln.pc.in ${KVKILN_GENERATED}/kvkiln.pc @ONLY)
  install(FILES ${KVKILN_GENERATED}/kvkiln.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
endif()
if(NOT KVKILN_GENERATOR)
  return()
endif()

# ---- generator and command line ----
file(RELATIVE_PATH to_lib /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
set_target_properties(kvkiln-cli PROPERTIES INSTALL_RPATH "$ORIGIN/${to_lib}")
install(TARGETS kvkiln-cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT generator)
if(NOT KVKILN_STATIC)
  install(TARGETS kvkiln-gen LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT generator)
endif()
install(FILES ${KVKILN_SPEC_FILES} DESTINATION ${CMAKE_INSTALL_DATADIR}/kvkiln/specs COMPONENT generator)
install(FILES ${KVKILN_TUNED_FILES} DESTINATION ${CMAKE_INSTALL_DATADIR}/kvkiln/specs/tuned COMPONENT generator)
install(DIRECTORY tests/data/ DESTINATION ${CMAKE_INSTALL_DATADIR}/kvkiln/data COMPONENT generator
  FILES_MATCHING PATTERN "*.safetensors") # what `kvkiln demo` shows
install(FILES ${KVKILN_GENERATED}/copyright-generator DESTINATION ${doc}/kvkiln RENAME copyright COMPONENT generator)
install(FILES README.md CHANGELOG.md DESTINATION ${doc}/kvkiln COMPONENT generator)
install(DIRECTORY docs/ DESTINATION ${doc}/kvkiln/docs COMPONENT generator FILES_MATCHING PATTERN "*.md")

if(NOT KVKILN_SANITIZE) # pages are written by running the executable
  set(man ${CMAKE_BINARY_DIR}/man)
  add_custom_command(OUTPUT ${man}/kvkiln.1
    COMMAND ${CMAKE_COMMAND} -DKVKILN=$<TARGET_FILE:kvkiln-cli> -DVERSION=${PROJECT_VERSION} -DOUT=${man}
      -P ${CMAKE_SOURCE_DIR}/cmake/man.cmake
    DEPENDS kvkiln-cli cmake/man.cmake COMMENT "manual pages" VERBATIM)
  add_custom_target(man ALL DEPENDS ${man}/kvkiln.1)
  install(DIRECTORY ${man}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT generator)
endif()
