// Finds the program to start.
#pragma once

#include <string>

namespace brim::launch {

/// The path of the program that `name` means: a path, a program beside this one, or one in PATH, in
/// this order. Throws Error(kRecipe) where there is none or it can't be executed.
std::string find_program(const std::string& name);

}  // namespace brim::launch
