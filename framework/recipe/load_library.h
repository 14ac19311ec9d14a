// The shared library of parts that a recipe names (recipe/library.h).
#pragma once

#include <string_view>

#include "framework/recipe/document.h"

namespace brim::recipe {

/// Loads what the path [section] key of the recipe names and lets it register its parts; nothing
/// where the recipe has no such key. A library is loaded once and stays; whether it was now. Throws
/// Error(kRecipe) with the place in the recipe where there is no such file, it doesn't load, or it
/// was compiled with the headers of another Brim or LibTorch.
bool load_library(const Value& document, std::string_view section, std::string_view key);

}  // namespace brim::recipe
