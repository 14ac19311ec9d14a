// The door to toml++, which no other file sees: TOML text to a tree of values, problems collected.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/recipe/document.h"

namespace brim::recipe {

/// Where a text comes from; every value of it is marked so.
struct Origin {
  std::string source;
  std::filesystem::path folder;
  int layer = 0;
  Author author = Author::kUser;
};

/// Parses one TOML document; nullopt after adding to `problems` (syntax, duplicate key, not UTF-8,
/// nesting too deep, a date or time, no key at all).
std::optional<Value> parse_toml(std::string_view text, const Origin& origin,
                                std::vector<Problem>& problems);

/// The first place where brackets or dotted keys nest deeper than a recipe ever needs, if any.
/// toml++ recurses on both, so this runs first.
std::optional<Location> find_deep_nesting(std::string_view text, const std::string& source);

}  // namespace brim::recipe
