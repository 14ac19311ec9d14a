// The names of a config's keys without its values: to tell whose key a stray one is.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "framework/recipe/fields.h"

namespace brim::recipe {

/// Keys and sections as dotted paths ("width", "stem", "stem.width"). Where `config` itself holds a
/// component, the keys of every component that could stand there.
std::set<std::string, std::less<>> key_list(Config& config);

/// The key, as "optimizer.learning_rate", that PyTorch, Lightning, timm or transformers call
/// `name`; "" where none of them does.
std::string_view key_by_foreign_name(std::string_view name);

}  // namespace brim::recipe
