# SPDX-License-Identifier: Apache-2.0
# cmake -DROOT=... -DLIST=... -DLLVM=... -DOUT=... -P build_id.cmake
# Hashes names and contents of the generator's sources. No path outside the tree, no time: equal sources, equal id.
file(STRINGS ${LIST} files)
list(SORT files)
set(all "")
foreach(file IN LISTS files)
  file(SHA256 ${ROOT}/${file} hash)
  string(APPEND all "${file} ${hash}\n")
endforeach()
string(SHA256 id "${all}")
string(SUBSTRING ${id} 0 16 id)
set(line "#define KVK_BUILD_ID \"${id} llvm ${LLVM}\"\n")
set(old "")
if(EXISTS ${OUT})
  file(READ ${OUT} old)
endif()
if(NOT old STREQUAL line) # an unchanged id recompiles nothing
  file(WRITE ${OUT} "${line}")
endif()
