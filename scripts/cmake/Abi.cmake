# cmake -D SOURCE=… -D OUTPUT=… -D BRIM=0.1.0 -D TORCH=2.11.0 -P Abi.cmake
# Writes recipe/abi.h: a text that is another one as soon as any header of ours is, so that a library
# compiled with other headers is refused before its objects are misread.

file(GLOB_RECURSE headers RELATIVE ${SOURCE} ${SOURCE}/framework/*.h ${SOURCE}/models/*.h)
list(SORT headers)
set(all)
foreach(header IN LISTS headers)
  file(SHA256 ${SOURCE}/${header} digest)
  string(APPEND all "${header} ${digest}\n")
endforeach()
string(SHA256 digest "${all}")
string(SUBSTRING ${digest} 0 12 digest)
file(WRITE ${OUTPUT} "// Made by scripts/cmake/Abi.cmake.
#pragma once

#define BRIM_ABI \"Brim ${BRIM} (headers ${digest}) with LibTorch ${TORCH}\"
")
