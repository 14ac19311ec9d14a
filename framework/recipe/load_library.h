// The shared library of parts that a recipe names (recipe/library.h).
#pragma once

#include <filesystem>
#include <string_view>

#include "framework/recipe/document.h"

namespace brim::recipe {

/// Throws Error(kRecipe) where [section] key names a file of code that the user has not chosen: a
/// bench file's, and a run's unless it is an absolute path outside the run's folder to a file that
/// belongs to this user or to root.
void require_trust(const Value& document, std::string_view section, std::string_view key);

/// Throws Error(kRecipe) where [section] key is a command line, a list of words, that a run's
/// recipe or a bench file brought along.
void require_own_command(const Value& document, std::string_view section, std::string_view key);

/// Loads what the path [section] key of the recipe names and lets it register its parts; nothing
/// where the recipe has no such key. True where that was now: a library stays, and a process has
/// one. Throws as require_trust() does, and Error(kRecipe) with the place in the recipe where there
/// is no such file, it doesn't load, it was compiled with the headers of another Brim or LibTorch,
/// or there is one already.
bool load_library(const Value& document, std::string_view section, std::string_view key);

/// The library of this process; empty where none is loaded.
const std::filesystem::path& loaded_library();

}  // namespace brim::recipe
