// Where recipes and profiles are found by name: the current folder, then recipes/ (or configs/)
// there, beside the program's folder, and in the source tree it was built from.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace brim::recipe {

/// The file meant by `name`: a path, or a file under `shelf` ("recipes", "configs"); ".toml" may be
/// left out. Throws Error(kRecipe) with the nearest name and what there is, where nothing is found.
std::filesystem::path find_file(const std::string& name, std::string_view shelf);

}  // namespace brim::recipe
