# The LibTorch that Brim is built with, or that a program made with an installed Brim uses.
#
#   brim_find_torch(folders…)   looks in CMAKE_PREFIX_PATH (a LibTorch folder, or what a Python's
#                               torch.utils.cmake_prefix_path prints), then in the folders; sets
#                               BRIM_TORCH_ROOT
#   brim_torch_target(NAME)     gives an INTERFACE library its headers, libc10 and libtorch_cpu

set(BRIM_TORCH_VERSION 2.11.0)

function(brim_find_torch)
  set(hints)
  foreach(prefix IN LISTS CMAKE_PREFIX_PATH)
    list(APPEND hints ${prefix} ${prefix}/../..)
  endforeach()
  unset(BRIM_TORCH_INCLUDE CACHE)  # the answer may have changed since the last configuration
  find_path(BRIM_TORCH_INCLUDE torch/headeronly/version.h HINTS ${hints} ${ARGN}
            PATH_SUFFIXES include NO_DEFAULT_PATH)
  if(NOT BRIM_TORCH_INCLUDE)
    message(FATAL_ERROR "LibTorch ${BRIM_TORCH_VERSION} was not found. Add to "
      "CMAKE_PREFIX_PATH what python3 -c 'import torch; print(torch.utils.cmake_prefix_path)' prints, "
      "or run scripts/setup where Brim itself is built")
  endif()
  get_filename_component(root ${BRIM_TORCH_INCLUDE} DIRECTORY)
  file(STRINGS ${BRIM_TORCH_INCLUDE}/torch/headeronly/version.h lines
       REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX MATCHALL "[0-9]+" version "${lines}")
  list(JOIN version "." version)
  if(NOT version VERSION_EQUAL BRIM_TORCH_VERSION)
    message(FATAL_ERROR "LibTorch ${BRIM_TORCH_VERSION} is needed; ${root} holds ${version}. Set "
      "CMAKE_PREFIX_PATH to the right one, or run scripts/setup where Brim itself is built")
  endif()
  set(BRIM_TORCH_ROOT ${root} PARENT_SCOPE)
endfunction()

# find_package(Torch) of the PyPI wheel insists on a CUDA toolkit even where only the CPU is
# wanted, so the libraries are named here.
function(brim_torch_target name)
  set(include ${BRIM_TORCH_ROOT}/include)
  target_include_directories(${name} SYSTEM INTERFACE ${include} ${include}/torch/csrc/api/include)
  # LibTorch is built with NDEBUG, on which the layout of some of its classes (at::RecordFunction)
  # depends.
  target_compile_definitions(${name} INTERFACE NDEBUG USE_DISTRIBUTED USE_C10D_GLOO)
  target_link_libraries(${name} INTERFACE
    ${BRIM_TORCH_ROOT}/lib/libtorch_cpu.so ${BRIM_TORCH_ROOT}/lib/libc10.so)
  # at::parallel_for() is a template: it runs on one thread in what is compiled without OpenMP. The
  # threads are those of LibTorch's own libgomp, whose name may carry a hash.
  file(GLOB gomp ${BRIM_TORCH_ROOT}/lib/libgomp*.so*)
  target_compile_options(${name} INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fopenmp>)
  target_link_libraries(${name} INTERFACE ${gomp})
  # libtorch_cpu finds what it needs by its own run path; the linker need not look.
  target_link_options(${name} INTERFACE -Wl,--allow-shlib-undefined)
  if(NOT MOLD_PROGRAM OR BRIM_SANITIZE)
    target_link_options(${name} INTERFACE -Wl,--unresolved-symbols=ignore-in-shared-libs)
  endif()
endfunction()
