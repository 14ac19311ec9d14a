# cmake -D FILE=… [-D BESIDE_TORCH=ON] -P RunPath.cmake
# Leaves a program or library of a package no run path but ../lib beside its own folder; in a wheel
# also LibTorch's, as its package lies beside ours. A new path can't be longer than the old one.
set(paths "$ORIGIN/../lib")
if(BESIDE_TORCH)
  string(APPEND paths ":$ORIGIN/../../torch/lib")
  if(FILE MATCHES "libbrim_cuda")
    string(APPEND paths ":$ORIGIN/../../nvidia/cu13/lib")
  endif()
endif()
file(RPATH_SET FILE "${FILE}" NEW_RPATH "${paths}")
