# SPDX-License-Identifier: Apache-2.0
# cmake -DOUT=FILE.c "-DSPECS=a.lua;b.lua" -P embed_specs.cmake
# Writes spec_embedded_data, {name, source} pairs ending in {0, 0}, in the order given. Bytes rather than string
# literals: nothing to escape, and no limit on a literal's length.
set(arrays "")
set(rows "")
foreach(spec IN LISTS SPECS)
  get_filename_component(name "${spec}" NAME_WE)
  file(READ "${spec}" hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND arrays "static const char source_${name}[] = {${bytes}0};\n")
  string(APPEND rows "    {\"${name}\", source_${name}},\n")
endforeach()
file(WRITE "${OUT}" "/* Generated from specs/. */
extern const char *const spec_embedded_data[][2];
${arrays}const char *const spec_embedded_data[][2] = {
${rows}    {0, 0}};
")
