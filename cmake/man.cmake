# SPDX-License-Identifier: Apache-2.0
# cmake -DKVKILN=EXECUTABLE -DVERSION=... -DOUT=FOLDER -P man.cmake
# Manual pages kvkiln.1 and kvkiln-COMMAND.1 out of what `kvkiln --help` and `kvkiln COMMAND --help` print: one source.

set(ENV{LC_ALL} C)
unset(ENV{ARGP_HELP_FMT}) # would lay the help out as its user likes it

function(help_of variable)
  execute_process(COMMAND ${KVKILN} ${ARGN} --help OUTPUT_VARIABLE text RESULT_VARIABLE status)
  if(NOT status EQUAL 0 OR text STREQUAL "") # tests/cli/test_help.py makes a failure of it
    message(WARNING "kvkiln ${ARGN} --help: status ${status}")
  endif()
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()

# Text as roff shows it: its own characters, and the hyphen that a terminal can search for.
function(roff variable text)
  string(REPLACE "\\" "\\e" text "${text}")
  string(REPLACE "-" "\\-" text "${text}")
  string(REGEX REPLACE "\n([.'])" "\n\\\\&\\1" text "${text}")
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()

function(page name summary help see)
  string(STRIP "${help}" help)
  string(TOUPPER "${name}" title)
  roff(title "${title}")
  roff(body "\n${help}")
  roff(name_text "${name}")
  roff(summary "${summary}")
  file(WRITE "${OUT}/${name}.1" ".\\\" Made from kvkiln --help by cmake/man.cmake.
.TH \"${title}\" 1 \"\" \"kvkiln ${VERSION}\" \"User Commands\"
.SH NAME
${name_text} \\- ${summary}
.SH DESCRIPTION
.nf${body}
.fi
.SH SEE ALSO
${see}
")
endfunction()

# The help of a command, and that of the kinds that it lists ("  decode, store  one launch"), once each.
function(help_with_kinds variable command)
  help_of(whole ${command})
  set(shown "${whole}")
  string(REPLACE ";" "," lines "${whole}")
  string(REGEX MATCHALL "\n  [a-z]+(, [a-z]+)*  +[a-z]" rows "${lines}")
  foreach(row IN LISTS rows)
    string(REGEX MATCHALL "[a-z]+" kinds "${row}")
    list(POP_BACK kinds) # the first letters of the text
    foreach(kind IN LISTS kinds)
      help_of(help ${command} ${kind})
      if(NOT help STREQUAL shown AND NOT help STREQUAL "")
        string(APPEND whole "\n${help}")
      endif()
    endforeach()
  endforeach()
  set(${variable} "${whole}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${OUT})
file(MAKE_DIRECTORY ${OUT})
help_of(main)
string(REPLACE ";" "," lines "${main}") # a semicolon would end a list's item
string(REGEX MATCHALL "\n  [a-z]+  +[^\n]+" rows "${lines}")
set(see_all "")
foreach(row IN LISTS rows)
  string(REGEX MATCH "^\n  ([a-z]+)  +(.+)$" row "${row}")
  set(command ${CMAKE_MATCH_1})
  set(summary "${CMAKE_MATCH_2}")
  help_with_kinds(help ${command})
  page(kvkiln-${command} "${summary}" "${help}" ".BR kvkiln (1)")
  list(APPEND see_all ".BR kvkiln\\-${command} (1)")
endforeach()
list(JOIN see_all ",\n" see_all)
page(kvkiln "quantised KV caches by generated kernels" "${main}" "${see_all}")
