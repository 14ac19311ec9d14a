// The names of a config's keys without its values: to tell whose key a stray one is.
#pragma once

#include <set>
#include <string>

#include "framework/recipe/fields.h"

namespace brim::recipe {

/// Keys and sections as dotted paths ("width", "stem", "stem.width"). Where `config` itself holds a
/// component, the keys of every component that could stand there.
std::set<std::string, std::less<>> key_list(Config& config);

}  // namespace brim::recipe
