# SPDX-License-Identifier: Apache-2.0
# Licence texts of what is linked in, from the packages of the machine that builds: generated/copyright-COMPONENT, which
# is installed as share/doc/*/copyright. Nothing is copied into the sources; tests/install/test_notices.py holds the
# list below against the link lines.

# Text of the package that owns a file (an archive, or a header that is compiled in).
function(notice_of variable name path)
  get_filename_component(path "${path}" REALPATH)
  execute_process(COMMAND dpkg-query -S "${path}" OUTPUT_VARIABLE owner RESULT_VARIABLE status ERROR_QUIET)
  string(REGEX REPLACE "[:,].*" "" package "${owner}") # "libzstd-dev:amd64: /usr/..."
  set(file /usr/share/doc/${package}/copyright)
  if(status EQUAL 0 AND EXISTS ${file})
    file(READ ${file} text)
    set(from "package ${package}")
  else()
    message(WARNING "${name}: ${path} is of no Debian package. What is made here lacks its licence text")
    set(text "The machine that built this had no licence text of ${name}: see its source.\n")
    set(from "no package")
  endif()
  set(${variable} "\n---- ${name}, of which parts are inside (${from}) ----\n\n${text}" PARENT_SCOPE)
endfunction()

function(kvkiln_copyright component) # NAME PATH ...
  file(READ ${CMAKE_SOURCE_DIR}/LICENSE all)
  string(APPEND all "\nParts of other works are inside. Where a text below offers the GNU General Public License\n"
    "as one of two, the other one is what kvkiln uses. The Apache License 2.0 that some refer to is the one above.\n"
    "GCC's libraries, where they are listed, are used by the GCC Runtime Library Exception.\n")
  set(rest ${ARGN})
  while(rest)
    list(POP_FRONT rest name path)
    notice_of(text ${name} "${path}")
    string(APPEND all "${text}")
  endwhile()
  file(CONFIGURE OUTPUT ${KVKILN_GENERATED}/copyright-${component} CONTENT "@all@" @ONLY)
endfunction()

set(linked zstd ${KVKILN_ZSTD_ARCHIVE} xxHash ${KVKILN_XXHASH_H})
kvkiln_copyright(runtime ${linked})
if(KVKILN_GENERATOR)
  list(APPEND linked Lua ${KVKILN_LUA_ARCHIVE})
  if(KVKILN_STATIC)
    find_library(zlib_archive libz.a NO_CACHE)
    execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libstdc++.a OUTPUT_VARIABLE stdcxx_archive
      OUTPUT_STRIP_TRAILING_WHITESPACE)
    list(APPEND linked LLVM ${llvm_dir}/libLLVMCore.a jansson ${KVKILN_JANSSON_ARCHIVE} zlib ${zlib_archive}
      libstdc++ ${stdcxx_archive})
  endif()
  kvkiln_copyright(generator ${linked})
endif()
