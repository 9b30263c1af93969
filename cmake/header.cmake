# SPDX-License-Identifier: Apache-2.0
# cmake -DROOT=... -DOUT=FILE -P header.cmake
# The header that is installed: runtime/kvkiln.h with the list of status.def written out, so that it is one file.
file(READ ${ROOT}/runtime/kvkiln.h header)
file(STRINGS ${ROOT}/runtime/status.def rows REGEX "^STATUS[(]")
set(members "")
foreach(row IN LISTS rows)
  if(NOT row MATCHES "^STATUS[(]([A-Z_]+), ([0-9]+), \"(.*)\"[)]$")
    message(FATAL_ERROR "status.def: not NAME, VALUE, \"MEANING\" on one line: ${row}")
  endif()
  string(APPEND members "    KVK_${CMAKE_MATCH_1} = ${CMAKE_MATCH_2}, /* ${CMAKE_MATCH_3} */\n")
endforeach()
string(REGEX REPLACE "#define STATUS[^\n]*\n#include \"status.def\"\n#undef STATUS\n" "${members}" whole "${header}")
if(whole STREQUAL header OR whole MATCHES "#include \"")
  message(FATAL_ERROR "kvkiln.h: its one own include is not where this file expects it")
endif()
file(WRITE ${OUT} "${whole}")
