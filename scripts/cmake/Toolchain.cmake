# Compiler cache, linker, warnings and sanitizers for Brim's own targets.

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} ${CCACHE_PROGRAM})
endif()

find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM AND NOT BRIM_SANITIZE)
  add_link_options(-fuse-ld=mold)
endif()

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")  # assertions stay on: they guard files and lengths
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")

find_package(Threads REQUIRED)

# Warnings stop the build with the compilers that our tests run with; a newer one may have warnings
# of its own, and sees copies past the end in fmt's headers that are not there.
set(BRIM_WARNINGS -Wall -Wextra -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  set(BRIM_WARNINGS -Wall -Wextra -Wno-array-bounds -Wno-stringop-overflow)
endif()

# Everything that every target of ours is compiled with.
add_library(brim_options INTERFACE)
target_include_directories(brim_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(brim_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:${BRIM_WARNINGS}>
  # GCC 12 sees overlapping copies in std::string::insert and operator+ that are not there (PR 105651).
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict;-fpch-preprocess>)
target_compile_definitions(brim_options INTERFACE CXXOPTS_NO_REGEX)
target_link_libraries(brim_options INTERFACE Threads::Threads ${CMAKE_DL_LIBS})
if(BRIM_SANITIZE)
  target_compile_options(brim_options INTERFACE -fsanitize=${BRIM_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(brim_options INTERFACE -fsanitize=${BRIM_SANITIZE})
endif()
