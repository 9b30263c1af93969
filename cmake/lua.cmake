# SPDX-License-Identifier: Apache-2.0
# Lua, statically linked and hidden, without its output.
#
# The packaged archive is compiled for executables: it reaches libc's stdout and stderr in a way that a shared library
# may not. Renaming them solves that, and renaming the calls that write to them makes sure that no spec, whatever the
# sandbox missed, prints into the process that loaded the generator. cmake/lua_quiet.c defines the new names.

pkg_check_modules(LUA REQUIRED lua5.4)
find_library(KVKILN_LUA_ARCHIVE liblua5.4.a REQUIRED)
set(lua_quiet ${CMAKE_BINARY_DIR}/ar/liblua-quiet.a)
set(renames "")
foreach(name stdin stdout stderr fwrite fflush fprintf __fprintf_chk)
  list(APPEND renames --redefine-sym ${name}=lua_quiet_${name})
endforeach()
add_custom_command(OUTPUT ${lua_quiet}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/ar
  COMMAND ${CMAKE_OBJCOPY} ${renames} ${KVKILN_LUA_ARCHIVE} ${lua_quiet}
  DEPENDS ${KVKILN_LUA_ARCHIVE} COMMENT "Lua without output" VERBATIM)
add_custom_target(lua_archive DEPENDS ${lua_quiet})
add_library(lua_streams STATIC cmake/lua_quiet.c)

add_library(dep_lua INTERFACE)
add_dependencies(dep_lua lua_archive)
target_include_directories(dep_lua SYSTEM INTERFACE ${LUA_INCLUDE_DIRS})
target_link_libraries(dep_lua INTERFACE ${lua_quiet} lua_streams m ${CMAKE_DL_LIBS})
