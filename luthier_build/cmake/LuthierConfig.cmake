# CMake package of Luthier.
#
#   find_package(Luthier REQUIRED)      # -DLuthier_DIR=$(python -m luthier_build cmake-dir)
#
#   luthier_add_tool(<target> SOURCES <file.hip>...
#                    [NAME <module>] [PACKAGE <python package>] [TARGETS <gfx942>...]
#                    [DESTINATION <folder>] [INCLUDE_DIRECTORIES <folder>...] [DEFINITIONS <NAME=VALUE>...]
#                    [FLAGS <flag>...])
#     Builds one device module: <folder>/<module>.hipfb with its manifest, Python module and stub. The files are in
#     the target's property LUTHIER_ARTEFACTS.
#
#   luthier_install_tool(<target> DESTINATION <folder> [COMPONENT <component>])
#     Installs those files, as install(FILES) does.
#
#   luthier_instrument_flags(<variable> [COMPILER <clang++ or hipcc>])
#     Sets <variable> to the list of flags that embed hooks into device code (default COMPILER: CMAKE_HIP_COMPILER).
#
#   luthier_instrument(<target>...)
#     Adds those flags to the HIP sources of targets. Not needed with -DCMAKE_HIP_COMPILER_LAUNCHER=luthier-cc.
#
# Luthier_CC and Luthier_EXECUTABLE are the programs used. The target Luthier::headers adds Luthier_INCLUDE_DIR, the
# folder with luthier/luthier.h.

cmake_minimum_required(VERSION 3.20)

get_filename_component(_luthier_prefix "${CMAKE_CURRENT_LIST_DIR}/../../../../.." ABSOLUTE)
find_program(Luthier_EXECUTABLE luthier HINTS "${_luthier_prefix}/bin" DOC "the command luthier")
find_program(Luthier_CC luthier-cc HINTS "${_luthier_prefix}/bin" DOC "Luthier's compiler launcher")
unset(_luthier_prefix)
if(NOT Luthier_EXECUTABLE OR NOT Luthier_CC)
  set(Luthier_FOUND FALSE)
  set(Luthier_NOT_FOUND_MESSAGE "the programs luthier and luthier-cc were not found: put them on the PATH")
  return()
endif()

find_path(
  Luthier_INCLUDE_DIR luthier/luthier.h
  PATHS "${CMAKE_CURRENT_LIST_DIR}/../compiler_plugin/include" "${CMAKE_CURRENT_LIST_DIR}/../../compiler_plugin/include"
  NO_DEFAULT_PATH DOC "the folder with Luthier's device headers")
mark_as_advanced(Luthier_INCLUDE_DIR Luthier_EXECUTABLE Luthier_CC)
if(NOT TARGET Luthier::headers)
  add_library(Luthier::headers INTERFACE IMPORTED)
  set_target_properties(Luthier::headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${Luthier_INCLUDE_DIR}")
endif()

function(luthier_add_tool target)
  cmake_parse_arguments(
    PARSE_ARGV 1 arg "" "NAME;PACKAGE;DESTINATION" "SOURCES;TARGETS;INCLUDE_DIRECTORIES;DEFINITIONS;FLAGS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "luthier_add_tool(${target}): unknown arguments ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_SOURCES)
    message(FATAL_ERROR "luthier_add_tool(${target}): SOURCES must name at least one file")
  endif()
  if(NOT arg_NAME)
    list(GET arg_SOURCES -1 last)
    get_filename_component(arg_NAME "${last}" NAME_WE)
  endif()
  if(NOT arg_DESTINATION)
    set(arg_DESTINATION "${CMAKE_CURRENT_BINARY_DIR}")
  endif()
  get_filename_component(arg_DESTINATION "${arg_DESTINATION}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_BINARY_DIR}")
  set(command "${Luthier_EXECUTABLE}" build --project "${CMAKE_CURRENT_SOURCE_DIR}" --name "${arg_NAME}")
  list(APPEND command --output "${arg_DESTINATION}" --build-dir "${CMAKE_CURRENT_BINARY_DIR}/${target}.luthier")
  if(arg_PACKAGE)
    list(APPEND command --package "${arg_PACKAGE}")
  endif()
  foreach(item IN LISTS arg_TARGETS)
    list(APPEND command --target "${item}")
  endforeach()
  foreach(item IN LISTS arg_INCLUDE_DIRECTORIES)
    list(APPEND command "-I${item}")
  endforeach()
  foreach(item IN LISTS arg_DEFINITIONS)
    list(APPEND command "-D${item}")
  endforeach()
  foreach(item IN LISTS arg_FLAGS)
    list(APPEND command "--flag=${item}")
  endforeach()
  set(artefacts)
  foreach(suffix IN ITEMS hipfb json py pyi)
    list(APPEND artefacts "${arg_DESTINATION}/${arg_NAME}.${suffix}")
  endforeach()
  set(depfile "${CMAKE_CURRENT_BINARY_DIR}/${target}.luthier.d")
  set(depends)
  foreach(item IN LISTS arg_SOURCES)
    get_filename_component(path "${item}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
    list(APPEND depends "${path}")
  endforeach()
  # The build does not write files that would not change, so the stamp has the time of the last build.
  set(stamp "${CMAKE_CURRENT_BINARY_DIR}/${target}.luthier.stamp")
  add_custom_command(
    OUTPUT ${stamp}
    BYPRODUCTS ${artefacts}
    COMMAND ${command} --depfile "${depfile}" --depfile-target "${stamp}" ${arg_SOURCES}
    COMMAND "${CMAKE_COMMAND}" -E touch "${stamp}"
    DEPENDS ${depends}
    DEPFILE "${depfile}"
    COMMENT "Compiling device module ${arg_NAME}"
    VERBATIM)
  add_custom_target(${target} ALL DEPENDS ${stamp})
  set_target_properties(${target} PROPERTIES LUTHIER_ARTEFACTS "${artefacts}")
endfunction()

function(luthier_install_tool target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "DESTINATION;COMPONENT" "")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_DESTINATION)
    message(FATAL_ERROR "luthier_install_tool(${target}): expected DESTINATION <folder> [COMPONENT <component>]")
  endif()
  if(TARGET ${target})
    get_target_property(artefacts ${target} LUTHIER_ARTEFACTS)
  endif()
  if(NOT artefacts)
    message(FATAL_ERROR "luthier_install_tool(${target}): ${target} was not made by luthier_add_tool")
  endif()
  if(arg_COMPONENT)
    list(APPEND arg_DESTINATION COMPONENT "${arg_COMPONENT}")
  endif()
  install(FILES ${artefacts} DESTINATION ${arg_DESTINATION})
endfunction()

function(luthier_instrument_flags variable)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "COMPILER" "")
  if(NOT arg_COMPILER)
    set(arg_COMPILER "${CMAKE_HIP_COMPILER}")
  endif()
  if(NOT arg_COMPILER)
    message(FATAL_ERROR "luthier_instrument_flags: enable the language HIP, or name a COMPILER")
  endif()
  execute_process(
    COMMAND "${Luthier_CC}" --luthier-showme:compile "${arg_COMPILER}"
    OUTPUT_VARIABLE flags
    ERROR_VARIABLE problem
    RESULT_VARIABLE failed
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(failed)
    message(FATAL_ERROR "luthier_instrument_flags: ${problem}")
  endif()
  separate_arguments(flags UNIX_COMMAND "${flags}")
  set(${variable} "${flags}" PARENT_SCOPE)
endfunction()

function(luthier_instrument)
  luthier_instrument_flags(flags)
  # Pass one option whose words are quoted as for a shell: otherwise CMake drops the second -Xclang.
  set(joined)
  foreach(flag IN LISTS flags)
    string(REGEX REPLACE "([\"\\])" "\\\\\\1" flag "${flag}")
    string(APPEND joined " \"${flag}\"")
  endforeach()
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:HIP>:SHELL:${joined}>")
  endforeach()
endfunction()
