# One CMake target a module, each with its level; includes may only point down.
#
#   brim_module(NAME [TORCH] [COLD] SOURCES a.cpp … [DEPENDS base …] [LINK lib …])
#       a static library brim_NAME from the current folder. TORCH: it sees LibTorch and takes
#       part in the shared precompiled header. COLD: none of it loops over data, so that a release
#       is compiled with -O1, in two thirds of the time; what sees LibTorch always is.
#   brim_program(NAME [TORCH] [COLD] SOURCES … DEPENDS …)
#   brim_test(NAME [TORCH] SOURCES … DEPENDS … [LABELS cpu])
#       a GoogleTest program test_NAME, and a CTest test NAME that runs it. Tests have precompiled
#       headers of their own, which tests/CMakeLists.txt makes.

find_package(Python3 COMPONENTS Interpreter REQUIRED)

# Includes go to an earlier row of the level table in CONTRIBUTING.md or stay in their folder.
add_custom_target(check_levels ALL
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/scripts/check_levels.py ${CMAKE_SOURCE_DIR}
  COMMENT "Checking that includes point down")

# Two precompiled headers, each compiled once: brim_pch for every target that sees LibTorch,
# brim_cold_pch for those that don't and are compiled with -O1.
file(WRITE ${CMAKE_BINARY_DIR}/pch.cpp.in "")
configure_file(${CMAKE_BINARY_DIR}/pch.cpp.in ${CMAKE_BINARY_DIR}/pch.cpp COPYONLY)
set(BRIM_TORCH_HEADERS <ATen/ATen.h> <torch/nn/module.h>)
foreach(kind IN ITEMS pch cold_pch)
  add_library(brim_${kind} STATIC ${CMAKE_BINARY_DIR}/pch.cpp)
  target_link_libraries(brim_${kind} PUBLIC brim_options)
endforeach()
target_link_libraries(brim_pch PUBLIC brim::torch)
target_precompile_headers(brim_pch PRIVATE ${BRIM_TORCH_HEADERS})
target_precompile_headers(brim_cold_pch PRIVATE
  <fmt/format.h> <fmt/ranges.h> <nlohmann/json.hpp> <algorithm> <filesystem> <map> <set> <vector>)

# With -O1 GCC 12 sees what an empty std::optional holds used.
function(brim_cold target)
  target_compile_options(${target} PRIVATE
    $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
endfunction()

# GCC takes the optimisation options of a precompiled header for the whole source, whatever its own
# say. A source that loops over data does without the header: SKIP_PRECOMPILE_HEADERS.
brim_cold(brim_pch)
brim_cold(brim_cold_pch)

function(brim_common target is_torch pch)
  target_link_libraries(${target} PUBLIC brim_options)
  add_dependencies(${target} check_levels)
  if(is_torch)
    target_link_libraries(${target} PUBLIC brim::torch)
    set_property(TARGET ${target} APPEND PROPERTY INSTALL_RPATH ${BRIM_TORCH_RPATH})
    if(NOT pch)
      set(pch brim_pch)
    endif()
  endif()
  if(pch)
    target_precompile_headers(${target} REUSE_FROM ${pch})
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "EXECUTABLE")  # the shared header was made with -fPIC; -fPIE would refuse it
      set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fPIC>)
    endif()
  endif()
  if(is_torch)
    brim_cold(${target})
  endif()
endfunction()

# LibTorch's headers cost every source some seconds, however short it is.
#   brim_unity(TARGET IS_TORCH [SIZE])
function(brim_unity target is_torch)
  set(size 20)
  if(ARGC GREATER 2)
    set(size ${ARGV2})
  elseif(is_torch)
    set(size 35)
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${BRIM_UNITY} UNITY_BUILD_BATCH_SIZE ${size})
endfunction()

function(brim_module name)
  cmake_parse_arguments(arg "TORCH;COLD" "" "SOURCES;DEPENDS;LINK" ${ARGN})
  add_library(brim_${name} STATIC ${arg_SOURCES})
  brim_unity(brim_${name} "${arg_TORCH}")
  set(pch)
  if(arg_COLD)
    brim_cold(brim_${name})
    set(pch brim_cold_pch)
  endif()
  brim_common(brim_${name} ${arg_TORCH} "${pch}")
  list(TRANSFORM arg_DEPENDS PREPEND brim_)
  target_link_libraries(brim_${name} PUBLIC ${arg_DEPENDS} ${arg_LINK})
  set_property(GLOBAL APPEND PROPERTY BRIM_MODULES brim_${name})
  set_property(GLOBAL APPEND PROPERTY BRIM_LINKS ${arg_LINK})
endfunction()

function(brim_program name)
  cmake_parse_arguments(arg "TORCH;COLD" "PCH" "SOURCES;DEPENDS;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  # Old tags: unlike DT_RUNPATH, DT_RPATH also counts for what the libraries of a package need in turn.
  target_link_options(${name} PRIVATE -Wl,--disable-new-dtags)
  brim_common(${name} ${arg_TORCH} "${arg_PCH}")
  if(arg_COLD)
    brim_cold(${name})
  endif()
  list(TRANSFORM arg_DEPENDS PREPEND brim_)
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS} ${arg_LINK})
endfunction()

#   brim_plug_in(NAME [TORCH])
#       NAME.so beside the trainer, from NAME.cpp: parts for a recipe's `library`. The trainer has the
#       code of Brim that they call.
function(brim_plug_in name)
  cmake_parse_arguments(arg "TORCH" "" "" ${ARGN})
  add_library(${name} MODULE ${name}.cpp)
  add_dependencies(${name} brim_abi)
  target_include_directories(${name} PRIVATE ${BRIM_GENERATED})
  brim_common(${name} ${arg_TORCH} "")
  target_link_libraries(${name} PUBLIC fmt)
  set_target_properties(${name} PROPERTIES PREFIX ""
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
endfunction()

# The GoogleTest programs free of LibTorch: those that scripts/test runs under sanitizers.
add_custom_target(plain_tests)

function(brim_test name)
  cmake_parse_arguments(arg "TORCH" "" "SOURCES;DEPENDS;LINK;LABELS" ${ARGN})
  if(NOT arg_LABELS)
    set(arg_LABELS cpu)
  endif()
  set(kind PCH brim_test_pch)
  if(arg_TORCH)
    set(kind TORCH PCH brim_torch_test_pch)
  endif()
  brim_program(test_${name} ${kind} SOURCES ${arg_SOURCES} DEPENDS ${arg_DEPENDS}
    LINK ${arg_LINK} GTest::gmock_main)
  target_compile_options(test_${name} PRIVATE ${BRIM_TEST_OPTIONS})
  brim_unity(test_${name} "${arg_TORCH}" 12)
  if(NOT arg_TORCH)
    add_dependencies(plain_tests test_${name})
  endif()
  add_test(NAME ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} COMMAND test_${name} --gtest_brief=1)
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 1200
    ENVIRONMENT OMP_WAIT_POLICY=passive)
  if(arg_LABELS STREQUAL "gpu")  # there is no GPU: every case is skipped
    set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "PASSED  ] 0 tests")
  else()
    set_tests_properties(${name} PROPERTIES FAIL_REGULAR_EXPRESSION "SKIPPED")
  endif()
endfunction()

# Pytest files as one CTest test: several where they import the same large packages. The tests find the programs by BRIM_BIN_DIR, the test tools that
# brim_program() makes included. Those of BRIM_LONG_TESTS start first and are labelled long.
#   brim_python_test(NAME FILE test_x.py … [LABELS peer])
set(BRIM_TEST_PYTHON ${CMAKE_SOURCE_DIR}/.venv/bin/python CACHE FILEPATH
    "Python with pytest, and torch and torchvision for the peer tests")
function(brim_python_test name)
  cmake_parse_arguments(arg "" "" "FILE;LABELS" ${ARGN})
  list(TRANSFORM arg_FILE PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  if(NOT arg_LABELS)
    set(arg_LABELS cpu)
  endif()
  add_test(NAME ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
    COMMAND ${BRIM_TEST_PYTHON} -m pytest -q -p no:cacheprovider --rootdir ${CMAKE_SOURCE_DIR}
      ${arg_FILE})
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT 1200
    SKIP_REGULAR_EXPRESSION "[0-9]+ skipped"  # scripts/test lets no such test pass
    # Spinning threads would take the cores from other tests, and plugins of pytest that other packages bring
    # take a third of a second of each start.
    ENVIRONMENT "BRIM_BIN_DIR=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};PYTHONDONTWRITEBYTECODE=;PYTHONPYCACHEPREFIX=${CMAKE_BINARY_DIR}/pycache;OMP_WAIT_POLICY=passive;PYTEST_DISABLE_PLUGIN_AUTOLOAD=1")
  list(FIND BRIM_LONG_TESTS ${name} place)
  if(place GREATER_EQUAL 0)
    math(EXPR cost "1000 - ${place}")
    set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS};long" COST ${cost})
  endif()
endfunction()
