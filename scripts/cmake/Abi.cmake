# cmake -D SOURCE=… -D OUTPUT=… -D BRIM=0.1.0 -D TORCH=2.11.0 -P Abi.cmake
# Writes recipe/abi.h: a text that is another one as soon as something is that a library of components
# and the program that loads it both see, so that a library compiled with other headers is refused
# before its objects are misread. That is what the headers below include, comments and blank space
# left out: a library that uses others is built against the version that it runs with.

cmake_minimum_required(VERSION 3.25)

set(entries
  framework/base/error.h framework/base/log.h framework/base/stop.h
  framework/data/source.h framework/data/sampler.h framework/recipe/registry.h
  framework/nn/batch_norm.h framework/nn/block.h framework/nn/convolution.h framework/nn/layer_norm.h
  framework/nn/layers.h framework/nn/linear.h framework/nn/model.h framework/nn/wrap.h
  framework/optim/optimizer.h framework/optim/schedule.h
  framework/train/callbacks.h framework/train/tasks/task.h)

set(open ${entries})
set(headers)
set(all)
while(open)
  list(POP_FRONT open header)
  if(header IN_LIST headers OR NOT EXISTS ${SOURCE}/${header})
    continue()
  endif()
  list(APPEND headers ${header})
  file(READ ${SOURCE}/${header} text)
  string(REGEX MATCHALL "#include \"framework/[^\"]+\"" includes "${text}")
  list(TRANSFORM includes REPLACE "#include \"(.+)\"" "\\1")
  list(APPEND open ${includes})
  string(REGEX REPLACE "//[^\n]*" "" text "${text}")
  string(REGEX REPLACE "[ \n]+" " " text "${text}")
  string(APPEND all "${header} ${text}\n")
endwhile()
string(SHA256 digest "${all}")
string(SUBSTRING ${digest} 0 12 digest)
set(text "// Made by scripts/cmake/Abi.cmake.
#pragma once

#define BRIM_ABI \"Brim ${BRIM} (interface ${digest}) with LibTorch ${TORCH}\"
")
# Left as it is where nothing has changed: then nothing is compiled again.
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
  if(before STREQUAL text)
    return()
  endif()
endif()
file(WRITE ${OUTPUT} "${text}")
