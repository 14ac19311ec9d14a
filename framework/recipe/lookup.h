// Where recipes and profiles are found by name: beside the file that names them, in the current
// folder, then in recipes/ (or configs/) there, beside the program's folder, where Brim is
// installed, and in the source tree it was built from.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>

namespace brim::recipe {

/// The file meant by `name`: a path, or a file under `shelf` ("recipes", "configs"), with or
/// without "recipes/" before it; ".toml" may be left out. A relative path starts from `folder`,
/// where a file wrote the name, else from the current one. Throws Error(kRecipe) with the nearest
/// name and what there is, where nothing is found.
std::filesystem::path find_file(const std::string& name, std::string_view shelf,
                                const std::filesystem::path& folder = {});

/// What find_file() takes for the files that come with Brim: "digits".
std::set<std::string> bundled_names(std::string_view shelf);

}  // namespace brim::recipe
