// What a shared library of parts opens with. A recipe names it by model.library:
//
//   BRIM_LIBRARY {
//     brim::recipe::registry<brim::nn::ModelConfig>().add<MyConfig>("my_model", "a model of mine");
//   }
//
// Link it with brim::library, which has Brim's headers and none of its code: the program that loads
// it has that. A program of your own passes brim_register to brim::cli::main() instead.
#pragma once

#include "framework/recipe/abi.h"  // BRIM_ABI: the Brim and the LibTorch of these headers

#define BRIM_VISIBLE __attribute__((visibility("default")))

/// Registers the parts, once. May throw brim::Error.
extern "C" BRIM_VISIBLE void brim_register();
/// BRIM_ABI of the headers that the library was compiled with.
extern "C" BRIM_VISIBLE const char* brim_abi();

/// Begins the body of brim_register(). In one source file of a library.
#define BRIM_LIBRARY                                     \
  extern "C" const char* brim_abi() { return BRIM_ABI; } \
  extern "C" void brim_register()
