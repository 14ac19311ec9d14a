# Finds LibTorch 2.11 and makes two imported targets:
#   brim::torch       headers, libc10 and libtorch_cpu: all that Brim's programs link
#   brim::torch_cuda  libc10_cuda and libtorch_cuda, for the CUDA half; only where BRIM_WITH_CUDA
#
# It is looked for in CMAKE_PREFIX_PATH (a LibTorch folder, or what a Python's
# torch.utils.cmake_prefix_path prints), then where .libtorch says (scripts/setup --libtorch), then
# in the private .venv that scripts/setup makes.
# find_package(Torch) of the PyPI wheel insists on a CUDA toolkit even where only the CPU is
# wanted, so the libraries are named here.

include(TorchTarget)  # brim_find_torch(), brim_torch_target()

file(GLOB BRIM_VENV_TORCH ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
set(BRIM_TORCH_HINTS)
if(EXISTS ${CMAKE_SOURCE_DIR}/.libtorch)
  file(STRINGS ${CMAKE_SOURCE_DIR}/.libtorch remembered_libtorch)
  list(APPEND BRIM_TORCH_HINTS ${remembered_libtorch})
endif()
brim_find_torch(${BRIM_TORCH_HINTS} ${BRIM_VENV_TORCH})

# The wheel keeps CUDA's runtime libraries beside torch/, in nvidia/; a LibTorch folder has them in lib/.
get_filename_component(BRIM_NVIDIA_ROOT ${BRIM_TORCH_ROOT}/../nvidia ABSOLUTE)
set(BRIM_TORCH_RPATH ${BRIM_TORCH_ROOT}/lib)

add_library(brim_torch INTERFACE)
add_library(brim::torch ALIAS brim_torch)
brim_torch_target(brim_torch)

# LibTorch ships fmt's headers of another version than the system's, and no library of them. Compiled
# into each source, as FMT_HEADER_ONLY has it, it would cost every one of them a second.
add_library(brim_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/libtorch_fmt.cpp)
target_include_directories(brim_fmt SYSTEM PRIVATE ${BRIM_TORCH_ROOT}/include)
set_target_properties(brim_fmt PROPERTIES CXX_VISIBILITY_PRESET hidden)
target_link_libraries(brim_torch INTERFACE brim_fmt)

# --- the CUDA half ------------------------------------------------------------------------------
# Its compiler, headers and runtime library are looked for beside the wheel, then in a toolkit (where
# nvcc is), then where the system has its headers.
set(BRIM_WITH_CUDA OFF)
set(BRIM_CUDART_FOLDER "")
if(NOT BRIM_CUDA STREQUAL "OFF")
  find_program(BRIM_NVCC nvcc HINTS ${BRIM_NVIDIA_ROOT}/cu13/bin /usr/local/cuda/bin)
  set(missing)
  set(nvcc_says)
  if(BRIM_NVCC)
    execute_process(COMMAND ${BRIM_NVCC} --version OUTPUT_VARIABLE nvcc_says ERROR_QUIET)
    get_filename_component(toolkit ${BRIM_NVCC}/../.. REALPATH)
  endif()
  set(beside ${BRIM_NVIDIA_ROOT}/cu13 ${toolkit})
  find_path(BRIM_CUDA_HEADERS cublas_v2.h HINTS ${beside} PATH_SUFFIXES include targets/x86_64-linux/include)
  find_path(BRIM_CUDNN_HEADERS cudnn.h HINTS ${BRIM_NVIDIA_ROOT}/cudnn ${beside} PATH_SUFFIXES include)
  find_path(BRIM_NCCL_HEADERS nccl.h HINTS ${BRIM_NVIDIA_ROOT}/nccl ${beside} PATH_SUFFIXES include)
  find_library(BRIM_CUDART NAMES libcudart.so.13 HINTS ${beside} ${BRIM_TORCH_ROOT}
    PATH_SUFFIXES lib lib64 targets/x86_64-linux/lib)
  if(NOT nvcc_says MATCHES "release 13")
    list(APPEND missing "nvcc 13")
  elseif(NOT BRIM_NVCC_COMPILES)
    execute_process(COMMAND ${BRIM_NVCC} -x cu -c /dev/null -o ${CMAKE_BINARY_DIR}/nvcc_compiles.o
      RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
    if(status EQUAL 0)
      set(BRIM_NVCC_COMPILES ON CACHE INTERNAL "")
    else()
      list(APPEND missing "a host compiler that ${BRIM_NVCC} takes")
    endif()
  endif()
  if(NOT EXISTS ${BRIM_TORCH_ROOT}/lib/libtorch_cuda.so)
    list(APPEND missing "libtorch_cuda.so")
  endif()
  if(NOT BRIM_CUDA_HEADERS OR NOT BRIM_CUDNN_HEADERS OR NOT BRIM_NCCL_HEADERS)
    list(APPEND missing "headers of CUDA (cublas_v2.h), cuDNN (cudnn.h) and NCCL (nccl.h)")
  endif()
  if(NOT BRIM_CUDART)
    list(APPEND missing "libcudart.so.13")
  endif()
  list(JOIN missing ", " missing)
  if(missing AND BRIM_CUDA STREQUAL "ON")
    message(FATAL_ERROR "BRIM_CUDA=ON, but not found: ${missing}. Run scripts/setup --cuda, or give "
      "a toolkit's nvcc by -D BRIM_NVCC=/usr/local/cuda/bin/nvcc.")
  elseif(missing)
    message(STATUS "CUDA half left out (not found: ${missing}); scripts/setup --cuda brings it")
  else()
    set(BRIM_WITH_CUDA ON)
    get_filename_component(BRIM_CUDART_FOLDER ${BRIM_CUDART} DIRECTORY)
  endif()
endif()

if(BRIM_WITH_CUDA)
  set(CMAKE_CUDA_COMPILER ${BRIM_NVCC})
  # From T4 on; what is newer than the last compiles its PTX when it starts.
  set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 90-real 90-virtual)
  # CMake 3.25 tests the compiler by linking; the wheel's runtime library lies in lib/, not lib64/.
  set(CMAKE_CUDA_FLAGS_INIT "-L\"${BRIM_CUDART_FOLDER}\"")
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 17)
  set(CMAKE_CUDA_FLAGS "${CMAKE_CUDA_FLAGS} -O3 --expt-relaxed-constexpr")

  add_library(brim_torch_cuda INTERFACE)
  add_library(brim::torch_cuda ALIAS brim_torch_cuda)
  target_link_libraries(brim_torch_cuda INTERFACE brim::torch
    ${BRIM_TORCH_ROOT}/lib/libtorch_cuda.so ${BRIM_TORCH_ROOT}/lib/libc10_cuda.so ${BRIM_CUDART})
  # libtorch_cuda brings its kernels by being loaded; no symbol of ours asks for it.
  target_link_options(brim_torch_cuda INTERFACE -Wl,--no-as-needed)
  target_include_directories(brim_torch_cuda SYSTEM INTERFACE
    ${BRIM_CUDA_HEADERS} ${BRIM_CUDNN_HEADERS} ${BRIM_NCCL_HEADERS})
  target_compile_definitions(brim_torch_cuda INTERFACE USE_C10D_NCCL)
endif()
message(STATUS "LibTorch ${BRIM_TORCH_VERSION} in ${BRIM_TORCH_ROOT}; CUDA half: ${BRIM_WITH_CUDA}")
